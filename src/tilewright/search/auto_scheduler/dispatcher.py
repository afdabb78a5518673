"""Which schedule a kernel of a network gets: the best of its records.

    with auto_scheduler.ApplyHistoryBest("records.json"):
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            lib = relay.build(mod, target, params=params)

A kernel without records, whose records do not apply, or whose own schedule was measured to be the best, keeps its own schedule.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from tilewright.base.errors import CompileError, OptionError
from tilewright.compiler import decided
from tilewright.ir.transform import PassContext
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.measure import MeasureInput, MeasureResult
from tilewright.search.auto_scheduler.measure_record import load_records, same_kind
from tilewright.search.auto_scheduler.relay_integration import detached
from tilewright.search.auto_scheduler.transform_step import TransformStep, steps_as_json
from tilewright.te.resolve import apply_schedule
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.backends.target import Target
    from tilewright.compiler.kernel import Found
    from tilewright.relay.expr import Function
    from tilewright.tir.stmt import PrimFunc

log: Final = logging.getLogger(__name__)
OPTION: Final = "relay.backend.use_auto_scheduler"
Records = str | os.PathLike[str] | Iterable[tuple[MeasureInput, MeasureResult]]
_CURRENT: Final[ContextVar[tuple[DispatchContext, ...]]] = ContextVar("schedules", default=())


class _Current:
    """`DispatchContext.current`, the innermost context of this thread, or None."""

    def __get__(self, instance: object, owner: type) -> DispatchContext | None:
        entered = _CURRENT.get()
        return entered[-1] if entered else None


class DispatchContext(decided.Advisor):
    """Base of what says which schedule a workload gets; entered with `with`."""

    current: ClassVar[_Current] = _Current()

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        """The steps for a workload on a target, none of them where its own schedule is best; None where nothing is known."""
        raise NotImplementedError

    def decisions(self, function: Function, constants: Sequence[bool], target: Target) -> Mapping[str, int | str] | None:
        outer = decided.around(self)
        found: Mapping[str, int | str] | None = None if outer is None else outer.decisions(function, constants, target)
        return found

    def arrangement(self, target: Target) -> Found | None:
        """Who arranges kernels: this context where the option asks for it, and the one around it for what is not known here."""
        outer = decided.around(self)
        rest: Found | None = None if outer is None else outer.arrangement(target)
        if not PassContext.current().config.get(OPTION, False):
            return rest

        def found(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc | None:
            made = self._arranged(func, args, outputs, target)
            return rest(func, args, outputs) if made is None and rest is not None else made

        return found

    def _arranged(self, func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor], target: Target) -> PrimFunc | None:
        try:
            dag = ComputeDAG(detached(args, outputs))
        except CompileError:
            return None  # computations that the search does not schedule have no records
        steps = self.query(target, dag.hash_key())
        if not steps:
            log.info("%s: %s", func.name, "no record, its own schedule" if steps is None else "its own schedule was the best")
            return None
        try:
            schedule, tensors = dag.apply_steps_from_state(dag.init_state.apply(steps))
            made = apply_schedule(schedule, tensors, func)
        except CompileError as error:
            log.warning("%s: the record %s cannot be applied (%s), its own schedule is used", func.name, steps_as_json(steps), error)
            return None
        log.info("%s: a schedule of %d steps that was found", func.name, len(steps))
        return made

    def __enter__(self) -> Self:
        _CURRENT.set((*_CURRENT.get(), self))
        decided.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])
        decided.leave()


class ApplyHistoryBest(DispatchContext):
    """The best of records: of a file, of several, or of pairs of inputs and results.

    `n_lines` reads only so many of each file. `include_compatible` of the field, records of other sizes, does not fit schedules of known sizes
    and is refused.
    """

    def __init__(self, records: Records | Sequence[Records] | None, n_lines: int | None = None, include_compatible: bool = False) -> None:
        if include_compatible:
            raise OptionError("include_compatible takes records of computations with other sizes; tune these sizes instead, and leave it out", code="TW1108")
        self.best: dict[tuple[str, str], tuple[float, tuple[TransformStep, ...]]] = {}
        several = [records] if isinstance(records, (str, os.PathLike)) else list(records or ())
        if several and isinstance(several[0], (str, os.PathLike)):
            for file in several:
                self.load(file, n_lines)  # type: ignore[arg-type]
        else:
            self.load(several, n_lines)  # type: ignore[arg-type]

    def load(self, records: Records, n_lines: int | None = None) -> None:
        """Take in more records: the fastest of each workload and kind of target counts."""
        found = load_records(records) if isinstance(records, (str, os.PathLike)) else iter(records)
        for n, (inp, result) in enumerate(found):
            if n_lines is not None and n >= n_lines:
                break
            if result.error_no == 0:
                self._keep(inp.task.workload_key, inp.task.target_text, result.cost, inp.state.transform_steps)

    def update(self, target: Target | str, workload_key: str, state: Any) -> None:
        """Have this state for a workload, whatever was measured."""
        self.best[workload_key, str(target).split()[0]] = (0.0, tuple(state.transform_steps))

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        found = self.best.get((workload_key, str(target).split()[0]))
        return None if found is None else found[1]

    @property
    def identity(self) -> str:
        said = [f"{k}{steps_as_json(s)}" for k, (_, s) in sorted(self.best.items())]
        outer = decided.around(self)
        return hashlib.sha256("|".join([*said, "" if outer is None else outer.identity, str(PassContext.current().config.get(OPTION))]).encode()).hexdigest()

    def _keep(self, key: str, target: str, cost: float, steps: tuple[TransformStep, ...]) -> None:
        place = (key, target.split(maxsplit=1)[0])
        assert same_kind(target, place[1])
        if place not in self.best or cost < self.best[place][0]:
            self.best[place] = (cost, steps)
