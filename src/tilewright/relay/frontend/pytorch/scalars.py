"""Operators on Python numbers and lists: arithmetic on sizes, and TorchScript's Python operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from tilewright.scalar.expr import PrimExpr, cast


def _floor(a: Any) -> Any:
    """The floor of a number or symbolic expression. (Integer conversion rounds toward zero.)"""
    if not isinstance(a, PrimExpr):
        return math.floor(a)
    cut = cast("int64", a)
    return cut - cast("int64", cast(a.dtype, cut) > a)


SCALARS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b, alpha=1: a + b if alpha == 1 else a + b * alpha, "sub": lambda a, b, alpha=1: a - b
    if alpha == 1 else a - b * alpha,
    "add_": lambda a, b: a.extend(b) or a, "mul": operator.mul, "div": lambda a, b, rounding_mode=None: {None: a / b,
        "floor": a // b, "trunc": math.trunc(a / b)}[rounding_mode] if b else a / b, "truediv": lambda a, b: a / b,
    "floordiv": operator.floordiv, "floor_divide": operator.floordiv, "mod": operator.mod, "remainder": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg, "pos": operator.pos, "abs": abs, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "and": lambda a, b: a and b, "or": lambda a, b: a or b, "__and__": lambda a, b: a and b,
    "__or__": lambda a, b: a or b,
    "__not__": operator.not_, "not": operator.not_, "__is__": operator.is_, "__isnot__": operator.is_not,
    "floor": _floor, "ceil": lambda a: -_floor(-a), "trunc": lambda a: cast("int64", a) if isinstance(a, PrimExpr)
    else math.trunc(a),
    "round": round, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "Int": lambda a: a if isinstance(a, PrimExpr)
    else int(a), "Float": float,
    "Bool": bool, "IntImplicit": int, "FloatImplicit": float, "ScalarImplicit": lambda a: a, "Complex": complex,
    "len": len,
    "__getitem__": lambda a, k: a[k], "getitem": lambda a, k: a[k], "min": min, "max": max, "list": list,
    "append": lambda a, x: a.append(x) or a, "extend": lambda a, x: a.extend(x), "insert": lambda a, k,
    x: a.insert(k, x),
    "pop": lambda a, k=-1: a.pop(k), "reverse": lambda a: a.reverse(), "slice": lambda a, start=None, end=None,
    step=1: a[start:end:step],
    "__contains__": lambda a, x: x in a, "copy": lambda a: list(a) if isinstance(a, list) else dict(a), "keys": list,
    "values": lambda a: list(a.values()),
    "items": lambda a: list(a.items()), "str": str, "format": lambda text, *args: text.format(*args),
    "warn": lambda *args: None, "numel": lambda a: 1,
    "sym_min": min, "sym_max": max, "sym_int": lambda a: a if isinstance(a, PrimExpr) else int(a),
    "sym_float": lambda a: cast("float64", a) if isinstance(a, PrimExpr) else float(a), "sym_not": operator.not_,
    "sym_sum": sum, "__range_length": lambda lo, hi, step: len(range(lo, hi, step)),
    "__derive_index": lambda index, start, step: start + index * step,
}
"""Functions by name: TorchScript's `aten::` operators, Python's `operator` functions, torch's on symbolic sizes."""

PYTHON: Final = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "sym_float": "Float",
                 "and": "logical_and", "or": "logical_or"}
"""Torch's names of Python's functions, for numbers computed at run time."""


def is_scalar(value: Any) -> bool:
    """Whether `value` is a Python value that contains no tensors."""
    if isinstance(value, (list, tuple)):
        return all(map(is_scalar, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, dict, PrimExpr))
