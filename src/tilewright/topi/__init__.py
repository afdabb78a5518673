"""The computations of the operator families as tensor expressions, and their schedules for a `Machine`.

For scripts, under the names and with the arguments of the field:

    B = topi.nn.softmax(A, axis=-1)
    s = topi.x86.schedule_softmax(B)
    f = tvm.build(s, [A, B], "llvm")

`topi.add`, `topi.sum`, `topi.transpose` and the like are here; networks' operators in `topi.nn`; schedules in `topi.generic`,
`topi.x86` and `topi.arm_cpu`. Every module lists what it gives to this namespace in its `__all__`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_SOURCES: Final = ("math", "broadcast", "reduction", "moves", "lookup")
"""The modules whose functions are part of this namespace."""
_MODULES: Final = frozenset({"arm_cpu", "generic", "nn", "sparse", "tag", "utils", "x86"})
_names: dict[str, str] = {}


def _source(name: str) -> str | None:
    """The module that a public function comes from."""
    if not _names:
        _names.update({n: source for source in _SOURCES for n in importlib.import_module(f"{__name__}.{source}").__all__})
    return _names.get(name)


def __getattr__(name: str) -> Any:
    from tilewright.topi.gpu import FAMILIES, Family

    if name in FAMILIES:
        found: Any = Family(name)
    elif not name.startswith("_") and (source := _source(name)) is not None:
        found = getattr(importlib.import_module(f"{__name__}.{source}"), name)
    elif name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from tilewright.topi.gpu import FAMILIES

    _source("")
    return sorted({*_names, *_MODULES, *FAMILIES})
