"""Thread axes: `te.thread_axis`. On a CPU, virtual threads are loops; GPU threads are recorded, but `tvm.build` rejects
them."""

from __future__ import annotations

import re
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.base.node import node
from tilewright.scalar.expr import IntImm, PrimExpr, Var, as_expr
from tilewright.tir.stmt import IterVar

_TAGS: Final = re.compile(r"(threadIdx|blockIdx)\.[xyz]|vthread(\.[xyz])?|cthread")
VIRTUAL: Final = ("vthread", "cthread")


@node
class ThreadAxis(IterVar):
    """An axis to which loops are bound. `tag` is its kind; `extent` is 0 if the bound loops determine it."""

    thread_tag: str = ""

    def __repr__(self) -> str:
        return f"{self.thread_tag}: {self.extent or 'open'}"


def thread_axis(dom: Any = None, tag: str = "", name: str = "", span: Any = None) -> ThreadAxis:
    """Return a thread axis of the kind `tag` (`vthread`, `threadIdx.x`, `blockIdx.y`, …) over `dom`: `(0, n)`, `n`, or
    None.

    In `thread_axis("threadIdx.x")` the range is omitted. Raises `ScheduleError` for another kind.
    """
    if isinstance(dom, str):
        dom, tag = None, dom
    if not _TAGS.fullmatch(tag):
        raise ScheduleError(f"'{tag}' is not a thread axis; use vthread, threadIdx.x to .z, or blockIdx.x to .z")
    low, high = dom if isinstance(dom, (tuple, list)) else (0, dom)
    if not isinstance(low, int) or low != 0:
        raise ScheduleError(f"thread axis '{tag}' starts at {low}; it must start at 0")
    extent: PrimExpr = as_expr(high) if high is not None else IntImm("int64", 0)
    return ThreadAxis(Var(name or tag), extent, "thread", tag)
