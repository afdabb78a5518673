"""Tags: names of whole targets, such as `raspberry-pi/4b-aarch64` and `nvidia/geforce-rtx-3090`.

    Target("nvidia/jetson-nano").attrs["arch"]        ->   "sm_53"
    register_tag("mine/board", {"kind": "llvm", "mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"})

The compute capability of each GPU is that of NVIDIA's list (developer.nvidia.com/cuda-gpus); the numbers of cores are
those of Amazon's pages on its machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tilewright.base.errors import OptionError

_GPUS: Final[Mapping[int, str]] = {
    35: "tesla-k40 tesla-k20 geforce-gtx-780 geforce-gtx-780-ti geforce-gtx-titan geforce-gtx-titan-black quadro-k6000",
    37: "tesla-k80",
    50: "geforce-gtx-750 geforce-gtx-750-ti quadro-k620 quadro-k1200 quadro-k2200 quadro-m1000m quadro-m2000m",
    52: "tesla-m60 tesla-m40 geforce-gtx-titan-x geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 geforce-gtx-960 "
        "geforce-gtx-950 quadro-m6000 quadro-m6000-24gb quadro-m5000 quadro-m4000 quadro-m2000",
    53: "jetson-nano jetson-tx1",
    60: "tesla-p100 quadro-gp100",
    61: "tesla-p40 tesla-p4 nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti "
        "geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050-ti geforce-gtx-1050 quadro-p6000 quadro-p5000 quadro-p4000 "
        "quadro-p2200 quadro-p2000 quadro-p1000 quadro-p620 quadro-p600 quadro-p400",
    62: "jetson-tx2",
    70: "nvidia-v100 nvidia-titan-v quadro-gv100",
    72: "jetson-agx-xavier jetson-xavier-nx",
    75: "nvidia-t4 nvidia-titan-rtx geforce-rtx-2080-ti geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060 "
        "geforce-gtx-1660 geforce-gtx-1660-ti geforce-gtx-1650 geforce-gtx-1650-ti quadro-rtx-8000 quadro-rtx-6000 "
        "quadro-rtx-5000 quadro-rtx-4000 quadro-t1000 quadro-t2000",
    80: "nvidia-a100 nvidia-a30",
    86: "nvidia-a40 nvidia-a10 nvidia-a16 nvidia-a2 nvidia-rtx-a6000 nvidia-rtx-a5000 nvidia-rtx-a4000 "
        "geforce-rtx-3090-ti geforce-rtx-3090 geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti "
        "geforce-rtx-3070 geforce-rtx-3060-ti geforce-rtx-3060 geforce-rtx-3050",
    87: "jetson-agx-orin jetson-orin-nano jetson-orin-nx",
    89: "nvidia-l4 nvidia-l40 geforce-rtx-4090 geforce-rtx-4080 geforce-rtx-4070-ti geforce-rtx-4070 "
        "geforce-rtx-4060-ti geforce-rtx-4060",
    90: "nvidia-h100",
}
"""Compute capability -> the GPUs that have it."""
_L2_MEGABYTES: Final = {"nvidia-a100": 40, "nvidia-h100": 50, "geforce-rtx-4090": 72, "geforce-rtx-3090-ti": 6}
_AMAZON: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "c4": ("core-avx2", {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "8xlarge": 18}),
    "c5": ("skylake-avx512", {
        "large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18, "18xlarge": 36}),
}
"""Family of machines -> its processor, and the cores of each size."""
_REGISTERED: Final[dict[str, Mapping[str, Any]]] = {}


def _gpu(capability: int, name: str) -> dict[str, Any]:
    registers = 32768 if capability in (53, 62, 72) else 65536
    found = {
        "kind": "cuda", "arch": f"sm_{capability}", "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024, "thread_warp_size": 32, "registers_per_block": registers}
    return {**found, "l2_cache_size_bytes": _L2_MEGABYTES[name] << 20} if name in _L2_MEGABYTES else found


def _raspberry(triple: str) -> dict[str, Any]:
    board = {"kind": "llvm", "mtriple": triple, "mcpu": "cortex-a72", "mattr": ["+neon"], "num-cores": 4}
    return {**board, "host": dict(board)}


def _built_in() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for capability, names in _GPUS.items():
        yield from ((f"nvidia/{n}", _gpu(capability, n)) for n in names.split())
    yield "raspberry-pi/4b-32", _raspberry("armv8l-linux-gnueabihf")
    yield "raspberry-pi/4b-64", _raspberry("aarch64-linux-gnu")
    yield "raspberry-pi/4b-aarch64", _raspberry("aarch64-linux-gnu")
    for family, (cpu, sizes) in _AMAZON.items():
        for size, cores in sizes.items():
            yield f"aws/cpu/{family}.{size}", {
                "kind": "llvm", "keys": ["x86", "cpu"], "mtriple": "x86_64-linux-gnu", "mcpu": cpu, "num-cores": cores}
    for size, cores in (("12xlarge", 24), ("24xlarge", 48)):
        yield f"aws/cpu/c5.{size}", {
            "kind": "llvm", "keys": ["x86", "cpu"], "mtriple": "x86_64-linux-gnu", "mcpu": "cascadelake",
            "num-cores": cores}


_BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = dict(_built_in())


def tagged(name: str) -> Mapping[str, Any] | None:
    """Return the target of a tag as a dictionary, or None."""
    return _REGISTERED.get(name) or _BUILT_IN.get(name)


def tag_names() -> list[str]:
    """Return all tags, sorted."""
    return sorted({*_BUILT_IN, *_REGISTERED})


def add_tag(name: str, config: Mapping[str, Any], override: bool = False) -> None:
    """Register a tag. Raises `OptionError` for one that exists, unless `override` is set."""
    if tagged(name) is not None and not override:
        raise OptionError(f"the tag '{name}' is registered; replace it with override=True", code="TW0212")
    _REGISTERED[name] = dict(config)
