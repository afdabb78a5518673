"""Native runs that signals interrupt: Ctrl-C ends a long run between two kernels, as it ends Python code between two
instructions.

A program with long runs has a second entry for each entry, which polls for pending signals
(`backends/cpu/llvm/interrupts.py`). The main thread calls the second entry, because Python runs signal handlers only
there. If a handler returns, the run continues. If it raises, the run ends and the call raises the exception.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

from tilewright.runtime.manifest import INTERRUPTED
from tilewright.runtime.program import Code, interruptible_symbol

Entry = Callable[[int, int], int]
_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_INTERRUPTIBLE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FUNCTIONS: Final = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
_RAISED_AT: Final = len(_FUNCTIONS)
_WORDS: Final = _RAISED_AT + 4
"""Words for the functions, for an exception (type, value and traceback), and for the time of the next check."""


def entry_of(code: Code, symbol: str, interruptible: bool) -> Entry:
    """Return the native function `symbol(context, args) -> status` of a program. If it is `interruptible`, a call
    raises the exceptions of signal handlers."""
    plain: Entry = _ENTRY(code.address(symbol))
    functions = _python_functions() if interruptible else None
    return plain if functions is None else _Interruptible(plain, code.address(interruptible_symbol(symbol)), functions)


class _Interruptible:
    """An entry that checks for signals when the main thread calls it."""

    def __init__(self, plain: Entry, address: int, functions: tuple[int, ...]) -> None:
        self._plain, self._functions = plain, functions
        self._entry = _INTERRUPTIBLE(address)

    def __call__(self, context: int, args: int) -> int:
        if threading.current_thread() is not threading.main_thread():
            return self._plain(context, args)
        pending = (ctypes.c_uint64 * _WORDS)(*self._functions)
        status: int = self._entry(context, args, ctypes.addressof(pending))
        if status == INTERRUPTED:
            _raise(*pending[_RAISED_AT : _RAISED_AT + 3])
        return status


def _python_functions() -> tuple[int, ...] | None:
    """Return the addresses of the C API functions that signal checks call; None in an interpreter without them."""
    python = getattr(ctypes, "pythonapi", None)
    if not all(hasattr(python, name) for name in _FUNCTIONS):
        return None
    return tuple(ctypes.cast(getattr(python, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS)


def _raise(kind: int, value: int, trace: int) -> None:
    """Raise an exception that was taken from the thread state; the caller owns the references."""
    restore = ctypes.pythonapi["PyErr_Restore"]
    restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
    restore(kind, value, trace)
