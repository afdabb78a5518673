"""What provokes each code of `catalogue/accelerators.md`, in an empty folder."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.compiler.offload import off_load
from tilewright.contrib.accelerator import Memory
from tilewright.contrib.accelerator.program import Layer, Program, load
from tilewright.contrib.accelerator.simulator import Simulator
from tilewright.contrib.accelerator.stream import LOAD, Command, Move, Tile, encode
from tilewright.contrib.accelerator.testing import Conformance, Failure
from tilewright.contrib.dnnl import library
from tilewright.contrib.library_calls.ethos_u import vela
from tilewright.contrib.npu import npu
from tilewright.runtime.driver import load_driver
from tilewright.target.target import Target


def part(compiler: str, **attributes: object) -> tvm.IRModule:
    """relu as a function of its own, for a target."""
    x, y = relay.var("x", shape=(1, 4)), relay.var("y", shape=(1, 4))
    own = relay.Function([y], relay.nn.relu(y)).with_attr({"Compiler": compiler, "global_symbol": f"{compiler}_0", "Primitive": 1, "Inline": 1, **attributes})
    return tvm.IRModule.from_expr(relay.Function([x], own(x)))


def global_part(compiler: str, **attributes: object) -> tvm.IRModule:
    """The same as a global function."""
    x, y = relay.var("x", shape=(1, 4)), relay.var("y", shape=(1, 4))
    own = relay.Function([y], relay.nn.relu(y)).with_attr({"Compiler": compiler, "global_symbol": f"{compiler}_0", "Primitive": 1, "Inline": 1, **attributes})
    name = relay.GlobalVar(f"{compiler}_0")
    return relay.transform.InferType()(tvm.IRModule({name: own, relay.GlobalVar("main"): relay.Function([x], name(x))}))


def tw0901() -> None:
    relay.op.contrib.partition_for("tpu", tvm.IRModule.from_expr(relay.const(1)))


def tw0902() -> None:
    Target("npu speed=2, llvm")


def tw0903() -> None:
    Memory("sram", size=0)


def tw0904() -> None:
    relay.build(global_part("npu"), "llvm")


def tw0905() -> None:
    relay.build(global_part("npu", Numerics="onnx"), "llvm")


def tw0906() -> None:
    raise NotImplementedError


def tw0907() -> None:
    command = Command(Move(LOAD, Tile((1, 1, 1, 16), (16, 16, 16, 1), "int8", 60), Tile((1, 1, 1, 16), (16, 16, 16, 1), "int8", 0)), 0, 0)
    Simulator(npu, Program("npu_0", (), (), (Layer("copy", "copy", 0, 0),), 64, b"", encode([command], npu))).check()


def tw0908() -> None:
    x = relay.var("x", shape=(1, 4))
    relay.offload.explain(tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(np.ones((2, 4), np.float32))))), "npu").require(0.95)


def tw0909() -> None:
    x = relay.var("x", shape=(1, 4))
    report = relay.offload.explain(tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(np.ones((2, 4), np.float32))))), "npu")
    report.left[0].table([])


def tw0910() -> None:
    relay.build(global_part("examplenpu"), "llvm")


def tw0911() -> None:
    with mock.patch.dict("tilewright.global_functions.FUNCTIONS"):
        tvm.register_func("relay.ext.examplenpu", lambda function: None)
        relay.build(global_part("examplenpu"), "llvm")


def tw0912() -> None:
    with mock.patch.dict("os.environ", {library.VARIABLE: "libdnnl.so"}):
        library.find()


def tw0913() -> None:
    raise NotImplementedError


def tw0914() -> None:
    vela.compile_model(b"", "ethos-u99-128", "npu_0")


def tw0915() -> None:
    Conformance("npu", {"conv": 1}, {"conv": {}}, [Failure("conv", "3 of 16 numbers differ", "def @main(…)")]).check()


def tw0916() -> None:
    Path("driver.so").write_bytes(b"no library")
    load_driver("driver.so")


def tw0917() -> None:
    raise NotImplementedError


def tw0918() -> None:
    load(b"no program", npu)


_ = off_load
