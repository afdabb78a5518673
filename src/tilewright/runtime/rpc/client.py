"""The client: sessions on devices, directly, through a tracker, or through a proxy.

    remote = rpc.connect("127.0.0.1", 9090)                                        # or
    remote = rpc.connect_tracker("127.0.0.1", 9190).request("board", priority=1, session_timeout=60)
    remote.upload("matmul.so")
    f = remote.load_module("matmul.so")
    f(a, b, c)
    print(f.time_evaluator(f.entry_name, remote.cpu(0), number=10)(a, b, c).mean)

    remote.get_function("testing.echo")("hello")                                   # a registered function

Arrays stay on the client. Each call sends its arrays and returns those that it writes. Times are measured on the device
and exclude transfers.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tilewright.base.closing import Closeable
from tilewright.base.errors import InputError, RPCError, WorkerCrashed, WorkerRaised, WorkerTimedOut
from tilewright.base.nd import Device, NDArray, as_numpy, device
from tilewright.base.types import DataType
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.rpc.connection import Connection, check_accepted, dial
from tilewright.runtime.rpc.functions import FIND, RemoteFunction
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.trial import machine_name
from tilewright.runtime.wire import Message
from tilewright.runtime.worker import Worker

_SERVICE: Final = "tilewright.runtime.rpc.service:"
_MARGIN: Final = 30.0
"""Additional seconds to wait for the answer to a call, because a process may have to be started."""
_CALL_SECONDS: Final = 60.0
_LOG: Final = logging.getLogger("tilewright.rpc")
_NUMBERS: Final = itertools.count()
"""Numbers of the sessions of this process."""


class Calls(Protocol):
    """The channel through which a session makes its calls."""

    def call(
        self, function: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        """Make a call; see `runtime.worker.Worker.call`."""

    def restart(self) -> None:
        """Continue in a new process."""

    def close(self) -> None:
        """Close the channel."""


class _Remote:
    """Calls over a connection."""

    def __init__(self, connection: Connection, level: int) -> None:
        self._connection, self._level = connection, level

    def call(
        self, function: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        _LOG.log(self._level, "call %s with %s and %d pieces", function.rpartition(":")[2], message, len(pieces))
        limit = _CALL_SECONDS if timeout is None else timeout
        try:
            if self._connection.waits(0):
                check_accepted(self._connection.receive()[0])  # the server has ended the session
            self._connection.send({"call": function, "with": message, "timeout": limit}, pieces)
            answer, got = self._connection.receive(limit + _MARGIN)
        except BaseException:
            self._connection.close()  # an answer that comes later must not be taken for that of another call
            raise
        check_accepted(answer)
        if "raised" in answer:
            raise WorkerRaised(str(answer["raised"]), str(answer["text"]))
        if "timed_out" in answer:
            raise WorkerTimedOut(str(answer["timed_out"]))
        if "crashed" in answer:
            raise WorkerCrashed(str(answer["crashed"]))
        return answer["gives"], got

    def restart(self) -> None:
        self._connection.ask({"restart": True}, timeout=_MARGIN)

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True, repr=False)
class RemoteDevice(Device):
    """A device of a session. Arrays for it stay on this machine, and are sent with each call."""

    session: int = 0
    """Number of the session in this process."""

    def __repr__(self) -> str:
        return f"remote[{self.session}]:{self.kind}({self.index})"


class RPCSession(Closeable):
    """A session on a device: a process with its own files and modules.

    Calls raise `WorkerError` for a failure in that process. A process that crashes or hangs is replaced by one without
    modules. They raise `ConnectionError`, `TimeoutError` or `RPCError` if the device cannot be reached.
    """

    def __init__(self, calls: Calls, machine: str) -> None:
        self._calls, self.machine, self.number = calls, machine, next(_NUMBERS)
        self.call, self.restart = calls.call, calls.restart

    def upload(self, data: str | os.PathLike[str] | bytes | bytearray, target: str | None = None) -> None:
        """Send a file, or bytes under the name `target`."""
        if isinstance(data, (bytes, bytearray)):
            if target is None:
                raise InputError("uploaded bytes need a name; give target=", code="TW1206")
            self._do("upload", {"name": target}, [bytes(data)])
        else:
            self._do("upload", {"name": target or Path(data).name}, [Path(data).read_bytes()])

    def download(self, path: str) -> bytearray:
        """Return the bytes of a file of the session."""
        return bytearray(self._do("download", {"name": path})[1][0])

    def remove(self, path: str) -> None:
        """Remove a file of the session."""
        self._do("remove", {"name": path})

    def load_module(self, path: str) -> Any:
        """Return an uploaded library: a `RemoteModule` of functions, or a `RemoteFactory` of a model.

        A `.tar` needs the compiler on the device, a `.so` does not.
        """
        name = Path(path).name
        found, _ = self._do("load", {"name": name})
        if found.get("is_model"):
            from tilewright.runtime.rpc.graph import RemoteFactory

            return RemoteFactory(self, name)
        return RemoteModule(self, found["module"], found["functions"])

    def device(self, dev_type: str, dev_id: int = 0) -> RemoteDevice:
        """Return a device of the session, for `nd.array`, `time_evaluator` and `GraphModule`."""
        there = device(dev_type, dev_id)
        return RemoteDevice(there.kind, there.index, self.number)

    context = device

    def get_function(self, name: str) -> RemoteFunction:
        """Return the function that is registered in the session under that name. Raises `WorkerRaised` if there is
        none."""
        self.call(FIND, {"name": name})
        return RemoteFunction(self, name)

    def cpu(self, dev_id: int = 0) -> RemoteDevice:
        """Return the device's processor."""
        return self.device("cpu", dev_id)

    def close(self) -> None:
        """End the session and release the device."""
        self._calls.close()

    def _do(
        self, name: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        return self._calls.call(f"{_SERVICE}{name}", message, pieces, timeout)


class RemoteModule:
    """Native functions on a device. Calling the module calls its first function."""

    def __init__(self, session: RPCSession, number: int, functions: dict[str, str]) -> None:
        self._session, self._number, self._functions = session, number, functions

    @property
    def entry_name(self) -> str:
        return next(iter(self._functions))

    def __call__(self, *args: Any) -> Any:
        return self[self.entry_name](*args)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    def get_function(self, name: str) -> Callable[..., Any]:
        """Return the function of that name. Raises `InputError` for an unknown name."""
        self._check(name)

        def call(*args: Any) -> Any:
            message, pieces = self._arguments(name, args)
            answer, written = self._session._do("call", message, pieces)
            _store(args, answer["written"], written)
            return answer.get("result")

        return call

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0,
        f_preproc: str = ""
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that takes arguments and times calls with them on the device.

        Raises `InputError` for `f_preproc`, a function before each measurement, which remote devices do not call.
        """
        if f_preproc:
            raise InputError(
                f"f_preproc='{f_preproc}': remote devices call no function before measurements; omit it", code="TW0717")
        name = self.entry_name if func_name == "__tvm_main__" else func_name
        self._check(name)

        def evaluate(*args: Any) -> BenchmarkResult:
            message, pieces = self._arguments(name, args)
            found, written = self._session._do(
                "time", {**message, "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms}, pieces)
            _store(args, found["written"], written)
            return BenchmarkResult(tuple(found["results"]))

        return evaluate

    def _check(self, name: str) -> None:
        if name not in self._functions:
            raise InputError(f"the module has no function '{name}'; it has {', '.join(self._functions)}", code="TW1206")

    def _arguments(self, name: str, args: Sequence[Any]) -> tuple[Message, list[bytes]]:
        described: list[Any] = []
        pieces = []
        for arg in args:
            if isinstance(arg, (np.ndarray, NDArray)) or hasattr(arg, "__dlpack__"):
                x = as_numpy(arg)
                described.append([str(DataType(x.dtype)), list(x.shape)])
                pieces.append(np.ascontiguousarray(x).tobytes())
            else:
                described.append(arg)
        return {"module": self._number, "function": name, "args": described}, pieces

    def __repr__(self) -> str:
        return f"RemoteModule({', '.join(self._functions)} on {self._session.machine})"


def _store(args: Sequence[Any], places: Sequence[int], written: Sequence[bytes]) -> None:
    """Store what a call has written into the arrays at these places of its arguments."""
    for k, data in zip(places, written, strict=True):
        x = as_numpy(args[k])
        np.copyto(x, np.frombuffer(data, x.dtype).reshape(x.shape))


class LocalSession(RPCSession):
    """A session in a process of this machine, without a network."""

    def __init__(self) -> None:
        super().__init__(Worker(modules=("tilewright.runtime.rpc.service",)), machine_name())


def connect(
    url: str, port: int, key: str = "", session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None, enable_logging: bool = False, *, token: str = "",
    secret: str | None = None, patience: float = 10,
) -> RPCSession:
    """Return a session on the server at an address, or on a server that waits at the proxy there.

    `session_timeout` is the maximum length of the session in seconds (0: until the client disconnects), `patience` the
    seconds to wait for a busy server. With `session_constructor_args=["rpc.Connect", url, port, key, False]`, that
    server connects on to another one, on which the session is. `enable_logging` logs the calls to the logger
    "tilewright.rpc" as information (otherwise for debugging). Raises `RPCError`.
    """
    known = shared_secret(secret)
    wanted = {"role": "session", "key": key, "token": token, "seconds": session_timeout, "patience": patience}
    beyond = _beyond(session_constructor_args)
    connection = dial(url, port, known, {**wanted, "beyond": list(beyond[:2])} if beyond else wanted)
    try:
        if connection.peer.get("role") == "proxy":
            connection.answer(patience + _MARGIN)
            connection.open(known, wanted)
        if beyond:
            connection.answer(patience + _MARGIN)
            connection.open(known, {**wanted, "key": beyond[2], "token": ""})
        ready = connection.answer(patience + _MARGIN)
        return RPCSession(_Remote(connection, logging.INFO if enable_logging else logging.DEBUG), str(ready["ready"]))
    except (OSError, RPCError) as error:
        connection.close()
        raise RPCError(f"no session at {url}:{port}: {error}", code="TW1201") from error


def _beyond(constructor: Sequence[Any] | None) -> tuple[str, int, str] | None:
    """Return host, port and key of the server that `["rpc.Connect", url, port, key, …]` names."""
    if not constructor:
        return None
    name, *args = constructor
    if name != "rpc.Connect" or not 2 <= len(args) <= 4:
        raise RPCError(
            f'a session on a server is made by ["rpc.Connect", url, port, key, False], not by {list(constructor)}',
            code="TW1204")
    return str(args[0]), int(args[1]), str(args[2]) if len(args) > 2 else ""


def connect_tracker(url: str, port: int, secret: str | None = None) -> TrackerSession:
    """Return a connection to the tracker at an address. Raises `RPCError`."""
    return TrackerSession(url, port, secret)


class TrackerSession(Closeable):
    """Requests devices from a tracker."""

    def __init__(self, host: str, port: int, secret: str | None = None) -> None:
        self._address, self._secret = (host, port), secret
        self._connection = self._dial()

    def _dial(self) -> Connection:
        return dial(*self._address, shared_secret(self._secret), {"role": "client"})

    def request(
        self, key: str, priority: int = 1, session_timeout: float = 0, max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None, *, patience: float = 60,
    ) -> RPCSession:
        """Return a session on a device with that key, after waiting up to `patience` seconds; the client with the
        highest priority is served first.

        If the device cannot be reached, another one is requested, up to `max_retry` times. Raises `RPCError`.
        """
        end = time.monotonic() + patience
        for attempt in range(max_retry + 1):
            left = max(end - time.monotonic(), 0.0)
            found = self._ask({"request": key, "priority": priority, "timeout": left}, left + _MARGIN)
            try:
                return connect(
                    found["host"], found["port"], key, session_timeout, session_constructor_args, token=found["token"],
                    secret=self._secret)
            except RPCError as error:
                if attempt == max_retry or time.monotonic() >= end:
                    raise RPCError(
                        f"the tracker's server for '{key}' cannot be used: {error}", code="TW1201"
                    ) from error
        raise AssertionError("not reached")

    def summary(self) -> dict[str, Any]:
        """Return `{"queue_info": {key: {"free", "pending"}}, "server_info": [{"key", "addr"}]}`."""
        return self._ask({"summary": True}, _MARGIN)

    def text_summary(self) -> str:
        """Return the summary as two tables."""
        summary = self.summary()
        total: dict[str, int] = {}
        for server in summary["server_info"]:
            name = server["key"].removeprefix("server:")
            total[name] = total.get(name, 0) + 1
        servers = [
            ("server-address", "key"), *((f"{s['addr'][0]}:{s['addr'][1]}", s["key"]) for s in summary["server_info"])
        ]
        queues = [
            ("key", "total", "free", "pending"),
            *((k, str(total.get(k, 0)), str(q["free"]), str(q["pending"])) for k, q in summary["queue_info"].items())
        ]
        return f"Server List\n{_table(servers)}\nQueue Status\n{_table(queues)}"

    def close(self) -> None:
        """Close the connection to the tracker."""
        self._connection.close()

    def _ask(self, message: Message, timeout: float) -> Message:
        try:
            return self._connection.ask(message, timeout=timeout)
        except OSError:
            self._connection.close()
            self._connection = self._dial()  # the tracker may have been started anew; once
            try:
                return self._connection.ask(message, timeout=timeout)
            except OSError as error:
                raise RPCError(
                    f"the tracker at {self._address[0]}:{self._address[1]} does not answer: {error}", code="TW1201"
                ) from error


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[k]) for row in rows) + 2 for k in range(len(rows[0]))]
    lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-" * max(sum(widths), 28)
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, ""])
