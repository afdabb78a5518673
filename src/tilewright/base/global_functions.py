"""Functions by name: how a program gives the compiler and the runtime what these call by name.

    @register_func("relay.ext.npu")
    def lower(func): ...

    get_global_func("relay.ext.npu")(func)

What a function raises says where it is defined. `registry` finds the definition of every other kind of name too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest

FUNCTIONS: Final[dict[str, GlobalFunction]] = {}
"""The registered functions."""


class GlobalFunction:
    """A registered function: called as it is; what it raises says where it is defined."""

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
    """Give a function a name that others find it by: `register_func("a.b", f)`, or a decorator, with or without a name.

    Raises `OptionError` when the name is taken, unless `override`.
    """
    if callable(func_name):
        return _register(func_name.__name__, func_name, override)
    if f is not None:
        return _register(func_name, f, override)
    return lambda function: _register(func_name, function, override)


def _register(name: str, function: Callable[..., Any], override: bool) -> Callable[..., Any]:
    if not callable(function):
        raise OptionError(f"a function is registered as '{name}', and this is {function!r}", code="TW0215")
    if name in FUNCTIONS and not override:
        raise OptionError(
            f"the function '{name}' is registered already, at {FUNCTIONS[name].where}; give override=True to replace it", code="TW0212"  # noqa: E501
        )
    FUNCTIONS[name] = GlobalFunction(name, function)
    return function


def get_global_func(name: str, allow_missing: bool = False) -> GlobalFunction | None:
    """The function of that name; None, with `allow_missing`, or `OptionError` with the nearest name when there is
    none."""
    found = FUNCTIONS.get(name)
    if found is None and not allow_missing:
        raise OptionError(f"there is no registered function '{name}'{nearest(name, FUNCTIONS)}", code="TW0213")
    return found


def list_global_func_names() -> list[str]:
    """The names of the registered functions, sorted."""
    return sorted(FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Take a registered function back; raises `OptionError` when there is none."""
    _ = get_global_func(name)
    del FUNCTIONS[name]


def place(what: Any) -> str:
    """Return the file and line where a class or a function is defined.

    A class that a call made, instead of a `class` statement, has the place of the call as its `declared_at`.
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
