"""Dispatch contexts: choose a workload's configuration from records, a fixed one, or the default.

    with autotvm.apply_history_best("records.json"):
        lib = relay.build(mod, target="llvm", params=params)

Contexts nest: a query that the inner context cannot answer goes to the outer one. The outermost context is
`FallbackContext`, which returns the fallback of a template and, for kernels, the analytical model's choice.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, TargetError
from tilewright.compiler.tuning_advisor import Advisor, Innermost
from tilewright.relay.expr import Function
from tilewright.runtime.trial import machine_name
from tilewright.search import records as store
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity

if TYPE_CHECKING:
    from tilewright.compiler.kernel import Found
    from tilewright.search.records import Record

log: Final = logging.getLogger(__name__)
Workload = tuple[Any, ...]


class DispatchContext(Advisor):
    """Base class of contexts that choose the configuration of a workload.

    Subclasses define `_query_inside` and are entered with `with`.
    """

    current = Innermost()

    def query(self, target: Target | None, workload: Workload | None) -> Any:
        """Return the configuration of a workload for a target, of this context or the next one around it."""
        found = self._query_inside(target, workload)
        return found if found is not None else (self.around(DispatchContext) or self.outermost).query(target, workload)

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        """Return the configuration that this context itself has, or None."""
        raise NotImplementedError

    def update(self, target: Target | None, workload: Workload, cfg: Any) -> None:
        """Use `cfg` for a workload. Raises `OptionError` in a context whose answers are fixed."""
        raise OptionError(f"the configurations of {type(self).__name__} are fixed; use ApplyHistoryBest", code="TW1106")

    def decisions(
        self, function: Function, constants: Sequence[bool], target: Target
    ) -> Mapping[str, int | str] | None:
        from tilewright.search.autotvm.task.kernels import workload_of

        found = self.query(target, workload_of(function, constants))
        return None if found.is_fallback else found.decisions

    @property
    def identity(self) -> str:
        around = self.around(DispatchContext)
        return hashlib.sha256(f"{around.identity if around else ''}|{self._content()}".encode()).hexdigest()

    def _content(self) -> str:
        """Return a text that is equal for contexts with equal answers."""
        raise NotImplementedError


class FallbackContext(DispatchContext):
    """A context without records: its answer is a fallback configuration, one for each workload."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, Workload | None], FallbackConfigEntity] = {}
        self.silent = False

    def query(self, target: Target | None, workload: Workload | None) -> Any:
        if workload is None:
            return FallbackConfigEntity()
        return self.memory.setdefault((str(target), workload), FallbackConfigEntity())

    def clear_cache(self, target: Target | None, workload: Workload) -> None:
        """Forget the answer for a workload."""
        self.memory.pop((str(target), workload), None)

    def _content(self) -> str:
        return "fallback"


DispatchContext.outermost = FallbackContext()


class ApplyConfig(DispatchContext):
    """One configuration for every workload."""

    def __init__(self, config: ConfigSpace) -> None:
        self._config = config

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        return self._config

    def _content(self) -> str:
        return repr(self._config)


class ApplyFixedConfig(DispatchContext):
    """The first configuration of its space, for each of `tasks` whose name is in `schedule_names`."""

    def __init__(self, tasks: Iterable[Any], schedule_names: str | Sequence[str]) -> None:
        self._names = {schedule_names} if isinstance(schedule_names, str) else set(schedule_names)
        self._tasks = {t.workload: t for t in tasks if t.name in self._names}

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        task = None if workload is None else self._tasks.get(workload)
        return None if task is None else task.config_space.get(task.config_space.index_at(0))

    def _content(self) -> str:
        return f"fixed {sorted(self._names)}"


@dataclass(frozen=True, slots=True)
class Known:
    """A configuration that records have for a workload and a target; `rank` is that of its record.

    Records of TVM have target "" and for a workload the anchor operator of a kernel (`tvm_logs.anchor_of`).
    """

    target: str
    workload: Workload
    config: ConfigEntity
    rank: float


def _is_pair(item: Any) -> bool:
    """Return whether an item is an input with its result."""
    return isinstance(item, (tuple, list)) and len(item) == 2 and hasattr(item[0], "config")


