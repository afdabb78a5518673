"""Running compiled models: arrays in, arrays out. Nothing here needs the compiler."""

from tilewright.nd import NDArray, cpu, device
from tilewright.runtime import vm
from tilewright.runtime.artifact import Artifact, load
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.executable import Executable
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.module import FactoryModule, load_module

__all__ = ["Artifact", "BenchmarkResult", "Executable", "FactoryModule", "FunctionModule", "NDArray", "cpu", "device", "load", "load_module", "vm"]
