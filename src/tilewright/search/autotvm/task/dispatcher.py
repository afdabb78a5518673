"""Who says which configuration a workload gets: a file of records, one fixed answer, or nobody.

    with autotvm.apply_history_best("records.json"):
        lib = relay.build(mod, target="llvm", params=params)

Contexts nest: what the inner one does not know, the outer one is asked. Outside of all there is `FallbackContext`, whose
answer is the fallback of a template and, for kernels, the model of the machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from tilewright.backends.target import Target
from tilewright.base.errors import OptionError
from tilewright.compiler import decided
from tilewright.relay.expr import Function
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity

log: Final = logging.getLogger(__name__)
Workload = tuple[Any, ...]
_CURRENT: Final[ContextVar[tuple[DispatchContext, ...]]] = ContextVar("dispatch", default=())


class _Current:
    """`DispatchContext.current`, the innermost context of this thread."""

    def __get__(self, instance: object, owner: type) -> DispatchContext:
        entered = _CURRENT.get()
        return entered[-1] if entered else _OUTERMOST


class DispatchContext(decided.Advisor):
    """Base of the contexts; subclasses define `_query_inside`, and are entered with `with`."""

    current: ClassVar[_Current] = _Current()

    def query(self, target: Target | None, workload: Workload | None) -> Any:
        """The configuration of a workload for a target, asking the contexts around this one where it has none."""
        found = self._query_inside(target, workload)
        if found is not None:
            return found
        entered = _CURRENT.get()
        around = entered[: entered.index(self)] if self in entered else ()
        return (around[-1] if around else _OUTERMOST).query(target, workload)

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        """The configuration that this context itself has, or None."""
        raise NotImplementedError

    def update(self, target: Target | None, workload: Workload, cfg: Any) -> None:
        """Have `cfg` for a workload; raises `OptionError` in a context whose answers are fixed."""
        raise OptionError(f"the answers of {type(self).__name__} are fixed; use ApplyHistoryBest", code="TW1106")

    def decisions(self, function: Function, constants: Sequence[bool], target: Target) -> Mapping[str, int | str] | None:
        from tilewright.search.autotvm.task.kernels import workload_of

        found = self.query(target, workload_of(function, constants))
        return None if found.is_fallback else found.decisions

    @property
    def identity(self) -> str:
        entered = _CURRENT.get()
        around = entered[: entered.index(self)] if self in entered else ()
        return hashlib.sha256("|".join(c._said() for c in (*around, self)).encode()).hexdigest()

    def _said(self) -> str:
        """The same for contexts that say the same."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        _CURRENT.set((*_CURRENT.get(), self))
        decided.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])
        decided.leave()


class FallbackContext(DispatchContext):
    """Has no records: an answer that is a fallback, one for each workload."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, Workload | None], FallbackConfigEntity] = {}
        self.silent = False

    def query(self, target: Target | None, workload: Workload | None) -> Any:
        if workload is None:
            return FallbackConfigEntity()
        key = (str(target), workload)
        if key not in self.memory:
            self.memory[key] = FallbackConfigEntity()
        return self.memory[key]

    def clear_cache(self, target: Target | None, workload: Workload) -> None:
        """Forget the answer of a workload."""
        self.memory.pop((str(target), workload), None)

    def _said(self) -> str:
        return "fallback"


_OUTERMOST: Final = FallbackContext()


class ApplyConfig(DispatchContext):
    """One configuration for every workload."""

    def __init__(self, config: ConfigSpace) -> None:
        self._config = config

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        return self._config

    def _said(self) -> str:
        return repr(self._config)


class ApplyFixedConfig(DispatchContext):
    """For the workloads of `tasks` whose names are in `schedule_names`: the first configuration of the task's space."""

    def __init__(self, tasks: Iterable[Any], schedule_names: str | Sequence[str]) -> None:
        self._names = {schedule_names} if isinstance(schedule_names, str) else set(schedule_names)
        self._tasks = {t.workload: t for t in tasks if t.name in self._names}

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        task = None if workload is None else self._tasks.get(workload)
        return None if task is None else task.config_space.get(task.config_space.index_at(0))

    def _said(self) -> str:
        return f"fixed {sorted(self._names)}"


class ApplyHistoryBest(DispatchContext):
    """The best configuration that records have for each workload.

    `records` is a file of records, several, or pairs of `MeasureInput` and `MeasureResult`. Logs that TVM wrote are read too; `report`
    says what of them applies (`autotvm/tvm_logs.py`). Raises `OptionError` for a file that has no records.
    """

    def __init__(self, records: Any) -> None:
        self.best: dict[tuple[str, Workload], tuple[ConfigEntity, float]] = {}
        """By target and workload: the configuration, and its seconds."""
        self.foreign: dict[Workload, tuple[dict[str, int], float]] = {}
        """Decisions that logs of TVM have for an anchor (`tvm_logs.anchor_of`), and their seconds there."""
        self.report: dict[str, int] = {}
        """How many records were taken, and how many were not, by reason."""
        self.load(records)

    def load(self, records: Any) -> None:
        """Take what is better than what is known."""
        from tilewright.search.autotvm import history

        for found in history.read(records, self.report):
            if isinstance(found, history.Foreign):
                if found.anchor not in self.foreign or found.seconds < self.foreign[found.anchor][1]:
                    self.foreign[found.anchor] = (found.decisions, found.seconds)
                continue
            key = (found.target, found.workload)
            if key not in self.best or found.seconds < self.best[key][1]:
                self.best[key] = (found.config, found.seconds)
        if self.report:
            log.info("records: %s", ", ".join(f"{n} {what}" for what, n in self.report.items()))

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        if target is None or workload is None:
            return None
        found = self.best.get((str(target), workload))
        if found is not None:
            return found[0]
        if not self.foreign:
            return None
        from tilewright.search.autotvm.tvm_logs import anchor_of, configured

        anchor = anchor_of(workload)
        return configured(self.foreign[anchor][0]) if anchor in self.foreign else None

    def seconds(self, target: Target, workload: Workload) -> float | None:
        found = self.best.get((str(target), workload))
        return None if found is None else found[1]

    def update(self, target: Target | None, workload: Workload, cfg: Any) -> None:
        self.best[str(target), workload] = (cfg, 0.0)

    def _said(self) -> str:
        ours = sorted((*map(str, key), json.dumps(cfg.to_json_dict()["entity"])) for key, (cfg, _) in self.best.items())
        return repr((ours, sorted((str(a), str(d)) for a, (d, _) in self.foreign.items())))


def apply_history_best(records: Any) -> ApplyHistoryBest:
    """`ApplyHistoryBest(records)`: kernels as measured to be best inside the `with` block."""
    return ApplyHistoryBest(records)
