"""Partition the graph into kernels.

    %0 = nn.conv2d(%x, w); %1 = add(%0, b); nn.relu(%1)
    -> fn (%p0, %p1, %p2, Primitive=1) { nn.relu(add(nn.conv2d(%p0, %p1), %p2)) }(%x, w, b)

A group grows from a value to its immediate post-dominator, the first call on every path from the value, and includes
all calls between. So groups are convex, and only the last value leaves a group. Each group becomes a function of
tensors, with constants as arguments. Redundant conversions to bytes and back inside a group are dropped
(`relay/analysis/integer_ranges.py`). Calls of functions are not fused. Operations that the memory plan performs without
a kernel (views, slices, concatenations of kernel results) form separate groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.types import TensorType, TupleType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.integer_ranges import unconverted
from tilewright.relay.analysis.subarrays import is_place
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.annotation import StopFusion
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.transform.dominator_groups import GraphNode, grouped
from tilewright.relay.visitor import calls, operands, post_order, with_operands

MOST_NODES: Final = 256
"""Largest number of nodes of a function in TVM's form, unless the context has another limit."""


@dataclass(frozen=True)
class FuseOps(FunctionPass):
    """Group calls into primitive functions, one for each kernel. Needs and leaves known, static types.

    At level 0 (of the context, or of `fuse_opt_level` unless negative), or if the pass is disabled, each call becomes a
    separate function. `relay.FuseOps.max_depth` limits the calls of a function. Groups are TVM's: views, tuples and
    their fields join them, and scalar constants are inside; all constants with the switch `relay.FuseOps.link_params`.

    `link_params` selects the compiler's form, whose constants are inside or are arguments: views and parts of tuples
    are apart, and no operator reads a tuple of results.
    """

    fuse_opt_level: int = -1
    link_params: bool | None = None
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if function.attrs.get("Primitive") or "Compiler" in function.attrs:
            return function
        level = context.opt_level if self.fuse_opt_level < 0 else self.fuse_opt_level
        fuses = level >= 1 and context.pass_enabled(self.info)
        if self.link_params is None:
            most = context.config.get("relay.FuseOps.max_depth", MOST_NODES) if fuses else 1
            body = _Fields(function.body, most, context.get("relay.FuseOps.link_params")).outline()
        else:
            most = context.get("relay.FuseOps.max_depth") if fuses else 1
            body = _Outliner(_Graph(function.body, most).groups(), self.link_params).outline(function.body)
        return function if body is function.body else with_operands(function, [body])


@dataclass(eq=False, slots=True)
class _Group:
    """Calls that become one kernel. `last` computes its result; `kind` is the kind of the least fusible call."""

    members: list[Call]
    last: Call
    kind: Fusion


