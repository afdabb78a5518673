"""Kernels without a template: plain loops, the best schedule written by hand, and what the template-free search finds.

    python benchmarks/tuned_kernels.py                       # all four, 96 trials each
    python benchmarks/tuned_kernels.py conv3d --trials 200 --records tuned.json

A schedule by hand is a function of a few sizes, of which all combinations below are timed and the best counts. All
answers are compared with those of the plain loops first; then plain, hand, search (and the library's kernel, for the
matrix product) are timed in turn, so that what else the machine does falls on all of them. The figure is the median of
the rounds, behind it their quartiles.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, topi
from tilewright.scalar.expr import const, maximum
from tilewright.search import auto_scheduler
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Tensor

Hand = Callable[..., tuple[Schedule, list[Tensor]]]


@auto_scheduler.register_workload
def matmul(n: int) -> list[Tensor]:
    a, b, k = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B"), te.reduce_axis((0, n), "k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


@auto_scheduler.register_workload
def depthwise(size: int, channels: int) -> list[Tensor]:
    """5x5 with stride 3, channels last, padded by 2."""
    x, w = te.placeholder((size, size, channels), name="X"), te.placeholder((5, 5, channels), name="W")
    a, b, out = te.reduce_axis((0, 5), "a"), te.reduce_axis((0, 5), "b"), (size - 1) // 3 + 1
    padded = te.compute(
        (size + 4, size + 4, channels),
        lambda y, z, c: te.if_then_else(te.all(y >= 2, y < size + 2, z >= 2, z < size + 2), x[y - 2, z - 2, c], 0.0),
        name="P",
    )
    return [
        x, w,
        te.compute(
            (out, out, channels), lambda y, z, c: te.sum(padded[y * 3 + a, z * 3 + b, c] * w[a, b, c], axis=[a, b]),
            name="D"
        )
    ]


@auto_scheduler.register_workload
def conv3d(size: int, inputs: int, outputs: int) -> list[Tensor]:
    """3x3x3, channels last, without padding."""
    x, w = te.placeholder(
        (size + 2, size + 2, size + 2, inputs), name="X"
    ), te.placeholder((3, 3, 3, inputs, outputs), name="W")
    a, b, c, r = (te.reduce_axis((0, n), v) for n, v in ((3, "a"), (3, "b"), (3, "c"), (inputs, "r")))
    return [
        x, w,
        te.compute(
            (size, size, size, outputs),
            lambda z, y, q, o: te.sum(x[z + a, y + b, q + c, r] * w[a, b, c, r, o], axis=[a, b, c, r]), name="C"
        )
    ]


@auto_scheduler.register_workload
def attention(heads: int, n: int, depth: int) -> list[Tensor]:
    """Softmax of relu(Q K) + 1 times V: an activation before the softmax, keys stored transposed."""
    q, k, v = te.placeholder(
        (heads, n, depth), name="Q"
    ), te.placeholder((heads, depth, n), name="K"), te.placeholder((heads, n, depth), name="V")
    r, j1, j2, j3 = (te.reduce_axis((0, e), name) for e, name in ((depth, "r"), (n, "j1"), (n, "j2"), (n, "j3")))
    s = te.compute((heads, n, n), lambda b, i, j: te.sum(q[b, i, r] * k[b, r, j], axis=r), name="S")
    t = te.compute((heads, n, n), lambda b, i, j: maximum(s[b, i, j], const(0.0, "float32")) + 1.0, name="T")
    m = te.compute((heads, n), lambda b, i: te.max(t[b, i, j1], axis=j1), name="M")
    e = te.compute((heads, n, n), lambda b, i, j: te.exp(t[b, i, j] - m[b, i]), name="E")
    total = te.compute((heads, n), lambda b, i: te.sum(e[b, i, j2], axis=j2), name="L")
    o = te.compute((heads, n, depth), lambda b, i, d: te.sum(e[b, i, j3] * v[b, j3, d], axis=j3), name="O")
    return [q, k, v, te.compute((heads, n, depth), lambda b, i, d: o[b, i, d] / total[b, i], name="R")]


# Schedules by hand.
def tile_in_registers(
    s: Schedule, stage: Any, spatial: list[Any], depth: list[Any], lanes: int, unroll: int = 1
) -> None:
    """A sum for one tile: reductions outside, the tile written out, lanes along its last axis."""
    vector, lane = s[stage].split(spatial[-1], factor=lanes)
    outer, inner = (s[stage].split(depth[-1], factor=unroll)) if unroll > 1 else (depth[-1], None)
    s[stage].reorder(*depth[:-1], outer, *([inner] if inner is not None else []), *spatial[:-1], vector, lane)
    for v in (*([inner] if inner is not None else []), *spatial[:-1], vector):
        s[stage].unroll(v)
    s[stage].vectorize(lane)


def matmul_by_hand(n: int, rows: int, columns: int, unroll: int, packed: bool) -> tuple[Schedule, list[Tensor]]:
    args = matmul(n)
    _, b, c = args
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    copy = s.cache_read(b, "global", [local]) if packed else None
    i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=rows)
    jo, ji = s[c].split(j, factor=columns)
    jv, jl = s[c].split(ji, factor=16)
    s[c].reorder(jo, io, ii, jv, jl)
    s[c].unroll(ii)
    s[c].unroll(jv)
    s[c].vectorize(jl)
    s[c].parallel(jo)
    if copy is not None:
        s[copy].compute_at(s[c], jo)
        s[copy].vectorize(s[copy].split(s[copy].op.axis[1], factor=16)[1])
    s[local].compute_at(s[c], io)
    tile_in_registers(s, local, list(s[local].op.axis), list(s[local].op.reduce_axis), 16, unroll)
    return s, args


def depthwise_by_hand(
    size: int, channels: int, across: int, vectors: int, padded_inside: bool
) -> tuple[Schedule, list[Tensor]]:
    args = depthwise(size, channels)
    d = args[-1]
    p = next(t for t in d.op.inputs if t.name == "P")
    s = te.create_schedule(d.op)
    local = s.cache_write(d, "local")
    y, x, c = s[d].op.axis
    xo, xi = s[d].split(x, factor=across)
    co, ci = s[d].split(c, factor=16 * vectors)
    cv, cl = s[d].split(ci, factor=16)
    s[d].reorder(y, co, xo, xi, cv, cl)
    s[d].unroll(xi)
    s[d].unroll(cv)
    s[d].vectorize(cl)
    s[d].parallel(y)
    s[p].vectorize(s[p].split(s[p].op.axis[2], factor=16)[1])
    if padded_inside:
        s[p].compute_at(s[d], y)
    else:
        s[p].parallel(s[p].op.axis[0])
    s[local].compute_at(s[d], xo)
    tile_in_registers(s, local, list(s[local].op.axis), list(s[local].op.reduce_axis), 16)
    return s, args


def conv3d_by_hand(
    size: int, inputs: int, outputs: int, across: int, vectors: int, unroll: int
) -> tuple[Schedule, list[Tensor]]:
    args = conv3d(size, inputs, outputs)
    c = args[-1]
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    z, y, x, o = s[c].op.axis
    xo, xi = s[c].split(x, factor=across)
    oo, oi = s[c].split(o, factor=16 * vectors)
    ov, ol = s[c].split(oi, factor=16)
    s[c].reorder(z, oo, y, xo, xi, ov, ol)
    s[c].unroll(xi)
    s[c].unroll(ov)
    s[c].vectorize(ol)
    s[c].parallel(z)
    s[local].compute_at(s[c], xo)
    tile_in_registers(s, local, list(s[local].op.axis), list(s[local].op.reduce_axis), 16, unroll)
    return s, args


def attention_by_hand(
    heads: int, n: int, depth: int, block: int, rows: int, vectors: int
) -> tuple[Schedule, list[Tensor]]:
    args = attention(heads, n, depth)
    r = args[-1]
    o, total = r.op.inputs
    e = next(t for t in total.op.inputs)
    t, m = e.op.inputs
    (scores,) = t.op.inputs
    s = te.create_schedule(r.op)
    s[t].compute_inline()
    inner = s.cache_write(scores, "local")
    b, i, d = s[r].op.axis
    io, rest = s[r].split(i, factor=block)
    im, ii = s[r].split(rest, factor=rows)
    do, di = s[r].split(d, factor=16 * vectors)
    dv, dl = s[r].split(di, factor=16)
    s[r].reorder(b, io, im, do, ii, dv, dl)
    for v in (ii, dv):
        s[r].unroll(v)
    s[r].vectorize(dl)
    around = s[r].fuse(b, io)
    s[r].parallel(around)
    for stage in (scores, m, e, total):
        s[stage].compute_at(s[r], around)
    s[o].compute_at(s[r], do)
    s[o].set_scope("local")
    tile_in_registers(s, o, list(s[o].op.axis), list(s[o].op.reduce_axis), 16)
    for stage in (m, total):
        s[stage].vectorize(s[stage].split(s[stage].op.reduce_axis[0], factor=16)[1])
    s[e].vectorize(s[e].split(s[e].op.axis[2], factor=16)[1])
    _, si, sj = s[scores].op.axis
    sio, sii = s[scores].split(si, factor=rows)
    sjo, sji = s[scores].split(sj, factor=16 * vectors)
    sjv, sjl = s[scores].split(sji, factor=16)
    s[scores].reorder(sio, sjo, sii, sjv, sjl)
    for v in (sii, sjv):
        s[scores].unroll(v)
    s[scores].vectorize(sjl)
    s[inner].compute_at(s[scores], sjo)
    tile_in_registers(s, inner, list(s[inner].op.axis), list(s[inner].op.reduce_axis), 16)
    return s, args


KERNELS: dict[str, tuple[Callable[..., list[Tensor]], tuple[int, ...], Hand, tuple[tuple[Any, ...], ...]]] = {
    "matmul": (matmul, (512,), matmul_by_hand, ((6, 8, 12, 14), (32, 64), (1, 4), (True, False))),
    "depthwise": (depthwise, (57, 96), depthwise_by_hand, ((1, 4, 7, 10), (1, 2, 3), (True, False))),
    "conv3d": (conv3d, (14, 32, 64), conv3d_by_hand, ((7, 14), (1, 2, 4), (1, 2))),
    "attention": (attention, (8, 128, 64), attention_by_hand, ((8, 16, 32, 64), (4, 8), (2, 4))),
}


def library(name: str, args: tuple[int, ...]) -> Any:
    """The kernel of the library for the same computation, where it has one."""
    if name != "matmul":
        return None
    (n,) = args
    with tvm.target.Target("llvm"):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        c = topi.matmul(a, b)
        return tvm.build(topi.x86.schedule_dense([c]), [a, b, c], "llvm")


def by_hand(
    hand: Hand, args: tuple[int, ...], grid: tuple[tuple[Any, ...], ...], data: list[Any], answer: Any
) -> Iterator[tuple[float, tuple[Any, ...], Any]]:
    for sizes in itertools.product(*grid):
        schedule, tensors = hand(*args, *sizes)
        function = tvm.build(schedule, tensors, "llvm")
        yield seconds(function, right(function, data, answer, f"by hand {sizes}")), sizes, function


def right(function: Any, data: list[Any], answer: Any, what: str) -> list[Any]:
    """The arrays of a call, after its answer was compared."""
    given = [tvm.nd.array(a) for a in data]
    function(*given)
    np.testing.assert_allclose(given[-1].numpy(), answer, rtol=1e-3, atol=1e-3, err_msg=what)
    return given


def seconds(function: Any, given: list[Any]) -> float:
    return float(min(function.time_evaluator("__tvm_main__", number=1, repeat=5, min_repeat_ms=2)(*given).results))


def compare(name: str, trials: int, records: str, rounds: int) -> None:
    make, args, hand, grid = KERNELS[name]
    tensors = make(*args)
    numbers = np.random.default_rng(0)
    data = [numbers.random(t.extents, np.float32) - 0.5 for t in tensors]
    plain = tvm.build(te.create_schedule(tensors[-1].op), tensors, "llvm")
    first = [tvm.nd.array(a) for a in data]
    plain(*first)
    answer = first[-1].numpy()
    _, sizes, best = min(by_hand(hand, args, grid, data, answer), key=lambda x: x[0])

    task = auto_scheduler.SearchTask(func=make, args=args, target="llvm")
    if trials:
        policy = auto_scheduler.SketchPolicy(
            task, seed=0,
            init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(records)] if Path(records).exists() else None
        )
        task.tune(auto_scheduler.TuningOptions(
            trials, num_measures_per_round=32, runner=auto_scheduler.LocalRunner(number=1, repeat=3, min_repeat_ms=5),
            measure_callbacks=[auto_scheduler.RecordToFile(records)], verbose=1,
        ), policy)
    schedule, found_args = task.apply_best(records)
    found = tvm.build(schedule, found_args, "llvm")
    entries = {"plain": plain, "hand": best, "search": found}
    kernel = library(name, args)
    if kernel is not None:
        entries["library"] = kernel
    given = {k: right(f, data, answer, k) for k, f in entries.items()}
    times: dict[str, list[float]] = {k: [] for k in entries}
    for _ in range(rounds):
        for k, f in entries.items():
            times[k].append(seconds(f, given[k]))
    for k, t in times.items():
        low, middle, high = statistics.quantiles(t, n=4)
        rate = task.compute_dag.flop_ct / middle / 1e9
        print(
            f"{name:<10} {k:<8} {middle * 1e3:9.4f} ms  ({low * 1e3:.4f} … {high * 1e3:.4f})  {rate:8.1f} GFLOPS"
            + (f"  sizes {sizes}" if k == "hand" else "")
        )
    medians = {k: statistics.median(t) for k, t in times.items()}
    line = (
        f"{name:<10} search is {medians['plain'] / medians['search']:.1f} times as fast as plain loops, "
        f"{medians['hand'] / medians['search']:.2f} of the speed of the hand's"
    )
    print(
        line + (f", {medians['library'] / medians['search']:.2f} of the library's" if kernel is not None else ""),
        flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=list(KERNELS), help=", ".join(KERNELS))
    parser.add_argument(
        "--trials", type=int, default=96, help="measured candidates of each kernel; 0: take the records as they are"
    )
    parser.add_argument(
        "--records", default="tuned_kernels.json", help="where results are kept, and read from when there are some"
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in options.kernels:
        compare(name, options.trials, options.records, options.rounds)


if __name__ == "__main__":
    main()
