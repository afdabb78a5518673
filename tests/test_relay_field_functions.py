"""Operators as scripts of the field call them: the order of arguments, functions of several operators, sizes known only
when a program runs, and what asking for an operator that was left out says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import TensorType, TupleType
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.nn_sparse import packed
from tilewright.relay.op.registry import OPS
from tilewright.relay.op.unsupported import LEFT_OUT
from tilewright.scalar.expr import UnknownDim

Array = np.ndarray[Any, Any]
X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def value(build: Any, *arrays: Array) -> Any:
    """What the expression that `build` makes of variables gives for `arrays`."""
    params = [var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    return evaluate(Function(tuple(params), build(*params)), *arrays)


def test_a_diagonal_is_set_with_the_arguments_of_the_field() -> None:
    found = value(
        lambda x, d: relay.matrix_set_diag(x, d, k=(-1, 0), align="LEFT_RIGHT"), np.zeros((3, 3), "float32"),
        np.asarray([[1, 2, 3], [9, 4, 5]], "float32")
    )
    np.testing.assert_array_equal(found, [[1, 0, 0], [4, 2, 0], [0, 5, 3]])
    with pytest.raises(CompileError, match="align 'UP' is not supported"):
        relay.matrix_set_diag(var("x", shape=(2, 2)), var("d", shape=(2,)), align="UP")


@pytest.mark.parametrize(("op", "meaning"), [(relay.mod, np.fmod), (relay.floor_mod, np.mod)])
def test_remainders_are_the_same_natively_and_interpreted(op: Any, meaning: np.ufunc) -> None:
    a, b = np.array([1e8, 3e38, 5.3, -5.3, np.inf, 7], np.float32), np.array([7, 1e-3, np.inf, 0.1, 2, 0], np.float32)
    x, y = (var(n, shape=(6,)) for n in "xy")
    function = Function([x, y], op(x, y))
    with np.errstate(invalid="ignore"):
        wanted = meaning(a, b)
    np.testing.assert_array_equal(evaluate(function, a, b), wanted)
    np.testing.assert_array_equal(
        relay.create_executor("graph", mod=IRModule.from_expr(function), target="llvm").evaluate()(a, b).numpy(), wanted
    )


def test_products_of_bits_have_a_row_for_each_of_the_weights() -> None:
    data = var("d", shape=(2, 64), dtype="int16")
    weights, some = (var("w", shape=(n, 64), dtype="int16") for n in (5, relay.Any()))
    types = [
        relay.nn.bitserial_dense(data, weights).tensor_type, relay.nn.bitserial_dense(data, some, units=5).tensor_type
    ]
    types.append(relay.nn.bitserial_dense(data, weights, out_dtype="int32").tensor_type)
    assert [(tuple(t.shape), t.dtype) for t in types] == [((2, 5), "int16"), ((2, 5), "int16"), ((2, 5), "int32")]


def test_positions_are_unravelled_along_a_shape_of_numbers() -> None:
    np.testing.assert_array_equal(
        value(lambda i: relay.unravel_index(i, (3, 4)), np.asarray([0, 5, 11])), [[0, 1, 2], [0, 1, 3]]
    )


def test_mean_with_variance_and_with_deviation() -> None:
    mean, variance = value(lambda x: relay.mean_variance(x, axis=1), X)
    np.testing.assert_allclose(mean, X.mean(1))
    np.testing.assert_allclose(variance, X.var(1))
    mean, deviation = value(lambda x: relay.mean_std(x, axis=(0, 2), keepdims=True), X)
    np.testing.assert_allclose(deviation, X.std((0, 2), keepdims=True), rtol=1e-6)
    assert mean.shape == (1, 3, 1)


def test_reshape_from_the_right() -> None:
    assert value(lambda x: relay.reverse_reshape(x, (-1, 0)), X).shape == (6, 4)
    with pytest.raises(ShapeError, match="not supported in a newshape that is read from the right; use reshape"):
        relay.reverse_reshape(var("x", shape=(2, 3)), (-4, 1, 2, 0))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("avg_pool1d", (2, 3, 5)), ("max_pool1d", (2, 3, 5)), ("avg_pool3d", (1, 2, 3, 4, 5)),
        ("max_pool3d", (1, 2, 3, 4, 5))
    ]
)
def test_global_pools_of_rows_and_volumes(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    axes = tuple(range(2, x.ndim))
    wanted = x.mean(axes, keepdims=True) if name.startswith("avg") else x.max(axes, keepdims=True)
    np.testing.assert_allclose(value(getattr(relay.nn, f"global_{name}"), x), wanted, rtol=1e-5, atol=1e-6)


def test_layers_with_the_arguments_of_the_field() -> None:
    x = var("x", shape=(2, 8))
    assert relay.nn.mirror_pad(x, ((0, 0), (1, 1)), "REFLECT").op == OPS["nn.mirror_pad"]("REFLECT", ((0, 0), (1, 1)))
    assert relay.nn.contrib_dense_pack(x, var("w", shape=(3, 8, 4)), "NK4n", 12).tensor_type.shape == (2, 12)
    bits = relay.nn.bitpack(
        var("b", shape=(2, 64), dtype="int32"), bits=2, pack_axis=1, bit_axis=2, pack_type="uint32", name="packed"
    )
    assert bits.tensor_type.shape == (2, 2, 2)
    grid = relay.meshgrid([var("a", shape=(2,)), var("b", shape=(3,))], indexing="xy").checked_type
    assert isinstance(grid, TupleType)
    first, second = grid.fields
    assert first == second
    assert isinstance(first, TensorType) and first.shape == (3, 2)


def test_a_sparse_matrix_is_three_tensors_or_an_object_that_has_them() -> None:
    dense = np.asarray([[0, 2, 0], [1, 0, 0], [0, 0, 3]], "float32")
    values, columns, starts = packed(dense, (1, 1))
    parts = values.reshape(-1), columns, starts
    scipy = SimpleNamespace(data=parts[0], indices=columns, indptr=starts)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for matrix in (parts, scipy):
        np.testing.assert_array_equal(value(lambda a, m=matrix: relay.nn.sparse_dense(a, m), x), x @ dense.T)
        np.testing.assert_array_equal(value(lambda a, m=matrix: relay.nn.sparse_dense(a, m, True), x), dense @ x.T)
        np.testing.assert_array_equal(value(lambda a, m=matrix: relay.nn.sparse_add(a, m), dense), 2 * dense)
    turned = value(lambda v: relay.nn.sparse_transpose((v, relay.const(columns), relay.const(starts))), parts[0])
    np.testing.assert_array_equal(turned[1], [1, 0, 2])
    with pytest.raises(CompileError, match=r"nn\.sparse_add: a sparse matrix must be"):
        relay.nn.sparse_add(var("x", shape=(2, 2)), 3)


COUNTED: list[tuple[str, tuple[Array, ...]]] = [
    ("argwhere", (np.asarray([[0, 2, 0], [-1, 0, 5]], "float32"),)),
    ("argwhere", (np.zeros((2, 2), bool),)),
    (
        "sparse_fill_empty_rows",
        (
            np.asarray([[0, 1], [0, 3], [2, 0]]), np.asarray([1, 2, 3], "float32"), np.asarray([4, 4]),
            np.asarray(-1, "float32")
        )
    ),
]


@pytest.mark.parametrize(("name", "inputs"), COUNTED)
def test_results_whose_rows_are_counted_when_the_program_runs(name: str, inputs: tuple[Array, ...]) -> None:
    params = [var(f"x{k}", shape=np.shape(a), dtype=str(a.dtype)) for k, a in enumerate(inputs)]
    call: Expr = getattr(relay, name)(*params)
    wanted = OPS[name]().reference(*inputs)
    mod = IRModule.from_expr(Function(tuple(params), call))
    types = getattr(call.checked_type, "fields", (call.checked_type,))
    found = evaluate(mod["main"], *inputs)
    for t, f, w in zip(
        types, found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, tuple) else (wanted,),
        strict=True
    ):
        assert isinstance(t.shape[0], UnknownDim)
        assert t.dtype.numpy() == w.dtype
        np.testing.assert_array_equal(f, w)
    assert_structural_equal(relay.parse(mod.astext()), mod)


def test_empty_rows_are_filled() -> None:
    points, values, empty = OPS["sparse_fill_empty_rows"]().reference(*COUNTED[2][1])
    np.testing.assert_array_equal(points, [[0, 1], [0, 3], [1, 0], [2, 0], [3, 0]])
    np.testing.assert_array_equal(values, [1, 2, -1, 3, -1])
    np.testing.assert_array_equal(empty, [False, True, False, True])


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_an_operator_that_was_left_out_says_why(name: str) -> None:
    assert name not in OPS
    with pytest.raises(CompileError, match="is not supported: "):
        relay.op.get(name)
    # a text may have this one, in another form
    why = "call_lowered takes a function" if name == "call_lowered" else "is not supported: "
    with pytest.raises(CompileError, match=why):
        relay.parse(f'#[version = "0.0.5"]\nfn (%x: Tensor[(2), float32]) {{ {name}(%x) }}')
    assert f"`{name}`" in (Path(__file__).parent.parent / "docs" / "operators.md").read_text(encoding="utf-8")


def test_asking_a_module_for_what_was_left_out() -> None:
    for module, name in (
        (relay.nn, "contrib_conv2d_winograd_weight_transform"), (relay.op.annotation, "bitpack_start"),
        (relay, "call_lowered"),
        (relay.image, "resize"), (relay.qnn.op, "contrib_dense_pack")
    ):
        assert not hasattr(module, name)
        with pytest.raises(CompileError, match="is not supported"):
            getattr(module, name)


V = {n: var(n, shape=s, dtype=d) for n, s, d in (
    ("x", (2, 3, 4), "float32"), ("m", (4, 4), "float32"), ("v", (4,), "float32"), ("i", (4,), "int32"),
    ("image", (1, 3, 8, 8), "float32"), ("k", (2, 3, 3, 3), "float32"),
)}
REFUSED: list[tuple[Any, str]] = [
    (lambda: relay.adv_index([V["m"], V["v"]]), "indices must be integers"),
    (lambda: relay.adv_index([V["m"]]), "0 indices are given for 2 dimensions"),
    (lambda: relay.unravel_index(V["v"], (2, 2)), "indices must be integers"),
    (lambda: relay.sequence_mask(V["x"], V["i"]), "valid_length must have one number for each of the 3"),
    (lambda: relay.sequence_mask(V["x"], V["i"], axis=2), "axis 2 cannot be the time"),
    (lambda: relay.reverse_sequence(V["m"], V["i"], 0, 0), "which must not be seq_axis"),
    (lambda: relay.matrix_set_diag(V["m"], V["v"], 5), "are not all inside matrices of 4 rows"),
    (lambda: relay.matrix_set_diag(V["m"], V["v"], 1), "diagonal must have the shape"),
    (lambda: relay.sliding_window(V["m"], 0, (5, 1), (1, 1)), "a window of 5 does not fit"),
    (lambda: relay.sliding_window(V["m"], 1, (2, 2), (1, 1)), "do not cover the dimensions from 1"),
    (lambda: relay.meshgrid([V["v"], V["m"]]), "meshgrid takes vectors and scalars"),
    (lambda: relay.meshgrid([V["v"]], "ab"), "indexing 'ab' is not supported"),
    (lambda: relay.strided_set(V["m"], V["v"], (0,), (1,)), "the replaced slice has the shape"),
    (lambda: relay.collapse_sum_to(V["m"], (3,)), "cannot be broadcast|cannot be collapsed|do not broadcast"),
    (lambda: relay.nn.mirror_pad(V["m"], ((0, 0), (5, 0))), "can be mirrored by at most 4"),
    (lambda: relay.nn.mirror_pad(V["m"], ((0, 0), (1, 0)), "WRAP"), "mode 'WRAP' is not supported"),
    (lambda: relay.nn.dilate(V["m"], (2,)), "need one number, 1 or more"),
    (lambda: relay.nn.fifo_buffer(V["m"], V["x"], 0), "must have equal shapes except along axis 0"),
    (lambda: relay.nn.correlation(V["image"], V["image"], 2, 1, 1, 1, 0, True, "NCHW"), "the patch 2 odd"),
    (lambda: relay.nn.correlation(V["image"], V["image"], 1, 4, 1, 1, 0, True, "NCHW"), "do not fit into images"),
    (
        lambda: relay.nn.deformable_conv2d(V["image"], V["image"], V["k"]),
        "offset .* must have the batch size 1, 18 channels"
    ),
    (
        lambda: relay.nn.deformable_conv2d(V["image"], V["image"], V["k"], data_layout="NHWC"),
        "layouts NHWC, OIHW and NHWC are not supported"
    ),
    (lambda: relay.nn.bitpack(V["m"]), "integers were expected"),
    (lambda: relay.nn.bitpack(V["i"], pack_axis=0, bit_axis=0), "do not fill words of 32 bits"),
    (lambda: relay.nn.bitpack(V["i"], pack_axis=0, bit_axis=0, pack_type="int8"), "bits cannot be packed in int8"),
    (lambda: relay.nn.contrib_dense_pack(V["m"], V["x"], "NK8n"), "weight_layout NK8n does not match"),
    (lambda: relay.nn.cross_entropy(V["m"], V["x"]), "targets"),
    (lambda: relay.nn.sparse_add(V["m"], (V["v"], V["v"], V["i"])), "are not a sparse matrix without blocks"),
    (
        lambda: relay.fixed_point_multiply_per_axis(V["i"], V["v"], V["i"], V["i"], True, True, (0,)),
        "int32 tensors were expected"
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_does_not_fit_is_refused(build: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        build()


def test_functions_of_operators_have_their_names() -> None:
    assert "max_pool1d" in str(relay.nn.max_pool1d) and relay.nn.max_pool1d.__qualname__ == "max_pool1d"
