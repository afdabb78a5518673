"""`te.gradient` against differences: what it computes, that its sums are short, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from te_numpy import evaluate
from tilewright import te, topi
from tilewright.base.errors import CompileError
from tilewright.te.tensor import ComputeOp, Reduce, producers_first

Array = np.ndarray[Any, Any]
STEP = 1e-5


def value(output: te.Tensor, given: dict[te.Tensor, Array]) -> Array:
    result: Array = evaluate(output, given)
    return result


def check(output: te.Tensor, inputs: Sequence[te.Tensor], low: float = -1.0, high: float = 1.0) -> list[te.Tensor]:
    """The gradients, compared with central differences of a weighted sum of the outputs, all in float64."""
    rng = np.random.default_rng(7)
    given = {t: rng.uniform(low, high, t.extents) for t in inputs}
    head = te.placeholder(output.shape, output.dtype, "head")
    weights = rng.uniform(-1, 1, output.extents)
    gradients = te.gradient(output, inputs, head)
    for t, g in zip(inputs, gradients, strict=True):
        assert g.dtype is t.dtype
        assert g.extents == t.extents
        wanted = np.zeros(t.extents)
        for at in np.ndindex(*t.extents):
            sides = []
            for step in (STEP, -STEP):
                moved = given[t].copy()
                moved[at] += step
                sides.append(float((value(output, {**given, t: moved}) * weights).sum()))
            wanted[at] = (sides[0] - sides[1]) / (2 * STEP)
        np.testing.assert_allclose(value(g, {**given, head: weights}), wanted, rtol=1e-4, atol=1e-6, err_msg=t.name)
    return gradients


def tensor(*shape: int, name: str = "A") -> te.Tensor:
    return te.placeholder(shape, "float64", name)


def summed(output: te.Tensor) -> list[int]:
    """How many values each element of the computations behind a tensor adds up, the head's side included."""
    ops = [op for op in producers_first([output.op]) if isinstance(op, ComputeOp) and isinstance(op.body[0], Reduce)]
    return [int(np.prod([int(a.extent) for a in op.reduce_axis])) for op in ops]  # type: ignore[call-overload]


# --- single expressions
# -----------------------------------------------------------------------------------------------------

SMOOTH = ["exp", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "abs"]
POSITIVE = ["log", "log2", "sqrt", "rsqrt"]


@pytest.mark.parametrize("name", SMOOTH + POSITIVE + ["asin", "acos", "atanh", "acosh"])
def test_functions(name: str) -> None:
    a = tensor(7)
    low, high = (0.5, 2.0) if name in POSITIVE else (1.5, 3.0) if name == "acosh" else (-0.9, 0.9)
    function = getattr(te, name)
    check(te.compute((7,), lambda i: function(a[i]) * 2.0), [a], low, high)


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b - 3.0,
    "product": lambda a, b: a * b * a,
    "quotient": lambda a, b: a / (b + 3.0),
    "power": lambda a, b: te.power(a + 2.0, b),
    "max": lambda a, b: te.if_then_else(a < b, a * 2.0, b) + te.max(a, b * b),
    "min": lambda a, b: te.min(a, b) - te.fma(a, b, a),
    "steps": lambda a, b: te.floor(a) * b + te.round(b) + te.ceil(a) * a + te.trunc(b) * a,
    "cast": lambda a, b: (a.astype("float32") * b.astype("float32")).astype("float64") * 0.0 + a
    * b.astype("int32").astype("float64"),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    a, b = tensor(3, 4), tensor(3, 4, name="B")
    check(te.compute((3, 4), lambda i, j: EXPRESSIONS[name](a[i, j], b[i, j])), [a, b])


def test_what_is_read_several_times_is_added_up() -> None:
    x = tensor(10)
    a = te.compute((10,), lambda i: x[i] + x[9 - i], name="a")
    b = te.compute((10,), lambda i: x[i] * x[9 - i], name="b")
    check(topi.tensordot(a, b, 1), [x])
    (g,) = check(te.compute((10,), lambda i: a[i] * te.exp(b[i]) + x[i]), [x])
    assert summed(g) == []


# --- indices
# ----------------------------------------------------------------------------------------------------------------


def through(read: Callable[[te.Tensor], te.Tensor], *shape: int) -> te.Tensor:
    a = tensor(*shape)
    (g,) = check(read(te.compute(shape, lambda *i: a(*i) * a(*i), name="square")), [a])
    return g