class _Graph:
    """A function body for the fuser: the users and the post-dominator of each value."""

    def __init__(self, body: Expr, most: int) -> None:
        self.most = most
        self.order = [e for e in post_order(body, inside=False) if not isinstance(e, (Var, Constant))]
        self.users: dict[Expr, list[Expr]] = {e: [] for e in self.order}
        for e in self.order:
            for o in operands(e):
                if o in self.users:
                    self.users[o].append(e)
        self._look_through_tuples()
        self.post_dominator: dict[Expr, Expr | None] = {}
        self.depth: dict[Expr, int] = {}
        for e in reversed(self.order):
            self._place(e)
        self.group: dict[Expr, _Group] = {}

    def _look_through_tuples(self) -> None:
        """Attribute the fields of a tuple that only one call reads to that call."""
        for e in self.order:
            if isinstance(e, Tuple) and len(self.users[e]) == 1 and isinstance(self.users[e][0], Call):
                for o in e.fields:
                    if o in self.users:
                        self.users[o] = [self.users[e][0] if u is e else u for u in self.users[o]]

    def _place(self, e: Expr) -> None:
        """Find the immediate post-dominator of `e` from those of its users: the lowest common element of their chains.
        """
        meet: Expr | None = None
        for k, u in enumerate(self.users[e]):
            meet = u if k == 0 else self._meet(meet, u)
        self.post_dominator[e] = meet
        self.depth[e] = 0 if meet is None else self.depth[meet] + 1

    def _meet(self, a: Expr | None, b: Expr | None) -> Expr | None:
        while a is not b:
            if a is None or b is None:
                return None
            x, y = self.depth[a], self.depth[b]
            if x >= y:
                a = self.post_dominator[a]
            if y >= x:
                b = self.post_dominator[b]
        return a

    def groups(self) -> list[list[Call]]:
        """Partition the calls of operators into groups."""
        calls = [e for e in self.order if isinstance(e, Call) and isinstance(e.op, Op)]
        alone = {e for e in calls if _has_objects(e)}
        mine = [e for e in calls if e not in alone] if alone else calls
        for e in mine:
            self.group[e] = _Group([e], e, kind_of(e))
        for e in mine:
            if kind_of(e) in (Fusion.OUT_FUSABLE, Fusion.REDUCE):
                self._grow_anchor(e)
        for e in mine:
            if kind_of(e) <= Fusion.INJECTIVE and self.group[e].last is e:
                self._grow_injective(e)
        position = {e: k for k, e in enumerate(self.order)}
        unique = {id(g): g for g in self.group.values()}
        return ([sorted(g.members, key=position.__getitem__) for g in unique.values()]
                + [[e] for e in calls if e in alone])

    def _grow_anchor(self, anchor: Call) -> None:
        """Fuse the elementwise calls after a convolution, product or reduction while the shape stays the same."""
        shape, mine = shape_of(anchor), self.group[anchor]
        ends = [(_itemsize(anchor), 1, anchor)]
        while shape is not None:
            found = self._path(mine.last)
            if found is None or len(mine.members) + len(found) > self.most:
                break
            if any(kind_of(c) > Fusion.BROADCAST or shape_of(c) != shape or len(self.group[c].members) > 1
                    for c in found):
                break
            self._join(mine, found)
            ends.append((_itemsize(mine.last), len(mine.members), mine.last))
        narrowest = min(ends, key=lambda end: (end[0], -end[1]))
        if narrowest[0] < ends[-1][0]:
            self._cut(mine, *narrowest[1:])

    def _cut(self, mine: _Group, count: int, last: Call) -> None:
        """Store a result before it widens: move the calls after the first `count` back to separate groups."""
        for c in mine.members[count:]:
            self.group[c] = _Group([c], c, kind_of(c))
        del mine.members[count:]
        mine.last = last

    def _grow_injective(self, first: Call) -> None:
        """Fuse a chain of elementwise and injective calls with its reader, if no element is computed twice."""
        if is_view(first) or is_place(first):
            return
        mine = self.group[first]
        while (found := self._path(mine.last)) is not None:
            if not self._accepts(mine, found):
                return
            joined = {id(g): len(g.members) for g in (mine, *(self.group[c] for c in found))}
            if sum(joined.values()) > self.most:
                return
            self._join(mine, found)

    def _accepts(self, mine: _Group, found: Sequence[Call]) -> bool:
        """Return whether the last of `found` may compute `mine` and the values between them in its kernel."""
        *middle, end = found
        if (isinstance(end.op, Op) and end.op.variadic) or any(is_view(c) or is_place(c) for c in found):
            return False
        others = [g for g in (mine, *(self.group[c] for c in middle)) if g is not self.group[end]]
        hardest = max((g.kind for g in others), default=Fusion.ELEMWISE)
        shape, other = shape_of(mine.last), shape_of(end)
        if hardest > Fusion.INJECTIVE or shape is None or other is None:
            return False
        once = not middle and hardest <= Fusion.BROADCAST and all(end.op.reads_once(k) for k, a in enumerate(end.args)
            if a is mine.last)
        if kind_of(end) == Fusion.REDUCE:
            return hardest <= Fusion.BROADCAST
        if kind_of(end) == Fusion.OUT_FUSABLE:
            return once
        if kind_of(end) > Fusion.INJECTIVE or (_size(shape) < _size(other) and not once):
            return False
        in_place = hardest <= Fusion.BROADCAST or (not middle and len(mine.members) == 1 and _is_row(mine.last))
        return self.group[end].kind <= Fusion.INJECTIVE or (in_place and shape == other)

    def _path(self, at: Call) -> list[Call] | None:
        """Return the calls from a value to its post-dominator, inclusive; None if one of them is not an operator."""
        end = self.post_dominator[at]
        if not isinstance(end, Call) or end not in self.group:
            return None
        between: dict[Call, None] = {}
        stack: list[Expr] = [at]
        while stack:
            for u in self.users[stack.pop()]:
                if u is end or u in between:
                    continue
                if not isinstance(u, Call) or u not in self.group or len(between) >= self.most:
                    return None
                between[u] = None
                stack.append(u)
        return [*between, end]

    def _join(self, mine: _Group, others: Sequence[Call]) -> None:
        """Merge the groups of `others` into `mine`; the last call of the last one becomes the result."""
        mine.last = self.group[others[-1]].last
        for c in others:
            more = self.group[c]
            if more is not mine:
                mine.members += more.members
                mine.kind = max(mine.kind, more.kind)
                self.group.update(dict.fromkeys(more.members, mine))


