"""`topi`'s functions of tensors, built with plain loops and with the schedules for processors, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.base.errors import ShapeError
from tilewright.relay.op import reduction as R
from tilewright.relay.op.registry import get
from topi_cases import Case, case, real, truth, whole
from topi_native import check


def unary() -> list[Case]:
    names = [
        "negative", "abs", "sign", "exp", "erf", "sigmoid", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh",
        "asinh", "floor", "ceil", "trunc", "round"
    ]
    found = [case(n, getattr(topi, n), get(n)().reference, real(3, 7)) for n in names]
    found += [
        case(n, getattr(topi, n), get(n)().reference, real(9, low=0.1, high=4))
        for n in ("log", "log2", "sqrt", "rsqrt")
    ]
    found += [
        case(n, getattr(topi, n), get(n)().reference, real(9, low=-0.9, high=0.9)) for n in ("asin", "acos", "atanh")
    ]
    found += [
        case("acosh", topi.acosh, np.arccosh, real(5, low=1.1, high=4)),
        case("log10", topi.log10, np.log10, real(5, low=0.1, high=9))
    ]
    found += [
        case(f"{n}_of_{x.dtype}", getattr(topi, n), lambda x, n=n: getattr(np, n)(x.astype("float32")), x)
        for n in ("exp", "sqrt", "log10") for x in (np.arange(1, 6), np.asarray([True, True]))
    ]
    found += [
        case("fast_" + n, getattr(topi, "fast_" + n), get(n)().reference, real(7)) for n in ("exp", "tanh", "erf")
    ]
    strange = np.asarray([np.nan, np.inf, -np.inf, 0, -3.5], "float32")
    found += [
        case(n, getattr(topi, n), get(n)().reference, x) for n in ("isnan", "isinf", "isfinite")
        for x in (strange, whole(4))
    ]
    found += [
        case("logical_not", topi.logical_not, np.logical_not, truth(7)),
        case("bitwise_not", topi.bitwise_not, np.bitwise_not, whole(5))
    ]
    found += [
        case("identity", topi.identity, lambda x: x, whole(3, 2)),
        case("clip", lambda x: topi.clip(x, -1, 0.5), lambda x: np.clip(x, -1, 0.5), real(3, 5))
    ]
    found += [case("cast", lambda x: topi.cast(x, "int32"), lambda x: x.astype("int32"), real(9, low=-9, high=9))]
    found += [case("reinterpret", lambda x: topi.reinterpret(x, "int32"), lambda x: x.view("int32"), real(9))]
    found += [
        case(
            "ceil_log2", topi.ceil_log2, lambda x: np.ceil(np.log2(x)).astype("int32"),
            np.asarray([1, 2, 3, 8, 9, 1000], "int32")
        )
    ]
    found += [case("ceil_log2_float", topi.ceil_log2, lambda x: np.ceil(np.log2(x)), real(5, low=0.2, high=90))]
    multiply = get("fixed_point_multiply")
    found += [
        case(
            "fixed_point_multiply", lambda x: topi.fixed_point_multiply(x, 1 << 30, -3),
            multiply(1 << 30, -3).reference, whole(9)
        )
    ]
    return found


def per_axis(x: Any, y: Any, left: Any, right: Any) -> Any:
    product = (x.astype(np.int64) << left[:, None]) * y[:, None]
    total = right[:, None].astype(np.int64) + 31
    return ((product + (1 << (total - 1))) >> total).astype("int32")


def binary() -> list[Case]:
    numbers = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide", "mod", "floor_mod"]
    numbers += ["greater", "less", "equal", "not_equal", "greater_equal", "less_equal"]
    found = [case(n, getattr(topi, n), get(n)().reference, real(3, 1, 5), real(4, 1)) for n in numbers]
    found += [case(n + "_int", getattr(topi, n), get(n)().reference, whole(3, 5), whole(5, low=1)) for n in numbers]
    found += [case("power", topi.power, np.power, real(3, 4, low=0.1), real(4))]
    found += [
        case(n, getattr(topi, n), get(n)().reference, whole(3, 5), whole(5))
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ]
    found += [
        case(n, getattr(topi, n), get(n)().reference, whole(6), whole(6, low=0, high=5))
        for n in ("left_shift", "right_shift")
    ]
    found += [
        case(n, getattr(topi, n), get(n)().reference, truth(3, 5), truth(3, 1))
        for n in ("logical_and", "logical_or", "logical_xor")
    ]
    found += [case("add_number", lambda x: topi.add(x, 1.5), lambda x: x + np.float32(1.5), real(7))]
    found += [case("number_subtract", lambda x: topi.subtract(3, x), lambda x: 3 - x, whole(7))]
    found += [case("left_shift_number", lambda x: topi.left_shift(x, 2), lambda x: x << 2, whole(7))]
    found += [
        case(
            "broadcast_to", lambda x: topi.broadcast_to(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)),
            real(3, 1)
        )
    ]
    found += [case("where", topi.where, np.where, truth(3, 4), real(4), real(3, 1))]
    found += [
        case("elemwise_sum", lambda *xs: topi.elemwise_sum(xs), lambda *xs: sum(xs), *(real(3, 4) for _ in range(3))),
        case("elemwise_sum_of_one", lambda x: topi.elemwise_sum([x]), lambda x: x, real(3, 4))
    ]
    found += [case(
        "fixed_point_multiply_per_axis",
        lambda x, y, a, b: topi.fixed_point_multiply_per_axis(x, y, a, b, True, True, [0]), per_axis,
        whole(3, 5), whole(3, low=1 << 29, high=1 << 30), whole(3, low=0, high=4), whole(3, low=0, high=4),
    )]
    return found


def reductions() -> list[Case]:
    arrays = real(3, 4, 5), real(7, 33)
    found = []
    for name, cls in (
        ("sum", R.Sum), ("prod", R.Prod), ("max", R.Max), ("min", R.Min), ("argmax", R.ArgMax), ("argmin", R.ArgMin)
    ):
        for axis, keep in ((None, False), (-1, True), (0, False)):
            found += [
                case(
                    f"{name}-{axis}-{x.ndim}", lambda x, f=name, a=axis, k=keep: getattr(topi, f)(x, a, k),
                    cls(axis, keep).reference, x
                ) for x in arrays
            ]
    found += [case("sum-several", lambda x: topi.sum(x, axis=(0, 2)), lambda x: x.sum((0, 2)), arrays[0])]
    found += [
        case(
            "argmax-last", lambda x: topi.argmax(x, 0, False, True), R.ArgMax(0, False, False, True).reference,
            whole(9, 3, high=3, low=0)
        )
    ]
    found += [
        case(n, lambda x, n=n: getattr(topi, n)(x, 1), lambda x, n=n: getattr(np, n)(x, axis=1), truth(4, 6))
        for n in ("all", "any")
    ]
    found += [
        case(
            "collapse_sum", lambda x: topi.collapse_sum(x, (4, 1)), lambda x: x.sum((0, 2)).reshape(4, 1), real(3, 4, 5)
        )
    ]
    found += [case("collapse_sum-same", lambda x: topi.collapse_sum(x, (4, 5)), lambda x: x, real(4, 5))]
    return found


def moves() -> list[Case]:
    x = real(3, 4, 5)
    found = [
        case("expand_dims", lambda x: topi.expand_dims(x, 1, 2), lambda x: x.reshape(3, 1, 1, 4, 5), x),
        case(
            "expand_like", lambda a, b: topi.expand_like(a, b, (0, 2)),
            lambda a, b: np.broadcast_to(a[None, :, None], b.shape), real(4), x
        ),
        case("transpose", lambda x: topi.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), x),
        case("transpose-all", topi.transpose, np.transpose, x),
        case("flip", lambda x: topi.flip(x, 1), lambda x: x[:, ::-1], x),
        case("squeeze", topi.squeeze, np.squeeze, real(1, 3, 1)),
        case("reshape", lambda x: topi.reshape(x, (6, -1)), lambda x: x.reshape(6, -1), x),
        case("strided_slice", lambda x: topi.strided_slice(x, [0, 3], [3, 0], [2, -1]), lambda x: x[0:3:2, 3:0:-1], x),
        case(
            "strided_slice-size", lambda x: topi.strided_slice(x, [1], [2], axes=[2], slice_mode="size"),
            lambda x: x[..., 1:3], x
        ),
        case(
            "concatenate", lambda *xs: topi.concatenate(xs, 1), lambda *xs: np.concatenate(xs, 1), real(2, 3),
            real(2, 5), real(2, 1)
        ),
        case("stack", lambda *xs: topi.stack(xs, -1), lambda *xs: np.stack(xs, -1), real(2, 3), real(2, 3)),
        case("split", lambda x: topi.split(x, 2, 1), lambda x: np.split(x, 2, 1), x),
        case("split-at", lambda x: topi.split(x, (1, 3), 2), lambda x: np.split(x, (1, 3), 2), x),
        case("repeat", lambda x: topi.repeat(x, 2, 1), lambda x: np.repeat(x, 2, 1), x),
        case("tile", lambda x: topi.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1)), real(3, 2)),
        case(
            "layout_transform", lambda x: topi.layout_transform(x, "NCHW", "NCHW4c"),
            lambda x: x.reshape(1, 2, 4, 3, 2).transpose(0, 1, 3, 4, 2), real(1, 8, 3, 2)
        ),
        case("matmul", topi.matmul, np.matmul, real(5, 7), real(7, 9)),
        case("matmul-ab", lambda a, b: topi.matmul(a, b, True, True), lambda a, b: a.T @ b.T, real(7, 5), real(9, 7)),
        case(
            "tensordot", lambda a, b: topi.tensordot(a, b, 2), lambda a, b: np.tensordot(a, b, 2), real(2, 3, 4),
            real(3, 4, 5)
        ),
        case(
            "tensordot-axes", lambda a, b: topi.tensordot(a, b, ((2, 0), (0, 2))),
            lambda a, b: np.tensordot(a, b, ((2, 0), (0, 2))), real(2, 3, 4), real(4, 5, 2)
        ),
        case("trilu", lambda x: topi.trilu(x, 1, True), lambda x: np.triu(x, 1), real(2, 4, 5)),
        case("trilu-low", lambda x: topi.trilu(x, -1, False), lambda x: np.tril(x, -1), real(4, 4)),
        case("meshgrid", lambda a, b: topi.meshgrid([a, b], "xy"), np.meshgrid, real(3), real(4)),
        case(
            "meshgrid-ij", lambda a, b: topi.meshgrid([a, b], "ij"), lambda a, b: np.meshgrid(a, b, indexing="ij"),
            real(3), real(4)
        ),
        case(
            "sliding_window", lambda x: topi.sliding_window(x, 1, (2, 3), (1, 2)),
            lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))[:, :, ::2], real(2, 5, 7)
        ),
    ]

    def put(a: Any, v: Any) -> Any:
        a = a.copy()
        a[0:3:2, 4:0:-2] = v
        return a

    def backward(a: Any, n: Any) -> Any:
        return np.stack([np.concatenate([row[:k][::-1], row[k:]]) for row, k in zip(a, n, strict=True)])

    found += [
        case("strided_slice_none", lambda x: topi.strided_slice(x, [None, None], [None, None], [-2, 1]),
             lambda x: x[::-2], real(4, 5)),
        case("strided_set", lambda a, v: topi.strided_set(a, v, [0, 4], [3, 0], [2, -2]), put, real(4, 5), real(2, 2))
    ]
    found += [case("reverse_sequence", topi.reverse_sequence, backward, real(3, 5, 2), np.asarray([2, 5, 1], "int32"))]
    return found


def diagonal(data: Any, d: Any, k: tuple[int, int], align: str) -> Any:
    data = data.copy()
    rows, columns = data.shape[-2:]
    for row, offset in enumerate(range(k[1], k[0] - 1, -1)):
        length = min(rows + min(offset, 0), columns - max(offset, 0))
        right = align.split("_")[0 if offset >= 0 else 1] == "RIGHT"
        for n in range(length):
            place = n + (d.shape[-1] - length if right else 0)
            data[..., n + max(-offset, 0), n + max(offset, 0)] = d[..., row, place]
    return data


def lookups() -> list[Case]:
    where, x = whole(2, 3, low=0, high=4), real(4, 5)
    found = [
        case("full", lambda: topi.full((2, 3), "float32", 2.5), np.full((2, 3), 2.5, "float32")),
        case("full_like", lambda x: topi.full_like(x, 3), lambda x: np.full_like(x, 3), x),
        case("arange", lambda: topi.arange(1, 8, 3, "int32"), np.arange(1, 8, 3, dtype="int32")),
        case("arange-stop", lambda: topi.arange(4), np.arange(4, dtype="float32")),
        case("shape", topi.shape, np.asarray([4, 5], "int32"), x),
        case("ndarray_size", topi.ndarray_size, np.asarray(20, "int32"), x),
        case("take", lambda x, i: topi.take(x, i, 0), lambda x, i: x[i], x, where),
        case("take-flat", topi.take, np.take, x, where),
        case(
            "take-wrap", lambda x, i: topi.take(x, i, 1, mode="wrap"), lambda x, i: np.take(x, i, 1, mode="wrap"), x,
            whole(6)
        ),
        case(
            "gather", lambda x, i: topi.gather(x, 1, i), lambda x, i: np.take_along_axis(x, i, 1), x,
            whole(4, 2, low=0, high=5)
        ),
        case("gather_nd", topi.gather_nd, lambda x, i: x[i[0], i[1]], x, whole(2, 3, low=0, high=4)),
        case(
            "adv_index", lambda x, i, j: topi.adv_index(x, [i, j]), lambda x, i, j: x[i, j], real(4, 5, 2),
            whole(3, 1, low=-4, high=4), whole(2, low=0, high=5)
        ),
        case(
            "one_hot", lambda i: topi.one_hot(i, 2.0, -1.0, 5, -1, "float32"),
            lambda i: np.where(np.eye(5)[i] > 0, 2, -1).astype("float32"), where
        ),
        case(
            "unravel_index", lambda i: topi.unravel_index(i, (2, 3, 4)),
            lambda i: np.stack(np.unravel_index(i, (2, 3, 4))).astype("int32"), whole(6, low=0, high=24)
        ),
        case(
            "unravel_index-shape", topi.unravel_index, lambda i, s: np.stack(np.unravel_index(i, s)).astype("int32"),
            whole(6, low=0, high=24), np.asarray([4, 6], "int32")
        ),
        case(
            "sequence_mask", lambda x, n: topi.sequence_mask(x, n, -1),
            lambda x, n: np.where(np.arange(5)[:, None, None] < n[None, :, None], x, -1), real(5, 3, 2),
            np.asarray([2, 5, 0], "int32")
        ),
        case(
            "sequence_mask-1", lambda x, n: topi.sequence_mask(x, n, 0, 1),
            lambda x, n: np.where(np.arange(5) < n[:, None], x, 0), real(3, 5), np.asarray([2, 5, 0], "int32")
        ),
        case(
            "matrix_set_diag", topi.matrix_set_diag, lambda x, d: diagonal(x, d[..., None, :], (0, 0), "LEFT_LEFT"),
            real(2, 3, 4), real(2, 3)
        ),
    ]
    for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        found.append(
            case(
                f"matrix_set_diag-{align}", lambda x, d, a=align: topi.matrix_set_diag(x, d, (-1, 2), a),
                lambda x, d, a=align: diagonal(x, d, (-1, 2), a), real(2, 3, 5), real(2, 4, 3)
            )
        )
    return found


CASES = [*unary(), *binary(), *reductions(), *moves(), *lookups()]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_functions_equal_numpy(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "begin, end, strides",
    [((0, 1, 2), (4, 4, 6), (2, 1, 2)), ((3, -1, 0), (0, 0, 2), (-2, -2, 1)), ((-4, 0, 1), (9, 9, 9), (1, 2, 3))]
)
def test_strided_set_at_places_that_are_tensors(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    numbers = np.random.default_rng(0)
    data = numbers.standard_normal((4, 5, 6)).astype("float32")
    want = data.copy()
    part = want[tuple(slice(*p) for p in zip(begin, end, strides, strict=True))]
    values = numbers.standard_normal(part.shape).astype("float32")
    part[...] = values
    a, v = te.placeholder(data.shape, name="a"), te.placeholder(values.shape, name="v")
    places = [te.placeholder((3,), dtype="int64", name=n) for n in ("begin", "end", "strides")]
    out = topi.strided_set(a, v, *places)
    got = np.zeros_like(data)
    tvm.build(te.create_schedule(out.op), [a, v, *places, out], target="llvm")(
        data, values, *(np.array(p, "int64") for p in (begin, end, strides)), got
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "begin, end, strides",
    [((1, 1, 0), (2, 3, 6), (1,)), ((3, 1), (0,), (-1,)), ((), (4, 4), (2, -1, -3)), ((2,), (), ())]
)
def test_strided_set_with_fewer_places_than_dimensions(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    data = np.arange(120, dtype="float32").reshape(4, 5, 6)
    want = data.copy()
    padded = [(*x, *[None] * (3 - len(x))) for x in (begin, end, strides)]
    part = want[tuple(slice(*p) for p in zip(*padded, strict=True))]
    values = -1 - np.arange(part.size, dtype="float32").reshape(part.shape)
    part[...] = values
    a, v = te.placeholder(data.shape, name="a"), te.placeholder(values.shape, name="v")
    places: list[Any] = [te.placeholder((len(x),), dtype="int64", name=n) if x else [] for n, x in (
        ("begin", begin), ("end", end), ("strides", strides))]
    out = topi.strided_set(a, v, *places)
    vectors = [(t, np.array(x, "int64")) for t, x in zip(places, (begin, end, strides), strict=True) if x]
    got = np.zeros_like(data)
    tvm.build(te.create_schedule(out.op), [a, v, *(t for t, _ in vectors), out], target="llvm")(
        data, values, *(x for _, x in vectors), got
    )
    np.testing.assert_array_equal(got, want)


def test_a_tensor_is_no_sequence() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(te.placeholder((3,), name="a"))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "begin, end, strides",
    [((0, 1, 2), (4, 4, 6), (2, 1, 2)), ((3, -1, 0), (0, 0, 2), (-2, -2, 1)), ((-4, 0, 1), (9, 9, 9), (1, 2, 3))]
)
def test_slices_at_places_that_are_tensors(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    data = np.random.default_rng(0).standard_normal((4, 5, 6)).astype("float32")
    want = data[tuple(slice(*p) for p in zip(begin, end, strides, strict=True))]
    a = te.placeholder(data.shape, name="a")
    places = [te.placeholder((3,), dtype="int64", name=n) for n in ("begin", "end", "strides")]
    out = topi.strided_slice(a, *places) + 1.0
    got = np.zeros(want.shape, "float32")
    tvm.build(te.create_schedule(out.op), [a, *places, out], target="llvm")(
        data, *(np.array(p, "int64") for p in (begin, end, strides)), got
    )
    np.testing.assert_array_equal(got, want + 1)


@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 3, 4)])
def test_positions_of_elements_that_are_not_zero(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).integers(0, 2, shape).astype("int32")
    want = np.argwhere(data)
    n = te.var("n")
    rows, x = te.placeholder((n, len(shape)), "int32", name="rows"), te.placeholder(shape, "int32", name="x")
    y = topi.argwhere(rows, x)
    function = tvm.build(topi.generic.schedule_argwhere(y), [rows, x, y], "llvm")
    for count in (len(want), len(want) - 1, len(want) + 1):
        got = np.zeros((count, len(shape)), "int32")
        function(got.copy(), data, got)
        np.testing.assert_array_equal(got[: len(want)], want[:count])
        assert (got[len(want):] == -1).all()
    with pytest.raises(ShapeError, match="have the shape"):
        topi.argwhere(te.placeholder((3, 9), "int32"), x)


def test_casts_of_tensors() -> None:
    x = te.placeholder((3,), "float32", name="x")
    y = x.astype("int32")
    got = np.zeros(3, "int32")
    tvm.build(te.create_schedule(y.op), [x, y], "llvm")(np.asarray([1.5, -1.5, 3], "float32"), got)
    assert got.tolist() == [1, -1, 3]


def test_sparse_tensors_without_a_default() -> None:
    where, values = te.placeholder((2, 2), "int32", name="where"), te.placeholder((2,), "float32", name="values")
    for default, rest in (((), 0), ((4,), 4)):
        y = topi.sparse_to_dense(where, (2, 3), values, *default)
        got = np.zeros((2, 3), "float32")
        tvm.build(te.create_schedule(y.op), [where, values, y], "llvm")(
            np.asarray([[0, 1], [1, 2]], "int32"), np.asarray([5, 6], "float32"), got)
        np.testing.assert_array_equal(got, [[rest, 5, rest], [rest, rest, 6]])


def test_both_results_of_topk_are_a_list() -> None:
    x = te.placeholder((3, 5), name="x")
    assert isinstance(topi.topk(x, 2), list)
    assert isinstance(topi.topk(x, 2, ret_type="values"), te.Tensor)


@pytest.mark.parametrize("count", [1, 4])
def test_simulated_quantization_with_a_symbolic_number_of_scales(count: int) -> None:
    size = te.var("size")
    x, scale = te.placeholder((2, 4), name="x"), te.placeholder((size,), name="scale")
    y = topi.nn.simulated_quantize(x, "int8", scale, None)
    z = topi.nn.simulated_dequantize(y, "int8", scale, None)
    function = tvm.build(te.create_schedule(z.op), [x, scale, z], "llvm")
    values = np.linspace(-3, 3, 8, dtype="float32").reshape(2, 4)
    scales = np.array([0.5, 0.25, 1, 2], "float32")[:count]
    found = np.zeros_like(values)
    function(values, scales, found)
    np.testing.assert_allclose(found, np.rint(values / scales) * scales, atol=1e-6)
