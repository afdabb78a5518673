"""Passes, and the runner of all passes.

A pass is a small frozen dataclass whose fields are its options. It maps a module to a new module, so a pass that raises
leaves no partial changes. `PassContext` determines how passes run: optimization level, disabled passes, configuration,
instruments (`ir/instrument.py`). It is stored in a context variable, so each thread has its own.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from tilewright.base import settings
from tilewright.base.errors import CompileError, InternalError, OptionError, TVMError
from tilewright.ir import dialects
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PassInfo:
    """Name, optimization level and required passes of a pass."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()
    traceable: bool = False


PASSES: Final[dict[str, type[Pass]]] = {}
"""The passes by name, for `required` and for options that name a pass."""


class Pass:
    """Base of passes: subclasses are frozen dataclasses of their options, and define `transform_module`."""

    opt_level: ClassVar[int] = 0
    """The lowest level of `PassContext` at which a `Sequential` runs this pass."""
    required: ClassVar[tuple[str, ...]] = ()
    """Names of passes that a `Sequential` runs right before this one, unless the module has what they establish."""
    traceable: ClassVar[bool] = False
    """Whether the pass may be part of a trace, as in TVM; unused here."""
    exact: ClassVar[bool] = True
    """False if the pass changes results on purpose (approximation), so that `relay.check_rewrites` skips it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__name__.startswith("_"):
            PASSES[cls.__name__] = cls

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def info(self) -> PassInfo:
        return PassInfo(self.opt_level, self.name, self.required, self.traceable)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """Return the module after the pass; `mod` itself if nothing changes."""
        raise NotImplementedError

    def holds(self, mod: IRModule) -> bool:
        """Return whether the pass would change nothing, if that is known without a run."""
        return False

    def __call__(self, mod: IRModule) -> IRModule:
        """Run the pass under the current context, regardless of its level."""
        return _run(self, mod, PassContext.current())


class FunctionPass(Pass):
    """A pass over single functions of the class `kind`; subclasses define `transform_function`.

    Functions of other compilers (attribute `Compiler`) and those with the attribute `SkipOptimization` stay as they
    are, unless `enters_all` is set.
    """

    kind: ClassVar[type] = object
    enters_all: ClassVar[bool] = False
    """Whether the pass also changes functions of other compilers."""

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        """Return the function after the pass; `function` itself if nothing changes."""
        raise NotImplementedError

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod.map_functions(
            lambda f: f if self._skips(f) else self.transform_function(f, mod, context), self.kind)

    def _skips(self, function: Any) -> bool:
        attrs = getattr(function, "attrs", None) or {}
        return not self.enters_all and ("Compiler" in attrs or bool(attrs.get("SkipOptimization")))


class ModulePass(Pass):
    """A pass over the whole module, as made by `module_pass`."""


class Sequential(Pass):
    """Runs passes in order, except disabled ones and those above the level of the context.

    The sequence has its own name, level and required passes, which an enclosing sequence uses.
    """

    def __init__(
        self, passes: Sequence[Pass] | None = None, opt_level: int = 0, name: str = "sequential",
        required: Sequence[str] | None = None, traceable: bool = False
    ) -> None:
        self.passes = tuple(passes or ())
        self._info = PassInfo(opt_level, name, tuple(required or ()), traceable)

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def info(self) -> PassInfo:
        return self._info

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        for p in self.passes:
            info = p.info
            if context.pass_enabled(info):
                for needed in map(named_pass, info.required):
                    mod = mod if needed.holds(mod) else needed(mod)
                mod = p(mod)
        return mod

    def __repr__(self) -> str:
        return f"Sequential({', '.join(p.name for p in self.passes)}, name={self.name!r})"


def named_pass(name: str) -> Pass:
    """Return the pass of that name with its default options. Raises `OptionError` with the nearest name."""
    found = PASSES.get(name)
    if found is None:
        raise OptionError(f"there is no pass '{name}'{settings.nearest(name, PASSES)}", code="TW0210")
    return found()


_DEFAULT: Final = threading.local()
_CURRENT: ContextVar[PassContext | None] = ContextVar("tilewright_pass_context", default=None)


class PassContext:
    """How passes run: `with PassContext(opt_level=3, config={…}): …`.

    `required_pass` names passes that run regardless of their level, `disabled_pass` passes that never run. Raises
    `OptionError` for an unknown configuration key, with the nearest one.
    """

    def __init__(
        self, opt_level: int = 2, required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None, instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = frozenset(required_pass or ())
        self.disabled_pass = frozenset(disabled_pass or ())
        self.instruments: tuple[PassInstrument, ...] = tuple(instruments or ())
        self.config = settings.checked(config or {})
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """Return the innermost context of this thread or task; outside of any, the default context of the thread."""
        found = _CURRENT.get() or getattr(_DEFAULT, "context", None)
        if found is None:
            found = _DEFAULT.context = PassContext()
        return found

    @staticmethod
    def list_configs() -> dict[str, dict[str, Any]]:
        """Return every configuration option: its type, default and meaning, and its values if they are few."""
        return {name: s.described() for name, s in sorted(settings.SETTINGS.items())}

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Replace the instruments of an active context; the previous ones are exited."""
        active = bool(self._tokens) or self is getattr(_DEFAULT, "context", None)
        if active:
            self._leave()
        self.instruments = tuple(instruments or ())
        if active:
            self._begin()

    def get(self, name: str) -> Any:
        """Return the value of a configuration option, or its default."""
        declared = settings.setting(name)
        return self.config.get(name, declared.default)

    def pass_enabled(self, info: PassInfo) -> bool:
        """Return whether a `Sequential` runs this pass in this context."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def __enter__(self) -> Self:
        self._begin()
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _CURRENT.reset(self._tokens.pop())
        self._leave()

    def _begin(self) -> None:
        """Enter the instruments. If one fails, those before it are left, and the context has none."""
        for k, i in enumerate(self.instruments):
            try:
                _called(i, "enter_pass_ctx")
            except BaseException:
                entered, self.instruments = self.instruments[:k], ()
                for other in entered:
                    _called(other, "exit_pass_ctx")
                raise

    def _leave(self) -> None:
        """Leave the instruments. If one fails, the context has none."""
        try:
            for i in self.instruments:
                _called(i, "exit_pass_ctx")
        except BaseException:
            self.instruments = ()
            raise

    def __repr__(self) -> str:
        config = ", ".join(f"{k}={v!r}" for k, v in self.config.items())
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={sorted(self.required_pass)}, "
            f"disabled_pass={sorted(self.disabled_pass)}, "
            f"instruments={[getattr(i, 'name', type(i).__name__) for i in self.instruments]}, config={{{config}}})"
        )


def _called(instrument: PassInstrument, method: str, *args: Any) -> Any:
    """Call a method of an instrument. Raises `InternalError` for an exception that is not an error of this package."""
    try:
        return getattr(instrument, method)(*args)
    except TVMError:
        raise
    except Exception as error:
        name = getattr(instrument, "name", type(instrument).__name__)
        raise InternalError(
            f"the method {method} of the instrument {name} failed with {type(error).__name__}: {error}",
            code="TW1302") from error


def _run(p: Pass, mod: IRModule, context: PassContext) -> IRModule:
    if not isinstance(mod, IRModule):
        raise CompileError(
            f"the pass {p.name} takes a module, not {type(mod).__name__}; wrap a function with IRModule.from_expr",
            code="TW0412")
    info = p.info
    if not all(_called(i, "should_run", mod, info) for i in context.instruments):
        return mod
    for i in context.instruments:
        _called(i, "run_before_pass", mod, info)
    log.debug("%s", info.name)
    try:
        new = p.transform_module(mod, context)
    except TVMError as error:
        error.add_note(f"in the pass {info.name}")
        raise
    except Exception as error:
        raise InternalError(
            f"the pass {info.name} failed with {type(error).__name__}: {error}", code="TW1302"
        ) from error
    if not isinstance(new, IRModule):
        raise InternalError(f"the pass {info.name} returned a {type(new).__name__}, not an IRModule", code="TW1302")
    if new is not mod and p.exact and not isinstance(p, Sequential) and (mode := context.get("relay.check_rewrites")):
        new = dialects.checked_rewrite(
            mod, new, info.name, mode == "skip", context.get("relay.check_rewrites.max_work"))
    for i in context.instruments:
        _called(i, "run_after_pass", new, info)
    return new


def _declared(base: type[Pass], method: str, target: Any, info: PassInfo) -> Any:
    """Turn `target` into a pass (a function) or a factory of passes (a class with `method`)."""
    what = "Function" if issubclass(base, FunctionPass) else "Module"
    spec: dict[str, Any] = {
        "opt_level": info.opt_level, "required": info.required, "traceable": info.traceable,
        "name": property(lambda self: info.name),
        "__doc__": target.__doc__, "__module__": target.__module__, "declared_by": target,
        "__repr__": lambda self: f"Run {what} pass: {info.name} at the optimization level {info.opt_level}",
    }
    if isinstance(target, type):
        if not hasattr(target, method):
            raise OptionError(
                f"the class {target.__name__} is not a pass: it has no method {method}(self, …)", code="TW0412")
        return type(f"_{target.__name__}", (target, base), spec)
    return type(f"_{target.__name__}", (base,), {**spec, method: lambda self, *args: target(*args)})()


def _declaration(
    base: type[Pass], method: str, pass_func: Any, opt_level: int, name: str | None, required: Sequence[str] | None,
    traceable: bool
) -> Callable[..., Any]:
    def declare(target: Any) -> Any:
        if not callable(target):
            raise OptionError(f"a pass is created from a function or a class, not from {target!r}", code="TW0412")
        return _declared(
            base, method, target, PassInfo(opt_level, name or target.__name__, tuple(required or ()), traceable))

    return declare if pass_func is None else declare(pass_func)


def module_pass(
    pass_func: Any = None, opt_level: int = 0, name: str | None = None, required: Sequence[str] | None = None,
    traceable: bool = False
) -> Callable[..., Any]:
    """Make a pass from `f(mod, context) -> mod`, or from a class with `transform_module(self, mod, context)`."""
    return _declaration(ModulePass, "transform_module", pass_func, opt_level, name, required, traceable)


def function_pass_of(base: type[FunctionPass]) -> Callable[..., Callable[..., Any]]:
    """Return the decorator `function_pass` for one kind of function."""

    def function_pass(
        pass_func: Any = None, opt_level: int = 0, name: str | None = None, required: Sequence[str] | None = None,
        traceable: bool = False
    ) -> Callable[..., Any]:
        """Make a pass from `f(func, mod, context) -> func`, or from a class with `transform_function(self, func, mod,
        context)`."""
        return _declaration(base, "transform_function", pass_func, opt_level, name, required, traceable)

    return function_pass


function_pass: Final = function_pass_of(FunctionPass)


@dataclass(frozen=True)
class ApplyPassToFunction(Pass):
    """Runs a pass on the functions whose whole name matches a regular expression; other functions stay unchanged."""

    transform: Pass
    func_name_regex: str
    error_if_no_function_matches_regex: bool = False

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        kept = {name: f for name, f in mod.items() if not re.fullmatch(self.func_name_regex, name)}
        if len(kept) == len(mod):
            if self.error_if_no_function_matches_regex:
                raise OptionError(
                    f"no function of the module matches '{self.func_name_regex}'; it has {', '.join(mod)}",
                    code="TW0401")
            return mod
        new = self.transform(mod).copy()
        for name, f in kept.items():
            new.update_func(name, f)
        return new


@dataclass(frozen=True)
class PrintIR(Pass):
    """Prints the module to the standard error, without changing it."""

    header: str = ""
    show_meta_data: bool = False

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        print(f"PrintIR({self.header}):\n{mod.astext(show_meta_data=self.show_meta_data)}", file=sys.stderr)
        return mod
