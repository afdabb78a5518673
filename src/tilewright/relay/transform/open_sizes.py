"""Replace symbolic dimensions by sample sizes, so that later passes compute with numbers (`arith/open_sizes.py`).

    fn (%x: Tensor[(n, 384), float32]) { reshape(%x, newshape=[n, 12, 32]) }       n: a variable
      -> the same, where n is an int that records that it represents `n`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.scalar.arith.open_sizes import open_size
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import IntImm, PrimExpr
from tilewright.scalar.expr import Var as Symbol
from tilewright.scalar.walk import free_vars, substitute


def symbols_of(function: Function) -> list[Symbol]:
    """Return the variables in the shapes of the parameters, in order."""
    return list(dict.fromkeys(
        v for p in function.params if isinstance(p.known_type(), TensorType)
        for d in p.tensor_type.shape if isinstance(d, PrimExpr) for v in free_vars(d)))


def with_samples(function: Function, symbols: Mapping[Symbol, PrimExpr]) -> Function:
    """Return `function` with its symbolic dimensions replaced by samples of `symbols` (`arith.open_sizes.samples`), or
    by numbers.

    Raises `CompileError` for an expression without a size for these samples.
    """
    return _rebuilt(function, _Samples(symbols))


def with_sizes(function: Function, sizes: Mapping[Symbol, PrimExpr]) -> Function:
    """Return `function` with symbols of its dimensions replaced by expressions of other symbols."""
    return _rebuilt(function, _Substitution(sizes)) if sizes else function


def _rebuilt(function: Function, put: _Substitution) -> Function:
    params = [
        Var(p.name_hint, TensorType([put.size(d) for d in p.tensor_type.shape], p.tensor_type.dtype), p.span)
        for p in function.params]
    new: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
    for e in post_order(function.body, inside=False):
        if e not in new:
            if any(o not in new for o in operands(e)):
                raise CompileError(
                    "loops and other bindings of variables do not support symbolic sizes", getattr(e, "span", None),
                    code="TW0304")
            new[e] = put.rebuilt(e, [new[o] for o in operands(e)])
    return Function(params, new[function.body], None, function.type_params, function.attrs, function.span)


class _Substitution:
    """Substitutes symbols in types and attributes."""

    def __init__(self, symbols: Mapping[Symbol, PrimExpr]) -> None:
        self.symbols: dict[PrimExpr, PrimExpr] = dict(symbols.items())

    def rebuilt(self, e: Expr, args: Sequence[Expr]) -> Expr:
        if isinstance(e, (Constant, Tuple, TupleGetItem)):
            return with_operands(e, list(args)) if args else e
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            what = f"call of a {type(e.op).__name__}" if isinstance(e, Call) else type(e).__name__
            raise CompileError(f"a {what} does not support symbolic sizes", getattr(e, "span", None), code="TW0304")
        return self.call(e, args)

    def call(self, e: Call, args: Sequence[Expr]) -> Expr:
        fields = e.op.attributes()
        known = {name: self.attribute(value) for name, value in fields.items()}
        op = e.op if all(known[n] is fields[n] for n in fields) else type(e.op)(**known)
        return Call(op, args, span=e.span)

    def attribute(self, value: Any) -> Any:
        if isinstance(value, tuple):
            found = tuple(map(self.attribute, value))
            return value if all(a is b for a, b in zip(value, found, strict=True)) else found
        return self.size(value) if isinstance(value, PrimExpr) else value

    def size(self, d: Any) -> Any:
        if not isinstance(d, PrimExpr):
            return d
        found = simplify(substitute(d, self.symbols), Ranges())
        return found.value if isinstance(found, IntImm) else found


class _Samples(_Substitution):
    """Substitutes samples of symbols."""

    def size(self, d: Any) -> Any:
        if not isinstance(d, PrimExpr):
            return d
        found = open_size(substitute(d, self.symbols))
        if found is None:
            raise CompileError(f"the dimension {d} cannot be computed from the dimensions of the inputs", code="TW0304")
        return found
