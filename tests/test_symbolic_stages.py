"""Stages for every count: symbols in the place of sizes that are only known while a program runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from small_models import stages_of
from test_staged import FLOAT, INT64, floats, model, node, positive_rows, rows, same
from tilewright import relay
from tilewright.base.errors import CompileError, OpenSizeWarning, RunError
from tilewright.compiler.cache import Cache
from tilewright.compiler.staged import SETTLED
from tilewright.relay.expr import Call
from tilewright.relay.op.selection import UniqueSlices


def symbols_of(compiled: tilewright.Model) -> list[int]:
    """The number of symbols of each program of a model."""
    return [len(e.program.artifact.manifest.symbols) for e in stages_of(compiled).edges() if e.program]


def test_one_program_serves_every_count() -> None:
    size = 40
    compiled = same(positive_rows(size), *({"x": rows(n, size)} for n in (3, 7, 1, 40, 2, 39)))
    assert symbols_of(compiled) == [0, 1]
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None and not first.next.edges and not first.next.seen


def test_counts_of_nothing_are_counts() -> None:
    compiled = same(positive_rows(40), *({"x": rows(n, 40)} for n in (0, 2, 0, 3, 0)))
    assert symbols_of(compiled) == [0, 1]


def test_several_counts_are_symbols_of_one_program() -> None:
    nodes = []
    for k in range(3):
        nodes += [
            node("Greater", ["x", f"least{k}"], f"m{k}"), node("Compress", ["x", f"m{k}"], f"p{k}", axis=0),
            node("Exp", [f"p{k}"], f"e{k}"),
        ]
    proto = model(
        [*nodes, node("Concat", ["e0", "e1", "e2"], axis=0)], {"x": (30,)},
        weights={f"least{k}": np.float32(v) for k, v in enumerate((-1, 0, 1))})
    compiled = same(proto, *({"x": floats(30, seed=k)} for k in range(5)))
    assert symbols_of(compiled) == [0, 3]


def test_values_that_no_symbol_stands_for_decide_beside_a_count() -> None:
    """A count is a symbol, and an axis is not: there is a program for each axis."""
    nodes = [
        node("Greater", ["x", "zero"], "m"), node("Compress", ["x", "m"], "p", axis=0),
        node("Unsqueeze", ["p", "axes"], "u"), node("Exp", ["u"]),
    ]
    proto = model(nodes, {"x": (30,), "axes": (1,)}, kinds={"axes": INT64}, weights={"zero": np.float32(0)})
    feeds = [{"x": floats(30, seed=k), "axes": np.array([axis])} for k in range(4) for axis in (1, 0, -1)]
    compiled = same(proto, *feeds)
    for feed in feeds[:3]:
        compiled.warm_up(feed)
    assert symbols_of(compiled) == [0, 1, 1, 1]
    same(proto, *feeds)


def test_questions_about_a_count_are_not_answered_for_all() -> None:
    """Three places are something else than two or four."""
    branches = [
        helper.make_graph([node(kind, ["p"], "r")], kind, [], [helper.make_tensor_value_info("r", FLOAT, None)])
        for kind in ("Neg", "Exp")
    ]
    nodes = [
        node("NonZero", ["x"], "z"), node("Cast", ["z"], "p", to=FLOAT), node("Shape", ["z"], "s"),
        node("Gather", ["s", "one"], "n"), node("Equal", ["n", "three"], "c"),
        node("If", ["c"], "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    proto = model(nodes, {"x": (6,)}, weights={"one": np.array(1), "three": np.array(3)})
    feeds = [{"x": (np.arange(6) < n).astype(np.float32)} for n in (2, 3, 4, 3, 2, 5, 0, 1)]
    same(proto, *feeds, *feeds)
    same(proto, *reversed(feeds))


def test_sizes_of_results_of_unknown_size_are_symbols() -> None:
    x = relay.var("x", shape=(6, 2))
    first = relay.TupleGetItem(UniqueSlices()(relay.exp(x)), 0)
    scaled = Call(relay.op.get("tanh")(), [first])
    compiled = tilewright.compile(tilewright.IRModule.from_expr(relay.Function([x], scaled)))
    for seed in range(5):
        value = np.random.default_rng(seed).integers(0, 2, (6, 2)).astype(np.float32)
        np.testing.assert_allclose(
            compiled(value), np.tanh(UniqueSlices().reference(np.exp(value))[0]), rtol=1e-5)
    assert symbols_of(compiled) == [0, 3]


def test_stages_for_all_counts_come_from_the_cache(tmp_path: Path) -> None:
    kept = Cache(tmp_path / "cache")
    first = tilewright.compile(positive_rows(40), cache=kept)
    wanted = [first(rows(n, 40)) for n in (2, 4)]
    second = tilewright.compile(positive_rows(40), cache=kept)
    for n, right in zip((2, 4), wanted, strict=True):
        np.testing.assert_array_equal(second(rows(n, 40)), right)
    assert symbols_of(second)[-1] == 1
    assert symbols_of(second) == symbols_of(first)
    assert "llvm" not in second.report.phases


def detector(classes: int, boxes: int, most: int) -> onnx.ModelProto:
    """The `most` best boxes of each class above a threshold, suppressed together: (m, 4), (m,), (m,)."""
    nodes: list[onnx.NodeProto] = []
    for k in range(classes):
        nodes += [
            node("Gather", ["scores", f"class{k}"], f"own{k}", axis=0), node("Greater", [f"own{k}", "least"], f"m{k}"),
            node("NonZero", [f"m{k}"], f"z{k}"), node("Reshape", [f"z{k}", "all"], f"p{k}"),
            node("Gather", [f"own{k}", f"p{k}"], f"found{k}"), node("Gather", ["boxes", f"p{k}"], f"places{k}"),
            node("Shape", [f"found{k}"], f"n{k}"), node("Concat", [f"n{k}", "most"], f"both{k}", axis=0),
            node("ReduceMin", [f"both{k}"], f"k{k}", keepdims=0), node("Reshape", [f"k{k}", "one"], f"few{k}"),
            node("TopK", [f"found{k}", f"few{k}"], [f"best{k}", f"at{k}"]),
            node("Gather", [f"places{k}", f"at{k}"], f"chosen{k}"), node("Shape", [f"at{k}"], f"size{k}"),
            node("Expand", [f"class{k}", f"size{k}"], f"label{k}"),
        ]
    for name, part in (("every", "chosen"), ("sure", "best"), ("labels", "label")):
        nodes.append(node("Concat", [f"{part}{k}" for k in range(classes)], name, axis=0))
    nodes += [
        node("Unsqueeze", ["every", "first"], "b3"), node("Unsqueeze", ["sure", "two"], "s3"),
        node("NonMaxSuppression", ["b3", "s3", "limit", "overlap"], "rows"),
        node("Gather", ["rows", "last"], "kept", axis=1), node("Reshape", ["kept", "all"], "picked"),
        node("Slice", ["picked", "first", "limit"], "few"),
        node("Gather", ["every", "few"], "y"), node("Gather", ["sure", "few"], "scored"),
        node("Gather", ["labels", "few"], "named"),
    ]
    weights = {
        "least": np.float32(0.5), "all": [-1], "one": [1], "most": [most], "first": [0], "two": [0, 1],
        "limit": [20], "overlap": np.float32(0.4), "last": [2], **{f"class{k}": np.array(k) for k in range(classes)}}
    return model(
        nodes, {"scores": (classes, boxes), "boxes": (boxes, 4)}, ("y", "scored", "named"), weights,
        {"named": INT64})


def seen(classes: int, boxes: int, share: float, seed: int) -> dict[str, Any]:
    """Boxes of a picture, of which about this share is sure."""
    random = np.random.default_rng(seed)
    corners = random.uniform(0, 20, (boxes, 2))
    places = np.concatenate([corners, corners + random.uniform(2, 12, (boxes, 2))], axis=1)
    scores = random.uniform(0, 0.5, (classes, boxes)) + 0.5 * (random.random((classes, boxes)) < share)
    return {"scores": scores.astype(np.float32), "boxes": places.astype(np.float32)}


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error for each program that is compiled from here on."""
    for place in ("model_compiler.ModelCompiler", "saved_stages.Way"):
        for name in ("compile_symbolic", "compile") if "model" in place else ("compiled_symbolic", "compiled"):
            monkeypatch.delattr(f"tilewright.compiler.{place}.{name}")


