"""`python -m tilewright.exec.query_rpc_tracker --port 9190`: lists the devices of a tracker and the waiting clients."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright.base.errors import RPCError, with_code
from tilewright.runtime.rpc.client import connect_tracker
from tilewright.runtime.rpc.connection import LOOPBACK
from tilewright.runtime.rpc.tracker import PORT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Show the devices of a tracker.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=PORT)
    options = parser.parse_args(arguments)
    try:
        with connect_tracker(options.host, options.port) as tracker:
            print(tracker.text_summary())
    except RPCError as error:
        print(f"Error: {with_code(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
