"""The registry of functions, and the places where names are defined.

    @register_func("npu.lower")
    def lower(func): ...

    get_global_func("npu.lower")(func)
    where("npu.lower")  ->  "/home/me/npu.py:12"
    where("nn.conv2d"), where("FoldConstant"), where("relay.FuseOps.max_depth"), where("nn.conv2d/target.npu")

`where` reads the tables of the compiler itself: registered functions, operators, passes, settings and attributes of
operators.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Final, Literal, overload

from tilewright.base import settings
from tilewright.base.errors import OptionError
from tilewright.base.global_functions import (
    FUNCTIONS,
    GlobalFunction,
    list_global_func_names,
    place,
    register_func,
    remove_global_func,
)
from tilewright.base.global_functions import get_global_func as _registered
from tilewright.base.settings import nearest
from tilewright.ir.op_attributes import OP_ATTRIBUTES
from tilewright.ir.transform import PASSES
from tilewright.relay.op.registry import OPS

__all__ = ["get_global_func", "list_global_func_names", "register_func", "remove_global_func", "where"]


_REGISTERING: Final = {
    "relay.collage.": "tilewright.relay.collage.by_index", "relay.transform.": "tilewright.relay.transform",
    "tir.usmp.": "tilewright.tir.usmp",
    "tir.transform.UnifiedStaticMemoryPlanner": "tilewright.tir.usmp",
}
"""First part of a name -> the module that registers functions with such names."""


@overload
def get_global_func(name: str, allow_missing: Literal[False] = ...) -> GlobalFunction: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> GlobalFunction | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> GlobalFunction | None:
    """Return the function of that name. If it is unknown, return None with `allow_missing`, else raise `OptionError`
    with the nearest name or another kind of thing of that name."""
    for prefix, module in _REGISTERING.items():
        if name.startswith(prefix) and name not in FUNCTIONS:
            importlib.import_module(module)
    try:
        return _registered(name, allow_missing)
    except OptionError as error:
        other = (
            "; it is an operator: relay.op.get" if name in OPS else "; it is a pass: relay.transform" if name in PASSES
            else ""
        )
        raise OptionError(f"{error.message}{other}", code="TW0213") from None


def where(name: str) -> str:
    """Return the file and line where a registered function, operator, pass, setting or attribute of operators is
    defined.

    An attribute `target.npu` gives the lines of all operators that have it; `nn.conv2d/target.npu` gives that of one
    operator. Raises `OptionError` with the nearest name.
    """
    importlib.import_module("tilewright.relay.transform")  # declares the passes
    if name in FUNCTIONS:
        return FUNCTIONS[name].where
    if name in OPS or name in PASSES:
        return place(OPS[name] if name in OPS else PASSES[name])
    if name in settings.SETTINGS:
        return _setting_place(name)
    places = [r.place for (op_name, key), r in OP_ATTRIBUTES.items() if name in (key, f"{op_name}/{key}")]
    if not places:
        known = [
            *FUNCTIONS, *OPS, *PASSES, *settings.SETTINGS, *(k for _, k in OP_ATTRIBUTES),
            *(f"{o}/{k}" for o, k in OP_ATTRIBUTES)
        ]
        raise OptionError(
            f"there is no function, operator, pass or option '{name}'{nearest(name, known)}", code="TW0213")
    return "\n".join(dict.fromkeys(places))


def _setting_place(name: str) -> str:
    path = Path(str(inspect.getsourcefile(settings)))
    lines, quoted = path.read_text(encoding="utf-8").split("\n"), f'"{name}"'
    return f"{path}:{next(i for i, line in enumerate(lines, 1) if quoted in line)}"
