"""Imports `model.relay`: a network in Relay text, with its constants after `#[metadata]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import InputError, ModelError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function, Var
from tilewright.relay.parser import parse
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import substitute


def from_text(text: str, shapes: Mapping[str, Sequence[Any]] | None = None, name: str = "model.relay") -> IRModule:
    """Parse Relay text; `shapes` set the dynamic dimensions of the inputs of `main`.

    Raises `ParseError` for invalid text, `ModelError` for a module without a `main` over tensors, and `InputError` for
    shapes that do not match.
    """
    module = parse(text, name)
    main = dict(module.items()).get("main")
    if not isinstance(main, Function):
        raise ModelError(f"{name} has no function @main; rename the function to compile", code="TW0103")
    params = {p.name_hint: p for p in main.params}
    for given in shapes or {}:
        if given not in params:
            raise InputError(f"{name} has no input '{given}'; it has {', '.join(params) or 'none'}", code="TW0702")
    if shapes:
        new = {params[n]: _of_shape(params[n], shape, name) for n, shape in shapes.items()}
        body = substitute(main.body, dict(new.items()))
        module["main"] = Function([new.get(p, p) for p in main.params], body, attrs=main.attrs, span=main.span)
    return InferType()(module)


def _of_shape(p: Var, shape: Sequence[Any], name: str) -> Var:
    """The parameter with its dynamic dimensions replaced by those of `shape`."""
    old = p.tensor_type
    fits = len(shape) == len(old.shape) and all(a == b for a, b in zip(old.shape, shape, strict=True)
                                                if isinstance(a, int))
    if not fits:
        raise InputError(f"input '{p.name_hint}' of {name} is {old}, but was given the shape "
                         f"[{', '.join(map(str, shape))}]", code="TW0704")
    return Var(p.name_hint, TensorType(tuple(shape), old.dtype))
