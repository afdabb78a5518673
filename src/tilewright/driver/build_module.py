"""TVM's `driver.build_module`: the functions of `tilewright` under this name."""

from tilewright.compiler.functions import build, lower
from tilewright.te.producers import get_binds, schedule_to_module

__all__ = ["build", "get_binds", "lower", "schedule_to_module"]
