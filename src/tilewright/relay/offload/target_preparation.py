"""Finds the module that a target's `partition_for` has prepared for matching; the report is about this module.

It observes the passes: the module before the first pass that marks or composes, and the result of the remaining passes
on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, PassInfo
from tilewright.relay.op.contrib import partition_for
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.merge_composite import MergeComposite

_FIRST: Final = (MergeComposite.__name__, AnnotateTarget.__name__)
"""The passes that begin a partition."""
_ALWAYS: Final = ("sequential", "InferType")
"""Passes that always run: containers of other passes, and type inference."""


class _Watch(PassInstrument):
    """Records the module before the partition begins. With `leave_out`, the preparing passes are skipped."""

    def __init__(self, leave_out: bool) -> None:
        self.leave_out = leave_out
        self.found: IRModule | None = None

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        if self.found is None and info.name in _FIRST:
            self.found = mod
        known = info.name in _ALWAYS or info.name.startswith("partition_for")
        return not self.leave_out or self.found is not None or known


def prepared(target: str, mod: IRModule, options: Mapping[str, Any]) -> IRModule:
    """Return `mod` as the partition for `target` prepares it for matching."""
    watch = _Watch(leave_out=False)
    _watched(target, mod, options, watch)
    return mod if watch.found is None else watch.found


def divided(target: str, mod: IRModule, options: Mapping[str, Any]) -> IRModule:
    """Return the prepared module `mod` partitioned for `target`."""
    watch = _Watch(leave_out=True)
    found = _watched(target, mod, options, watch)
    return found if watch.found is not None else partition_for(target, mod, {}, **options)


def _watched(target: str, mod: IRModule, options: Mapping[str, Any], watch: _Watch) -> IRModule:
    around = PassContext.current()
    config = {k: v for k, v in around.config.items() if k != "relay.check_rewrites"}
    with PassContext(around.opt_level, tuple(around.required_pass), tuple(around.disabled_pass), (watch,), config):
        return partition_for(target, mod, {}, **options)
