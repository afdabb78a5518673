"""Jobs of TVM's tests of `tvm.contrib.popen_pool`: they wait, end their process, or tell what its initializer did."""

from __future__ import annotations

import os
import time
from typing import Any

from tilewright.base.global_functions import get_global_func, register_func

__all__ = [
    "after_initializer", "call_cpp_ffi", "call_cpp_py_ffi", "call_py_ffi", "fast_summation", "identity_after",
    "initializer", "register_ffi", "slow_summation", "terminate_self", "timeout_job",
]

_STATE: list[Any] = [0, 0, 0]


def identity_after(x: Any, sleep: float) -> Any:
    """Return `x` after `sleep` seconds."""
    time.sleep(sleep)
    return x


def terminate_self() -> None:
    """End this process with the exit code -1."""
    os._exit(255)


def initializer(test_global_state_1: Any, test_global_state_2: Any, test_global_state_3: Any) -> None:
    """Keep three values in this process."""
    _STATE[:] = [test_global_state_1, test_global_state_2, test_global_state_3]


def after_initializer() -> tuple[Any, ...]:
    """Return the values that `initializer` kept."""
    return tuple(_STATE)


def register_ffi() -> None:
    """Register the functions of the jobs below in this process."""
    register_func("testing.nested_identity_py", lambda arg: arg, override=True)
    register_func("testing.echo", lambda arg: arg, override=True)


def call_py_ffi(arg: Any) -> Any:
    """Return `arg` through a registered function."""
    return get_global_func("testing.nested_identity_py")(arg)


def call_cpp_ffi(arg: Any) -> Any:
    """Return `arg` through a registered function; all of them are Python."""
    return get_global_func("testing.echo")(arg)


def call_cpp_py_ffi(arg: Any) -> Any:
    """Return `arg` through two registered functions."""
    return get_global_func("testing.echo")(call_py_ffi(arg))


def fast_summation(n: int) -> int:
    """Return the sum of the numbers below `n`."""
    return n * (n - 1) // 2


def slow_summation(n: int) -> int:
    """Return the sum of the numbers from 0 through `n`, by a loop."""
    return sum(range(n + 1))


def timeout_job(n: float) -> None:
    """Wait for 1.5 times `n` seconds."""
    time.sleep(n * 1.5)
