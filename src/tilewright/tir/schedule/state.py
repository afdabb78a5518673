"""The state of a schedule: TVM's `tvm.tir.schedule.state`."""

from tilewright.tir.schedule_state import CachedFlags, ScheduleDebugMask, ScheduleState

__all__ = ["CachedFlags", "ScheduleDebugMask", "ScheduleState"]
