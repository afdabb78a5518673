"""What provokes each code of `catalogue/accelerators.md`, in an empty folder."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

import tilewright as tvm
from test_accelerator import Layers
from tilewright import relay
from tilewright.backends.accelerators.declared import Memory
from tilewright.backends.accelerators.declared.__main__ import accelerator_of
from tilewright.backends.accelerators.declared.module import module_of
from tilewright.backends.accelerators.declared.program import Layer, Program, TensorPlacement, load
from tilewright.backends.accelerators.declared.simulator import Simulator
from tilewright.backends.accelerators.declared.stream import LOAD, Command, Move, encode
from tilewright.backends.accelerators.declared.testing import Conformance, Failure
from tilewright.backends.accelerators.dnnl import library
from tilewright.backends.accelerators.library_calls.ethos_u import vela
from tilewright.backends.accelerators.npu import npu
from tilewright.backends.cpu.c.compile import find_compilers
from tilewright.backends.targets.target import Target
from tilewright.relay.offload import Offload
from tilewright.relay.offload.explain import explain_offload
from tilewright.runtime.driver import HEADER, load_driver
from tilewright.runtime.host import host_arch


def global_part(compiler: str, **attributes: object) -> tvm.IRModule:
    """relu as a function of its own, for a target."""
    x, y = relay.var("x", shape=(1, 4)), relay.var("y", shape=(1, 4))
    own = relay.Function([y], relay.nn.relu(y)).with_attr(
        {"Compiler": compiler, "global_symbol": f"{compiler}_0", "Primitive": 1, "Inline": 1, **attributes}
    )
    name = relay.GlobalVar(f"{compiler}_0")
    return relay.transform.InferType()(tvm.IRModule({name: own, relay.GlobalVar("main"): relay.Function([x], name(x))}))


def moved(far: int) -> Command:
    """16 bytes into the near memory."""
    return Command(Move(LOAD, 1, 0, far, 0, (1, 1, 1, 16), (16, 16, 16, 1), (0, 0, 0, 0), (0, 0, 0, 0)), 0, 0)


def program(*commands: Command) -> Program:
    """These commands, for 64 bytes."""
    place = TensorPlacement(0, (1, 1, 1, 16), "int8")
    return Program(
        "npu_0", (place,), (place,), (Layer("layer", "copy", 0, 32),), 64, b"", b"".join(map(encode, commands))
    )


def report() -> Offload:
    """Why a product stays on the CPU."""
    x = relay.var("x", shape=(1, 4))
    return explain_offload(
        tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(np.ones((2, 4), np.float32))))), "npu"
    )


def tw0901() -> None:
    accelerator_of("mine.py:accelerator")


def tw0902() -> None:
    Target("npu speed=2, llvm")


def tw0903() -> None:
    Memory("sram", size=0)


def tw0904() -> None:
    relay.build(global_part("npu"), "llvm")


def tw0905() -> None:
    relay.build(global_part("npu", numerics="onnx"), "llvm")


def tw0906() -> None:
    small = replace(npu, name="small_npu", far=Memory("dram", 4096))
    small.instructions, small.operators = npu.instructions, npu.operators
    relay.build(small.register(override=True).partition_for(Layers("int8").network()), "llvm")


def tw0907() -> None:
    Simulator(npu, program(moved(60))).cycles()


def tw0908() -> None:
    report().require(0.95)


def tw0909() -> None:
    report().left[0].table([])


def tw0910() -> None:
    with mock.patch.dict("tilewright.base.global_functions.FUNCTIONS") as functions:
        for name in [n for n in functions if n.startswith("relay.ext.") and not n.startswith("relay.ext.npu")]:
            del functions[name]
        relay.build(global_part("examplenpu"), "llvm")


def tw0911() -> None:
    with mock.patch.dict("tilewright.base.global_functions.FUNCTIONS"):
        tvm.register_func("relay.ext.examplenpu", lambda function: None)
        relay.build(global_part("examplenpu"), "llvm")


def tw0912() -> None:
    with mock.patch.dict("os.environ", {library.VARIABLE: "libdnnl.so"}):
        library.find()


def tw0913() -> None:
    module_of(npu)(program(moved(0)))["npu_0"](
        tvm.nd.array(np.zeros(16, "int8")), tvm.nd.array(np.zeros((1, 1, 1, 16), "int8"))
    )


def tw0914() -> None:
    vela.compile_model(b"", "ethos-u99-128", "npu_0")


def tw0915() -> None:
    Conformance("npu", {"conv": 1}, {"conv": {}}, [Failure("conv", "3 of 16 numbers differ", "def @main(…)")]).check()


def tw0916() -> None:
    Path("driver.so").write_bytes(b"no library")
    load_driver("driver.so")


def tw0917() -> None:
    source = Path(__file__).parent.parent / "example_driver.c"
    compiler = find_compilers(host_arch())[0]
    subprocess.run(
        [*compiler.command, "-shared", "-fPIC", f"-I{HEADER.parent}", str(source), "-o", "driver.so"], check=True,
        timeout=120
    )
    with mock.patch.dict("tilewright.base.global_functions.FUNCTIONS") as functions:
        functions.pop("runtime.module.loadbinary_example-driver", None)
        load_driver("driver.so").module(b"nonsense")


def tw0918() -> None:
    load(b"no program", npu)