SHARES = (0.3, 0.0, 0.02, 1.0, 0.1, 0.0, 0.6)


@pytest.mark.slow
def test_a_detector_is_compiled_before_its_first_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Counts from zero to all, more than eight of them, at most five of each; saved before any call."""
    proto = detector(10, 30, 5)
    compiled = tilewright.compile(proto)
    assert max(symbols_of(compiled)) == 10
    compiled.save(tmp_path / "m.tar")
    loaded: Any = tilewright.load(tmp_path / "m.tar")
    wanted = [same(proto, seen(10, 30, share, k))(seen(10, 30, share, k)) for k, share in enumerate(SHARES)]
    no_compiler(monkeypatch)
    for program in (compiled, loaded):
        for k, share in enumerate(SHARES):
            for got, right in zip(program(seen(10, 30, share, k)), wanted[k], strict=True):
                np.testing.assert_array_equal(got, right)
    assert not any(e.next.seen for e in loaded.edges() if e.next is not None)


def conditional(size: int) -> onnx.ModelProto:
    """The positive elements of x, or one zero where there is none."""
    some = [node("Exp", ["p"], "r")]
    none = [node("Identity", ["zero"], "r")]
    branches = [
        helper.make_graph(part, name, [], [helper.make_tensor_value_info("r", FLOAT, None)])
        for name, part in (("some", some), ("none", none))]
    nodes = [
        node("Greater", ["x", "zero"], "m"), node("Compress", ["x", "m"], "p", axis=0), node("Size", ["p"], "n"),
        node("Greater", ["n", "no"], "c"),
        node("If", ["c"], "y", then_branch=branches[0], else_branch=branches[1])]
    return model(nodes, {"x": (size,)}, weights={"zero": np.zeros(1, np.float32), "no": np.array(0)})


def test_both_values_of_a_condition_are_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = conditional(20)
    feeds = [{"x": np.where(np.arange(20) < n, 1.5, -1).astype(np.float32)} for n in (3, 0, 20, 1, 0)]
    compiled = tilewright.compile(proto)
    no_compiler(monkeypatch)
    for feed, n in zip(feeds, (3, 0, 20, 1, 0), strict=True):
        right = np.full(n, np.exp(np.float32(1.5))) if n else np.zeros(1)
        np.testing.assert_allclose(compiled(feed), right, rtol=1e-5)


def positions(size: int, table: int) -> onnx.ModelProto:
    """The positive elements of x plus the first rows of a table."""
    nodes = [
        node("Greater", ["x", "zero"], "m"), node("Compress", ["x", "m"], "p", axis=0), node("Shape", ["p"], "n"),
        node("Slice", ["table", "first", "n"], "rows"), node("Add", ["p", "rows"])]
    weights = {"zero": np.float32(0), "first": [0], "table": np.arange(table, dtype=np.float32)}
    return model(nodes, {"x": (size,)}, weights=weights)


def test_a_count_beyond_a_bound_is_an_error_of_its_call() -> None:
    """The table has ten rows: other calls are not affected, before and after it."""
    compiled = tilewright.compile(positions(30, 10))
    before = symbols_of(compiled)
    for n in (3, 11, 10, 0, 30, 7):
        x = np.where(np.arange(30) < n, 1, -1).astype(np.float32)
        if n > 10:
            with pytest.raises(CompileError):
                compiled(x)
        else:
            np.testing.assert_array_equal(compiled(x), 1 + np.arange(n))
    assert before == [0, 1] and symbols_of(compiled)[:2] == before


def test_a_failing_call_loses_nothing() -> None:
    """An index beyond the end is found in a stage with symbolic sizes."""
    nodes = [
        node("Greater", ["x", "zero"], "m"), node("Compress", ["x", "m"], "p", axis=0),
        node("Cast", ["p"], "at", to=INT64), node("Gather", ["table", "at"]),
    ]
    proto = model(nodes, {"x": (8,)}, weights={"zero": np.float32(0), "table": np.arange(10, dtype=np.float32) * 2})
    compiled = tilewright.compile(proto)
    before = symbols_of(compiled)
    for last in (9, 10, 8, 99, 9):
        x = np.array([-1, 1, 3, -1, last, -2, -2, 5], np.float32)
        if last > 9:
            with pytest.raises(RunError, match="index"):
                compiled(x)
        else:
            np.testing.assert_array_equal(compiled(x), np.array([1, 3, last, 5]) * 2)
    assert symbols_of(compiled) == before == [0, 1]


def test_indices_along_dimensions_of_counts() -> None:
    """NonZero of (1, n) and (2, m): a column of the result counts through a dimension that is known at run time."""
    nodes = []
    for k in range(3):
        nodes += [node("NonZero", [f"t{k}"], f"z{k}"), node("Cast", [f"z{k}"], f"t{k + 1}", to=FLOAT)]
    proto = model([node("Identity", ["x"], "t0"), *nodes, node("Identity", ["t3"])], {"x": (7,)})
    feeds = [{"x": (np.arange(7) % 8 < n).astype(np.float32) * (np.arange(7) != 2)} for n in (5, 0, 1, 7, 3)]
    compiled = same(proto, *feeds)
    assert symbols_of(compiled) == [0, 1, 1, 1]


def test_the_first_stage_serves_all_sizes_of_the_inputs() -> None:
    """One program up to the count, and one after it, for any number of rows and columns."""
    of = model(
        [node("Greater", ["x", "zero"], "m"), node("ReduceMax", ["x", "one"], "top", keepdims=0),
         node("Greater", ["top", "zero"], "kept"), node("Compress", ["x", "kept"], "p", axis=0), node("Exp", ["p"])],
        {"x": ("n", "m")}, weights={"zero": np.float32(0.9), "one": np.array([1])})
    compiled = tilewright.compile(of, shapes={"x": ("n", "m")})
    for n, m, most in ((5, 4, 1), (9, 3, 1), (2, 7, 1), (4, 5, 0.5), (30, 1, 1)):  # none of (4, 5) is kept
        x = np.random.default_rng(n).random((n, m), np.float32) * np.float32(most)
        np.testing.assert_allclose(compiled(x), np.exp(x[x.max(1) > 0.9]), rtol=1e-5)
    assert not stages_of(compiled).root.edges and len(symbols_of(compiled)) == 2


def test_a_value_of_the_inputs_decides_a_program_for_all_sizes() -> None:
    of = model([node("Trilu", ["x", "k"], upper=1)], {"x": ("n", "m"), "k": ()}, kinds={"k": INT64})
    compiled = tilewright.compile(of, shapes={"x": ("n", "m")})
    for k in (0, 2, -1):
        for n, m in ((5, 4), (9, 3), (2, 7)):
            x = np.random.default_rng(n).random((n, m), np.float32)
            np.testing.assert_array_equal(compiled(x, np.array(k)), np.triu(x, k))
    root = stages_of(compiled).root
    assert not root.edges and len(root.symbolic) <= 3
    for k in range(3, 12):
        np.testing.assert_array_equal(compiled(x, np.array(k)), np.triu(x, k))
    assert root.edges and len(root.symbolic) <= SETTLED + 1


def test_a_count_of_several_dimensions_is_limited_by_their_product() -> None:
    of = model([node("NonZero", ["x"], "z"), node("Cast", ["z"], "y", to=FLOAT)], {"x": ("n", "m", 3)})
    compiled = tilewright.compile(of, shapes={"x": ("n", "m", 3)})
    for n, m in ((2, 4), (5, 3), (1, 9)):
        x = np.random.default_rng(m).integers(0, 2, (n, m, 3)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x), np.array(np.nonzero(x)))
    assert not stages_of(compiled).root.edges


def test_some_elements_of_a_value_are_sizes() -> None:
    """The second of three elements is a size, and no operator reads the others."""
    of = model(
        [node("Gather", ["s", "one"], "k"), node("Expand", ["zero", "k"], "p"), node("Exp", ["x"], "e"),
         node("Concat", ["e", "p"], axis=0)],
        {"x": ("n",), "s": (3,)}, weights={"one": [1], "zero": np.zeros(1, np.float32)}, kinds={"s": INT64})
    compiled = tilewright.compile(of, shapes={"x": ("n",)})
    for n, k in ((5, 4), (9, 3), (4, 6), (3, 0)):
        x = floats(n, seed=n)
        np.testing.assert_allclose(
            compiled(x, np.array([7, k, 2])), np.concatenate([np.exp(x), np.zeros(k)]), rtol=1e-5)
    root = stages_of(compiled).root
    assert not root.edges and len(root.symbolic) == 1


def test_a_program_without_a_first_stage() -> None:
    """Distinct rows are found in numpy, and the program after them serves any number of rows."""
    of = model([node("Unique", ["x"], "u", axis=0), node("Exp", ["u"])], {"x": ("n", "m")})
    compiled = tilewright.compile(of, shapes={"x": ("n", "m")})
    for n, m in ((5, 4), (9, 3), (2, 7), (30, 1)):
        x = np.random.default_rng(n).integers(0, 2, (n, m)).astype(np.float32)
        np.testing.assert_allclose(compiled(x), np.exp(np.unique(x, axis=0)), rtol=1e-5)
    root = stages_of(compiled).root
    (first,) = filter(None, root.symbolic.values())
    assert not root.edges and first.program is None and first.sizers and len(symbols_of(compiled)) == 1


def test_a_warning_tells_why_no_program_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call gives it, and no later one."""
    monkeypatch.setattr("tilewright.compiler.symbolic_stages.symbolic_stage", lambda *_: None)
    of = model([node("NonZero", ["x"], "z"), node("Cast", ["z"], "y", to=FLOAT)], {"x": ("n", 3)})
    compiled = tilewright.compile(of, shapes={"x": ("n", 3)})
    x = np.eye(4, 3, dtype=np.float32)
    with pytest.warns(OpenSizeWarning, match="depends on values that the program computes") as found:
        for n in (4, 3, 2):
            np.testing.assert_array_equal(compiled(x[:n]), np.array(np.nonzero(x[:n])))
    assert len(found) == 1


