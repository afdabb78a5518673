"""TVM's `relay.backend.name_transforms`: names in generated C, in the style of functions, variables and constants.

    to_c_function_style("TVM_my_model"), to_c_variable_style("TVM_My_Model"), to_c_constant_style("TVM_my_model")
    ->  "TVMMyModel", "tvm_my_model", "TVM_MY_MODEL"
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import OptionError

__all__ = [
    "prefix_generated_name", "prefix_name", "to_c_constant_style", "to_c_function_style", "to_c_variable_style",
]


def to_c_function_style(original_name: str) -> str:
    """Return a name as `TVMGenNameOfFunction`."""
    head, *words = _parts("Function", original_name)
    return head + "".join(w[:1].upper() + w[1:] for w in words)


def to_c_variable_style(original_name: str) -> str:
    """Return a name as `tvm_name_of_variable`."""
    return "_".join(_parts("Variable", original_name)).lower()


def to_c_constant_style(original_name: str) -> str:
    """Return a name as `TVM_NAME_OF_CONSTANT`."""
    head, *words = _parts("Constant", original_name)
    return "_".join([head, *(w.upper() for w in words)])


def prefix_name(names: str | Sequence[str]) -> str:
    """Return the name, or the names joined by underscores, after `TVM_`."""
    return _prefixed("TVM", names)


def prefix_generated_name(names: str | Sequence[str]) -> str:
    """Return the name, or the names joined by underscores, after `TVMGen_`."""
    return _prefixed("TVMGen", names)


def _parts(kind: str, name: str) -> list[str]:
    if not name:
        raise OptionError(f"{kind} name is empty; give a name that begins with TVM", code="TW0202")
    if not name.startswith("TVM"):
        raise OptionError(f"{kind} not TVM prefixed: '{name}'; use prefix_name", code="TW0202")
    return name.split("_")


def _prefixed(prefix: str, names: str | Sequence[str]) -> str:
    if isinstance(names, str):
        if not names:
            raise OptionError("Name is empty; give at least one character", code="TW0202")
        return f"{prefix}_{names}"
    if not names:
        raise OptionError("Name segments empty; give at least one name", code="TW0202")
    if not all(names):
        raise OptionError("Name segment is empty; give at least one character for each", code="TW0202")
    return "_".join([prefix, *names])
