"""Stages for every count: symbols in the place of sizes that are only known while a program runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

import tilewright
from small_models import stages_of
from test_staged import FLOAT, INT64, floats, model, node, positive_rows, rows, same
from tilewright import relay
from tilewright.compiler.cache import Cache
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


def test_counts_of_nothing_have_stages_of_their_own() -> None:
    compiled = same(positive_rows(40), *({"x": rows(n, 40)} for n in (2, 0, 3, 0)))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None and [e.sizes for e in first.next.edges.values()] + list(first.next.seen)
    assert sorted(symbols_of(compiled))[-2:] == [0, 1]


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
