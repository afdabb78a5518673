"""The registry of workloads: functions that return the tensors of a computation, and keys that name a call of one.

    @auto_scheduler.register_workload
    def matmul(n, m, k): …; return [A, B, C]

    make_workload_key(matmul, (512, 512, 512))      '["matmul", 512, 512, 512]'

Computations of networks have no function: their tensors are registered, under a digest of the computations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright import te
from tilewright.base.errors import CompileError, OptionError
from tilewright.base.json_reading import read_json
from tilewright.base.settings import nearest
from tilewright.scalar.expr import PrimExpr, number_of
from tilewright.te.tensor import Tensor

WORKLOADS: Final[dict[str, Callable[..., Any]]] = {}
"""Functions by name."""
_TENSORS: Final[dict[str, list[Tensor]]] = {}
"""Tensors of computations without a function, by key."""
_TENSOR: Final = "TENSOR"


def register_workload(func_name: Any = None, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function under its name or `func_name`, as a decorator (with or without a name) or a call.

    Raises `OptionError` if another function has the name, unless `override` is set.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = func_name or function.__name__
        known = WORKLOADS.get(name)
        if known is not None and not override and known.__code__ is not function.__code__:
            raise OptionError(
                f"workload '{name}' is registered already; give it another name, or set override=True", code="TW1108")
        WORKLOADS[name] = function
        return function

    return register(f) if f is not None else register


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> Sequence[Tensor]:
    """Register the tensors of a computation under its key, and return them."""
    if workload_key in _TENSORS and not override:
        raise OptionError(f"workload {workload_key} is registered already; set override=True", code="TW1108")
    _TENSORS[workload_key] = list(tensors)
    return tensors


def make_workload_key(func: str | Callable[..., Any], args: Sequence[Any] | Any) -> str:
    """Return the key of a registered function with arguments: numbers, texts, sequences of these, and placeholders."""
    name = func if isinstance(func, str) else func.__name__
    if name not in WORKLOADS:
        raise OptionError(
            f"workload '{name}' is not registered{nearest(name, WORKLOADS)}; decorate it with "
            "auto_scheduler.register_workload", code="TW1108")
    several = args if isinstance(args, (list, tuple)) else (args,)
    return json.dumps([name, *map(_plain, several)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """Return the tensors of a key, made by its function. Raises `OptionError` when it is not registered."""
    if workload_key in _TENSORS:
        return _TENSORS[workload_key]
    name, args = decode(workload_key)
    function = WORKLOADS.get(name)
    if function is None:
        raise OptionError(
            f"workload '{name}' is not registered{nearest(name, WORKLOADS)}; register the function of that name, or "
            "extract the tasks of the network again", code="TW1108")
    made = function(*map(_restored, args))
    if not isinstance(made, (list, tuple)) or not all(isinstance(t, Tensor) for t in made):
        raise CompileError(
            f"workload '{name}' returns {made!r}; it has to return its tensors in a list: inputs, then results",
            code="TW1108")
    return list(made)


def is_registered(workload_key: str) -> bool:
    """Return whether the tensors of a key are available."""
    return workload_key in _TENSORS or decode(workload_key)[0] in WORKLOADS


def decode(workload_key: str) -> tuple[str, list[Any]]:
    """Return the name and the arguments of a key. Raises `OptionError` for a malformed one."""
    try:
        parts = read_json(workload_key)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise OptionError(
            f'{workload_key!r} is not a workload key; a key is ["name", arguments…], as make_workload_key makes it',
            code="TW1108")
    return parts[0], parts[1:]


def _plain(value: Any) -> Any:
    match value:
        case Tensor():
            return [_TENSOR, list(value.extents), str(value.dtype)]
        case list() | tuple():
            return [_plain(v) for v in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            number = number_of(value) if isinstance(value, PrimExpr) else None
            if number is None:
                raise OptionError(
                    f"{value!r} ({type(value).__name__}) cannot be an argument of a workload; use numbers, strings, "
                    "sequences and tensors", code="TW1108")
            return number


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) == 3 and value[0] == _TENSOR:
            return te.placeholder(value[1], value[2])
        return tuple(map(_restored, value))
    return value
