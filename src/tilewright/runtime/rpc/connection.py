"""TCP connections between clients, trackers, servers and proxies: a challenge, then messages; every wait has a timeout.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError, InputError, RPCError, RPCSessionTimeoutError
from tilewright.runtime.rpc.secret import nonce, proof, proves
from tilewright.runtime.wire import Channel, Message

PROTOCOL: Final = 1
HANDSHAKE_SECONDS: Final = 10.0
MOST_UNPROVEN: Final = 64
"""Most unauthenticated connections of one listener."""
_SLICE: Final = 0.2
_PIECE: Final = 1 << 16
_BEFORE: Final = (1 << 14, 0)
"""Size limits of messages from an unauthenticated peer."""
_AFTER: Final = (64 << 20, 4 << 30)
DAY: Final = 86_400
LOOPBACK: Final = "127.0.0.1"

Handle = Callable[["Connection", Message], None]
"""Handles a request over its connection."""


class Connection:
    """One TCP connection with the messages of `runtime/wire.py`."""

    def __init__(self, link: socket.socket) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.socket = link
        self.channel = Channel(link.fileno(), link.fileno(), *_BEFORE)
        self.peer: Message = {}
        """The description that the peer sent of itself."""
        weakref.finalize(self, link.close)  # also closes an unreferenced connection: `connect_tracker(…).request(…)`

    def send(self, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = 60) -> None:
        """Send a message; see `Channel.send`."""
        self.channel.send(message, pieces, timeout)

    def receive(self, timeout: float | None = 60) -> tuple[Message, list[bytes]]:
        """Receive a message; see `Channel.receive`."""
        return self.channel.receive(timeout)

    def ask(self, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = 60) -> Message:
        """Send a message and return the answer. Raises `RPCError` with the reason of a refusal, `ConnectionError`,
        `TimeoutError`."""
        self.send(message, pieces)
        return self.answer(timeout)

    def answer(self, timeout: float | None = 60) -> Message:
        """Return the next message; raises `RPCError` for a refusal, and otherwise as `ask`."""
        answer, _ = self.receive(timeout)
        check_accepted(answer)
        return answer

    def open(self, secret: bytes, wanted: Message) -> None:
        """Authenticate both sides and send the request `wanted`. Raises `RPCError` if authentication fails."""
        hello, _ = self.receive(HANDSHAKE_SECONDS)
        if hello.get("tilewright-rpc") != PROTOCOL:
            raise RPCError(
                f"the other side speaks version {hello.get('tilewright-rpc')} of the protocol, but this side speaks "
                f"version {PROTOCOL}",
                code="TW1204")
        theirs, ours = str(hello.get("nonce")), nonce()
        self.send({"nonce": ours, "wanted": wanted, "proof": proof(secret, "client", theirs, ours, wanted)})
        answer = self.answer(HANDSHAKE_SECONDS)
        if not proves(answer.get("proof"), proof(secret, "server", theirs, ours, wanted)):
            raise RPCError("the other side does not know the secret; use the same on all machines", code="TW1202")
        self.peer = hello
        self.channel.limit(*_AFTER)

    def accept(self, secret: bytes, role: Message) -> Message:
        """Accept a connection that `open` made, and return its request. Raises `RPCError` for a peer that does not
        know the secret."""
        self.channel.limit(*_BEFORE)
        ours = nonce()
        self.send({"tilewright-rpc": PROTOCOL, "nonce": ours, **role}, timeout=HANDSHAKE_SECONDS)
        reply, _ = self.receive(HANDSHAKE_SECONDS)
        theirs, wanted = str(reply.get("nonce")), reply.get("wanted")
        if (
            not isinstance(wanted, dict)
            or not proves(reply.get("proof"), proof(secret, "client", ours, theirs, wanted))
        ):
            self.send(
                {"refused": "the secrets differ; use the same on all machines (TILEWRIGHT_RPC_SECRET)"},
                timeout=HANDSHAKE_SECONDS)
            raise RPCError("a peer that does not know the secret was refused", code="TW1202")
        self.send({"proof": proof(secret, "server", ours, theirs, wanted)}, timeout=HANDSHAKE_SECONDS)
        self.channel.limit(*_AFTER)
        return wanted

    def waits(self, seconds: float) -> bool:
        """Whether a message arrives within that time."""
        readable, _, _ = select.select([self.socket], [], [], seconds)
        return bool(readable)

    def gone(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            readable, _, _ = select.select([self.socket], [], [], 0)
            return bool(readable) and not self.socket.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close the connection; pending calls on it raise an error."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def check_accepted(answer: Message) -> None:
    """Raise `RPCError` for a refusal, and `RPCSessionTimeoutError` if it says that the session has ended."""
    if answer.get("ended"):
        raise RPCSessionTimeoutError(str(answer["refused"]))
    if "refused" in answer:
        raise RPCError(str(answer["refused"]), code="TW1203")


def dial(host: str, port: int, secret: bytes, wanted: Message, timeout: float = HANDSHAKE_SECONDS) -> Connection:
    """Connect and shake hands. Raises `RPCError` if the server does not answer or refuses."""
    connection = None
    try:
        connection = Connection(socket.create_connection((host, port), timeout))
        connection.open(secret, wanted)
        return connection
    except (OSError, RPCError) as error:
        if connection is not None:
            connection.close()
        silent = isinstance(error, TimeoutError)
        why = (
            "no answer in time; check host and port, and that a tracker, server or proxy of Tilewright listens there"
            if silent else error
        )
        raise RPCError(f"no connection to {host}:{port}: {why}", code="TW1201") from error


def serve(connection: Connection, secret: bytes, role: Message, handle: Handle) -> None:
    """Authenticate a client and handle its request. An error is sent to the client and ends only its own connection."""
    try:
        handle(connection, connection.accept(secret, role))
    except (
        OSError, CompileError, RPCError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError,
        RecursionError
    ) as error:
        why = str(error) if isinstance(error, (CompileError, RPCError)) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError, RPCError):
            connection.send({"refused": why, "ended": isinstance(error, RPCSessionTimeoutError)}, timeout=1)
    finally:
        connection.close()


class Listener:
    """Accepts connections, and calls `handle(connection, wanted)` for each authenticated one in a thread of its own.

    At most `MOST_UNPROVEN` unauthenticated connections are open, the newest ones, each for at most `HANDSHAKE_SECONDS`.
    """

    def __init__(
        self, host: str, port: int, port_end: int, secret: bytes, role: Message, handle: Handle, most: int = 256,
    ) -> None:
        """Bind the first free port from `port` to `port_end`; 0 is any port. Raises `RPCError` if none is free."""
        self._socket = _bound(host, port, port_end)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._secret, self._role, self._handle, self._most = secret, role, handle, most
        self._open: set[Connection] = set()
        self._unproven: dict[Connection, None] = {}
        """The unauthenticated connections of `_open`, the oldest first."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"rpc-{role.get('role')}", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            readable, _, _ = select.select([self._socket], [], [], _SLICE)
            if not readable:
                continue
            try:
                connection = self._entered(self._socket.accept()[0])
            # the other side has gone, or no descriptors are left; the next connection may succeed
            except OSError:
                self._closed.wait(_SLICE)
                continue
            if connection is not None:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _entered(self, link: socket.socket) -> Connection | None:
        """Register a new connection. If there are too many authenticated ones, close it and return None."""
        connection = Connection(link)
        with self._lock:
            if len(self._open) - len(self._unproven) >= self._most:
                connection.close()
                return None
            self._open.add(connection)
            self._unproven[connection] = None
            if len(self._unproven) > MOST_UNPROVEN:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                self._open.discard(oldest)
                _end(oldest)
        return connection

    def _serve(self, connection: Connection) -> None:
        def proven(shaken: Connection, wanted: Message) -> None:
            with self._lock:
                self._unproven.pop(connection, None)
            self._handle(shaken, wanted)

        try:
            serve(connection, self._secret, self._role, proven)
        finally:
            with self._lock:
                self._open.discard(connection)
                self._unproven.pop(connection, None)

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._closed.set()
        self._thread.join(10)
        self._socket.close()
        with self._lock:
            for connection in self._open:
                _end(connection)


