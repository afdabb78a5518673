"""Outline the matches of a pattern table as functions named after the pattern.

    nn.relu(nn.conv2d(%x, w))
      -> fn (%0, %1, PartitionedFromPattern="nn.conv2d_nn.relu_", Composite="npu.conv2d") { … }(%x, w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.dataflow_pattern.pattern import DFPattern
from tilewright.relay.expr import Expr, Function


@dataclass(frozen=True)
class MergeComposite(FunctionPass):
    """Outline each match of a row `(name, pattern)` or `(name, pattern, check)` as a function with the attribute
    `Composite`, the row's name.

    Rows are tried in order, each over the whole function, so an earlier row takes precedence. A match that `check`
    rejects is kept inline. Functions already assigned to a target are skipped. Raises `OptionError` for a row of
    another form.
    """

    kind: ClassVar[type] = Function
    pattern_table: Sequence[tuple[Any, ...]]

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if "Compiler" in function.attrs:
            return function
        for row in self.pattern_table:
            name, pattern, check = _row(row)
            function = pattern.partition(function, {"Composite": name}, check)
        return function


def _row(row: tuple[Any, ...]) -> tuple[str, DFPattern, Callable[[Expr], bool]]:
    good = (isinstance(row, (tuple, list)) and len(row) in (2, 3) and isinstance(row[0], str)
            and isinstance(row[1], DFPattern))
    if not good or not all(map(callable, row[2:])):
        raise OptionError("a row of a pattern table must be (name, pattern) or (name, pattern, check), "
                          f"not {row!r}", code="TW0413")
    return row[0], row[1], row[2] if len(row) == 3 else _always


def _always(expr: Expr) -> bool:
    return True
