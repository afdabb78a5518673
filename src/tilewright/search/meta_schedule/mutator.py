"""Mutators: each changes one decision of a trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import OptionError
from tilewright.scalar.arith.divisors import divisors
from tilewright.search.meta_schedule.postproc import fusible_outer
from tilewright.search.meta_schedule.schedule_rule import PARALLEL, UNROLL_EXPLICIT, UNROLL_IMPLICIT
from tilewright.search.meta_schedule.utils import Extensible
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Instruction, Trace

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext


class Mutator(Extensible):
    """Base of mutators."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.context: TuneContext | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take the program, the target and the seed of the task."""
        self.context, self.random = context, random.Random(context.random.randrange(1 << 31))

    def apply(self, trace: Trace) -> Trace | None:
        """Return a trace with another decision, without postprocessing; None if there is nothing to change."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    @staticmethod
    def create(kind: str) -> dict[Mutator, float]:
        """Return the mutators for a kind of target, with their probabilities. Raises `OptionError` for others."""
        if kind == "cuda":
            return {MutateTileSize(): 0.9, MutateUnroll(): 0.08, MutateThreadBinding(): 0.02}
        if kind not in ("llvm", "c"):
            raise OptionError(
                f"there are no mutators for '{kind}'; the kinds are 'llvm', 'c' and 'cuda'", code="TW1103")
        return {
            MutateTileSize(): 0.9, MutateComputeLocation(): 0.05, MutateUnroll(): 0.03,
            MutateParallel(max_jobs_per_core=16): 0.02}

    def _replayed(self, trace: Trace, before: Instruction | None = None) -> tuple[Schedule, dict[int, Any]]:
        """Return a schedule of the task after the instructions before one, and the results by the id of the old ones.
        """
        assert self.context is not None and self.context.mod is not None
        sch, made = Schedule(self.context.mod), dict[int, Any]()

        def now(value: Any) -> Any:
            return [now(v) for v in value] if isinstance(value, (list, tuple)) else made.get(id(value), value)

        for inst in trace.insts:
            if inst is before or inst.kind.name == "EnterPostproc":
                break
            found = sch.call(inst.kind, [now(v) for v in inst.inputs], inst.attrs, trace.decisions.get(inst))
            made.update((id(old), new) for old, new in zip(inst.outputs, found, strict=True))
        return sch, made


class PyMutator(Mutator):
    """Base of mutators that programs define."""

    def __init__(self) -> None:
        super().__init__()


class MutateTileSize(Mutator):
    """Moves a factor from one tile of a loop to another."""

    def apply(self, trace: Trace) -> Trace | None:
        found = [
            (inst, decision) for inst, decision in trace.decisions.items()
            if inst.kind.name == "SamplePerfectTile" and len(decision) > 1 and any(int(d) > 1 for d in decision)]
        if not found:
            return None
        inst, decision = self.random.choice(found)
        most = int(inst.attrs[1])
        for _ in range(64):
            tiles = [int(d) for d in decision]
            x, y = self.random.sample(range(len(tiles)), 2)
            factor = self.random.choice(divisors(tiles[x], tiles[x]))
            tiles[x], tiles[y] = tiles[x] // factor, tiles[y] * factor
            if factor > 1 and tiles[-1] <= max(most, int(decision[-1])):
                return trace.with_decision(inst, tiles, remove_postproc=True)
        return None


class MutateUnroll(Mutator):
    """Changes the number of steps of unrolled loops."""

    def apply(self, trace: Trace) -> Trace | None:
        samples = {id(i.outputs[0]): i for i in trace.insts if i.kind.name == "SampleCategorical"}
        used = [
            samples[id(i.inputs[1])] for i in trace.insts if i.kind.name == "Annotate"
            and i.attrs[0] in (UNROLL_EXPLICIT, UNROLL_IMPLICIT) and id(i.inputs[1]) in samples]
        return _with_other_candidate(trace, used, self.random)


class MutateThreadBinding(Mutator):
    """Changes the number of threads of a loop."""

    def apply(self, trace: Trace) -> Trace | None:
        samples = {id(i.outputs[0]): i for i in trace.insts if i.kind.name == "SampleCategorical"}
        threads = {
            id(i.inputs[0]) for i in trace.insts if i.kind.name == "Bind" and str(i.attrs[0]) == "threadIdx.x"}
        splits = [
            i for i in trace.insts if i.kind.name == "Split" and any(id(o) in threads for o in i.outputs)]
        used = [samples[id(f)] for i in splits for f in i.inputs[1:] if id(f) in samples]
        return _with_other_candidate(trace, used, self.random)


class MutateComputeLocation(Mutator):
    """Moves a value to another place."""

    def apply(self, trace: Trace) -> Trace | None:
        samples = [i for i in trace.insts if i.kind.name == "SampleComputeLocation"]
        self.random.shuffle(samples)
        for inst in samples:
            sch, made = self._replayed(trace, inst)
            block = made[id(inst.inputs[0])]
            others = [k for k in sch.compute_locations(block) if k != trace.decisions.get(inst)]
            if others:
                return trace.with_decision(inst, self.random.choice(others), remove_postproc=True)
        return None


class MutateParallel(Mutator):
    """Changes the number of iterations of parallel loops."""

    def __init__(self, max_jobs_per_core: int) -> None:
        super().__init__()
        self.max_jobs_per_core = max_jobs_per_core

    def apply(self, trace: Trace) -> Trace | None:
        assert self.context is not None
        marks = [i for i in trace.insts if i.kind.name == "Annotate" and i.attrs[0] == PARALLEL]
        if not marks:
            return None
        inst = self.random.choice(marks)
        limit = self.max_jobs_per_core * (self.context.target.cores if self.context.target is not None else 1)
        sch, made = self._replayed(trace)
        current, sizes = self._sizes(sch, made[id(inst.inputs[0])], int(inst.inputs[1]), limit)
        others = sorted(sizes - current)
        return self._changed(trace, inst, self.random.choice(others)) if others else None

    @staticmethod
    def _sizes(sch: Schedule, root: Any, mark: int, limit: int) -> tuple[set[int], set[int]]:
        """Return the iterations of the parallel loops now, and the possible ones up to `limit`."""
        current, possible = set[int](), set[int]()
        for block in sch.get_child_blocks(root):
            count, sizes = fusible_outer(sch, sch.get_loops(block), mark)
            current.update(sizes[count - 1 : count])
            possible.update(n for n in sizes if 1 < n <= limit)
        return current, possible

    @staticmethod
    def _changed(trace: Trace, mark: Instruction, size: int) -> Trace:
        """Return the trace, without postprocessing, with another number in a mark."""
        names = [i.kind.name for i in trace.insts]
        end = names.index("EnterPostproc") if "EnterPostproc" in names else len(names)
        new = Instruction(mark.kind, [mark.inputs[0], size], mark.attrs, mark.outputs)
        kept: Sequence[Instruction] = trace.insts[:end]
        insts = [new if i is mark else i for i in kept]
        return Trace(insts, {i: d for i, d in trace.decisions.items() if any(k is i for k in kept)})


def _with_other_candidate(trace: Trace, samples: Sequence[Instruction], choose: random.Random) -> Trace | None:
    """Return the trace with another candidate of one of the samples; None if all of them have one candidate."""
    open_samples = [i for i in samples if len(i.attrs[0]) > 1]
    if not open_samples:
        return None
    inst = choose.choice(open_samples)
    others = [k for k in range(len(inst.attrs[0])) if k != trace.decisions.get(inst)]
    return trace.with_decision(inst, choose.choice(others), remove_postproc=True)
