"""TVM's `tvm.contrib.cuda_graph.cuda_graph_executor`. All of it raises `TargetError`: there is no code for GPUs."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.base.errors import TargetError

__all__ = ["GraphModuleCudaGraph", "create"]


def create(graph_json_str: str, libmod: Any, device: Any) -> NoReturn:
    """Raise `TargetError`: programs run on CPUs. `contrib.graph_executor.create` takes the same arguments."""
    raise TargetError(
        "graphs of CUDA are not made here: the targets are CPUs; use contrib.graph_executor", code="TW0502")


class GraphModuleCudaGraph:
    """A module that runs as a graph of CUDA; the constructor raises `TargetError`."""

    def __init__(self, module: Any) -> None:
        create("", module, None)
