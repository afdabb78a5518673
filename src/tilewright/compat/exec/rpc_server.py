"""`python -m tilewright.exec.rpc_server --tracker host:9190 --key board`: lets clients run programs on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright.compat.exec.serving import parse, parser, serve
from tilewright.runtime.rpc.connection import parse_address
from tilewright.runtime.rpc.server import PORT, PORT_END, Server


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    made = parser("Let clients that know the secret run programs on this machine.", PORT, PORT_END)
    made.add_argument("--key", default="", help="the key by which clients ask a tracker or proxy for this server")
    made.add_argument("--tracker", type=parse_address, help="host:port of a tracker to register at")
    made.add_argument(
        "--through-proxy", type=parse_address, metavar="HOST:PORT",
        help="wait for clients at this proxy instead of listening on a port")
    made.add_argument("--custom-addr", help="the host that the tracker gives to clients; default: --host")
    made.add_argument(
        "--threads", type=int, help="number of threads of a program; default: all cores")
    made.add_argument(
        "--memory-limit", type=int, metavar="BYTES",
        help="memory limit of a session; default: half of this machine's")
    made.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE",
        help="Python module that each session imports, such as one that registers functions; may be repeated")
    options = parse(made, arguments)
    return serve(_server, options, f"server {options.key}".strip())


def _server(options: argparse.Namespace) -> Server:
    host, port = options.through_proxy or (options.host, options.port)
    return Server(
        host, port, options.port_end, options.through_proxy is not None, options.tracker, options.key,
        custom_addr=options.custom_addr, threads=options.threads, memory_limit=options.memory_limit,
        modules=options.modules)


if __name__ == "__main__":
    sys.exit(main())
