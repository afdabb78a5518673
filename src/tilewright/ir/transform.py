"""Passes and the one runner of passes.

A pass is a small frozen dataclass whose fields are its options; called on a module it returns a module, and a pass that
raises leaves nothing half-way, since modules are values. `PassContext` says how passes run: the optimisation level, what is
switched off, the configuration, the instruments that watch. It lives on a context variable, so threads do not meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from tilewright import settings
from tilewright.errors import InternalError, OptionError, TVMError
from tilewright.ir.module import IRModule

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What a pass says about itself."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()


PASSES: Final[dict[str, type[Pass]]] = {}
"""The passes by name, for `required` and for options that name a pass."""


class Pass:
    """Base of passes: subclasses are frozen dataclasses of their options, and define `transform_module`."""

    opt_level: ClassVar[int] = 0
    """The lowest level of `PassContext` at which a `Sequential` runs this pass."""
    required: ClassVar[tuple[str, ...]] = ()
    """Names of passes that a `Sequential` runs right before this one."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__name__.startswith("_"):
            PASSES[cls.__name__] = cls

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def info(self) -> PassInfo:
        return PassInfo(self.opt_level, self.name, self.required)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The module after the pass; `mod` itself when there is nothing to do."""
        raise NotImplementedError

    def __call__(self, mod: IRModule) -> IRModule:
        """Run the pass under the current context, whatever its level."""
        return _run(self, mod, PassContext.current())


class FunctionPass(Pass):
    """A pass that looks at one function at a time, those that are a `kind`, and defines `transform_function`."""

    kind: ClassVar[type] = object

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        """The function after the pass; `function` itself when there is nothing to do."""
        raise NotImplementedError

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod.map_functions(lambda f: self.transform_function(f, mod, context), self.kind)


@dataclass(frozen=True)
class Sequential(Pass):
    """Passes one after the other; those above the level of the context or switched off are left out."""

    passes: Sequence[Pass]
    label: str = "sequential"

    @property
    def name(self) -> str:
        return self.label

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        for p in self.passes:
            if isinstance(p, Sequential) or context.pass_enabled(p.info):
                for name in p.required:
                    mod = named_pass(name)(mod)
                mod = p(mod)
        return mod


def named_pass(name: str) -> Pass:
    """The pass of that name with its default options; raises `OptionError` naming the nearest."""
    found = PASSES.get(name)
    if found is None:
        raise OptionError(f"there is no pass '{name}'{settings.nearest(name, PASSES)}")
    return found()


class PassInstrument:
    """What watches passes run; every method may be left as it is."""

    def enter_pass_ctx(self) -> None:
        """The context begins."""

    def exit_pass_ctx(self) -> None:
        """The context ends."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """False to leave this pass out."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """`mod` is about to go through the pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """`mod` is what the pass returned."""


def pass_instrument(cls: C) -> C:
    """Make a class with some of the methods of `PassInstrument` an instrument."""
    return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})  # type: ignore[return-value]


_CURRENT: ContextVar[PassContext | None] = ContextVar("tilewright_pass_context", default=None)


class PassContext:
    """How passes run: `with PassContext(opt_level=3, config={…}): …`.

    `required_pass` are names of passes that run whatever their level, `disabled_pass` of those that never do. Raises
    `OptionError` for an unknown configuration key, naming the nearest.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = frozenset(required_pass or ())
        self.disabled_pass = frozenset(disabled_pass or ())
        self.instruments = tuple(instruments or ())
        self.config = settings.checked(config or {})
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context of this thread or task; a default one outside of any."""
        return _CURRENT.get() or PassContext()

    def get(self, name: str) -> Any:
        """The value of a configuration option, or its default."""
        declared = settings.setting(name)
        return self.config.get(name, declared.default)

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a `Sequential` runs this pass here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        for i in self.instruments:
            i.enter_pass_ctx()
        return self

    def __exit__(self, *exc: object) -> None:
        _CURRENT.reset(self._tokens.pop())
        for i in self.instruments:
            i.exit_pass_ctx()


