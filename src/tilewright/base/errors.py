"""The two kinds of failure, and where in the user's model they come from.

`CompileError` and its children are the user's: their message names the node, says why, and says what to do next.
`InternalError` is ours. Both derive from `TVMError`, the name that scripts of the field catch.

Every error has a `code`, such as TW0101: a family of messages with one cause and one cure, told in `catalogue/`. A
class of one family has its code as an attribute; where a class has several, whoever raises it says which:
`OptionError("…", code="TW0203")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LONGEST_NAME: Final = 200
"""Of a name that is shown whole: those of nodes in functions in functions grow long."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something came from: the model's node and its kind, and the file when one is known.

    As text a model's file is named without its folder, since artifacts hold this text, and are the same wherever they
    are made; source code has its path.
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
    """A line of a text, of a long one the part around `start`, and a line with carets below the characters from `start`
    to `end`."""
    if len(line) > _LONGEST_LINE:
        first, last = max(0, start - 60), start + 120
        before, after = "…" if first else "", "…" if last < len(line) else ""
        line, start, end = (
            before + line[first:last] + after, start - first + len(before), min(end, last) - first + len(before)
        )
    return f"  {line}\n  {' ' * start}{'^' * max(1, end - start)}"


class TVMError(RuntimeError):
    """Base of everything that this package raises on purpose. `code` is where the catalogue tells cause and cure:
    `tilewright explain-error`."""

    code: str = ""

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        if code:
            self.code = code


class CompileError(TVMError):
    """The user's input cannot be compiled; `origin` is the node of their model, when one is known."""

    def __init__(self, message: str, origin: Origin | None = None, *, code: str = "") -> None:
        super().__init__(f"{origin}: {message}" if origin else message, code=code)
        self.message = message
        self.origin = origin


class ModelError(CompileError):
    """The model file cannot be read, is damaged, or contradicts itself."""


class OpNotImplemented(ModelError):
    """The model has operators that no frontend converter exists for; all of them are listed."""

    code = "TW0106"


class PackageError(ModelError):
    """A Python package that this needs is not installed; the message says which, and how to install it."""

    code = "TW0117"


class ShapeError(CompileError):
    """A type or shape rule of an operator is violated."""

    code = "TW0301"


class ParseError(CompileError):
    """A program's text cannot be read; the message shows the line, with a caret where reading stopped."""

    code = "TW0405"


class ScheduleError(CompileError):
    """A schedule step cannot be applied to the loops it names."""

    code = "TW0601"


class TargetError(CompileError):
    """The target is unknown, or cannot do what is asked of it."""


class OptionError(CompileError, ValueError):
    """An option, a flag, a name or a configuration key is unknown or has a bad value."""


class InputError(CompileError):
    """A run-time input has the wrong name, shape or dtype."""


class RunError(CompileError):
    """A program cannot go on: no clause of a match fits, an operator has no meaning for the values that it is given,
    the stack or the memory is used up."""


class MemoryFault(RunError):
    """A checked program was about to make a wrong access to memory, which it left out; what it computed since is not to
    be used.

    `buffer` is the name of the buffer, `kind` is read, write, uninitialized or overlap, `node` the node of the model,
    as text.
    """

    code = "TW0715"

    def __init__(self, message: str, *, buffer: str = "", kind: str = "", node: str = "") -> None:
        super().__init__(message)
        self.buffer, self.kind, self.node = buffer, kind, node

    def at(self, node: str) -> MemoryFault:
        """The same with the node of the model, where the code that found it knew none."""
        if self.node or not node:
            return self
        return MemoryFault(f"{self.message}\n  computes {node}", buffer=self.buffer, kind=self.kind, node=node)


class ArtifactError(CompileError):
    """A compiled artifact is damaged, or was made for another machine or version."""


class RPCError(TVMError):
    """Another process or machine cannot be reached, refuses, or answers what cannot be understood."""


class WorkerError(TVMError):
    """A call in a worker process failed."""


class WorkerRaised(WorkerError):
    """What was called raised; `kind` is the name of the exception's class."""

    code = "TW1207"

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class WorkerCrashed(WorkerError):
    """The process ended during the call; the message says by which signal."""

    code = "TW1208"


class WorkerNotStarted(WorkerError):
    """There is no process to call: none can be started here, within the limits that are set."""

    code = "TW1209"


class WorkerTimedOut(WorkerError):
    """The call took longer than it may; its process was ended."""

    code = "TW1210"


class NotNativeWarning(UserWarning):
    """Operators of a program have no native kernel and run in numpy: right, and slower. All are listed."""

    code = "TW1303"


class OpenSizeWarning(UserWarning):
    """A model has no one program for its open sizes, and is compiled for each combination of them. The reason is
    told."""

    code = "TW1304"


class UnknownOperatorWarning(UserWarning):
    """Something is said of an operator that does not exist, which may be a slip of the pen. The nearest name is
    told."""

    code = "TW1305"


class RewriteWarning(UserWarning):
    """A pass was left out since it changed what a function computes, or a function was not checked. The reason is
    told."""

    code = "TW1306"


class MixedPrecisionWarning(UserWarning):
    """An operator has no category in mixed precision, and stays in float32."""

    code = "TW1307"


class CacheWarning(UserWarning):
    """The cache on disk cannot be used, so that models are compiled each time."""

    code = "TW1308"


class ProviderWarning(UserWarning):
    """Execution providers are asked for that are not here, and the model runs on the CPU."""

    code = "TW1309"


class MovedModuleWarning(DeprecationWarning):
    """A module is imported by a name of an earlier version, which still works. The message has the new name."""

    code = "TW1310"


class NoNativeKernel(TVMError):
    """An operator has no tensor expression for these arguments, so that its step runs in Python.

    `Op.compute` raises it, and the build catches it: no other error makes a step run in Python.
    """

    code = "TW1303"


class InternalError(TVMError):
    """A fault of the compiler itself. The message says what is needed to repeat it."""

    code = "TW1301"


def with_code(error: BaseException) -> str:
    """The message of an error as command lines show it: with the code behind it, where it has one."""
    code = getattr(error, "code", "")
    return f"{error} [{code}]" if code else str(error)
