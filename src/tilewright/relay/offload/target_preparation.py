"""The module after the preparation in a target's own `partition_for`, which the report is about.

It is found by watching the passes: the module before the first pass that marks or composes, and the result of the
remaining passes on it.
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
"""The passes that a partition begins with."""
_ALWAYS: Final = ("sequential", "InferType")
"""Passes that run although they come before: those that run others, and the one that changes nothing."""


class _Watch(PassInstrument):
    """Keeps the module before the partition begins; with `leave_out`, the passes before it are left out."""

    def __init__(self, leave_out: bool) -> None:
        self.leave_out = leave_out
        self.found: IRModule | None = None

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        if self.found is None and info.name in _FIRST:
            self.found = mod
        known = info.name in _ALWAYS or info.name.startswith("partition_for")
        return not self.leave_out or self.found is not None or known


def prepared(target: str, mod: IRModule, options: Mapping[str, Any]) -> IRModule:
    """`mod` as the partition for `target` sees it when it looks for patterns."""
    watch = _Watch(leave_out=False)
    _watched(target, mod, options, watch)
    return mod if watch.found is None else watch.found


def divided(target: str, mod: IRModule, options: Mapping[str, Any]) -> IRModule:
    """`mod`, which is prepared, partitioned for `target`."""
    watch = _Watch(leave_out=True)
    found = _watched(target, mod, options, watch)
    return found if watch.found is not None else partition_for(target, mod, {}, **options)


def _watched(target: str, mod: IRModule, options: Mapping[str, Any], watch: _Watch) -> IRModule:
    around = PassContext.current()
    config = {k: v for k, v in around.config.items() if k != "relay.check_rewrites"}
    with PassContext(around.opt_level, tuple(around.required_pass), tuple(around.disabled_pass), (watch,), config):
        return partition_for(target, mod, {}, **options)
