"""Wrap constructors and global functions that are used as values in functions that call them.

    %f(Some) -> %f(fn [A](%eta0: A) { Some(%eta0) })
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.types import FuncType, TypeVar
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True)
class EtaExpand(FunctionPass):
    """Wrap constructors (`expand_constructor`) and global functions (`expand_global_var`) that are used as values.
    Needs their types.
    """

    expand_constructor: bool = False
    expand_global_var: bool = False
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        new: dict[Expr, Expr] = {}
        for e in post_order(function):
            old = operands(e)
            called = isinstance(e, Call) and isinstance(e.op, Expr)
            now = [new.get(o, o) if called and i == 0 and isinstance(o, (Constructor, GlobalVar))
                   else self._value(new.get(o, o), mod) for i, o in enumerate(old)]
            new[e] = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
        return new[function]

    def _value(self, e: Expr, mod: IRModule) -> Expr:
        """Return the replacement of `e` in a position where it is not called."""
        if not (isinstance(e, Constructor) and self.expand_constructor) and not (isinstance(e, GlobalVar)
                and self.expand_global_var):
            return e
        t = e.known_type()
        if t is None and isinstance(e, GlobalVar) and e in mod:
            t = mod[e].known_type()
        if not isinstance(t, FuncType):
            return e
        variables = [TypeVar(v.name_hint) for v in t.type_params]
        t = t.instantiate(variables)
        params = [Var(f"eta{i}", a) for i, a in enumerate(t.arg_types)]
        return Function(params, Call(e, params), t.ret_type, variables)
