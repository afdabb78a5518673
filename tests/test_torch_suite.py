"""Conformance cases of PyTorch programs in the folder that TILEWRIGHT_TORCH_SUITE names: all pass, or are refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the PyTorch frontend reads what torch writes; install torch")

from torch_suite import Outcome, cases, run

pytestmark = pytest.mark.slow
FOLDER = Path(os.environ.get("TILEWRIGHT_TORCH_SUITE", ""))
PARTS = 20
LEAST = 0.98


@pytest.mark.skipif("TILEWRIGHT_TORCH_SUITE" not in os.environ, reason="set TILEWRIGHT_TORCH_SUITE to a folder of cases (see tests/torch_suite.py)")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_case_is_wrong(part: int) -> None:
    outcomes: dict[str, Outcome] = {c.name: run(c) for c in list(cases(FOLDER))[part::PARTS]}
    assert not {name: o.wrong for name, o in outcomes.items() if o.wrong}
    assert sum(o.passed for o in outcomes.values()) >= LEAST * len(outcomes) - 2


def test_an_outcome_is_passed_unless_something_is_said_of_it() -> None:
    assert Outcome(native=True).passed and not Outcome(refused="no").passed and not Outcome(wrong="no").passed
