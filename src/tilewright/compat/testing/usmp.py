"""TVM's `tvm.testing.usmp`: whether the code of a program allocates its workspace at run time."""

from __future__ import annotations

from typing import Any


def is_tvm_backendallocworkspace_calls(mod: Any) -> bool:
    """Return whether the text of a module, or of one that it imports, calls `TVMBackendAllocWorkspace`."""
    return "TVMBackendAllocWorkspace" in mod.get_source() or any(
        map(is_tvm_backendallocworkspace_calls, mod.imported_modules))
