"""Random schedules of random programs compute the same: read by the interpreter, and as machine code of five
processors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daily
from codegen_processors import PROCESSORS, Work, run_all, why_not
from random_schedules import Array, Program, arrays, scheduled
from tilewright import tir
from tilewright.ir.structural import assert_structural_equal
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import PrimFunc

pytestmark = pytest.mark.slow

BATCH = 20
CORE, OTHERS = range(0, 40, BATCH), daily.sample(range(40, 540, BATCH), 8, "schedules of blocks")


def lowered(seed: int) -> tuple[PrimFunc, PrimFunc, list[Array], list[Array], str]:
    """A scheduled program without blocks and flat, its inputs, what it must leave in them, and what to say about it."""
    func = Program(seed).func()
    given = arrays(func, seed)
    want = [a.copy() for a in given]
    run(func, want)
    sch = scheduled(func, seed)
    low = tir.lower_blocks(sch.mod["main"])
    return low, tir.lower_loops(low), given, want, f"seed {seed}\n{func}\n{sch.trace}\n{low}"


def interpreted(seeds: range) -> None:
    for seed in seeds:
        low, flat, given, want, about = lowered(seed)
        for program in (low, flat):
            got = [a.copy() if program is low else a.reshape(-1).copy() for a in given]
            run(program, got)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=about)


def compiled(seeds: range, processor: str, folder: Path) -> None:
    if reason := why_not(processor):
        pytest.skip(reason)
    works, expected = [], []
    for seed in seeds:
        _, flat, given, want, about = lowered(seed)
        works.append(Work(replace(flat, name=f"program{seed}"), given))
        expected.append((want, about))
    run_all(works, processor, folder)
    for w, (want, about) in zip(works, expected, strict=True):
        for a, b in zip(w.arrays, want, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=about)


@pytest.mark.parametrize("first", CORE)
def test_interpreted(first: int) -> None:
    interpreted(range(first, first + BATCH))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("first", CORE)
def test_compiled(first: int, processor: str, tmp_path: Path) -> None:
    compiled(range(first, first + BATCH), processor, tmp_path)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_gathers_of_lanes_that_are_no_power_of_two(processor: str, tmp_path: Path) -> None:
    """LLVM 22 mistakes the masks of 18, 33 and 36 lanes for AArch64."""
    if reason := why_not(processor):
        pytest.skip(reason)
    works, given = [], np.arange(100, 140, dtype="int32")
    for n in (18, 33, 36, 40):
        func = tir.parse(f"""
            def gather{n}(P: T.Buffer((40,), "int32"), Z: T.Buffer(({n},), "int32")):
                for i in T.vectorized({n}):
                    Z[i] = T.if_then_else(i % 9 < 6, P[i % 9 + i // 9 * 8], T.int32(0))
        """)
        works.append(Work(tir.lower_loops(func), [given, np.zeros(n, "int32")]))
    run_all(works, processor, tmp_path)
    for w in works:
        i = np.arange(len(w.arrays[1]))
        np.testing.assert_array_equal(w.arrays[1], np.where(i % 9 < 6, given[i % 9 + i // 9 * 8], 0))


@pytest.mark.slow
@pytest.mark.parametrize("first", OTHERS)
def test_interpreted_others(first: int) -> None:
    interpreted(range(first, first + BATCH))


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("first", OTHERS)
def test_compiled_others(first: int, processor: str, tmp_path: Path) -> None:
    compiled(range(first, first + BATCH), processor, tmp_path)


def test_traces_do_the_same_again() -> None:
    """A trace that was stored does the same to another copy of the program."""
    for seed in range(30):
        sch = scheduled(Program(seed).func(), seed)
        again = tir.replay(Program(seed).func(), tir.Trace.from_json(sch.trace.as_json()))
        assert_structural_equal(again, sch.mod["main"])
