"""Conformance cases of PyTorch programs where they are (`suites.py`): all pass, or are refused by name."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the PyTorch frontend reads what torch writes; install torch")

from daily import sample
from suite_outcome import Outcome
from suites import suite_folder
from torch_suite import Case, cases, run

pytestmark = pytest.mark.slow
PARTS, SAMPLE = 10, 20
"""Cases are run in parts; of each part so many, drawn each day."""
LEAST = 0.98


@pytest.mark.parametrize("part", range(PARTS))
def test_no_case_is_wrong(part: int) -> None:
    chosen: list[Case] = sample(list(cases(suite_folder("relay_torch*")))[part::PARTS], SAMPLE, str(part))
    outcomes: dict[str, Outcome] = {c.name: run(c) for c in chosen}
    assert not {name: o.wrong for name, o in outcomes.items() if o.wrong}
    assert sum(o.passed for o in outcomes.values()) >= LEAST * len(outcomes) - 2


def test_an_outcome_is_passed_unless_something_is_said_of_it() -> None:
    assert Outcome(native=True).passed and not Outcome(refused="no").passed and not Outcome(wrong="no").passed
