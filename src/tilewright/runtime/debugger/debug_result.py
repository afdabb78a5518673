"""The files of a debug executor, under the names that TVM's tools read: the graph, all values, and times of the steps.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import Device, NDArray, array
from tilewright.base.params import save_param_dict
from tilewright.runtime.debug_graph import DebugNode
from tilewright.runtime.files import write_whole
from tilewright.runtime.program import TensorInfo

GRAPH: Final = "_tvmdbg_graph_dump.json"
TRACE: Final = "_tvmdbg_execution_trace.json"
TENSORS: Final = "output_tensors.params"
_FOLDER: Final = "_tvmdbg_device_"

Array = np.ndarray[Any, Any]


def default_folder(root: str | None, device: Device) -> tuple[Path, bool]:
    """Return the folder for a device in `root` or in a new folder, and whether it is temporary."""
    made = root is None
    base = Path(tempfile.mkdtemp(prefix="tvmdbg_") if root is None else root)
    folder = base / f"{_FOLDER}{'CPU' if device.device_type == 1 else device.device_type}_{device.device_id}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder, made


class DebugResult:
    """The values and times of one run, and their files. The graph is written at once."""

    def __init__(self, nodes: Sequence[DebugNode], outputs: Sequence[TensorInfo], folder: tuple[Path, bool]) -> None:
        self.nodes, self._outputs = nodes, outputs
        self.path, self._goes = folder
        self.values: list[list[Array]] = []
        """The outputs of each node, in the last run."""
        self.times: list[list[float]] = []
        """Seconds of each node, for each measurement."""
        self.dump_graph_json()
        if self._goes:
            atexit.register(self.close)

    def close(self) -> None:
        """Remove the folder if it was created for this result."""
        if self._goes:
            shutil.rmtree(self.path.parent, ignore_errors=True)
            atexit.unregister(self.close)

    def dump_graph_json(self) -> None:
        """Write the graph."""
        names = [n.name for n in self.nodes]
        content = {"nodes": [n.as_dict(names) for n in self.nodes], "outputs": [t.name for t in self._outputs]}
        self._write(GRAPH, json.dumps(content, indent=2).encode())

    def get_output_tensors(self) -> dict[str, NDArray]:
        """Return all values by the name and number of their node, and their number among its outputs. Raises
        `InputError` before a run."""
        if not self.values:
            raise InputError("there are no values yet; call run() first", code="TW0708")
        return {
            f"{node.name}____topo-index:{k}____output-num:{j}": array(value)
            for k, (node, values) in enumerate(zip(self.nodes, self.values, strict=True))
            for j, value in enumerate(values)}

    def dump_output_tensor(self) -> None:
        """Write every value, to be read by `tvm.runtime.load_param_dict`."""
        self._write(TENSORS, save_param_dict(self.get_output_tensors()))

    def dump_chrome_trace(self) -> None:
        """Write the mean times of consecutive steps as events of Chrome's trace format (microseconds)."""
        events, at = [], 0.0
        for k, (node, times) in enumerate(zip(self.nodes, self.times, strict=True)):
            if node.step < 0:
                continue
            event = {
                "name": node.name, "cat": "step", "pid": 1, "tid": 1,
                "args": {"node": k, "op": node.op, "origin": node.origin}
            }
            events.append({**event, "ph": "B", "ts": at})
            at += 1e6 * sum(times) / len(times)
            events.append({**event, "ph": "E", "ts": at})
        self._write(TRACE, json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode())

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """Return a table of the steps: name, operator, microseconds, share, shape, and the numbers of inputs and
        outputs."""
        if not self.times:
            raise InputError("nothing was timed yet; call run() first", code="TW0708")
        means = [1e6 * sum(t) / len(t) for t in self.times]
        whole = sum(means) or 1.0
        rows = [
            (
                mean,
                [
                    node.name, node.op, f"{mean:.3f}", f"{100 * mean / whole:.3f}",
                    str(node.shapes[0]) if node.shapes else "", str(len(node.inputs)), str(len(node.shapes)),
                    str([round(1e6 * x, 3) for x in times])
                ]
            )
            for node, mean, times in zip(self.nodes, means, self.times, strict=True) if node.step >= 0]
        if sort_by_time:
            rows.sort(key=lambda row: -row[0])
        lines = [
            ["Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)"],
            *(cells for _, cells in rows), ["Total_time", "-", f"{sum(means):.3f}", "-", "-", "-", "-", "-"]
        ]
        lines.insert(1, ["-" * len(c) for c in lines[0]])
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)

    def display_debug_result(self, sort_by_time: bool = True) -> None:
        """Print the table."""
        print(self.get_debug_result(sort_by_time))

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content)
