"""Replace symbolic dimensions by sample sizes, so that later passes compute with numbers (`arith/open_sizes.py`).

    fn (%x: Tensor[(n, 384), float32]) { reshape(%x, newshape=[n, 12, 32]) }       n: a variable
      -> the same, where n is an int that records that it represents `n`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import binders, operands, post_order, with_operands
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
    order = post_order(function.body)
    bound: dict[Expr, Var] = {
        v: Var(v.name_hint, put.type(v.checked_type), v.span) for e in (function, *order) for v in binders(e)}
    new: dict[Expr, Expr] = {**bound}
    for e in order:
        if e not in new:
            new[e] = put.rebuilt(e, [new[o] for o in operands(e)], bound)
    params = [bound[p] for p in function.params]
    return Function(params, new[function.body], None, function.type_params, function.attrs, function.span)


class _Substitution:
    """Substitutes symbols in types and attributes."""

    def __init__(self, symbols: Mapping[Symbol, PrimExpr]) -> None:
        self.symbols: dict[PrimExpr, PrimExpr] = dict(symbols.items())

    def rebuilt(self, e: Expr, args: Sequence[Expr], bound: Mapping[Expr, Var]) -> Expr:
        """Return a node over new operands, with the variables `bound` for those that it binds."""
        match e:
            case Call(op=Op()):
                return self.call(e, args)
            case Function():
                params = [bound[p] for p in e.params]
                result = None if e.declared_ret_type is None else self.type(e.declared_ret_type)
                return Function(params, args[0], result, e.type_params, e.attrs, e.span)
            case Let():
                return Let(bound[e.var], args[0], args[1], e.span)
            case Constant() | Tuple() | TupleGetItem() | If() | Call(op=Function() | Var() | Let()):
                return with_operands(e, list(args)) if args else e
        what = f"call of a {type(e.op).__name__}" if isinstance(e, Call) else type(e).__name__
        raise CompileError(f"a {what} does not support symbolic sizes", getattr(e, "span", None), code="TW0304")

    def type(self, t: Type) -> Type:
        """Return a type with other dimensions."""
        match t:
            case TensorType():
                return TensorType([self.size(d) for d in t.shape], t.dtype)
            case TupleType():
                return TupleType([self.type(f) for f in t.fields])
            case FuncType():
                return FuncType([self.type(a) for a in t.arg_types], self.type(t.ret_type))
            case _:
                return t

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
