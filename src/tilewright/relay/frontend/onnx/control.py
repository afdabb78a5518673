"""Constants, casts, shape queries, fill operators, and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from tilewright.base.array_bytes import of_strings
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import DataType, OpenSize, TensorType
from tilewright.relay.expr import Constant, Expr, If, Tuple
from tilewright.relay.frontend.core.branch_limits import require, with_least, with_own_limits, with_own_sizes
from tilewright.relay.frontend.core.known import has_unknown_sizes
from tilewright.relay.frontend.core.node import NotKnownError
from tilewright.relay.frontend.core.size_choices import attempt, equation_of, rule_of, with_number
from tilewright.relay.frontend.onnx.node import Node, Outside
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.rounding import converted
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, fields, reshape
from tilewright.relay.op.selection import first_of
from tilewright.relay.sequence_values import NOTHING, opened
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.scalar.arith.open_sizes import takes_open
from tilewright.scalar.expr import Var
from tilewright.topi.shapes import must_differ, text


@converter("Constant")
def constant(
    *, value: Any = None, sparse_value: Any = None, value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None, value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None, value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None, node: Node,
) -> Expr:
    if value is not None or sparse_value is not None:
        return Constant(sparse_value if value is None else value)
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64),
                         (value_ints, np.int64)):
        if given is not None:
            return Constant(np.asarray(given, dtype))
    strings = value_strings if value_string is None else (value_string,)
    if strings is not None:
        return Constant(of_strings(strings, (len(strings),) if value_string is None else ()))
    return node.refuse("it has no attribute with a value; give one")


@converter("Identity")
def identity(x: Expr) -> Expr:
    return x


def _to_dtype(code: int, node: Node) -> DataType:
    return element_type(code, "attribute 'to'", node.origin)


_BY_NAME = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16"}


@converter("Cast")
def cast_by_name(x: Expr, *, to: str, node: Node) -> Expr:
    name = _BY_NAME.get(to, to.lower())
    return cast(x, name)


@converter("Cast", since=6)
def cast_to(x: Expr, *, to: int, saturate: int = 1, round_mode: str = "up", node: Node) -> Expr:
    return converted(x, _to_dtype(to, node), bool(saturate), round_mode, node)


@converter("CastLike")
def cast_like(x: Expr, target_type: Expr, *, saturate: int = 1, round_mode: str = "up", node: Node) -> Expr:
    return converted(x, dtype_of(target_type), bool(saturate), round_mode, node)


@converter("BitCast", since=26)
def bit_cast(x: Expr, *, to: int, node: Node) -> Expr:
    kind = _to_dtype(to, node)
    return x if dtype_of(x) is kind else op.reinterpret(x, dtype=kind)


@converter("Shape")
def shape(data: Expr, *, start: int = 0, end: int | None = None) -> Expr:
    whole, dims = op.shape_of(data, dtype="int64"), shape_of(data)
    first, last, _ = slice(start, end).indices(len(dims))
    if (first, last) == (0, len(dims)):
        return whole
    return op.strided_slice(whole, begin=(first,), end=(max(first, last),), strides=(1,), axes=(0,))


@converter("Size")
def size(data: Expr) -> Expr:
    return op.ndarray_size(data, dtype="int64")


@converter("ConstantOfShape")
def constant_of_shape(shape: Expr, *, value: Any = None, node: Node) -> Expr:
    fill = np.zeros(1, np.float32) if value is None else value
    if fill.size != 1:
        node.refuse(f"attribute 'value' must be one number, but its shape is {fill.shape}")
    dims = tuple(int(d) if isinstance(d, np.integer) else d for d in node.dims(shape, "input").flat)
    return op.full(Constant(fill.reshape(())), shape=dims, dtype=DataType(fill.dtype))


@converter("Range")
def range_(start: Expr, limit: Expr, delta: Expr, *, stash_type: int = 1, node: Node) -> Expr:
    step = node.scalar(delta, "delta")
    first, last = _bound(start, "start", node), _bound(limit, "limit", node)
    if step == 0:
        node.refuse("delta is 0")
    return op.arange(start=first, stop=last, step=step, dtype=dtype_of(start))


def _bound(x: Expr, name: str, node: Node) -> Any:
    """The bound of a range: a number, or an expression of symbolic sizes."""
    value = node.dims(x, name)
    return value.item() if value.dtype == object and value.size == 1 else node.scalar(x, name)


@converter("EyeLike")
def eye_like(x: Expr, *, dtype: int | None = None, k: int = 0, node: Node) -> Expr:
    kind = dtype_of(x) if dtype is None else element_type(dtype, "attribute 'dtype'", node.origin)
    if rank(x) != 2:
        node.refuse(f"its input must be a matrix, but it has {rank(x)} dimensions")
    rows, columns = node.static(x, "input")
    if isinstance(rows, OpenSize) or isinstance(columns, OpenSize):
        down = op.expand_dims(op.arange(start=0, stop=rows, step=1, dtype="int64"), axis=1)
        along = op.arange(start=0, stop=columns, step=1, dtype="int64")
        return cast(op.equal(op.add(down, scalar(k, down)), along), kind)
    node.check_table(rows, columns)
    return Constant(np.eye(rows, columns, max(-rows, min(k, columns)), dtype=kind.numpy()))


@converter("NonZero")
def nonzero(x: Expr) -> Expr:
    return op.transpose(op.argwhere(x, dtype="int64"), axes=(1, 0))


@converter("Unique")
def unique(x: Expr, *, axis: int | None = None, sorted: int = 1) -> tuple[Expr, ...]:
    if axis is not None:
        return fields(op.unique_slices(x, axis=axis, is_sorted=bool(sorted)), 4)
    values, first, inverse, count, counts = fields(op.unique(reshape(x, (-1,)), is_sorted=bool(sorted),
        return_counts=True), 5)
    return (first_of(values, count), cast(first_of(first, count), "int64"), cast(inverse, "int64"),
            cast(first_of(counts, count), "int64"))


@converter("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Expr, scores: Expr, max_output_boxes_per_class: Expr | None = None, iou_threshold: Expr | None = None,
    score_threshold: Expr | None = None,
    *, center_point_box: int = 0, node: Node,
) -> Expr:
    if center_point_box:
        if must_differ(shape_of(boxes)[2], 4, "boxes must have 4 coordinates"):
            raise ShapeError(f"boxes {text(shape_of(boxes))} must have 4 coordinates in the last dimension")
        center, half = (op.strided_slice(boxes, begin=(k,), end=(k + 2,), strides=(1,), axes=(2,)) for k in (0, 2))
        half = op.divide(half, scalar(2, boxes))
        boxes = op.concatenate((op.subtract(center, half), op.add(center, half)), axis=2)
    overlap = float(node.scalar(iou_threshold, "iou_threshold", 0.0))
    if not 0 <= overlap <= 1:
        node.refuse(f"iou_threshold is {overlap:g}; it must be from 0 to 1")
    rows, count = fields(op.vision.all_class_non_max_suppression(
        boxes, scores, max_output_boxes_per_class=max(0,
            int(node.scalar(max_output_boxes_per_class, "max_output_boxes_per_class", 0))),
        iou_threshold=overlap,
        score_threshold=float(node.scalar(score_threshold, "score_threshold", -np.inf)),
    ), 2)
    return first_of(rows, count)


@converter("If")
def if_(cond: Expr, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto, node: Node) -> tuple[Expr, ...]:
    known = node.known(cond)
    if known is not None:
        return tuple(node.import_graph(then_branch if known.reshape(-1)[0] else else_branch))
    if rank(cond):
        cond = reshape(cond, ())
    both: list[list[Expr]] = []
    limits: list[dict[Var, int]] = []
    for branch, taken in ((then_branch, True), (else_branch, False)):
        try:
            made, least = with_own_limits(partial(_branch, branch, node))
            both.append(made)
            limits.append(least)
        # a branch that is invalid for the given shapes is never taken
        except CompileError as error:
            if taken and _needs_equal(error, else_branch, node):
                raise
            if (choice := node.choice(cond)) is not None:
                return _required(cond, choice, then_branch if choice else else_branch, node)
            chosen = node.value(cond, "cond", f", because one branch is invalid for these inputs: {error}")
            if bool(chosen.reshape(-1)[0]) is taken:
                raise
            return tuple(node.import_graph(else_branch if taken else then_branch))
    if not any(has_unknown_sizes(x) for results in both for x in results):
        both = _with_common_limits((then_branch, else_branch), both, limits, node)
    then, otherwise = both
    for k, (a, b) in enumerate(zip(then, otherwise, strict=True)):
        if (has_unknown_sizes(a) or has_unknown_sizes(b) or a.checked_type != b.checked_type
                or (a is NOTHING) != (b is NOTHING)):
            if (choice := node.choice(cond)) is not None:
                return _required(cond, choice, then_branch if choice else else_branch, node)
            found = ["nothing" if x is NOTHING else "open" if has_unknown_sizes(x) else repr(x.checked_type)
                     for x in (a, b)]
            chosen = node.value(cond, "cond", f", because output {k} is {found[0]} in one branch and {found[1]} in the "
                                              "other")
            require(limits[0] if chosen.reshape(-1)[0] else limits[1])
            return tuple(then if chosen.reshape(-1)[0] else otherwise)
    whole = (If(cond, Tuple(tuple(then)), Tuple(tuple(otherwise)), node.origin) if len(then) > 1
             else If(cond, then[0], otherwise[0], node.origin))
    results = fields(whole, len(then)) if len(then) > 1 else (whole,)
    return tuple(NOTHING if a is NOTHING else opened(r) for a, r in zip(then, results, strict=True))


def _branch(graph: onnx.GraphProto, node: Node, outside: Outside | None = None) -> list[Expr]:
    """Import a branch. If its types depend on conditions on sizes, the only valid answers become its requirements."""
    results = node.import_graph(graph, (), outside, is_looped=False)
    waits = takes_open() and any(map(has_unknown_sizes, results))
    return (node.import_with_only_sizes(graph, outside) if waits else None) or results


def _with_common_limits(
    graphs: Sequence[onnx.GraphProto], both: Sequence[list[Expr]], limits: Sequence[Mapping[Var, int]], node: Node
) -> list[list[Expr]]:
    """Return the results of two branches. A least size that both need limits the program; a larger one of a branch is
    checked when the branch is taken."""
    common = {v: min(least[v] for least in limits) for v in limits[0] if v in limits[1]}
    require(common)
    return [
        _above(graph, results, {v: low for v, low in least.items() if low > common.get(v, 0)}, node)
        for graph, results, least in zip(graphs, both, limits, strict=True)]


def _above(graph: onnx.GraphProto, results: list[Expr], least: Mapping[Var, int], node: Node) -> list[Expr]:
    """Return the results of a branch that ends the run for sizes below `least`; if it has no such form, these limit
    the program."""
    if not least:
        return results
    message = rule_of(node.origin, " and ".join(f"{v} must be at least {n}" for v, n in least.items()))
    try:
        with attempt():
            again = _branch(graph, node, lambda x: with_least(x, least, message))
            return [with_own_sizes(a, b) for a, b in zip(again, results, strict=True)]
    except CompileError:
        require(least)
        return results


def _needs_equal(error: CompileError, other: onnx.GraphProto, node: Node) -> bool:
    """Whether the other branch, too, requires the two sizes to be equal that are the reason of an error."""
    sizes = equation_of(error) if takes_open() else None
    if sizes is None:
        return False
    try:
        _branch(other, node)
    except CompileError as second:
        return {*(equation_of(second) or ())} == {*sizes}
    return False


def _required(cond: Expr, taken: bool, graph: onnx.GraphProto, node: Node) -> tuple[Expr, ...]:
    """Import the branch for which the condition on sizes `cond` is `taken`. Other sizes end the run."""
    equal = node.require_equal(cond) if taken else None
    rule = f"the condition on sizes must be {'true' if taken else 'false'}"
    message = rule_of(node.origin, rule if equal is None else f"{equal[0]} must be {equal[1]}")
    results = node.import_graph(graph, (), lambda x: x if equal is None else with_number(x, *equal, message))
    if not all(isinstance(r.known_type(), TensorType) for r in results):
        raise NotKnownError("the types of a branch are known only at run time", node.origin)
    wrong = op.outside(cast(op.logical_not(cond) if taken else cond, "int32"), sizes=(1,), negative=False)
    return tuple(op.require_zero(r, wrong, message=message) for r in results)
