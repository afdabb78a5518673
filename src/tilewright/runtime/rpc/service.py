"""The operations of a session on a device: files, modules, calls, times. They run in the session's worker process,
without the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.runtime.functions import FunctionModule, NativeFunction
from tilewright.runtime.manifest import Parameter
from tilewright.runtime.module import load_module
from tilewright.runtime.rpc.arrays import array_of
from tilewright.runtime.rpc.files import file, present
from tilewright.runtime.rpc.functions import CALL, FIND
from tilewright.runtime.rpc.models import LOAD, RUN
from tilewright.runtime.timing_lock import ACQUIRE
from tilewright.runtime.trial import PREPARE, TRIAL, machine_name
from tilewright.runtime.wire import Message

Pieces = Sequence[bytes]
Answer = tuple[Message, list[bytes]]

_HERE: Final = "tilewright.runtime.rpc.service"
OPERATIONS: Final = frozenset({
    PREPARE, TRIAL, ACQUIRE, LOAD, RUN, FIND, CALL,
    *(f"{_HERE}:{name}" for name in ("about", "upload", "download", "remove", "load", "call", "time")),
})
"""The functions that clients of a server may call."""

_MODULES: Final[list[FunctionModule]] = []


def about(message: Message, pieces: Pieces) -> Answer:
    """Return `{"machine"}`."""
    return {"machine": machine_name()}, []


def upload(message: Message, pieces: Pieces) -> Answer:
    """Write `pieces[0]` to the file `message["name"]`."""
    file(message["name"]).write_bytes(pieces[0])
    return {}, []


def download(message: Message, pieces: Pieces) -> Answer:
    """Return the bytes of a file."""
    return {}, [present(message["name"]).read_bytes()]


def remove(message: Message, pieces: Pieces) -> Answer:
    """Remove a file."""
    present(message["name"]).unlink()
    return {}, []


def load(message: Message, pieces: Pieces) -> Answer:
    """Load an uploaded library of functions; return `{"module": number, "functions": {name: parameters}}`, or
    `{"is_model": True}` for a model, which `models.load_model` loads."""
    module = load_module(present(message["name"]))
    if not isinstance(module, FunctionModule):
        return {"is_model": True}, []
    _MODULES.append(module)
    return (
        {
            "module": len(_MODULES) - 1,
            "functions": {name: str(module[name]) for name in module.artifact.manifest.functions}
        },
        []
    )


def call(message: Message, pieces: Pieces) -> Answer:
    """Call a function with `message["args"]`: numbers, and `[dtype, shape]` of the arrays in `pieces`. Return the
    arrays that it writes, and the number that it returns: `{"written": places, "result": number}`."""
    function, args = _call(message, pieces)
    result = function(*args)
    written = _written(function)
    return {"written": written, "result": result}, [args[k].tobytes() for k in written]


def time(message: Message, pieces: Pieces) -> Answer:
    """Time calls of a function: `{"results": seconds, "written": places}`, and the arrays that it writes."""
    function, args = _call(message, pieces)
    result = function.benchmark(
        *args, number=message["number"], repeat=message["repeat"], min_repeat_ms=message["min_repeat_ms"])
    written = _written(function)
    return {"results": list(result.results), "written": written}, [args[k].tobytes() for k in written]


def _written(function: NativeFunction) -> list[int]:
    """Return the places of the arguments that a function writes."""
    return [k for k, p in enumerate(function.params) if isinstance(p, Parameter) and p.written]


def _call(message: Message, pieces: Pieces) -> tuple[NativeFunction, list[Any]]:
    number = message["module"]
    if not isinstance(number, int) or not 0 <= number < len(_MODULES):
        raise InputError(
            "the session has no such module; its process was replaced since it was loaded: load it again", code="TW1206"
        )
    function = _MODULES[number][message["function"]]
    rest = iter(pieces)
    return function, [_array(arg, next(rest)) if isinstance(arg, list) else arg for arg in message["args"]]


def _array(described: Any, data: bytes) -> np.ndarray[Any, Any]:
    dtype, shape = described
    return array_of(dtype, shape, data)
