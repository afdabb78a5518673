"""Tensor expressions: definitions of computations, independent of their schedules.

    A = te.placeholder((m, k), name="A"); B = te.placeholder((k, n), name="B"); r = te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final, Protocol, Self, TypeAlias, overload

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.graphs import post_order
from tilewright.base.interning import interned, publish
from tilewright.base.node import node
from tilewright.base.plugins import Hook
from tilewright.base.types import INT64, DataType
from tilewright.scalar.arith.open_sizes import open_size
from tilewright.scalar.expr import (
    ExprLike,
    IntImm,
    PrimExpr,
    Value,
    Var,
    add,
    as_expr,
    broadcast,
    cast,
    const,
    if_then_else,
    max_value,
    maximum,
    min_value,
    minimum,
    mul,
    sub,
)
from tilewright.scalar.walk import free_vars, walk
from tilewright.te.tag import current_tag
from tilewright.tir.stmt import IterVar

Prepack: TypeAlias = "Callable[..., np.ndarray[Any, Any]]"
"""A computation on numpy arrays, one for each input tensor."""


class Operation:
    """An operation that computes or provides tensors: a `PlaceholderOp`, `ComputeOp`, `ExternOp` or `ScanOp`."""

    __slots__ = ()
    name: str
    axis: tuple[IterVar, ...]
    """The axes of the elements; computations only."""
    reduce_axis: tuple[IterVar, ...]
    """The axes of the reduction; computations only."""
    scan_axis: IterVar
    """The axis of the steps; scans only."""

    @property
    def tag(self) -> str:
        """The kind of computation, a tag of `topi.tag`; "" by default."""
        return ""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        return self.outputs[index]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the operation reads, each once, in order of first use."""
        return ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """TVM's name of `inputs`."""
        return self.inputs


class KernelKind:
    """The kind of the kernel around one computation, such as a reduction; a back end maps it to a schedule."""

    __slots__ = ()


class KernelSchedule(KernelKind):
    """The schedule of a kernel around one computation; back ends define a frozen dataclass for each kind of
    computation."""

    __slots__ = ()

    def apply(self, kernel: Any) -> None:
        """Schedule the loops of `kernel`, the back end's view of the blocks of one kernel."""
        raise NotImplementedError


