"""The error classes, and the origin of an error in the user's model.

`CompileError` and its subclasses are errors of the user: the message names the node, the reason and the remedy.
`InternalError` is a fault of the compiler. Both derive from `TVMError`, the name that TVM's scripts catch.

Every error has a `code`, such as TW0101: a family of messages with one cause and one remedy, described in `catalogue/`.
A class with a single code has it as an attribute. Otherwise the code is given where the error is raised:
`OptionError("…", code="TW0203")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_LONGEST_NAME: Final = 200
"""Number of characters of a name that is shown whole; names of nodes in nested functions grow long."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a node: the model's node and its operator, and the file if it is known.

    The text names a model file without its folder, because artifacts contain the text and must not depend on the
    folder. Source code keeps its path.
    """

    name: str
    kind: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = (
            f" ({self.file}:{self.line})" if self.file and self.line else f" ({self.file.rpartition('/')[2]})"
            if self.file else ""
        )
        name = (
            self.name if len(self.name) <= _LONGEST_NAME
            else f"{self.name[:_LONGEST_NAME // 2]}…{self.name[-_LONGEST_NAME // 2:]}"
        )
        return f"{self.kind} '{name}'{where}" if self.kind else f"'{name}'{where}"


_LONGEST_LINE: Final = 240


def excerpt(line: str, start: int, end: int) -> str:
    """Return a line of text, cut around `start` if it is long, and a line with carets below columns `start` to `end`.
    """
    if len(line) > _LONGEST_LINE:
        first, last = max(0, start - 60), start + 120
        before, after = "…" if first else "", "…" if last < len(line) else ""
        line, start, end = (
            before + line[first:last] + after, start - first + len(before), min(end, last) - first + len(before)
        )
    return f"  {line}\n  {' ' * start}{'^' * max(1, end - start)}"


class TVMError(RuntimeError):
    """Base class of all errors that this package raises on purpose. `tilewright explain-error CODE` shows cause and
    remedy of its `code`."""

    code: str = ""

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        if code:
            self.code = code


class CompileError(TVMError):
    """The user's input cannot be compiled; `origin` is the node of the model, if it is known."""

    def __init__(self, message: str, origin: Origin | None = None, *, code: str = "") -> None:
        super().__init__(f"{origin}: {message}" if origin else message, code=code)
        self.message = message
        self.origin = origin


class ModelError(CompileError):
    """The model file cannot be read, is damaged, or contradicts itself."""


class OpNotImplemented(ModelError):
    """The model has operators without a converter; the message lists all of them."""

    code = "TW0106"


class PackageError(ModelError):
    """A required Python package is not installed; the message names it and shows how to install it."""

    code = "TW0117"


class ShapeError(CompileError):
    """A type or shape rule of an operator is violated."""

    code = "TW0301"


class UnequalSizesError(ShapeError):
    """Two dynamic `sizes` must be equal, and are different expressions."""

    sizes: tuple[Any, Any] | None = None


class FloatOperatorError(CompileError, AssertionError):
    """An operator computes with floats where only integers are allowed. TVM raises an `AssertionError`."""

    code = "TW1005"


class UnfitSamplesError(CompileError):
    """A `bound`, a sum of sizes and its least value, that the samples of the sizes do not satisfy."""

    code = "TW0304"
    bound: tuple[Any, int] | None = None


class ParseError(CompileError):
    """The text of a program cannot be parsed; the message shows the line, with a caret at the error."""

    code = "TW0405"


class UndecidedError(CompileError, ValueError):
    """Python needs the truth of an expression whose value is not known while compiling. TVM raises a `ValueError`."""

    code = "TW0602"


class DifferenceError(CompileError, ValueError):
    """Two programs that must be equal differ. TVM raises a `ValueError`."""

    code = "TW0411"


class ScheduleError(CompileError):
    """A schedule step cannot be applied to the loops it names."""

    code = "TW0601"


class MissingIntrinsicError(ScheduleError, ValueError):
    """No tensor intrinsic of that name is registered. TVM raises a `ValueError`."""


class ThreadError(CompileError, ValueError):
    """Loops over one kind of thread have different numbers of trips, or cannot reduce together. TVM raises a
    `ValueError`."""

    code = "TW0611"


class PipelineError(CompileError, ValueError):
    """The trips of a loop cannot overlap as its annotations say. TVM raises a `ValueError`."""

    code = "TW0611"


class MissingLoopError(ScheduleError, IndexError):
    """A schedule has no such loop, or the reference was removed. TVM raises an `IndexError`."""


