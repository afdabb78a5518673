"""Rules of a program for the states from which a search starts (`PreloadCustomSketchRule`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.sketch import Setting, Sketch


class PreloadCustomSketchRule:
    """A search callback with a rule of the program, which is asked about each stage, from the last one to the first.

    `meet_condition_func(policy, state, stage_id)` returns whether it applies: `PASS`, `APPLY`, or
    `APPLY_AND_SKIP_REST`, which leaves out later rules and those of the search. `apply_func`, of the same arguments,
    returns pairs of a state and the next stage; stage -1 completes the state.
    """

    PASS: Final = 0
    APPLY: Final = 1
    APPLY_AND_SKIP_REST: Final = 2

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


class FixedSketch(Sketch):
    """A sketch of one state, without knobs."""

    knobs = ()

    def __init__(self, found: State) -> None:
        self._found = found

    def sample(self, choose: Any) -> dict[str, Any]:
        return {}

    def fits(self, setting: Setting) -> bool:
        return True

    def state(self, setting: Mapping[str, Any]) -> State:
        return self._found.copy()


def custom_sketches(
    policy: Any, begin: State, rules: Sequence[PreloadCustomSketchRule]
) -> tuple[list[FixedSketch], bool]:
    """Return the states that rules make of the first state of a task, and whether the rules of the search apply too.

    These apply if some way through the stages meets no rule. Stages that no rule meets on other ways stay as they are.
    """
    found: list[FixedSketch] = []
    is_open = False
    ways: list[tuple[State, int, bool]] = [(begin, len(begin.stages) - 1, False)]
    while ways:
        state, stage, is_changed = ways.pop(0)
        if stage < 0:
            found += [FixedSketch(state)] if is_changed else []
            is_open = is_open or not is_changed
            continue
        for rule in rules:
            condition = rule.condition(policy, state, stage)
            if condition != rule.PASS:
                ways += [(new, int(following), True) for new, following in rule.apply_func(policy, state, stage)]
            if condition == rule.APPLY_AND_SKIP_REST:
                break
        else:
            ways.append((state, stage - 1, is_changed))
    return found, is_open
