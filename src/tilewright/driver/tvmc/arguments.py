"""The options of `tvmc compile` on its command line, by family, each with its name and its help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tilewright.driver import micro
from tilewright.driver.options import STAGES
from tilewright.driver.tvmc.transforms import LAYOUT_OPERATORS


class ModelFormat(StrEnum):
    """TVM's formats of models, some of which are not supported (see `model.FORMATS`)."""

    ONNX = "onnx"
    TFLITE = "tflite"
    PYTORCH = "pytorch"
    RELAY = "relay"
    KERAS = "keras"
    PB = "pb"
    PADDLE = "paddle"


class OutputFormat(StrEnum):
    """The form of the program in a package."""

    SO = "so"
    TAR = "tar"
    MLF = "mlf"


class Precision(StrEnum):
    """A floating-point type."""

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
"""Options that take several consecutive values."""

Format = Annotated[
    ModelFormat | None, typer.Option("--model-format", help="Format of the model. Default: detected from the contents.")
]
Shapes = Annotated[
    str,
    typer.Option(
        "--input-shapes", metavar="TEXT",
        help='Sizes of inputs: "x:[1,3,224,224] y:[1,10]"; a size of 0 or less is dynamic.')
]
RunShapes = Annotated[
    str,
    typer.Option(
        "--input-shapes", metavar="TEXT", help='Sizes of filled inputs with symbolic dimensions: "x:[1,3,224,224]".')
]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Output file of the package.")]
OutputForm = Annotated[
    OutputFormat,
    typer.Option(
        "-f", "--output-format",
        help="A package with a shared library, with object files, or in the Model Library Format.")
]
Dump = Annotated[
    str,
    typer.Option(
        "--dump-code", metavar="STAGES",
        help=f"Also write OUTPUT.STAGE for these stages, separated by commas: {','.join(STAGES)}.")
]
Offloads = Annotated[
    str,
    typer.Option(
        "--dump-offloads", metavar="FILE",
        help="Write the operators that the target's accelerators take, and the reasons for all others; - is the "
        "standard output.")
]
CrossCompiler = Annotated[
    str,
    typer.Option(
        "--cross-compiler", metavar="PROGRAM",
        help="The compiler that links the library, such as aarch64-linux-gnu-gcc.")
]
CrossOptions = Annotated[
    str,
    typer.Option(
        "--cross-compiler-options", metavar="TEXT", help="Options of the cross compiler, as one string: '-O2 -shared'.")
]
PassConfig = Annotated[
    list[str] | None,
    typer.Option("--pass-config", metavar="NAME=VALUE", help="Set one option of the passes. May be repeated.")
]
Disabled = Annotated[str, typer.Option("--disabled-pass", metavar="NAMES", help="Passes to skip, separated by commas.")]
Level = Annotated[int, typer.Option("-O", "--opt-level", min=0, max=3, help="Skip passes above this level.")]
Records = Annotated[
    str, typer.Option("--tuning-records", metavar="FILE", help="Tuning records; the best schedules are used.")
]
ModuleName = Annotated[
    str, typer.Option("--module-name", metavar="NAME", help="Name of the program, and prefix of its C functions.")
]

Layout = Annotated[
    list[str] | None,
    typer.Option(
        "--desired-layout", metavar="LAYOUT...",
        help="Layouts of images, such as NHWC, or NHWC:HWIO with the kernel's; one for all operators, or one for each.")
]
LayoutOps = Annotated[
    list[str] | None,
    typer.Option(
        "--desired-layout-ops", metavar="NAME...",
        help=f"The converted operators. Default: {', '.join(LAYOUT_OPERATORS)}.")
]
Mixed = Annotated[
    bool, typer.Option("--mixed-precision", help="Compute products, and operators between them, in 16-bit floats.")
]
MixedOps = Annotated[
    list[str] | None,
    typer.Option("--mixed-precision-ops", metavar="NAME...", help="Operators that are always computed in 16 bits.")
]
MixedType = Annotated[Precision, typer.Option("--mixed-precision-calculation-type", help="Type of the computation.")]
MixedSums = Annotated[Precision, typer.Option("--mixed-precision-acc-type", help="Accumulation type of products.")]

ExecutorName = Annotated[
    ExecutorKind | None, typer.Option("--executor", help="The executor. Default: graph, and aot with -f mlf.")
]
GraphLink = Annotated[
    str,
    typer.Option(
        "--executor-graph-link-params", metavar="0|1", help="Whether constants are in the library; always true.")
]
AotLink = Annotated[str, typer.Option("--executor-aot-link-params", metavar="0|1", help="The same for executor aot.")]
AotInterface = Annotated[
    str, typer.Option("--executor-aot-interface-api", metavar="c|packed", help="The call interface; always c.")
]
AotUnpacked = Annotated[
    str,
    typer.Option("--executor-aot-unpacked-api", metavar="0|1", help="Whether kernels take plain pointers; always true.")
]
AotWorkspace = Annotated[
    str,
    typer.Option(
        "--executor-aot-workspace-byte-alignment", metavar="BYTES", help="Alignment of the workspace, up to 64.")
]
AotConstants = Annotated[
    str,
    typer.Option("--executor-aot-constant-byte-alignment", metavar="BYTES", help="Alignment of constants, up to 64.")
]
RuntimeName = Annotated[RuntimeKind, typer.Option("--runtime", help="The runtime library; programs need none.")]
CppSystem = Annotated[
    str,
    typer.Option(
        "--runtime-cpp-system-lib", metavar="0|1",
        help="Whether the program is linked instead of loaded: 1 with -f mlf, otherwise 0.")
]
CrtSystem = Annotated[str, typer.Option("--runtime-crt-system-lib", metavar="0|1", help="The same for runtime crt.")]


def _pools(words: str) -> str:
    return f"{words}, as NAME:VALUE."


Pools = Annotated[str, typer.Option("--workspace-pools", metavar="NAME", help="Memory pool of the workspace.")]
PoolTargets = Annotated[
    str, typer.Option("--workspace-pools-targets", metavar="NAME:TARGET", help=_pools("The target that uses it"))
]
PoolSizes = Annotated[
    str,
    typer.Option(
        "--workspace-pools-size-hint-bytes", metavar="NAME:BYTES", help=_pools("Its size, a limit of the workspace"))
]
PoolClock = Annotated[
    str, typer.Option("--workspace-pools-clock-frequency-hz", metavar="NAME:HZ", help=_pools("Its clock"))
]
PoolRead = Annotated[
    str,
    typer.Option(
        "--workspace-pools-read-bandwidth-bytes-per-cycle", metavar="NAME:BYTES", help=_pools("Its read bandwidth"))
]
PoolWrite = Annotated[
    str,
    typer.Option(
        "--workspace-pools-write-bandwidth-bytes-per-cycle", metavar="NAME:BYTES", help=_pools("Its write bandwidth"))
]
PoolReadLatency = Annotated[
    str, typer.Option("--workspace-pools-read-latency-cycles", metavar="NAME:CYCLES", help=_pools("Its read latency"))
]
PoolWriteLatency = Annotated[
    str, typer.Option("--workspace-pools-write-latency-cycles", metavar="NAME:CYCLES", help=_pools("Its write latency"))
]
PoolBurst = Annotated[
    str, typer.Option("--workspace-pools-burst-bytes", metavar="NAME:TARGET:BYTES", help=_pools("Its burst size"))
]
