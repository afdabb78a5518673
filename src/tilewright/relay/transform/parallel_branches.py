"""Combine branches that apply equal operators to one value: the base of the passes `CombineParallel…`.

    %0 = nn.dense(%x, w1); %1 = nn.relu(%0); %2 = nn.dense(%x, w2); %3 = nn.relu(%2)
    -> %0 = nn.relu(nn.dense(%x, concatenate((w1, w2)))); strided_slice(%0, …), strided_slice(%0, …)

A branch is a product followed by elementwise calls, each the only user of the previous one. Products with equal `key`
form a group. Their elementwise calls are combined as long as every branch has the same operator. In
`CombineParallelDense`, an operand that is broadcast along the joined axis is repeated for each column of its branch,
and calls may add axes to the result, unless `compact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from tilewright.base.graphs import reachable
from tilewright.base.node import node
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.op.shaping import ExpandDims, Squeeze
from tilewright.relay.op.transform import Concatenate, Repeat, Split, Stack, StridedSlice
from tilewright.relay.transform.permutations import reshaped
from tilewright.relay.visitor import consumers, operands, post_order, with_operands


@dataclass(frozen=True)
class _CombineParallel(FunctionPass):
    """Base: subclasses define which products can be combined, how, and the axis of their combined results.

    `compact` writes slices of one axis instead of TVM's slices of all axes, and reshapes instead of splits.
    """

    min_num_branches: int = 3
    compact: bool = field(default=False, kw_only=True)
    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 4
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def key(self, call: Call) -> Any:
        """Return a key: calls with equal keys and the same first argument can be combined. None for other calls."""
        raise NotImplementedError

    def merged(self, calls: Sequence[Call], x: Expr, others: Sequence[Sequence[Expr]]) -> Call:
        """Return one call for all; `x` is their common first argument, `others` are their second arguments."""
        raise NotImplementedError

    def axis(self, call: Call) -> int | None:
        """Return the axis of the result that joins the branches; None for a new leading axis."""
        raise NotImplementedError

    negative_axes: ClassVar[bool] = False
    """Whether TVM joins the arguments of elementwise calls along axes that count from the end."""
    repeats: ClassVar[bool] = False
    """Whether arguments of elementwise calls that are broadcast along the joined axis are repeated and joined."""

    def sliced_axes(self, axis: int, ndim: int) -> int:
        """Return the number of axes of a slice of the combined result along `axis`, in TVM's spelling."""
        return ndim

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if "Compiler" in function.attrs or function.attrs.get("Primitive"):
            return function
        groups = _groups(self, function)
        if not groups:
            return function
        body = _Rebuild(groups).of(function.body)
        return with_operands(function, [body])


@node
class _Group:
    """A group of branches. `branches[k]` lists the calls of a branch, starting with the product; all have the same
    length. `axes` are the joined axes of the results of these calls, the first that of `_CombineParallel.axis`."""

    how: Any
    branches: list[list[Call]]
    axes: list[int | None]

    @property
    def axis(self) -> int | None:
        """The joined axis of the last results."""
        return self.axes[-1]

    def needed(self) -> list[Expr]:
        """Return the operands of the combined calls."""
        found = [self.branches[0][0].args[0]]
        for branch in self.branches:
            found += branch[0].args[1:]
            for before, call in pairwise(branch):
                found += [a for a in call.args if a is not before]
        return found


def _groups(how: _CombineParallel, function: Function) -> list[_Group]:
    order = post_order(function.body, inside=False)
    found: dict[Any, list[Call]] = {}
    for e in order:
        if isinstance(e, Call) and isinstance(e.op, Op) and isinstance(t := e.known_type(), TensorType) and t.is_static:
            key = how.key(e)
            if key is not None:
                found.setdefault((e.args[0], *key), []).append(e)
    wanted = [calls for calls in found.values() if len(calls) >= how.min_num_branches]
    if not wanted:
        return []
    users, place = consumers(order), {e: k for k, e in enumerate(order)}
    scoped = any(isinstance(e, (Let, If, Match, Function)) for e in order)
    params = frozenset(function.params)
    groups = []
    for calls in wanted:
        first = place[calls[0]]
        heads = frozenset(calls)

        def free(e: Expr, first: int = first, heads: frozenset[Call] = heads) -> bool:
            return isinstance(e, Constant) or e in params or (not scoped and not _reads(e, heads, place, first))

        kept = [c for c in calls if all(free(a) for a in c.args[1:])]
        if len(kept) >= how.min_num_branches:
            axis = how.axis(kept[0])
            grows = how.repeats and not how.compact and axis is not None
            branches = _same_length([_branch(c, users, free, grows) for c in kept], axis, how.repeats)
            groups.append(_Group(how, branches, _axes(branches[0], axis)))
    return groups


