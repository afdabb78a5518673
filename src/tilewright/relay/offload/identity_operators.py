"""Builds operators that leave their input unchanged: a bias of zeros, an empty padding, a clip to the whole range.

    nn.conv2d(%x, w) -> nn.bias_add(nn.conv2d(%x, w), zeros)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType, Type
from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ShapePattern,
    TypePattern,
    WildcardPattern,
)
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.registry import Fusion, Op, get

Attrs = Mapping[str, Any]
Made = tuple[Attrs, list[Constant]]
"""The attributes of an operator that changes nothing, and its other arguments."""


CHANGE_NOTHING: Final = frozenset({"copy", "nn.dropout", "annotation.stop_fusion", "annotation.checkpoint"})
"""Operators that can be removed from a program for inference."""


def has_neutral(name: str) -> bool:
    """Return whether the operator has attributes and arguments for which it is the identity."""
    return name in _NEUTRAL


def neutral_attributes(name: str, of: Type | None) -> Attrs:
    """Return the attributes for which the operator is the identity on values of that type; empty if there are none."""
    make = _NEUTRAL.get(name)
    return make(of)[0] if make is not None and isinstance(of, TensorType) and of.is_static else {}


def can_be_made(p: DFPattern) -> bool:
    """Return whether a constant would match this pattern."""
    match p:
        case AltPattern():
            return can_be_made(p.left) or can_be_made(p.right)
        case AttrPattern() | DataTypePattern() | ShapePattern() | TypePattern():
            return can_be_made(p.pattern)
        case WildcardPattern():
            return p.redirected is None or can_be_made(p.redirected)
        case _:
            return isinstance(p, ConstantPattern) or (isinstance(p, ExprPattern) and isinstance(p.expr, Constant))


def inserted(name: str, value: Expr, argument: int, count: int, attrs: Attrs) -> Call:
    """Return a call of the operator with `value` as one of its `count` arguments, if possible one without effect.

    Raises `CompileError` if arguments are needed that only the author of the model knows.
    """
    make = _NEUTRAL.get(name)
    given, more = (_bias(value.tensor_type, _channels_of(value)) if name == "nn.bias_add" else make(value.tensor_type)
                   if make is not None else ({}, []))
    cls = get(name)
    known = {k: v for k, v in {**given, **attrs}.items() if k in cls.attribute_names}
    missing = [n for n in cls.attribute_names if n not in known and n not in cls.attribute_defaults]
    if len(more) != count - 1 or missing:
        raise CompileError(f"{name} cannot be inserted: it needs values that the model does not "
                           f"determine ({', '.join(missing) or f'{count} arguments'})", code="TW0909")
    more.insert(argument, value)  # type: ignore[arg-type]
    return cls(**known)(*more, span=value.span)


def _channels_of(value: Expr) -> int:
    """Return the channel dimension by the layout of the nearest operator above that has one; 1 by default."""
    at: Any = value
    while isinstance(at, Call) and isinstance(at.op, Op) and at.args and at.known_type() is not None:
        attributes = at.op.attributes()
        layout = attributes.get("out_layout") or attributes.get("data_layout") or attributes.get("layout") or ""
        if "C" in layout:
            return int(layout.index("C"))
        if at.op.kind > Fusion.BROADCAST:
            break
        at = at.args[0]
    return 1


def _bias(t: TensorType, channels: int = 1) -> Made:
    rank = len(t.concrete_shape)
    axis = channels if rank > channels else 0
    return {"axis": axis}, [Constant(np.zeros(t.concrete_shape[axis], t.dtype.numpy()))]


def _clip(t: TensorType) -> Made:
    kind = t.dtype.numpy()
    info: Any = np.iinfo(kind) if kind.kind in "iu" else np.finfo(np.float32)
    return {"a_min": float(info.min), "a_max": float(info.max)}, []


def _requantize(t: TensorType) -> Made:
    scale, zero = Constant(np.asarray(1, "float32")), Constant(np.asarray(0, "int32"))
    return {"axis": 1 if len(t.shape) > 1 else -1, "out_dtype": str(t.dtype)}, [scale, zero, scale, zero]


def _with(number: int) -> Callable[[TensorType], Made]:
    return lambda t: ({}, [Constant(np.asarray(number, t.dtype.numpy()))])


_NEUTRAL: Final[dict[str, Callable[[TensorType], Made]]] = {
    "add": _with(0), "subtract": _with(0), "multiply": _with(1), "divide": _with(1),
    "nn.bias_add": _bias,
    "clip": _clip,
    "cast": lambda t: ({"dtype": str(t.dtype)}, []),
    "copy": lambda t: ({}, []),
    "nn.pad": lambda t: ({"pad_width": tuple((0, 0) for _ in t.shape)}, [Constant(np.asarray(0, t.dtype.numpy()))]),
    "reshape": lambda t: ({"newshape": t.concrete_shape}, []),
    "transpose": lambda t: ({"axes": tuple(range(len(t.shape)))}, []),
    "qnn.requantize": _requantize,
}
"""By operator name: the identity attributes and arguments for a value of that type."""
