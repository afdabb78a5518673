"""Copy generic inner functions for each instantiation, so that the values in them have concrete types.

    fn (%x: float32) { let %pair = fn [A](%y: A) { (%y, %x) }; (%pair(%x), %pair(1)) }
 -> fn (%x: float32) {
      let %pair = fn (%y: float32) { (%y, %x) }; let %pair1 = fn (%y1: int32) { (%y1, %x) }; (%pair(%x), %pair1(1))
    }

A step of `Defunctionalize`: such a function may capture variables, so it cannot be copied as a global function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilewright.base import graphs
from tilewright.base.errors import CompileError
from tilewright.base.type_matching import bind_types
from tilewright.base.types import FuncType, Type, substitute_type
from tilewright.relay.analysis.branches import is_one_kernel
from tilewright.relay.expr import Call, Expr, Function, Let, Var
from tilewright.relay.node_labels import short
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.visitor import operands, post_order, with_operands

Bound = dict[Type, Type]


def plain_closures(function: Function) -> Function:
    """Replace the generic inner functions of `function` by copies. Needs known types, and names for shared values.

    Raises `CompileError` if a generic function has a generic type as a value, calls itself with other types, or has an
    undetermined type parameter at a use.
    """
    while generic := [e for e in post_order(function.body) if isinstance(e, Function) and e.type_params
                      and not is_one_kernel(e)]:
        function = function.with_body(_Copies(function.body, generic).body())
    return function


def bound_types(kind: FuncType, args: Sequence[Type], ret: Type) -> Bound:
    """Return the types of the type parameters of a function of type `kind` at a call with these types, as far as they
    are determined."""
    bound: Bound = {}
    variables = frozenset(kind.type_params)
    for wanted, given in ((kind.ret_type, ret), *zip(kind.arg_types, args, strict=True)):
        if variables and not (isinstance(given, FuncType) and given.type_params):
            _ = bind_types(wanted, given, variables, bound)
    return bound


def called_with(order: Sequence[Expr]) -> dict[Expr, Type]:
    """Return the concrete types of calls whose result is a generic function that is called immediately: `@id(@id)` in
    `@id(@id)(%x)`."""
    found: dict[Expr, Type] = {}
    for e in reversed(order):
        if (isinstance(e, Call) and isinstance(e.op, Call) and isinstance(t := e.op.known_type(), FuncType)
                and t.type_params):
            found[e.op] = FuncType([found.get(a) or a.checked_type for a in e.args], found.get(e) or e.checked_type)
    return found


class _Copies:
    """One round: replaces the generic functions that no other generic function uses by their copies."""

    def __init__(self, root: Expr, generic: Sequence[Function]) -> None:
        self.root = root
        self.meant: dict[Expr, Function] = {f: f for f in generic}
        for e in reversed(post_order(root)):  # a let before those in its body
            if isinstance(e, Let) and e.value in self.meant:
                self.meant[e.var] = self.meant[e.value]
        self.inside = {f: post_order(f.body) for f in generic}
        later = {self.meant[o] for f in generic for e in self.inside[f] for o in operands(e)
                 if self.meant.get(o, f) is not f}
        later |= {e for f in generic for e in self.inside[f] if isinstance(e, Function)}
        self.meant = {e: f for e, f in self.meant.items() if f not in later}
        self.called_with: dict[Expr, Type] = {}
        self.copies: dict[Expr, dict[tuple[Type, ...], Var]] = {}
        self.alias: dict[Expr, Expr] = {}

    def body(self) -> Expr:
        """Return the expression without these functions."""
        order = self._order()
        self.called_with = called_with(order)
        for e in reversed(order):
            if isinstance(e, Let) and e.value in self.meant:
                self.alias[e.var] = self.alias.get(e.value, e.var)
        new: dict[Expr, Expr] = {}
        for e in order:
            new[e] = self._rebuilt(e, new)
        if self.root in self.meant:
            self._refuse(self.root, self.root)
        return new[self.root]

    def _order(self) -> list[Expr]:
        """Return the nodes outside of these functions, operands before users."""
        return graphs.post_order([self.root], lambda e: () if e in self.meant else operands(e))

    def _rebuilt(self, e: Expr, new: dict[Expr, Expr]) -> Expr:
        if e in self.meant:
            return e  # generic functions are dropped; their users refer to the copies
        if isinstance(e, Let) and e.value in self.meant and e.body not in self.meant:
            return self._lets(e, new[e.body])
        now = [self._used(e, k, o) if o in self.meant else new[o] for k, o in enumerate(operands(e))]
        if all(a is b for a, b in zip(now, operands(e), strict=True)):
            return e
        made = with_operands(e, now)
        if e.known_type() is not None:
            made.set_type(self._type(e))
        return made

    def _type(self, e: Expr) -> Type:
        return self.called_with.get(e) or e.checked_type

    def _used(self, e: Expr, k: int, o: Expr) -> Expr:
        """Return the copy of the function `o` for its use as operand number `k` of `e`."""
        key = self._key(e, k, o)
        name = self.alias.get(o, o)
        if not isinstance(name, Var):
            return self._copy(self.meant[o], key, {})
        copies = self.copies.setdefault(name, {})
        if key not in copies:
            copies[key] = Var(name.name_hint, None, name.span)
            copies[key].set_type(_instance(self.meant[o], key))
        return copies[key]

    def _key(self, e: Expr, k: int, o: Expr) -> tuple[Type, ...]:
        """Return the types of the type parameters of `o` as operand number `k` of `e`."""
        function = self.meant[o]
        kind = function.checked_type
        called = e.op if isinstance(e, Call) and isinstance(e.op, Expr) else None
        if not isinstance(e, Call) or called is None:
            self._refuse(o, e)
        args, ret = [self._type(a) for a in e.args], self._type(e)
        if k:
            own = self._type(called)
            assert isinstance(own, FuncType)
            wanted = substitute_type(own.arg_types[k - 1], bound_types(own, args, ret))
            if not isinstance(wanted, FuncType) or wanted.type_params:
                self._refuse(o, e)
            args, ret = list(wanted.arg_types), wanted.ret_type
        assert isinstance(kind, FuncType)
        bound = bound_types(kind, args, ret)
        for v in function.type_params:
            if v not in bound:
                raise CompileError(
                    f"the type {v!r} of {short(function)} cannot be inferred from the arguments "
                    f"and the result of {short(e)}; annotate the types of the function there",
                    e.span or function.span, code="TW0404")
        return tuple(bound[v] for v in function.type_params)

    def _refuse(self, o: Expr, e: Expr) -> NoReturn:
        t = self.meant[o].checked_type
        raise CompileError(
            f"{short(o)} has the generic type {t!r} and is used as a value in {short(e)}; call it by name, or wrap it "
            "in a function without type parameters",
            e.span or o.span, code="TW0404")

    def _lets(self, e: Let, body: Expr) -> Expr:
        """Wrap `body` in the copies of the function that `e` binds."""
        for key, v in reversed(self.copies.get(e.var, {}).items()):
            body = Let(v, self._copy(self.meant[e.var], key, {e.var: v}), body, e.span)
        return body

    def _copy(self, function: Function, key: tuple[Type, ...], own_name: dict[Expr, Expr]) -> Function:
        """Return the copy of `function` for these types, with recursive calls renamed."""
        for e in self.inside[function]:
            for k, o in enumerate(operands(e)):
                if o in own_name and self._key(e, k, o) != function.type_params:
                    raise CompileError(
                        f"{short(o)} calls itself with other types in {short(e)}, so it would need an unlimited "
                        "number of copies; give it fixed types",
                        e.span or function.span, code="TW0404")
        plain = Function(function.params, function.body, function.declared_ret_type, None, function.attrs,
                         function.span)
        made = fresh_copy(plain, own_name, dict(zip(function.type_params, key, strict=True)))
        assert isinstance(made, Function)
        return made


def _instance(function: Function, key: tuple[Type, ...]) -> Type:
    kind = function.checked_type
    assert isinstance(kind, FuncType)
    bound: Bound = dict(zip(function.type_params, key, strict=True))
    return substitute_type(FuncType(kind.arg_types, kind.ret_type), bound)
