"""The proxy for devices that accept no connections.

Servers connect to the proxy and wait; it connects clients to them. The proxy forwards all bytes unread. Client and
server also authenticate each other, so neither has to trust the proxy.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from tilewright.base.errors import RPCError
from tilewright.runtime.rpc.connection import LOOPBACK, Connection, Listener, seconds
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.wire import Message

PORT, PORT_END = 9090, 9199
_SLICE: Final = 0.2
_PIECE: Final = 1 << 16


@dataclass(slots=True, eq=False)
class _Waiting:
    connection: Connection
    key: str
    token: str
    taken: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Connects clients to servers by key. Listens until `close`."""

    def __init__(
        self, host: str = LOOPBACK, port: int = PORT, port_end: int = PORT_END, secret: str | None = None
    ) -> None:
        """Start listening; raises `RPCError` if no port is free."""
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._listener = Listener(host, port, port_end, shared_secret(secret), {"role": "proxy"}, self._handle)
        self.host, self.port = self._listener.host, self._listener.port

    def close(self) -> None:
        """Stop the proxy and close all its connections."""
        self._closed.set()
        self._listener.close()

    terminate = close

    def _handle(self, connection: Connection, wanted: Message) -> None:
        if wanted["role"] == "server":
            self._keep(_Waiting(connection, str(wanted["key"]), str(wanted["token"])))
        elif wanted["role"] == "session":
            self._join(
                connection, str(wanted["key"]), str(wanted["token"]),
                seconds(wanted["patience"], "the patience of a session"))
        else:
            raise RPCError(f"a proxy accepts the roles 'server' and 'session', not '{wanted['role']}'", code="TW1203")

    def _keep(self, server: _Waiting) -> None:
        """Keep a waiting server until it is taken and its session is over, or it disconnects."""
        with self._changed:
            self._waiting.append(server)
            self._changed.notify_all()
        while not server.done.wait(_SLICE) and not self._closed.is_set():
            with self._changed:
                if not server.taken and server.connection.gone():
                    self._waiting.remove(server)
                    return

    def _join(self, client: Connection, key: str, token: str, patience: float) -> None:
        server = self._take(client, key, token, patience)
        try:
            server.connection.send({"linked": True})
            client.send({"linked": True})
            _relay(client.socket, server.connection.socket, self._closed)
        finally:
            server.done.set()

    def _take(self, client: Connection, key: str, token: str, patience: float) -> _Waiting:
        end = time.monotonic() + patience
        with self._changed:
            while True:
                found = next((w for w in self._waiting if key in ("", w.key) and w.token == token), None)
                if found is not None:
                    self._waiting.remove(found)
                    found.taken = True
                    return found
                if time.monotonic() >= end or client.gone():
                    keys = ", ".join(sorted({w.key for w in self._waiting})) or "none"
                    raise RPCError(f"no server '{key}' waits at the proxy; there are: {keys}", code="TW1203")
                self._changed.wait(_SLICE)


def _relay(a: socket.socket, b: socket.socket, closed: threading.Event) -> None:
    """Forward bytes both ways until one side closes."""
    other = {a: b, b: a}
    for link in other:
        link.settimeout(60)
    while not closed.is_set():
        readable, _, _ = select.select([a, b], [], [], _SLICE)
        for link in readable:
            data = link.recv(_PIECE)
            if not data:
                return
            other[link].sendall(data)
