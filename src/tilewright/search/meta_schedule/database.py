"""Databases of tuning records: workloads, and traces with their times.

A `JSONDatabase` has two files of JSON lines: workloads `[hash, program]`, and records
`[workload index, [trace, seconds, target, arguments]]`. A database that is entered with `with` gives the kernels of
`relay.build` their schedules, if the option `relay.backend.use_meta_schedule` is on.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright import tir
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, ModelError, OptionError
from tilewright.compiler import tuning_advisor
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal, structural_hash
from tilewright.relay.serialization import load_json, save_json
from tilewright.search.kernel_scheduler import KernelScheduler
from tilewright.search.lines import LineFile
from tilewright.search.meta_schedule.arg_info import ArgInfo
from tilewright.search.meta_schedule.candidates import MeasureCandidate, Seconds
from tilewright.search.meta_schedule.utils import Extensible, normalized_module, only_function
from tilewright.te.create import create_prim_func
from tilewright.te.unroll_by_hint import unroll_by_hint
from tilewright.tir.analysis import find_anchor_block
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Trace
from tilewright.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from tilewright.te.tensor import Tensor

log: Final = logging.getLogger(__name__)
EQUALITIES: Final = ("structural", "ignore-ndarray", "anchor-block")
FAILED: Final = 1e10
"""Seconds in records of candidates that failed."""


class Workload:
    """A program that is tuned."""

    def __init__(self, mod: PrimFunc | IRModule) -> None:
        self.mod = normalized_module(mod)

    @property
    def shash(self) -> str:
        """A digest that is equal for equal programs."""
        return str(structural_hash(self.mod))

    def as_json(self) -> list[str]:
        """Return the digest and the program."""
        text = {name: f.script() for name, f in self.mod.items() if isinstance(f, PrimFunc)}
        data = json.dumps({"tir": text} if len(text) == len(list(self.mod.items())) else {"relay": save_json(self.mod)})
        return [self.shash, base64.b64encode(data.encode()).decode()]

    @staticmethod
    def from_json(json_obj: Any) -> Workload:
        """Return the workload for the output of `as_json`. Raises `ModelError` for other data."""
        try:
            data = json.loads(base64.b64decode(json_obj[1]))
        except (ValueError, TypeError, IndexError, KeyError):
            raise ModelError("this is not a workload of a database of this package", code="TW1101") from None
        if "tir" not in data:
            return Workload(load_json(data["relay"]))
        return Workload(IRModule({name: tir.parse(text) for name, text in data["tir"].items()}))


class TuningRecord:
    """A trace of a workload, and its seconds per call on a target."""

    def __init__(
        self, trace: Trace, workload: Workload, run_secs: Sequence[float] | None = None,
        target: Target | str | None = None, args_info: Sequence[ArgInfo] | None = None,
    ) -> None:
        self.trace, self.workload = trace, workload
        self.run_secs = None if run_secs is None else [Seconds(s) for s in run_secs]
        self.target = None if target is None else Target(target)
        self.args_info = None if args_info is None else list(args_info)

    @property
    def cost(self) -> float:
        """The mean of the seconds; infinite without any."""
        return math.inf if not self.run_secs else sum(self.run_secs) / len(self.run_secs)

    def is_valid(self) -> bool:
        """Return whether the candidate was measured."""
        return (bool(self.run_secs) and all(s < FAILED for s in self.run_secs or ())) or self.cost < FAILED

    def as_measure_candidate(self) -> MeasureCandidate:
        """Return the candidate of the record."""
        sch = Schedule(self.workload.mod)
        self.trace.apply_to_schedule(sch)
        return MeasureCandidate(sch, self.args_info)

    def as_json(self) -> list[Any]:
        """Return the trace, the seconds, the target and the arguments."""
        return [
            self.trace.as_json(), None if self.run_secs is None else [float(s) for s in self.run_secs],
            None if self.target is None else str(self.target),
            None if self.args_info is None else [a.as_json() for a in self.args_info]]

    @staticmethod
    def from_json(json_obj: Any, workload: Workload) -> TuningRecord:
        """Return the record for the output of `as_json`. Raises `ModelError` for other data."""
        try:
            trace, seconds, target, args = json_obj
        except (TypeError, ValueError):
            raise ModelError("this is not a tuning record of a database", code="TW1101") from None
        return TuningRecord(
            Trace.from_json(trace), workload, seconds, target, None if args is None else [
                ArgInfo.from_json(a) for a in args])


class Database(Extensible, KernelScheduler):
    """Base of databases. `module_equality` tells which programs are one workload."""

    option: ClassVar[str] = "relay.backend.use_meta_schedule"

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality not in EQUALITIES:
            raise OptionError(
                f"module_equality is one of {', '.join(EQUALITIES)}, not '{module_equality}'", code="TW1103")
        self.module_equality = module_equality

    # What a database defines.
    def has_workload(self, mod: IRModule) -> bool:
        """Return whether a program is a workload of the database."""
        raise NotImplementedError(f"{type(self).__name__} does not define has_workload")

    def commit_workload(self, mod: IRModule) -> Workload:
        """Return the workload of a program, which is added if it is new."""
        raise NotImplementedError(f"{type(self).__name__} does not define commit_workload")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        raise NotImplementedError(f"{type(self).__name__} does not define commit_tuning_record")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """Return the fastest valid records of a workload, at most `top_k`."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_top_k")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_all_tuning_records")

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def __bool__(self) -> bool:
        return True

    @staticmethod
    def current() -> Database | None:
        """Return the innermost database that is entered."""
        found: Database | None = tuning_advisor.current(Database)
        return found

    # Queries.
    def query_tuning_record(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        """Return the fastest record of a program, or None."""
        module = normalized_module(mod)
        if not self.has_workload(module):
            return None
        found = self.get_top_k(self.commit_workload(module), 1)
        return found[0] if found else None

    def query_schedule(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> Schedule | None:
        """Return the schedule of the fastest record of a program, or None."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        sch = Schedule(normalized_module(mod))
        record.trace.apply_to_schedule(sch)
        return sch

    def query_ir_module(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> IRModule | None:
        """Return the program of the fastest record, or None."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(
        self, mod: PrimFunc | IRModule, target: Target | str, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Any:
        """Return the fastest "record", "schedule" or "ir_module" of a program, or None."""
        kinds: dict[str, Callable[..., Any]] = {
            "record": self.query_tuning_record, "schedule": self.query_schedule, "ir_module": self.query_ir_module}
        if kind not in kinds:
            raise OptionError(f"kind is one of {', '.join(kinds)}, not '{kind}'", code="TW1103")
        return kinds[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Add the fastest record of each workload to another database."""
        best: dict[int, TuningRecord] = {}
        for record in self.get_all_tuning_records():
            key = id(record.workload)
            if record.is_valid() and (key not in best or record.cost < best[key].cost):
                best[key] = record
        for record in best.values():
            workload = destination.commit_workload(record.workload.mod)
            destination.commit_tuning_record(
                TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info))

    @staticmethod
    def create(kind: Database | Callable[[Schedule], bool] | str = "json", **options: Any) -> Database:
        """Return a database for its name ("json" or "memory"), for a function on a schedule, or for itself."""
        if isinstance(kind, Database):
            return kind
        if callable(kind):
            return ScheduleFnDatabase(kind, **options)
        if kind == "memory":
            return MemoryDatabase(**options)
        if kind == "json":
            return JSONDatabase(**options)
        raise OptionError(f"there is no database '{kind}'; there are json, memory", code="TW1103")

    # The schedules of the kernels of a network.
    def schedule(
        self, func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor], target: Target
    ) -> PrimFunc | None:
        from tilewright.search.auto_scheduler.relay_integration import detached

        try:
            tensors = detached(args, outputs)
            plain = create_prim_func(tensors[: len(args)], tensors[len(args) :], origin=func.origin)
            mod = IRModule({"main": plain}).with_attrs({"task_name": func.name})
            sch = self.query_schedule(mod, target, func.name)
        except CompileError as error:
            log.info("%s: no schedule of the database applies (%s)", func.name, error)
            return None
        if sch is None:
            log.info("%s: no record, its own schedule", func.name)
            return None
        return unroll_by_hint(renamed(only_function(sch.mod), func))

    def texts(self) -> Iterable[str]:
        return (json.dumps([r.workload.shash, r.as_json()]) for r in self.get_all_tuning_records())


PyDatabase = Database


def renamed(made: PrimFunc, func: PrimFunc) -> PrimFunc:
    """Return a scheduled program with the name, the attributes and the parameters of another of the same parameters."""
    from dataclasses import replace

    return replace(made, name=func.name)


class MemoryDatabase(Database):
    """A database in memory."""

    def __init__(self, module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.records: list[TuningRecord] = []
        self._workloads: dict[str, list[Workload]] = {}

    def has_workload(self, mod: IRModule) -> bool:
        return self._found(normalized_module(mod)) is not None

    def commit_workload(self, mod: IRModule) -> Workload:
        module = normalized_module(mod)
        found = self._found(module)
        return self._added(Workload(module)) if found is None else found

    def _added(self, workload: Workload) -> Workload:
        self._workloads.setdefault(self._key(workload.mod), []).append(workload)
        return workload

    def _found(self, mod: IRModule) -> Workload | None:
        same = self._workloads.get(self._key(mod), ())
        if self.module_equality != "structural":
            return same[0] if same else None
        return next((w for w in same if w.mod is mod or structural_equal(w.mod, mod)), None)

    def _key(self, mod: IRModule) -> str:
        anchor = find_anchor_block(mod) if self.module_equality == "anchor-block" else None
        return str(structural_hash(mod if anchor is None else anchor))

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self.records.append(record)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        if top_k < 0:
            raise OptionError(f"top_k={top_k} must be at least 0", code="TW1104")
        of_it = [r for r in self.records if r.workload is workload and r.is_valid()]
        return sorted(of_it, key=lambda r: r.cost)[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return list(self.records)


class JSONDatabase(MemoryDatabase):
    """A database in two files, to which each record is appended at once. `work_dir` is the folder of both."""

    def __init__(
        self, path_workload: str | None = None, path_tuning_record: str | None = None, *, work_dir: str | None = None,
        allow_missing: bool = True, module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        folder = f"{work_dir}/" if work_dir is not None else ""
        self.path_workload = path_workload or f"{folder}database_workload.json"
        self.path_tuning_record = path_tuning_record or f"{folder}database_tuning_record.json"
        self._order: list[Workload] = []
        self._read(allow_missing)

    def _read(self, allow_missing: bool) -> None:
        for path in (self.path_workload, self.path_tuning_record):
            try:
                Path(path).open("a" if allow_missing else "r").close()
            except OSError as error:
                raise OptionError(f"the database file '{path}' cannot be opened: {error}", code="TW1101") from error
        self._workload_file, self._record_file = LineFile(self.path_workload), LineFile(self.path_tuning_record)
        for line in self._workload_file.new():
            if line.strip():
                self._added(Workload.from_json(_parsed(line, self.path_workload)))
        for line in self._record_file.new():
            if line.strip():
                row = _parsed(line, self.path_tuning_record)
                try:
                    workload = self._order[row[0]]
                except (TypeError, IndexError, KeyError):
                    raise ModelError(
                        f"{self.path_tuning_record}: a record belongs to no workload of {self.path_workload}",
                        code="TW1101") from None
                self.records.append(TuningRecord.from_json(row[1], workload))

    def _added(self, workload: Workload) -> Workload:
        self._order.append(workload)
        return super()._added(workload)

    def commit_workload(self, mod: IRModule) -> Workload:
        before = len(self._order)
        workload = super().commit_workload(mod)
        if len(self._order) > before:
            self._workload_file.append(json.dumps(workload.as_json()))
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        super().commit_tuning_record(record)
        index = next(k for k, w in enumerate(self._order) if w is record.workload)
        self._record_file.append(json.dumps([index, record.as_json()]))


class _Several(Database):
    """Base of databases over others, which take no new records."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = list(itertools.chain(databases))

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return [r for d in self.databases for r in d.get_all_tuning_records()]

    def has_workload(self, mod: IRModule) -> bool:
        return any(d.has_workload(mod) for d in self.databases)


class UnionDatabase(_Several):
    """The fastest record of several databases."""

    def query_tuning_record(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        found = [d.query_tuning_record(mod, target, workload_name) for d in self.databases]
        return min((r for r in found if r is not None), key=lambda r: r.cost, default=None)


class OrderedUnionDatabase(_Several):
    """The record of the first of several databases that has one."""

    def query_tuning_record(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        found = (d.query_tuning_record(mod, target, workload_name) for d in self.databases)
        return next((r for r in found if r is not None), None)


class ScheduleFnDatabase(Database):
    """The schedules of a function, which applies steps to a schedule, and returns whether it did."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def has_workload(self, mod: IRModule) -> bool:
        return self.query_schedule(mod, "llvm") is not None

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return []

    def query_tuning_record(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> TuningRecord | None:
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else TuningRecord(sch.trace, Workload(mod), [0.0], target)

    def query_schedule(
        self, mod: PrimFunc | IRModule, target: Target | str, workload_name: str = "main"
    ) -> Schedule | None:
        sch = Schedule(normalized_module(mod))
        return sch if self.schedule_fn(sch) else None

    @property
    def identity(self) -> str:
        return f"{super().identity}{id(self.schedule_fn)}"


def _parsed(line: str, path: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ModelError(f"{path}: a line is not JSON: {line[:60]!r}", code="TW1101") from None
