"""TVM's `micro.Session`: models in projects, called as graph executors call compiled models.

    with micro.Session(project.transport()) as session:
        executor = runtime.executor.AotModule(session.create_aot_executor())
        executor.set_input("x", image)
        executor.run()

Each run starts the project's program, on this machine or on the machine of its template. There is no connection that
stays open.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Self

from tilewright.base.nd import Device, NDArray
from tilewright.compiler.micro.project import GeneratedProject
from tilewright.runtime import module
from tilewright.runtime.graph_executor import GraphModule
from tilewright.runtime.program import TensorInfo

__all__ = ["Session", "create_local_debug_executor", "create_local_graph_executor"]


class ProjectProgram:
    """The program of a built project as a function of arrays."""

    def __init__(self, project: GeneratedProject) -> None:
        self.project = project

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        return self.project.inputs

    @property
    def outputs(self) -> Sequence[TensorInfo]:
        return self.project.outputs

    def __call__(self, *inputs: NDArray, out: Sequence[NDArray]) -> None:
        """Run the program once, and fill the arrays of `out`."""
        for array, value in zip(out, self.project.run([x.numpy() for x in inputs]), strict=True):
            array.copyfrom(value)


class Session:
    """The program of one project, while it is in use. `transport_context_manager` is `project.transport()`."""

    def __init__(
        self, transport_context_manager: contextlib.AbstractContextManager[GeneratedProject],
        session_name: str = "micro-rpc"
    ) -> None:
        self._transport = transport_context_manager
        self._project: GeneratedProject | None = None
        self.session_name = session_name
        self.device = Device()

    def __enter__(self) -> Self:
        self._project = self._transport.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._project = None
        self._transport.__exit__(*exc)

    def create_aot_executor(self) -> module.Session:
        """Return the program with its own input and output arrays, for `runtime.executor.AotModule`."""
        return module.Session(self.get_system_lib(), self.device)

    def get_system_lib(self) -> Any:
        """Return the program. Raises `ArtifactError` if the project is not built."""
        project = self._project
        if project is None:
            raise RuntimeError("the session has not begun; write: with micro.Session(…) as session")
        project.check_built()
        return ProjectProgram(project)


def create_local_graph_executor(graph_json_str: str, mod: Any, device: Device) -> GraphModule:
    """Return the executor of the program that `session.get_system_lib()` returned. The graph is part of the program."""
    return GraphModule(module.Session(mod, device))


def create_local_debug_executor(
    graph_json_str: str, mod: Any, device: Device, dump_root: str | None = None
) -> GraphModule:
    """Return an executor that prints the time of each run, which includes the start of the program. `dump_root` is not
    used."""
    return _TimedModule(module.Session(mod, device))


class _TimedModule(GraphModule):
    """A program of one kernel as far as it can be seen from outside: its total time is printed."""

    def run(self, **inputs: Any) -> None:
        begin = time.perf_counter()
        super().run(**inputs)
        print(f"Node Name  Time(us)\nTotal_time {(time.perf_counter() - begin) * 1e6:.1f}")