class ApplyHistoryBest(DispatchContext):
    """The best configuration that records have for each workload.

    `records` is a file of records, pairs of `MeasureInput` and `MeasureResult`, or several of both. Records of
    `auto_scheduler` apply, too. Logs that TVM wrote are read as `autotvm/tvm_logs.py` says; `report` counts what was
    taken.
    Raises `OptionError` for a file without records.
    """

    def __init__(self, records: Any) -> None:
        self.best: dict[tuple[str, Workload], Known] = {}
        """The selected or else the fastest configurations, by target and workload."""
        self.report: Counter[str] = Counter()
        """The number of records that were taken, and of those that were not, by reason."""
        self.schedules: Any = None
        """The `auto_scheduler.ApplyHistoryBest` of the records in Ansor's form; None if there are none."""
        self.load(records)

    def load(self, records: Any) -> None:
        """Take configurations that are better than the known ones."""
        for found in self._read(records):
            key = (found.target, found.workload)
            if key not in self.best or found.rank <= self.best[key].rank:
                self.best[key] = found
        if self.report:
            log.info("records: %s", ", ".join(f"{n} {reason}" for reason, n in self.report.items()))

    def _read(self, records: Any) -> Iterator[Known]:
        if isinstance(records, (str, os.PathLike)) or hasattr(records, "read"):
            records = [records]
        try:
            items = list(records)
        except TypeError:
            raise OptionError(
                f"records are files, or pairs of inputs and results, not a {type(records).__name__}",
                code="TW1101") from None
        for item in items:
            if isinstance(item, (str, os.PathLike)) or hasattr(item, "read"):
                found = list(store.read(item))
                if not found:
                    raise OptionError(
                        f"{getattr(item, 'name', item)} has no records; tune first, or omit these "
                        "records", code="TW1102")
                yield from self._counted(_known(r) for r in found if not r.ansor)
                self._schedule([r for r in found if r.ansor])
            elif not hasattr(item, "task") and not _is_pair(item):
                yield from self._read(item)
            else:
                inp, result = item
                known = Known(str(inp.target), inp.task.workload, inp.config, result.cost)
                yield from self._counted(["failed when measured" if result.error_no else known])

    def _schedule(self, found: Sequence[Record]) -> None:
        if found:
            from tilewright.search.auto_scheduler import dispatcher, measure_record

            self.schedules = self.schedules or dispatcher.ApplyHistoryBest(None)
            self.schedules.load(map(measure_record.of_record, found))
            self.report["taken"] += len(found)

    def arrangement(self, target: Target) -> Found | None:
        found: Found | None = None if self.schedules is None else self.schedules.arranging(target)
        return found

    def _counted(self, found: Iterable[Known | str]) -> Iterator[Known]:
        for one in found:
            self.report[one if isinstance(one, str) else "taken" if one.target else "of TVM taken over"] += 1
            if isinstance(one, Known):
                yield one

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        if target is None or workload is None:
            return None
        found = self.best.get((str(target), workload))
        if found is None and any(not known for known, _ in self.best):
            from tilewright.search.autotvm.tvm_logs import anchor_of

            found = self.best.get(("", anchor_of(workload) or ()))
        return None if found is None else found.config

    def seconds(self, target: Target, workload: Workload) -> float | None:
        found = self.best.get((str(target), workload))
        return None if found is None else found.rank

    def update(self, target: Target | None, workload: Workload, cfg: Any) -> None:
        self.best[str(target), workload] = Known(str(target), workload, cfg, -1.0)

    def _content(self) -> str:
        known = ((*map(str, key), json.dumps(k.config.to_json_dict()["entity"])) for key, k in self.best.items())
        return repr((sorted(known), "" if self.schedules is None else self.schedules.identity))


def _known(record: Record) -> Known | str:
    """Return the configuration that a record gives for this machine's kernels, or the reason why there is none."""
    from tilewright.search.autotvm import tvm_logs
    from tilewright.search.autotvm.task.kernels import is_kernel
    from tilewright.search.autotvm.task.task import TEMPLATES, serialize_args

    if not record.measured.ok:
        return "failed when measured"
    name, args, _ = json.loads(record.key)
    if not is_kernel(name) and name not in TEMPLATES:
        return tvm_logs.translated(record)
    try:
        target = Target(record.target)
    except TargetError:
        return f"for a target that is not known: {record.target}"
    processor = _processor(record.measured.machine)
    if target.is_native and record.measured.machine and processor != _processor(machine_name()):
        return f"measured on another processor: {processor}"
    config = ConfigEntity.from_json_dict(json.loads(record.config))
    return Known(str(target), (name, *serialize_args(args)), config, record.rank)


def _processor(machine: str) -> str:
    """Return the processor in the name of a machine, `host, processor, cores`."""
    return ", ".join(machine.split(", ")[1:-1])


class ApplyGraphBest(ApplyHistoryBest):
    """The records that a graph tuner chose for the nodes of a network (`autotvm.graph_tuner`). Kernels of equal
    workloads are one kernel here, so that the fastest of their records counts."""


def apply_graph_best(records: Any) -> ApplyGraphBest:
    """Return `ApplyGraphBest(records)`: kernels as a graph tuner chose them inside the `with` block."""
    return ApplyGraphBest(records)


def apply_history_best(records: Any) -> ApplyHistoryBest:
    """Return `ApplyHistoryBest(records)`: kernels as measured to be best inside the `with` block."""
    return ApplyHistoryBest(records)
