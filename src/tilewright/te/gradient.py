"""Reverse-mode derivatives of tensor expressions: `te.gradient`.

    A = te.placeholder((8,)); K = te.placeholder((3,)); r = te.reduce_axis((0, 3))
    C = te.compute((6,), lambda i: te.sum(A[i + r] * K[r], r))
    [dA, dK] = te.gradient(C, [A, K], head)
        ->  dA[x] = sum over r of if_then_else(0 <= x - r < 6, head[x - r] * K[r], 0);   dK[x] = sum over i of head[i]
            * A[i + x]

The result elements to which an element read at `f(i, r)` contributes are found by solving `f(i, r) == x`
(`arith/system.py`). So a sum runs only over the free parameters of the solution, and scatters never become dense sums
over one-hot tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, assume, simplify
from tilewright.scalar.arith.system import solve_system
from tilewright.scalar.expr import (
    Add,
    Max,
    Min,
    PrimExpr,
    Var,
    add,
    all_of,
    cast,
    const,
    if_then_else,
    logical_and,
    logical_or,
    max_value,
    min_value,
    mul,
)
from tilewright.scalar.walk import substitute, walk
from tilewright.te.derivative import derivative
from tilewright.te.tensor import (
    SUM,
    Combiner,
    ComputeOp,
    Operation,
    Reduce,
    Tensor,
    TensorElem,
    comm_reducer,
    compute,
    producers_first,
)
from tilewright.tir.stmt import IterVar


def gradient(output: Tensor, inputs: Sequence[Tensor] | Tensor, head: Tensor | None = None) -> list[Tensor]:
    """Return the derivatives of `output` with respect to each of `inputs`, multiplied from the left by `head`.

    `head` has the shape `[*prefix, *output.shape]`, and each result `[*prefix, *input.shape]` and the input's type.
    Without `head`, a result is the Jacobian `[*output.shape, *input.shape]`. At kinks, derivatives are one-sided: the
    first of equal maxima, the first argument of equal `max`. Raises `CompileError` for integers, for intermediate
    computations other than `te.compute`, and for functions without derivative.
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for t in (output, *wanted, *([] if head is None else [head])):
        if not t.dtype.is_float:
            raise CompileError(
                f"te.gradient: '{t.name}' has type {t.dtype}, but only floating-point values have "
                "derivatives; cast it to float32", code="TW0605")
    prefix = _prefix(output, head)
    order = producers_first([output.op])
    depending = _depending(order, wanted)
    parts: dict[Tensor, list[_Part]] = {output: [_seed(output, head, prefix)]}
    adjoints: dict[Tensor, Tensor | None] = {output: head}
    for op in reversed(order):
        sources = [t for t in op.inputs if t in depending and t.dtype.is_float]
        for t in op.outputs if sources else ():
            if t not in parts:
                continue
            if not isinstance(op, ComputeOp):
                kind = type(op).__name__
                raise CompileError(
                    f"te.gradient: '{op.name}' is a {kind}, which has no derivative, and "
                    f"'{output.name}' depends on it; use te.compute instead", code="TW0605")
            if t not in adjoints:
                adjoints[t] = _total(t, prefix, parts[t])
            for source, part in _contributions(op, t, adjoints[t], sources, prefix):
                parts.setdefault(source, []).append(part)
    return [adjoints.get(t) or _total(t, prefix, parts.get(t, [])) for t in wanted]


@dataclass(frozen=True, slots=True)
class _Part:
    """A summand of a derivative: the sum of `value` over `axes`, at `at`, a point of the prefix and of the tensor."""

    at: list[Var]
    axes: tuple[IterVar, ...]
    value: PrimExpr


def _prefix(output: Tensor, head: Tensor | None) -> tuple[PrimExpr, ...]:
    if head is None:
        return output.shape
    split = head.ndim - output.ndim
    if split < 0 or any(a is not b for a, b in zip(head.shape[split:], output.shape, strict=True)):
        shape = ", ".join(map(str, output.shape))
        raise CompileError(
            f"te.gradient: the head '{head!r}' must end with the dimensions of '{output.name}', [{shape}]",
            code="TW0605")
    return head.shape[:split]


def _depending(order: Sequence[Operation], wanted: Sequence[Tensor]) -> set[Tensor]:
    """Return the tensors that depend on one of `wanted`, including these."""
    found = set(wanted)
    for op in order:
        if any(t in found for t in op.inputs):
            found.update(op.outputs)
    return found


def _point(prefix: Sequence[PrimExpr], t: Tensor) -> list[Var]:
    return [*(Var(f"p{k}") for k in range(len(prefix))), *(Var(f"x{k}") for k in range(t.ndim))]


def _seed(output: Tensor, head: Tensor | None, prefix: Sequence[PrimExpr]) -> _Part:
    """Return the derivative of the output with respect to itself, times `head`."""
    at = _point(prefix, output)
    same = all_of(*(p.equal(x) for p, x in zip(at, at[len(prefix) :], strict=False)))
    return _Part(
        at, (), if_then_else(same, const(1, output.dtype), const(0, output.dtype)) if head is None else head(*at))


