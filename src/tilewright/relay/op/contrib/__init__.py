"""What targets compute: their pattern tables by name, for `MergeComposite`, and whether a call is for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.registry import Op

PatternTable = Sequence[tuple[Any, ...]]
"""Rows `(name, pattern)` or `(name, pattern, check)`, in the order in which they are tried."""


@dataclass(frozen=True)
class Refusal:
    """What a check may answer in place of False: the rule that a match breaks, and the smallest edit of the model that would keep it."""

    rule: str
    edit: str = ""

    def __bool__(self) -> bool:
        return False


_TABLES: Final[dict[str, PatternTable]] = {}


def register_pattern_table(compiler: str, table: Callable[[], PatternTable] | None = None) -> Any:
    """Register the table that the function returns as that of `compiler`; without `table`, a decorator of such a function."""

    def register(make: Callable[[], PatternTable]) -> Callable[[], PatternTable]:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> PatternTable | None:
    """The table of `compiler`, or None when it has none."""
    return _TABLES.get(compiler)


def supports(target: str, call: Call) -> bool:
    """Whether a target computes a call: by the operator's attribute `target.<name>`, or by the name of a composite function."""
    if isinstance(call.op, Op):
        says = op_attr(call.op.name, f"target.{target}")
        return says is not None and bool(says(call))
    name = call.op.attrs.get("Composite", "") if isinstance(call.op, Function) else ""
    return bool(name.partition(".")[0] == target) if "." in name else False
