"""The common parts of both command lines: `-v`, option files, examples in the help, one-line errors with an exit code.

    app = application("tilewright", "Compile trained models to native programs, and run them.")
    code = run(app, "tilewright", arguments, exit_code)
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final, get_type_hints

import typer

from tilewright.backends.registry import has_backend
from tilewright.backends.targets.accelerators import parts
from tilewright.base import logs
from tilewright.base.errors import InternalError, OptionError, TVMError, with_code
from tilewright.driver.config import option_values
from tilewright.driver.targets import TargetOption, read_target, split_target_options

# typer brings its own click in new versions and uses the installed one in old ones: ask it for its class.
UsageError: Final[type[Any]] = typer.BadParameter.__bases__[0]

WRONG_USE, INTERRUPTED, OURS = 2, 130, 1
"""Exit codes for wrong usage, for an interrupt, and for faults of the compiler."""
_NOT_WRITTEN_RIGHT: Final = "TW0201"
_LEVELS: Final = ("ERROR", "WARNING", "INFO", "DEBUG")
_WIDTH: Final = 100


@dataclass
class Invocation:
    """The part of a command line outside a command's options: the number of -v, and options of parts of the target."""

    level: int = 0
    target_options: tuple[TargetOption, ...] = ()


def invocation(context: typer.Context) -> Invocation:
    """Return the invocation of the current command line."""
    found = context.find_root().obj
    assert isinstance(found, Invocation)
    return found


def application(name: str, words: str) -> typer.Typer:
    """Return an empty command line. Its help has a fixed line width, so that pages can quote it."""
    return typer.Typer(
        name=name, help=words, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": _WIDTH, "max_content_width": _WIDTH})


def examples(*lines: str) -> str:
    """Return the examples that follow a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one option for each field of its dataclass parameters, so that shared options are
    declared once."""
    hints, groups, parameters = (
        get_type_hints(command, include_extras=True), dict[str, Any](), list[inspect.Parameter]()
    )
    for p in inspect.signature(command).parameters.values():
        kind = hints[p.name]
        if not is_dataclass(kind):
            parameters.append(p.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[p.name], of_fields = kind, get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=of_fields[f.name])
            for f in fields(kind)]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _count_verbose(context: typer.Context, value: int) -> int:
    said = invocation(context)
    said.level += value
    if value:
        logs.configure(_LEVELS[min(said.level, len(_LEVELS) - 1)])
    return value


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tilewright {version('tilewright')}")
        raise typer.Exit


def _configure(context: typer.Context, value: str) -> str:
    if value and not context.resilient_parsing:
        commands: Mapping[str, Any] = context.command.commands  # type: ignore[attr-defined]
        known = {p.name for command in commands.values() for p in command.params}
        values = option_values(value, known)
        context.default_map = dict.fromkeys(commands, values)
    return value


def check_target_options(context: typer.Context) -> None:
    """Raise `OptionError` if options of parts of a target precede a command without a target. Called by an
    application's callback."""
    given = invocation(context).target_options
    group: Any = context.command
    command = group.get_command(context, context.invoked_subcommand) if context.invoked_subcommand else None
    if given and command is not None and all(p.name != "target" for p in command.params):
        raise OptionError(f"{given[0]}: '{context.invoked_subcommand}' takes no target", code="TW0204")


def _whole_target(context: typer.Context, text: str) -> str:
    """Return the value of `--target` combined with the options of its parts."""
    if text.rstrip().endswith(","):
        raise typer.BadParameter(f"'{text}' ends in a comma; quote a target of several parts: --target \"{text} llvm\"")
    return text if context.resilient_parsing else str(read_target(text, invocation(context).target_options))


def _with_processor(context: typer.Context, text: str) -> str:
    """Return the same for a target that may lack a processor, which defaults to `llvm`."""
    whole = (
        text.endswith(".json") or text.lstrip().startswith("{")
        or has_backend(parts(text)[-1].split(" ", maxsplit=1)[0])
    )
    return _whole_target(context, text if whole else f"{text}, llvm")


Target = Annotated[
    str,
    typer.Option(
        "-t", "--target", callback=_whole_target,
        help="The target, such as 'llvm -mcpu=x86-64-v3' (quote it); JSON, or a .json file. "
        "--target-llvm-mcpu=x86-64-v3 adds an option to one part."),
]
Accelerators = Annotated[
    str,
    typer.Option(
        "--target", callback=_with_processor, help="Accelerators, then the processor, such as 'npu, llvm' (quote it).")
]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, show_default=False, callback=_count_verbose,
        help="Show warnings and tracebacks; -vv shows the actions, -vvv details.")
]
Version = Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")]
Config = Annotated[
    str,
    typer.Option(
        "--config", metavar="FILE|NAME", callback=_configure, is_eager=True,
        help="A JSON file of options, or the name of one of this package. The command line takes precedence."),
]


def spread(arguments: Sequence[str], many: Sequence[str]) -> list[str]:
    """Convert `--ops a b --x` to `--ops a --ops b --x`, for the options `many` that take several values."""
    made: list[str] = []
    open_option = ""
    for word in arguments:
        if word.startswith("-") and len(word) > 1:
            open_option = word if word in many else ""
            if not open_option:
                made.append(word)
            continue
        made += [open_option, word] if open_option else [word]
    return made


def run(
    app: typer.Typer, name: str, arguments: Sequence[str] | None, exit_code: Callable[[TVMError], int],
    many: Sequence[str] = ()
) -> int:
    """Run one command line and return its exit code, which is `exit_code(error)` for errors of the user. Prints errors
    in one line on stderr."""
    said = Invocation()
    try:
        given, said.target_options = split_target_options(sys.argv[1:] if arguments is None else arguments)
        code = app(args=spread(given, many), standalone_mode=False, prog_name=name, obj=said) or 0
        message = "interrupted" if code == INTERRUPTED else ""  # typer makes this code of a `KeyboardInterrupt`
    except (Exception, KeyboardInterrupt) as error:  # the outermost handler: the user sees no traceback without -v
        if said.level:
            traceback.print_exception(error)
        code, message = _explained(error, bool(said.level), exit_code)
    if message:  # empty when a command line without arguments printed the help
        typer.echo(f"Error: {message}", err=True)
    return code


def _explained(error: BaseException, verbose: bool, exit_code: Callable[[TVMError], int]) -> tuple[int, str]:
    """Return the exit code and the message for the exception that ended a command."""
    if isinstance(error, UsageError):
        return WRONG_USE, (said := error.format_message()) and f"{said} [{_NOT_WRITTEN_RIGHT}]"
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED, "interrupted"
    if isinstance(error, TVMError) and not isinstance(error, InternalError):
        return exit_code(error), with_code(error)
    what = str(error) if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    code = error.code if isinstance(error, InternalError) else InternalError.code
    return (
        OURS,
        f"this is a fault of the compiler, not of the model: {what}{'' if verbose else '; -v shows where'} [{code}]"
    )
