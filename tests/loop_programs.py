"""Small loop programs for the tests of the loop passes: what kernels look like before their loops are lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, all_of, as_expr, const, if_then_else, maximum
from tilewright.scalar.intrinsics import fma
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import NUMBERS, Allocate, For, IfThenElse, PrimFunc, Stmt, Store, seq

S, P, V, U = "serial", "parallel", "vectorized", "unrolled"


def loops(*specs: tuple[Var, int, str], body: Stmt) -> Stmt:
    """`body` inside loops from 0, outermost first."""
    for var, extent, kind in reversed(specs):
        body = For(var, as_expr(0), as_expr(extent), kind, body)
    return body


def variables(names: str) -> list[Var]:
    return [Var(n) for n in names.split()]


def outputs(func: PrimFunc, seed: int = 0, size_of_all: int = 5) -> list[np.ndarray]:
    """The arrays after running `func` on random inputs, which depend on the sizes of its parameters only; open sizes
    are `size_of_all`."""
    rng = np.random.default_rng(seed)
    numbers = dict.fromkeys(func.attrs.get(NUMBERS, ()), size_of_all)
    arrays = []
    for b in func.buffers:
        size = int(np.prod([evaluate(as_expr(d), numbers) for d in b.shape]))
        values = rng.integers(-8, 8, size)
        arrays.append(values.astype(b.dtype.numpy()))
    run(func, arrays, numbers)
    return arrays


def same(before: PrimFunc, after: PrimFunc) -> None:
    """Assert that both functions compute the same, for small and smallest sizes where these are open."""
    for size in (5, 2, 1) if NUMBERS in before.attrs else (5,):
        for a, b in zip(outputs(before, size_of_all=size), outputs(after, size_of_all=size), strict=True):
            np.testing.assert_array_equal(a, b)


def conv2d(h: int = 6, w: int = 9, c: int = 3, f: int = 4, k: int = 3, stride: int = 1, pad: int = 1, tile: int = 3,
           kw_kind: str = U, use_fma: bool = False) -> PrimFunc:
    """An NHWC convolution with padding, `tile` columns and all `f` filters at a time, the columns' tail included."""
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    A, W, C = Buffer("A", (h, w, c)), Buffer("W", (k, k, c, f)), Buffer("C", (oh, ow, f))
    acc = Buffer("acc", (tile, f), "float32", "local")
    y, xo, m, n, kh, kw, ci = variables("y xo m n kh kw ci")
    row, col = y * stride + kh - pad, (xo * tile + m) * stride + kw - pad
    inside = all_of(row >= 0, row < h, col >= 0, col < w)
    value = if_then_else(inside, A[row, col, ci], 0.0)
    term = fma(value, W[kh, kw, ci, n], acc[m, n]) if use_fma else acc[m, n] + value * W[kh, kw, ci, n]
    body = seq(
        loops((m, tile, U), (n, f, V), body=Store(acc, const(0, "float32"), (m, n))),
        loops((kh, k, S), (kw, k, kw_kind), (ci, c, S), (m, tile, U), (n, f, V), body=Store(acc, term, (m, n))),
        loops(
            (m, tile, U), (n, f, V),
            body=IfThenElse(xo * tile + m < ow, Store(C, maximum(acc[m, n], 0.0), (y, xo * tile + m, n)))
        ),
    )
    return PrimFunc("conv2d", (A, W, C), loops((y, oh, P), (xo, -(-ow // tile), S), body=Allocate(acc, body)))


def matmul(m: int = 10, n: int = 13, k: int = 5, tile: int = 4, lanes: int = 8, outer: str = P) -> PrimFunc:
    """C = A @ B in tiles of `tile` rows by `lanes` columns, with tails in both."""
    A, B, C = Buffer("A", (m, k)), Buffer("B", (k, n)), Buffer("C", (m, n))
    acc = Buffer("acc", (tile, lanes), "float32", "local")
    mo, no, mi, ni, r = variables("mo no mi ni r")
    i, j = mo * tile + mi, no * lanes + ni
    inside = all_of(i < m, j < n)
    body = seq(
        loops((mi, tile, U), (ni, lanes, V), body=Store(acc, const(0, "float32"), (mi, ni))),
        loops(
            (r, k, S), (mi, tile, U), (ni, lanes, V),
            body=IfThenElse(inside, Store(acc, acc[mi, ni] + A[i, r] * B[r, j], (mi, ni)))
        ),
        loops((mi, tile, U), (ni, lanes, V), body=IfThenElse(inside, Store(C, acc[mi, ni], (i, j)))),
    )
    return PrimFunc(
        "matmul", (A, B, C), loops((mo, -(-m // tile), outer), (no, -(-n // lanes), S), body=Allocate(acc, body))
    )


def max_pool(h: int = 7, w: int = 7, c: int = 5, k: int = 3, stride: int = 2, pad: int = 1) -> PrimFunc:
    """A max pooling with padding over fused rows and columns."""
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    A, C = Buffer("A", (h, w, c)), Buffer("C", (oh, ow, c))
    f, kh, kw, ch = variables("f kh kw ch")
    row, col = f // ow * stride + kh - pad, f % ow * stride + kw - pad
    value = if_then_else(all_of(row >= 0, row < h, col >= 0, col < w), A[row, col, ch], float("-inf"))
    at = (f // ow, f % ow, ch)
    body = seq(
        loops((ch, c, V), body=Store(C, const(float("-inf"), "float32"), at)),
        loops((kh, k, S), (kw, k, S), (ch, c, V), body=Store(C, maximum(Load(C, at), value), at)),
    )
    return PrimFunc("max_pool", (A, C), loops((f, oh * ow, P), body=body))


def transpose(shape: Sequence[int] = (3, 4, 5)) -> PrimFunc:
    """(a, b, c) -> (c, a, b) over one fused loop."""
    a, b, c = shape
    A, C = Buffer("A", (a, b, c), "int32"), Buffer("C", (c, a, b), "int32")
    f, j = variables("f j")
    k, i = f // a, f % a
    return PrimFunc("transpose", (A, C), loops((f, a * c, P), (j, b, V), body=Store(C, A[i, j, k], (k, i, j))))


def fused_add(shape: Sequence[int] = (4, 6, 8), lanes: int = 4) -> PrimFunc:
    """An element-wise sum whose loops were fused and split again."""
    h, w, c = shape
    A, C = Buffer("A", (h, w, c)), Buffer("C", (h, w, c))
    f, j = variables("f j")
    e: PrimExpr = f * lanes + j
    at = (e // c // w, e // c % w, e % c)
    return PrimFunc(
        "fused_add", (A, C), loops((f, h * w * c // lanes, P), (j, lanes, V), body=Store(C, Load(A, at) + 1.0, at))
    )


def pad(n: int = 10, before: int = 3, after: int = 4, lanes: int = 4) -> PrimFunc:
    """Constant padding of a vector, by lanes."""
    total = n + before + after
    A, C = Buffer("A", (n,)), Buffer("C", (total,))
    o, j = variables("o j")
    i = o * lanes + j
    value = if_then_else(all_of(i >= before, i < n + before), A[i - before], 5.0)
    return PrimFunc(
        "pad", (A, C),
        loops((o, -(-total // lanes), S), (j, lanes, V), body=IfThenElse(i < total, Store(C, value, (i,))))
    )


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "conv2d": conv2d,
    "conv2d_stride": lambda: conv2d(stride=2, tile=2),
    "conv2d_serial_kw": lambda: conv2d(kw_kind=S, use_fma=True),
    "conv2d_5x5": lambda: conv2d(h=5, w=7, k=5, pad=2, tile=2, c=1),
    "conv2d_1x1": lambda: conv2d(k=1, pad=0, tile=4),
    "matmul": matmul,
    "matmul_exact": lambda: matmul(8, 16, 3),
    "matmul_serial": lambda: matmul(7, 9, 4, outer=S),
    "max_pool": max_pool,
    "transpose": transpose,
    "fused_add": fused_add,
    "pad": pad,
}
