"""More operators of random graphs with open dimensions: counts, loops and branches, samples of images, integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from random_open_graphs import Graph


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


# Results whose size depends on values.


def chosen(g: Graph) -> None:
    """Places of elements, elements by a condition, different elements, or a number of the largest."""
    a = g.some(low=1)
    axis = g.axis(a)
    match g.draw.between(0, 3):
        case 0:
            places = g.add("NonZero", [g.add("Greater", [a, g.const(np.float32(0.3))])])
            places = g.add("Transpose", [places], perm=[1, 0])
            if g.draw.chance(0.6):
                g.add("GatherND", [a, places])
        case 1:
            line = g.leaf([n if (n := g.named(g.dims(a)[axis])) is not None else 2])
            g.add("Compress", [a, g.add("Greater", [line, g.const(np.float32(0))])], axis=axis)
        case 2:
            whole = g.leaf([g.dim() for _ in range(g.draw.between(1, 2))], "int64", 0, 6)
            g.add("Unique", [whole], g.draw.between(1, 4), sorted=1, axis=g.draw.pick((None, None, 0)))
        case _:
            size = g.size(a, axis)
            k = g.add("Div", [g.add("Add", [size, g.ints(1)]), g.ints(2)]) if g.draw.chance(0.5) else g.add(
                "Min", [size, g.ints(g.draw.between(1, 5))])
            g.add("TopK", [a, k], 2, axis=axis, largest=g.draw.between(0, 1))


def boxes(g: Graph) -> None:
    """Box suppression over a symbolic number of boxes."""
    n, batch, classes = g.draw.pick([*g.sizes]), g.draw.between(1, 2), g.draw.between(1, 3)
    corners = g.add("Abs", [g.leaf((batch, n, 4))])
    scores = g.leaf((batch, classes, n))
    found = g.add("NonMaxSuppression", [
        corners, scores, g.ints(g.draw.between(1, 6)), g.const(np.asarray([0.4], np.float32)),
        g.const(np.asarray([-0.5], np.float32))],
        center_point_box=1)
    if found and g.draw.chance(0.7):
        g.add("Gather", [found, g.ints(g.draw.between(0, 2))], axis=1)


# Loops and branches.


def graph(nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


def value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, array: Any) -> NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array)))


def repeated(g: Graph) -> None:
    """A loop over as many iterations as a dimension has elements, with a state, and mostly with rows."""
    a = g.some(high=3)
    b = g.some(low=1)
    prefix = f"b{len(g.values)}"
    names = [f"{prefix}{n}" for n in ("i", "go", "before", "on", "after", "row", "half", "twice")]
    i, go, before, on, after, row, half, twice = names
    body = graph(
        [node("Identity", [go], [on]), constant(half, np.float32(0.5)), node("Mul", [before, half], [twice]),
         node("Add", [twice, a], [after]), node(g.draw.pick(("Tanh", "Identity")), [after], [row])],
        [value(i, TensorProto.INT64, []), value(go, TensorProto.BOOL, []), value(before)],
        [value(on, TensorProto.BOOL, []), value(after), *([value(row)] if (rows := g.draw.chance(0.7)) else [])])
    count = g.size(b, g.axis(b), scalar=True) if g.draw.chance(0.7) else g.const(np.int64(g.draw.between(1, 4)))
    with_body(g, "Loop", [count, "", a], 2 if rows else 1, [a], body=body)


def scanned(g: Graph) -> None:
    """A scan over the first or the last axis, with a running sum as its state."""
    a = g.some(low=2, high=3)
    axis = g.draw.pick((0, g.rank(a) - 1))
    prefix = f"s{len(g.values)}"
    before, row, after, out = (f"{prefix}{n}" for n in ("before", "row", "after", "out"))
    body = graph(
        [node("Add", [before, row], [after]), node("Sigmoid", [after], [out])],
        [value(before), value(row)], [value(n, shape=[f"{n}{k}" for k in range(g.rank(a) - 1)]) for n in (after, out)])
    start = g.add("ReduceMax", [a], axes=[axis], keepdims=0) if g.opset < 18 else g.add(
        "ReduceMax", [a, g.ints(axis)], keepdims=0)
    if start:
        with_body(g, "Scan", [start, a], 2, [], body=body, num_scan_inputs=1, scan_input_axes=[axis],
                  scan_output_axes=[axis], scan_input_directions=[g.draw.between(0, 1)])


def branched(g: Graph) -> None:
    """A branch that depends on a size or on a value."""
    a = g.some(high=3)
    prefix = f"i{len(g.values)}"
    if g.draw.chance(0.5):
        b = g.some(low=1)
        size = g.size(b, g.axis(b), scalar=True)
        condition = g.add("Greater", [size, g.const(np.int64(g.draw.between(1, 9)))])
    else:
        total = g.add("ReduceSum", [a], keepdims=0)
        condition = g.add("Greater", [total, g.const(np.float32(0))])
    yes, no = (
        graph([node(op, [a], [f"{prefix}{op}"])], [], [value(f"{prefix}{op}")])
        for op in g.draw.random.sample(("Abs", "Neg", "Tanh", "Relu"), 2))
    with_body(g, "If", [condition], 1, [a], then_branch=yes, else_branch=no)


def with_body(g: Graph, op: str, inputs: Sequence[str], results: int, read: Sequence[str], **attributes: Any) -> None:
    """Add a node with bodies, which read the values `read` of the graph."""
    if all(n in g.values for n in inputs if n):
        g.add(op, inputs, results, reads=read, **attributes)


# Images, sums of products, recurrences of attention.


def sampled(g: Graph) -> None:
    """Samples of an image at places that are an input."""
    image = g.leaf((g.draw.pick((1, 2)), g.draw.pick((1, 3)), g.draw.pick((*g.sizes, 5)), g.draw.pick((*g.sizes, 7))))
    batch = g.dims(image)[0][0]
    places = g.leaf((batch, g.draw.pick((*g.sizes, 3)), g.draw.pick((*g.sizes, 4)), 2))
    if g.opset >= 16:
        mode = g.draw.pick(("linear", "nearest") if g.opset >= 20 else ("bilinear", "nearest"))
        g.add("GridSample", [image, places], mode=mode, align_corners=g.draw.between(0, 1),
              padding_mode=g.draw.pick(("zeros", "border", "reflection")))


def summed(g: Graph) -> None:
    """Sums of products of a value with itself, with weights, or with an input."""
    a = g.some(low=2, high=3)
    letters = "bij"[3 - g.rank(a):]
    last = g.named(g.dims(a)[-1])
    match g.draw.between(0, 2):
        case 0:
            g.add("Einsum", [a, a], equation=f"{letters},{letters[:-2]}kj->{letters[:-1]}k")
        case 1 if last is not None:
            g.add("Einsum", [a, g.leaf((last, g.dim()))], equation=f"{letters},jk->{letters[:-1]}k")
        case _:
            g.add("Einsum", [a], equation=f"{letters}->{g.draw.pick((letters[::-1], letters[0], ''))}")


def attended(g: Graph) -> None:
    """Attention of one or several heads, mostly with a mask over the keys."""
    batch, queries, keys = g.draw.pick((1, *g.sizes)), g.draw.pick([*g.sizes]), g.draw.pick([*g.sizes])
    heads, width = g.draw.pick((1, 2)), g.draw.pick((2, 4, 8))
    q, k, v = g.leaf((batch, heads, queries, width)), g.leaf((batch, heads, keys, width)), g.leaf(
        (batch, heads, keys, width))
    scores = g.add("MatMul", [q, g.add("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = g.add("Mul", [scores, g.const(np.float32(width**-0.5))])
    if g.draw.chance(0.6):
        hidden = g.add("Greater", [g.leaf((batch, 1, 1, keys)), g.const(np.float32(0.8))])
        scores = g.add("Where", [hidden, g.const(np.float32(-1e4)), scores])
    found = g.add("MatMul", [g.add("Softmax", [scores], axis=-1), v])
    if found and g.draw.chance(0.7):
        merged = g.add("Transpose", [found], perm=[0, 2, 1, 3])
        g.add("Reshape", [merged, g.ints(0, 0, heads * width)])


# Integers.


def quantized(g: Graph) -> None:
    """Quantization and back, products of quantized matrices, or arithmetic on integers."""
    a = g.some(low=2)
    scale, zero = g.const(np.float32(0.05)), g.const(np.uint8(128))
    match g.draw.between(0, 3):
        case 0:
            q = g.add("QuantizeLinear", [a, scale, zero])
            g.add("DequantizeLinear", [q, scale, zero])
        case 1:
            last = g.named(g.dims(a)[-1])
            if isinstance(last, int):
                q = g.add("QuantizeLinear", [a, scale, zero])
                weights = g.const(g.draw.numbers.integers(-60, 60, (last, g.draw.between(1, 20))).astype(np.int8))
                g.add("MatMulInteger", [q, weights, zero, g.const(np.int8(g.draw.pick((0, 3))))])
        case 2:
            q = g.add("DynamicQuantizeLinear", [a], 3)
            g.add("Cast", [q], to=TensorProto.INT32)
        case _:
            i = g.some("i", low=1)
            number = g.const(np.asarray(g.draw.pick((2, 3, 7, -2)), g.kind(i)))
            g.add(g.draw.pick(("Mod", "Div", "Mul", "Sub", "Max")), [i, number])


def placed(g: Graph) -> None:
    """Elements at places: one-hot vectors, scattered updates, reversed sequences."""
    a = g.some(low=2)
    size = g.least(a, 0)
    if not size:
        return
    match g.draw.between(0, 2):
        case 0:
            index = g.leaf([g.dim()], "int64", 0, 4)
            depth = g.size(a, g.axis(a)) if g.draw.chance(0.6) else g.ints(5)
            g.add("OneHot", [index, depth, g.const(np.asarray([0, 1], np.float32))], axis=g.draw.pick((-1, 0)))
        case 1:
            names = [g.named(d) for d in g.dims(a)]
            if None not in names:
                count = 1
                index = g.leaf((count, 1), "int64", -size, size)
                g.add("ScatterND", [a, index, g.leaf((count, *names[1:]))])  # type: ignore[arg-type]
        case _:
            batch = g.named(g.dims(a)[1])
            if batch is not None:
                lengths = g.leaf((batch,), "int64", 1, size + 1)
                g.add("ReverseSequence", [a, lengths], batch_axis=1, time_axis=0)


STEPS: Final[tuple[tuple[Callable[[Graph], None], int], ...]] = (
    (chosen, 4), (boxes, 1), (repeated, 4), (scanned, 2), (branched, 2), (sampled, 2), (summed, 3), (attended, 2),
    (quantized, 4), (placed, 3),
)
"""The steps with how often each is taken."""
