"""MobileNet, channels last, with its biases on an accelerator: the text of the module before and after the partition,
to the letter.

Functions are printed by name, so the constants inside of `…_main_2` come after those of `…_main_10` to `…_main_18`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir import register_op_attr, reset_op_attr
from tilewright.relay import transform

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))

BEFORE = """
def @main(%input: Tensor[(1, 224, 224, 3), float32], %v_param_1: Tensor[(3, 3, 3, 32), float32], %v_param_2: Tensor[(32), float32], %v_param_3: Tensor[(3, 3, 32, 1), float32], %v_param_4: Tensor[(32), float32],
  %0 = nn.conv2d(%input, %v_param_1, strides=[2, 2], padding=[0, 0, 1, 1], channels=32, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO");
  %1 = nn.bias_add(%0, %v_param_2, axis=3);
  %2 = clip(%1, a_min=0f, a_max=6f);
  %3 = nn.conv2d(%2, %v_param_3, padding=[1, 1, 1, 1], groups=32, channels=32, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI");
  %4 = nn.bias_add(%3, %v_param_4, axis=3);
  %5 = clip(%4, a_min=0f, a_max=6f);
"""  # noqa: E501

MAIN = """
def @main(%input: Tensor[(1, 224, 224, 3), float32] /* ty=Tensor[(1, 224, 224, 3), float32] */, output_tensor_names=["MobilenetV1_Predictions_Reshape_1"]) -> Tensor[(1, 1001), float32] {
  %0 = nn.conv2d(%input, meta[relay.Constant][0] /* ty=Tensor[(3, 3, 3, 32), float32] */, strides=[2, 2], padding=[0, 0, 1, 1], channels=32, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO") /* ty=Tensor[(1, 112, 112, 32), float32] */;
  %1 = @tvmgen_default_npu_main_0(%0) /* ty=Tensor[(1, 112, 112, 32), float32] */;
  %2 = clip(%1, a_min=0f, a_max=6f) /* ty=Tensor[(1, 112, 112, 32), float32] */;
  %3 = nn.conv2d(%2, meta[relay.Constant][1] /* ty=Tensor[(3, 3, 32, 1), float32] */, padding=[1, 1, 1, 1], groups=32, channels=32, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI") /* ty=Tensor[(1, 112, 112, 32), float32] */;
  %4 = @tvmgen_default_npu_main_2(%3) /* ty=Tensor[(1, 112, 112, 32), float32] */;
  %5 = clip(%4, a_min=0f, a_max=6f) /* ty=Tensor[(1, 112, 112, 32), float32] */;
"""  # noqa: E501

FUNCTIONS = """
def @tvmgen_default_npu_main_0(%npu_0_i0: Tensor[(1, 112, 112, 32), float32], Inline=1, Compiler="npu", global_symbol="tvmgen_default_npu_main_0", Primitive=1) -> Tensor[(1, 112, 112, 32), float32] {
  nn.bias_add(%npu_0_i0, meta[relay.Constant][28], axis=3)
}
def @tvmgen_default_npu_main_2(%npu_2_i0: Tensor[(1, 112, 112, 32), float32], Inline=1, Compiler="npu", global_symbol="tvmgen_default_npu_main_2", Primitive=1) -> Tensor[(1, 112, 112, 32), float32] {
  nn.bias_add(%npu_2_i0, meta[relay.Constant][34], axis=3)
}
"""  # noqa: E501


def mobilenet() -> relay.Function:
    """The network of full width, as Keras has it: channels last, biases, ReLU6."""
    params: list[relay.Var] = []

    def parameter(*shape: int) -> relay.Var:
        params.append(relay.var(f"v_param_{len(params) + 1}", shape=shape))
        return params[-1]

    def conv(y: relay.Expr, size: int, channels: int, out: int, stride: int = 1, groups: int = 1) -> relay.Expr:
        shape, layout = ((size, size, channels, 1), "HWOI") if groups > 1 else ((size, size, channels, out), "HWIO")
        pad = (0,) * 4 if size == 1 else (0, 0, 1, 1) if stride == 2 else (1,) * 4
        product = relay.nn.conv2d(
            y, parameter(*shape), strides=(stride, stride), padding=pad, groups=groups, channels=out,
            kernel_size=(size, size), data_layout="NHWC", kernel_layout=layout,
        )
        return relay.nn.bias_add(product, parameter(out), axis=3)

    x = relay.var("input", shape=(1, 224, 224, 3))
    y: relay.Expr = relay.clip(conv(x, 3, 3, channels := 32, stride=2), 0.0, 6.0)
    for out, stride in BLOCKS:
        y = relay.clip(conv(y, 3, channels, channels, stride, groups=channels), 0.0, 6.0)
        y = relay.clip(conv(y, 1, channels, out), 0.0, 6.0)
        channels = out
    y = conv(relay.nn.avg_pool2d(y, pool_size=(7, 7), layout="NHWC"), 1, channels, 1001)
    y = relay.nn.softmax(relay.reshape(y, (1, 1001)))
    return relay.Function([x, *params], y, attrs={"output_tensor_names": ("MobilenetV1_Predictions_Reshape_1",)})


@pytest.fixture
def biases_on_the_npu() -> Iterator[None]:
    register_op_attr("nn.bias_add", "target.npu", lambda call: True)
    yield
    reset_op_attr("nn.bias_add", "target.npu")


def plain(text: str) -> str:
    """Without the comments, which say the types."""
    return re.sub(r" /\*.*?\*/", "", text)


def test_the_text_of_a_partitioned_mobilenet(biases_on_the_npu: None) -> None:
    network = mobilenet()
    before = plain(tvm.IRModule.from_expr(network).astext())
    for line in BEFORE.strip().splitlines():
        assert line in before
    assert before.index(BEFORE.strip().splitlines()[1]) < before.index("%6 = ")

    weights = {v.name_hint: np.zeros([int(d) for d in v.tensor_type.shape], "float32") for v in network.params[1:]}
    mod = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(network, weights))
    mod = transform.InferType()(mod)
    mod = transform.AnnotateTarget("npu")(mod)
    mod = transform.MergeCompilerRegions()(mod)
    mod = transform.PartitionGraph()(mod)
    text = mod.astext()
    assert text.startswith('#[version = "0.0.5"]' + MAIN)
    assert text.index("def @tvmgen_default_npu_main_10(") < text.index("def @tvmgen_default_npu_main_2(")
    for function in FUNCTIONS.strip().split("\ndef "):
        assert function in plain(text)
    assert [n for n in mod if n != "main"] == [f"tvmgen_default_npu_main_{2 * k}" for k in range(28)]
