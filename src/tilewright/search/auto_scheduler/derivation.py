"""The derivation of sketches: rules are tried on the stages of a state, from the last one to the first.

    (state, stage 2) -> (tiled state, stage 1), (state with a cache stage, stage 2)

Each rule returns states with the stage to visit next; a state is complete after stage 0. The first complete states are
those of the fewest rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tilewright.search.auto_scheduler.loop_state import State

MAX_STATES: Final = 32
"""Largest number of sketches of a task; several tiled stages in one task multiply their variants."""
Next: TypeAlias = tuple[State, int]


class SketchRule:
    """A rule that derives states for a stage. `policy` is the search of the task."""

    PASS: Final = 0
    APPLY: Final = 1
    APPLY_AND_SKIP_REST: Final = 2
    is_custom: bool = False
    """Whether a program defines the rule."""

    def condition(self, policy: Any, state: State, stage_id: int) -> int:
        """Return whether the rule applies to a stage, and whether later rules are left out."""
        raise NotImplementedError(f"{type(self).__name__} does not define condition")

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        """Return new states with the stage to visit next; stage -1 completes a state."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A complete state. `is_custom`: a rule of the program applied to one of its stages."""

    state: State
    is_custom: bool


def derive(policy: Any, begin: State, rules: Sequence[SketchRule]) -> list[Derived]:
    """Return the states that rules derive from the first state of a task. Stages that no rule meets stay as they are.
    """
    found: list[Derived] = []
    ways: list[tuple[State, int, bool]] = [(begin, len(begin.stages) - 1, False)]
    while ways and len(found) < MAX_STATES:
        state, stage, is_custom = ways.pop(0)
        if stage < 0:
            found.append(Derived(state, is_custom))
            continue
        met = False
        for rule in rules:
            condition = rule.condition(policy, state, stage)
            if condition == rule.PASS:
                continue
            made = rule.apply(policy, state, stage)
            met = met or bool(made)
            ways += [(new, following, is_custom or rule.is_custom) for new, following in made]
            if condition == rule.APPLY_AND_SKIP_REST:
                break
        if not met:
            ways.append((state, stage - 1, is_custom))
        del ways[MAX_STATES:]
    return found
