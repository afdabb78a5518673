"""TVM's `runtime.executor`: the executor of programs that are built with `Executor("aot")`.

    AotModule(relay.build(mod, "llvm", executor=relay.backend.Executor("aot"))["default"](tvm.cpu()))
"""

from __future__ import annotations

from tilewright.runtime.graph_executor import GraphModule

__all__ = ["AotModule"]


class AotModule(GraphModule):
    """A model with its own input and output arrays. It is the same program as for `contrib.graph_executor`."""
