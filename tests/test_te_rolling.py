"""Windows over values that are computed in the loops of their readers, and keep in rings what the next trip reads
again."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import ROLLING, For, PrimFunc, walk_stmt
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.lower_blocks import lower_blocks

pytestmark = pytest.mark.slow
NOTHING_KEPT = (
    "does not overlap that of the next iteration along one dimension|has its own loop nest|is vectorized, but a rolling"
)


def windows(seed: int) -> tuple[te.Schedule, list[te.Tensor], list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Windows of a doubled value, summed up, and windows of those sums: some of the values roll along random loops."""
    choose = random.Random(seed)
    h, w, kh, kw, step = (
        choose.randrange(9, 14), choose.randrange(9, 14), choose.randrange(1, 4), choose.randrange(1, 4),
        choose.randrange(1, 3)
    )
    a = te.placeholder((h, w), name="A")
    double = te.compute((h, w), lambda i, j: a[i, j] * 2.0, name="double")
    y, x = te.reduce_axis((0, kh), "y"), te.reduce_axis((0, kw), "x")
    rows, columns = (h - kh) // step + 1, (w - kw) // step + 1
    sums = te.compute(
        (rows, columns), lambda i, j: te.sum(double[i * step + y.var, j * step + x.var], axis=[y, x]), name="sums"
    )
    out = te.compute((rows - 2, columns), lambda i, j: sums[i, j] + sums[i + 2, j], name="out")
    s = te.create_schedule(out.op)
    for value, user in ((sums, out), (double, sums)):
        leaf = list(s[user].op.axis)
        for k in range(2):
            if choose.random() < 0.4:
                leaf[k : k + 1] = s[user].split(leaf[k], choose.randrange(1, 5))
        s[value].compute_at(s[user], choose.choice([v for v in leaf if v in s[user].leaf_iter_vars]))
        if choose.random() < 0.6:
            s[value].rolling_buffer()
        elif choose.random() < 0.6:
            s[value].double_buffer()
        if choose.random() < 0.3:
            s[value].storage_align(value.op.axis[0], 8, 3)
    for value in (sums, double):
        if choose.random() < 0.3 and (last := value.op.axis[1]) in s[value].leaf_iter_vars:
            s[value].vectorize(last)
    data = np.random.default_rng(seed).integers(-4, 5, (h, w)).astype("float32")
    summed = np.lib.stride_tricks.sliding_window_view(data * 2, (kh, kw))[::step, ::step].sum((2, 3))
    return s, [a, out], [data, np.full((rows - 2, columns), np.nan, "float32")], summed[:-2] + summed[2:]


def rings(func: PrimFunc) -> list[str]:
    return [name for f in walk_stmt(func.body) if isinstance(f, For) for name in f.annotations.get(ROLLING, ())]


def rolled(seed: int) -> tuple[PrimFunc, list[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
    s, args, given, want = windows(seed)
    try:
        func = schedule_func(s, args, f"f{seed}")
    except ScheduleError as error:
        assert error.message.count("# <-- here") == 1, error
        assert any(part in error.message for part in NOTHING_KEPT.split("|")), error
        return None
    return func, given, want


def test_windows_interpreted() -> None:
    kept = doubled = 0
    for seed in daily.sample(range(1000), 40):
        if (found := rolled(seed)) is not None:
            func, given, want = found
            run(lower_blocks(func), given)
            np.testing.assert_array_equal(given[-1], want, err_msg=f"seed {seed}\n{func}")
            kept += bool(rings(func))
            ahead = inject_double_buffer(func)
            given[-1][...] = np.nan
            run(lower_blocks(ahead), given)
            np.testing.assert_array_equal(given[-1], want, err_msg=f"seed {seed}\n{ahead}")
            doubled += ahead is not func
    assert kept > 5
    assert doubled > 0


def test_windows_native() -> None:
    found = {seed: f for seed in range(200, 280) if (f := rolled(seed)) is not None}
    module = tvm.build(
        tvm.IRModule({f"f{seed}": lower_blocks(func) for seed, (func, _, _) in found.items()}), target="llvm"
    )
    for seed, (func, given, want) in found.items():
        module[f"f{seed}"](*given)
        np.testing.assert_array_equal(given[-1], want, err_msg=f"seed {seed}\n{func}")
    assert sum(bool(rings(func)) for func, _, _ in found.values()) > 10


def test_only_new_rows_are_computed() -> None:
    """A window of three rows: each row of the value in between is computed once."""
    a = te.placeholder((10, 4), name="A")
    b = te.compute((10, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 4), lambda i, j: b[i, j] + b[i + 1, j] + b[i + 2, j], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].rolling_buffer()
    text = str(lower_blocks(schedule_func(s, [a, c])))
    assert "B = T.allocate((3, 4), \"float32\", \"global\")" in text
    assert "if i == 0 or i + i_1 >= i + 2:" in text


def test_values_roll_along_an_outer_loop() -> None:
    """The inner loop moves by whole parts, so the outer one keeps values, for all trips of the inner one."""
    a = te.placeholder((14, 12), name="A")
    b = te.compute((14, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((12, 12), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    s = te.create_schedule(c.op)
    (i, _), (j, inner) = (s[c].split(axis, 4) for axis in c.op.axis)
    s[c].reorder(i, j, _, inner)
    s[b].compute_at(s[c], j)
    s[b].rolling_buffer()
    func = schedule_func(s, [a, c])
    assert rings(func) == ["B"] and "B = T.alloc_buffer((6, 12))" in str(func).replace(', "float32"', "")
    data, got = np.arange(14 * 12, dtype="float32").reshape(14, 12), np.full((12, 12), np.nan, "float32")
    run(lower_blocks(func), [data, got])
    np.testing.assert_array_equal(got, 2 * data[:12] + 2 * data[2:])


def test_what_cannot_roll() -> None:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((8,), lambda i: b[i] + b[i + 2], name="C")
    s = te.create_schedule(c.op)
    with pytest.raises(
        ScheduleError, match="rolling_buffer of 'C': an output is in the caller's memory and must be stored whole"
    ):
        s[c].rolling_buffer()
    s[b].rolling_buffer()
    with pytest.raises(
        ScheduleError, match="block 'B' has its own loop nest; call compute_at with a loop of its reader before"
    ):
        schedule_func(s, [a, c])
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[c].parallel(s[c].op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"loop 'i' is parallel, but a rolling buffer passes data from one iteration to the next, which needs a "
        r"serial loop\. The loops there:\nfor i in "
        r"T.parallel\(8\):    # <-- here"
    ):
        schedule_func(s, [a, c])
