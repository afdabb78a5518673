"""Replace parameters of `main` by constants.

    def @main(%x, %w) { nn.dense(%x, %w) }   ->   def @main(%x) { nn.dense(%x, meta[relay.Constant][0]) }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import is_numeric
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Function, Var, const
from tilewright.relay.visitor import substitute


def bind_params(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """Bind the parameters of `main` named in `params` to these arrays; see `bind_params_by_name`."""
    main = mod["main"]
    new = bind_params_by_name(main, params)
    if new is main:
        return mod
    bound = mod.copy()
    bound["main"] = new
    return bound


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """Bind the parameters of `func` named in `params` to these arrays, converted to the declared dtypes.

    Raises `InputError` for another shape, for numbers that are no values of the declared dtype, and for a name in
    `params` that two parameters have.
    """
    named = Counter(p.name_hint for p in func.params)
    twice = next((name for name in params if named[name] > 1), None)
    if twice is not None:
        raise InputError(
            f"{named[twice]} parameters are named '{twice}'; rename them, or bind values with relay.bind",
            code="TW0701")
    mapping: dict[Expr, Expr] = {p: _value(p, params[p.name_hint]) for p in func.params if p.name_hint in params}
    if not mapping:
        return func
    kept = tuple(p for p in func.params if p not in mapping)
    return Function(kept, substitute(func.body, mapping), func.declared_ret_type, func.type_params, func.attrs,
                    func.span)


def _value(p: Var, value: Any) -> Constant:
    found = value if isinstance(value, Constant) else const(value)
    declared = p.type_annotation
    if isinstance(declared, TensorType) and found.tensor_type.dtype is not declared.dtype:
        found = _converted(found, declared.dtype)
    if declared is not None and found.known_type() != declared:
        raise InputError(f"parameter '{p.name_hint}' has type {found.known_type()!r}, but the "
                         f"model declares {p.type_annotation!r}", p.span, code="TW0704")
    return replace(found, span=p.span)


def _converted(value: Constant, dtype: DataType) -> Constant:
    """Return a constant in another numeric dtype, unchanged if an integer type would change its numbers."""
    given, target = value.value, dtype.numpy()
    if not is_numeric(given.dtype) or not is_numeric(target):
        return value
    with np.errstate(all="ignore"):
        new = given.astype(target)
    return value if not dtype.is_float and not np.array_equal(new, given) else const(new)
