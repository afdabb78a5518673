"""What provokes each code of `catalogue/compiler.md`, in an empty folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from unittest import mock

import numpy as np
from onnx import TensorProto, helper

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.base.errors import NoNativeKernel
from tilewright.compat.onnx_session import InferenceSession
from tilewright.compiler.cache import Cache
from tilewright.ir.op_attributes import register_op_attr
from tilewright.relay.op.registry import OPS
from tilewright.scalar import expr
from tilewright.scalar.arith.evaluate import evaluate


def one(body: relay.Expr, *params: relay.Var) -> tvm.IRModule:
    """A module of one function."""
    return tvm.IRModule.from_expr(relay.Function([*params], body))


def tw1301() -> None:
    evaluate(expr.Var("n"), {})


def tw1302() -> None:
    @tvm.transform.module_pass(opt_level=0, name="Broken")
    def broken(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        return {"found": mod}["main"]

    broken(one(relay.const(1)))


def tw1303() -> None:
    x = relay.var("x", shape=(3,))
    with mock.patch.object(OPS["erf"], "compute", side_effect=NoNativeKernel):
        relay.build(one(relay.erf(x), x), "llvm").executable  # noqa: B018


def tw1304() -> None:
    node = helper.make_node("Det", ["x"], ["y"], name="volume")
    g = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", "n"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ())]
    )
    tvm.compile(
        helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"x": ("n=1..4", "n")},
        threads=1)


def tw1305() -> None:
    register_op_attr("nn.conv22d", "FTVMLegalize", len)


def tw1306() -> None:
    @relay.transform.function_pass(opt_level=0, name="Doubles")
    def doubles(function: relay.Function, mod: tvm.IRModule, context: tvm.transform.PassContext) -> relay.Function:
        return relay.Function(function.params, function.body + function.body)

    x = relay.var("x", shape=(2,))
    with tvm.transform.PassContext(config={"relay.check_rewrites": True, "relay.check_rewrites.max_work": 1}):
        doubles(one(x + relay.const(np.float32(1)), x))


def tw1307() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = relay.transform.InferType()(one(relay.op.cumprod(x), x))
    relay.transform.ToMixedPrecision("float16").transform_module(mod, tvm.transform.PassContext())


def tw1308() -> None:
    cache = Cache(None)
    cache.folder = Path("/var/cache/tilewright")
    cache._give_up(PermissionError(13, "Permission denied"))


def tw1309() -> None:
    InferenceSession(mlp().SerializeToString(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])


def tw1310() -> None:
    with mock.patch.dict(sys.modules):
        sys.modules.pop("tilewright.intrinsics", None)
        importlib.import_module("tilewright.intrinsics")


def tw1311() -> None:
    Path("tvm").mkdir()
    Path("tvm", "__init__.py").touch()
    with mock.patch.dict(sys.modules), mock.patch.object(sys, "path", [str(Path.cwd()), *sys.path]):
        sys.modules.pop("tvm", None)
        importlib.import_module("tilewright.compat.as_tvm").install()
