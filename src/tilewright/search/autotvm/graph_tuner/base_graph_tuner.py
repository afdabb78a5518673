"""`BaseGraphTuner`: the candidates of each node, the times of transformations between their layouts, and the records
that a tuner chooses."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, RunError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.search import records as store
from tilewright.search.autotvm.graph_tuner._base import INVALID_LAYOUT_TIME, LAYOUT_TRANSFORM
from tilewright.search.autotvm.graph_tuner.choices import Array, Choices
from tilewright.search.autotvm.graph_tuner.utils import bind_inputs, expr2graph, get_in_nodes, get_out_nodes
from tilewright.search.autotvm.graph_tuner.utils.utils import Node, is_one_of
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch, measure_option
from tilewright.search.autotvm.record import encode, of_record
from tilewright.search.autotvm.task.dispatcher import Workload
from tilewright.search.autotvm.task.entities import SplitEntity
from tilewright.search.autotvm.task.task import args_to_workload, create
from tilewright.search.autotvm.tvm_logs import anchor_of_task
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import MeasureErrorNo
from tilewright.search.remote import RPCRunner

log: Final = logging.getLogger(__name__)
Pair = tuple[MeasureInput, MeasureResult]
_PLAIN: Final = ("NCHW", "NCHW")
"""The layouts of kernels without blocks of channels."""
_IMAGE: Final = 4
"""Dimensions of an image without blocks of channels."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record for a node: the layouts that it takes and gives, and its seconds. Without a record it is the compiler's
    own choice."""

    record: Pair | None
    in_layout: str
    out_layout: str
    seconds: float


class BaseGraphTuner:
    """Prepares the choice of a record for each node of `target_ops`; subclasses choose in `run`.

    `graph` is a function or a module, `input_shapes` has the shapes of its inputs, and `records` is a file or pairs of
    `MeasureInput` and `MeasureResult`. Each node has at most `max_sch_num` candidates, the fastest ones of different
    layouts. A node without records keeps the compiler's own choice, in the plain layout, which does not count; a
    message says so. Messages go to `log_file`, and with `verbose` to the log of this module. Raises `OptionError` if no
    node has a record. """

    def __init__(
        self, graph: Function | IRModule, input_shapes: Mapping[str, Sequence[int]],
        records: str | os.PathLike[str] | Iterable[Pair], target_ops: Sequence[Any], target: str | Target,
        max_sch_num: int = 20, dtype: str | Mapping[str, str] = "float32", verbose: bool = True,
        log_file: str | os.PathLike[str] | None = "graph_tuner.log", log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
    ) -> None:
        self._target, self._name, self._log_level = Target(target), name, log_level
        self._log_file, self._verbose = log_file, verbose
        main = graph["main"] if isinstance(graph, IRModule) else graph
        assert isinstance(main, Function)
        self._node_list: list[Node] = []
        expr2graph(bind_inputs(main, input_shapes, dtype), target_ops, {}, self._node_list, self._target)
        self._in_nodes_dict = get_in_nodes(self._node_list, target_ops, set(input_shapes))
        self._out_nodes_dict = get_out_nodes(self._in_nodes_dict)
        self._candidates = self._find_candidates(records, target_ops, max_sch_num)
        self._leaders: dict[int, int] = {}
        """Nodes of several inputs, each with the ancestor that gives it its layout."""
        self._joints = self._find_joints()
        self._layout_transform_perf_records: dict[Workload, Pair] = {}
        self._is_benchmarked = False
        self._optimal_record_dict: dict[int, Pair] = {}

    def _find_candidates(
        self, records: Any, target_ops: Sequence[Any], most: int
    ) -> dict[int, list[Candidate]]:
        """Return the candidates of each target node, the fastest first."""
        by_anchor: dict[Any, list[Candidate]] = {}
        for pair, seconds in _measured(records):
            anchor = anchor_of_task(pair[0].task)
            if anchor is not None and math.isfinite(seconds):
                by_anchor.setdefault(anchor, []).append(Candidate(pair, *infer_layouts(*pair), seconds))
        found: dict[int, list[Candidate]] = {}
        for index, node in enumerate(self._node_list):
            if not is_one_of(node["op"], target_ops):
                continue
            mine = sorted((c for w in node["workloads"] for c in by_anchor.get(w, ())), key=lambda c: c.seconds)
            best = {(c.in_layout, c.out_layout): c for c in reversed(mine)}
            if not best:
                self._say(f"No record is for the workload {node['workloads'][:1]} of node {index} ({node['op'].name}).")
            own = [Candidate(None, *_PLAIN, 0.0)]
            found[index] = sorted(best.values(), key=lambda c: c.seconds)[:most] or own
        if all(c.record is None for candidates in found.values() for c in candidates):
            raise OptionError(
                f"none of the records is for one of the {len(found)} nodes of "
                f"{', '.join(str(getattr(o, 'name', o)) for o in target_ops)}; tune their tasks first", code="TW1102")
        return found

    def _find_joints(self) -> dict[int, list[str]]:
        """Return the layouts that each node of several inputs can have: those of the first ancestor that has layouts,
        whose layout all operands take."""
        found: dict[int, list[str]] = {}
        for index in sorted(self._in_nodes_dict):
            first = next((a for a in self._in_nodes_dict[index] if a in self._candidates or a in found), None)
            if index not in self._candidates and first is not None:
                layouts = found[first] if first in found else [c.out_layout for c in self._candidates[first]]
                found[index] = list(dict.fromkeys(layouts))
                self._leaders[index] = first
        return found

    def _edges(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield a node, one that reads its result, and the shape of the image that is read."""
        for reader, ancestors in self._in_nodes_dict.items():
            for source in ancestors:
                decides = source in self._candidates or source in self._joints
                if decides and (reader in self._candidates or reader in self._joints):
                    yield source, reader, self._read_shape(source, reader)

    def _read_shape(self, source: int, reader: int) -> tuple[int, ...]:
        """Return the shape of the image that a node reads: its data, or at a node of several inputs the result of the
        source itself."""
        if reader in self._candidates:
            source = self._node_list[reader]["inputs"][0][0]
        t = self._node_list[source]["types"][0]
        return tuple(int(n) for n in t.shape) if isinstance(t, TensorType) else ()

    def _layouts(self, index: int, reads: bool) -> list[str]:
        """Return the layouts that the candidates of a node read, or those that they give."""
        if index in self._joints:
            return self._joints[index]
        return [c.in_layout if reads else c.out_layout for c in self._candidates[index]]

    def _transforms(self) -> dict[Workload, None]:
        """Return the workloads of all transformations that candidates may need."""
        return dict.fromkeys(
            made for source, reader, shape in self._edges() if self._leaders.get(reader) != source
            for a in self._layouts(source, reads=False)
            for b in self._layouts(reader, reads=True) if (made := self._transform(shape, a, b)) is not None)

    def _transform(self, shape: Sequence[int], a: str, b: str) -> Workload | None:
        """Return the workload of a transformation of an image, or None if no transformation is needed or possible."""
        blocked = None if a == b else blocked_shape(shape, a)
        if blocked is None or blocked_shape(shape, b) is None:
            return None
        return args_to_workload([te.placeholder(blocked, self._dtype, name="data"), a, b], LAYOUT_TRANSFORM)

    @property
    def _dtype(self) -> str:
        """The data type of the images: that of the first target node's result."""
        first = self._node_list[min(self._candidates)]["types"][0]
        return str(first.dtype)

    def benchmark_layout_transform(
        self, min_exec_num: int = 100, timeout: int = 10, use_rpc: bool = False, device_key: str | None = None,
        host: str = "127.0.0.1", port: int = 9190, n_parallel: int = 1, build_func: Any = "default",
        layout_records: Iterable[Pair] | None = None, target_host: Any = None, infer_layout: bool = False,
        runner: Any = None,
    ) -> None:
        """Find the time of each transformation between the layouts of neighbours: from `layout_records`, else by
        measuring, with `runner` or `min_exec_num` runs here or on a device of a tracker.

        With `infer_layout`, nothing is measured: the time for each element is the average of `layout_records`. Raises
        `OptionError` without records in this case, and `RunError` for a transformation that cannot be measured.
        """
        self._say("Start to benchmark layout transformation...")
        known = {pair[0].task.workload: pair for pair in layout_records or ()}
        if infer_layout and not known:
            raise OptionError(
                "infer_layout needs layout_records, whose average time for an element counts", code="TW1102")
        wanted = list(self._transforms())
        found = {w: known[w] for w in wanted if w in known}
        if infer_layout:
            elements = sum(int(np.prod(w[1][1])) for w in known)
            average = sum(pair[1].costs[0] for pair in known.values()) / elements
            found |= {w: self._pair(w, (math.prod(w[1][1]) * average,)) for w in wanted if w not in found}
        elif missing := [w for w in wanted if w not in found]:
            if runner is None:
                runner = RPCRunner(
                    device_key or "", host, port, timeout=timeout, number=min_exec_num, repeat=1
                ) if use_rpc else LocalRunner(timeout, min_exec_num, 1)
            builder = LocalBuilder(timeout=timeout, n_parallel=n_parallel, build_func=build_func)
            found |= {w: self._measure(w, builder, runner) for w in missing}
        self._layout_transform_perf_records = found
        self._is_benchmarked = True
        self._say("Benchmarking layout transformation successful.")

    def _pair(self, workload: Workload, costs: tuple[float, ...]) -> Pair:
        task = create(LAYOUT_TRANSFORM, _arguments(workload), self._target)
        return MeasureInput(self._target, task, None), MeasureResult(costs, MeasureErrorNo.NO_ERROR, -1, -1)

    def _measure(self, workload: Workload, builder: Any, runner: Any) -> Pair:
        """Measure one transformation. Raises `RunError` if it fails."""
        task = create(LAYOUT_TRANSFORM, _arguments(workload), self._target)
        given = MeasureInput(self._target, task, task.config_space.get(task.config_space.index_at(0)))
        (result,) = create_measure_batch(task, measure_option(builder, runner))([given])
        if result.error_no:
            raise RunError(
                f"the transformation {workload[2]} -> {workload[3]} could not be measured: {result.error}; give its "
                "time in layout_records, or infer_layout=True with other records", code="TW1116")
        return given, result

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each node; a subclass defines how."""
        raise NotImplementedError

    def _run(self, exact: bool, title: str) -> None:
        if not self._is_benchmarked:
            raise OptionError("call benchmark_layout_transform before run", code="TW1112")
        self._say(f"Start to run {title} algorithm...")
        choices = Choices({
            **{index: [c.seconds for c in found] for index, found in self._candidates.items()},
            **{index: [0.0] * len(layouts) for index, layouts in self._joints.items()}})
        for source, reader, shape in self._edges():
            choices.couple(source, reader, self._times(source, reader, shape))
        best = choices.solve(exact)
        chosen = {index: found[best[index]].record for index, found in self._candidates.items()}
        self._optimal_record_dict = {index: pair for index, pair in chosen.items() if pair is not None}
        self._say(f"Finished {title}; the total time of the nodes is {choices.cost(best):.6g} s.")

    def _times(self, source: int, reader: int, shape: tuple[int, ...]) -> Array:
        """Return the seconds between the candidates of two neighbours."""
        leads = self._leaders.get(reader) == source
        return np.asarray([
            [INVALID_LAYOUT_TIME if leads and a != b else self._seconds(shape, a, b)
             for b in self._layouts(reader, reads=True)]
            for a in self._layouts(source, reads=False)])

    def _seconds(self, shape: Sequence[int], a: str, b: str) -> float:
        if a == b:
            return 0.0
        workload = self._transform(shape, a, b)
        return INVALID_LAYOUT_TIME if workload is None else self._layout_transform_perf_records[workload][1].cost

    def get_optimal_records(self) -> list[Pair]:
        """Return the chosen record of each target node that has one, in the order of the network. Raises `OptionError`
        before `run`. """
        if not self._optimal_record_dict:
            raise OptionError("no record is chosen yet; call run first", code="TW1112")
        return [self._optimal_record_dict[index] for index in sorted(self._optimal_record_dict)]

    def write_opt_sch2record_file(self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log") -> None:
        """Write the chosen records to a file for `autotvm.apply_graph_best`."""
        store.write_lines(record_file, [encode(*pair) for pair in self.get_optimal_records()])
        self._say(f"Writing optimal schedules to {os.fspath(record_file)} successfully.")

    def _say(self, text: str) -> None:
        if self._verbose:
            log.info("%s", text)
        if self._log_file is not None and self._log_level <= logging.INFO:
            with Path(self._log_file).open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._name} INFO {text}\n")


def infer_layouts(given: MeasureInput, result: MeasureResult | None = None) -> tuple[str, str]:
    """Return the layouts that the kernel of a record takes and gives: blocks of channels as long as the innermost parts
    of `tile_ic` and `tile_oc`, as in TVM's template `conv2d_NCHWc`, else one plain layout."""
    tiles = given.config.entity_map if hasattr(given.config, "entity_map") else {}
    blocks = [tiles.get(name) for name in ("tile_ic", "tile_oc")]
    if all(isinstance(b, SplitEntity) for b in blocks) and _is_of_tensors(given.task.args):
        first, second = (int(b.size[-1]) for b in blocks if isinstance(b, SplitEntity))
        return f"NCHW{first}c", f"NCHW{second}c"
    return _PLAIN


