"""Parts of concatenations, slices and splits: what the memory plan does without a kernel, and that the answers stay the
same."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import ArtifactError, InternalError
from tilewright.ir.module import IRModule
from tilewright.relay import var
from tilewright.relay.analysis.subarrays import Box, box, part, whole
from tilewright.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, const
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform import MemoryPlan, optimize, plan_memory
from tilewright.runtime.program import KernelCall, step_from_json, step_to_json
from tilewright.runtime.program import Place as RuntimePlace

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]


def elements(b: Box) -> list[int]:
    return [b.offset + r * b.pitch + c for r in range(b.rows) for c in range(b.length)]


def test_boxes_are_sets_of_elements() -> None:
    a = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    assert elements(part((2, 3, 8), 2, 5, 3)) == a[:, :, 5:8].ravel().tolist()
    assert elements(part((2, 3, 8), 1, 1, 2)) == a[:, 1:3].ravel().tolist()
    assert part((2, 3, 8), 0, 1, 1) == Box(1, 24, 24, 24)
    assert part((2, 3, 8), 2, 0, 8) == whole(48)


@pytest.mark.parametrize("seed", range(200))
def test_a_box_in_rows_that_are_moved_apart(seed: int) -> None:
    rng = random.Random(seed)
    rows, width, gap, column = rng.randint(1, 4), rng.choice([1, 2, 4, 6]), rng.randint(0, 5), rng.randint(0, 3)
    pitch = width + column + gap
    size = rows * width
    length = rng.randint(1, size)
    step = rng.randint(length, size)
    count = rng.randint(1, (size - length) // step + 1)
    inner = box(count, length, step, rng.randint(0, size - ((count - 1) * step + length)))
    place = [r * pitch + column + c for r in range(rows) for c in range(width)]
    moved = inner.within(width, pitch, column)
    if moved is not None:
        assert elements(moved) == [place[i] for i in elements(inner)]
    elif rows == 1 or inner == whole(size):
        pytest.fail("a box of one row, and the whole of an array, are boxes wherever they go")


def test_the_array_that_a_box_is_the_corner_of() -> None:
    assert Box(12, 64, 192, 64).storage((3, 4, 64)) == (3, 4, 192)
    assert Box(12, 64, 192, 0).storage((3, 4, 4, 16)) == (3, 4, 12, 16)
    assert Box(12, 64, 100, 0).storage((3, 4, 64)) == (3, 4, 100)
    assert Box(12, 64, 100, 0).storage((12, 4, 16)) is None  # 100 is not a number of rows of 16
    assert Box(12, 64, 192, 0).storage((6, 128)) is None
    assert whole(768).storage((6, 128)) == (6, 128)


def plan_of(inputs: Any, body: Expr) -> MemoryPlan:
    return plan_memory(optimize(IRModule.from_expr(Function(tuple(inputs), body)))["main"])


def check(inputs: list[Any], body: Expr, threads: int = 1) -> MemoryPlan:
    """Compile, run, compare with the interpreter; returns the plan."""
    mod = IRModule.from_expr(Function(tuple(inputs), body))
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(v.tensor_type.shape).astype("float32") for v in inputs]
    run = relay.build(mod, "llvm").artifact.executable(threads)
    found, expected = run(*arrays), evaluate(mod, *arrays)
    for a, b in zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return plan_of(inputs, body)


def conv(x: Expr, channels: int, size: int = 1) -> Call:
    rng = np.random.default_rng(channels)
    *_, given = x.tensor_type.shape
    weight = const(rng.standard_normal((size, size, given, channels)).astype("float32") * 0.1)
    return relay.nn.conv2d(
        x, weight, kernel_size=(size, size), channels=channels, data_layout="NHWC", kernel_layout="HWIO",
        padding=(size // 2, size // 2)
    )


def join(*parts: Expr, axis: int = 3) -> Call:
    return relay.concatenate(Tuple(parts), axis=axis)


def image(channels: int = 32) -> Any:
    return var("x", shape=(1, 8, 8, channels))


def kernels(plan: MemoryPlan) -> list[str]:
    """The operators of the kernels of a plan, in order."""
    from tilewright.relay.visitor import post_order

    inside = [post_order(s.call.op.body) for s in plan.steps if s.call is not None]
    return ["+".join(e.op.name for e in body if isinstance(e, Call)) for body in inside]


@pytest.mark.parametrize("threads", [1, 2])
def test_growing_concatenations_share_one_buffer(threads: int) -> None:
    x = image()
    parts: list[Expr] = [conv(x, 32)]
    for _ in range(4):
        before = join(*parts) if len(parts) > 1 else parts[0]
        parts.append(conv(relay.nn.relu(before), 16, 3))
    plan = check([x], relay.sigmoid(join(*parts)), threads)
    assert not any("concatenate" in k for k in kernels(plan))
    written = [s.outputs[0] for s in plan.steps if s.outputs[0].storage == (1, 8, 8, 96)]
    assert len({w.index // (8 * 8 * 96 * 4) for w in written}) == 1 and len(written) == 5


def test_a_concatenation_may_be_the_result_and_its_parts_too() -> None:
    x = image()
    a, b = conv(x, 16), conv(x, 48)
    plan = check([x], Tuple((join(a, b), a, relay.reshape(b, newshape=(64, 48)))))
    assert [repr(s.outputs[0].place.value) for s in plan.steps[:2]] == ["'output'"] * 2
    assert plan.steps[1].outputs[0].skip in (0, 64) and kernels(plan)[2:] == ["copy", "copy"]


def test_parts_that_no_kernel_makes_are_copied_into_place() -> None:
    x = image()
    a = conv(x, 48)
    plan = check([x], relay.exp(join(x, a, a)))
    assert sorted(kernels(plan)) == ["copy", "copy", "exp", "nn.conv2d"]


def test_concatenations_of_the_same_parts_along_other_axes_are_apart() -> None:
    x = image()
    a, b = conv(x, 16), relay.nn.relu(conv(x, 16))
    check(
        [x],
        Tuple(
            (join(a, b), join(a, b, axis=1), join(a, b, axis=2), join(join(a, b, axis=2), join(b, a, axis=2), axis=3))
        )
    )


def test_parts_of_a_split_are_read_where_they_are() -> None:
    x = var("x", shape=(64, 96))
    w = const(np.random.default_rng(0).standard_normal((192, 96)).astype("float32"))
    parts = relay.split(relay.nn.dense(x, w), indices_or_sections=3, axis=1)
    q, k, v = (
        relay.transpose(relay.reshape(TupleGetItem(parts, i), newshape=(64, 4, 16)), axes=(1, 0, 2)) for i in range(3)
    )
    plan = check([x], relay.add(relay.multiply(q, k), v))
    assert not any("split" in k for k in kernels(plan))
    assert {loc.storage for s in plan.steps for loc in s.inputs if loc.storage} == {(64, 12, 16)}


def test_slices_of_inputs_are_names() -> None:
    x = var("x", shape=(4, 6, 32))
    upper = relay.strided_slice(x, begin=(1,), end=(3,))
    plan = check([x], relay.nn.softmax(upper))
    assert [(s.inputs[0].place.value, s.inputs[0].skip) for s in plan.steps] == [("input", 6 * 32 * 4)]
    right = relay.strided_slice(x, begin=(16,), end=(32,), axes=(2,))
    plan = check([x], Tuple((relay.nn.softmax(right), right)))
    assert kernels(plan) == ["nn.softmax", "copy"]


def test_short_pieces_are_copied_as_before() -> None:
    x = var("x", shape=(64, 8))
    assert kernels(
        check([x], relay.nn.softmax(relay.strided_slice(x, begin=(2,), end=(4,), axes=(1,))))
    ) == ["strided_slice", "nn.softmax"]
    a, b = relay.nn.softmax(x), relay.nn.softmax(relay.exp(x))
    assert kernels(check([x], join(a, b, axis=1)))[-1] == "concatenate"


def test_a_reshape_that_breaks_rows_apart_moves_elements() -> None:
    x = image()
    parts = relay.split(conv(x, 64), indices_or_sections=(48,), axis=3)
    flat = relay.reshape(TupleGetItem(parts, 0), newshape=(96, 32))
    plan = check([x], relay.nn.softmax(flat))
    assert kernels(plan) == ["nn.conv2d", "reshape", "nn.softmax"]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_of_joins_and_parts(seed: int) -> None:
    rng = random.Random(seed)
    x = image(rng.choice([16, 32, 48]))
    values: list[Expr] = [x, conv(x, 32)]
    for _ in range(rng.randint(3, 9)):
        values.append(random_value(rng, values))
    results = rng.sample(values[1:], min(len(values) - 1, rng.randint(1, 3)))
    check([x], Tuple(tuple(results)), threads=1 + seed % 2)


def random_value(rng: random.Random, values: list[Expr]) -> Expr:
    """One more value made from those before; all have the shape (1, 8, …, channels)."""
    a = rng.choice(values[-4:])
    shape = a.tensor_type.shape
    match rng.choice(["join", "join", "join", "split", "slice", "conv", "map", "reshape", "pool"]):
        case "join":
            axis = rng.choice([1, 2, 3, 3, 3])
            fit = [
                v for v in values if all(
                    m == n for d, (m, n) in enumerate(zip(v.tensor_type.shape, shape, strict=True)) if d != axis
                )
            ]
            return join(
                *(rng.choice(fit) for _ in range(rng.randint(2, 4))), axis=axis
            ) if math.prod(shape) < 1 << 15 else relay.nn.relu(a)
        case "split" if shape[3] % 32 == 0:
            return TupleGetItem(relay.split(a, indices_or_sections=2, axis=3), rng.randint(0, 1))
        case "slice" if shape[1] > 4:
            return relay.strided_slice(a, begin=(1,), end=(5,), axes=(1,))
        case "conv":
            return conv(a, rng.choice([16, 32]), rng.choice([1, 3]))
        case "reshape":
            return relay.reshape(a, newshape=(1, shape[1], shape[2] * 2, shape[3] // 2))
        case "pool":
            return relay.nn.max_pool2d(a, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), layout="NHWC")
        case _:
            return relay.nn.relu(relay.add(a, const(np.float32(0.5))))


def test_places_inside_of_inputs_are_text_both_ways() -> None:
    step = KernelCall("k", (RuntimePlace("input", 1, 128), RuntimePlace("workspace", 64), RuntimePlace("output", 0)))
    assert step_from_json(step_to_json(step)) == step
    symbolic = KernelCall("k", (RuntimePlace("input", 1, "(n * 40)"), RuntimePlace("piece", 0, "n")))
    assert step_from_json(step_to_json(symbolic)) == symbolic
    for place in ("input:1+x!", "input:1+", "workspace:64+n", "input:x", "shelf:1"):
        with pytest.raises(ArtifactError, match=f"an unknown place: {re.escape(place)}"):
            step_from_json(["call", "k", "", place])


def test_a_place_beyond_an_input_is_refused() -> None:
    from small_programs import X, Y
    from tilewright.backends.cpu.llvm.entry import emit_entry
    from tilewright.runtime.manifest import Manifest

    step = KernelCall("k", (RuntimePlace("input", 0, 32), RuntimePlace("output", 0)))
    with pytest.raises(InternalError, match="names byte 32 of input 0, which has 32"):
        emit_entry(Manifest("m", (X,), (Y,), (step,)))
