"""oneDNN as a back end: its primitives run parts of a network, native kernels the rest.

    tilewright.compile("resnet50.onnx", target="dnnl, llvm")
    relay.build(dnnl.partition_for_dnnl(mod, params), "llvm")      # the same with TVM's functions

It needs `libdnnl.so.3` at run time (`pip install onednn-cpu-gomp`), but not at compile time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tilewright.backends.accelerators.dnnl.runtime import DNNLModule

if TYPE_CHECKING:
    from tilewright.relay.op.contrib.dnnl import partition_for_dnnl, pattern_table

    partition_for = partition_for_dnnl

_LATE: Final = {
    "partition_for": "partition_for_dnnl", "partition_for_dnnl": "partition_for_dnnl", "pattern_table": "pattern_table"
}
"""Names that only compilation needs; targets with accelerators ("dnnl, llvm") call the first."""

__all__ = ["DNNLModule", "partition_for", "partition_for_dnnl", "pattern_table"]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'tilewright.backends.accelerators.dnnl' has no attribute '{name}'")
    importlib.import_module("tilewright.backends.accelerators.dnnl.codegen")
    return getattr(importlib.import_module("tilewright.relay.op.contrib.dnnl"), _LATE[name])
