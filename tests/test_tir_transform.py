"""Every loop pass keeps the meaning of a program, alone and in the pipeline."""

from __future__ import annotations

import pytest

from loop_programs import PROGRAMS, same
from tilewright.tir.transform.pipeline import LOOP_PASSES
from tilewright.tir.transform.verify import verify_flat


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_in_the_pipeline_keeps_the_results(name: str) -> None:
    before = func = PROGRAMS[name]()
    for loop_pass in LOOP_PASSES:
        func = loop_pass(func)
        try:
            same(before, func)
        except Exception as error:
            error.add_note(f"after {loop_pass.__name__}:\n{func}")
            raise
    verify_flat(func)
