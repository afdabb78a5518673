"""Accelerators that are declared in one Python file: partitioning, tiling, bit-exact simulation, saving, tests and
documentation follow from the declaration.

    from tilewright.contrib.accelerator import Accelerator, Memory, arithmetic, forms

`declaration.py` has the API for such files; `tilewright.contrib.npu` is an example. `python -m
tilewright.contrib.accelerator npu` tests it and writes its page.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tilewright.backends.accelerators.declared import arithmetic, forms
from tilewright.backends.accelerators.declared.declaration import Accelerator, Memory, Operand, Refused
from tilewright.backends.accelerators.declared.report import cycle_reports

if TYPE_CHECKING:
    from tilewright.backends.accelerators.declared.documentation import page
    from tilewright.backends.accelerators.declared.partition import share
    from tilewright.backends.accelerators.declared.testing import conformance

_LATE: Final = {"conformance": "testing", "page": "documentation", "share": "partition"}
"""Names that need the compiler, with the modules that define them."""

__all__ = [
    "Accelerator", "Memory", "Operand", "Refused", "arithmetic", "conformance", "cycle_reports", "forms", "page",
    "share"
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"tilewright.backends.accelerators.declared.{_LATE[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
