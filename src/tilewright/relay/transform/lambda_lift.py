"""Move inner functions into the module.

    def @main(%x) { let %f = fn (%y) { add(%x, %y) }; %f(%x) }
 -> def @main(%x) { let %f = @lifted_main_0(%x); %f(%x) }
    def @lifted_main_0(%x1, Closure=1) { fn (%y) { add(%x1, %y) } }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.types import FuncType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from tilewright.relay.visitor import free_vars, operands, post_order, with_operands


@dataclass(frozen=True)
class LambdaLift(Pass):
    """Move inner functions into the module, as functions marked `Closure` over the variables that they capture. Needs
    known types.

    A function without free variables becomes a global function. Functions marked `Primitive` stay inline.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = mod.copy()
        for name, function in mod.items():
            if isinstance(function, Function) and not function.attrs.get("Compiler") and _has_inner(function):
                named = ToBasicBlockNormalForm()(IRModule({"main": function}))["main"]
                new[name] = _Lifting(new, name).function(named)
        return new if len(new) > len(mod) else mod


def _has_inner(function: Function) -> bool:
    return any(_lifted(e) for e in post_order(_inside(function)))


def _inside(function: Function) -> Expr:
    """Return the body of a function; for one that creates closures, the body of the closure."""
    body = function.body
    return body.body if function.attrs.get("Closure") and isinstance(body, Function) else body


def _lifted(e: Expr) -> bool:
    return isinstance(e, Function) and not e.attrs.get("Primitive")


class _Lifting:
    """Moves the inner functions of one function into the module."""

    def __init__(self, mod: IRModule, name: str) -> None:
        self.mod, self.prefix, self.count = mod, f"lifted_{name}", 0

    def function(self, function: Function) -> Function:
        body = _inside(function)
        new: dict[Expr, Expr] = {}
        names: dict[Expr, Var] = {e.value: e.var for e in post_order(body) if isinstance(e, Let) and _lifted(e.value)}
        for e in post_order(body):
            now = [new.get(o, o) for o in operands(e)]
            rebuilt = e if all(a is b for a, b in zip(now, operands(e), strict=True)) else with_operands(e, now)
            new[e] = self.lift(rebuilt, names.get(e)) if isinstance(rebuilt, Function) and _lifted(rebuilt) else rebuilt
        inside = function.body
        return function.with_body(inside.with_body(new[body]) if body is not inside and isinstance(inside, Function)
                                  else new[body])

    def lift(self, f: Function, own_name: Var | None) -> Expr:
        """Return the expression that creates the value of `f`; `own_name` is its name for recursive calls."""
        seen = [v for v in free_vars(f) if v is not own_name]
        wanted = f.known_type()
        made = FuncType([v.checked_type for v in seen], wanted) if seen and wanted is not None else wanted
        target = GlobalVar(self.name(), made if isinstance(made, FuncType) else None)
        again: dict[Expr, Expr] = {own_name: Call(target, seen) if seen else target} if own_name is not None else {}
        lifted = fresh_copy(f, again)
        assert isinstance(lifted, Function)
        if seen:
            params = [_parameter(v) for v in seen]
            body = fresh_copy(lifted, dict(zip(seen, params, strict=True)))
            lifted = Function(params, body, wanted, None, {"Closure": 1})
        self.mod[target] = lifted
        return Call(target, seen) if seen else target

    def name(self) -> str:
        while (found := f"{self.prefix}_{self.count}") in self.mod:
            self.count += 1
        return found


def _parameter(v: Var) -> Var:
    return Var(v.name_hint, v.known_type())
