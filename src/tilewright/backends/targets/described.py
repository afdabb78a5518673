"""Kinds of processors that targets describe, although no code is generated for them: GPUs and other devices of TVM.

    Target("cuda -arch=sm_75").keys          ->   ("cuda", "gpu")
    Target("cuda").compilable()              ->   TargetError

Such a target selects functions by its keys (`generic_func`), annotates values (`VirtualDevice`), and is read from
records. Its attributes have TVM's defaults. `base.py` declares the options of targets for which code is generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.backends.base import LIST, NUMBER, TEXT

FLAG, TARGETS = "flag", "targets"
"""Further types of attributes: a truth value, and targets that are separated by commas."""
_COMMON: Final = {
    "keys": LIST, "tag": TEXT, "device": TEXT, "model": TEXT, "libs": LIST, "mcpu": TEXT, "mtriple": TEXT,
    "mattr": LIST, "from_device": NUMBER,
}
_LIMITS: Final = dict.fromkeys(("max_num_threads", "max_threads_per_block", "max_shared_memory_per_block",
                                "thread_warp_size", "max_function_args"), NUMBER)
_VULKAN: Final = {
    **dict.fromkeys(
        ("supports_float16", "supports_float32", "supports_float64", "supports_int8", "supports_int16",
         "supports_int32", "supports_int64", "supports_8bit_buffer", "supports_16bit_buffer",
         "supports_storage_buffer_storage_class", "supports_push_descriptor", "supports_dedicated_allocation",
         "supports_integer_dot_product", "supports_cooperative_matrix"), FLAG),
    **dict.fromkeys(
        ("supported_subgroup_operations", "max_block_size_x", "max_block_size_y", "max_block_size_z",
         "max_push_constants_size", "max_uniform_buffer_range", "max_storage_buffer_range",
         "max_per_stage_descriptor_storage_buffer", "driver_version", "vulkan_api_version", "max_spirv_version"),
        NUMBER),
    "device_type": TEXT, "device_name": TEXT, "driver_name": TEXT,
}


@dataclass(frozen=True, slots=True)
class DescribedKind:
    """The kind of device, the keys that the kind implies, its attributes with their types, and their defaults."""

    device: str
    keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, str]:
        """The types of all attributes, by name."""
        return {**_COMMON, **self.options}


DESCRIBED: Final[Mapping[str, DescribedKind]] = {
    "cuda": DescribedKind(
        "cuda", ("cuda", "gpu"),
        {**_LIMITS, "arch": TEXT, "registers_per_block": NUMBER, "l2_cache_size_bytes": NUMBER},
        {"max_num_threads": 1024, "thread_warp_size": 32}),
    "nvptx": DescribedKind("cuda", ("cuda", "gpu"), _LIMITS, {"max_num_threads": 1024, "thread_warp_size": 32}),
    "rocm": DescribedKind(
        "rocm", ("rocm", "gpu"), _LIMITS,
        {"max_num_threads": 256, "max_shared_memory_per_block": 65536, "max_threads_per_block": 256,
         "thread_warp_size": 64}),
    "opencl": DescribedKind(
        "opencl", ("opencl", "gpu"), {**_LIMITS, "texture_spatial_limit": NUMBER, "supports_float16": FLAG},
        {"max_num_threads": 256, "texture_spatial_limit": 16384, "thread_warp_size": 1}),
    "metal": DescribedKind(
        "metal", ("metal", "gpu"), _LIMITS, {"max_function_args": 31, "max_num_threads": 256, "thread_warp_size": 16}),
    "vulkan": DescribedKind(
        "vulkan", ("vulkan", "gpu"), {**_LIMITS, **_VULKAN},
        {"max_num_threads": 256, "supports_float32": True, "supports_int32": True, "thread_warp_size": 1}),
    "webgpu": DescribedKind("webgpu", ("webgpu", "gpu"), _LIMITS, {"max_num_threads": 256}),
    "sdaccel": DescribedKind("opencl", ("sdaccel", "hls")),
    "hexagon": DescribedKind(
        "hexagon", ("hexagon", "cpu"),
        {"llvm-options": LIST, "num-cores": NUMBER, "vtcm-capacity": NUMBER}),
    "ext_dev": DescribedKind("ext_dev"),
    "hybrid": DescribedKind("cpu", ("hybrid",)),
    "stackvm": DescribedKind("cpu"),
    "composite": DescribedKind("cpu", (), {"devices": TARGETS}),
    "test": DescribedKind("cpu"),
}
"""The kinds by name; `composite` lists the targets of one program, and `test` is a kind for tests."""


def is_described(name: str) -> bool:
    """Return whether targets of this kind are descriptions only."""
    return name in DESCRIBED
