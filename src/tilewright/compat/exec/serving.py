"""The common part of the server programs: they print their address, and serve until they are terminated."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.base.errors import RPCError, TVMError, with_code
from tilewright.runtime.rpc.connection import LOOPBACK


class Serving(Protocol):
    """A tracker, a server or a proxy."""

    host: str
    port: int

    def close(self) -> None:
        """Stop serving."""


def parser(what: str, port: int, port_end: int) -> argparse.ArgumentParser:
    """Return a parser with the common options of the server programs."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    made.add_argument(
        "--host", default=LOOPBACK, help="the address to listen on; 0.0.0.0 is all networks of this machine")
    made.add_argument("--port", type=int, default=port, help="the first port to try; 0: any")
    made.add_argument("--port-end", type=int, default=port_end, help="the last port to try")
    made.add_argument("--silent", action="store_true", help="do not print the address")
    return made


def serve(start: Callable[[argparse.Namespace], Serving], options: argparse.Namespace, what: str) -> int:
    """Start a server with the secret of the environment or the user's file, wait for SIGINT or SIGTERM, and return the
    exit status."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        serving = start(options)
    except TVMError as error:
        print(f"Error: {with_code(error)}", file=sys.stderr)
        return 1
    if not options.silent:
        print(f"{what} at {serving.host}:{serving.port}", flush=True)
    while not ended.wait(1):
        pass
    serving.close()
    return 0


def parse(made: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; exit with status 2 if they are invalid."""
    try:
        return made.parse_args(arguments)
    except RPCError as error:
        made.error(with_code(error))
