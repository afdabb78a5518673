"""Kernels and whole models write what is theirs and no other byte: guard bytes stand around every output and value."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
from codegen_native import TARGETS
from guarded_memory import FILL, GUARD, Plan, guarded_workspace, run_guarded
from random_graphs import Graph
from random_graphs import inputs as graph_inputs
from random_kernels import KINDS, Maker
from small_models import onnxruntime_answers
from test_kernels_native import agree
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

Array = np.ndarray[Any, Any]

on_targets = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
KERNEL_SEEDS = daily.sample([(kind, seed) for kind in KINDS for seed in range(6000, 6100)], 12, "guarded kernels")
GRAPH_SEEDS = daily.sample(list(range(6000, 6200)), 4, "guarded graphs")
MODELS = ("QLinearMatMul", "QLinearConv 1x1", "QLinearConv 3x3", "Conv 1x1", "Conv 3x3", "MatMul")
WIDTHS = (33, 129, 145)
"""Widths whose last vector has one channel."""
MODEL_SEEDS = daily.sample([(name, seed) for name in MODELS for seed in range(100)], 12, "guarded models")


@on_targets
@pytest.mark.parametrize(("kind", "seed"), KERNEL_SEEDS)
def test_random_kernels(kind: str, seed: int, target: Target) -> None:
    made = Maker(seed).make(KINDS[kind][0])
    with guarded_workspace() as plans:
        run = build_module(IRModule.from_expr(made.function), target).executable(threads=1 + seed % 2)
    (found,) = run_guarded(run, plans, made.arrays)
    agree(found, evaluate(made.function, *made.arrays))


@on_targets
@pytest.mark.parametrize("seed", GRAPH_SEEDS)
def test_random_graphs(seed: int, target: Target) -> None:
    function, arrays = Graph(seed).function(14), graph_inputs(seed)
    with guarded_workspace() as plans:
        run = build_module(IRModule.from_expr(function), target).executable(threads=1 + seed % 2)
    for found, wanted in zip(run_guarded(run, plans, arrays), evaluate(function, *arrays), strict=True):
        agree(found, wanted)


def model(name: str, seed: int, width: int = 0) -> tuple[onnx.ModelProto, Array]:
    """Two layers of one operator, random sizes up to 130 channels (`width` in the first, where it is given), and an
    input."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    operator, _, window = name.partition(" ")
    quantized, side = operator.startswith("Q"), int(window[0]) if window else 0
    sizes = [chance.randint(1, 130), width or chance.randint(1, 130), chance.randint(1, 130)]
    dtype = chance.choice(["int8", "uint8"]) if quantized else "float32"
    kinds = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}
    shape = [
        1, sizes[0], chance.randint(side, 9), chance.randint(side, 9)
    ] if side else [chance.randint(1, 70), sizes[0]]
    inits: dict[str, Array | np.generic] = {}
    nodes, value = [], "x"
    for k, (depth, made) in enumerate(pairwise(sizes)):
        weight = (made, depth, side, side) if side else (depth, made)
        inits[f"w{k}"] = rng.integers(  # without VNNI, ONNX Runtime adds two products in 16 bits
            -64, 64, weight
        ).astype("int8") if quantized else rng.standard_normal(weight).astype("float32")
        names = [value, f"w{k}"]
        if quantized:
            zero = np.array(chance.randint(0, 9), dtype)
            inits |= {
                f"xs{k}": np.float32(0.02), f"xz{k}": zero, f"ws{k}": np.float32(0.003), f"wz{k}": np.array(0, "int8")
            }
            inits |= {f"ys{k}": np.float32(0.02 * depth**0.5 * max(1, side)), f"yz{k}": np.array(3, dtype)}
            names = [value, f"xs{k}", f"xz{k}", f"w{k}", f"ws{k}", f"wz{k}", f"ys{k}", f"yz{k}"]
        value = f"y{k}"
        attributes: dict[str, Any] = {"pads": [side // 2] * 4} if side else {}
        nodes.append(helper.make_node(operator, names, [value], **attributes))
    x = helper.make_tensor_value_info("x", kinds[dtype], shape)
    y = helper.make_tensor_value_info(value, kinds[dtype], None)
    graph = helper.make_graph(
        nodes, "g", [x], [y], [numpy_helper.from_array(np.asarray(v), n) for n, v in inits.items()]
    )
    data = rng.integers(
        0, 256, shape
    ).astype("uint8").view(dtype) if quantized else rng.standard_normal(shape).astype("float32")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), data


@pytest.mark.sampled(24)
@on_targets
@pytest.mark.parametrize(
    ("name", "seed", "width"), [*((n, s, 0) for n, s in MODEL_SEEDS), *((n, 0, w) for n in MODELS[:3] for w in WIDTHS)]
)
def test_layers_of_any_width(name: str, seed: int, width: int, target: Target) -> None:
    made, x = model(name, seed, width)
    with guarded_workspace() as plans:
        run = build_module(from_onnx(made)[0], target).executable(threads=1)
    (found,) = run_guarded(run, plans, [x])
    (wanted,) = onnxruntime_answers(made, {"x": x})
    if wanted.dtype == np.float32:
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_guard_bytes_are_looked_at() -> None:
    plan = Plan(2 * GUARD + 64, ((GUARD, 50),))
    workspace = np.full(plan.total, FILL, np.uint8)
    workspace[GUARD : GUARD + 50] = 1
    assert plan.changed(workspace) == []
    workspace[[GUARD - 1, GUARD + 50]] = 2
    assert plan.changed(workspace) == [GUARD - 1, GUARD + 50]
