"""A registry of functions, through which a program provides functions that the compiler and the runtime call by name.

    @register_func("relay.ext.npu")
    def lower(func): ...

    get_global_func("relay.ext.npu")(func)

An exception in a registered function is annotated with the place of its definition. `registry` finds the definitions of
all other kinds of names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Literal, overload

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest

FUNCTIONS: Final[dict[str, GlobalFunction]] = {}
"""The registered functions."""
TRACED: Final = "tilewright.traced"
"""The registered function that programs with `tir.trace` call: with the name of another one, then the values."""


class GlobalFunction:
    """A registered function; exceptions that it raises are annotated with the place of its definition."""

    __slots__ = ("__wrapped__", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.__wrapped__ = name, function

    def __call__(self, *args: Any, **named: Any) -> Any:
        try:
            return self.__wrapped__(*args, **named)
        except Exception as error:
            error.add_note(f"in the registered function '{self.name}', defined at {self.where}")
            raise

    @property
    def where(self) -> str:
        """The file and line of the definition."""
        return place(self.__wrapped__)

    def __repr__(self) -> str:
        return f"<registered function {self.name}, {self.where}>"


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Callable[..., Any]:
    """Register a function under a name: `register_func("a.b", f)`, or as a decorator with or without a name.

    Raises `OptionError` when the name is taken, unless `override` is set.
    """
    if callable(func_name):
        return _register(func_name.__name__, func_name, override)
    if f is not None:
        return _register(func_name, f, override)
    return lambda function: _register(func_name, function, override)


def _register(name: str, function: Callable[..., Any], override: bool) -> Callable[..., Any]:
    if not callable(function):
        raise OptionError(f"only a function can be registered as '{name}', not {function!r}", code="TW0215")
    if name in FUNCTIONS and not override:
        raise OptionError(
            f"the function '{name}' is registered already, at {FUNCTIONS[name].where}; give override=True to replace it", code="TW0212"  # noqa: E501
        )
    FUNCTIONS[name] = GlobalFunction(name, function)
    return function


@overload
def get_global_func(name: str, allow_missing: Literal[False] = ...) -> GlobalFunction: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> GlobalFunction | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> GlobalFunction | None:
    """Return the function of that name. If it is unknown, return None with `allow_missing`, else raise `OptionError`.
    """
    found = FUNCTIONS.get(name)
    if found is None and not allow_missing:
        raise OptionError(f"there is no registered function '{name}'{nearest(name, FUNCTIONS)}", code="TW0213")
    return found


def list_global_func_names() -> list[str]:
    """The names of the registered functions, sorted."""
    return sorted(FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Remove a registered function; raises `OptionError` if it is unknown."""
    _ = get_global_func(name)
    del FUNCTIONS[name]


def place(what: Any) -> str:
    """Return the file and line where a class or a function is defined.

    A class made by a call instead of a `class` statement has the place of the call in its attribute `declared_at`.
    """
    what = inspect.unwrap(what)
    if inspect.isclass(what) and (declared := vars(what).get("declared_at")):
        return str(declared)
    while hasattr(what, "func") and not inspect.isfunction(what):  # functools.partial
        what = what.func
    if not (inspect.isclass(what) or inspect.isroutine(what)):
        what = type(what)
    try:
        return f"{inspect.getsourcefile(what)}:{inspect.getsourcelines(what)[1]}"
    except (TypeError, OSError):
        return (
            f"{getattr(what, '__module__', 'builtins')}.{getattr(what, '__qualname__', what)}, which has no source file"
        )
