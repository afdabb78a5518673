"""Schedules for Arm processors: those of `topi.x86`, which depend on the target's machine, not on its name."""

from tilewright.topi.x86 import *  # noqa: F403
from tilewright.topi.x86 import __all__  # noqa: F401