class Tensor:
    """A result of an operation; indexing (`t[i, j]` or `t(i, j)`) gives a scalar expression."""

    __slots__ = ("dtype", "index", "op", "shape")

    def __init__(self, op: Operation, index: int, shape: Sequence[Any], dtype: str | DataType) -> None:
        self.op, self.index, self.dtype = op, index, DataType(dtype)
        self.shape: tuple[PrimExpr, ...] = tuple(as_expr(d) for d in shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def value_index(self) -> int:
        """The position among the results of the operation."""
        return self.index

    @property
    def name(self) -> str:
        return self.op.name if len(self.op.outputs) == 1 else f"{self.op.name}.v{self.index}"

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as integers, with samples for dynamic sizes. Raises `CompileError` if a dimension is symbolic."""
        found = [d.value if isinstance(d, IntImm) else open_size(d) for d in self.shape]
        if any(d is None for d in found):
            raise CompileError(f"tensor '{self.name}' has a symbolic shape, but a static one is needed", code="TW0303")
        return tuple(d for d in found if d is not None)

    def __add__(self, other: Any) -> Tensor:
        return whole_tensor("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return whole_tensor("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return whole_tensor("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return whole_tensor("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return whole_tensor("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return whole_tensor("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return whole_tensor("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return whole_tensor("divide", other, self)

    def __getitem__(self, indices: Any) -> Any:
        """Return an element, where `a[i][k]` is `a[i, k]`; with a slice, the region `a[i, 0:16]` for a call of an
        instruction."""
        at = indices if isinstance(indices, tuple) else (indices,)
        if any(isinstance(i, slice) for i in at):
            return TensorRegion.of(self, at)
        return TensorSlice(self, at) if len(at) < len(self.shape) else self(*at)

    def astype(self, dtype: str | DataType) -> Tensor:
        """Return the tensor converted to `dtype`, as a stage of its own."""
        return whole_tensor("cast", self, dtype)

    __iter__ = None
    """Tensors are not iterable: any index is valid in an expression, so iteration would not terminate."""

    def __call__(self, *indices: Any) -> PrimExpr:
        at = [i.var if isinstance(i, IterVar) else i for i in indices]
        if len(at) != len(self.shape):
            raise CompileError(
                f"tensor '{self.name}' has {len(self.shape)} dimensions, but was given {len(at)} "
                "indices", code="TW0609")
        return TensorElem(self, [cast(INT64, as_expr(i)) for i in at])

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}[{', '.join(map(str, self.shape))}])"


class TensorSlice(ExprLike):
    """A tensor with the first of its indices, `a[i]` of `a[i][k]`. It is no value until all indices are given."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, indices: Any) -> Any:
        return self.tensor[(*self.indices, *(indices if isinstance(indices, tuple) else (indices,)))]

    __iter__ = None

    @property
    def dtype(self) -> DataType:
        return self.tensor.dtype

    @property
    def expr(self) -> PrimExpr:
        return self.tensor(*self.indices)


class TensorRegion:
    """A box of a tensor, `a[i, 0:16]`, as the argument of an instruction; its dimensions are those of the slices."""

    __slots__ = ("sizes", "starts", "tensor")

    def __init__(self, tensor: Tensor, starts: Sequence[PrimExpr], sizes: Sequence[PrimExpr | None]) -> None:
        self.tensor, self.starts, self.sizes = tensor, tuple(starts), tuple(sizes)

    @staticmethod
    def of(tensor: Tensor, at: Sequence[Any]) -> TensorRegion:
        """Return the region of indices and slices without steps, one for each dimension. Raises `CompileError`."""
        if len(at) != len(tensor.shape) or any(isinstance(i, slice) and i.step not in (None, 1) for i in at):
            raise CompileError(
                f"a region of tensor '{tensor.name}' needs {len(tensor.shape)} indices or slices without steps",
                code="TW0609")
        starts = [as_expr((i.start or 0) if isinstance(i, slice) else i) for i in at]
        sizes = [
            sub(d if i.stop is None else as_expr(i.stop), start) if isinstance(i, slice) else None
            for i, start, d in zip(at, starts, tensor.shape, strict=True)]
        return TensorRegion(tensor, starts, sizes)

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        return tuple(n for n in self.sizes if n is not None)

    def __getitem__(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        """Return the element at `indices` within the region."""
        inner = iter(indices)
        return self.tensor(*(
            start if n is None else add(start, next(inner)) for start, n in zip(self.starts, self.sizes, strict=True)))

    __iter__ = None


whole_tensor: Final[Hook[[str, Any, Any], Tensor]] = Hook("tilewright.topi.broadcast")
"""Elementwise arithmetic of two tensors with broadcasting, or the cast of one, by the name of the function of `topi`:
`whole_tensor("add", a, b)`."""


class TensorElem(PrimExpr):
    """An element of a tensor, or a vector of elements if the last index is a vector. It becomes a load once the tensor
    has a buffer."""

    __slots__ = ("indices", "tensor")
    tensor: Tensor
    indices: tuple[PrimExpr, ...]

    def __new__(cls, tensor: Tensor, indices: Sequence[PrimExpr]) -> Self:
        at = tuple(indices)
        lanes = builtins.max((i.dtype.lanes for i in at), default=1)
        dtype = tensor.dtype if lanes == 1 else tensor.dtype.with_lanes(lanes)
        key = (cls, dtype, tensor, at)
        known: Self | None = interned(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self.dtype, self.tensor, self.indices = dtype, tensor, at
        return publish(key, self)

    def operands(self) -> tuple[PrimExpr, ...]:
        return self.indices

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        return TensorElem(self.tensor, operands)


@node
class Combiner:
    """A commutative reduction: `combine` over tuples of values, with the neutral element `identity`."""

    name: str
    combine: Callable[[tuple[PrimExpr, ...], tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]
    identity: Callable[[tuple[DataType, ...]], tuple[PrimExpr, ...]]


class Reduce(PrimExpr):
    """`combiner` over `sources` along `axes`; allowed only at the top of a compute body. `index` selects a result of a
    tuple reduction. The reduction begins with `init`, or with the neutral values."""

    __slots__ = ("axes", "combiner", "index", "init", "sources")
    combiner: Combiner
    sources: tuple[PrimExpr, ...]
    axes: tuple[IterVar, ...]
    index: int
    init: tuple[PrimExpr, ...]

    def __new__(
        cls, combiner: Combiner, sources: Sequence[PrimExpr], axes: Sequence[IterVar], index: int = 0,
        init: Sequence[PrimExpr] = ()
    ) -> Self:
        src, ax, first = tuple(sources), tuple(axes), tuple(init)
        dtype = src[index].dtype
        key = (cls, dtype, combiner, src, ax, index, first)
        known: Self | None = interned(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self.dtype, self.combiner, self.sources, self.axes, self.index = dtype, combiner, src, ax, index
        self.init = first
        return publish(key, self)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """TVM's name of `axes`."""
        return self.axes

    @property
    def source(self) -> tuple[PrimExpr, ...]:
        """TVM's name of `sources`."""
        return self.sources

    def operands(self) -> tuple[PrimExpr, ...]:
        return (*self.sources, *self.init)

    def with_operands(self, operands: Sequence[PrimExpr]) -> PrimExpr:
        n = len(self.sources)
        return Reduce(self.combiner, operands[:n], self.axes, self.index, operands[n:])


@node
class PlaceholderOp(Operation):
    """An input; `constant` if its value is known at compile time."""

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: DataType
    constant: bool = False
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors)


@node
class Instruction:
    """The instruction `intrin` (a `TensorIntrin`) performs the innermost axes of a computation: `spatial` axes of the
    elements, and `reduce` axes of the reduction."""

    intrin: Any
    spatial: int
    reduce: int


class InstructionCall:
    """The result of a call of an instruction in `te.compute`."""

    __slots__ = ()

    def computed(self, name: str, axis: Sequence[IterVar]) -> tuple[tuple[PrimExpr, ...], Instruction]:
        """Return the elements of the results over the innermost axes `axis`, and the instruction. Raises
        `CompileError` if these differ from the axes of the instruction."""
        raise NotImplementedError


@node
class ComputeOp(Operation):
    """`body[k]` at every point of `axis`.

    `schedule` is the schedule of the kernel around this computation, or its kind; None for the default. `prepack` is
    the same computation on numpy arrays, one for each input; with it, the stage runs at compile time if all its inputs
    are constants. It may return a view. With `inline=False`, the values are stored, and not recomputed by their
    readers. `kept` values depend on one packed constant; programs with symbolic sizes compute them at their first use.
    `attrs` are the caller's attributes. An `instruction` performs the innermost axes.
    """

    name: str
    axis: tuple[IterVar, ...]
    body: tuple[PrimExpr, ...]
    reduce_axis: tuple[IterVar, ...]
    schedule: KernelKind | None = None
    prepack: Prepack | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    inline: bool = True
    kept: bool = False
    instruction: Instruction | None = None
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def tag(self) -> str:
        return str(self.attrs.get("tag", ""))

    @property
    def may_inline(self) -> bool:
        """Whether the body can be recomputed by its readers: it has no reduction, is not packed or kept, and `inline`
        is set."""
        return self.inline and self.prepack is None and not self.kept and not isinstance(self.body[0], Reduce)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        found: dict[Tensor, None] = {}
        for b in (*(a.extent for a in self.reduce_axis), *self.body):
            for e in walk(b):
                if isinstance(e, TensorElem):
                    found.setdefault(e.tensor)
        return tuple(found)


def placeholder(
    shape: Sequence[Any] | Value, dtype: str | DataType = "float32", name: str = "placeholder", *,
    constant: bool = False
) -> Tensor:
    """Return an input tensor of `shape` and `dtype`; `constant`: its value is known at compile time."""
    dims = tuple(map(dimension, shape if isinstance(shape, Sequence) else (shape,)))
    op = PlaceholderOp(name, dims, DataType(dtype), constant)
    op.tensors.append(Tensor(op, 0, dims, dtype))
    return op.tensors[0]


@overload
def compute(
    shape: Sequence[Any] | Value, fcompute: Callable[..., Value], name: str = "compute", tag: str = "", *,
    schedule: KernelKind | None = None,
    prepack: Prepack | None = None, attrs: dict[str, Any] | None = None, axis_names: Sequence[str] | None = None,
    inline: bool = True, kept: bool = False,
) -> Tensor: ...
@overload
def compute(
    shape: Sequence[Any] | Value, fcompute: Callable[..., Sequence[Value]], name: str = "compute", tag: str = "", *,
    schedule: KernelKind | None = None,
    prepack: Prepack | None = None, attrs: dict[str, Any] | None = None, axis_names: Sequence[str] | None = None,
    inline: bool = True, kept: bool = False,
) -> tuple[Tensor, ...]: ...
def compute(
    shape: Sequence[Any] | Value, fcompute: Callable[..., Value | Sequence[Value]], name: str = "compute",
    tag: str = "", *,
    schedule: KernelKind | None = None, prepack: Prepack | None = None, attrs: dict[str, Any] | None = None,
    axis_names: Sequence[str] | None = None, inline: bool = True, kept: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Return the tensor of `shape`, sizes or one size, whose element at `(i, j, …)` is `fcompute(i, j, …)`.

    The result is a tuple of tensors if `fcompute` returns a tuple of scalars (or the parts of a tuple reduction). `tag`
    names the kind of computation (`topi.tag`); the default is that of the enclosing `tag_scope`. See `ComputeOp` for
    the other arguments.

    `fcompute` may take fewer indices and return a call of an instruction (`te.decl_tensor_intrin`), which computes the
    innermost dimensions: `lambda i: vadd(A[i, 0:16], B[i, 0:16])`.
    """
    tag = tag or current_tag()
    attrs = {"tag": tag, **(attrs or {})} if tag else attrs
    dims = [dimension(d) for d in (shape if isinstance(shape, Sequence) else (shape,))]
    names = axis_names or _axis_names(fcompute, len(dims))
    axis = tuple(IterVar(Var(n), d) for n, d in zip(names, dims, strict=True))
    outer = _outer_axes(fcompute, len(dims))
    result: Any = fcompute(*(a.var for a in axis[:outer]))
    instruction = None
    if isinstance(result, InstructionCall):
        result, instruction = result.computed(name, axis[outer:])
        inline, result = False, result if len(result) > 1 else result[0]
    elif outer < len(dims):
        raise CompileError(
            f"the function of '{name}' takes {outer} indices, but the shape has {len(dims)} dimensions; only calls of "
            "instructions leave out the innermost indices", code="TW0609")
    several = isinstance(result, Sequence)
    body = tuple(map(as_expr, result)) if isinstance(result, Sequence) else (as_expr(result),)
    for part in body:
        _check_reductions(name, part)
    reduce_axis = body[0].axes if isinstance(body[0], Reduce) else ()
    op = ComputeOp(name, axis, body, reduce_axis, schedule, prepack, attrs or {}, inline, kept, instruction)
    op.tensors.extend(Tensor(op, k, dims, b.dtype) for k, b in enumerate(body))
    return tuple(op.tensors) if several else op.tensors[0]


def _outer_axes(fcompute: Callable[..., Any], rank: int) -> int:
    """Return the number of indices that a function takes, at most `rank`."""
    kinds = inspect.signature(fcompute).parameters.values()
    if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in kinds):
        return rank
    return builtins.min(len(kinds), rank)


def _check_reductions(name: str, body: PrimExpr) -> None:
    """Raise `CompileError` for a reduction within another expression, which has no loops of its own."""
    if any(type(e) is Reduce and e is not body for e in walk(body)):
        raise CompileError(
            f"'{name}' has a reduction within its expression; a reduction must be the whole value of an element, so "
            "compute it as a tensor of its own, and read that", code="TW0615")


def dimension(d: Any) -> PrimExpr:
    """Return a dimension of a shape as an expression; a float without fraction (`n / 8`) counts as an integer."""
    if isinstance(d, float):
        if not d.is_integer():
            raise CompileError(f"a dimension of {d} is not an integer; divide with //", code="TW0602")
        d = int(d)
    return cast(INT64, as_expr(d))


def producers_first(
    ops: Sequence[Operation], needed: Callable[[Operation], Sequence[Tensor]] = lambda op: op.inputs
) -> list[Operation]:
    """Return `ops` and the operations that they depend on (`needed`), each once, producers first."""
    return post_order(ops, lambda op: [t.op for t in needed(op)])


_LETTERS: Final = ("i", "j", "k", "l", "m", "n", "o", "p")


def _axis_names(fcompute: Callable[..., Any], n: int) -> Sequence[str]:
    kinds = inspect.signature(fcompute).parameters.values()
    if len(kinds) == n and all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in kinds):
        return [p.name for p in kinds]
    return [_LETTERS[i] if n <= len(_LETTERS) else f"i{i}" for i in range(n)]


def var(name: str = "tindex", dtype: str | DataType = INT64, span: Any = None) -> Var:
    """Return a scalar that is known when the program is called: a dynamic size (`int64`, like all indices), or a scalar
    argument."""
    return Var(name, dtype)


size_var = var


def reduce_axis(dom: tuple[Any, Any], name: str = "r") -> IterVar:
    """Return a reduction axis over `[dom[0], dom[1])`; the lower end must be 0."""
    low, high = as_expr(dom[0]), as_expr(dom[1])
    if not (isinstance(low, IntImm) and low.value == 0):
        raise CompileError(
            f"reduction axis '{name}' starts at {low}; it must start at 0 (shift the index instead)", code="TW0609")
    return IterVar(Var(name), high, "reduce")


def _elementwise(
    name: str, combine: Callable[[PrimExpr, PrimExpr], PrimExpr], identity: Callable[[DataType], PrimExpr]
) -> Combiner:
    return Combiner(name, lambda a, b: (combine(a[0], b[0]),), lambda t: (identity(t[0]),))


def _chosen(combiner: Combiner, sources: tuple[PrimExpr, ...], where: Value | None) -> tuple[PrimExpr, ...]:
    """Return the values, and the neutral element where the condition `where` is false."""
    if where is None:
        return sources
    neutral = combiner.identity(tuple(s.dtype for s in sources))
    return tuple(if_then_else(where, s, n) for s, n in zip(sources, neutral, strict=True))


def _first_values(init: Any, sources: tuple[PrimExpr, ...], axes: Sequence[IterVar]) -> tuple[PrimExpr, ...]:
    """Return the values that a reduction begins with; empty for the neutral ones. Raises `CompileError` unless there is
    one for each source, that does not vary along the reduction."""
    if init is None:
        return ()
    given = tuple(init) if isinstance(init, (tuple, list)) else (init,)
    if len(given) != len(sources):
        raise CompileError(
            f"a reduction of {len(sources)} values begins with as many values, but init= has {len(given)}",
            code="TW0609")
    values = tuple(as_expr(v, s.dtype) if isinstance(v, (bool, int, float)) else as_expr(v)
                   for v, s in zip(given, sources, strict=True))
    used = {v for e in values for v in free_vars(e)}
    varying = next((a for a in axes if a.var in used), None)
    if varying is not None:
        raise CompileError(
            f"init= is the value before the reduction, but it varies along '{varying.var.name}', which is reduced",
            code="TW0609")
    return values


def _reducer(combiner: Combiner) -> Callable[..., PrimExpr]:
    def reduce(expr: Value, axis: Any, where: Value | None = None, init: Value | None = None) -> PrimExpr:
        if not isinstance(axis, (IterVar, list, tuple)):
            return combiner.combine((as_expr(expr),), (axis,))[0]
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        wrong = next((a for a in axes if not isinstance(a, IterVar)), None)
        if wrong is not None:
            raise CompileError(f"'{wrong}' is not an axis; make one with te.reduce_axis((0, n))", code="TW0609")
        sources = _chosen(combiner, (as_expr(expr),), where)
        first = _first_values(init, sources, axes)
        if axes:
            return Reduce(combiner, sources, axes, 0, first)
        return combiner.combine(first, sources)[0] if first else sources[0]

    reduce.__name__ = combiner.name
    reduce.__doc__ = (
        f"Return the {combiner.name} of `expr` along `axis`, one reduction axis or several, without the elements for "
        f"which `where` is false; it begins with `init` instead of the neutral value. For two values, "
        f"`{combiner.name}(a, b)`."
    )
    return reduce


SUM: Final = _elementwise("sum", add, lambda t: const(0, t))
PROD: Final = _elementwise("prod", mul, lambda t: const(1, t))
MAX: Final = _elementwise("max", maximum, min_value)
MIN: Final = _elementwise("min", minimum, max_value)
sum = _reducer(SUM)
prod = _reducer(PROD)
max = _reducer(MAX)
min = _reducer(MIN)


class CommReducer(Protocol):
    """A reduction made by `comm_reducer`, of one expression or of a tuple of expressions."""

    @overload
    def __call__(
        self, expr: Value, axis: IterVar | Sequence[IterVar] | Value, *more: Value, where: Value | None = None,
        init: Value | None = None,
    ) -> PrimExpr: ...
    @overload
    def __call__(
        self, expr: Sequence[Value], axis: IterVar | Sequence[IterVar], *, where: Value | None = None,
        init: Sequence[Value] | None = None,
    ) -> tuple[PrimExpr, ...]: ...


def comm_reducer(fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce") -> CommReducer:
    """Define a reduction over one value or a tuple, given `fcombine(x, y)` and `fidentity(*dtypes)`. Return `f(exprs,
    axis, where=condition, init=first)`, which begins with `first` or the identity; for two values or more, `f(a, b)`.
    """

    def as_tuple(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, (tuple, list)) else (x,)

    def combine(a: tuple[PrimExpr, ...], b: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return as_tuple(fcombine(a, b) if len(a) > 1 else fcombine(a[0], b[0]))

    combiner = Combiner(
        name, combine, lambda t: tuple(as_expr(v, d) for v, d in zip(as_tuple(fidentity(*t)), t, strict=True)))

    def reduce(expr: Any, axis: Any, *more: Value, where: Value | None = None, init: Any = None) -> Any:
        if not isinstance(axis, (IterVar, list, tuple)):
            total: tuple[PrimExpr, ...] = (as_expr(expr),)
            for value in (axis, *more):
                total = combine(total, (as_expr(value, total[0].dtype),))
            return total[0]
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        sources = _chosen(combiner, tuple(as_expr(e) for e in as_tuple(expr)), where)
        first = _first_values(init, sources, axes)
        parts = tuple(Reduce(combiner, sources, axes, k, first) for k in range(len(sources)))
        return parts if isinstance(expr, (tuple, list)) else parts[0]

    return reduce


__all__ = [
    "MAX", "MIN", "PROD", "SUM", "Combiner", "ComputeOp", "Operation", "PlaceholderOp", "Reduce", "Tensor",
    "TensorElem", "broadcast", "comm_reducer", "compute", "if_then_else", "max", "max_value", "min", "min_value",
    "placeholder", "prod", "reduce_axis", "sum",
]
