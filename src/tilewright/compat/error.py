"""TVM's `tvm.error`: the errors of this package, all subclasses of `TVMError`."""

from tilewright.base.errors import (
    ArtifactError,
    CompileError,
    InputError,
    InternalError,
    MemoryFault,
    ModelError,
    OpNotImplemented,
    OptionError,
    RPCError,
    RPCSessionTimeoutError,
    ScheduleError,
    ShapeError,
    TargetError,
    TVMError,
)

DiagnosticError = CompileError
"""TVM's name for errors of parsing and of type inference."""

__all__ = [
    "ArtifactError", "CompileError", "DiagnosticError", "InputError", "InternalError", "MemoryFault", "ModelError",
    "OpNotImplemented", "OptionError", "RPCError", "RPCSessionTimeoutError", "ScheduleError", "ShapeError", "TVMError",
    "TargetError",
]
