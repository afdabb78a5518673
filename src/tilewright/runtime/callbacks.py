"""Callbacks from native code to functions of modules, in programs with control flow, which otherwise stay in native
code.

The code has one pointer for the callback, so all executables of the same code share one, which lives as long as the
code.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import MemoryFault
from tilewright.base.forks import new_lock
from tilewright.base.nd import NDArray
from tilewright.runtime.program import Code, ExternalStep, HostValue

CALLBACK: Final = "tw_external"
"""The variable of the code that points to the callback."""
DONE: Final = 1
"""Return value of a successful call."""
CALL_FAILED: Final = -1
"""Status of a program that ended because a function raised an exception; `raised` returns it."""

Array = np.ndarray[Any, Any]
_TYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
_MADE: Final[weakref.WeakKeyDictionary[Code, Any]] = weakref.WeakKeyDictionary()
_STATE: Final = threading.local()
_LOCK: Final = new_lock()


def call_function(
    function: Callable[..., Any], inputs: Sequence[Array], outputs: Sequence[Array], origin: str = ""
) -> None:
    """Call a function of a module on the program's own memory; values with gaps, parts of larger ones, are copied.

    `origin` is the model's node of the call; a `MemoryFault` from it names the node.
    """
    written = [x if x.flags.c_contiguous else np.empty(x.shape, x.dtype) for x in outputs]
    try:
        function(*(NDArray(np.ascontiguousarray(x).reshape(x.shape)) for x in inputs), *map(NDArray, written))
    except MemoryFault as fault:
        raise fault.at(origin) from None
    for x, made in zip(outputs, written, strict=True):
        if made is not x:
            np.copyto(x, made)


def set_callback(
    code: Code, calls: Sequence[ExternalStep], functions: Mapping[str, Callable[..., Any]], done: int
) -> None:
    """Set the functions that the code calls; an exception ends the program. `done` is the status of a successful call.
    """
    views = [([*map(view_of, c.inputs)], [*map(view_of, c.outputs)]) for c in calls]

    def called(number: int, addresses: Any) -> int:
        try:
            inputs, outputs = views[number]
            given = [view(addresses[k]) for k, view in enumerate(inputs)]
            call_function(
                functions[calls[number].symbol], given,
                [view(addresses[len(inputs) + k]) for k, view in enumerate(outputs)], calls[number].origin
            )
        except BaseException as error:  # native code separates this frame from the caller that must receive it
            _STATE.raised = error
            return CALL_FAILED
        return done

    with _LOCK:
        if code not in _MADE:
            made = _MADE[code] = _TYPE(called)
            ctypes.c_void_p.from_address(code.address(CALLBACK)).value = ctypes.cast(made, ctypes.c_void_p).value


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Keep the exception of a signal handler that runs as a callback begins, for `raised`.

    Python runs handlers in the main thread, between two instructions. An exception before the first instruction of a
    callback cannot be caught. `ctypes` passes it to `sys.unraisablehook` and returns 0, which ends the program like a
    failed call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.unraisablehook

    def kept(unraisable: Any) -> None:
        if (
            threading.current_thread() is threading.main_thread()
            and "ctypes callback function" in (unraisable.err_msg or "")
        ):
            _STATE.raised = unraisable.exc_value
        else:
            before(unraisable)

    sys.unraisablehook = kept
    try:
        yield
    finally:
        if sys.unraisablehook is kept:
            sys.unraisablehook = before


def raised() -> BaseException:
    """Return and clear the exception that ended a callback of this thread; `KeyboardInterrupt` if Python discarded it
    in another thread."""
    error: BaseException | None = getattr(_STATE, "raised", None)
    _STATE.raised = None
    return KeyboardInterrupt() if error is None else error


def view_of(value: HostValue) -> Callable[[int], Array]:
    """Return a function from an address to an array over the memory there."""
    dtype, shape = value.dtype.numpy(), value.shape
    strides = value.strides
    last = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides or (), strict=False))
    nbytes = last if strides is not None else dtype.itemsize * int(np.prod(shape, dtype=np.int64))

    def view(address: int) -> Array:
        return np.ndarray(shape, dtype, memoryview((ctypes.c_uint8 * nbytes).from_address(address)), 0, strides)

    return view