def _reads(e: Expr, heads: frozenset[Call], place: dict[Expr, int], first: int) -> bool:
    """Return whether `e` depends on one of `heads`, the first of which has the position `first`."""
    return any(o in heads for o in reachable([e], lambda o: operands(o) if place.get(o, -1) > first else ()))


def _branch(head: Call, users: dict[Expr, list[Expr]], free: Any, grows: bool) -> list[Call]:
    """Return a product and the elementwise calls after it; with `grows` also those that add axes."""
    branch = [head]
    while len(users[branch[-1]]) == 1:
        (user,) = users[branch[-1]]
        if not (isinstance(user, Call) and isinstance(user.op, Op) and not user.op.variadic
                and (user.op.kind <= Fusion.BROADCAST or (grows and isinstance(user.op, ExpandDims)))):
            break
        others = [a for a in user.args if a is not branch[-1]]
        kind, before = user.known_type(), branch[-1].tensor_type
        if not (isinstance(kind, TensorType)
                and (kind.shape == before.shape or (grows and _adds_axes(user, kind, before)))
                and len(others) == len(user.args) - 1 and all(map(free, others))):
            break
        branch.append(user)
    return branch


def _adds_axes(call: Call, after: TensorType, before: TensorType) -> bool:
    """Return whether a call adds axes to its first argument, and keeps the sizes of the others."""
    more = after.ndim - before.ndim
    return more > 0 and (isinstance(call.op, ExpandDims) or after.shape[more:] == before.shape)


def _axes(branch: Sequence[Call], axis: int | None) -> list[int | None]:
    """Return the joined axis of the result of each call of a branch; that of the first is `axis`."""
    found = [axis]
    for before, call in pairwise(branch):
        if axis is not None:
            rank = before.tensor_type.ndim
            is_before = isinstance(call.op, ExpandDims) and axis < call.op.axis % (rank + 1)
            axis += 0 if is_before else call.tensor_type.ndim - rank
        found.append(axis)
    return found


def _same_length(branches: list[list[Call]], axis: int | None, repeats: bool) -> list[list[Call]]:
    """Truncate the branches at the first call in which they differ."""
    length = 1
    axes = _axes(branches[0], axis)
    while all(len(b) > length for b in branches) and _alike([b[length] for b in branches],
            [b[length - 1] for b in branches], axes[length], repeats):
        length += 1
    return [b[:length] for b in branches]


def _alike(calls: Sequence[Call], before: Sequence[Call], axis: int | None, repeats: bool) -> bool:
    first = calls[0]
    if any(c.op != first.op or type(c.op) is not type(first.op) or _positions(c, b) != _positions(first, before[0])
            for c, b in zip(calls, before, strict=True)):
        return False
    if isinstance(first.op, BiasAdd):
        return axis is not None and first.op.axis % first.tensor_type.ndim == axis
    if any(c.tensor_type.dtype is not first.tensor_type.dtype or c.tensor_type.ndim != first.tensor_type.ndim
           for c in calls):
        return False
    return all(_joined_kind([c.args[k] for c in calls], calls, axis, repeats) for k, a in enumerate(first.args)
               if a is not before[0])


def _positions(call: Call, before: Call) -> list[bool]:
    return [a is before for a in call.args]


def _joined_kind(args: Sequence[Expr], calls: Sequence[Call], axis: int | None, repeats: bool) -> str:
    """Return how these arguments combine: "same" if all are equal, "joined" if concatenated, "" if neither is possible.

    `repeats` also joins arguments of size one along `axis`.
    """
    types = [a.known_type() for a in args]
    if any(not isinstance(t, TensorType) or not t.is_static for t in types):
        return ""
    if all(a is args[0] or _equal(a, args[0])
            for a in args) and (types[0].size == 1 or axis is None):  # type: ignore[union-attr]
        return "same"
    if axis is None:
        return "joined" if all(t == types[0] for t in types) else ""
    shapes = [t.shape or (1,) * repeats for t in types]  # type: ignore[union-attr]
    for shape, c in zip(shapes, calls, strict=True):
        at = axis - (c.tensor_type.ndim - len(shape))
        if at < 0 or len(shape) != len(shapes[0]):
            return ""
        if shape[at] != c.tensor_type.shape[axis] and not (repeats and shape[at] == 1):
            return ""
        if any(a != b for d, (a, b) in enumerate(zip(shape, shapes[0], strict=True)) if d != at):
            return ""
    return "joined"


def _equal(a: Expr, b: Expr) -> bool:
    return (isinstance(a, Constant) and isinstance(b, Constant) and a.value.size == 1 == b.value.size
            and a.tensor_type == b.tensor_type and a.value.item() == b.value.item())


