"""Attention as one kernel, against double precision; where values lie in the memory of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from codegen_native import NATIVE, TARGETS
from tilewright import relay
from tilewright.backends.cpu.strategies import attention
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.compiler.cache import Cache
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import nn
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.strides import strided

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)


def real(*shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def native(op: Op, *inputs: Array, target: Target = NATIVE, threads: int = 2) -> Array:
    params = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(inputs)]
    executable = build_module(
        IRModule.from_expr(relay.Function(tuple(params), Call(op, params))), target
    ).executable(threads=threads)
    return np.asarray(executable(*inputs))


def relative(got: Array, op: nn.Attention, *inputs: Array) -> float:
    exact = op.reference(*(x.astype(np.float64) for x in inputs))
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


SIZES = [
    (1, 1, 1, 1, 1, 1), (2, 13, 29, 3, 20, 9), (1, 197, 197, 2, 64, 64), (1, 5, 300, 2, 16, 33), (1, 530, 517, 1, 8, 8),
    (3, 16, 16, 1, 32, 48)
]
"""Batch, queries, keys, heads, size, width."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_that_fill_no_vector_or_tile(sizes: tuple[int, ...], target: Target) -> None:
    batch, queries, keys, heads, size, width = sizes
    op = nn.Attention(heads=heads, size=size, width=width)
    inputs = real(
        batch, queries, heads * size
    ), real(batch, keys, heads * size), real(batch, keys, heads * width), real(1, heads, keys, queries)
    assert relative(native(op, *inputs, target=target), op, *inputs) < 1e-6


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_halves_are_rounded_at_the_end(sizes: tuple[int, ...]) -> None:
    batch, queries, keys, heads, size, width = sizes
    op = nn.Attention(heads=heads, size=size, width=width)
    shapes = (
        batch, queries, heads * size
    ), (batch, keys, heads * size), (batch, keys, heads * width), (1, heads, keys, queries)
    inputs = tuple(real(*s).astype("float16") for s in shapes)
    assert relative(native(op, *inputs), op, *inputs) < 2**-11


def test_heads_read_where_they_lie() -> None:
    op = nn.Attention(heads=3, size=8, width=8, starts=(0, 24, 48), causal=True)
    packed = real(2, 37, 75)
    assert relative(native(op, packed, packed, packed), op, packed, packed, packed) < 1e-6


@pytest.mark.parametrize("hidden", [-np.inf, -3.4028235e38, -1e4])
def test_masks(hidden: float) -> None:
    """Keys that are hidden weigh nothing; a query from which all are hidden has equal weights, or NaN where the scores
    are all minus infinity."""
    op = nn.Attention(heads=2, size=16, width=16)
    mask = np.where(rng.integers(0, 2, (2, 1, 21, 19)) > 0, 0, hidden).astype("float32")
    mask[:, :, 0] = 0
    mask[1, 0, :, 7] = hidden
    inputs = real(2, 19, 32), real(2, 21, 32), real(2, 21, 32), mask
    with np.errstate(invalid="ignore"):
        got, wanted = native(op, *inputs), op.reference(*inputs)
    assert bool(np.isnan(wanted[1, 7]).all()) == (hidden == -np.inf)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def symbolic(by_query: bool = True) -> tilewright.Model:
    """Attention of two heads for any number of queries and keys, with a mask [s, t or 1] for all heads."""
    wanted: dict[str, tuple[Any, ...]] = {n: (2, size, 16) for n, size in (("q", "t"), ("k", "s"), ("v", "s"))}
    wanted["m"] = ("t" if by_query else 1, "s")
    q, k, v, m = (
        relay.var(name, shape=tuple(relay.Any() if isinstance(d, str) else d for d in shape))
        for name, shape in wanted.items())
    scores = relay.add(relay.multiply(relay.nn.batch_matmul(q, k), relay.const(np.float32(0.25))), m)
    body = relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False)
    return tilewright.compile(relay.Function([q, k, v, m], body), wanted, symbolic=True, cache=Cache(None))


def expected(q: Array, k: Array, v: Array, mask: Array) -> Array:
    scores = q @ k.swapaxes(1, 2) * np.float32(0.25) + mask
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers @ v / powers.sum(axis=-1, keepdims=True))