def blocked_shape(shape: Sequence[int], layout: str) -> tuple[int, ...] | None:
    """Return the shape of an image of four dimensions in a layout, or None if the block does not divide its channels:
    (1, 32, 8, 8) in NCHW16c -> (1, 2, 8, 8, 16)."""
    if len(shape) != _IMAGE:
        return None
    block = layout.removeprefix("NCHW").removesuffix("c")
    if not block:
        return tuple(shape)
    n, c, h, w = shape
    return None if c % int(block) else (n, c // int(block), h, w, int(block))


def _is_of_tensors(args: Sequence[Any]) -> bool:
    """Return whether the arguments of a task are those of a template: tensors and attributes."""
    return bool(args) and isinstance(args[0], (list, tuple)) and args[0][:1] in (("TENSOR",), ["TENSOR"])


def _arguments(workload: Workload) -> list[Any]:
    (_, shape, dtype), a, b = workload[1:]
    return [te.placeholder(tuple(shape), dtype, name="data"), a, b]


def _measured(records: Any) -> Iterator[tuple[Pair, float]]:
    """Yield successful results with the seconds by which they are compared."""
    if isinstance(records, (str, os.PathLike)):
        for record in store.read(records):
            if not record.ansor and record.measured.ok:
                yield of_record(record), record.measured.cost if record.selected else record.rank
        return
    for given, result in records:
        if not result.error_no:
            yield (given, result), result.cost
