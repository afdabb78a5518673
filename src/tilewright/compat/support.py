"""TVM's `tvm.support`: what this package was built with, under the names of TVM's build options."""

from __future__ import annotations

from typing import Final

import tilewright

__all__ = ["describe", "libinfo"]

_ABSENT: Final = (
    "CUDA", "CUDNN", "CUBLAS", "HEXAGON", "MICRO", "OPENCL", "METAL", "VULKAN", "ROCM", "ETHOSN", "ETHOSU", "CMSISNN",
    "TENSORRT_RUNTIME", "TFLITE", "VITIS_AI", "MKL", "MKLDNN", "BLAS", "SORT", "THRUST", "CCACHE")
_PRESENT: Final = ("GRAPH_EXECUTOR", "LLVM", "PROFILER", "RPC")


def libinfo() -> dict[str, str]:
    """Return TVM's build options with their values here. Options of devices and libraries that programs of this package
    do not use are "OFF", and so is USE_MICRO: TVM's projects for boards are not here."""
    import llvmlite.binding as llvm

    return {
        "TVM_VERSION": tilewright.__version__,
        "LLVM_VERSION": ".".join(map(str, llvm.llvm_version_info)),
        **{f"USE_{name}": "ON" for name in _PRESENT},
        **{f"USE_{name}": "OFF" for name in _ABSENT},
    }


def describe() -> None:
    """Print the options of `libinfo`."""
    for name, value in libinfo().items():
        print(f"{name}: {value}")
