"""Calls of registered functions from native code: `tir.call_packed`.

Native code gets the address of a C function for each registered function that it calls. This C function makes Python
values of its arguments, and looks the function up by its name at each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.global_functions import TRACED, get_global_func, register_func
from tilewright.base.nd import NDArray
from tilewright.base.types import DataType
from tilewright.runtime import sorting
from tilewright.runtime.manifest import Callback

__all__ = ["Callbacks", "c_type", "sorting"]

_ONE: Final[dict[str, Any]] = {"address": ctypes.c_void_p, "bool": ctypes.c_int64}
_NUMBERS: Final[dict[str, Any]] = {"float64": ctypes.c_double, "int64": ctypes.c_int64}


def c_type(dtype: DataType) -> Any:
    """Return the C type of a number passed by value. Raises `ArtifactError` for types without one."""
    name = {"float32": "c_float", "float64": "c_double", "bool": "c_bool"}.get(dtype, f"c_{dtype}")
    found = getattr(ctypes, name, None)
    if found is None:
        raise ArtifactError(
            f"a number of type {dtype} cannot be passed by value; pass an array of one element", code="TW0703")
    return found


class Callbacks:
    """The C functions of one call of native code. After the first exception, no further function is called."""

    def __init__(self, kinds: Sequence[Callback]) -> None:
        self.error: BaseException | None = None
        self._functions = [self._made(kind) for kind in kinds]

    @property
    def addresses(self) -> list[int]:
        """The addresses to pass to the code. They are valid as long as this object lives."""
        return [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self._functions]

    def _made(self, kind: Callback) -> Any:
        passed: list[Any] = []
        for word, *rest in kind.arguments:
            if word == "array":
                passed += [ctypes.c_void_p, *[ctypes.c_int64] * (2 * int(rest[1]))]
            elif word != "text":
                passed.append(_NUMBERS[rest[0]] if word == "number" else _ONE[word])
        result = None if kind.dtype in ("void", "handle") else c_type(kind.dtype)
        return ctypes.CFUNCTYPE(result, *passed)(self._run(kind))

    def _run(self, kind: Callback) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            if self.error is not None:
                return 0
            try:
                found = get_global_func(kind.name)(*_arguments(kind, values))
                return 0 if found is None or kind.dtype in ("void", "handle") else found
            except BaseException as error:  # ctypes would print it and go on
                self.error = error
                return 0

        return run


@register_func(TRACED)
def _traced(action: str, *values: Any) -> Any:
    """Call a registered function with the values of `tir.trace`, and return its result, or the last value for None."""
    found = get_global_func(action)(*values)
    return values[-1] if found is None else found


@register_func("tvm.default_trace_action")
def _print_values(*values: Any) -> None:
    print([*values])


def _arguments(kind: Callback, values: Sequence[Any]) -> list[Any]:
    """Return the Python values of the arguments."""
    rest = iter(values)
    made: list[Any] = []
    for word, *details in kind.arguments:
        if word == "text":
            made.append(details[0])
            continue
        value = next(rest)
        if word == "array":
            places = [(next(rest), next(rest)) for _ in range(int(details[1]))]
            made.append(NDArray(_array(value or 0, DataType(details[0]), places)))
        else:
            made.append(ctypes.c_void_p(value) if word == "address" else bool(value) if word == "bool" else value)
    return made


def _array(address: int, dtype: DataType, places: Sequence[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Return the memory at an address as an array with these sizes and strides, in elements."""
    kind = dtype.numpy()
    count = 1 + sum((size - 1) * stride for size, stride in places) if all(size for size, _ in places) else 0
    memory = memoryview((ctypes.c_char * (count * kind.itemsize)).from_address(address)).cast("B")
    return np.ndarray(
        [size for size, _ in places], kind, memory, strides=[stride * kind.itemsize for _, stride in places])