class _Outliner:
    """Rebuilds a body with every group as a call of a function. `link_params` keeps constants inside the functions."""

    def __init__(self, groups: Sequence[Sequence[Call]], link_params: bool) -> None:
        self.link_params = link_params
        self.by_last = {g[-1]: g for g in groups}
        self.inner = {c for g in groups for c in g[:-1]}
        self.new: dict[Expr, Expr] = {}
        self.items: dict[tuple[Expr, int], Expr] = {}

    def outline(self, body: Expr) -> Expr:
        for e in post_order(body, inside=False):
            if e in self.inner:
                continue
            if isinstance(e, Call) and e in self.by_last:
                self.new[e] = self._call(self.by_last[e])
                continue
            old = operands(e)
            now = [self.new.get(o, o) for o in old]
            same = all(a is b for a, b in zip(old, now, strict=True))
            self.new[e] = e if same else with_operands(e, now)
        return self.new[body]

    def _call(self, group: Sequence[Call]) -> Call:
        """Return a call of a function that computes `group`."""
        inside: dict[Expr, Expr] = {}
        params: dict[Expr, Var] = {}
        for c in group:
            same = unconverted(c)
            if same is not None and same in inside:
                inside[c] = inside[same]
                continue
            inside[c] = Call(c.op, [self._stand_in(a, inside, params) for a in c.args], span=c.span)
        anchor = max(group, key=kind_of)
        attrs = {"Primitive": 1, "reshape_only": 1} if all(is_view(c) for c in group) else {"Primitive": 1}
        function = Function(tuple(params.values()), inside[group[-1]], attrs=attrs, span=anchor.span)
        return Call(function, [self.new.get(a, a) for a in params], span=anchor.span)

    def _stand_in(self, e: Expr, inside: Mapping[Expr, Expr], params: dict[Expr, Var]) -> Expr:
        """Return the representative of `e` in a group: a value of the group, a parameter, or a tuple of these."""
        if e in inside or (self.link_params and isinstance(e, Constant)):
            return inside.get(e, e)
        kind = e.checked_type
        if isinstance(kind, TupleType):
            fields = e.fields if isinstance(e, Tuple) else [self._item(e, k) for k in range(len(kind.fields))]
            return Tuple(tuple(self._stand_in(f, inside, params) for f in fields), e.span)
        if e not in params:
            params[e] = Var(f"p{len(params)}", kind)
        return params[e]

    def _item(self, e: Expr, index: int) -> Expr:
        """Return a field of a tuple value that is not a literal tuple; the same node for the same field."""
        return self.items.setdefault((e, index), TupleGetItem(self.new.get(e, e), index))


