"""Functions by name, and where a name is defined.

    @register_func("npu.lower")
    def lower(func): ...

    get_global_func("npu.lower")(func)
    where("npu.lower")  ->  "/home/me/npu.py:12"
    where("nn.conv2d"), where("FoldConstant"), where("relay.FuseOps.max_depth"), where("nn.conv2d/target.npu")

`where` looks into the tables that the compiler itself uses: registered functions, operators, passes, settings, attributes of operators.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tilewright import settings
from tilewright.errors import OptionError
from tilewright.ir.op_attributes import OP_ATTRIBUTES
from tilewright.ir.transform import PASSES
from tilewright.relay.op.registry import OPS
from tilewright.settings import nearest

_FUNCTIONS: Final[dict[str, GlobalFunction]] = {}


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
        return _place(self.__wrapped__)

    def __repr__(self) -> str:
        return f"<registered function {self.name}, {self.where}>"


def register_func(func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False) -> Any:
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
        raise OptionError(f"a function is registered as '{name}', and this is {function!r}")
    if name in _FUNCTIONS and not override:
        raise OptionError(f"the function '{name}' is registered already, at {_FUNCTIONS[name].where}; give override=True to replace it")
    _FUNCTIONS[name] = GlobalFunction(name, function)
    return function


def get_global_func(name: str, allow_missing: bool = False) -> GlobalFunction | None:
    """The function of that name; None, with `allow_missing`, or `OptionError` with the nearest name when there is none."""
    found = _FUNCTIONS.get(name)
    if found is None and not allow_missing:
        raise OptionError(f"there is no registered function '{name}'{nearest(name, _FUNCTIONS) or _other_kind(name)}")
    return found


def _other_kind(name: str) -> str:
    return "; it is an operator: relay.op.get" if name in OPS else "; it is a pass: relay.transform" if name in PASSES else ""


def list_global_func_names() -> list[str]:
    """The names of the registered functions, sorted."""
    return sorted(_FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Take a registered function back; raises `OptionError` when there is none."""
    _ = get_global_func(name)
    del _FUNCTIONS[name]


def where(name: str) -> str:
    """The file and line where a name is defined: a registered function, an operator, a pass, a setting, an attribute of operators.

    An attribute is named alone, `target.npu`, for the lines of all operators that have it, or after one of them, `nn.conv2d/target.npu`.
    Raises `OptionError` with the nearest name.
    """
    importlib.import_module("tilewright.relay.transform")  # which declares the passes
    if name in _FUNCTIONS:
        return _FUNCTIONS[name].where
    if name in OPS or name in PASSES:
        return _place(OPS[name] if name in OPS else PASSES[name])
    if name in settings.SETTINGS:
        return _setting_place(name)
    places = [r.place for (op_name, key), r in OP_ATTRIBUTES.items() if name in (key, f"{op_name}/{key}")]
    if not places:
        known = [*_FUNCTIONS, *OPS, *PASSES, *settings.SETTINGS, *(k for _, k in OP_ATTRIBUTES), *(f"{o}/{k}" for o, k in OP_ATTRIBUTES)]
        raise OptionError(f"nothing is called '{name}'{nearest(name, known)}")
    return "\n".join(dict.fromkeys(places))


def _place(what: Any) -> str:
    what = inspect.unwrap(what)
    while hasattr(what, "func") and not inspect.isfunction(what):  # functools.partial
        what = what.func
    if not (inspect.isclass(what) or inspect.isroutine(what)):
        what = type(what)
    try:
        return f"{inspect.getsourcefile(what)}:{inspect.getsourcelines(what)[1]}"
    except (TypeError, OSError):
        return f"{getattr(what, '__module__', 'builtins')}.{getattr(what, '__qualname__', what)}, which has no source file"


def _setting_place(name: str) -> str:
    path = Path(str(inspect.getsourcefile(settings)))
    lines, quoted = path.read_text(encoding="utf-8").split("\n"), f'"{name}"'
    return f"{path}:{next(i for i, line in enumerate(lines, 1) if quoted in line)}"
