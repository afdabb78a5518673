"""A limit of the arena: plans that fit after all, by other places and another order, and refusals that name the peak
and what lives there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import cnn, mlp
from tilewright import relay
from tilewright.base.errors import CompileError, OpenSizeWarning, OptionError
from tilewright.base.memory_placement import alive_bytes, peak_bytes, place_pieces
from tilewright.driver import options
from tilewright.relay.transform.memory_order import least_memory_order
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.plan_memory import plan_memory
from tilewright.relay.visitor import operands, post_order


@dataclass(frozen=True)
class Piece:
    nbytes: int
    birth: int
    death: int


def disjoint(pieces: list[Piece], offsets: list[int]) -> bool:
    placed = [*zip(pieces, offsets, strict=True)]
    return all(
        a.death < b.birth or b.death < a.birth or i + a.nbytes <= j or j + b.nbytes <= i for k,
        (a, i) in enumerate(placed) for b, j in placed[k + 1 :]
    )


def test_pieces_fit_where_the_usual_order_leaves_gaps() -> None:
    chance = np.random.default_rng(0)
    better = 0
    for _ in range(30):
        births = chance.integers(0, 12, 14)
        pieces = [
            Piece(64 * int(n), int(b), int(b + d)) for n, b,
            d in zip(chance.integers(1, 20, 14), births, chance.integers(0, 5, 14), strict=True)
        ]
        usual, peak = place_pieces(pieces)[1], peak_bytes(pieces)
        offsets, total = place_pieces(pieces, peak)
        assert peak <= total <= usual and disjoint(pieces, offsets)
        assert place_pieces(pieces, usual) == place_pieces(pieces)
        better += total < usual
        assert peak == max(alive_bytes(pieces, k) for k in range(20))
    assert better >= 5
    assert place_pieces([Piece(640, 0, 1)], 64)[1] == 640  # what cannot fit is not searched for
    assert (peak_bytes([]), place_pieces([], 0)) == (0, ([], 0))


def late_temporary() -> tvm.IRModule:
    """A product of two values, the second of which is made by way of a large one: best before the first, though it
    stands behind it."""
    chance = np.random.default_rng(0)

    def dense(value: Any, rows: int, columns: int) -> Any:
        return relay.nn.dense(
            value, relay.const(chance.standard_normal((rows, columns), np.float32) / np.float32(columns))
        )

    x = relay.var("x", shape=(1, 8))
    first = relay.reshape(dense(x, 1024, 8), (1, 32, 32))
    second = relay.reshape(dense(relay.nn.relu(dense(x, 8192, 8)), 1024, 8192), (1, 32, 32))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.batch_matmul(first, second))))


def test_an_order_in_which_less_is_alive() -> None:
    main = optimize(late_temporary())["main"]
    order = least_memory_order(main)
    place = {e: k for k, e in enumerate(order)}
    assert {*order} == {*post_order(main.body, inside=False)}
    assert all(place[o] < place[e] for e in order for o in operands(e) if o in place)
    usual, least = plan_memory(main), plan_memory(main, 1)
    assert (usual.workspace_bytes, least.workspace_bytes) == (4 * (1024 + 8192 + 1024), 4 * (8192 + 1024))
    assert plan_memory(main, usual.workspace_bytes).steps[0].call is usual.steps[0].call


@pytest.mark.slow
def test_a_program_in_another_order_gives_the_same() -> None:
    x = np.random.default_rng(0).random((1, 8), np.float32)
    usual, limit = tvm.compile(late_temporary()), 4 * (8192 + 1024)
    least = tvm.compile(late_temporary(), max_arena=limit)
    assert least.artifact.manifest.workspace_bytes == limit < usual.artifact.manifest.workspace_bytes
    np.testing.assert_array_equal(least(x), usual(x))


def test_a_refusal_names_the_peak_and_what_lives_there() -> None:
    with pytest.raises(
        CompileError,
        match=r"needs an arena of 4096 bytes, but the limit is 4095: the peak is at Conv 'second'[^,]*, step 1 of 4, "
        r"4096 bytes: "
    ) as told:
        tvm.compile(cnn(), max_arena=4095)
    assert (
        "2 kB of Conv 'first'" in str(told.value) and "float32" in str(told.value)
        and "quantize the model" in str(told.value)
    )
    assert "or allow 4096 bytes" in str(told.value)
    tvm.compile(cnn(), max_arena=4096)
    with tvm.transform.PassContext(
        config={"relay.backend.max_arena": 64}
    ), pytest.raises(CompileError, match="the limit is 64"):
        relay.build(relay.frontend.from_onnx(cnn())[0], "llvm")
    with pytest.raises(CompileError, match=r"relay.backend.max_arena is -1; give the limit in bytes"):
        tvm.compile(cnn(), max_arena=-1)
    with pytest.warns(
        OpenSizeWarning, match="has dynamic shapes, so the memory for its values is only known at run time"
    ):
        open_model = tvm.compile(mlp(batch="n"), {"x": ("n", 16)}, max_arena=4096)
    open_model(np.zeros((2, 16), np.float32))  # each combination of sizes is held to the limit
    with pytest.raises(CompileError, match="but the limit is 4096"):
        open_model(np.zeros((64, 16), np.float32))


def test_c_files_are_held_to_it(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="needs an arena of 4096 bytes"):
        tvm.compile(cnn(), target="c", max_arena=100).export_c(tmp_path)


def test_numbers_of_bytes() -> None:
    assert [
        options.byte_count("--max-arena", text) for text in ("300", "256K", "1M", "2 MiB", "1g", "64kB")
    ] == [300, 256 << 10, 1 << 20, 2 << 20, 1 << 30, 64 << 10]
    assert options.max_arena("") == []
    for text in ("", "0", "-1", "1.5M", "many"):
        with pytest.raises(OptionError, match=r"--max-arena: '.*' is not a number of bytes; write 300000, 256K or 1M"):
            options.byte_count("--max-arena", text)
