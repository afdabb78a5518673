"""What provokes each code of `catalogue/quantization.md`, in an empty folder."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.relay import quantize
from tilewright.relay.frontend.onnx import from_onnx


def tw1001() -> None:
    with quantize.qconfig(nbit_input=12):
        raise AssertionError


def tw1002() -> None:
    tvm.quantize(mlp(), [])


def tw1003() -> None:
    x = relay.var("x", shape=(2, 3))
    tvm.relay.quantize.from_data.quantize_from_data(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), [{"x": np.ones((2, 3), np.float32)}])


def tw1004() -> None:
    with relay.qnn.op.requantize_config(rounding="DOWN"):
        raise AssertionError


def tw1005() -> None:
    relay.transform.FakeQuantizationToInteger(optional_qnn_ops=["nn.nonsense"])(tvm.IRModule.from_expr(relay.const(1)))


def tw1006() -> None:
    mod, params = from_onnx(mlp())
    quantize.realize(quantize.annotate(mod))
