"""Checks of schedules for tests: TVM's `tvm.tir.schedule.testing`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Trace
from tilewright.tir.stmt import PrimFunc


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc | IRModule, func2: PrimFunc | IRModule, map_free_vars: bool = False
) -> None:
    """Raise `AssertionError` or `ValueError` unless two programs are structurally equal; names of functions are
    ignored."""
    assert_structural_equal(func1, func2, map_free_vars)


def verify_trace_roundtrip(
    sch: Schedule, mod: PrimFunc | IRModule, *, debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json")
) -> Schedule:
    """Repeat the steps of `sch` on `mod` from their stored form, and return the new schedule.

    The trace is stored as JSON for every `text_format`. Raises an error unless both results are equal.
    """
    again = Schedule(mod, debug_mask=debug_mask)
    Trace.from_json(json.loads(json.dumps(sch.trace.as_json()))).apply_to_schedule(again)
    for name, f in sch.mod.items():
        assert_structural_equal(again.mod[name], f)
    if str(again.trace) != str(sch.trace):
        raise AssertionError(f"the steps differ:\n{sch.trace}\nafter storing them:\n{again.trace}")
    return again


__all__ = ["assert_structural_equal_ignore_global_symbol", "verify_trace_roundtrip"]
