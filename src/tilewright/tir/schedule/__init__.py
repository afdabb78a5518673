"""`tvm.tir.schedule`: schedules of TIR programs, references to their blocks and loops, and traces."""

from tilewright.base.errors import ScheduleError
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt as BlockRV
from tilewright.tir.steps import ScheduleStep as Instruction
from tilewright.tir.trace import Trace

__all__ = ["BlockRV", "Instruction", "LoopRV", "Schedule", "ScheduleError", "Trace"]