def _contributions(
    op: ComputeOp, t: Tensor, adjoint: Tensor | None, sources: Sequence[Tensor], prefix: Sequence[PrimExpr]
) -> list[tuple[Tensor, _Part]]:
    """Return the contributions to the derivatives by `sources` through the result `t` of `op`, whose derivative is
    `adjoint` (None: the identity)."""
    slope = _slopes(op, t.index)
    body = op.body[t.index]
    elements = [e for e in walk(body) if isinstance(e, TensorElem) and e.tensor in sources]
    found = []
    for e in elements:
        value = slope(e)
        if value is None:
            continue
        at = _point(prefix, e.tensor)
        of_prefix, of_tensor = at[: len(prefix)], at[len(prefix) :]
        equations: list[tuple[PrimExpr, PrimExpr]] = list(zip(e.indices, of_tensor, strict=True))
        if adjoint is None:
            equations += zip([a.var for a in op.axis], of_prefix, strict=True)
        else:
            value = mul(adjoint(*of_prefix, *op.axis), value)
        found.append((e.tensor, _solved(op, cast(e.tensor.dtype, value), equations, at, [*prefix, *e.tensor.shape])))
    return found


def _solved(
    op: ComputeOp, value: PrimExpr, equations: Sequence[tuple[PrimExpr, PrimExpr]], at: list[Var],
    shape: Sequence[PrimExpr]
) -> _Part:
    """Return the sum of `value` over all points of `op` that satisfy `equations`."""
    ranges = Ranges()
    for v, n in zip(at, shape, strict=True):
        ranges = ranges.bind_loop(v, const(0, INT64), n)
    solution = solve_system(equations, {a.var: a.extent for a in (*op.axis, *op.reduce_axis)}, ranges)
    axes = tuple(IterVar(Var(v.name), extent, "reduce") for v, _, extent in solution.left)
    mapping: dict[PrimExpr, PrimExpr] = {
        v: add(a.var, first) for (v, first, _), a in zip(solution.left, axes, strict=True)}
    for a in axes:
        ranges = ranges.bind_loop(a.var, const(0, INT64), a.extent)
    condition = simplify(substitute(solution.condition, mapping), ranges)
    solved: dict[PrimExpr, PrimExpr] = {v: substitute(e, mapping) for v, e in solution.values.items()} | mapping
    value = simplify(substitute(value, solved), assume(condition, ranges))
    return _Part(at, axes, if_then_else(condition, value, const(0, value.dtype)))


def _total(t: Tensor, prefix: Sequence[PrimExpr], parts: Sequence[_Part]) -> Tensor:
    """Return the sum of all parts as a tensor `[*prefix, *t.shape]`."""
    shape, name = [*prefix, *t.shape], f"{t.name}.grad"
    names = [v.name for v in _point(prefix, t)]

    def made(value: Callable[..., PrimExpr], name: str) -> Tensor:
        result: Tensor = compute(shape, value, name=name, axis_names=names)
        return result

    def at(part: _Part, point: Sequence[PrimExpr]) -> PrimExpr:
        return substitute(part.value, dict(zip(part.at, point, strict=True)))

    summed = [p for p in parts if p.axes]
    if len(parts) == len(summed) == 1:
        return made(lambda *x: Reduce(SUM, (at(parts[0], x),), parts[0].axes), name)
    sums = [made(lambda *x, p=p: Reduce(SUM, (at(p, x),), p.axes), f"{name}.{k}") for k, p in enumerate(summed)]

    def all_parts(*x: PrimExpr) -> PrimExpr:
        terms = [*(at(p, x) for p in parts if not p.axes), *(s(*x) for s in sums)]
        total = terms[0] if terms else const(0, t.dtype)
        for term in terms[1:]:
            total = add(total, term)
        return total

    return made(all_parts, name)


# The derivative of a result with respect to a reduced element.
Slope = Callable[[PrimExpr], PrimExpr | None]


def _slopes(op: ComputeOp, index: int) -> Slope:
    """Return a function that maps an element read by result `index` to the derivative with respect to it, at a point of
    the axes and reduction axes of `op`."""
    body = op.body[index]
    if not isinstance(body, Reduce):
        return lambda e: derivative(body, e)
    if body.init:
        raise CompileError(
            f"te.gradient: the reduction '{op.name}' begins with values of its own (init=); combine them with its "
            "result in another computation", code="TW0605")
    source = body.sources[0]
    kind = _kind(body)
    if kind is Add:
        return lambda e: derivative(source, e)
    if kind is Max or kind is Min:
        chosen = _position(op.reduce_axis).equal(_first(op, body, kind)(*op.axis))

        def where_chosen(e: PrimExpr) -> PrimExpr | None:
            d = derivative(source, e)
            return None if d is None else if_then_else(chosen, d, const(0, d.dtype))

        return where_chosen
    weights = {
        s: _weight(op, body, k)(*op.axis, *op.reduce_axis) for k, s in enumerate(body.sources) if s.dtype.is_float}

    def weighted(e: PrimExpr) -> PrimExpr | None:
        total: PrimExpr | None = None
        for s, w in weights.items():
            d = derivative(s, e)
            if d is not None:
                total = mul(d, w) if total is None else add(total, mul(d, w))
        return total

    return weighted


