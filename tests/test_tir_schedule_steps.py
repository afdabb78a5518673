"""Steps of `tir.Schedule` on small programs: before -> after in `tests/text/schedule_steps.md`, and what is refused.

A case is a heading, the name of a program in back quotes, a Python block that does steps on `sch`, and the text that
must come out. Every case is also run. With TILEWRIGHT_UPDATE_TEXT=1 the expected texts are written instead of compared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from random_schedules import arrays
from small_schedules import PROGRAMS, TEXTS, add_one, add_one_at_once
from tilewright import tir
from tilewright.base.errors import ScheduleError
from tilewright.ir.structural import assert_structural_equal
from tilewright.scalar.expr import number_of
from tilewright.tir.block_regions import buffers_read
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import PrimFunc

FILE = Path(__file__).parent / "text" / "schedule_steps.md"
CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+`(?P<program>[^`\n]+)`\n+```python\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n",
    re.M
)


def same(before: PrimFunc, after: PrimFunc) -> None:
    """Assert that both compute the same: as they are, lowered, and flat."""
    given = arrays(before, 0)
    want = [a.copy() for a in given]
    run(before, want)
    low = tir.lower_blocks(after)
    for program in (low, tir.lower_loops(low)):
        got = [a.copy() if program is low else a.reshape(-1).copy() for a in given]
        run(program, got)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b)


@pytest.mark.parametrize("case", [pytest.param(m, id=m["name"]) for m in CASE.finditer(FILE.read_text())])
def test_before_and_after(case: re.Match[str]) -> None:
    before = PROGRAMS[case["program"]]
    sch = tir.Schedule(before)
    exec(case["code"], {"sch": sch})
    after = sch.mod["main"]
    same(before, after)
    assert_structural_equal(tir.replay(before, tir.Trace.from_json(sch.trace.as_json())), after)
    assert_structural_equal(tir.replay(before, sch.trace.simplified(remove_postproc=False)), after)
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['text']}```", f"```text\n{after}\n```")
        FILE.write_text(FILE.read_text().replace(case[0], updated))
        return
    assert str(after) == case["text"].rstrip("\n")


def test_the_file_holds_cases_only() -> None:
    assert FILE.read_text().count("\n## ") == len(CASE.findall(FILE.read_text())) > 20



REFUSED: dict[str, tuple[str, Callable[[tir.Schedule], object], str]] = {
    "one nest merged": ("pair", lambda s: s.merge(s.get_loops("B")[0]), "merge takes two loops or more"),
    "a nest merged with itself": (
        "pair", lambda s: s.merge(*s.get_loops("B")), "the loops i, j are not in adjacent loop nests"
    ),
    "nests in the wrong order": (
        "pair", lambda s: s.merge(s.get_loops("C")[0], s.get_loops("B")[0]),
        "must directly follow each other in this order"
    ),
    "nests of other sizes": (
        "padded", lambda s: s.merge(s.get_loops("B")[0], s.get_loops("C")[0]), "they have 10 and 5 iterations"
    ),
    "trips that need others": (
        "window", lambda s: s.merge(s.split(s.get_loops("B")[0], [8, 2])[0], s.get_loops("C")[0]),
        "accesses elements of 'B' that other iterations write"),
    "merged after marking": (
        "pair", lambda s: s.parallel(s.get_loops("B")[0]) or s.merge(s.get_loops("B")[0], s.get_loops("C")[0]),
        "is parallel; merge before that"
    ),
    "merged around others": (
        "pair", lambda s: s.compute_at("B", s.get_loops("C")[0]) or s.merge(s.get_loops("B")[0], s.get_loops("C")[0]),
        "are not in adjacent loop nests"),
    "parts that are too short": (
        "rows", lambda s: s.loop_partition(s.get_loops("B")[0], [2, 3]),
        r"cannot be partitioned into \[2, 3\]: the parts have 5 iterations in total"
    ),
    "parts of nothing": (
        "rows", lambda s: s.loop_partition(s.get_loops("B")[0], [None, None]),
        "give sizes of 1 or more, of which one may be None"
    ),
    "parts after marking": (
        "rows", lambda s: s.annotate(s.get_loops("B")[0], "x", 1) or s.loop_partition(s.get_loops("B")[0], [2, None]),
        "annotated with x; loop_partition"
    ),
    "a marked loop is not split": (
        "rows", lambda s: s.annotate(s.get_loops("B")[0], "x", 1) or s.split(s.get_loops("B")[0], [2, None]),
        "annotated with x; split before that"
    ),
    "a marked loop is not fused": (
        "rows", lambda s: s.annotate(s.get_loops("B")[1], "x", 1) or s.fuse(*s.get_loops("B")),
        "annotated with x; fuse before that"
    ),
    "parts inside of a sum": (
        "rows", lambda s: s.reorder(*reversed(s.get_loops("B"))) or s.loop_partition(s.get_loops("B")[1], [2, None]),
        "decompose_reduction first"
    ),
    "a reader before its value": (
        "pair", lambda s: s.reverse_compute_at("B", s.get_loops("C")[0]), "block 'B' does not come after loop 'i"
    ),
    "a reader after a reduction": (
        "rows", lambda s: s.reverse_compute_at("B", s.get_loops("B")[0]), "block 'B' does not come after loop 'i'"
    ),
    "a reader at other places": (
        "padded", lambda s: s.reverse_compute_at("C", s.get_loops("B")[0]),
        "reads 'B' at other places than its own axes"
    ),
    "a reader of a parameter": (
        "pair", lambda s: s.reverse_compute_inline("B"),
        "must read exactly one result of an elementwise block; it reads 0"
    ),
    "a reader at points that meet": (
        "window", lambda s: s.reverse_compute_inline("C"), "block 'C' reads 'B' at several places"
    ),
    "a value with an address": (
        "passed_on", lambda s: s.compute_inline("B"), "block 'B' cannot be inlined: a function takes the address of its"
    ),
    "axes that keep their order": (
        "in_order", lambda s: s.reorder(*reversed(s.get_loops("C"))),
        "axis 'v' of block 'C' is T.axis.scan, and its iterations keep their order, so its loops cannot be reordered"
    ),
    "an axis that keeps its order on threads": (
        "in_order", lambda s: s.parallel(s.get_loops("C")[1]), "axis 'w' of block 'C' is T.axis.opaque"
    ),
    "a place behind the reader": (
        "pair", lambda s: s.compute_at("B", s.get_loops("C")[0], index=1),
        "block 'B' cannot be placed at index 1 of the 1 statements in loop 'i'; choose 0 to 0, -1 for the last of"
    ),
    "a loop twice": (
        "pair", lambda s: s.reorder(*s.get_loops("B"), s.get_loops("B")[0]), "loop 'i' is given twice to reorder"
    ),
    "no initial value": (
        "pair", lambda s: s.decompose_reduction("B", s.get_loops("B")[0]), "block 'B' has no initial value to decompose"
    ),
    "a reduction loop outside": (
        "rows", lambda s: s.decompose_reduction("B", s.split(s.get_loops("B")[1], [2, 4])[1]),
        "the reduction runs over loop 'k_0', outside of 'k_1'"),
    "no padding": (
        "pair", lambda s: s.decompose_padding("B", s.get_loops("B")[0]), "is not a selection between a value and a"
    ),
    "no sum": ("pair", lambda s: s.pad_einsum("B", [2, 2]), "is not a sum of products indexed by its own axes"),
    "other axes": ("rows", lambda s: s.pad_einsum("B", [2]), r"has 2 axes, but the padding is \[2\]"),
    "no tile": (
        "pair", lambda s: s.blockize(s.get_loops("B")[0]) and s.blockize(s.split(s.get_loops("C")[0], [None, 4])[1]),
        "do not cover its whole domain"
    ),
    "no intrinsic": (
        "pair", lambda s: s.tensorize("B", "test.add_on_4"),
        "there is no intrinsic 'test.add_on_4'; did you mean 'test.add_one_4'"
    ),
    "another intrinsic": (
        "pair", lambda s: s.tensorize(s.split(s.get_loops("B")[1], [2, 4])[1], "test.add_one_4"),
        "'test.add_one_4' cannot replace block 'B_o': the computation differs"
    ),
    "no order": (
        "pair", lambda s: s.reorder_block_iter_var("B", [0, 0]), r"\[0, 0\] is not a permutation of the 2 axes of"
    ),
    "nothing rolls by itself": (
        "window", lambda s: s.rolling_buffer("B"),
        "block 'B' has its own loop nest; call compute_at with a loop of its reader"
    ),
    "nothing to keep": (
        "pair", lambda s: (s.compute_at("B", s.get_loops("C")[0]), s.rolling_buffer("B")),
        "does not overlap that of the next iteration along one dimension"),
    "a parameter does not roll": (
        "window", lambda s: s.rolling_buffer("C"),
        "block 'C' has several results, computes a parameter, or does not store at its own axes"
    ),
    "threads do not wait": (
        "window",
        lambda s: (s.compute_at("B", s.get_loops("C")[0]), s.parallel(s.get_loops("C")[0]), s.rolling_buffer("B")),
        "loop 'i' is parallel, but a rolling buffer"),
    "a loop with a ring is not split": (
        "window", lambda s: (s.compute_at("B", i := s.get_loops("C")[0]), s.rolling_buffer("B"), s.split(i, [2, 4])),
        "loop 'i' cannot be changed: B passes data from one iteration to the next. The loops there:"),
    "a loop with a ring on threads": (
        "window", lambda s: (s.compute_at("B", i := s.get_loops("C")[0]), s.rolling_buffer("B"), s.parallel(i)),
        "a rolling buffer passes data from one iteration to the next"),
    "an aligned value": (
        "pair", lambda s: (s.storage_align("B", 0, 0, 16, 1), s.transform_layout("B", 0, "lambda i, j: (j, i)")),
        "storage_align after the layout"
    ),
    "no note": ("pair", lambda s: s.unannotate("B", "note"), "block 'B' has no annotation 'note'; its annotations"),
    "rows of a parameter": (
        "pair", lambda s: s.storage_align("C", 0, 0, 16, 0), "'C' of 2 dimensions cannot be aligned along axis 0 by 16"
    ),
    "a layout in which elements meet": (
        "pair", lambda s: s.transform_layout("B", 0, "lambda i, j: (i + j,)"),
        "maps several elements of .* to one place"
    ),
    "a layout before 0": (
        "pair", lambda s: s.transform_layout("B", 0, "lambda i, j: (i - 1, j)"), "has no known range from 0 up"
    ),
    "a map of other rank": (
        "pair", lambda s: s.transform_layout("B", 0, "lambda i: (i,)"), "takes 1 indices, but 2 are needed"
    ),
    "no map": (
        "pair", lambda s: s.transform_layout("B", 0, "lambda i, j: (max(i, j),)"), "is not allowed in an index map"
    ),
    "a map with no way back": (
        "pair", lambda s: s.transform_block_layout("B", "lambda i, j: (i * 9 + j,)"), "which is not invertible"
    ),
    "the type of a parameter": (
        "pair", lambda s: s.unsafe_set_dtype("C", 0, "float64"), "'C' is a parameter, whose type is the caller's"
    ),
    "a loop in another block": (
        "pair", lambda s: (s.blockize(s.get_loops("C")[0]), s.compute_at("B", s.get_loops("C")[0])),
        "block 'B' and loop 'i' must be in the same block scope; the block is in no other block, and the loop in "
        "block 'C_o'"
    ),
    "loops in two blocks": (
        "pair", lambda s: (s.blockize(s.get_loops("C")[1]), s.reorder(s.get_loops("C")[0], s.get_loops("C_o")[0])),
        "the loops j, i must be in the same block scope"
    ),
    "a separator": (
        "pair", lambda s: s.set_axis_separator("B", 0, [2]), r"the axis separators \[2\] of 'B' must be increasing"
    ),
    "a copy of what is read under a condition": (
        "padded", lambda s: s.reindex("B", ("read", 0)), "reads under a condition"
    ),
    "no table": ("pair", lambda s: s.cache_index("B"), "block 'B' has no index with a division or a remainder, so"),
    "nothing in place": ("pair", lambda s: s.cache_inplace("B", 0, "local"), "does not both read and write 'A'"),
    "a sum on several threads": (
        "rows", lambda s: s.parallel(s.get_loops("B")[1]),
        "its iterations add to the same elements of block 'B'; rfactor"
    ),
    "lanes around lanes": (
        "pair", lambda s: (s.vectorize(s.get_loops("B")[1]), s.vectorize(s.get_loops("B")[0])),
        "cannot be vectorized around the vectorized loop 'j'"
    ),
    "threads inside of lanes": (
        "pair", lambda s: (s.vectorize(s.get_loops("B")[0]), s.parallel(s.get_loops("B")[1])),
        "cannot be parallel inside the vectorized loop 'i'"
    ),
    "lanes of two axes at once": (
        "rows", lambda s: s.vectorize(s.fuse(*s.get_loops("B"))), "' fuses a spatial and a reduction axis; vectorize"
    ),
    "a part of a sum": (
        "rows", lambda s: (s.decompose_reduction("B", s.get_loops("B")[0]), s.cache_write("B", 0, "local")),
        "'B' is also computed by block 'B_init'"),
    "probabilities": ("rows", lambda s: s.sample_categorical([1, 2], [0.5]), "give one for each, with the sum 1"),
    "a decision that does not fit": (
        "rows", lambda s: s.sample_perfect_tile(s.get_loops("B")[1], 2, decision=[3, 3]),
        "is not 2 factors of the 8 iterations"
    ),
    "a tile of a value that changes": (
        "changed", lambda s: s.read_at(s.get_loops("A")[0], "A", 0, "local"),
        "block 'A' changes 'A' after the place of its copy in loop 'i'"
    ),
    "a tile in another nest": (
        "pair", lambda s: s.read_at(s.get_loops("C")[0], "B", 0, "local"), "loop 'i' is not around block 'B'"
    ),
    "a tile beyond the end": (
        "pair", lambda s: s.read_at(s.split(s.get_loops("B")[0], [None, 4])[0], "B", 0, "local"),
        "the tile of 'A' in a trip of loop 'i_0', 4 elements from .i_0 . 4., may exceed the dimension of 6"
    ),
    "a tile of unknown size": (
        "open_rows", lambda s: s.read_at(s.get_loops("C")[0], "C", 0, "local"),
        "a trip of loop 'i' uses n elements of 'A', but a constant number is needed"
    ),
    "a tile with holes": (
        "spread", lambda s: s.write_at(s.get_loops("C")[0], "C", 0, "local"),
        "block 'C' may write only a part of the elements of 'C' that would be copied back in loop 'i'"
    ),
    "a tile read before it is copied back": (
        "pair",
        lambda s: (s.reverse_compute_at("C", s.get_loops("B")[1]), s.write_at(s.get_loops("B")[0], "B", 0, "local")),
        "block 'C' reads 'B' before it is copied back"
    ),
    "two stages of an unrolled sum": (
        "rows", lambda s: (s.unroll(s.get_loops("B")[1]), s.rfactor(s.get_loops("B")[1], 0)),
        "reduction loop 'k' of block 'B' is no longer serial"
    ),
    "two stages of a sum beside another": (
        "sums_together", lambda s: s.rfactor(s.get_loops("B")[1], 0),
        "reduction loop 'k' of block 'B' contains block 'C', too; call rfactor before compute_at"
    ),
    "two stages of a second sum": (
        "two_sums", lambda s: s.rfactor(s.get_loops("C")[1], 0),
        "block 'B' comes before block 'C' in loop 'i', so the new value cannot be computed before this loop"
    ),
    "two stages of a sum whose input changes": (
        "row_by_row", lambda s: s.rfactor(s.get_loops("B")[1], 0),
        "block 'A' in loop 'i' changes what block 'B' reads"
    ),
    "another function": ("rows", lambda s: s.work_on("other"), "there is no loop function 'other' in the module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    program, what, message = REFUSED[name]
    sch = tir.Schedule(PROGRAMS[program])
    with pytest.raises(ScheduleError, match=message):
        what(sch)


def test_padding_that_can_be_decomposed() -> None:
    for program, wanted in (("padded", True), ("pair", False)):
        sch = tir.Schedule(PROGRAMS[program])
        before = sch.mod["main"]
        assert sch.can_decompose_padding("B", sch.get_loops("B")[0]) is wanted
        assert sch.mod["main"] is before


def test_an_error_marks_the_loop_at_fault() -> None:
    sch = tir.Schedule(PROGRAMS["rows"])
    with pytest.raises(ScheduleError) as caught:
        sch.parallel(sch.get_loops("B")[1])
    assert "for i in T.serial(6):\n    for k in T.serial(8):    # <-- here\n" in str(caught.value)


def test_a_parameter_gets_another_layout() -> None:
    sch = tir.Schedule(PROGRAMS["pair"])
    sch.transform_layout("C", 0, "lambda i, j: (j, i)")
    after = sch.mod["main"]
    assert [b.shape for b in after.params] == [(6, 8), (8, 6)]
    a = np.arange(48, dtype="float32").reshape(6, 8)
    c = np.zeros((8, 6), "float32")
    run(after, [a, c])
    np.testing.assert_array_equal(c, (a * 2 + 1).T)


def test_removed_references() -> None:
    sch = tir.Schedule(PROGRAMS["pair"])
    block, loop = sch.get_block("B"), sch.get_loops("B")[0]
    sch.remove_rv(block)
    sch.remove_rv(loop)
    for use in (lambda: sch.get(block), lambda: sch.get(loop), lambda: sch.get_loops(block)):
        with pytest.raises(IndexError, match="was removed from the schedule"):
            use()
    assert sch.get(sch.get_block("B")).name == "B"


def test_which_function_a_block_is_of() -> None:
    mod = tilewright.IRModule({name: PROGRAMS[name] for name in ("pair", "rows")})
    sch = tir.Schedule(mod)
    with pytest.raises(ValueError, match=r"does not know which function to be working on; .* one of pair, rows"):
        sch.get_block("B")
    sch.work_on("rows")
    assert len(sch.get(sch.get_block("B")).iters) == 2
    assert sch.func_working_on is sch.mod.get_global_var("rows")


def test_positions_of_what_a_block_reads() -> None:
    sch = tir.Schedule(PROGRAMS["rows"])
    assert [b.name for b in buffers_read(sch.get("B"))] == ["A", "W"]
    sch.decompose_reduction("B", sch.get_loops("B")[1])
    assert [b.name for b in buffers_read(sch.get("B"))] == ["B", "A", "W"]
    text = TEXTS["rows"].replace("with T.init", "T.reads(B[v], A[v, r], W[0:8])\n                    with T.init")
    stated = tir.parse(text)
    sch = tir.Schedule(stated)
    assert [b.name for b in buffers_read(sch.get("B"))] == ["B", "A", "W"]
    assert "T.reads(B[v : v + 1], A[v : v + 1, r : r + 1], W[r : r + 1])" in str(stated)
    assert_structural_equal(stated, PROGRAMS["rows"])
    assert str(tir.parse(str(stated))) == str(stated)
    sch.cache_read("B", 1, "local")
    assert sch.get("A_local").reads[0].buffer.name == "A"
    with pytest.raises(AssertionError, match="block 'B' reads 0: B, 1: A_local, 2: W; 3 is not one of them"):
        sch.cache_read("B", 3, "local")


def test_the_index_of_the_largest_value_in_two_stages() -> None:
    sch = tir.Schedule(PROGRAMS["largest"])
    _, inner = sch.split(sch.get_loops("M")[1], [None, 4])
    first = sch.get(sch.rfactor(inner, 1))
    assert [(i.var.name, i.kind) for i in first.iters] == [("k_1", "spatial"), ("v", "spatial"), ("k_0", "reduce")]
    a = np.random.default_rng(0).permutation(48).reshape(6, 8).astype("float32")
    index, most = np.zeros(6, "int32"), np.zeros(6, "float32")
    run(tir.lower_blocks(sch.mod["main"]), [a, index, most])
    np.testing.assert_array_equal(index, a.argmax(1))
    np.testing.assert_array_equal(most, a.max(1))


def test_an_index_of_the_largest_value_is_a_reduction() -> None:
    reducer = tir.Schedule(PROGRAMS["largest"]).get("M").annotations["combiner"]
    assert (reducer.name, [str(e) for e in reducer.neutral]) == ("argmax", ["-1", "float('-inf')"])
    for old, new in (
        ("T.int32(-1)", "T.int32(0)"), ("M[v] = most", "M[v] = most\n                    M[v] = most"),
        ("I[v] = at", "I[v] = T.int32(0)"), ("I: T.Buffer((6,)", "I: T.Buffer((7,)"), (">=", "=="),
        ("T.cast(r, \"int32\")", "I[v] + T.int32(1)"),
    ):
        other = tir.parse(TEXTS["largest"].replace(old, new))
        assert "combiner" not in tir.Schedule(other).get("M").annotations, new


def test_axes_that_keep_their_order() -> None:
    """Their text parses to the same program, and they run and are lowered as other axes."""
    before = PROGRAMS["in_order"]
    assert "v = T.axis.scan(6, i)" in str(before) and "w = T.axis.opaque(8, j)" in str(before)
    assert_structural_equal(tir.parse(str(before)), before)
    sch = tir.Schedule(before)
    sch.split(sch.get_loops("C")[0], [2, 3])
    same(before, sch.mod["main"])


def test_intrinsics_are_registered_once() -> None:
    with pytest.raises(ScheduleError, match=r"an intrinsic 'test\.add_one_4' already exists"):
        tir.TensorIntrin.register("test.add_one_4", add_one, add_one_at_once)
    with pytest.raises(ScheduleError, match="its two functions have different parameters"):
        tir.TensorIntrin.register("test.other", add_one, PROGRAMS["pair"])


def test_what_is_there() -> None:
    sch = tir.Schedule(PROGRAMS["pair"], seed=1)
    b, c = sch.get_block("B"), sch.get_block("C")
    assert (sch.get_producers(c), sch.get_consumers(b), sch.get_output_blocks()) == ([b], [c], [c])
    assert sch.get_child_blocks(sch.get_loops(b)[0]) == [b]
    assert sch.get_child_blocks(b) == []
    assert sch.functions["main"] is sch.mod["main"]
    root = sch.state.mod["main"].body.block
    assert (root.name, root.body) == ("root", sch.mod["main"].body)
    outer = sch.get_sref(sch.get_loops("B")[0])
    assert outer.parent is sch.get_sref("root") is sch.state.get_sref(root)
    node = sch.get("C")
    assert [f"{r.buffer.name}: {r.region[1].min}" for r in (*node.reads, *node.writes)] == ["B: w", "C: w"]
    assert sch.func_working_on is None
    sch.work_on("main")
    assert sch.func_working_on is sch.mod.get_global_var("main")
    assert 0 < sch.fork_seed() < 1 << 31


def test_a_copy_goes_its_own_way() -> None:
    sch = tir.Schedule(PROGRAMS["pair"])
    i, _ = sch.get_loops("B")
    sch.split(i, [2, 3])
    other = sch.copy()
    other.unroll(other.get_loops("B")[0])
    assert len(sch.steps) == 1
    assert len(other.steps) == 2
    assert_structural_equal(tir.replay(PROGRAMS["pair"], other.trace), other.mod["main"])


def test_draws_follow_the_seed_and_the_decisions() -> None:
    def drawn(seed: int) -> tir.Schedule:
        sch = tir.Schedule(PROGRAMS["rows"], seed)
        k = sch.get_loops("B")[1]
        sch.split(k, sch.sample_perfect_tile(k, 3))
        sch.sample_compute_location("B")
        sch.enter_postproc()
        sch.unroll(sch.get_loops("B")[3])
        return sch

    assert str(drawn(3).trace) == str(drawn(3).trace)
    assert len({str(drawn(seed).trace) for seed in range(20)}) > 3
    trace = drawn(0).trace
    sample, place = trace.decisions
    assert [sample.kind.name, place.kind.name] == ["SamplePerfectTile", "SampleComputeLocation"]
    kept = trace.simplified(remove_postproc=True)
    assert [inst.kind.name for inst in kept] == ["GetBlock", "GetLoops", "SamplePerfectTile", "Split"]
    again = tir.Schedule(PROGRAMS["rows"])
    trace.apply_to_schedule(again, remove_postproc=True)
    assert [s.name for s in again.steps] == ["sample_perfect_tile", "split", "sample_compute_location"]
    other = tir.Schedule(PROGRAMS["rows"])
    trace.with_decision(sample, (1, 2, 4), remove_postproc=True).apply_to_schedule(other)
    assert [number_of(other.get(v).extent) for v in other.get_loops("B")[1:]] == [1, 2, 4]
    asked: list[Any] = []

    def ask(inst: Any, given: list[Any], attrs: list[Any], decision: Any) -> Any:
        asked.append(decision)
        return decision

    trace.apply_to_schedule(tir.Schedule(PROGRAMS["rows"]), False, ask)
    assert trace.decisions[sample] in asked
    assert [f"  {line}" for line in trace.as_python()] == str(trace).splitlines()[2:]


RESHAPED = """
@T.prim_func
def reshaped(A: T.Buffer((32, 8), "float32"), D: T.Buffer((4, 8), "float32"), C: T.Buffer((1, 4, 8, 8), "float32")):
    B = T.alloc_buffer((32, 8), "float32")
    for i, j in T.grid(32, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for o, i, j, k in T.grid(1, 4, 8, 8):
        with T.block("C"):
            vo, vi, vj, vk = T.axis.remap("SSSS", [o, i, j, k])
            C[vo, vi, vj, vk] = B[vi * 8 + vj, vk] + D[vi, vj]
"""


def test_a_reader_by_another_shape_goes_into_what_it_reads() -> None:
    sch = tir.Schedule(tir.parse(RESHAPED))
    sch.reverse_compute_inline("C")
    assert "C[0, vi // 8, vi % 8, vj] = A[vi, vj] * 2.0 + D[vi // 8, vi % 8]" in str(sch.mod["main"])
    same(tir.parse(RESHAPED), sch.mod["main"])
    skipping = tir.Schedule(tir.parse(RESHAPED.replace("vi * 8 + vj, vk", "vi * 8 + vj // 2, vk")))
    with pytest.raises(ScheduleError, match="which may be one element for several of its points"):
        skipping.reverse_compute_inline("C")


RAGGED = """
@T.prim_func
def ragged(A: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")):
    B = T.alloc_buffer((14,), "int32")
    for i in T.serial(14):
        with T.block("B"):
            v = T.axis.spatial(14, i)
            B[v] = A[v] * 2
    for i in T.serial(14):
        with T.block("C"):
            v = T.axis.spatial(14, i)
            C[v] = B[v] + 1
"""


def test_a_block_fills_the_padding_of_a_layout() -> None:
    sch = tir.Schedule(tir.parse(RAGGED))
    sch.transform_layout("B", "B", lambda i: (i // 4, i % 4), pad_value=lambda p, q: p + q)
    text = str(sch.mod["main"])
    padded = 'T.if_then_else(v0_1 == 3 and 2 <= v1_1, T.cast(v0_1 + v1_1, "int32"), A[v0_1 * 4 + v1_1] * T.int32(2))'
    assert f"B[v0_1, v1_1] = {padded}" in text
    same(tir.parse(RAGGED), sch.mod["main"])
    parts = tir.Schedule(tir.parse(RAGGED))
    parts.split(parts.get_loops("B")[0], [2, 7])
    parts.transform_layout("B", "B", lambda i: (i // 4, i % 4), pad_value=3)
    assert "T.where(v0 == 3 and 2 <= v1)\n    B[v0_1, v1_1] = T.int32(3)" in str(parts.get("B_pad_B"))
    same(tir.parse(RAGGED), parts.mod["main"])
    with pytest.raises(ScheduleError, match="has places without an element; give their value as pad_value"):
        tir.Schedule(tir.parse(RAGGED)).transform_layout("B", "B", lambda i: (i // 4, i % 4))
    unset = tir.Schedule(tir.parse(RAGGED))
    unset.transform_layout("B", "B", lambda i: (i // 4, i % 4), assume_injective_transform=True)
    same(tir.parse(RAGGED), unset.mod["main"])
    plain = tir.Schedule(tir.parse(RAGGED))
    plain.transform_layout("B", "B", lambda i: (i // 7, i % 7), pad_value=0)
    assert "_pad_" not in str(plain.mod["main"])
    for value, why in (
        (0.5, "the padding of 'B' is float32, but its elements are int32"),
        (tir.IntImm("int8", 0), "the padding of 'B' is int8, but its elements are int32"),
        (lambda p, q: tir.decl_buffer((1,), "int32", "other").vload([0]), "a padding value depends on the indices"),
    ):
        with pytest.raises(ScheduleError, match=why):
            tir.Schedule(tir.parse(RAGGED)).transform_layout("B", "B", lambda i: (i // 4, i % 4), pad_value=value)


def test_marks_again_change_nothing() -> None:
    for mark in ("parallel", "vectorize", "unroll"):
        sch = tir.Schedule(PROGRAMS["pair"])
        loop = sch.get_loops("B")[0] if mark == "parallel" else sch.get_loops("B")[1]
        getattr(sch, mark)(loop)
        before = sch.mod["main"]
        getattr(sch, mark)(sch.fuse(loop))
        assert sch.mod["main"] is before


def test_initial_values_skip_loops_without_points() -> None:
    sch = tir.Schedule(PROGRAMS["rows"])
    i, _ = sch.get_loops("B")
    unit = sch.add_unit_loop("B")
    sch.decompose_reduction("B", i)
    assert len(sch.get_loops("B_init")) == 1
    assert len(sch.get_loops("B_update")) == 3
    assert unit in sch.get_loops("B")
    same(PROGRAMS["rows"], sch.mod["main"])


def test_quotients_and_remainders_are_joined() -> None:
    sch = tir.Schedule(PROGRAMS["pair"])
    i, j = sch.get_loops("B")
    outer, inner = sch.split(j, [4, 2])
    sch.fuse(sch.fuse(i, outer), inner)
    rows, columns = sch.mod["main"].body.stmts[0].body.bindings
    assert (str(rows), str(columns)) == ("(i_j_0_j_1 // 8)", "(i_j_0_j_1 % 8)")


def test_maps_have_an_inverse_without_stating_it() -> None:
    how = tir.IndexMap.from_func(lambda i, j: (j, i), inverse_index_map=lambda j, i: (i, j))
    assert how.is_equivalent_to(tir.IndexMap.from_func(lambda i, j: (j, i)))
