"""`python -m tilewright.exec.rpc_proxy --port 9090`: starts a proxy for servers that accept no connections themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tilewright.compat.exec.serving import parse, parser, serve
from tilewright.runtime.rpc.proxy import PORT, PORT_END, Proxy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = parse(parser("Connect clients with the servers that wait at this proxy.", PORT, PORT_END), arguments)
    return serve(lambda o: Proxy(o.host, o.port, o.port_end), options, "proxy")


if __name__ == "__main__":
    sys.exit(main())