def _kind(body: Reduce) -> type[PrimExpr] | None:
    """Return `Add`, `Max` or `Min` for such reductions of one value, else None."""
    if len(body.sources) != 1:
        return None
    a, b = Var("a", body.dtype), Var("b", body.dtype)
    (combined,) = body.combiner.combine((a,), (b,))
    return type(combined) if isinstance(combined, (Add, Max, Min)) and set(combined.operands()) == {a, b} else None


def _position(axes: Sequence[IterVar]) -> PrimExpr:
    """Return a point of the reduction axes as one linear index."""
    place: PrimExpr = const(0, INT64)
    for a in axes:
        place = add(mul(place, a.extent), a.var)
    return place


def _first(op: ComputeOp, body: Reduce, kind: type[PrimExpr]) -> Tensor:
    """Return the tensor of positions of the greatest (least) value; the first of equal ones."""

    def better(a: Any, b: Any) -> Any:
        ahead = (a[1] > b[1]) if kind is Max else (a[1] < b[1])
        keep = logical_or(ahead, logical_and(a[1].equal(b[1]), a[0] < b[0]))
        return if_then_else(keep, a[0], b[0]), if_then_else(keep, a[1], b[1])

    pick = comm_reducer(
        better, lambda place, value: (max_value(place), (min_value if kind is Max else max_value)(value)), name="first")
    return _stage(
        op, (), f"{op.name}.first", lambda _: pick((_position(op.reduce_axis), body.sources[0]), op.reduce_axis), 0)


def _weight(op: ComputeOp, body: Reduce, k: int) -> Tensor:
    """Return the tensor `[*result, *reduction]` of derivatives with respect to source `k` at each point, by a reduction
    of dual numbers."""
    n = len(body.sources)
    changes = [s.dtype if s.dtype.is_float else body.sources[k].dtype for s in body.sources]

    def identity(*_: Any) -> tuple[PrimExpr, ...]:
        return (*body.combiner.identity(tuple(s.dtype for s in body.sources)), *(const(0, t) for t in changes))

    combiner = Combiner(f"{body.combiner.name}.change", lambda a, b: _changed(body.combiner, a, b, n), identity)

    def at(point: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        here = all_of(*(a.var.equal(p) for a, p in zip(op.reduce_axis, point, strict=True)))
        one_hot = [if_then_else(here, const(int(j == k), t), const(0, t)) for j, t in enumerate(changes)]
        sources = (*body.sources, *one_hot)
        return tuple(Reduce(combiner, sources, op.reduce_axis, j) for j in range(2 * n))

    return _stage(op, [a.extent for a in op.reduce_axis], f"{op.name}.weight{k}", at, n + body.index)


def _changed(combiner: Combiner, a: tuple[PrimExpr, ...], b: tuple[PrimExpr, ...], n: int) -> tuple[PrimExpr, ...]:
    """Combine dual numbers: `n` values followed by their derivatives."""
    names = [tuple(Var(f"{side}{j}", e.dtype) for j, e in enumerate(given[:n])) for side, given in (("a", a), ("b", b))]
    by_name: dict[PrimExpr, PrimExpr] = {
        v: e for own, given in zip(names, (a, b), strict=True) for v, e in zip(own, given, strict=False)}
    values, changes = combiner.combine(names[0], names[1]), []
    for j, value in enumerate(values):
        total: PrimExpr = const(0, a[n + j].dtype)
        for own, given in zip(names, (a, b), strict=True):
            for v, change in zip(own, given[n:], strict=True):
                d = derivative(value, v)
                total = total if d is None else add(total, mul(d, change))
        changes.append(total)
    return tuple(substitute(e, by_name) for e in (*values, *changes))


def _stage(
    op: ComputeOp, extra: Sequence[PrimExpr], name: str, value: Callable[[Sequence[PrimExpr]], tuple[PrimExpr, ...]],
    index: int
) -> Tensor:
    """Return result `index` of a computation over the axes of `op` and `extra` axes, with its own reduction axes."""
    own = {a.var: IterVar(Var(a.var.name), a.extent, "reduce") for a in op.reduce_axis}

    def at(*point: Var) -> tuple[PrimExpr, ...]:
        parts = value(point[len(op.axis) :])
        mapping: dict[PrimExpr, PrimExpr] = {a.var: p for a, p in zip(op.axis, point, strict=False)}
        mapping.update({v: a.var for v, a in own.items()})
        renamed: list[PrimExpr] = []
        for part in parts:
            assert isinstance(part, Reduce)
            sources = [substitute(s, mapping) for s in part.sources]
            renamed.append(Reduce(part.combiner, sources, tuple(own[a.var] for a in part.axes), part.index))
        return tuple(renamed)

    made: tuple[Tensor, ...] = compute([*(a.extent for a in op.axis), *extra], at, name=name)
    return made[index]