def hiding(hidden: float, queries: int, keys: int) -> Iterator[Array]:
    """Masks: causal, a window, the last keys, whole queries, at random, and none; one of each is not zero elsewhere."""
    key, query = np.arange(keys), np.arange(queries)[:, None] + keys - queries
    later = key > query
    for where in (
        later, later | (key < query - 40), (key >= keys - keys // 3) | (query < 0), later | (query % 7 == 3),
        later & (query != keys - 1) | (rng.random((queries, keys)) < 0.5), np.zeros((queries, keys), bool),
    ):
        for visible in (0, rng.standard_normal()):
            yield np.where(where, hidden, visible).astype("float32")


@pytest.mark.parametrize("hidden", [-np.inf, -3.4028235e38, -1e4])
def test_blocks_skip_keys_that_their_masks_hide(monkeypatch: pytest.MonkeyPatch, hidden: float) -> None:
    """Results are the same as without skipping, bit for bit, and close to the definition."""
    skipping = symbolic()
    monkeypatch.setattr(attention, "_may_skip", lambda *_: False)
    plain = symbolic()
    assert "limit" in skipping.dump("tir") and "limit" not in plain.dump("tir")
    for queries, keys in ((1, 9), (40, 47), (64, 64), (150, 150), (200, 333)):
        inputs = real(2, queries, 16), real(2, keys, 16), real(2, keys, 16)
        for mask in hiding(hidden, queries, keys):
            got = skipping(*inputs, mask)
            np.testing.assert_array_equal(got, plain(*inputs, mask))
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(got, expected(*inputs, mask), rtol=1e-4, atol=1e-5)


def test_no_key_is_skipped_whose_weight_might_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are infinite, undefined or huge reach the results although a mask hides them."""
    skipping = symbolic()
    monkeypatch.setattr(attention, "_may_skip", lambda *_: False)
    plain = symbolic()
    lowest = float(np.finfo(np.float32).min)
    causal = next(hiding(lowest, 200, 200))
    for bad in (np.nan, np.inf, -np.inf, 3e37, 1e19):
        for argument in range(3):
            inputs = [real(2, 200, 16) for _ in range(3)]
            inputs[argument][1, 190, 3] = bad
            np.testing.assert_array_equal(skipping(*inputs, causal), plain(*inputs, causal))
    inputs = [real(2, 200, 16) for _ in range(3)]
    for other in (np.nan, -5e29, -1e29, -1.0000001e30, np.inf, lowest, -0.0, 1e-45):
        for key in (0, 10, 150, 199):
            mask = causal.copy()
            mask[20, key] = other
            np.testing.assert_array_equal(skipping(*inputs, mask), plain(*inputs, mask))
            mask[20] = np.where(np.arange(200) == key, other, lowest)
            np.testing.assert_array_equal(skipping(*inputs, mask), plain(*inputs, mask))


def test_masks_of_keys_alone_skip_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    skipping = symbolic(by_query=False)
    monkeypatch.setattr(attention, "_may_skip", lambda *_: False)
    plain = symbolic(by_query=False)
    for hidden in (-np.inf, -3.4028235e38):
        inputs = real(2, 150, 16), real(2, 170, 16), real(2, 170, 16)
        for visible in (0, 1, 100, 170):
            mask = np.where(np.arange(170) < visible, 0, hidden).astype("float32")[None]
            np.testing.assert_array_equal(skipping(*inputs, mask), plain(*inputs, mask))


def test_blocks_of_symbolic_sizes_have_two_heights() -> None:
    program = symbolic()
    (versions,) = [k.versions for k in program.report.kernels.values() if "attention" in k.func.name]
    assert len(versions) == 3, "one for few keys, and blocks of one and four vectors of queries"
    for queries, keys in ((3, 5), (16, 20), (17, 9), (48, 50), (49, 7), (90, 91), (130, 33), (144, 200), (161, 170)):
        inputs = real(2, queries, 16), real(2, keys, 16), real(2, keys, 16)
        mask = real(queries, keys)
        np.testing.assert_allclose(program(*inputs, mask), expected(*inputs, mask), rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    op = nn.Attention(heads=1, size=4, width=4, scale=100.0)
    inputs = real(1, 9, 4), real(1, 9, 4), real(1, 9, 4)
    got = native(op, *inputs)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, op.reference(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [33, 64, 197])
def test_long_sums_in_chunks(rows: int) -> None:
    """Depths whose panels do not stay in the second-level cache."""
    for depth, columns in ((2304, 96), (3072, 50), (4096, 16), (3070, 48), (3072, 1)):
        data, weight = real(rows, depth), real(columns, depth)
        x = relay.var("x", shape=data.shape)
        module = IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.nn.dense(x, relay.const(weight)))))
        got = np.asarray(build_module(module, NATIVE).executable(threads=2)(data))
        exact = np.maximum(data.astype("float64") @ weight.T.astype("float64"), 0)
        assert np.linalg.norm(got - exact) < 1e-6 * np.linalg.norm(exact)


MOVED: list[Callable[[Expr], Expr]] = [
    lambda x: relay.transpose(relay.reshape(x, (2, 6, 3, 4)), (0, 2, 1, 3)),
    lambda x: relay.reshape(relay.transpose(relay.reshape(x, (2, 6, 3, 4)), (0, 2, 1, 3)), (6, 6, 4)),
    lambda x: relay.TupleGetItem(
        relay.split(relay.transpose(relay.reshape(x, (2, 6, 3, 2, 2)), (2, 0, 3, 1, 4)), 3), 1
    ),
    lambda x: relay.TupleGetItem(relay.split(x, (4, 8), axis=-1), 2),
    lambda x: relay.strided_slice(x, begin=(0, 2, 4), end=(2, 5, 12)),
    lambda x: relay.strided_slice(relay.reshape(x, (144,)), begin=(12,), end=(96,)),
    lambda x: relay.reshape(relay.transpose(x, (1, 0, 2)), (3, 2, 24)),
    lambda x: relay.reshape(relay.transpose(x, (2, 1, 0)), (16, 9)),
    lambda x: relay.strided_slice(x, begin=(0, 0, 0), end=(2, 6, 12), strides=(1, 2, 1)),
]


@pytest.mark.parametrize("move", MOVED)
def test_where_elements_lie(move: Callable[[Expr], Expr]) -> None:
    x = relay.var("x", shape=(2, 6, 12))
    moved = move(x)
    view = strided(moved)
    memory = np.arange(144.0, dtype="float32")
    base = np.asarray(evaluate(relay.Function((x,), view.base), memory.reshape(2, 6, 12))).ravel()
    index = np.array(view.offset)
    for factors in view.dims:
        axis = np.zeros(1, int)
        for size, stride in factors:
            axis = (axis[:, None] + np.arange(size) * stride).ravel()
        index = index[..., None] + axis
    np.testing.assert_array_equal(base[index], evaluate(relay.Function((x,), moved), memory.reshape(2, 6, 12)))


def test_how_far_a_view_reaches() -> None:
    x = relay.var("x", shape=(2, 6, 12))
    assert [strided(move(x)).base is x for move in MOVED] == [True, True, True, True, True, True, True, False, False]