def test_counts_after_a_stage_that_are_dimensions_are_no_symbols_of_their_own() -> None:
    """The number of rows, as an integer from the first stage, shapes a result of the second one; counts of 0 included.
    """
    nodes = [
        node("ReduceMax", ["x", "one"], "most", keepdims=0), node("Greater", ["most", "zero"], "m"),
        node("Compress", ["x", "m"], "p", axis=0), node("Shape", ["p"], "shape"),
        node("Gather", ["shape", "first"], "n"), node("Concat", ["n", "three"], "sizes", axis=0),
        node("ReduceMin", ["p", "one"], "least", keepdims=0), node("Greater", ["least", "zero"], "k"),
        node("Compress", ["least", "k"], "q", axis=0), node("ReduceSum", ["q"], "sum", keepdims=0),
        node("Add", ["p", "sum"], "moved"), node("Reshape", ["moved", "sizes"], "r"), node("Relu", ["r"]),
    ]
    weights = {"one": [1], "first": [0], "three": [3], "zero": np.float32(0)}
    proto = model(nodes, {"x": (20, 3)}, weights=weights)
    compiled = same(proto, *({"x": rows(n, 20)} for n in (5, 0, 20, 1)), {"x": floats(20, 3)})
    assert symbols_of(compiled) == [0, 1, 3]  # two dimensions and a count
