"""The schedules of a network's kernels, from Ansor's records.

    with auto_scheduler.ApplyHistoryBest("records.json"):
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            lib = relay.build(mod, target, params=params)

A kernel keeps its own schedule if it has no applicable record, or if its own schedule was the fastest.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.compiler.tuning_advisor import Innermost
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.measure_record import Pair, RecordedState, load_records
from tilewright.search.auto_scheduler.relay_integration import detached
from tilewright.search.auto_scheduler.transform_step import TransformStep, steps_as_json
from tilewright.search.kernel_scheduler import KernelScheduler
from tilewright.search.records import rank_of
from tilewright.te.resolve import apply_schedule
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target
    from tilewright.tir.stmt import PrimFunc

log: Final = logging.getLogger(__name__)
Records = str | os.PathLike[str] | Iterable[Pair]


class DispatchContext(KernelScheduler):
    """Base class of contexts that choose the schedule of a workload; entered with `with`."""

    current = Innermost()
    option: ClassVar[str] = "relay.backend.use_auto_scheduler"

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        """Return the steps for a workload on a target, () for its own schedule; None for an unknown workload."""
        raise NotImplementedError

    def schedule(
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
            rank = rank_of(result.cost, own=not steps)
            if result.error_no == 0 and (place not in self.best or rank < self.best[place][0]):
                self.best[place] = (rank, steps)

    def update(self, target: Target | str, workload_key: str, state: Any) -> None:
        """Use this state for a workload, regardless of measurements."""
        self.best[workload_key, str(target).split()[0]] = (0.0, tuple(state.transform_steps))

    def query(self, target: Target | str, workload_key: str) -> tuple[TransformStep, ...] | None:
        found = self.best.get((workload_key, str(target).split()[0]))
        return None if found is None else found[1]

    def texts(self) -> Iterable[str]:
        return (f"{place}{steps_as_json(steps)}" for place, (_, steps) in sorted(self.best.items()))
