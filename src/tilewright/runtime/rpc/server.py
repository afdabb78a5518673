"""The server of a device: one session at a time, each in a separate process, whose crashes do not affect the server."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.closing import Closeable
from tilewright.base.errors import (
    MovedModuleWarning,
    RPCError,
    RPCSessionTimeoutError,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerRaised,
    WorkerTimedOut,
)
from tilewright.runtime.rpc.connection import (
    DAY,
    HANDSHAKE_SECONDS,
    LOOPBACK,
    Connection,
    Listener,
    dial,
    relay,
    seconds,
    serve,
)
from tilewright.runtime.rpc.offer import Address, Offer
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.rpc.service import OPERATIONS
from tilewright.runtime.trial import machine_name
from tilewright.runtime.wire import Message
from tilewright.runtime.worker import Worker

PORT, PORT_END = 9090, 9199
_LONGEST_CALL: Final = 600.0
_IDLE_SECONDS: Final = 600.0
"""Seconds of silence after which a client's session ends."""
_HEARTBEAT: Final = 1.0


class Server(Closeable):
    """Serves sessions until `close`: to clients that connect directly, from a tracker, or through a proxy."""

    def __init__(
        self, host: str = LOOPBACK, port: int = PORT, port_end: int = PORT_END, is_proxy: bool = False,
        tracker_addr: Address | None = None, key: str = "", *, custom_addr: str | None = None,
        secret: str | None = None, threads: int | None = None, memory_limit: int | None = None,
        modules: Sequence[str] = (), tracker: Address | None = None, proxy: Address | None = None,
    ) -> None:
        """`key` identifies the device at the tracker; `custom_addr` is the host that clients connect to (default:
        `host`).

        With `is_proxy`, `host` and `port` are those of a proxy: the server does not listen, but connects to the proxy,
        to which clients connect. `threads` is the number of threads of a session, `memory_limit` its bytes; `modules`
        are Python modules that it imports, such as those that register functions for clients. Raises `RPCError` if no
        port is free. `tracker` and `proxy` are earlier names of `tracker_addr`, and of `host` and
        `port` with `is_proxy`.
        """
        if tracker or proxy:
            warnings.warn(
                "rpc.Server(tracker=address) is now tracker_addr=address, and proxy=(host, port) is host, port, "
                "is_proxy=True", MovedModuleWarning, stacklevel=2)
        tracker, proxy = tracker or tracker_addr, (host, port) if is_proxy else proxy
        if (tracker or proxy) and not key:
            raise RPCError("a server behind a tracker or proxy needs a key, by which clients find it", code="TW1211")
        self.key, self.proxy = key, proxy
        self._secret = shared_secret(secret)
        self._worker = (memory_limit, threads, ("tilewright.runtime.rpc.service", *modules))
        self._closed, self._session = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener = None if proxy else Listener(host, port, port_end, self._secret, self._role, self._handle)
        self.host, self.port = proxy or (host, self._listener.port if self._listener else 0)
        self._offer = Offer(tracker, key, (custom_addr or self.host, self.port), self._secret)
        for present, work in (
            (tracker, lambda: self._offer.announce(self._closed)), (proxy, self._wait_at_proxy)
        ):
            if present:
                self._threads.append(threading.Thread(target=self._again_and_again, args=(work,), daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def _role(self) -> Message:
        return {"role": "server", "key": self.key, "machine": machine_name()}

    def close(self) -> None:
        """End the server and its session."""
        self._closed.set()
        self._offer.wake()
        if self._listener is not None:
            self._listener.close()
        for thread in self._threads:
            thread.join(5)

    terminate = close

    # ---- sessions

    def _handle(self, connection: Connection, wanted: Message) -> None:
        if wanted["role"] != "session":
            raise RPCError(f"a server accepts the role 'session', not '{wanted['role']}'", code="TW1203")
        if wanted["key"] not in ("", self.key):
            raise RPCError(f"this server has the key '{self.key}', but '{wanted['key']}' was requested", code="TW1203")
        patience, length = (
            seconds(wanted["patience"], "the patience of a session"),
            seconds(wanted["seconds"], "the length of a session", 366 * DAY)
        )
        if not self._offer.claim(str(wanted["token"])):
            raise RPCError(
                "the server was given to another client, or its offer has lapsed; ask the tracker again", code="TW1203")
        if not self._session.acquire(timeout=patience):
            raise RPCError("the server is busy with another session; try again later, or use a tracker", code="TW1203")
        worker = Worker(*self._worker)
        try:
            if "beyond" in wanted:
                self._connect_on(connection, wanted["beyond"], length)
            else:
                self._serve(connection, worker, length)
        finally:
            worker.close()
            self._session.release()
            self._offer.renew()

    def _connect_on(self, client: Connection, address: list[Any], length: float) -> None:
        """Forward all bytes between the client and another server; these two authenticate each other."""
        try:
            link = socket.create_connection((str(address[0]), int(address[1])), HANDSHAKE_SECONDS)
        except OSError as error:
            raise RPCError(f"the server cannot connect to {address[0]}:{address[1]}: {error}", code="TW1201") from error
        with link:
            client.send({"linked": True})
            relay(client.socket, link, self._closed, time.monotonic() + length if length > 0 else float("inf"))

    def _serve(self, connection: Connection, worker: Worker, length: float) -> None:
        end = time.monotonic() + length if length > 0 else float("inf")
        connection.send({"ready": machine_name()})
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise RPCSessionTimeoutError(f"the session exceeded its limit of {length:g} s")
            try:
                message, pieces = connection.receive(min(left, _IDLE_SECONDS))
            except ConnectionError:
                return
            except TimeoutError as error:
                raise RPCSessionTimeoutError(
                    "the session exceeded its time limit" if end - time.monotonic() <= 0
                    else "the client was silent for too long") from error
            if "restart" in message:
                worker.restart()
                connection.send({})
                continue
            if message["call"] not in OPERATIONS:
                raise RPCError(f"a session cannot call '{message['call']}'", code="TW1204")
            limit = min(
                seconds(message["timeout"] or _LONGEST_CALL, "the timeout of a call", 366 * DAY), _LONGEST_CALL,
                end - time.monotonic())
            answer, out = self._call(worker, message, pieces, max(limit, 0.01))
            connection.send(answer, out)

    @staticmethod
    def _call(worker: Worker, message: Message, pieces: list[bytes], limit: float) -> tuple[Message, list[bytes]]:
        try:
            gives, out = worker.call(message["call"], message["with"], pieces, limit)
            return {"gives": gives}, out
        except WorkerRaised as error:
            return {"raised": error.kind, "text": error.text}, []
        except WorkerTimedOut as error:
            return {"timed_out": str(error)}, []
        except WorkerCrashed as error:
            return {"crashed": str(error)}, []
        except WorkerNotStarted as error:
            raise RPCError(f"the device cannot run anything: {error}", code="TW1212") from error

    def _again_and_again(self, work: Any) -> None:
        """Repeat `work`, which ends when its connection breaks, until the server is closed."""
        while not self._closed.is_set():
            try:
                work()
            except (OSError, RPCError):
                self._closed.wait(_HEARTBEAT)

    def _wait_at_proxy(self) -> None:
        """Wait for the next client of the proxy, and serve it."""
        assert self.proxy is not None
        token = self._offer.token
        connection = dial(*self.proxy, self._secret, {"role": "server", "key": self.key, "token": token})
        try:
            while not self._closed.is_set() and token == self._offer.token:
                if connection.waits(_HEARTBEAT):
                    connection.receive()
                    serve(connection, self._secret, self._role, self._handle)
                    return
        finally:
            connection.close()
