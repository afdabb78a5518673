"""Batches in parts: which operators and functions treat images apart, and that programs of parts answer what programs
of the whole batch do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily
import op_examples
from tilewright import relay
from tilewright.backends.targets.target import Target
from tilewright.compiler.build import build_module
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.batch_independence import batch_of, images_read
from tilewright.relay.expr import Constant, Expr, Function, Tuple, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.split_batch import PARTS, SplitBatch, best_part
from tilewright.runtime.artifact import load

pytestmark = pytest.mark.slow

IMAGES = 6


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def function(body: Any, *shape: int) -> Function:
    x = var("x", shape=shape)
    return Function((x,), body(x))


def others(a: np.ndarray[Any, Any], image: int, images: int) -> np.ndarray[Any, Any]:
    """The same image, among others: the rows of each other image are those of the next one."""
    parts = np.split(a, images)
    return np.concatenate([parts[k] if k == image else parts[(k + 1) % images] for k in range(images)])


@pytest.mark.parametrize(
    "example", daily.of_each(op_examples.EXAMPLES, lambda e: e.op.name, 1, "batches"), ids=lambda e: e.id
)
def test_an_image_depends_on_itself_only_where_the_analysis_says_so(example: op_examples.Example) -> None:
    _, call = example.call()
    for images in {n for a in example.inputs if a.ndim and (n := len(a)) > 1}:
        reads = images_read(example.op, [a.checked_type for a in call.args], images)
        if reads is None or not any(own for argument in reads for own in argument):
            continue
        flat = [own for argument in reads for own in argument]
        expected = parts_of(example.expected(), images)
        for image in range(images):
            inputs = tuple(others(a, image, images) if own else a for a, own in zip(example.inputs, flat, strict=True))
            found = parts_of(op_examples.Example(example.op, inputs).expected(), images)
            for before, after in zip(expected, found, strict=True):
                np.testing.assert_array_equal(bits(before[image]), bits(after[image]))


def bits(x: Any) -> np.ndarray[Any, Any]:
    """Elements that numpy has no type for, of which one that is no number equals none, as integers; others as they
    are."""
    array = np.ascontiguousarray(x)
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array


def parts_of(result: Any, images: int) -> list[list[np.ndarray[Any, Any]]]:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [np.split(np.asarray(r), images) for r in results]


APART: dict[str, Any] = {
    "elementwise": relay.nn.relu,
    "mean of each image": lambda x: relay.mean(x, axis=(1, 2)),
    "rows of dense": lambda x: relay.reshape(
        relay.nn.dense(relay.reshape(x, newshape=(-1, 8)), const(random(5, 8))), newshape=(IMAGES, 4, 5)
    ),
    "rows of several images": lambda x: relay.nn.softmax(relay.reshape(x, newshape=(IMAGES * 2, 16))),
    "softmax of rows": lambda x: relay.nn.softmax(x, axis=1),
    "a token before each": lambda x: relay.concatenate((const(np.repeat(random(1, 1, 8), IMAGES, 0)), x), axis=1),
    "the same for all": lambda x: relay.add(x, relay.broadcast_to(const(random(1, 4, 8)), shape=(IMAGES, 4, 8))),
    "an embedding": lambda x: relay.take(const(random(9, 3)), relay.cast(x, dtype="int32"), axis=0),
    "parts and slices": lambda x: relay.split(
        relay.strided_slice(x, begin=(0, 1, 0), end=(IMAGES, 4, 8)), indices_or_sections=2, axis=2
    )[0],
    "a product of each": lambda x: relay.nn.batch_matmul(x, x),
    "an order of other axes": lambda x: relay.transpose(x, axes=(0, 2, 1)),
    "all slices in order": lambda x: relay.take(x, const(np.arange(IMAGES)), axis=0),
}


@pytest.mark.parametrize("images", [1, 2, 3])
@pytest.mark.parametrize("name", APART)
def test_what_treats_images_apart_is_split(name: str, images: int) -> None:
    before = IRModule.from_expr(function(APART[name], IMAGES, 4, 8))
    after = SplitBatch(images)(optimize_without_fusion(before))
    assert after["main"].attrs[PARTS] == IMAGES // images
    assert after["main"].params[0].tensor_type.shape == (images, 4, 8)
    x = np.abs(random(IMAGES, 4, 8))
    np.testing.assert_allclose(evaluate(after, x), evaluate(before, x), rtol=1e-6)
    assert SplitBatch(images)(after) is after


def optimize_without_fusion(mod: IRModule) -> IRModule:
    return relay.transform.SimplifyInference()(relay.transform.FoldConstant()(mod))


MIXED: dict[str, Any] = {
    "softmax over the batch": lambda x: relay.nn.softmax(x, axis=0),
    "mean over images": lambda x: relay.subtract(x, relay.mean(x, axis=(0,), keepdims=True)),
    "transpose of the batch": lambda x: relay.transpose(x, axes=(1, 0, 2)),
    "another order of images": lambda x: relay.reverse(x, axis=0),
    "images one after another": lambda x: relay.concatenate((x, x), axis=0),
    "gather over the batch": lambda x: relay.take(x, const(np.array([3, 1, 4, 1, 5, 0])), axis=0),
    "a slice of the batch": lambda x: relay.strided_slice(x, begin=(0,), end=(3,), axes=(0,)),
    "a constant of its own": lambda x: relay.add(x, const(random(IMAGES, 4, 8))),
    "the number of the image": lambda x: relay.add(
        x,
        relay.cast(relay.reshape(relay.arange(start=0, stop=IMAGES, step=1), newshape=(IMAGES, 1, 1)), dtype="float32")
    ),
    "sums along the batch": lambda x: relay.cumsum(x, axis=0),
    "rows that are no images": lambda x: relay.reshape(x, newshape=(4, IMAGES * 8)),
    "a result without images": lambda x: Tuple((x, const(random(IMAGES, 2)))),
    "a number": relay.sum,
    "products between images": lambda x: relay.nn.dense(
        relay.reshape(x, newshape=(IMAGES, 32)), relay.reshape(x, newshape=(IMAGES, 32))
    ),
    "the first image for all": lambda x: relay.add(x, relay.strided_slice(x, begin=(0,), end=(1,), axes=(0,))),
    "numbers drawn anew": lambda x: relay.add(
        x, relay.random.uniform(relay.random.threefry_key(1), shape=(IMAGES, 4, 8))[1]
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_images_is_not_split(name: str) -> None:
    mod = optimize_without_fusion(IRModule.from_expr(function(MIXED[name], IMAGES, 4, 8)))
    assert batch_of(mod["main"]) is None
    assert SplitBatch(2)(mod) is mod


def test_a_batch_of_one_and_inputs_of_different_batches_stay() -> None:
    one = IRModule.from_expr(function(relay.nn.relu, 1, 8))
    assert SplitBatch(1)(one) is one
    x, y = var("x", shape=(4, 8)), var("y", shape=(8,))
    two = IRModule.from_expr(Function((x, y), relay.add(x, y)))
    assert SplitBatch(1)(two) is two


def test_images_at_once_are_a_part_of_the_batch_and_can_be_all() -> None:
    mod = IRModule.from_expr(function(relay.nn.relu, IMAGES, 8))
    assert [SplitBatch(n)(mod) is mod for n in (-1, 4, 5, 6, 7)] == [True] * 5
    assert SplitBatch(3)(mod)["main"].attrs[PARTS] == 2


def chain(images: int, channels: int, size: int) -> Function:
    x = var("x", shape=(images, channels, size, size))
    e: Expr = x
    for _ in range(3):
        e = relay.nn.relu(
            relay.nn.conv2d(
                e, Constant(random(channels, channels, 3, 3)), kernel_size=(3, 3), channels=channels, padding=(1, 1)
            )
        )
    return Function((x,), relay.nn.batch_flatten(relay.nn.global_avg_pool2d(e)))


def test_small_values_stay_together_and_large_ones_are_taken_apart() -> None:
    assert best_part(chain(8, 8, 8), 8, 1 << 20) == 8
    assert best_part(chain(32, 16, 112), 32, 1 << 20) < 32


def test_large_weights_are_read_for_many_images_at_once() -> None:
    x = var("x", shape=(16, 4096))
    wide = Function((x,), relay.nn.dense(x, Constant(np.zeros((4096, 4096), "float32"))))
    assert best_part(wide, 16, 1 << 20) == 16


@pytest.mark.parametrize("batch, images", [(6, 1), (6, 2), (6, 3), (7, 1), (15, 5)])
def test_programs_of_parts_answer_what_those_of_the_whole_batch_do(batch: int, images: int) -> None:
    mod, x = IRModule.from_expr(chain(batch, 7, 9)), random(batch, 7, 9, 9)
    with PassContext(opt_level=3, config={"relay.SplitBatch.images": -1}):
        whole = build_module(mod, Target("llvm"))
    with PassContext(opt_level=3, config={"relay.SplitBatch.images": images}):
        parts = build_module(mod, Target("llvm"))
    assert (whole.manifest.parts, parts.manifest.parts) == (1, batch // images)
    assert parts.manifest.inputs == whole.manifest.inputs and parts.manifest.outputs == whole.manifest.outputs
    assert parts.manifest.workspace_bytes <= -(-whole.manifest.workspace_bytes * images // batch) + 64 * 8
    expected = evaluate(mod, x)
    np.testing.assert_allclose(parts.executable()(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole.executable()(x), expected, rtol=1e-4, atol=1e-5)


def test_optimize_splits_by_the_setting() -> None:
    with PassContext(opt_level=3, config={"relay.SplitBatch.images": 2}):
        assert optimize(IRModule.from_expr(chain(4, 4, 8)))["main"].attrs[PARTS] == 2


CONV = "nn.relu(nn.conv2d({x}, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=7, kernel_size=[3, 3]))"
TWO = (
    "nn.conv2d(nn.conv2d({x}, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=7, kernel_size=[3, 3]), "
    "meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=7, kernel_size=[3, 3])"
)
AROUND = {
    "in one branch": f"def @main(%n: int32, %x: T) {{ if (less(%n, 3)) {{ {TWO.format(x='%x')} }} else {{ exp(%x) }} }}",  # noqa: E501
    "in both, and behind": f"def @main(%n: int32, %x: T) {{ %0 = if (less(%n, 3)) {{ {CONV.format(x='%x')} }} else {{ "
    f"{TWO.format(x='exp(%x)')} }}; tanh({CONV.format(x='%0')}) }}",
    "a value before that both need": f"def @main(%n: int32, %x: T) {{ %0 = {CONV.format(x='%x')}; (if (less(%n, 3)) {{ "
    f"{TWO.format(x='%0')} }} else {{ tanh(%0) }}, %0) }}",
    "mixed with what is no batch": f"def @main(%n: int32, %x: T) {{ if (less(%n, 3)) {{ add({CONV.format(x='%x')}, "
    f"cast(%n, dtype=\"float32\")) }} else {{ subtract(%x, sum({TWO.format(x='%x')}, axis=[0], keepdims=True)) }} }}",
    "a loop": f"""def @main(%n: int32, %x: T) {{ let %loop = fn (%i: int32, %y: T) -> T {{
        if (less(%i, %n)) {{ %loop(add(%i, 1), {TWO.format(x='%y')}) }} else {{ %y }} }}; %loop(0, %x) }}""",
    "a recursion that is not last": f"""def @main(%n: int32, %x: T) {{ @deep(%n, %x) }}
        def @deep(%n: int32, %x: T) -> T {{ if (less(%n, 1)) {{ %x }} else {{ {CONV.format(x='@deep(subtract(%n, 1), tanh(%x))')} }} }}""",  # noqa: E501
    "a match": f"""type Step {{ More(T, Step), End, }}
        def @main(%n: int32, %x: T) {{ @walk(if (less(%n, 3)) {{ More(%x, More(tanh(%x), End)) }} else {{ More(exp(%x), End) }}, %x) }}
        def @walk(%s: Step[], %x: T) -> T {{ match (%s) {{ More(%y, %rest) => @walk(%rest, add({TWO.format(x='%y')}, %x)), End => {CONV.format(x='%x')} }} }}""",  # noqa: E501
    "a reference": f"def @main(%n: int32, %x: T) {{ let %r = ref(%x); let %_ = if (less(%n, 3)) {{ ref_write(%r, "
    f"{TWO.format(x='%x')}) }} else {{ () }}; {CONV.format(x='ref_read(%r)')} }}",
    "tuples": f"def @main(%n: int32, %x: T) {{ %0 = split({TWO.format(x='%x')}, indices_or_sections=3, axis=2); if "
    f"(less(%n, 3)) {{ (%0.1, %0.0) }} else {{ (tanh(%0.0), %0.2) }} }}",
}
"""Programs whose blocks compute a batch, of which `T` is the type."""
WHOLE = ("mixed with what is no batch", "a loop")
"""Those whose blocks have numbers of no image among their inputs, as a counter, and are not split."""


def around(name: str, batch: int) -> IRModule:
    weight = Constant(random(7, 7, 3, 3) / 8)
    text = AROUND[name].replace("T,", f"Tensor[({batch}, 7, 9, 9), float32],").replace(
        ": T", f": Tensor[({batch}, 7, 9, 9), float32]"
    ).replace("-> T", f"-> Tensor[({batch}, 7, 9, 9), float32]")
    parsed: IRModule = relay.parse('#[version = "0.0.5"]\n' + text, init_meta_table={"relay.Constant": [weight]})
    return parsed


def kept(report: BuildReport) -> IRModule:
    assert report.module is not None
    return report.module


@pytest.mark.parametrize("batch, images", [(8, 1), (12, 4), (32, 2)])
@pytest.mark.parametrize("name", AROUND)
def test_control_flow_around_a_batch_in_parts(name: str, batch: int, images: int) -> None:
    """Blocks of programs with control flow are computed in parts, whichever way is taken."""
    mod, x = around(name, batch), random(batch, 7, 9, 9)
    reports = []
    for setting in (images, -1):
        with PassContext(opt_level=3, config={"relay.SplitBatch.images": setting}):
            reports.append(report := BuildReport(keeps_module=True))
            run = build_module(mod, Target("llvm"), report=report).executable()
        for n in (0, 2, 3, 5):
            wanted, found = evaluate(mod, np.int32(n), x), run(np.array(n, np.int32), x)
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    parts, whole = ([f.attrs.get(PARTS, 1) for f in kept(r).functions.values()] for r in reports)
    assert set(whole) == {1}
    assert set(parts) <= {1, batch // images}
    assert (batch // images in parts) == ("_part(ptr" in reports[0].llvm["flow"]) == (name not in WHOLE)


def test_functions_that_others_call_stay_whole() -> None:
    mod = relay.transform.InferType()(relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(4, 8), float32]) { @f(%x) }
def @f(%x: Tensor[(4, 8), float32]) { exp(%x) }
def @other(%x: Tensor[(4, 8), float32]) { tanh(%x) }
def @kernel(%x: Tensor[(4, 8), float32], Primitive=1) { tanh(%x) }"""))
    after = SplitBatch(2)(mod)
    assert {name: f.attrs.get(PARTS, 1) for name, f in after.items()} == {"main": 1, "f": 1, "other": 2, "kernel": 1}
    assert after["f"] is mod["f"]


def test_a_saved_program_of_parts_is_the_same_program(tmp_path: Path) -> None:
    x = random(6, 7, 9, 9)
    with PassContext(opt_level=3, config={"relay.SplitBatch.images": 2}):
        made = build_module(IRModule.from_expr(chain(6, 7, 9)), Target("llvm"))
    expected = made.executable()(x)
    for name in ("model.so", "model.tar"):
        loaded = load(made.save(tmp_path / name))
        assert loaded.manifest.parts == 3
        np.testing.assert_array_equal(loaded.executable()(x), expected)
