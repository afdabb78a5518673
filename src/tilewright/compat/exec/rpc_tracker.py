"""`python -m tilewright.exec.rpc_tracker --host 127.0.0.1 --port 9190`: assigns the devices of a network to clients."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tilewright.compat.exec.serving import parse, parser, serve
from tilewright.runtime.rpc.tracker import PORT, PORT_END, Tracker


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = parse(parser("Hand out the devices of a network by their keys.", PORT, PORT_END), arguments)
    return serve(lambda o: Tracker(o.host, o.port, o.port_end), options, "tracker")


if __name__ == "__main__":
    sys.exit(main())
