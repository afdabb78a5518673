"""What provokes each code of `catalogue/quantization.md`, in an empty folder."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.relay import quantize
from tilewright.relay.quantize.from_data import PostTraining, post_training


def tw1001() -> None:
    with quantize.qconfig(nbit_input=12):
        raise AssertionError


def tw1002() -> None:
    tvm.quantize(mlp(), [])


def tw1003() -> None:
    x = relay.var("x", shape=(2, 3))
    post_training(
        tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), None, [{"x": np.ones((2, 3), np.float32)}],
        PostTraining(), None  # type: ignore[arg-type]
    )


def tw1004() -> None:
    x = relay.var("x", shape=(2, 3), dtype="int32")
    relay.qnn.op.requantize(x, relay.const(0.5), relay.const(0), relay.const(0.25), relay.const(0), rounding="DOWN")


def tw1005() -> None:
    relay.transform.FakeQuantizationToInteger(optional_qnn_ops=["sin"])(tvm.IRModule.from_expr(relay.const(1)))


def tw1006() -> None:
    x, one = relay.var("x", shape=(2, 3)), relay.var("one", shape=())
    simulated = relay.op.annotation.simulated_quantize(x, one, one, one, kind_of_value=1)
    quantize.realize()(tvm.IRModule.from_expr(relay.Function([x, one], simulated)))