MOVES: dict[str, tuple[tuple[int, ...], Callable[[te.Tensor], te.Tensor], list[int]]] = {
    "transpose": ((2, 3, 4), lambda a: topi.transpose(a, (2, 0, 1)), []),
    "reshape": ((3, 4, 5), lambda a: topi.reshape(a, (10, 6)), []),
    "flatten": ((2, 3, 4), topi.nn.flatten, []),
    "split digits": ((24,), lambda a: te.compute((2, 3, 4), lambda i, j, k: a[i * 12 + j * 4 + k]), []),
    "diagonal": ((3, 3), lambda a: te.compute((3,), lambda i: a[i, i]), []),
    "strides": ((9,), lambda a: te.compute((4,), lambda i: a[i * 2 + 1]), []),
    "flip": ((5,), lambda a: topi.flip(a, 0), []),
    "upsample": ((3, 2), lambda a: te.compute((6, 6), lambda i, j: a[i // 2, j // 3]), [6]),
    "tile": ((3,), lambda a: te.compute((12,), lambda i: a[i % 3]), [4]),
    "broadcast": ((3, 1), lambda a: topi.broadcast_to(a, (2, 3, 4)), [8]),
    "pad": ((3, 4), lambda a: topi.nn.pad(a, (1, 2), (0, 1)), []),
    "concatenate": ((3, 4), lambda a: topi.concatenate([a, topi.exp(a)], 1), []),
    "split": ((6, 2), lambda a: topi.split(a, 3, 0)[1], []),
    "permuted digits": ((4, 6), lambda a: te.compute((24,), lambda i: a[i % 4, i // 4]), []),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_are_solved_for_their_indices(name: str) -> None:
    shape, read, sums = MOVES[name]
    assert summed(through(read, *shape)) == sums


def test_a_gather_adds_up_what_was_taken_from_one_place() -> None:
    a, at = tensor(4), te.placeholder((6,), "int32", "at")
    head = te.placeholder((6,), "float64")
    (g,) = te.gradient(te.compute((6,), lambda i: a[at[i]] * 2.0), [a], head)
    where, weights = np.array([3, 0, 0, 2, 3, 3], np.int32), np.arange(6.0)
    np.testing.assert_allclose(value(g, {at: where, head: weights}), [2 * (1 + 2), 0, 2 * 3, 2 * (0 + 4 + 5)])


# --- reductions
# -------------------------------------------------------------------------------------------------------------


def reduced(by: Callable[..., Any], *shape: int) -> tuple[te.Tensor, te.Tensor]:
    a, r = tensor(*shape), te.reduce_axis((0, shape[1]), "r")
    return a, te.compute((shape[0],), lambda i: by(a[i, r] * a[i, 0] + 0.5, axis=r))


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reductions(name: str) -> None:
    a, c = reduced(getattr(te, name), 3, 4)
    check(c, [a])


def test_reductions_of_your_own() -> None:
    norm = te.comm_reducer(lambda x, y: te.sqrt(x * x + y * y), lambda t: tvm.tir.const(1e-9, t))
    a, c = reduced(norm, 3, 4)
    check(c, [a])
    product = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, t))
    b, k = tensor(3, 3), te.reduce_axis((0, 3), "k")
    check(te.compute((3, 3), lambda i, j: product(b[i, k] + b[k, j], axis=k)), [b])


def test_a_reduction_of_two_values() -> None:
    def both(x: Any, y: Any) -> Any:
        return x[0] * y[0], x[0] * y[1] + x[1]

    pair = te.comm_reducer(both, lambda s, t: (tvm.tir.const(1, s), tvm.tir.const(0, t)))
    a, b, k = tensor(4), tensor(4, name="B"), te.reduce_axis((0, 4), "k")
    first, second = te.compute((1,), lambda _: pair((a[k], b[k]), axis=k))
    check(te.compute((1,), lambda i: first[i] + second[i] * 3.0), [a, b])


def test_of_equal_maxima_the_first_counts() -> None:
    a, k, head = tensor(4), te.reduce_axis((0, 4), "k"), te.placeholder((1,), "float64")
    (g,) = te.gradient(te.compute((1,), lambda _: te.max(a[k], axis=k)), a, head)
    np.testing.assert_array_equal(value(g, {a: np.array([1.0, 5.0, 5.0, 2.0]), head: np.ones(1)}), [0, 1, 0, 0])


# --- layers
# -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 0, 2)])
def test_convolutions(stride: int, padding: int, dilation: int) -> None:
    x, w = tensor(1, 2, 6, 6, name="X"), tensor(3, 2, 3, 3, name="W")
    check(topi.nn.conv2d(x, w, stride, padding, dilation), [x, w])


def test_the_gradient_of_a_convolution_sums_over_its_kernel() -> None:
    x, w = tensor(9, 9, name="X"), tensor(3, 3, name="W")
    for stride in (1, 2):
        n, p, q = (9 - 3) // stride + 1, te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
        y = te.compute((n, n), lambda i, j, k=stride, p=p, q=q: te.sum(x[i * k + p, j * k + q] * w[p, q], axis=[p, q]))
        by_x, by_w = check(y, [x, w])
        assert (summed(by_x), summed(by_w)) == ([9], [n * n])


LAYERS: dict[str, tuple[tuple[int, ...], Callable[[te.Tensor], te.Tensor]]] = {
    "softmax": ((2, 5), topi.nn.softmax),
    "log softmax": ((2, 5), topi.nn.log_softmax),
    "relu": ((3, 4), topi.nn.relu),
    "leaky relu": ((3, 4), lambda a: topi.nn.leaky_relu(a, 0.1)),
    "max pool": ((1, 2, 5, 5), lambda a: topi.nn.pool2d(a, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), "max")),
    "average pool": (
        (1, 2, 4, 4), lambda a: topi.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False)
    ),
    "global pool": ((1, 2, 3, 3), lambda a: topi.nn.global_pool(a, "avg")),
    "mean": ((3, 4), lambda a: topi.divide(topi.sum(a, axis=1), 4.0)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    shape, layer = LAYERS[name]
    a = tensor(*shape)
    check(layer(a), [a])


def test_dense_and_what_stands_on_it() -> None:
    x, w, b = tensor(3, 4, name="X"), tensor(5, 4, name="W"), tensor(5, name="B")
    check(topi.tanh(topi.nn.dense(x, w, b)), [x, w, b])


# --- the head
# ---------------------------------------------------------------------------------------------------------------


def test_without_a_head_it_is_the_jacobian() -> None:
    a, b, k = tensor(2, 3), tensor(3, 4, name="B"), te.reduce_axis((0, 3), "k")
    c = te.compute((2, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    by_a, by_b = te.gradient(c, [a, b])
    given = {a: np.arange(6.0).reshape(2, 3), b: np.arange(12.0).reshape(3, 4)}
    np.testing.assert_allclose(value(by_a, given), np.einsum("ix,yj->ijxy", np.eye(2), given[b]))
    np.testing.assert_allclose(value(by_b, given), np.einsum("ix,jy->ijxy", given[a], np.eye(4)))
    assert summed(by_a) == summed(by_b) == []


def test_a_head_may_have_more_dimensions_in_front() -> None:
    a, head = tensor(3), te.placeholder((2, 3), "float64")
    (g,) = te.gradient(te.compute((3,), lambda i: a[i] * a[i]), [a], head)
    x, h = np.array([1.0, 2.0, 3.0]), np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(value(g, {a: x, head: h}), h * 2 * x)


def test_by_itself_and_by_what_it_does_not_depend_on() -> None:
    a, b = tensor(3), tensor(2, name="B")
    c = te.compute((3,), lambda i: a[i] * 2.0)
    by_c, by_b, by_a = te.gradient(c, [c, b, a])
    given = {a: np.arange(3.0), b: np.zeros(2)}
    np.testing.assert_array_equal(value(by_c, given), np.eye(3))
    np.testing.assert_array_equal(value(by_b, given), np.zeros((3, 2)))
    np.testing.assert_array_equal(value(by_a, given), 2 * np.eye(3))


def test_open_sizes_and_native_code() -> None:
    n = te.var("n")
    x, w, r = te.placeholder((n,), name="X"), te.placeholder((3,), name="W"), te.reduce_axis((0, 3), "r")
    y = te.compute((n - 2,), lambda i: te.sum(x[i + r] * w[r], axis=r), name="Y")
    head = te.placeholder((n - 2,), name="head")
    by_x, by_w = te.gradient(y, [x, w], head)
    f = tvm.build(te.create_schedule([by_x.op, by_w.op]), [head, x, w, by_x, by_w], "llvm")
    rng = np.random.default_rng(1)
    h, a, b = (rng.random(k, np.float32) for k in (8, 10, 3))
    got_x, got_w = np.empty(10, np.float32), np.empty(3, np.float32)
    f(h, a, b, got_x, got_w)
    np.testing.assert_allclose(got_x, np.convolve(h, b), rtol=1e-5)
    np.testing.assert_allclose(got_w, np.correlate(a, h, "valid"), rtol=1e-5)


# --- refusals
# ---------------------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    a, whole = tensor(3), te.placeholder((3,), "int32", "N")
    c = te.compute((3,), lambda i: a[i] * 2.0, name="C")
    with pytest.raises(
        CompileError, match="'N' has type int32, but only floating-point values have derivatives; cast it to float32"
    ):
        te.gradient(c, [whole])
    with pytest.raises(CompileError, match=r"the head .* must end with the dimensions of 'C', \[3\]"):
        te.gradient(c, [a], tensor(4, name="H"))
    unknown = te.compute((3,), lambda i: te.call_pure_extern("float64", "cbrt", a[i]), name="D")
    with pytest.raises(
        CompileError,
        match="'cbrt' has no derivative; use only these functions: exp, "
    ):
        te.gradient(unknown, [a])

    def loops(ins: Any, outs: Any) -> Any:
        irb = tvm.tir.ir_builder.create()
        source, target = irb.buffer_ptr(ins[0]), irb.buffer_ptr(outs[0])
        with irb.for_range(0, 3) as i:
            target[i] = source[i]
        return irb.get()

    copied = te.extern((3,), [a], loops, name="E", dtype="float64")
    with pytest.raises(
        CompileError, match="'E' is a ExternOp, which has no derivative, and 'F' depends on it; use te"
    ):
        te.gradient(te.compute((3,), lambda i: copied[i] * 2.0, name="F"), [a])
