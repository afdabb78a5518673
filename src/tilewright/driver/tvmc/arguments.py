"""The options of `tvmc compile`, as its command line has them: by family, each with what it is called and what it says of itself."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tilewright.driver import micro
from tilewright.driver.options import STAGES
from tilewright.driver.tvmc.transforms import LAYOUT_OPERATORS


class ModelFormat(StrEnum):
    """The field's formats of models, of which some are not read here (`model.FORMATS` says why)."""

    ONNX = "onnx"
    TFLITE = "tflite"
    PYTORCH = "pytorch"
    RELAY = "relay"
    KERAS = "keras"
    PB = "pb"
    PADDLE = "paddle"


class OutputFormat(StrEnum):
    """How a package holds its program."""

    SO = "so"
    TAR = "tar"
    MLF = "mlf"


class Precision(StrEnum):
    """A type of floats."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class ExecutorKind(StrEnum):
    """The executor of a program."""

    GRAPH = "graph"
    AOT = "aot"


class RuntimeKind(StrEnum):
    """The runtime that a program is linked with."""

    CPP = "cpp"
    CRT = "crt"


MANY = ("--desired-layout", "--desired-layout-ops", "--mixed-precision-ops", *micro.MANY)
"""Options that take several values, one behind the other."""

Format = Annotated[ModelFormat | None, typer.Option("--model-format", help="What the model is, where its contents shall not say.")]
Shapes = Annotated[str, typer.Option("--input-shapes", metavar="TEXT", help='Sizes of inputs: "x:[1,3,224,224] y:[1,10]"; one that is not positive is open.')]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Where to write the package.")]
OutputForm = Annotated[OutputFormat, typer.Option("-f", "--output-format", help="A package with a shared library, with its objects, or in the Model Library Format.")]
Dump = Annotated[str, typer.Option("--dump-code", metavar="STAGES", help=f"Also write OUTPUT.STAGE for these stages, separated by commas: {','.join(STAGES)}.")]
Offloads = Annotated[str, typer.Option("--dump-offloads", metavar="FILE", help="Write which operators the accelerators of the target take, and why not the others; - is the standard output.")]
CrossCompiler = Annotated[str, typer.Option("--cross-compiler", metavar="PROGRAM", help="The compiler that links the library, like aarch64-linux-gnu-gcc.")]
CrossOptions = Annotated[str, typer.Option("--cross-compiler-options", metavar="TEXT", help="Its options, in one text: '-O2 -shared'.")]
PassConfig = Annotated[list[str] | None, typer.Option("--pass-config", metavar="NAME=VALUE", help="Set one switch; may be repeated.")]
Disabled = Annotated[str, typer.Option("--disabled-pass", metavar="NAMES", help="Passes to leave out, separated by commas.")]
Level = Annotated[int, typer.Option("-O", "--opt-level", min=0, max=3, help="Passes above this level are left out.")]
Records = Annotated[str, typer.Option("--tuning-records", metavar="FILE", help="Tuning records; their best schedules are used.")]
ModuleName = Annotated[str, typer.Option("--module-name", metavar="NAME", help="The name of the program, with which its C functions begin.")]

Layout = Annotated[list[str] | None, typer.Option("--desired-layout", metavar="LAYOUT...", help="Layouts of images, like NHWC, or with the kernel's NHWC:HWIO; one for all of the operators, or one for each.")]
LayoutOps = Annotated[list[str] | None, typer.Option("--desired-layout-ops", metavar="NAME...", help=f"The operators that change. Default: {', '.join(LAYOUT_OPERATORS)}.")]
Mixed = Annotated[bool, typer.Option("--mixed-precision", help="Compute products, and what stands between them, in 16-bit floats.")]
MixedOps = Annotated[list[str] | None, typer.Option("--mixed-precision-ops", metavar="NAME...", help="Operators that are always computed so.")]
MixedType = Annotated[Precision, typer.Option("--mixed-precision-calculation-type", help="What they are computed in.")]
MixedSums = Annotated[Precision, typer.Option("--mixed-precision-acc-type", help="What their products are summed in.")]

ExecutorName = Annotated[ExecutorKind | None, typer.Option("--executor", help="What runs the program. Default: graph, and aot with -f mlf.")]
GraphLink = Annotated[str, typer.Option("--executor-graph-link-params", metavar="0|1", help="Whether constants are within the library, which they are.")]
AotLink = Annotated[str, typer.Option("--executor-aot-link-params", metavar="0|1", help="The same for aot.")]
AotInterface = Annotated[str, typer.Option("--executor-aot-interface-api", metavar="c|packed", help="How the program is called, which is from C.")]
AotUnpacked = Annotated[str, typer.Option("--executor-aot-unpacked-api", metavar="0|1", help="Whether kernels take plain pointers, which they do.")]
AotWorkspace = Annotated[str, typer.Option("--executor-aot-workspace-byte-alignment", metavar="BYTES", help="What the workspace is aligned to; up to 64.")]
AotConstants = Annotated[str, typer.Option("--executor-aot-constant-byte-alignment", metavar="BYTES", help="What constants are aligned to; up to 64.")]
RuntimeName = Annotated[RuntimeKind, typer.Option("--runtime", help="What the program is linked with; it needs neither.")]
CppSystem = Annotated[str, typer.Option("--runtime-cpp-system-lib", metavar="0|1", help="Whether the program is linked, and not loaded: 1 with -f mlf, 0 with the others.")]
CrtSystem = Annotated[str, typer.Option("--runtime-crt-system-lib", metavar="0|1", help="The same for crt.")]


def _pools(words: str) -> str:
    return f"{words}, as NAME:VALUE."


Pools = Annotated[str, typer.Option("--workspace-pools", metavar="NAME", help="The memory that the workspace is to be in.")]
PoolTargets = Annotated[str, typer.Option("--workspace-pools-targets", metavar="NAME:TARGET", help=_pools("What computes with it"))]
PoolSizes = Annotated[str, typer.Option("--workspace-pools-size-hint-bytes", metavar="NAME:BYTES", help=_pools("Its size, which the workspace must fit into"))]
PoolClock = Annotated[str, typer.Option("--workspace-pools-clock-frequency-hz", metavar="NAME:HZ", help=_pools("Its clock"))]
PoolRead = Annotated[str, typer.Option("--workspace-pools-read-bandwidth-bytes-per-cycle", metavar="NAME:BYTES", help=_pools("How fast it is read"))]
PoolWrite = Annotated[str, typer.Option("--workspace-pools-write-bandwidth-bytes-per-cycle", metavar="NAME:BYTES", help=_pools("How fast it is written"))]
PoolReadLatency = Annotated[str, typer.Option("--workspace-pools-read-latency-cycles", metavar="NAME:CYCLES", help=_pools("How long a read takes"))]
PoolWriteLatency = Annotated[str, typer.Option("--workspace-pools-write-latency-cycles", metavar="NAME:CYCLES", help=_pools("How long a write takes"))]
PoolBurst = Annotated[str, typer.Option("--workspace-pools-burst-bytes", metavar="NAME:TARGET:BYTES", help=_pools("How much goes at once"))]
