"""Modules made by the compilers of accelerators, run and stored together with the native program.

    class NPUModule(ModuleNode):
        type_key = "npu"
        def get_function(self, name): ...          # (inputs…, outputs…) -> None, or None where the name is not its own
        def save_to_binary(self): ...              # bytes
        @classmethod
        def load_from_binary(cls, blob): ...

    register_module(NPUModule)

A program file names kinds of modules, never code. Only loaders that the process registered, or that come with this
package, read them. `register_module` registers a loader under TVM's name, `runtime.module.loadbinary_<type_key>`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.base.errors import ArtifactError, OptionError
from tilewright.base.global_functions import FUNCTIONS, get_global_func, register_func
from tilewright.base.nd import Device
from tilewright.base.plugins import find_accelerator
from tilewright.base.settings import nearest
from tilewright.runtime.benchmark import BenchmarkResult, Pace, measure

_LOADER = "runtime.module.loadbinary_"
INITIALIZER = "__init_"
"""Name prefix of a function that takes the constants of another function, once."""
_OWN_KINDS = {
    "c_source": "tilewright.backends.accelerators.ccompiler",
    "library_calls": "tilewright.backends.accelerators.library_calls",
    "uma": "tilewright.backends.accelerators.uma.api.codegen",
}
"""The kinds of modules in this package, and the Python modules that register them; imported when a file has one."""


@dataclass(frozen=True, slots=True)
class CPart:
    """A part of a model in C: `int32_t symbol(const tw_tensor *args, void *const *constants, void *workspace)`.

    `args` are the inputs, then the outputs, of which the function reads the field `data`. It returns 0, or a status
    for which the model ends. `workspace_bytes` are aligned to 64 bytes. `types` declares `tw_tensor`.
    """

    symbol: str
    types: str
    text: str
    constants: tuple[np.ndarray[Any, Any], ...]
    workspace_bytes: int


Timer = Callable[[Sequence[Any], int, int, float, Pace], BenchmarkResult]
"""Times calls with these arguments: `number` calls in each of `repeat` measurements, of at least some milliseconds."""


class Module:
    """Base of compiled code of any kind: functions by name, which can be timed."""

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100, cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """Return a function that times calls with its arguments: `module.time_evaluator("main", dev)(a, b).mean`.

        The registered function `f_preproc`, if there is one, gets the arguments before each measurement. The three
        parameters before are those of `Pace`. Raises `InputError` or `KeyError` for an unknown function.
        """
        timed = self.timer(func_name)
        before = get_global_func(f_preproc) if f_preproc else None

        def evaluate(*args: Any) -> BenchmarkResult:
            pace = Pace(
                limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown,
                None if before is None else partial(before, *args))
            return timed(args, number, repeat, min_repeat_ms, pace)

        return evaluate

    def timer(self, func_name: str) -> Timer:
        """Return how calls of a function are timed."""
        function = self[func_name]
        return lambda args, number, repeat, least, pace: measure(lambda: function(*args), repeat, number, least, pace)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function of that name."""
        raise NotImplementedError


class ModuleNode(Module):
    """Base class of modules: functions over arrays, by name. Subclasses set `type_key`, the name of the kind in files.
    """

    type_key: ClassVar[str] = ""
    imported_modules: Sequence[Any] = ()
    """Modules that this one calls."""

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the function of that name, or None. It is called with the input arrays (`NDArray`s), then the output
        arrays."""
        raise OptionError(
            f"{type(self).__name__} has no get_function(name); it must return a function of inputs and outputs, or "
            "None for other names",
            code="TW0808")

    def as_c(self) -> CPart | None:
        """Return the module as a part of a model that is one C file; None if it cannot be one."""
        return None

    def initialize(self, module: ModuleNode, symbol: str) -> None:
        """Pass initial data to another module of the program, before its function `symbol` is called; default: none."""

    def save_to_binary(self) -> bytes:
        """Return the module as bytes for artifacts, the input of `load_from_binary`."""
        raise ArtifactError(
            f"{_named(self)} cannot be saved: {type(self).__name__} has no save_to_binary(); write it and "
            "load_from_binary, or keep the model in memory",
            code="TW0808")

    @classmethod
    def load_from_binary(cls, blob: bytes) -> ModuleNode:
        """Return the module that `save_to_binary` encoded."""
        raise ArtifactError(
            f"{_named(cls)} cannot be loaded: {cls.__name__} has no load_from_binary(blob), the inverse of "
            "save_to_binary",
            code="TW0808")

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function of that name. Raises `KeyError` for an unknown name."""
        found = self.get_function(name)
        if found is None:
            raise KeyError(f"{_named(self)} has no function '{name}'")
        return found


