"""Plans of programs with dynamic shapes: compiled sizes, layouts of the workspace, and calls from many threads."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.memory_placement import find_clashes, place_pieces, place_sizes
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest, Piece
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.sizes import compiled, value
from tilewright.runtime.workspaces import MOST_LAYOUTS, PATIENCE, Workspaces

Array = np.ndarray[Any, Any]
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def program() -> OpenExecutable:
    """softmax(relu(x @ W.T) @ W.T) for x of n rows."""
    x = relay.var("x", shape=(relay.Any(), 64))
    hidden = relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT)))
    mod = tilewright.IRModule.from_expr(relay.nn.softmax(relay.nn.dense(hidden, relay.const(WEIGHT))))
    found = tilewright.compile(mod, shapes={"x": ("n", 64)}, threads=1).executable
    assert isinstance(found, OpenExecutable)
    return found


def rows(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)


def answer(x: Array) -> Array:
    y = np.maximum(x @ WEIGHT.T, 0) @ WEIGHT.T
    y = np.exp(y - y.max(1, keepdims=True))
    found: Array = y / y.sum(1, keepdims=True)
    return found


def fresh(program: OpenExecutable, threads: int = 1) -> OpenExecutable:
    """The same program without plans."""
    return OpenExecutable(program.manifest, program.code, program._constants, threads)


def test_compiled_sizes_have_the_values_of_the_texts() -> None:
    texts = ("(n * 4)", "n", "((n * 4) + (m // 3))", "(m % 5)", "max(1, min(n, m))", "(n * 4)", "(-n)")
    function = compiled((7, texts, (("m", 3),)), ["n", "m"])
    for n, m in ((1, 0), (7, 29), (2**40, 5)):
        assert function(n, m) == (7, tuple(value(t, {"n": n, "m": m}) for t in texts), ((m, 3),))


@pytest.mark.parametrize("text", [
    "k", "n.real", "open(n)", "n if n else 1", "(n := 3)", "n / 2", "[n]", "'n'",
    "__import__('os').getpid()", "min(*n)",
    "min(n, key=n)", "(lambda: 0)()", "n ** 9", "n +",
])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        compiled((text,), ["n"])


def workspaces(pieces: tuple[Piece, ...], static: int = 0) -> Workspaces:
    return Workspaces(Manifest("m", (), (), (), workspace_bytes=static, pieces=pieces), 0)


def test_pieces_of_a_layout_never_overlap_while_both_are_live() -> None:
    chance = random.Random(0)
    for _ in range(50):
        births = [chance.randrange(20) for _ in range(12)]
        pieces = tuple(Piece(0, b, b + chance.randrange(6)) for b in births)
        found = workspaces(pieces, 640)
        for _ in range(20):
            sizes = tuple(chance.choice((0, 4, 64, 1000, chance.randrange(1 << 18))) for _ in pieces)
            layout = found.layout(sizes)
            spans = [(int(at), int(at) + n, p) for at, n, p in zip(layout.offsets, sizes, pieces, strict=True)]
            assert all(at >= 640 and at % 64 == 0 and end <= layout.workspace_bytes for at, end, _ in spans)
            for k, (at, end, p) in enumerate(spans):
                for other, other_end, q in spans[:k]:
                    if p.birth <= q.death and q.birth <= p.death:
                        assert end <= other or other_end <= at


def test_the_first_layout_is_as_small_as_that_of_a_static_program() -> None:
    pieces = (Piece(100, 0, 1), Piece(3000, 1, 2), Piece(64, 2, 3))
    sizes = (100, 3000, 64)
    assert workspaces(pieces).layout(sizes).workspace_bytes == place_pieces(pieces)[1]


def test_later_layouts_keep_the_order_of_the_pieces_while_that_wastes_little() -> None:
    chance = random.Random(2)
    pieces = tuple(Piece(0, b, b + chance.randrange(1, 9)) for b in range(60))
    found, per_row = workspaces(pieces), [chance.randrange(1 << 10, 1 << 14) for _ in pieces]
    found.layout(tuple(per_row))
    order = found._order
    for rows in (2, 5, 17, 90):
        layout = found.layout(tuple(n * rows for n in per_row))
        assert found._order is order
        assert layout.workspace_bytes <= 1.25 * place_sizes(layout.capacity, find_clashes(pieces))[1]
    for _ in range(5):  # sizes that have nothing to do with the earlier ones
        layout = found.layout(tuple(chance.randrange(1 << 22) for _ in pieces))
        assert layout.workspace_bytes <= 1.6 * place_sizes(layout.capacity, find_clashes(pieces))[1]


def test_a_size_that_grows_by_one_rarely_needs_a_new_layout() -> None:
    found = workspaces((Piece(0, 0, 1), Piece(0, 1, 2)))
    layouts = {id(found.layout((n * 512, n * 2048))): None for n in range(128, 385)}
    assert len(layouts) <= 12
    assert len(found._layouts) <= MOST_LAYOUTS


def test_small_calls_use_a_small_layout_after_a_large_one() -> None:
    found = workspaces((Piece(0, 0, 1),))
    large, small = found.layout((1 << 26,)), found.layout((1 << 12,))
    assert small.workspace_bytes < 1 << 13
    assert found.layout((1 << 26,)) is large  # both remain
    assert found.layout((1 << 12,)) is small


def test_all_sizes_share_one_workspace(program: OpenExecutable) -> None:
    found = fresh(program)
    for n in (3, 200, 1, 77, 1000, 5):
        np.testing.assert_allclose(found(rows(n)), answer(rows(n)), rtol=1e-4, atol=1e-6)
    frames = found._workspaces.free
    assert len(frames) == 1
    assert frames[0].workspace.nbytes <= 2 * found.at(((1000, 64),)).manifest.workspace_bytes


def test_a_workspace_that_is_too_large_for_long_is_freed(program: OpenExecutable) -> None:
    found = fresh(program)
    found(rows(4000))
    large = found._workspaces.free[0].workspace.nbytes
    for _ in range(PATIENCE + 1):
        found(rows(2))
    assert found._workspaces.free[0].workspace.nbytes < large // 4
    np.testing.assert_allclose(found(rows(4000)), answer(rows(4000)), rtol=1e-4, atol=1e-6)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
def test_memory_is_flat_over_many_sizes(program: OpenExecutable) -> None:
    found, chance = fresh(program), random.Random(1)
    found(rows(2000))
    for _ in range(50):
        found(rows(chance.randrange(1, 2001)))
    grown = []
    for _ in range(3):  # what other tests left running may grow in one of them
        before = resident()
        for _ in range(1000):
            found(rows(chance.randrange(1, 2001)))
        grown.append(resident() - before)
    assert min(grown) < 8 << 20
    assert len(found._plans) <= found._most_plans


def test_calls_of_many_sizes_from_many_threads(program: OpenExecutable) -> None:
    found = fresh(program)
    wanted = {n: answer(rows(n)) for n in range(1, 300, 7)}
    wrong: list[int] = []

    def call(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            n = chance.choice([*wanted])
            if not np.allclose(found(rows(n)), wanted[n], rtol=1e-4, atol=1e-6):
                wrong.append(n)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert len(found._workspaces.free) <= len(callers)


def test_the_number_of_threads_reaches_all_plans(program: OpenExecutable) -> None:
    found = fresh(program, threads=1)
    before = found.at(((5, 64),))
    found.threads = 2
    assert [found.threads, before.threads, found.at(((6, 64),)).threads] == [2, 2, 2]
    found.threads = 1
    assert found.at(((7, 64),)).threads == 1
    np.testing.assert_allclose(found(rows(6)), answer(rows(6)), rtol=1e-4, atol=1e-6)


def test_a_plan_describes_itself(program: OpenExecutable) -> None:
    plan = fresh(program).at(((9, 64),))
    assert isinstance(plan, Executable)
    assert str(plan.inputs[0]) == "float32 x[9, 64]"
    assert plan.outputs[0].shape == (9, 64)
    assert not plan.manifest.symbols and plan.manifest.workspace_bytes > 0
    assert plan.example_inputs()["x"].shape == (9, 64)
    out = np.empty((9, 64), np.float32)
    assert plan(rows(9), out=out) is out
    np.testing.assert_allclose(out, answer(rows(9)), rtol=1e-4, atol=1e-6)
    with pytest.raises(AttributeError, match="'SizedExecutable' object has no attribute 'missing'"):
        plan.missing  # type: ignore[attr-defined]  # noqa: B018


def test_sizes_in_nested_tuples_are_computed_together() -> None:
    function = compiled((("(n * 2)", "m"), "min((n * 2), (m - 1))", "-m", (4, "n")), ["n", "m"])
    assert function(3, 5) == ((6, 5), 4, -5, (4, 3))
