"""Tensor expressions of the operator families, and their schedules for a `Machine`.

They have TVM's names and arguments:

    B = topi.nn.softmax(A, axis=-1)
    s = topi.x86.schedule_softmax(B)
    f = tvm.build(s, [A, B], "llvm")

This namespace has `topi.add`, `topi.sum`, `topi.transpose` and the like. Neural network operators are in `topi.nn`,
images in `topi.image`, detection in `topi.vision`, random numbers in `topi.random`; schedules are in `topi.generic`,
`topi.x86` and `topi.arm_cpu`. Every module lists its public names in `__all__`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from tilewright.topi.device_families import FAMILIES, Family
from tilewright.topi.names import Names

_NAMES: Final = Names(
    __name__,
    ("math", "broadcast", "reduction", "moves", "lookup", "contraction", "scans", "scattering", "sorting", "spectra",
     "places")
)
_MODULES: Final = frozenset({"arm_cpu", "generic", "image", "nn", "random", "sparse", "tag", "utils", "vision", "x86"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    found = globals()[name] = Family(name) if name in FAMILIES else _NAMES.get(name)
    return found


def __dir__() -> list[str]:
    return sorted({*_NAMES.all(), *_MODULES, *FAMILIES})
