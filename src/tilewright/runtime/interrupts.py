"""Native runs that signals interrupt: Ctrl-C ends a long run between two kernels, as it ends Python code between two
instructions.

A program with long runs has a second entry for each entry, which polls for pending signals
(`backends/cpu/llvm/interrupts.py`). The main thread calls the second entry, because Python runs signal handlers only
there. If a handler returns, the run continues. If it raises, the run ends and the call raises the exception.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Final

from tilewright.base.forks import MAIN_THREAD
from tilewright.runtime.manifest import INTERRUPTED
from tilewright.runtime.program import Code, interruptible_symbol

Entry = Callable[[int, int], int]
_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_INTERRUPTIBLE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FUNCTIONS: Final = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
_EXCEPTION: Final = ctypes.c_uint64 * 3
PENDING_BYTES: Final = 8 * (len(_FUNCTIONS) + 4)
"""Bytes for the functions, for an exception (type, value and traceback), and for the time of the next check."""


def entry_of(code: Code, symbol: str, interruptible: bool, pending: int) -> Entry:
    """Return the native function `symbol(context, args) -> status` of a program. If it is `interruptible`, a call by
    the main thread raises the exceptions of signal handlers. `pending` bytes after `args` are `PENDING_BYTES` bytes
    that `set_pending` has filled."""
    plain: Entry = _ENTRY(code.address(symbol))
    if not interruptible or _python_functions() is None:
        return plain
    checking = _INTERRUPTIBLE(code.address(interruptible_symbol(symbol)))

    def run(context: int, args: int) -> int:
        if get_ident() != MAIN_THREAD.ident:
            return plain(context, args)
        status: int = checking(context, args, args + pending)
        if status == INTERRUPTED:
            _raise(*_EXCEPTION.from_address(args + pending + 8 * len(_FUNCTIONS)))
        return status

    return run


def set_pending(block: bytearray, offset: int) -> None:
    """Write the functions that signal checks call at an offset of a block of arguments."""
    functions = _python_functions()
    if functions is not None:
        struct.pack_into(f"{len(functions)}Q", block, offset, *functions)


@cache
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
