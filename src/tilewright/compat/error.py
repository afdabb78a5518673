"""The field's `tvm.error`: what this package raises, all below `TVMError`."""

from tilewright.base.errors import (
    ArtifactError,
    CompileError,
    InputError,
    InternalError,
    MemoryFault,
    ModelError,
    OpNotImplemented,
    OptionError,
    ScheduleError,
    ShapeError,
    TargetError,
    TVMError,
)

__all__ = [
    "ArtifactError", "CompileError", "InputError", "InternalError", "MemoryFault", "ModelError", "OpNotImplemented",
    "OptionError", "ScheduleError", "ShapeError",
    "TVMError", "TargetError",
]
