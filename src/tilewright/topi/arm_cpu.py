"""Schedules for Arm processors: those of `topi.x86`, which follow the machine of the target and not its name."""

from tilewright.topi.x86 import *  # noqa: F403
from tilewright.topi.x86 import __all__  # noqa: F401
