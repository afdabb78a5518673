"""`GraphModuleDebug`: a `GraphModule` that records times and values of all steps, and writes them in TVM's formats.

    m = debug_executor.create(lib.get_graph_json(), lib, tvm.cpu(0), dump_root="dump")
    m.set_input("x", x); m.run(); m.debug_get_output("kernel_0_conv2d_relu")

`dump/_tvmdbg_device_CPU_0` then has `_tvmdbg_graph_dump.json`, `output_tensors.params` and
`_tvmdbg_execution_trace.json` (`debug_result.py`). Values have the kernels' layouts (channels last), and
fused operators have a single value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import InputError, RunError
from tilewright.base.nd import Device, NDArray, array
from tilewright.runtime.benchmark import BenchmarkResult, Pace, measure
from tilewright.runtime.debug_graph import DebugNode, debug_nodes
from tilewright.runtime.debugger.debug_result import DebugResult, default_folder
from tilewright.runtime.function_graph import FunctionGraph
from tilewright.runtime.graph_executor import GraphModule
from tilewright.runtime.graph_json import check_graph
from tilewright.runtime.intermediate import collected, values_of_steps
from tilewright.runtime.module import DEBUG_CREATE, FactoryModule, Session
from tilewright.runtime.profile import Profile
from tilewright.runtime.profiling import MetricCollector, Report
from tilewright.runtime.stepping import step_calls

Array = np.ndarray[Any, Any]


def create(
    graph_json_str: str, libmod: FactoryModule, device: Device | Sequence[Device], dump_root: str | None = None
) -> GraphModuleDebug:
    """Return a debug executor of the results of `graph, lib, params = relay.build(…)`. Raises `ArtifactError` for the
    graph of another program."""
    check_graph(graph_json_str, libmod.artifact.manifest)
    devices = [device] if isinstance(device, Device) else [*device]
    return GraphModuleDebug(libmod[DEBUG_CREATE]("default", devices[0]), devices, graph_json_str, dump_root)


class GraphModuleDebug(GraphModule):
    """A model with its own input and output arrays that also gives access to intermediate values.

    Files are written to `dump_root`, by default a folder that is removed at the end of the process or by `exit`.

    Raises `RunError` for programs with control flow or dynamic shapes.
    """

    def __init__(
        self, module: Session, device: Sequence[Device], graph_json_str: str, dump_root: str | None = None
    ) -> None:
        super().__init__(module)
        if isinstance(module.executable, FunctionGraph):
            raise RunError("the functions of a graph are not debugged step by step; use graph_executor", code="TW0714")
        self._program = module.executable
        check_graph(graph_json_str, self._program.manifest)
        self.nodes: list[DebugNode] = debug_nodes(self._program.manifest)
        """The graph: inputs, then steps."""
        self._index = {node.name: k for k, node in enumerate(self.nodes)}
        self.debug_datum = DebugResult(self.nodes, self._program.manifest.outputs, default_folder(dump_root, device[0]))

    def run(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: int = 1, limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1, **inputs: Any,
    ) -> None:
        """Set `inputs`, compute all outputs, time each step, write the files, and print the times, longest first."""
        self.set_input(**inputs)
        self.module.run()
        self.debug_datum.values = self._values()
        self.debug_datum.times = self.run_individual(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        self.debug_datum.dump_output_tensor()
        self.debug_datum.dump_chrome_trace()
        self.debug_datum.display_debug_result()

    def run_individual(
        self, number: int, repeat: int = 1, min_repeat_ms: float = 0, limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1,
    ) -> list[list[float]]:
        """Return the seconds of each node, for each of `repeat` measurements of `number` calls; inputs take 0."""
        return [
            [0.0] * repeat if node.step < 0
            else [
                *self.run_individual_node(
                    k, number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms,
                    repeats_to_cooldown
                ).results
            ]
            for k, node in enumerate(self.nodes)]

    def run_individual_node(
        self, index: int, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100, cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> BenchmarkResult:
        """Time the step of a node after its predecessors have run; in a program with equal parts, the first part. Each
        call from Python adds a microsecond."""
        node = self.nodes[self.node_index(index)]
        if node.step < 0:
            raise InputError(
                f"node {index} is the input '{node.name}', which takes no time; steps are the nodes from "
                f"{len(self.module.inputs)} to {len(self.nodes) - 1}",
                code="TW0707")
        pace = Pace(limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown)
        with self._program.stepwise(*self.module.inputs) as (subject, _):
            calls = step_calls(subject)
            for call in calls[: node.step]:
                call()
            return measure(calls[node.step], repeat, number, min_repeat_ms, pace)

    def debug_get_output(self, node: int | str, out: NDArray | None = None) -> NDArray:
        """Return the first output of a node, given by number or name, for the current inputs, or `out` with a copy of
        it.

        Steps share memory, so the program is run again up to this node, and the value is copied at once.
        """
        return self.get_node_output(node, 0, out)

    def get_node_output(self, node: int | str, output: int = 0, out: NDArray | None = None) -> NDArray:
        """Do the same for any output of a node. Raises `InputError` for a missing output."""
        found = self.nodes[self.node_index(node)]
        if not 0 <= output < len(found.shapes):
            raise InputError(
                f"'{found.name}' has no output {output}; it has {len(found.shapes)} that are tensors of numbers",
                code="TW0707")
        if found.step < 0:
            value: Any = self.module.inputs[self.node_index(node)]
        else:
            value = values_of_steps(self._program, self.module.inputs, found.step)[found.step][output]
        made = array(value)
        return made if out is None else made.copyto(out)

    def node_index(self, node: int | str) -> int:
        """Return the number of a node, given its number or name. Raises `InputError` for an unknown node."""
        if isinstance(node, str):
            if node not in self._index:
                raise InputError(f"there is no node '{node}'; the nodes are {', '.join(self._index)}", code="TW0707")
            return self._index[node]
        if not 0 <= node < len(self.nodes):
            raise InputError(
                f"there is no node {node}; they are numbered from 0 to {len(self.nodes) - 1}", code="TW0707")
        return node

    def profile(self, collectors: Sequence[MetricCollector] | None = None, **inputs: Any) -> Report:
        """Set `inputs`, and report the time of each step in whole runs; collectors add metrics from a step-by-step run.
        """
        self.set_input(**inputs)
        profile: Profile = self._program.profile(*self.module.inputs)
        report = profile.report()
        if not collectors:
            return report
        more = collected(self._program, self.module.inputs, self.module.device, collectors)
        rows = [{**row, **found} for row, found in zip(report.calls, [*more, {}], strict=True)]
        return Report(rows, report.device_metrics, report.configuration)

    def exit(self) -> None:
        """Remove the folder if it was created for this executor."""
        self.debug_datum.close()

    def _values(self) -> list[list[Array]]:
        """Return the outputs of all nodes."""
        return [*([np.array(x)] for x in self.module.inputs), *values_of_steps(self._program, self.module.inputs)]
