"""Evaluate at compile time: calls of known functions, branches and matches on known values, operators on constants.

    let %f = fn (%y) { add(%y, 1f) }; if (True) { %f(%x) } else { %x } -> add(%x, 1f)

A recursive function is unrolled if one of the call's arguments is known and the recursion terminates; otherwise the
call stays. Reading a reference created here gives the value last written to it:

    let %r = ref(%x); ref_write(%r, exp(ref_read(%r))); ref_read(%r) -> exp(%x)

An unknown call, or a write to an unknown reference, may write to all references that escaped before. References escape
into tuples and other values, into arguments, and as results of branches. Other side effects keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.type_matching import bind_types
from tilewright.base.types import TensorType, Type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.analysis.call_graph import CallGraph
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.interpreter import apply_op
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.transform.to_a_normal_form import ToANormalForm
from tilewright.relay.visitor import free_vars, operands, post_order, rewrite, with_operands

LARGEST: Final = 1 << 20
"""Size in bytes of the largest tensor that is computed."""
LONGEST: Final = 2_000
"""Largest number of steps that replace one call."""


@dataclass(frozen=True)
class PartialEvaluate(Pass):
    """Evaluate known values at compile time. Needs known types. Leaves functions in A-normal form without dead code.

    `fuel` limits the depth of nested inlined calls; deeper calls stay.
    """

    fuel: int = 100

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        named = ToANormalForm()(mod)
        new = named.copy()
        graph = CallGraph(named)
        recursive = {n: graph.reached([n]) for n in named if graph.is_recursive(n)}
        groups = {n: min(m for m in reached if n in recursive.get(m, ())) for n, reached in recursive.items()}
        for name in graph.topological_order():
            f = named[name]
            if isinstance(f, Function) and not f.attrs.get("Primitive") and not f.attrs.get("Compiler"):
                new[name] = self._evaluated(f, new, groups, context)
        return new

    def _evaluated(self, f: Function, mod: IRModule, groups: dict[str, str], context: PassContext) -> Function:
        """Evaluate `f`, repeatedly while this removes references whose content may become known."""
        while True:
            found = _Evaluation(mod, groups, self.fuel).function(f)
            before: Function | None = None
            while found is not before:
                before, found = found, without_unread(DeadCodeElimination().transform_function(found, mod, context))
            order = post_order(found)
            if not any(isinstance(e, RefRead) for e in order) or len(order) >= len(post_order(f)):
                return found
            f = found


class _OutOfFuel(Exception):
    """Aborts an attempt to inline a call. `group` is the group of the non-terminating function if it is recursive."""

    def __init__(self, group: str | None) -> None:
        super().__init__(group)
        self.group = group


@dataclass
class _Store:
    """The known contents of the references made so far."""

    held: dict[Expr, Expr] = field(default_factory=dict)
    seen: set[Expr] = field(default_factory=set)
    """Escaped references, which other code may read and write."""

    def copy(self) -> _Store:
        return _Store(dict(self.held), set(self.seen))

    def forget(self) -> None:
        """Drop what an unknown call or write may change."""
        for r in self.seen:
            self.held.pop(r, None)

    def join(self, branches: Sequence[_Store]) -> None:
        """Merge the stores of branches: keep contents that no branch wrote."""
        for b in branches:
            self.seen |= b.seen
            self.held = {r: v for r, v in self.held.items() if b.held.get(r) is v}


class _Evaluation:
    """The evaluation of a function: known values of variables, contents of references, and the calls being inlined."""

    def __init__(self, mod: IRModule, groups: dict[str, str], fuel: int) -> None:
        self.mod, self.groups, self.fuel = mod, groups, fuel
        self.known: dict[Expr, Expr] = {}
        self.instead: dict[Expr, Expr] = {}
        self.store = _Store()
        self.made: set[Expr] = set()
        self.captured: dict[Expr, list[Var]] = {}
        self.named: dict[Expr, Var] = {}
        """Names of constants in this scope."""
        self.placing: list[str | None] = []
        self.count = 0

    def function(self, f: Function) -> Function:
        """Evaluate a function that may be called at any time, so the contents of outer references are unknown inside.
        """
        outer, self.store = self.store, _Store(seen=set(self.made))
        body = self.scope(f.body)
        self.store = outer
        return f.with_body(body)

    def branches(self, bodies: Iterable[Expr]) -> list[Expr]:
        """Evaluate alternative scopes, of which one is entered."""
        before, after, found = self.store, [], []
        for body in bodies:
            self.store = before.copy()
            found.append(self.scope(body))
            after.append(self.store)
        self.store = before
        before.join(after)
        return found

    def scope(self, body: Expr) -> Expr:
        """Evaluate a scope."""
        lets: list[tuple[Var, Expr]] = []
        outer, self.named = self.named, {}
        result = self.steps(body, lets)
        self.named = outer
        self.show([result])
        for v, value in reversed(lets):
            result = Let(v, value, result)
        return result

    def steps(self, body: Expr, lets: list[tuple[Var, Expr]]) -> Expr:
        """Add the remaining steps of `body` to `lets`; return the atom of its value."""
        while isinstance(body, Let):
            self.count += 1
            if self.placing and self.count > LONGEST:
                raise _OutOfFuel(None)
            value = self.step(body, lets)
            if isinstance(value, Constant) and (name := self.named.setdefault(value, body.var)) is not body.var:
                value = name
            if isinstance(value, (Var, GlobalVar)):
                self.instead[body.var] = value
            elif value is not None:
                if isinstance(value, (Constant, Tuple, Constructor)) or (isinstance(value, Call)
                        and isinstance(value.op, Constructor)):
                    self.known[body.var] = value
                lets.append((body.var, value))
            body = body.body
        return self.atom(body)

    def atom(self, e: Expr) -> Expr:
        while e in self.instead:
            e = self.instead[e]
        return e

    def step(self, e: Let, lets: list[tuple[Var, Expr]]) -> Expr:
        """Return the remainder of `e`: an atom if it is known."""
        value = e.value
        match value:
            case Function():
                if value.attrs.get("Primitive"):
                    return (fresh_copy(value, self.instead) if any(v in self.instead for v in free_vars(value))
                            else value)
                self.captured[e.var] = free_vars(value)
                if e.var not in self.captured[e.var]:
                    self.known[e.var] = value
                return self.function(value)
            case If():
                cond = self.known.get(self.atom(value.cond))
                if isinstance(cond, Constant):
                    return self.steps(value.true_branch if bool(cond.value) else value.false_branch, lets)
                return with_operands(value,
                                     [self.atom(value.cond), *self.branches((value.true_branch, value.false_branch))])
            case Match():
                return self.match(value, lets)
            case Var() | GlobalVar():
                return self.atom(value)
            case Constant() | Constructor():
                return value
        new = [self.atom(o) for o in operands(value)]
        rebuilt = with_operands(value, new)
        if isinstance(rebuilt, TupleGetItem):
            whole = self.known.get(rebuilt.tuple_value)
            return whole.fields[rebuilt.index] if isinstance(whole, Tuple) else rebuilt
        if isinstance(rebuilt, (RefCreate, RefRead, RefWrite)):
            return self.reference(e.var, rebuilt)
        if isinstance(rebuilt, Tuple):
            self.show(rebuilt.fields)
        return self.call(rebuilt, lets) if isinstance(rebuilt, Call) else rebuilt

    def reference(self, name: Var, e: RefCreate | RefRead | RefWrite) -> Expr:
        """Evaluate a step that creates, reads or writes a reference."""
        if isinstance(e, RefRead):
            return self.store.held.get(e.ref, e)
        self.show([e.value])
        if isinstance(e, RefCreate):
            self.made.add(name)
            self.store.held[name] = e.value
        elif e.ref in self.made:
            self.store.held[e.ref] = e.value
        else:
            self.store.forget()
        return e

    def show(self, values: Iterable[Expr]) -> None:
        """Mark the references reachable from values as escaped."""
        stack, met = list(values), set()
        while stack:
            v = self.atom(stack.pop())
            if v in met:
                continue
            met.add(v)
            if v in self.made:
                self.store.seen.add(v)
                stack += [self.store.held[v]] if v in self.store.held else []
            stack += self.captured.get(v, ())
            found = self.known.get(v)
            stack += operands(found) if isinstance(found, (Tuple, Call)) else ()

    def call(self, e: Call, lets: list[tuple[Var, Expr]]) -> Expr:
        if not isinstance(e.op, Expr):
            return self.folded(e)
        callee: Any = self.known.get(e.op, e.op)
        group = None
        if isinstance(callee, GlobalVar) and callee in self.mod:
            function, group = self.mod[callee], self.groups.get(callee.name_hint)
            callee = function if group is None or any(a in self.known for a in e.args) else callee
        placed = isinstance(callee, Function) and not any(callee.attrs.get(a) for a in ("Primitive", "Compiler"))
        types = _bound_types(callee, e.args) if placed else None
        found = self.placed(e, callee, group, types, lets) if types is not None else None
        if found is None:
            self.show((e.op, *e.args))
            if not isinstance(callee, Constructor):
                self.store.forget()
            return e
        return found

    def placed(self, e: Call, callee: Function, group: str | None, types: dict[Type, Type],
               lets: list[tuple[Var, Expr]]) -> Expr | None:
        """Add the steps of the called function to `lets`; None, with nothing added, if it does not terminate.

        `types` are the types of its type variables.

        If a recursion does not terminate, the call of the first function of its `group` of mutually recursive functions
        stays.
        """
        if len(self.placing) >= self.fuel:
            if not self.placing:
                return None
            raise _OutOfFuel(group)
        first, outermost = group is not None and group not in self.placing, not self.placing
        length, store, made, named = len(lets), self.store, set(self.made), self.named
        self.count = 0 if outermost else self.count
        self.store = store.copy()
        self.placing.append(group)
        body = fresh_copy(callee.body, {**{v: self.atom(v) for v in free_vars(callee)},
                                        **dict(zip(callee.params, e.args, strict=True))}, types)
        try:
            return self.steps(body, lets)
        except _OutOfFuel as out:
            if not outermost and not (first and out.group == group):
                raise
            for v, value in lets[length:]:
                if named.get(value) is v:
                    del named[value]
            del lets[length:]
            self.store, self.made, self.named = store, made, named
            return None
        finally:
            self.placing.pop()

    def folded(self, e: Call) -> Expr:
        """Return an operator on constants as its value if that is one small tensor, else the call."""
        args = [self.constant(a) for a in e.args]
        t = e.known_type()
        if (not e.op.pure or any(a is None for a in args) or not isinstance(t, TensorType) or not t.is_static
                or t.nbytes > LARGEST):
            return e
        return Constant(apply_op(e, args), e.span)

    def constant(self, e: Expr) -> Any:
        found = self.known.get(e)
        if isinstance(found, Tuple):
            fields = [self.constant(f) for f in found.fields]
            return None if any(f is None for f in fields) else tuple(fields)
        return found.value if isinstance(found, Constant) else None

    def match(self, e: Match, lets: list[tuple[Var, Expr]]) -> Expr:
        data = self.atom(e.data)
        for c in e.clauses:
            found: dict[Expr, Expr] = {}
            fits = self.fits(c.lhs, data, found)
            if fits is None:
                break
            if fits:
                self.instead.update(found)
                return self.steps(c.rhs, lets)
        self.show([data])
        return with_operands(e, [data, *self.branches(c.rhs for c in e.clauses)])

    def fits(self, p: Pattern, value: Expr, found: dict[Expr, Expr]) -> bool | None:
        """Return whether a value matches a pattern; None if that is unknown."""
        match p:
            case PatternVar():
                found[p.var] = value
                return True
            case PatternTuple() | PatternConstructor():
                known = self.known.get(value)
                if isinstance(p, PatternTuple):
                    return self.all_fit(p.patterns, known.fields, found) if isinstance(known, Tuple) else None
                if not isinstance(known, Call) or not isinstance(known.op, Constructor):
                    return None
                return known.op.tag == p.constructor.tag and self.all_fit(p.patterns, known.args, found)
            case _:
                return True

    def all_fit(self, patterns: Sequence[Pattern], values: Sequence[Expr], found: dict[Expr, Expr]) -> bool | None:
        results = [self.fits(q, self.atom(v), found) for q, v in zip(patterns, values, strict=True)]
        return False if False in results else None if None in results else True


def _bound_types(function: Function, args: Sequence[Expr]) -> dict[Type, Type] | None:
    """The types of a function's type variables in a call; None if the arguments do not determine them."""
    bound: dict[Type, Type] = {}
    variables = frozenset[Type](function.type_params)
    for p, a in zip(function.params, args, strict=True) if variables else ():
        wanted, given = p.known_type(), a.known_type()
        if wanted is None or given is None or not bind_types(wanted, given, variables, bound):
            return None
    return bound if all(v in bound for v in variables) else None


def without_unread(function: Function) -> Function:
    """Remove writes to local references that are never read and never escape."""
    order = post_order(function)
    unread: set[Expr] = {e.var for e in order if isinstance(e, Let) and isinstance(e.value, RefCreate)}
    if not unread:
        return function
    for e in order:
        unread.difference_update((e.value,) if isinstance(e, RefWrite) else operands(e))
    if not unread:
        return function
    found = rewrite(function, lambda e: Tuple((), e.span) if isinstance(e, RefWrite) and e.ref in unread else None,
                    inside=True)
    assert isinstance(found, Function)
    return found
