"""Sorts, scans, sampling, signals and random numbers: known answers, other implementations, and their public
functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Function, Tuple, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import einsum, image_sampling, nn, reduction, signal, sorting
from tilewright.relay.op.random import ThreefryGenerate
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.visitor import post_order

pytest.importorskip("torch")
import torch

F = torch.nn.functional
Array = np.ndarray[Any, Any]
_random = np.random.default_rng(3)


def real(*shape: int, low: float = -2, high: float = 2) -> Array:
    return _random.uniform(low, high, shape).astype("float32")


def native(op: Op, *inputs: Array) -> Any:
    """The result of one operator, compiled."""
    params = tuple(var(f"x{k}", shape=x.shape, dtype=DataType(x.dtype)) for k, x in enumerate(inputs))
    call = Call(op, [Tuple(params)] if op.variadic else params)
    return build_module(IRModule.from_expr(Function(params, call)), Target("llvm")).executable(threads=2)(*inputs)


def check(op: Op, wanted: Any, *inputs: Array) -> None:
    np.testing.assert_allclose(op.reference(*inputs), wanted.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_grid_sample(method: str, padding: str, align: bool) -> None:
    x, grid = real(2, 3, 5, 6), real(2, 4, 7, 2)
    wanted = F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), method, padding, align)
    check(
        image_sampling.GridSample(method, "NCHW", padding, align), wanted, x,
        np.ascontiguousarray(grid.transpose(0, 3, 1, 2))
    )


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align: bool) -> None:
    for n, shape in ((2, (4, 5)), (3, (2, 3, 4))):
        theta = real(2, n, n + 1)
        wanted = F.affine_grid(torch.from_numpy(theta), [2, 1, *shape], align)
        check(image_sampling.AffineGrid(shape, align), wanted.permute(0, n + 1, *range(1, n + 1)), theta)


@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_stft(normalized: bool, onesided: bool) -> None:
    x, window = real(2, 60), real(12)
    wanted = torch.stft(
        torch.from_numpy(x), 16, 5, 12, torch.from_numpy(window), False, normalized=normalized, onesided=onesided,
        return_complex=True
    )
    check(signal.Stft(16, 5, 12, normalized, onesided), torch.view_as_real(wanted), x, window)


def test_negative_log_likelihood() -> None:
    x, kinds, share = real(3, 5, 4), _random.integers(0, 5, (3, 4)), real(5, low=0.5)
    for how in ("mean", "sum", "none"):
        wanted = F.nll_loss(
            torch.from_numpy(x), torch.from_numpy(kinds), torch.from_numpy(share), ignore_index=2, reduction=how
        )
        check(nn.NllLoss(how, 2), wanted, x, kinds, share)


def test_threefry_known_answers() -> None:
    """The words that the authors' own implementation (Random123) gives for 20 rounds, but for the key that it adds at
    the end: here 5 to the last."""
    zero = np.asarray([0] * 8 + [1 << 63, 0], "uint64")
    wanted = np.asarray([0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B - 5], "uint64")
    np.testing.assert_array_equal(ThreefryGenerate((4,)).reference(zero)[1], wanted)
    np.testing.assert_array_equal(native(ThreefryGenerate((4,)), zero)[1], wanted)


@pytest.mark.parametrize("count", [2, 5])
def test_words_that_are_no_whole_blocks(count: int) -> None:
    state = np.asarray([7, *[0] * 7, 1 << 63, 0], "uint64")
    after, words = ThreefryGenerate((8,)).reference(state)
    for draw in (ThreefryGenerate((count,)).reference, lambda s: native(ThreefryGenerate((count,)), s)):
        new, found = draw(state)
        np.testing.assert_array_equal(found, words[:count])
        assert new[7] == -(-count // 4) * 4 and new[:7].tolist() == after[:7].tolist()


def test_random_functions() -> None:
    key = relay.random.threefry_key(7)
    left, right = (np.asarray(k) for k in evaluate(Function((), relay.random.threefry_split(key))))
    assert not np.array_equal(left, right)
    after, even = evaluate(Function((), relay.random.uniform(key, (4000,), low=-1.0, high=3.0)))
    assert even.min() >= -1
    assert even.max() < 3
    assert abs(even.mean() - 1) < 0.1
    assert not np.array_equal(after, key.value)
    _, bell = evaluate(Function((), relay.random.normal(key, (4000,), "float64", 2.0, 0.5)))
    assert abs(bell.mean() - 2) < 0.05
    assert abs(bell.std() - 0.5) < 0.05
    _, drawn = evaluate(
        Function(
            (), relay.random.multinomial(key, relay.const(np.asarray([0.1, 0.0, 0.9], "float32")), num_samples=1000)
        )
    )
    assert 60 < (drawn == 0).sum() < 140
    assert not (drawn == 1).any()


@pytest.mark.slow
def test_large_sorts_are_stable() -> None:
    x = _random.integers(0, 50, (3, 5000)).astype("int32")
    for up in (True, False):
        for op in (
            sorting.ArgSort(1, up), sorting.TopK(900, 1, is_ascend=up), sorting.Sort(1, up),
            sorting.TopK(9, 1, "indices", up)
        ):
            found, wanted = native(op, x), op.reference(x)
            for f, w in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(f, w)


def test_einsum_becomes_a_matrix_product() -> None:
    a, b = var("a", shape=(2, 3, 4, 5)), var("b", shape=(2, 3, 6, 5))
    call = relay.einsum((a, b), equation="bhid,bhjd->bhij")
    done = optimize(IRModule.from_expr(Function((a, b), call)))
    names = [e.op.name for f in post_order(done["main"].body) if isinstance(f, Call) and isinstance(f.op, Function)
             for e in post_order(f.op.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    assert "nn.batch_matmul" in names
    assert "einsum" not in names
    x, y = real(2, 3, 4, 5), real(2, 3, 6, 5)
    np.testing.assert_allclose(
        native(einsum.Einsum("bhid,bhjd->bhij"), x, y), np.einsum("bhid,bhjd->bhij", x, y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 37), (4, 37, 5), (3, 400)])
def test_what_is_no_number_stays(shape: tuple[int, ...]) -> None:
    x = real(*shape)
    x[_random.random(shape) < 0.04] = np.nan
    for cls in (reduction.Max, reduction.Min, reduction.ArgMax, reduction.ArgMin):
        for axis in (*range(x.ndim), None):
            np.testing.assert_array_equal(native(cls(axis), x), cls(axis).reference(x))
    image = real(1, 2, 9, 11)
    image[_random.random(image.shape) < 0.04] = np.nan
    for op in (nn.MaxPool2d((3,), (2,), padding=(1,)), nn.GlobalMaxPool2d(), nn.AdaptiveMaxPool2d((3, 5))):
        np.testing.assert_array_equal(native(op, image), op.reference(image))


def test_composed_functions() -> None:
    rows, where = real(5, 3), np.asarray([0, 2, 2, 0, 1])
    found = evaluate(Function((), relay.segment_sum(relay.const(rows), relay.const(where), 4)))
    np.testing.assert_allclose(found, np.stack([rows[where == k].sum(0) for k in range(4)]), rtol=1e-6)
    dense = relay.sparse_to_dense(relay.const(np.asarray([1, 3])), (5,), relay.const(np.asarray([2.0, 4.0], "float32")))
    np.testing.assert_array_equal(evaluate(Function((), dense)), [0, 2, 0, 4, 0])
    ones = relay.stft(relay.const(real(20)), n_fft=8)
    assert ones.tensor_type.shape == (1, 5, 7, 2)
    with pytest.raises(tvm.errors.CompileError, match="segment_ids must have one entry for each row of data"):
        relay.segment_sum(relay.const(rows), relay.const(np.asarray([[0]])), 4)


def test_topi_functions_build() -> None:
    data, count = te.placeholder((2, 9), name="data"), te.placeholder((2,), "int32", name="count")
    order = tvm.topi.argsort(data, count, axis=1, is_ascend=False, dtype="int32")
    x, got = real(2, 9), np.zeros((2, 9), np.int32)
    tvm.build(te.create_schedule(order.op), [data, count, order], "llvm")(x, np.asarray([9, 4], np.int32), got)
    np.testing.assert_array_equal(got[0], np.argsort(-x[0], kind="stable"))
    np.testing.assert_array_equal(got[1], [*np.argsort(-x[1, :4], kind="stable"), 4, 5, 6, 7, 8])
    small = te.placeholder((1, 2, 4, 5), name="small")
    big = tvm.topi.image.resize2d(small, None, (8, 10))
    assert big.extents == (1, 2, 8, 10)
    picture, result = real(1, 2, 4, 5), np.zeros((1, 2, 8, 10), np.float32)
    tvm.build(te.create_schedule(big.op), [small, big], "llvm")(picture, result)
    np.testing.assert_allclose(result, relay.op.image.Resize2d((8, 10)).reference(picture), rtol=1e-5, atol=1e-5)
    assert tvm.topi.image.dilation2d_nhwc(
        te.placeholder((1, 7, 8, 5)), te.placeholder((3, 3, 5)), 1, 1, 1
    ).extents == (1, 7, 8, 5)
    for name in dir(tvm.topi):
        assert getattr(tvm.topi, name) is not None
    with pytest.raises(AttributeError, match=r"module 'tilewright.topi' has no attribute 'nonsense'"):
        _ = tvm.topi.nonsense


def test_points_of_a_grid_are_floats() -> None:
    with pytest.raises(ShapeError, match="the grid is int32; it must have a floating-point type"):
        relay.image.grid_sample(relay.var("x", shape=(1, 1, 3, 3)), relay.var("g", shape=(1, 2, 4, 4), dtype="int32"))
