"""TVM's `driver.build_module`: the functions of `tilewright` under this name."""

from tilewright.compiler.functions import build, lower
from tilewright.te.producers import schedule_to_module

__all__ = ["build", "lower", "schedule_to_module"]
