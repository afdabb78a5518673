"""Functions that every session has, so that a client can test its connection (`remote.get_function("testing.echo")`).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.errors import TVMError
from tilewright.base.global_functions import register_func
from tilewright.base.nd import NDArray, array

_ELEMENTS: Final = array(np.zeros(3, "float32"))


@register_func("testing.echo")
def _echo(*args: Any) -> Any:
    """Return the first argument."""
    return args[0]


@register_func("testing.test_raise_error_callback")
def _raise_error_callback(kind: str) -> Callable[[], None]:
    """Return a function that raises the exception of that name."""
    found = getattr(builtins, kind, TVMError)

    def raise_error() -> None:
        raise found(f"{kind}: raised for a test")

    return raise_error


@register_func("rpc.test.addone")
def _add_one(x: int) -> int:
    return x + 1


@register_func("rpc.test.strcat")
def _joined(name: str, x: int) -> str:
    return f"{name}:{x}"


@register_func("rpc.test.runtime_str_concat")
def _joined_strings(x: str, y: str) -> str:
    return x + y


@register_func("rpc.test.except")
def _raise(name: str) -> None:
    raise ValueError(name)


@register_func("rpc.test.add_to_lhs")
def _adds(x: int) -> Callable[[int], int]:
    return lambda y: x + y


@register_func("rpc.test.remote_array_func")
def _are_ones(x: NDArray) -> None:
    """Raise `AssertionError` unless `x` is 3x4 ones."""
    np.testing.assert_equal(x.numpy(), np.ones((3, 4)))


@register_func("rpc.test.remote_return_nd")
def _array_function(name: str) -> Callable[..., Any]:
    """Return a function about an array of three zeros: `get_arr()`, `get_elem(k)`, `get_arr_elem(array, k)`,
    `ref_count()`."""
    functions: dict[str, Callable[..., Any]] = {
        "get_arr": lambda: _ELEMENTS,
        "get_elem": lambda k: float(_ELEMENTS.numpy()[k]),
        "get_arr_elem": lambda x, k: float(x.numpy()[k]),
        "ref_count": lambda: sys.getrefcount(_ELEMENTS),
    }
    return functions[name]
