"""Design spaces: the schedules from which a search starts, and the parts that change and complete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError, ScheduleError, TVMError
from tilewright.ir.module import IRModule
from tilewright.search.meta_schedule.mutator import Mutator
from tilewright.search.meta_schedule.postproc import Postproc
from tilewright.search.meta_schedule.schedule_rule import ScheduleRule
from tilewright.search.meta_schedule.utils import Extensible, normalized_module
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import ROOT_BLOCK, Block, PrimFunc, walk_stmt

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

FROM_TARGET: Final = "from-target"
RULE: Final = "schedule_rule"
"""Annotation of a block with the name of its own rule; other rules leave the block as it is."""
Parts = Sequence[Any] | str | None


class SpaceGenerator(Extensible):
    """Base of generators of design spaces. `sch_rules`, `postprocs` and `mutator_probs` are parts, or "from-target".

    After initialization they are the lists and the mapping that the search uses.
    """

    def __init__(
        self, sch_rules: Parts = FROM_TARGET, postprocs: Parts = FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = FROM_TARGET,
    ) -> None:
        self.sch_rules, self.postprocs, self.mutator_probs = sch_rules, postprocs, mutator_probs
        self.seed = 0

    @staticmethod
    def create(kind: SpaceGenerator | Callable[..., Any] | str = "post-order-apply", **options: Any) -> SpaceGenerator:
        """Return a generator for its name, for a function on a schedule, or for itself."""
        if isinstance(kind, SpaceGenerator):
            return kind
        if callable(kind):
            return ScheduleFn(kind, **options)
        kinds: dict[str, Callable[..., SpaceGenerator]] = {
            "post-order-apply": PostOrderApply, "union": SpaceGeneratorUnion}
        if kind not in kinds:
            raise OptionError(f"there is no design space '{kind}'; there are {', '.join(kinds)}", code="TW1103")
        return kinds[kind](**options)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Choose the parts for the target of a task, and initialize them."""
        self.seed = context.random.randrange(1, 1 << 31)
        found = "llvm" if context.target is None else str(context.target.kind)
        kind = found if found in ("c", "cuda") else "llvm"
        if self.sch_rules == FROM_TARGET:
            self.sch_rules = ScheduleRule.create(kind)
        if self.postprocs == FROM_TARGET:
            self.postprocs = Postproc.create(kind)
        if self.mutator_probs == FROM_TARGET:
            self.mutator_probs = Mutator.create(kind)
        parts = (*(self.sch_rules or ()), *(self.postprocs or ()), *(self.mutator_probs or ()))
        for part in parts:
            part._initialize_with_tune_context(context)

    def generate_design_space(self, mod: PrimFunc | IRModule) -> list[Schedule]:
        """Return the schedules of a program from which a search starts."""
        raise NotImplementedError(f"{type(self).__name__} does not define generate_design_space")


class PySpaceGenerator(SpaceGenerator):
    """Base of generators that programs define."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        raise TVMError("PySpaceGenerator's InitializeWithTuneContext method not implemented!", code="TW1110")


class ScheduleFn(SpaceGenerator):
    """The design space of a function, which applies steps to a schedule, or returns schedules."""

    def __init__(
        self, sch_fn: Callable[[Schedule], Any], sch_rules: Parts = FROM_TARGET, postprocs: Parts = FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: PrimFunc | IRModule) -> list[Schedule]:
        sch = Schedule(normalized_module(mod), self.seed)
        found = self.sch_fn(sch)
        if found is None or found is sch:
            return [sch]
        if isinstance(found, Schedule):
            return [found]
        if isinstance(found, (list, tuple)) and all(isinstance(s, Schedule) for s in found):
            return list(found)
        raise ScheduleError(
            f"the function of a design space returns a {type(found).__name__}; return None, a schedule or a list of "
            "schedules")


class PostOrderApply(SpaceGenerator):
    """Applies the rules to the blocks, from the last one to the first. `f_block_filter` selects blocks."""

    def __init__(
        self, f_block_filter: Callable[[Block], bool] | None = None, sch_rules: Parts = FROM_TARGET,
        postprocs: Parts = FROM_TARGET, mutator_probs: Mapping[Mutator, float] | str | None = FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: PrimFunc | IRModule) -> list[Schedule]:
        if not isinstance(self.sch_rules, (list, tuple)):
            raise OptionError("the design space has no rules; make a TuneContext with it first", code="TW1108")
        sch = Schedule(normalized_module(mod), self.seed)
        found = [sch]
        blocks = self._blocks(sch)
        for rule in self.sch_rules:
            stack = [(s, blocks) for s in found]
            found = []
            while stack:
                state, left = stack.pop()
                if not left:
                    found.append(state)
                    continue
                at, rest = left[-1], left[:-1]
                if self._is_left_out(state, at, rule):
                    stack.append((state, rest))
                else:
                    stack.extend((s, rest) for s in rule.apply(state, at))
        return found

    def _blocks(self, sch: Schedule) -> list[BlockAt]:
        """Return the blocks of all functions in order, each function's root block last."""
        found = []
        for name in sch.functions:
            root = sch.get(BlockAt(ROOT_BLOCK, name))
            inside = [*(s for s in walk_stmt(root.body) if isinstance(s, Block)), root]
            found += [
                sch.get_block(b.name, name) for b in inside if self.f_block_filter is None or self.f_block_filter(b)]
        return found

    @staticmethod
    def _is_left_out(sch: Schedule, at: BlockAt, rule: ScheduleRule) -> bool:
        """Return whether a rule does not apply to a block: the block is gone, or has its own rule."""
        try:
            node = sch.get(at)
        except ScheduleError:
            return True
        return RULE in node.annotations and not rule.is_custom


class SpaceGeneratorUnion(SpaceGenerator):
    """The design spaces of several generators together."""

    def __init__(
        self, space_generators: Sequence[SpaceGenerator], sch_rules: Parts = FROM_TARGET,
        postprocs: Parts = FROM_TARGET, mutator_probs: Mapping[Mutator, float] | str | None = FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators = list(space_generators)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        for generator in self.space_generators:
            generator._initialize_with_tune_context(context)

    def generate_design_space(self, mod: PrimFunc | IRModule) -> list[Schedule]:
        return [s for g in self.space_generators for s in g.generate_design_space(mod)]