class _Fields:
    """Rebuilds a body with TVM's groups, in which tuples and fields are nodes."""

    def __init__(self, body: Expr, most: int, link_params: bool) -> None:
        self.body, self.link_params = body, link_params
        self.order = post_order(body, without=[c.op for c in calls(body) if isinstance(c.op, Function)])
        self.nodes = grouped(self.order, body, most, link_params, _has_objects)
        self.params: dict[GraphNode, dict[Expr, Var]] = {}
        self.calls: dict[GraphNode, list[Call]] = {}

    def outline(self) -> Expr:
        """Return the body with a call of a function for each group."""
        new: dict[Expr, Expr] = {}
        for e in self.order:
            root = self.nodes[e].root
            last = root.expr is e
            if isinstance(e, Call) and isinstance(e.op, Op):
                if isinstance(e.op, StopFusion):
                    new[e] = new[e.args[0]]
                    continue
                inner = Call(e.op, [self._argument(a, root, new) for a in e.args], span=e.span)
                self.calls.setdefault(root, []).append(inner)
                new[e] = self._function(root, inner) if last else inner
            elif isinstance(e, TupleGetItem) and not (last and self.nodes[e.tuple_value].root is not root):
                item = TupleGetItem(self._argument(e.tuple_value, root, new), e.index, e.span)
                new[e] = self._function(root, item) if last else item
            elif isinstance(e, Tuple) and not last:
                new[e] = Tuple(tuple(self._argument(f, root, new) for f in e.fields), e.span)
            else:
                old = operands(e)
                now = [new.get(o, o) for o in old]
                new[e] = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
        return new[self.body]

    def _argument(self, e: Expr, root: GraphNode, new: Mapping[Expr, Expr]) -> Expr:
        """Return an operand inside a group: itself, or a parameter for a value of another group."""
        value = new[e]
        if self.nodes[e].root is root or (self.link_params and isinstance(value, Constant)):
            return value
        params = self.params.setdefault(root, {})
        if value not in params:
            params[value] = Var(f"p{len(params)}", e.checked_type)
        return params[value]

    def _function(self, root: GraphNode, body: Expr) -> Call:
        """Return a call of a function that computes the group of `root`."""
        params, inner = self.params.get(root, {}), self.calls.get(root, [])
        attrs = {"Primitive": 1, "reshape_only": 1} if inner and all(map(is_view, inner)) else {"Primitive": 1}
        span = root.expr.span
        return Call(Function(tuple(params.values()), body, attrs=attrs, span=span), list(params), span=span)


def kind_of(call: Call) -> Fusion:
    """Return the fusion kind of a call's operator."""
    return call.op.kind if isinstance(call.op, Op) else Fusion.OPAQUE


def is_view(call: Call) -> bool:
    """Return whether the result is the first argument with another shape, without moving elements."""
    return isinstance(call.op, Op) and call.op.view


def shape_of(e: Expr) -> tuple[Any, ...] | None:
    """Return the shape of a tensor value; None for a tuple."""
    found = e.known_type()
    return found.shape if isinstance(found, TensorType) else None


def _is_row(call: Call) -> bool:
    """Return whether the result is a contiguous piece of the first argument."""
    return isinstance(call.op, Op) and call.op.is_row(*(a.known_type() for a in call.args))


def _has_objects(call: Call) -> bool:
    """Return whether a call has Python objects among its arguments or results."""
    types = [e.known_type() for e in (call, *call.args)]
    fields = [f for t in types for f in (t.fields if isinstance(t, TupleType) else (t,))]
    return any(isinstance(f, TensorType) and f.dtype.is_object for f in fields)


def _itemsize(call: Call) -> int:
    """Return the number of bytes of an element of the result."""
    found = call.known_type()
    return found.dtype.itemsize if isinstance(found, TensorType) else 0


def _size(shape: Sequence[Any]) -> float:
    """Return the number of elements; infinite for a symbolic shape."""
    size = 1
    for d in shape:
        if not isinstance(d, int):
            return float("inf")
        size *= d
    return size
