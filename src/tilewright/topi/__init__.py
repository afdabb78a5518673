"""The computations of the operator families as tensor expressions, and their schedules for a `Machine`.

Scripts use them under TVM's names and with its arguments:

    B = topi.nn.softmax(A, axis=-1)
    s = topi.x86.schedule_softmax(B)
    f = tvm.build(s, [A, B], "llvm")

`topi.add`, `topi.sum`, `topi.transpose` and the like are here; networks' operators in `topi.nn`, pictures' in
`topi.image`, those of detection in `topi.vision`, random numbers in `topi.random`; schedules in `topi.generic`,
`topi.x86` and `topi.arm_cpu`. Every module lists what it gives to this namespace in its `__all__`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from tilewright.topi.gpu import FAMILIES, Family
from tilewright.topi.names import Names

_NAMES: Final = Names(
    __name__,
    ("math", "broadcast", "reduction", "moves", "lookup", "contraction", "scans", "scattering", "sorting", "spectra")
)
_MODULES: Final = frozenset({"arm_cpu", "generic", "image", "nn", "random", "tag", "utils", "vision", "x86"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    found = globals()[name] = Family(name) if name in FAMILIES else _NAMES.get(name)
    return found


def __dir__() -> list[str]:
    return sorted({*_NAMES.all(), *_MODULES, *FAMILIES})
