"""The names of `tvm.target`: targets and hooks of target kinds."""

from tilewright.backends.hooks import register_target_kind
from tilewright.backends.target import Target, TargetKind

__all__ = ["Target", "TargetKind", "register_target_kind"]
