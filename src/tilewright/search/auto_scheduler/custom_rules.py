"""Rules of a program for the states from which a search starts (`PreloadCustomSketchRule`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.search.auto_scheduler.derivation import Next, SketchRule
from tilewright.search.auto_scheduler.loop_state import State


class PreloadCustomSketchRule(SketchRule):
    """A search callback with a rule of the program, which is asked about each stage, from the last one to the first.

    `meet_condition_func(policy, state, stage_id)` returns whether it applies: `PASS`, `APPLY`, or
    `APPLY_AND_SKIP_REST`, which leaves out later rules and those of the search. `apply_func`, of the same arguments,
    returns pairs of a state and the next stage; stage -1 completes the state.
    """

    is_custom = True

    def __init__(
        self, meet_condition_func: Callable[[Any, State, int], int],
        apply_func: Callable[[Any, State, int], Sequence[Sequence[Any]]], rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func, self.rule_name = meet_condition_func, apply_func, rule_name

    def condition(self, policy: Any, state: State, stage_id: int) -> int:
        """Return whether the rule applies to a stage. Raises `OptionError` for another answer than the three."""
        found = int(self.meet_condition_func(policy, state, stage_id))
        if found not in (self.PASS, self.APPLY, self.APPLY_AND_SKIP_REST):
            raise OptionError(
                f"the condition of rule '{self.rule_name}' is {found}; it must be PASS (0), APPLY (1) or "
                "APPLY_AND_SKIP_REST (2)", code="TW1103")
        return found

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        return [(new, int(following)) for new, following in self.apply_func(policy, state, stage_id)]
