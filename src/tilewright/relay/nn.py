"""Operators of neural networks as functions: `relay.nn.conv2d(data, weight, padding=1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import Origin
from tilewright.relay.expr import Call, Constant, Expr, const
from tilewright.relay.op.dynamic import DynPad
from tilewright.relay.op.nn import Dropout, Pad
from tilewright.relay.op.registry import as_relay, operator_names, public_function


def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant", span: Origin | None = None) -> Call:
    """`data` with `pad_width[d] = (before, after)` elements more along each dimension; see the operator `nn.pad`.

    A number as `pad_value` becomes a constant of the data's dtype. A tensor (dimensions, 2) as `pad_width`, known only when the program
    runs, makes it `dyn.nn.pad`, whose result has unknown sizes.
    """
    tensor = as_relay(data)
    known = tensor.known_type()
    dtype = getattr(known, "dtype", "float32")
    value: Any = const(pad_value, dtype) if isinstance(pad_value, (int, float)) else pad_value
    if isinstance(pad_width, Expr) and not isinstance(pad_width, Constant):
        return DynPad(pad_mode)(tensor, pad_width, value, span=span)
    return Pad(pad_width.value.tolist() if isinstance(pad_width, Constant) else pad_width, pad_mode)(tensor, value, span=span)


def dropout(data: Any, rate: float = 0.5, span: Origin | None = None) -> Expr:
    """`data` as they are, for inference drops nothing: the first field of the operator `nn.dropout`, which gives a mask too."""
    return dropout_raw(data, rate, span)[0]


def dropout_raw(data: Any, rate: float = 0.5, span: Origin | None = None) -> Call:
    """The data and the mask of the operator `nn.dropout`."""
    return Dropout(rate)(as_relay(data), span=span)


def __getattr__(name: str) -> Callable[..., Any]:
    return public_function("nn." + name.removesuffix("_nchwc") + "_NCHWc" if name.endswith("_nchwc") else "nn." + name, __name__)


def __dir__() -> list[str]:
    return operator_names("nn.")
