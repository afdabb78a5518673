"""The registry of workloads: functions that return the tensors of a computation, and keys that name a call of one.

    @auto_scheduler.register_workload
    def matmul(n, m, k): …; return [A, B, C]

    make_workload_key(matmul, (512, 512, 512))      '["matmul", 512, 512, 512]'

Computations of networks have no function: their tensors are registered, under a digest of the computations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final

from tilewright import te
from tilewright.base.errors import CompileError, OptionError
from tilewright.base.json_reading import read_json
from tilewright.base.settings import nearest
from tilewright.scalar.expr import PrimExpr, number_of
from tilewright.te.tensor import Tensor

WORKLOAD_FUNC_REGISTRY: Final[dict[str, Callable[..., Any] | list[Tensor]]] = {}
"""Functions by name, and the tensors of computations without a function by key."""
_TENSOR: Final = "TENSOR"


def register_workload(func_name: Any = None, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function under its name or `func_name`, as a decorator (with or without a name) or a call.

    Raises `OptionError` if another function has the name, unless `override` is set.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = func_name or function.__name__
        known = WORKLOAD_FUNC_REGISTRY.get(name)
        if known is not None and not override and not _same_text(known, function):
            raise OptionError(
                f"workload '{name}' is registered already; give it another name, or set override=True", code="TW1108")
        WORKLOAD_FUNC_REGISTRY[name] = function
        return function

    return register(f) if f is not None else register


def _same_text(a: Any, b: Any) -> bool:
    """Return whether two functions have the same code, perhaps at different lines."""
    one, other = getattr(a, "__code__", a), getattr(b, "__code__", b)
    if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
        return type(one) is type(other) and bool(one == other)
    same = (one.co_name, one.co_code, one.co_names) == (other.co_name, other.co_code, other.co_names)
    return same and len(one.co_consts) == len(other.co_consts) and all(map(_same_text, one.co_consts, other.co_consts))


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> str:
    """Register the tensors of a computation under its key, and return the key."""
    if workload_key in WORKLOAD_FUNC_REGISTRY and not override:
        raise OptionError(f"workload {workload_key} is registered already; set override=True", code="TW1108")
    WORKLOAD_FUNC_REGISTRY[workload_key] = list(tensors)
    return workload_key


def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Callable[..., Any] | list[Tensor]]:
    """Return the entry of a key, or of the function that a key names, to be pickled: a function as its name in its
    module. Raises `OptionError` for an unknown key."""
    name = workload_key if workload_key in WORKLOAD_FUNC_REGISTRY else decode(workload_key)[0]
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise OptionError(
            f"workload '{name}' is not registered{nearest(name, WORKLOAD_FUNC_REGISTRY)}", code="TW1108")
    return name, WORKLOAD_FUNC_REGISTRY[name]


def deserialize_workload_registry_entry(data: tuple[str, Callable[..., Any] | list[Tensor]]) -> None:
    """Register an entry that `serialize_workload_registry_entry` returned, unless its key is registered."""
    WORKLOAD_FUNC_REGISTRY.setdefault(*data)


def make_workload_key(func: str | Callable[..., Any], args: Sequence[Any] | Any) -> str:
    """Return the key of a registered function with arguments: numbers, texts, sequences of these, and placeholders."""
    name = func if isinstance(func, str) else func.__name__
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise OptionError(
            f"workload '{name}' is not registered{nearest(name, WORKLOAD_FUNC_REGISTRY)}; decorate it with "
            "auto_scheduler.register_workload", code="TW1108")
    several = args if isinstance(args, (list, tuple)) else (args,)
    return json.dumps([name, *map(_plain, several)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """Return the tensors of a key, made by its function. Raises `OptionError` when it is not registered."""
    if isinstance(known := WORKLOAD_FUNC_REGISTRY.get(workload_key), list):
        return known
    name, args = decode(workload_key)
    function = WORKLOAD_FUNC_REGISTRY.get(name)
    if not callable(function):
        raise OptionError(
            f"workload '{name}' is not registered{nearest(name, WORKLOAD_FUNC_REGISTRY)}; register the function of "
            "that name, or extract the tasks of the network again", code="TW1108")
    made = function(*map(_restored, args))
    if not isinstance(made, (list, tuple)) or not all(isinstance(t, Tensor) for t in made):
        raise CompileError(
            f"workload '{name}' returns {made!r}; it has to return its tensors in a list: inputs, then results",
            code="TW1108")
    return list(made)


def is_registered(workload_key: str) -> bool:
    """Return whether the tensors of a key are available."""
    return workload_key in WORKLOAD_FUNC_REGISTRY or decode(workload_key)[0] in WORKLOAD_FUNC_REGISTRY


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
