"""What provokes each code of `catalogue/programs.md`, in an empty folder."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.ir.op_attributes import reset_op_attr
from tilewright.relay.dataflow_pattern import DFPatternCallback, rewrite
from tilewright.relay.frontend.onnx import from_onnx


def network() -> tvm.IRModule:
    """Dense layers."""
    mod, params = from_onnx(mlp())
    return relay.transform.BindParams(params)(mod) if hasattr(relay.transform, "BindParams") else mod


def tw0401() -> None:
    tvm.IRModule()["main"]


def tw0402() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    relay.analysis.check_well_formed(relay.Function([x], x + y))


def tw0403() -> None:
    x = relay.var("x", shape=(2,))
    relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.Function([], x))), "llvm")


def tw0404() -> None:
    relay.transform.Defunctionalize()(relay.transform.InferType()(relay.parse(
        '#[version = "0.0.5"]\ndef @f[A, B](%y: A) -> A { %y }\ndef @main(%x: float32) { @f(%x) }'
    )))


def tw0405() -> None:
    tvm.parser.fromtext('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) {\n  nn.relu(%y)\n}')


def tw0406() -> None:
    tvm.ir.load_json('{"format": "tilewright", "version": 1}')


def tw0407() -> None:
    tvm.ir.save_json(3j)


def tw0408() -> None:
    relay.transform.FlexibleShapeDispatch([])(network())


def tw0409() -> None:
    relay.op.register_legalize("exp")(lambda attributes, inputs, types: 1)
    try:
        relay.transform.Legalize()(tvm.IRModule.from_expr(relay.exp(relay.var("x", shape=(2, 3)))))
    finally:
        reset_op_attr("exp", "FTVMLegalize")


def tw0410() -> None:
    relay.transform.ConvertLayout({"nn.conv2d": "NCHW"})(network())


def tw0411() -> None:
    tvm.ir.assert_structural_equal(relay.const(1), relay.const(2))


def tw0412() -> None:
    tvm.transform.module_pass(opt_level=1)(3)


def tw0413() -> None:
    class WithoutPattern(DFPatternCallback):
        """No pattern."""

    rewrite(WithoutPattern(), relay.const(1))


def tw0414() -> None:
    x = relay.var("x", shape=(2,))
    end = relay.annotation.compiler_end(relay.nn.relu(x), "npu")
    relay.transform.PartitionGraph()(tvm.IRModule.from_expr(relay.Function([x], end)))


def tw0415() -> None:
    @relay.transform.function_pass(opt_level=0, name="Doubles")
    def doubles(function: relay.Function, mod: tvm.IRModule, context: tvm.transform.PassContext) -> relay.Function:
        return relay.Function(function.params, function.body + function.body)

    x = relay.var("x", shape=(2,))
    with tvm.transform.PassContext(config={"relay.check_rewrites": True}):
        doubles(tvm.IRModule.from_expr(relay.Function([x], x + relay.const(np.float32(1)))))


def tw0416() -> None:
    tvm.ir.Array([1, 2])[0] = 3


def tw0417() -> None:
    relay.testing.resnet.get_workload(num_layers=19)


def tw0418() -> None:
    relay.transform.ToMixedPrecision("float8")(network())


def tw0419() -> None:
    relay.collage.CostEstimator().estimate(network()["main"], "llvm")


def tw0420() -> None:
    with relay.ScopeBuilder().else_scope():
        raise AssertionError


def tw0421() -> None:
    tvm.compile(mlp(), max_arena=64)