class _Rebuild:
    """Rebuilds the graph with the end of each branch replaced by its part of the group's value."""

    def __init__(self, groups: Sequence[_Group]) -> None:
        self.ends: dict[Expr, tuple[_Group, int]] = {b[-1]: (g, k) for g in groups for k, b in enumerate(g.branches)}
        self.new: dict[Expr, Expr] = {}
        self.values: dict[_Group, Expr] = {}
        self.splits: dict[_Group, Expr] = {}

    def of(self, root: Expr) -> Expr:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in self.new:
                stack.pop()
                continue
            end = self.ends.get(e)
            below: Sequence[Expr] = operands(e) if end is None else end[0].needed()
            missing = [o for o in below if o not in self.new]
            if missing:
                stack.extend(reversed(missing))
                continue
            self.new[e] = self._part(*end) if end is not None else self._kept(e, below)
            stack.pop()
        return self.new[root]

    def _kept(self, e: Expr, old: Sequence[Expr]) -> Expr:
        now = [self.new[o] for o in old]
        return e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)

    def _part(self, group: _Group, k: int) -> Expr:
        """Return the part of branch `k` of the value of its group."""
        whole = self.values.get(group)
        if whole is None:
            whole = self.values[group] = self._combined(group)
        last = group.branches[k][-1]
        axis = group.axis or 0
        sizes = [1 if group.axis is None else b[-1].tensor_type.shape[axis] for b in group.branches]
        begin = sum(sizes[:k])
        if not group.how.compact:
            return self._part_of_all_axes(whole, group, k, begin, sizes)
        how = StridedSlice(begin=(begin,), end=(begin + sizes[k],), strides=(1,), axes=(axis,))
        part = Call(how, [whole], span=last.span)
        return part if group.axis is not None else reshaped(part, last.tensor_type.shape)

    def _part_of_all_axes(self, whole: Expr, group: _Group, k: int, begin: int, sizes: Sequence[int]) -> Expr:
        """Return a part as TVM spells it: a field of a split, or a slice whose begin and size has all axes."""
        span = group.branches[k][-1].span
        if group.axis is None:
            split = self.splits.get(group)
            if split is None:
                split = self.splits[group] = Call(Split(len(sizes), 0), [whole])
            return Call(Squeeze((0,)), [TupleGetItem(split, k)], span=span)
        ndim = whole.tensor_type.ndim
        ends = tuple(sizes[k] if d == group.axis else -1 for d in range(ndim))
        begins = tuple(begin if d == group.axis else 0 for d in range(ndim))
        kept = group.how.sliced_axes(group.axis, ndim)
        how = StridedSlice(begin=begins[:kept], end=ends[:kept], strides=(1,) * kept, slice_mode="size")
        return Call(how, [whole], span=span)

    def _combined(self, group: _Group) -> Expr:
        heads = [b[0] for b in group.branches]
        value: Expr = group.how.merged(heads, self.new[heads[0].args[0]],
                                       [[self.new[a] for a in c.args[1:]] for c in heads])
        for level in range(1, len(group.branches[0])):
            calls, before = [b[level] for b in group.branches], group.branches[0][level - 1]
            axis = group.axes[level]
            args = [value if a is before else self._argument([c.args[k] for c in calls], calls, group, axis)
                    for k, a in enumerate(calls[0].args)]
            value = Call(calls[0].op, args, span=calls[0].span)
        return value

    def _argument(self, args: Sequence[Expr], calls: Sequence[Call], group: _Group, axis: int | None) -> Expr:
        now = [self.new[a] for a in args]
        if isinstance(calls[0].op, BiasAdd):
            return joined(now, 0)
        if _joined_kind(args, calls, axis, group.how.repeats) == "same":
            return now[0]
        rank = calls[0].tensor_type.ndim
        if axis is None and not group.how.compact:
            return joined([a if (more := rank - a.tensor_type.ndim) == 0 else Call(ExpandDims(0, more), [a])
                           for a in now], None)
        if axis is None:
            return joined([reshaped(a, (1,) * (rank - a.tensor_type.ndim) + a.tensor_type.shape) for a in now], None)
        if group.how.repeats:
            now = [_repeated(a, axis - rank, c.tensor_type.shape[axis]) for a, c in zip(now, calls, strict=True)]
        at = axis - (rank - now[0].tensor_type.ndim)
        return joined(now, at if group.how.compact or not group.how.negative_axes else axis - rank)


def _repeated(a: Expr, axis: int, size: int) -> Expr:
    """Return a tensor with `size` elements along `axis`, which counts from the end, instead of one."""
    if not a.tensor_type.ndim:
        a = Call(ExpandDims(-1), [a])
    at = a.tensor_type.ndim + axis
    return a if a.tensor_type.shape[at] == size else Call(Repeat(size, at), [a])


def joined(parts: Sequence[Expr], axis: int | None) -> Expr:
    """Return the concatenation of tensors along `axis`, or their stack along a new leading axis."""
    return Call(Stack(axis=0) if axis is None else Concatenate(axis=axis), [Tuple(tuple(parts))])


def same_but(op: Op, *names: str) -> tuple[Any, ...]:
    """Return the attributes of an operator except `names`."""
    return tuple((k, v) for k, v in op.attributes().items() if k not in names)
