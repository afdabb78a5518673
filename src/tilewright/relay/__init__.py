"""Relay: the graphs of models. Expressions, types, and every operator as a function: `relay.add`, `relay.nn.conv2d`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.relay import image, nn, op
from tilewright.relay.compose import arange, gather, logsumexp, std, variance
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, const, var
from tilewright.relay.op.registry import operator_names, public_function
from tilewright.relay.printer import astext
from tilewright.types import FuncType, TensorType, TupleType, Type

__all__ = [
    "Call", "Constant", "Expr", "FuncType", "Function", "GlobalVar", "If", "Let", "TensorType", "Tuple", "TupleGetItem", "TupleType", "Type", "Var",
    "arange", "astext", "const", "gather", "image", "logsumexp", "nn", "op", "std", "var", "variance",
]


def __getattr__(name: str) -> Callable[..., Any]:
    return public_function(name, __name__)


def __dir__() -> list[str]:
    return [*__all__, *operator_names("")]
