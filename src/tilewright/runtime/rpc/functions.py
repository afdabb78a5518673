"""Registered functions of a session (`base/global_functions.py`), which clients call by name.

    remote.get_function("board.temperature")(0)

A server registers functions of its own in modules that it imports: `rpc.Server(modules=["board_functions"])`. Arguments
and results are None, numbers, strings, bytes, arrays, lists of these, and functions that the session returned. Arrays
are sent with each call, and those that the function changes are sent back. `RemoteFunction` is the client's part; the
functions run in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.global_functions import get_global_func
from tilewright.base.nd import NDArray, as_numpy
from tilewright.base.types import DataType
from tilewright.runtime.rpc import testing as _testing  # noqa: F401 - registers functions in each session
from tilewright.runtime.rpc.arrays import array_of
from tilewright.runtime.wire import Message

if TYPE_CHECKING:
    from tilewright.runtime.rpc.client import RPCSession

Answer = tuple[Message, list[bytes]]
_HERE: Final = "tilewright.runtime.rpc.functions"
FIND, CALL = f"{_HERE}:find_function", f"{_HERE}:call_function"
_RETURNED: Final[list[Callable[..., Any]]] = []
"""The functions that calls have returned to the client of this session."""


class RemoteFunction:
    """A function of a session: registered under a name, or returned by another one."""

    def __init__(self, session: RPCSession, function: str | int) -> None:
        """`function` is the name, or the number of a returned function."""
        self.session, self.function = session, function

    def __call__(self, *args: Any) -> Any:
        """Call the function on the device. Raises `WorkerRaised` for an exception of it, `InputError` for an argument
        that cannot be sent."""
        pieces: list[bytes] = []
        arrays: list[np.ndarray[Any, Any]] = []
        sent = [self._sent(a, pieces, arrays) for a in args]
        answer, got = self.session.call(CALL, {"function": self.function, "args": sent}, pieces)
        rest = iter(got)
        for k in answer["changed"]:
            np.copyto(arrays[k], np.frombuffer(next(rest), arrays[k].dtype).reshape(arrays[k].shape))
        return _received(answer["result"], rest, lambda number: RemoteFunction(self.session, number))

    def _sent(self, value: Any, pieces: list[bytes], arrays: list[np.ndarray[Any, Any]]) -> Any:
        if isinstance(value, RemoteFunction):
            if value.session is not self.session:
                raise InputError("a function of another session cannot be an argument", code="TW1206")
            return {"function": value.function}
        if isinstance(value, (NDArray, np.ndarray)) or hasattr(value, "__dlpack__"):
            arrays.append(as_numpy(value))
        if callable(value):
            raise InputError(
                f"{value!r} is a function of this machine and cannot be called on the device; register it there",
                code="TW1206")
        return _described(value, pieces, lambda f: None)

    def __repr__(self) -> str:
        return f"RemoteFunction({self.function} on {self.session.machine})"


def find_function(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Check that `message["name"]` is a registered function; raises `OptionError` if it is not."""
    get_global_func(str(message["name"]))
    return {}, []


def call_function(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Call `message["function"]` with `message["args"]`. Return `{"changed": indices of the changed arrays, "result"}`,
    and the elements of these arrays and of the result."""
    rest = iter(pieces)
    args = [_received(a, rest, _function) for a in message["args"]]
    arrays = [a.numpy() for a in args if isinstance(a, NDArray)]
    result = _function(message["function"])(*args)
    now = [as_numpy(a) for a in args if isinstance(a, NDArray)]
    changed = [k for k, (old, new) in enumerate(zip(arrays, now, strict=True)) if old.tobytes() != new.tobytes()]
    made = [now[k].tobytes() for k in changed]
    return {"changed": changed, "result": _described(result, made, _keep)}, made


def _function(known: str | int) -> Callable[..., Any]:
    if isinstance(known, str):
        return get_global_func(known)
    if not 0 <= known < len(_RETURNED):
        raise InputError(
            "the session has no such function; its process was replaced since it was returned: call again for another",
            code="TW1206")
    return _RETURNED[known]


def _keep(function: Callable[..., Any]) -> int:
    _RETURNED.append(function)
    return len(_RETURNED) - 1


def _described(value: Any, pieces: list[bytes], keep: Callable[[Callable[..., Any]], int | None]) -> Any:
    """Return the JSON of a value, and append the elements of its arrays and bytes to `pieces`. Raises `InputError`."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (bytes, bytearray)):
        pieces.append(bytes(value))
        return {"bytes": True}
    if isinstance(value, (NDArray, np.ndarray)) or hasattr(value, "__dlpack__"):
        x = as_numpy(value)
        pieces.append(np.ascontiguousarray(x).tobytes())
        return {"array": [str(DataType(x.dtype)), list(x.shape)]}
    if isinstance(value, (list, tuple)):
        return {"list": [_described(v, pieces, keep) for v in value]}
    number = keep(value) if callable(value) else None
    if number is None:
        raise InputError(
            f"{value!r} of {type(value).__name__} cannot be sent between machines; numbers, strings, bytes, arrays and "
            "lists of them can", code="TW1206")
    return {"function": number}


def _received(described: Any, pieces: Iterator[bytes], function: Callable[[Any], Any]) -> Any:
    """Return the value that `_described` described; `function` makes that of a function."""
    if not isinstance(described, dict):
        return described
    if "list" in described:
        return [_received(v, pieces, function) for v in described["list"]]
    if "function" in described:
        return function(described["function"])
    data = next(pieces)
    if "bytes" in described:
        return bytearray(data)
    dtype, shape = described["array"]
    return NDArray(array_of(dtype, shape, data))
