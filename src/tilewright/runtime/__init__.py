"""Running compiled models: arrays in, arrays out. Nothing here needs the compiler."""

from typing import Any

from tilewright.base import nd as ndarray
from tilewright.base import object_path
from tilewright.base.nd import (
    Device,
    NDArray,
    cl,
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    metal,
    opencl,
    rocm,
    vpi,
    vulkan,
    webgpu,
)
from tilewright.base.object import Object
from tilewright.base.object_path import ObjectPath
from tilewright.base.params import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from tilewright.base.types import DataType
from tilewright.runtime import container, executor, name_transforms, profiler_vm, profiling, vm
from tilewright.runtime.artifact import Artifact, load
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.constants_module import ConstantsModule
from tilewright.runtime.container import ShapeTuple, String
from tilewright.runtime.device_memory import DeviceMemory, memory_of
from tilewright.runtime.driver import Driver, load_driver
from tilewright.runtime.executable import Executable
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.module import FactoryModule, load_module
from tilewright.runtime.modules import Module, ModuleNode, register_module
from tilewright.runtime.threads import NullThreadPool
from tilewright.runtime.threads import default_threads as num_threads

__all__ = [
    "Artifact",
    "BenchmarkResult",
    "ConstantsModule",
    "DataType",
    "Device",
    "DeviceMemory",
    "Driver",
    "Executable",
    "FactoryModule",
    "FunctionModule",
    "Module",
    "ModuleNode",
    "NDArray",
    "NullThreadPool",
    "Object",
    "ObjectPath",
    "ShapeTuple",
    "String",
    "cl",
    "const",
    "container",
    "convert",
    "cpu",
    "cuda",
    "device",
    "enabled",
    "executor",
    "ext_dev",
    "hexagon",
    "load",
    "load_driver",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "memory_of",
    "metal",
    "name_transforms",
    "ndarray",
    "num_threads",
    "object_path",
    "opencl",
    "profiler_vm",
    "profiling",
    "register_module",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "vm",
    "vpi",
    "vulkan",
    "webgpu",
]


def const(value: Any, dtype: str | DataType | None = None, span: Any = None) -> Any:
    """Return a constant of a program, by default of TVM's type for the value: `tvm.tir.const`. `span` is ignored."""
    from tilewright.scalar.expr import literal

    return literal(value, dtype)


def convert(value: Any) -> Any:
    """Convert a Python value into the containers of the IR (`tvm.runtime.convert`)."""
    from tilewright.ir.container import convert as converted

    return converted(value)


def enabled(target: str) -> bool:
    """Return whether programs for a target run on this machine: `enabled("llvm")`."""
    return target.split(maxsplit=1)[0] in ("c", "cpu", "llvm")
