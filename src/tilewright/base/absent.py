"""Names of TVM v0.8 to v0.13 that this package does not have: why, and what to use instead.

    message("tilewright.topi.cuda")   ->   "TVM's tvm.topi.cuda is not in tilewright: code for GPUs is not generated; …"
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ABSENT_NAMES: Final = Path(__file__).with_name("absent_names.txt")


@dataclass(frozen=True, slots=True)
class Family:
    """Names that are absent for one reason. `names` is a pattern of full names without `tvm.`."""

    title: str
    names: str
    why: str
    instead: str = ""

    def matches(self, name: str) -> bool:
        """Whether `name`, or a namespace that holds it, belongs to the family."""
        return _compiled(self.names).match(name) is not None


@functools.cache
def _not_yet() -> frozenset[str]:
    """The names that are neither here nor left out, also without the file that defines them, and the modules that hold
    them; `benchmarks/tvm_names.py` writes their list."""
    lines = ABSENT_NAMES.read_text(encoding="utf-8").splitlines()
    modules = {module: names for module, *names in map(str.split, lines)}
    above = (module.rsplit(".", k)[0] for module in modules for k in range(module.count(".")))
    return frozenset((*above, *(
        f"{at}.{name}" for module, names in modules.items() for name in names
        for at in (module, module.rpartition(".")[0]))))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})(?:\.|$)")


FAMILIES: Final = (
    Family(
        "Code for GPUs: `topi.cuda`, `contrib.cublas`, …",
        r"topi\.(?:cuda|rocm|gpu|mali|bifrost|adreno|intel_graphics)|relay\.op\.strategy\.(?:cuda|rocm|mali|bifrost|"
        r"adreno|intel_graphics)|contrib\.(?:cublas|cublaslt|cutlass|thrust|miopen|rocblas|rocm|"
        r"spirv|mps|sdaccel)|relay\.op\.contrib\.(?:cublas|cudnn|cutlass|clml)|tir\.tensor_intrin\.cuda|tir\.op\."
        r"(?:ptx|mma|cp_async|simdgroup)\w*",
        "code for GPUs is not generated", "the targets 'llvm' and 'c'"),
    Family(
        "Hexagon: `contrib.hexagon`, `topi.hexagon`, …",
        r"contrib\.hexagon|topi\.hexagon|relay\.op\.strategy\.hexagon|"
        r"target\.(?:target\.)?hexagon|meta_schedule\.testing\.hexagon\w*",
        "there is no back end for Hexagon", "an accelerator declared in one file, docs/accelerators.md"),
    Family(
        "Code generators of accelerators: `relay.backend.contrib.ethosu`, …",
        r"contrib\.ethosu|relay\.backend\.contrib\.ethosu|relay\.op\.contrib\.ethosu|micro\.contrib\.stm32|"
        r"relay\.backend\.contrib\.(?:bnns|cmsisnn|ethosn|tensorrt|vitis_ai|arm_compute_lib)",
        "this accelerator's code generator is not here", "an accelerator declared in one file, docs/accelerators.md"),
    Family(
        "Parts of `meta_schedule` for GPUs and tensor intrinsics",
        r"meta_schedule\.(?:schedule_rule\.(?:schedule_rule\.)?MultiLevelTiling(?:TensorCore|WideVector)|"
        r"schedule_rule\.cuda|postproc\.\w*(?:VerifyGPUCode|VerifyVTCMLimit|"
        r"DisallowAsyncStridedMemCopy))",
        "code for GPUs is not generated", "the targets 'llvm' and 'c'"),
    Family(
        "Passes and hooks of `meta_schedule` inside the compiler",
        r"tir\.transform\.(?:transform\.)?MetaSchedule\w*|relay\.backend\.use_meta_schedule\w*",
        "a database chooses schedules while a kernel is lowered", "meta_schedule.relay_integration.compile_relay"),
    Family(
        "`relay.frontend.from_keras` and those of seven other frameworks",
        r"relay\.frontend\.(?:from_)?(?:caffe2?|coreml|darknet|keras|mxnet|nnvm_common|oneflow|paddlepaddle|paddle|"
        r"tensorflow2?|tensorflow2?_ops|tensorflow_parser|tensorflow2_parser|mxnet_qnn_op_utils|quantization_utils)"
        r"|contrib\.(?:mxnet|tf_op)|relay\.testing\.tf|relay\.testing\.darknet",
        "models of this framework are not read",
        "an ONNX or TFLite file that the framework exports, docs/frontends.md"),
    Family(
        "Modules inside `relay.frontend.onnx`, `pytorch` and `tflite`",
        r"relay\.frontend\.(?:onnx|pytorch|pytorch_utils|tflite|tflite_flexbuffer|qnn_torch|change_datatype)",
        "the frontends are built otherwise", "relay.frontend.from_onnx, from_pytorch, from_tflite"),
    Family(
        "Modules inside `script.parser`, `script.printer` and `script.ir_builder`",
        r"script\.(?:ir_builder|parser|printer|context_maintainer|diagnostics|meta_unparser|registry|utils|highlight)|"
        r"script\.tir\.(?:intrin|node|scope_handler|special_stmt|utils)",
        "these are parts of TVM's own parser and printer of TVMScript", "@T.prim_func, script(), docs/tir.md"),
    Family(
        "Schedules by target: `topi.x86`, `topi.arm_cpu`, `topi.generic`, `relay.op.strategy`, …",
        r"topi\.(?:x86|arm_cpu|generic|hls)|relay\.op\.strategy",
        "schedules are made for the machine, not chosen by an operator's name",
        "topi.nn for the computation, te.create_schedule or auto_scheduler for its schedule"),
    Family(
        "Downloads of `autotvm.tophub`",
        r"autotvm\.tophub\.\w+", "logs of tuned kernels are not downloaded",
        "tvm.autotvm.tophub.context and logs in the folder ~/.tvm/tophub"),
    Family(
        "Bindings of libraries and tools: `contrib.mkl`, `contrib.nnpack`, `contrib.xcode`, …",
        r"contrib\.(?:mkl|mkldnn|dnnl|nnpack|coreml_runtime|thrust|xcode|ndk|emcc)|"
        r"contrib\.target\.(?:coreml|vitis_ai|android_nnapi)",
        "this library or tool is not called", "tvm.contrib.library_calls for products of another library"),
    Family(
        "`contrib.pipeline_executor`",
        r"contrib\.(?:pipeline_executor|pipeline_executor_build)", "a model is one program on one device",
        "tilewright.compile, and threads that call it"),
    Family(
        "Helpers of TVM's own tests: parts of `testing` and `relay.testing`",
        r"(?:auto_scheduler|autotvm|meta_schedule|relay)\.testing|testing",
        "this helper of TVM's own tests is not here"),
    Family(
        "Command-line tools in `exec`, parts of `rpc`",
        r"exec|rpc\.(?:server_ios_launcher|tornado_util|base|proxy|minrpc)", "this tool is not here",
        "docs/measuring.md"),
    Family(
        "The interface to C++: parts of `_ffi` and `runtime`",
        r"_ffi|runtime\.(?:object_generic|packed_func|script_printer)|ir\.json_compact",
        "there is no interface to C++ objects: everything is Python", "tvm.register_func and tvm.get_global_func"),
    Family(
        "Project servers of microTVM: `micro.project_api`, `micro.transport`, …",
        r"micro\.(?:project_api|class_factory|debugger|transport|contrib)",
        "projects for boards are made without project servers", "tvm.micro, docs/micro.md"),
)


def family_of(name: str) -> Family | None:
    """Return the family of a name without `tvm.`, or None."""
    return next((f for f in FAMILIES if f.matches(name)), None)


def message(name: str) -> str | None:
    """Return what to say about a missing name (`tilewright.topi.cuda` or `tvm.topi.cuda`); None if nothing is known."""
    path = name.partition(".")[2]
    family = family_of(path)
    if family is None:
        is_known = f"tvm.{path}" in _not_yet()
        return f"TVM's 'tvm.{path}' is not in tilewright yet; docs/tvm.md says what is" if is_known else None
    instead = f"; use {family.instead}" if family.instead else ""
    return f"TVM's 'tvm.{path}' is not in tilewright: {family.why}{instead}"
