"""Squeeze-and-excite blocks and shuffled channels as native programs, against the interpreter, and what they cost in
kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay import var
from tilewright.relay.expr import Call, Expr, Function, Var, const
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform import MemoryPlan, optimize, plan_memory
from tilewright.relay.visitor import post_order


def weights(*shape: int) -> relay.Constant:
    return const((np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype("float32"))


def pointwise(x: Expr, channels: int, stride: int = 1) -> Expr:
    given = x.tensor_type.shape[1]
    return relay.nn.conv2d(
        x, weights(channels, given, 1, 1), kernel_size=(1, 1), channels=channels, strides=(stride, stride)
    )


def excited(x: Expr, channels: int, stride: int = 1) -> Expr:
    """A squeeze-and-excite block, and the 1x1 convolution behind it."""
    deep = x.tensor_type.shape[1]
    gate = relay.sigmoid(pointwise(relay.nn.relu(pointwise(relay.nn.global_avg_pool2d(x), 4)), deep))
    return relay.add(pointwise(relay.multiply(x, gate), channels, stride), weights(channels, 1, 1))


def shuffled(x: Expr, groups: int) -> Expr:
    _, c, h, w = x.tensor_type.shape
    apart = relay.transpose(relay.reshape(x, newshape=(1, groups, c // groups, h, w)), axes=(0, 2, 1, 3, 4))
    return relay.reshape(apart, newshape=(1, c, h, w))


def check(x: Var, body: Expr, threads: int = 1, **config: Any) -> MemoryPlan:
    """Compile, run, compare with the interpreter; returns the plan."""
    mod = IRModule.from_expr(Function((x,), body))
    given = np.random.default_rng(1).standard_normal(x.tensor_type.concrete_shape).astype("float32")
    with PassContext(opt_level=3, config=config):
        found = relay.build(mod, "llvm").artifact.executable(threads)(given)
        plan = plan_memory(optimize(mod)["main"])
    np.testing.assert_allclose(found, evaluate(mod, given), rtol=1e-4, atol=1e-4)
    return plan


def kernels(plan: MemoryPlan) -> list[str]:
    """The operators of the kernels of a plan, in order."""
    inside = [post_order(s.call.op.body) for s in plan.steps if s.call is not None]
    return ["+".join(e.op.name for e in body if isinstance(e, Call)) for body in inside]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("deep", "size", "channels", "stride"), [(16, 20, 24, 1), (40, 14, 17, 1), (36, 15, 8, 2), (96, 28, 24, 1)]
)
def test_a_gate_scales_the_weights(deep: int, size: int, channels: int, stride: int, threads: int) -> None:
    x = var("x", shape=(1, 8, size, size))
    body = excited(relay.nn.relu(pointwise(x, deep)), channels, stride)
    assert kernels(check(x, body, threads))[-2:] == ["multiply+nn.conv2d+add", "transpose"]
    plain = kernels(check(x, body, threads, **{"relay.FoldGate.enabled": False}))
    assert plain[-3:] == ["multiply", "nn.conv2d+add", "transpose"]


def test_an_image_smaller_than_the_weights_is_gated_itself() -> None:
    x = var("x", shape=(1, 8, 5, 5))
    assert kernels(
        check(x, excited(relay.nn.relu(pointwise(x, 64)), 48))
    )[-3:] == ["multiply", "nn.conv2d+add", "transpose"]


@pytest.mark.parametrize(("channels", "groups"), [(32, 2), (48, 4), (58, 2)])
def test_shuffled_channels_stay_in_their_pixel(channels: int, groups: int) -> None:
    x = var("x", shape=(1, 8, 9, 9))
    body = pointwise(shuffled(relay.nn.relu(pointwise(x, channels)), groups), 24)
    # the shuffle, and the order of the input and of the result
    assert sum("transpose" in k for k in kernels(check(x, body))) == 3


@pytest.mark.parametrize("half", [32, 58])
def test_halves_of_shuffled_channels_are_moved_once(half: int) -> None:
    x = var("x", shape=(1, 8, 9, 9))
    first = relay.concatenate((relay.nn.relu(pointwise(x, half)), relay.nn.relu(pointwise(x, half))), axis=1)
    mixed = shuffled(first, 2)
    kept = relay.strided_slice(mixed, begin=(0,), end=(half,), axes=(1,))
    taken = relay.strided_slice(mixed, begin=(half,), end=(2 * half,), axes=(1,))
    plan = check(x, pointwise(relay.concatenate((kept, relay.nn.relu(pointwise(taken, half))), axis=1), 16))
    moved = [
        s for s, k in zip([s for s in plan.steps if s.call is not None], kernels(plan), strict=True) if k == "transpose"
    ]
    assert [s.outputs[0].type.size for s in moved] == [81 * 8, 81 * half, 81 * half, 81 * 16]
    assert not any("strided_slice" in k or "concatenate" in k for k in kernels(plan))
