"""Inline the functions marked `Inline`.

    def @main(%x) { @f(%x) }  def @f(%y, Inline=1) { nn.relu(%y) } -> def @main(%x) { nn.relu(%x) }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Match
from tilewright.relay.analysis.call_graph import CallGraph
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, If, Let, Var
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True)
class Inline(Pass):
    """Inline the functions with the attribute `Inline`, and remove them. Recursive functions stay, and those that no
    function calls.

    A function of another compiler replaces its name as a whole.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        graph = CallGraph(mod)
        marked = {n for n, f in mod.items() if isinstance(f, Function) and f.attrs.get("Inline")
                  and not graph.is_recursive(n)}
        if not marked:
            return mod
        done: dict[str, Function] = {}
        new = mod.copy()
        for name in graph.topological_order():
            function = mod[name]
            if isinstance(function, Function):
                done[name] = inlined(function, {n: done[n] for n in marked & set(graph[name])})
                if done[name] is not function:
                    new[name] = done[name]
        for name in marked & {callee for caller, _ in mod.items() for callee in graph[caller]} - {"main"}:
            new.remove(name)
        return new


def inlined(function: Function, bodies: dict[str, Function]) -> Function:
    """Return `function` with the names of these functions replaced by their bodies."""
    new: dict[Expr, Expr] = {}
    for e in post_order(function):
        old = operands(e)
        now = [new.get(o, o) for o in old]
        body = bodies.get(e.op.name_hint) if isinstance(e, Call) and isinstance(e.op, GlobalVar) else None
        if body is not None and not body.attrs.get("Compiler"):
            new[e] = applied(body, now[1:])
        else:
            now = [fresh_copy(bodies[o.name_hint]) if isinstance(o, GlobalVar) and o.name_hint in bodies else o
                   for o in now]
            new[e] = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
    found = new[function]
    assert isinstance(found, Function)
    return found


def applied(function: Function, args: list[Expr]) -> Expr:
    """Return a copy of the body of `function` applied to these arguments.

    Arguments replace parameters if the body is a single scope. Otherwise they are bound by lets first, which keeps the
    order of evaluation.
    """
    scopes = any(isinstance(e, (Function, If, Match, Let)) for e in post_order(function.body))
    if not scopes:
        return fresh_copy(function.body, dict(zip(function.params, args, strict=True)))
    names = [a if isinstance(a, (Var, GlobalVar)) else Var(p.name_hint, p.type_annotation)
             for p, a in zip(function.params, args, strict=True)]
    for v, a in zip(names, args, strict=True):
        if v is not a:
            v.set_type(a.known_type())
    body = fresh_copy(function.body, dict(zip(function.params, names, strict=True)))
    for v, a in reversed(list(zip(names, args, strict=True))):
        if v is not a and isinstance(v, Var):
            body = Let(v, a, body)
    return body
