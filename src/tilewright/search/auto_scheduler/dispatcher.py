"""The schedules of a network's kernels, from Ansor's records.

    with auto_scheduler.ApplyHistoryBest("records.json"):
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            lib = relay.build(mod, target, params=params)

A kernel keeps its own schedule if it has no applicable record, or if its own schedule was the fastest.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.compiler.tuning_advisor import Advisor, Innermost
from tilewright.ir.transform import PassContext
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.measure_record import Pair, RecordedState, load_records
from tilewright.search.auto_scheduler.relay_integration import detached
from tilewright.search.auto_scheduler.transform_step import TransformStep, steps_as_json
from tilewright.search.records import MARGIN
from tilewright.te.resolve import apply_schedule
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.backends.target import Target
    from tilewright.compiler.kernel import Found
    from tilewright.relay.expr import Function
    from tilewright.tir.stmt import PrimFunc

log: Final = logging.getLogger(__name__)
OPTION: Final = "relay.backend.use_auto_scheduler"
Records = str | os.PathLike[str] | Iterable[Pair]


class DispatchContext(Advisor):
    """Base class of contexts that choose the schedule of a workload; entered with `with`."""

    current = Innermost()

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        """Return the steps for a workload on a target, () for its own schedule; None for an unknown workload."""
        raise NotImplementedError

    def decisions(
        self, function: Function, constants: Sequence[bool], target: Target
    ) -> Mapping[str, int | str] | None:
        outer = self.around()
        found: Mapping[str, int | str] | None = None if outer is None else outer.decisions(function, constants, target)
        return found

    def arrangement(self, target: Target) -> Found | None:
        """Return the function that schedules kernels: this context's if the option is on, then the enclosing one's."""
        outer = self.around()
        rest: Found | None = None if outer is None else outer.arrangement(target)
        return self.arranging(target, rest) if PassContext.current().config.get(OPTION, False) else rest

    def arranging(self, target: Target, rest: Found | None = None) -> Found:
        """Return a function that schedules kernels by this context, regardless of the option, then by `rest`."""

        def found(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc | None:
            made = self._arranged(func, args, outputs, target)
            return rest(func, args, outputs) if made is None and rest is not None else made

        return found

    def _arranged(
        self, func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor], target: Target
    ) -> PrimFunc | None:
        try:
            dag = ComputeDAG(detached(args, outputs))
        except CompileError:
            return None  # computations that the search does not schedule have no records
        steps = self.query(target, dag.hash_key())
        if not steps:
            log.info(
                "%s: %s", func.name, "no record, its own schedule" if steps is None else "its own schedule was the best"
            )
            return None
        try:
            made = apply_schedule(*dag.apply_steps_from_state(RecordedState(steps)), func)
        except CompileError as error:
            log.warning(
                "%s: the record %s cannot be applied (%s), its own schedule is used", func.name, steps_as_json(steps),
                error)
            return None
        log.info("%s: a schedule of %d steps that was found", func.name, len(steps))
        return made


class ApplyHistoryBest(DispatchContext):
    """The fastest records of a file, of several files, or of pairs of inputs and results.

    `n_lines` limits the records of each file. `include_compatible` (records of other sizes) is refused, since schedules
    are of known sizes.
    """

    def __init__(
        self, records: Records | Sequence[Records] | None, n_lines: int | None = None, include_compatible: bool = False
    ) -> None:
        if include_compatible:
            raise OptionError(
                "include_compatible (records of other sizes) is not supported; tune these sizes, and omit it",
                code="TW1108")
        self.best: dict[tuple[str, str], tuple[float, tuple[TransformStep, ...]]] = {}
        """Rank and steps, by workload key and kind of target."""
        several: list[Any] = [records] if isinstance(records, (str, os.PathLike)) else list(records or ())
        if several and not isinstance(several[0], (str, os.PathLike)):
            several = [several]
        for given in several:
            self.load(given, n_lines)

    def load(self, records: Records, n_lines: int | None = None) -> None:
        """Add records: the fastest of each workload and kind of target counts, as `Record.rank` compares them."""
        found = load_records(records) if isinstance(records, (str, os.PathLike)) else records
        for inp, result in itertools.islice(found, n_lines):
            place = (inp.task.workload_key, inp.task.target_text.split(maxsplit=1)[0])
            steps = inp.state.transform_steps
            rank = result.cost * (1 if steps else 1 - MARGIN)
            if result.error_no == 0 and (place not in self.best or rank < self.best[place][0]):
                self.best[place] = (rank, steps)

    def update(self, target: Target | str, workload_key: str, state: Any) -> None:
        """Use this state for a workload, regardless of measurements."""
        self.best[workload_key, str(target).split()[0]] = (0.0, tuple(state.transform_steps))

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        found = self.best.get((workload_key, str(target).split()[0]))
        return None if found is None else found[1]

    @property
    def identity(self) -> str:
        said = [f"{k}{steps_as_json(s)}" for k, (_, s) in sorted(self.best.items())]
        outer, option = self.around(), PassContext.current().config.get(OPTION)
        return hashlib.sha256("|".join([*said, outer.identity if outer else "", str(option)]).encode()).hexdigest()
