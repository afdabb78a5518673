"""The tracker: servers register when they are free, clients request one by its key; the highest priority is served
first."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import InputError, RPCError
from tilewright.runtime.rpc.connection import LOOPBACK, Connection, Listener, seconds
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.wire import Message

PORT, PORT_END = 9190, 9199
SILENCE_SECONDS: Final = 30.0
"""Seconds of silence after which a server counts as dead."""
_CLIENT_SECONDS: Final = 3600.0
"""Seconds of silence after which a client is disconnected; it can connect again."""
_SLICE: Final = 0.2
_MAX_PRIORITY: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class _Free:
    """A server that waits for a client, and the token that identifies the client."""

    host: str
    port: int
    token: str
    owner: Connection


@dataclass(slots=True)
class _Request:
    granted: threading.Event = field(default_factory=threading.Event)
    server: _Free | None = None


@dataclass(slots=True)
class _Queue:
    """Free servers or waiting requests of one key, never both."""

    free: list[_Free] = field(default_factory=list)
    waiting: list[tuple[int, int, _Request]] = field(default_factory=list)


class Tracker:
    """Assigns servers by key. Listens until `close`."""

    def __init__(
        self, host: str = LOOPBACK, port: int = PORT, port_end: int = PORT_END, secret: str | None = None
    ) -> None:
        """Start listening; raises `RPCError` if no port is free."""
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._servers: dict[Connection, tuple[str, list[Any]]] = {}
        self._keys: set[str] = set()
        self._count = itertools.count()
        self._listener = Listener(host, port, port_end, shared_secret(secret), {"role": "tracker"}, self._handle)
        self.host, self.port = self._listener.host, self._listener.port

    def close(self) -> None:
        """Stop the tracker and close all its connections."""
        self._listener.close()

    terminate = close

    def _handle(self, connection: Connection, wanted: Message) -> None:
        if wanted["role"] == "server":
            self._serve_server(connection, str(wanted["key"]), [str(wanted["host"]), int(wanted["port"])])
        elif wanted["role"] == "client":
            self._serve_client(connection)
        else:
            raise RPCError(f"a tracker serves servers and clients, not '{wanted['role']}'", code="TW1203")

    # ---- Servers

    def _serve_server(self, connection: Connection, key: str, address: list[Any]) -> None:
        with self._lock:
            self._servers[connection] = (key, address)
            self._keys.add(key)
        try:
            while True:
                message, _ = connection.receive(SILENCE_SECONDS)
                token = str(message["token"])
                with self._lock:
                    if message["free"]:
                        self._add(key, _Free(address[0], address[1], token, connection))
                    waits = any(f.token == token for f in self._queue(key).free)
                connection.send({"waits": waits})
        finally:
            with self._lock:
                del self._servers[connection]
                queue = self._queue(key)
                queue.free = [f for f in queue.free if f.owner is not connection]

    def _queue(self, key: str) -> _Queue:
        return self._queues.setdefault(key, _Queue())

    def _add(self, key: str, server: _Free) -> None:
        queue = self._queue(key)
        queue.free = [f for f in queue.free if f.owner is not server.owner]
        if queue.waiting:
            request = heapq.heappop(queue.waiting)[2]
            request.server = server
            request.granted.set()
        else:
            queue.free.append(server)

    # ---- Clients

    def _serve_client(self, connection: Connection) -> None:
        while True:
            message, _ = connection.receive(_CLIENT_SECONDS)
            if "request" in message:
                connection.send(
                    self._grant(
                        connection, str(message["request"]), _priority(message["priority"]),
                        seconds(message["timeout"], "the timeout of a request")))
            elif "summary" in message:
                connection.send(self.summary())
            else:
                raise RPCError(f"a tracker answers request and summary, not {', '.join(message)}", code="TW1204")

    def _grant(self, connection: Connection, key: str, priority: int, timeout: float) -> Message:
        """Wait for a free server and return it; None if the client has gone."""
        with self._lock:
            queue = self._queue(key)
            if queue.free:
                return _address(queue.free.pop(0))
            request = _Request()
            heapq.heappush(queue.waiting, (-priority, next(self._count), request))
        end = time.monotonic() + timeout
        while not request.granted.wait(_SLICE) and time.monotonic() < end and not connection.gone():
            pass
        with self._lock:
            if request.server is None:
                queue.waiting = [w for w in queue.waiting if w[2] is not request]
                heapq.heapify(queue.waiting)
                there = sorted({k for k, _ in self._servers.values()})
                return {
                    "refused": f"no server '{key}' was free within {timeout:.1f} s; there are: "
                    f"{', '.join(there) or 'none'}"
                }
            if connection.gone() and request.server.owner in self._servers:
                self._add(key, request.server)
        return _address(request.server)

    def summary(self) -> Message:
        """Return `{"queue_info": {key: {"free", "pending"}}, "server_info": [{"key": "server:…", "addr": [host,
        port]}]}`. A key stays after its servers have left."""
        with self._lock:
            keys = self._keys | {k for k, q in self._queues.items() if q.waiting}
            queues = {
                k: {"free": len(self._queue(k).free), "pending": len(self._queue(k).waiting)} for k in sorted(keys)}
            return {
                "queue_info": queues,
                "server_info": [{"key": f"server:{k}", "addr": a} for k, a in self._servers.values()]
            }


def _priority(value: Any) -> int:
    if isinstance(value, int) and abs(value) <= _MAX_PRIORITY:
        return value
    raise InputError(
        f"the priority of a request is {value!r}; give a whole number from {-_MAX_PRIORITY} to {_MAX_PRIORITY}",
        code="TW1206")


def _address(server: _Free) -> Message:
    return {"host": server.host, "port": server.port, "token": server.token}