class MissingBufferError(ScheduleError, AssertionError):
    """A block has no buffer of that position or name. TVM raises an `AssertionError` for some steps."""


class UnknownFunctionError(ScheduleError, ValueError):
    """A step does not say which function of the module it is for. TVM raises a `ValueError`."""


class TargetError(CompileError, ValueError):
    """The target is unknown, or does not support the requested operation."""


class MissingTargetError(TargetError, AssertionError):
    """No target is given where one is needed. TVM raises an `AssertionError`."""

    code = "TW0514"


class OptionError(CompileError, ValueError):
    """An option, flag, name or configuration key is unknown or has an invalid value."""


class InputError(CompileError):
    """A run-time input has the wrong name, shape or dtype."""


class MissingFileError(InputError, FileNotFoundError):
    """A file that the user names does not exist. It is caught as Python's `FileNotFoundError` too."""

    code = "TW0101"


class RunError(CompileError):
    """A program cannot continue: no clause of a match applies, an operator is undefined for its arguments, or stack or
    memory is exhausted."""


class MemoryFault(RunError):
    """A checked program skipped an invalid memory access; results after it are invalid.

    `buffer` is the name of the buffer, `kind` is read, write, uninitialized or overlap, `node` the node of the model,
    as text.
    """

    code = "TW0715"

    def __init__(self, message: str, *, buffer: str = "", kind: str = "", node: str = "") -> None:
        super().__init__(message)
        self.buffer, self.kind, self.node = buffer, kind, node

    def at(self, node: str) -> MemoryFault:
        """Return the error with the node of the model added, unless it names one."""
        if self.node or not node:
            return self
        return MemoryFault(f"{self.message}\n  computes {node}", buffer=self.buffer, kind=self.kind, node=node)


class ArtifactError(CompileError):
    """A compiled artifact is damaged, or was made for another machine or version."""


class RPCError(TVMError):
    """A remote process or machine cannot be reached, refuses a request, or sends an invalid answer."""


class RPCSessionTimeoutError(RPCError):
    """A session has ended because it exceeded its time limit."""

    code = "TW1205"


class WorkerError(TVMError):
    """A call in a worker process failed."""


class WorkerRaised(WorkerError):
    """The called function raised an exception; `kind` is the name of its class."""

    code = "TW1207"

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class WorkerCrashed(WorkerError):
    """The worker process ended during the call; the message names the signal."""

    code = "TW1208"


class WorkerNotStarted(WorkerError):
    """No worker process could be started within the configured limits."""

    code = "TW1209"


class WorkerTimedOut(WorkerError):
    """The call exceeded its time limit, and the worker process was ended."""

    code = "TW1210"


class NotNativeWarning(UserWarning):
    """Operators of a program have no native kernel and run in numpy: correct but slower. The message lists them."""

    code = "TW1303"


class OpenSizeWarning(UserWarning):
    """One program cannot serve the dynamic shapes of a model, so each shape is compiled. The message has the reason."""

    code = "TW1304"


class UnknownOperatorWarning(UserWarning):
    """An operator name is unknown, which may be a typing error. The message has the nearest name."""

    code = "TW1305"


class UnknownOptionWarning(UserWarning):
    """An option has no meaning here, and is ignored as TVM ignores it. The message has the nearest name."""

    code = "TW1001"


class RewriteWarning(UserWarning):
    """A pass was skipped because it changed the result of a function, or a function was not checked. The message has
    the reason."""

    code = "TW1306"


class MixedPrecisionWarning(UserWarning):
    """An operator is in no category of mixed precision, and stays in float32."""

    code = "TW1307"


class CacheWarning(UserWarning):
    """The cache on disk cannot be used, so models are compiled each time."""

    code = "TW1308"


class ProviderWarning(UserWarning):
    """Requested execution providers are not available, and the model runs on the CPU."""

    code = "TW1309"


class MovedModuleWarning(DeprecationWarning):
    """A module or function was used by a former name, which still works. The message has the new name."""

    code = "TW1310"


class ShadowedModuleWarning(UserWarning):
    """`import tvm` gives this package although TVM is installed."""

    code = "TW1311"


class NoNativeKernel(TVMError):
    """An operator has no tensor expression for these arguments, so that its step runs in Python.

    `Op.compute` raises it, and the build catches it: no other error makes a step run in Python.
    """

    code = "TW1303"


class InternalError(TVMError):
    """A fault of the compiler itself. The message describes how to reproduce it."""

    code = "TW1301"


def with_code(error: BaseException) -> str:
    """Return the message of an error for command lines: with its code appended, if it has one."""
    code = getattr(error, "code", "")
    return f"{error} [{code}]" if code else str(error)
