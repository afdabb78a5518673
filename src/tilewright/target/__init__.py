"""Targets, what their processors can do, and code generation for each back end."""

from tilewright.target.hooks import register_target_kind
from tilewright.target.target import Target, TargetKind

__all__ = ["Target", "TargetKind", "register_target_kind"]
