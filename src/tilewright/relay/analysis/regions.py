"""The regions of a graph assigned to targets, derived from the marks at their borders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from tilewright.base.errors import CompileError
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let
from tilewright.relay.op.annotation import CompilerBegin, CompilerEnd, Mark
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order

DEFAULT: Final = "default"
"""The target of all nodes that no other target computes."""


@dataclass(eq=False, slots=True)
class Region:
    """Nodes that one target computes, with the begin marks `ins` of its inputs and the end marks `outs` of its results.

    `id` is the index of its first begin mark in the function.
    """

    id: int
    target: str
    nodes: list[Expr] = field(default_factory=list)
    ins: list[Call] = field(default_factory=list)
    outs: list[Call] = field(default_factory=list)

    def take(self, other: Region) -> None:
        """Merge `other` into this region."""
        self.nodes += other.nodes
        self.ins += other.ins
        self.outs += other.outs

    @property
    def args(self) -> list[Call]:
        """The begin marks, under TVM's name."""
        return self.ins

    @property
    def rets(self) -> list[Call]:
        """The end marks, under TVM's name."""
        return self.outs


class AnnotatedRegionSet:
    """The regions of a function, as a collection: `for region in AnnotatedRegionSet(function, begin, end)`.

    `region_begin_op` and `region_end_op` are the operators of the marks. Raises `CompileError` for other operators, and
    if the marks do not match.
    """

    def __init__(self, func: Function, region_begin_op: type[Op], region_end_op: type[Op]) -> None:
        if region_begin_op is not CompilerBegin or region_end_op is not CompilerEnd:
            raise CompileError(
                f"regions lie between annotation.compiler_begin and annotation.compiler_end, not between "
                f"{region_begin_op.name} and {region_end_op.name}", code="TW0414")
        self._found = regions_of(open_nodes(func))

    def get_region(self, expr: Expr) -> Region | None:
        """Return the region that contains a node, or None."""
        return self._found.get(expr)

    def __iter__(self) -> Iterator[Region]:
        return iter(dict.fromkeys(self._found.values()))

    def __len__(self) -> int:
        return len({*self._found.values()})


def is_mark(e: Any) -> TypeGuard[Call]:
    """Return whether `e` is a mark of a region's border."""
    return isinstance(e, Call) and isinstance(e.op, Mark)


def is_begin(e: Any) -> TypeGuard[Call]:
    """Return whether `e` marks a value that enters a region."""
    return isinstance(e, Call) and isinstance(e.op, CompilerBegin)


def is_end(e: Any) -> TypeGuard[Call]:
    """Return whether `e` marks a value that leaves a region."""
    return isinstance(e, Call) and isinstance(e.op, CompilerEnd)


def open_nodes(function: Expr) -> list[Expr]:
    """Return the nodes of a function in order, without the bodies of composite, external and primitive functions."""
    order = post_order(function)
    pieces = [e for e in order if isinstance(e, Function) and e is not function
              and any(e.attrs.get(k) for k in ("Composite", "Compiler", "Primitive"))]
    if not pieces:
        return order
    inside = set(post_order(*(p.body for p in pieces)))
    return [e for e in order if e not in inside or isinstance(e, Constant)]


def regions_of(order: list[Expr]) -> dict[Expr, Region]:
    """Return the region of every node that belongs to one.

    Raises `CompileError` if the marks do not match.
    """
    found: dict[Expr, Region] = {}
    count = 0
    for e in order:
        if is_begin(e):
            found[e] = Region(count, e.op.compiler, [e], [e])
            count += 1
            continue
        region = _region_of_operands(e, found)
        if is_end(e):
            if region is None or region.target != e.op.compiler:
                there = ("no region is open" if region is None
                         else f"the open region is for '{region.target}'")
                raise CompileError(f"a compiler_end of '{e.op.compiler}' has no matching compiler_begin: {there}",
                                   e.span,
                                   code="TW0414")
            region.outs.append(e)
        if region is not None:
            region.nodes.append(e)
            found[e] = region
    return found


def _region_of_operands(e: Expr, found: dict[Expr, Region]) -> Region | None:
    """Return the region that contains the operands of `e`; different regions are merged."""
    region: Region | None = None
    for o in operands(e):
        other = None if is_end(o) and not is_end(e) else found.get(o)
        if other is None:
            continue
        if region is None:
            region = other
        elif other is not region:
            if other.target != region.target:
                raise CompileError(f"this {type(e).__name__} uses values from inside regions "
                                   f"of '{region.target}' and '{other.target}'; add "
                                   "compiler_end after each region", e.span, code="TW0414")
            region.take(other)
            found.update(dict.fromkeys(other.nodes, region))
    if region is not None:
        for o in operands(e):
            if is_end(o) or (o not in found and not is_input(o)):
                raise CompileError(f"in a region of '{region.target}' a {type(e).__name__} "
                                   "uses a value without a compiler_begin", e.span, code="TW0414")
    return region


def scopes_of(function: Function) -> dict[Expr, int]:
    """Return, for each node, the number of the scope that evaluates it: the body of a function, a branch, or the body
    of a `let`.

    A value used in several scopes belongs to the innermost scope around them. Variables, constants and functions belong
    to any scope.
    """
    parent, depth = [0], [0]
    found: dict[Expr, int] = {}

    def around(a: int, b: int) -> int:
        while a != b:
            a, b = (parent[a], b) if depth[a] >= depth[b] else (a, parent[b])
        return a

    for e in reversed(post_order(function)):  # users before operands
        scope = found.setdefault(e, 0)
        inner = () if e is function else _scoped(e)
        for o in operands(e):
            used_in = scope
            if any(o is i for i in inner):
                used_in = len(parent)
                parent.append(scope)
                depth.append(depth[scope] + 1)
            if o not in found:
                found[o] = used_in
            elif not is_input(o):
                found[o] = around(found[o], used_in)
    return found


def _scoped(e: Expr) -> tuple[Expr, ...]:
    """Return the operands of `e` that open scopes."""
    match e:
        case Function():
            return (e.body,)
        case If():
            return (e.true_branch, e.false_branch)
        case Let():
            return (e.body,)
        case Match():
            return tuple(c.rhs for c in e.clauses)
        case _:
            return ()


def is_input(e: Expr) -> bool:
    """Return whether `e` is not computed: a variable, a constant, or a function."""
    return not operands(e) or isinstance(e, (Function, GlobalVar))
