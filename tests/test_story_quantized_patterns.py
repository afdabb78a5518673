"""One quantized convolution in two shapes, and an accelerator that takes one of them: two rewrites make the other fit.

As PyTorch's models come, weights and biases are quantized in the graph, and values are requantized to int32, clipped
and cast. As TFLite's come, weights and biases are integers, and values are requantized to uint8. Both mean the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.ir import assert_structural_equal
from tilewright.relay import transform
from tilewright.relay.dataflow_pattern import DFPattern, DFPatternCallback, is_constant, is_op, rewrite, wildcard
from tilewright.relay.interpreter import evaluate

RNG = np.random.default_rng(0)
S_IN, Z_IN, S_W, S_OUT = (np.float32(v) for v in (0.0186579, 114, 0.00288958, 0.0150183))
S_B = S_IN * S_W
WEIGHT, BIAS = RNG.integers(-127, 128, (8, 3, 3, 3)).astype("int8"), RNG.integers(-4000, 4000, (8,)).astype("int32")


def f32(value: Any) -> relay.Constant:
    return relay.const(value, "float32")


def i32(value: Any) -> relay.Constant:
    return relay.const(int(value), "int32")


def convolution(x: relay.Var, weight: Any, bias: Any) -> relay.Call:
    data = relay.nn.pad(
        relay.qnn.op.quantize(x, f32(S_IN), i32(Z_IN), out_dtype="uint8", axis=1), [[0, 0], [0, 0], [1, 1], [1, 1]],
        float(Z_IN)
    )
    y = relay.qnn.op.conv2d(
        data, weight, i32(Z_IN), i32(0), f32(S_IN), f32(S_W), kernel_size=(3, 3), channels=8, strides=(2, 2),
        padding=(0, 0), out_dtype="int32"
    )
    return relay.nn.bias_add(y, bias)


def pytorch_shape() -> tvm.IRModule:
    x = relay.var("input", shape=(1, 3, 12, 12))
    weight = relay.qnn.op.quantize(relay.const(WEIGHT * S_W), f32(S_W), i32(0), out_dtype="int8", axis=0)
    bias = relay.qnn.op.quantize(
        relay.const((BIAS * S_B).astype("float32")), f32(S_B), i32(0), out_dtype="int32", axis=0
    )
    y = relay.qnn.op.requantize(
        convolution(x, weight, bias), f32(S_B), i32(0), f32(S_OUT), i32(0), axis=1, out_dtype="int32"
    )
    return tvm.IRModule.from_expr(relay.Function([x], relay.cast(relay.clip(y, 0.0, 255.0), "uint8")))


def tflite_shape() -> tvm.IRModule:
    x = relay.var("input", shape=(1, 3, 12, 12))
    y = convolution(x, relay.const(WEIGHT), relay.const(BIAS))
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.qnn.op.requantize(y, f32(S_B), i32(0), f32(S_OUT), i32(0), axis=1, out_dtype="uint8"))
    )


class FoldQuantizedConstants(DFPatternCallback):
    """qnn.quantize of constants -> the integers."""

    def __init__(self) -> None:
        super().__init__()
        self.pattern = is_op("qnn.quantize")(is_constant(), is_constant(), is_constant())

    def callback(self, pre: Any, post: Any, node_map: Any) -> relay.Expr:
        return relay.const(post.op.reference(*(a.data.numpy() for a in post.args)))


class RemoveClipAfterRequantize(DFPatternCallback):
    """cast(clip(qnn.requantize(x))) to uint8 -> qnn.requantize(x) to uint8."""

    def __init__(self) -> None:
        super().__init__()
        self.requantize = is_op("qnn.requantize")(
            wildcard(), is_constant(), is_constant(), is_constant(), is_constant()
        )
        self.pattern = is_op("cast")(is_op("clip")(self.requantize)).has_attr({"dtype": "uint8"})

    def callback(self, pre: Any, post: Any, node_map: Any) -> relay.Expr:
        inner = node_map[self.requantize][0]
        return relay.qnn.op.requantize(*inner.args, axis=inner.attrs.axis, out_dtype="uint8")


def accelerated_pattern() -> DFPattern:
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    conv = is_op("qnn.conv2d")(data, *(is_constant() for _ in range(5)))
    return is_op("qnn.requantize")(is_op("nn.bias_add")(conv, is_constant()), *(is_constant() for _ in range(4)))


def offloaded(mod: tvm.IRModule) -> list[Any]:
    passes = [
        transform.InferType(), transform.MergeComposite([("ethos-n.qnn_conv2d", accelerated_pattern())]),
        transform.AnnotateTarget("ethos-n"), transform.MergeCompilerRegions(), transform.PartitionGraph(),
    ]
    parts = tvm.transform.Sequential(passes)(mod)
    image = np.random.default_rng(1).uniform(-2, 2, (1, 3, 12, 12)).astype("float32")
    np.testing.assert_array_equal(evaluate(parts, image), evaluate(mod, image))
    return [f for f in parts.functions.values() if f.attrs.get("Compiler") == "ethos-n"]


def test_only_the_shape_of_tflite_fits_the_accelerator() -> None:
    assert offloaded(pytorch_shape()) == []
    (function,) = offloaded(tflite_shape())
    assert function.attrs.global_symbol == "tvmgen_default_ethos_n_main_0"
    assert function.body.op.attrs.Composite == "ethos-n.qnn_conv2d"
    assert function.body.op.attrs.PartitionedFromPattern == "nn.pad_qnn.conv2d_nn.bias_add_qnn.requantize_"


def test_two_rewrites_make_the_shape_of_tflite() -> None:
    for callbacks in (
        [RemoveClipAfterRequantize(), FoldQuantizedConstants()], [FoldQuantizedConstants(), RemoveClipAfterRequantize()]
    ):
        fixed = tvm.IRModule.from_expr(rewrite(callbacks, pytorch_shape()["main"]))
        assert_structural_equal(fixed, tflite_shape())
        assert len(offloaded(fixed)) == 1


def test_the_text_is_the_one_of_the_field() -> None:
    text = pytorch_shape().astext()
    for expected in ('out_dtype="uint8", axis=1)', "pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]", "clip(", "a_max=255f"):
        assert expected in text