M = TypeVar("M", bound=type[ModuleNode])


def register_module(cls: M) -> M:
    """Register a kind of module, so that programs with such modules can be loaded; also a decorator.

    Raises `OptionError` for a class without a `type_key`, and for the `type_key` of another class.
    """
    if not (isinstance(cls, type) and issubclass(cls, ModuleNode)):
        raise OptionError(f"register_module takes a subclass of ModuleNode, not {cls!r}", code="TW0808")
    key = cls.type_key
    if not key or not key.replace("_", "").replace("-", "").isalnum():
        raise OptionError(
            f"{cls.__name__} has the type_key {key!r}; files contain it, so it must consist of letters, digits, '-' "
            "and '_'",
            code="TW0808")
    known = FUNCTIONS.get(_LOADER + key)
    owner = getattr(getattr(known, "__wrapped__", None), "__self__", None)
    # the same file was run again
    same = isinstance(owner, type) and (owner.__module__, owner.__qualname__) == (cls.__module__, cls.__qualname__)
    register_func(_LOADER + key, cls.load_from_binary, override=same)
    return cls


def load_modules(parts: Sequence[tuple[str, bytes]], where: object) -> tuple[ModuleNode, ...]:
    """Return the modules of an artifact, given their kinds and bytes. Raises `ArtifactError` for an unknown kind."""
    return tuple(_loaded(key, blob, where) for key, blob in parts)


def _loaded(key: str, blob: bytes, where: object) -> ModuleNode:
    if key in _OWN_KINDS:
        importlib.import_module(_OWN_KINDS[key])
    loader = get_global_func(_LOADER + key, allow_missing=True)
    if loader is None and find_accelerator(key) is not None:  # this import registers the kind
        loader = get_global_func(_LOADER + key, allow_missing=True)
    if loader is None:
        known = [n.removeprefix(_LOADER) for n in FUNCTIONS if n.startswith(_LOADER)]
        raise ArtifactError(
            f"{where}: it has a module of the kind '{key}', which nothing here can load{nearest(key, known)}; import "
            "the code that registers it (the accelerator's file, or tilewright.runtime.register_module) before "
            "loading, or install the package with an entry point of that name; known are: "
            f"{', '.join(known) or 'none'}",
            code="TW0808")
    found = loader(blob)
    if not isinstance(found, ModuleNode):
        raise ArtifactError(
            f"{where}: the loader of '{key}', at {loader.where}, returned a {type(found).__name__}; it must return a "
            "ModuleNode",
            code="TW0808")
    return found


def saved_modules(modules: Sequence[ModuleNode]) -> list[bytes]:
    """Return each module as bytes. Raises `ArtifactError` for a module that cannot be saved or loaded again."""
    result = []
    for module in modules:
        blob = module.save_to_binary()
        if not isinstance(blob, (bytes, bytearray, memoryview)):
            raise ArtifactError(
                f"{_named(module)} cannot be saved: its save_to_binary returned a {type(blob).__name__}; it must "
                "return bytes",
                code="TW0808")
        if _LOADER + module.type_key not in FUNCTIONS:
            raise ArtifactError(
                f"{_named(module)} could not be loaded again: register its class (tilewright.runtime.register_module)",
                code="TW0808")
        result.append(bytes(blob))
    return result


def function_of(modules: Sequence[ModuleNode], symbol: str) -> Callable[..., Any]:
    """Return the function of that name from the first module that has it; raises `ArtifactError` if none does."""
    for module in modules:
        found = module.get_function(symbol)
        if found is not None:
            for other in modules:
                other.initialize(module, symbol)
            return found
    kinds = ", ".join(map(_named, modules)) or "it has no modules"
    raise ArtifactError(
        f"the program calls '{symbol}', but none of its modules has that function: {kinds}", code="TW0808")


def _named(module: ModuleNode | type[ModuleNode]) -> str:
    return f"the module '{module.type_key or getattr(module, '__name__', type(module).__name__)}'"