def relay(a: socket.socket, b: socket.socket, closed: threading.Event, end: float = float("inf")) -> None:
    """Forward bytes both ways until one side closes, `closed` is set, or `time.monotonic()` is `end`."""
    other = {a: b, b: a}
    for link in other:
        link.settimeout(60)
    while not closed.is_set() and time.monotonic() < end:
        readable, _, _ = select.select([a, b], [], [], _SLICE)
        for link in readable:
            data = link.recv(_PIECE)
            if not data:
                return
            other[link].sendall(data)


def _end(connection: Connection) -> None:
    """Shut a connection down, so that its thread ends and closes it."""
    with contextlib.suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)


def _bound(host: str, port: int, port_end: int) -> socket.socket:
    reason: Any = "the host has no address"
    for number in [0] if port == 0 else range(port, max(port, port_end) + 1):
        try:
            return socket.create_server((host, number), backlog=64)
        except OSError as error:
            reason = error
    raise RPCError(f"no port from {port} to {port_end} of {host} is free: {reason}", code="TW1211")


def seconds(value: Any, what: str, most: int = DAY) -> float:
    """Return a time from the other side if it is at most `most` seconds, else raise `InputError`; `what` names it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
        return float(value)
    raise InputError(f"{what} is {value!r}; give seconds from 0 to {most}", code="TW1206")


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`; raises `RPCError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise RPCError(f"'{text}' is not an address; write host:port, such as {LOOPBACK}:9190", code="TW1211")
    return host.strip("[]"), int(port)
