"""Users of the values that a program computes from its constants and keeps (`backends/cpu/llvm/kept_values.py`).

The system loads a library once for all who open the same file. Therefore its values are freed when the last one closes
it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Final

USERS: Final = "tw_kept_users"
"""The function of the code that counts its users."""
_TYPE: Final = ctypes.PYFUNCTYPE(None, ctypes.c_int32)
"""Its type. It keeps Python's lock, so that no thread opens a library while another one frees its values."""


def use(address: int) -> Callable[[], None]:
    """Count a user with the function at `address`; return a function that ends the use."""
    count = _TYPE(address)
    count(1)
    return functools.partial(count, -1)