def _run(p: Pass, mod: IRModule, context: PassContext) -> IRModule:
    info = p.info
    if not all(i.should_run(mod, info) for i in context.instruments):
        return mod
    for i in context.instruments:
        i.run_before_pass(mod, info)
    try:
        new = p.transform_module(mod, context)
    except TVMError as error:
        error.add_note(f"in the pass {info.name}")
        raise
    except Exception as error:
        raise InternalError(f"the pass {info.name} failed with {type(error).__name__}: {error}") from error
    if not isinstance(new, IRModule):
        raise InternalError(f"the pass {info.name} returned a {type(new).__name__}, not an IRModule")
    for i in context.instruments:
        i.run_after_pass(new, info)
    return new


def _declared(base: type[Pass], method: str, target: Any, opt_level: int, name: str | None, required: Sequence[str] | None) -> Any:
    """`target`, a function or a class with `method`, as a pass (a function) or a maker of passes (a class)."""
    title = name or target.__name__
    spec = {"opt_level": opt_level, "required": tuple(required or ()), "name": property(lambda self: title), "__doc__": target.__doc__}
    if isinstance(target, type):
        return type(f"_{target.__name__}", (target, base), spec)
    return type(f"_{title}", (base,), {**spec, method: lambda self, *args: target(*args)})()


def module_pass(
    pass_func: Any = None, opt_level: int = 0, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Make a pass of `f(mod, context) -> mod`, or of a class with `transform_module(self, mod, context)`."""

    def declare(target: Any) -> Any:
        return _declared(Pass, "transform_module", target, opt_level, name, required)

    return declare if pass_func is None else declare(pass_func)


def function_pass_of(base: type[FunctionPass]) -> Callable[..., Any]:
    """The decorator `function_pass` for one kind of function."""

    def function_pass(
        pass_func: Any = None, opt_level: int = 0, name: str | None = None, required: Sequence[str] | None = None
    ) -> Any:
        """Make a pass of `f(func, mod, context) -> func`, or of a class with `transform_function(self, func, mod, context)`."""

        def declare(target: Any) -> Any:
            return _declared(base, "transform_function", target, opt_level, name, required)

        return declare if pass_func is None else declare(pass_func)

    return function_pass


function_pass: Final = function_pass_of(FunctionPass)


@dataclass(frozen=True)
class PrintIR(Pass):
    """Prints the module, and changes nothing."""

    header: str = ""
    show_meta_data: bool = False

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        print(f"PrintIR({self.header}):\n{mod.astext(show_meta_data=self.show_meta_data)}")
        return mod


@dataclass
class PassTimingInstrument(PassInstrument):
    """Measures every pass; `render()` is the table."""

    rows: list[tuple[int, str, float]] = field(default_factory=list)
    _open: list[tuple[int, float]] = field(default_factory=list)

    def enter_pass_ctx(self) -> None:
        self.rows.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self.rows), time.perf_counter()))
        self.rows.append((len(self._open) - 1, info.name, 0.0))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        at, begin = self._open.pop()
        depth, name, _ = self.rows[at]
        self.rows[at] = (depth, name, time.perf_counter() - begin)

    def render(self) -> str:
        """One line a pass, nested passes indented: its name, milliseconds, share of the total."""
        total = sum(t for depth, _, t in self.rows if depth == 0) or 1.0
        return "\n".join(f"{'  ' * depth}{name}: {t * 1e3:.3f} ms ({t / total:.1%})" for depth, name, t in self.rows)


@dataclass
class DumpInstrument(PassInstrument):
    """Writes the module as text after every pass: `folder/03_FoldConstant.relay`."""

    folder: str | Path
    _count: int = 0

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self._count:02d}_{info.name}.relay").write_text(mod.astext(show_meta_data=False))
        self._count += 1


@dataclass
class VerifyInstrument(PassInstrument):
    """Runs `check` on what every pass returns; what it raises names the pass."""

    check: Callable[[IRModule], None]

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        try:
            self.check(mod)
        except TVMError as error:
            raise InternalError(f"the module is not well formed after the pass {info.name}: {error}") from error
