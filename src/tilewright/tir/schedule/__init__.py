"""`tvm.tir.schedule`: schedules of TIR programs, references to their blocks and loops, and traces."""

from tilewright.base.errors import ScheduleError
from tilewright.tir.block_scope import BlockScope, Dependency, DepKind, StmtSRef
from tilewright.tir.instructions import InstructionKind
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule import state
from tilewright.tir.schedule_state import ScheduleDebugMask, ScheduleState
from tilewright.tir.schedule_trace import Instruction, Trace
from tilewright.tir.steps import BlockAt as BlockRV
from tilewright.tir.steps import SampledInt as ExprRV

__all__ = [
    "BlockRV", "BlockScope", "DepKind", "Dependency", "ExprRV", "Instruction", "InstructionKind", "LoopRV", "Schedule",
    "ScheduleDebugMask", "ScheduleError", "ScheduleState", "StmtSRef", "Trace", "state",
]
