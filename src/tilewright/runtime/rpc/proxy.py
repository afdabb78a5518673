"""The proxy for devices that accept no connections.

Servers connect to the proxy and wait; it connects clients to them. The proxy forwards all bytes unread. Client and
server also authenticate each other, so neither has to trust the proxy.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from tilewright.base.errors import RPCError
from tilewright.runtime.rpc.connection import LOOPBACK, Connection, Listener, relay, seconds
from tilewright.runtime.rpc.offer import Address, Offer
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.wire import Message

PORT, PORT_END = 9090, 9199
_SLICE: Final = 0.2
_RETRY: Final = 1.0


@dataclass(slots=True, eq=False)
class _Waiting:
    connection: Connection
    key: str
    token: str
    offer: Offer | None = None
    """The offer that the proxy makes for a server without a tracker."""
    taken: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Connects clients to servers by key. Listens until `close`."""

    def __init__(
        self, host: str = LOOPBACK, port: int = PORT, port_end: int = PORT_END, secret: str | None = None,
        *, tracker_addr: Address | None = None,
    ) -> None:
        """Start listening; raises `RPCError` if no port is free. `tracker_addr` is the tracker to which the proxy
        offers the servers that have none of their own."""
        self._tracker, self._secret = tracker_addr, shared_secret(secret)
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._listener = Listener(host, port, port_end, self._secret, {"role": "proxy"}, self._handle)
        self.host, self.port = self._listener.host, self._listener.port

    def close(self) -> None:
        """Stop the proxy and close all its connections."""
        self._closed.set()
        self._listener.close()

    terminate = close

    def _handle(self, connection: Connection, wanted: Message) -> None:
        if wanted["role"] == "server":
            server = _Waiting(connection, str(wanted["key"]), str(wanted["token"]))
            if self._tracker and not server.token:
                server.offer = Offer(self._tracker, server.key, (self.host, self.port), self._secret)
                threading.Thread(target=self._announce, args=(server,), daemon=True).start()
            try:
                self._keep(server)
            finally:
                server.taken.set()
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
                if not server.taken.is_set() and server.connection.gone():
                    self._waiting.remove(server)
                    return

    def _announce(self, server: _Waiting) -> None:
        """Offer a server to the tracker until a client has it, or it leaves."""
        assert server.offer is not None
        while not server.taken.is_set():
            try:
                server.offer.announce(server.taken)
            except (OSError, RPCError):
                server.taken.wait(_RETRY)

    def _join(self, client: Connection, key: str, token: str, patience: float) -> None:
        server = self._take(client, key, token, patience)
        try:
            server.connection.send({"linked": True})
            client.send({"linked": True})
            relay(client.socket, server.connection.socket, self._closed)
        finally:
            server.done.set()

    def _take(self, client: Connection, key: str, token: str, patience: float) -> _Waiting:
        end = time.monotonic() + patience
        with self._changed:
            while True:
                found = next((w for w in self._waiting if key in ("", w.key) and _admits(w, token)), None)
                if found is not None:
                    self._waiting.remove(found)
                    found.taken.set()
                    return found
                if time.monotonic() >= end or client.gone():
                    keys = ", ".join(sorted({w.key for w in self._waiting})) or "none"
                    raise RPCError(f"no server '{key}' waits at the proxy; there are: {keys}", code="TW1203")
                self._changed.wait(_SLICE)


def _admits(server: _Waiting, token: str) -> bool:
    """Whether a client with this token may have the server."""
    return server.token == token if server.offer is None else server.offer.claim(token)
