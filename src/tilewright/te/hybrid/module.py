"""Programs in hybrid script that are kept as text: `te.hybrid.build` and `HybridModule`.

    module = te.hybrid.build(s, [A], [B])
    module.save("program.py")
    HybridModule().load("program.py")
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError, ParseError
from tilewright.base.nd import NDArray
from tilewright.scalar.expr import Var
from tilewright.te.create import create_prim_func
from tilewright.te.hybrid.function import are_symbolic, read_function
from tilewright.te.hybrid.printer import function_text
from tilewright.te.resolve import schedule_func
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import PlaceholderOp, Tensor, placeholder
from tilewright.tir.interpreter import run
from tilewright.tir.parse_python import Source
from tilewright.tir.transform.lower_blocks import lower_blocks


class HybridModule:
    """A function in hybrid script with its text; a call with tensors returns tensors, a call with arrays runs it."""

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        """Take the text of a function, or none before `load`. Raises `ParseError` for a text without a function."""
        self.src_, self.name, self._file = "", name or "", ""
        if src is not None:
            self._take(src)

    def _take(self, text: str, file: str = "") -> None:
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise ParseError(f"{file or 'the text'}:{error.lineno}: {error.msg}") from None
        found = next((x for x in tree.body if isinstance(x, ast.FunctionDef)), None)
        if found is None:
            raise ParseError(f"{file or 'the text'} has no function; hybrid script is a function of tensors")
        self.src_, self._file, self.name = text, file, self.name or found.name

    def get_source(self) -> str:
        """Return the text."""
        return self.src_

    def save(self, path: str | Path) -> None:
        """Write the text to a file; a name without suffix gets `.py`."""
        target = Path(path)
        (target if target.suffix else target.with_suffix(".py")).write_text(self.src_, encoding="utf-8")

    def load(self, path: str | Path) -> None:
        """Read the text from a file. Raises `ParseError` if it has no function."""
        self._take(Path(path).read_text(encoding="utf-8"), str(path))

    def __call__(self, *args: Any) -> Any:
        """Call with tensors, numbers and `te.var`, or with arrays, which the loops of the function are interpreted for.
        The text is never run as Python. Raises `ParseError` with the line, and `CompileError`."""
        if not self.src_:
            raise CompileError("this HybridModule has no text; call load first", code="TW0606")
        if are_symbolic(args):
            return read_function(Source(self.src_, self._file), {}, args)
        given = [a.numpy() if isinstance(a, NDArray) else a for a in args]
        tensors = [placeholder(a.shape, str(a.dtype)) if isinstance(a, np.ndarray) else a for a in given]
        found = read_function(Source(self.src_, self._file), {}, tensors)
        outputs: list[Tensor] = found if isinstance(found, list) else [found]
        inputs = [t for t in tensors if isinstance(t, Tensor)]
        results = [np.zeros(t.extents, str(t.dtype)) for t in outputs]
        func = create_prim_func(inputs, outputs)
        run(lower_blocks(func), [*(np.ascontiguousarray(a) for a in given if isinstance(a, np.ndarray)), *results])
        return results if isinstance(found, list) else results[0]


def build(sch: Schedule, inputs: Sequence[Any], outputs: Sequence[Tensor], name: str = "hybrid_func") -> HybridModule:
    """Return the loops of a schedule as a function in hybrid script, from `inputs` (tensors and `te.var`) to `outputs`.

    Raises `ScheduleError` if a step cannot be applied, and `CompileError` for loops that are not part of hybrid script.
    """
    wrong = next((t.name for t in outputs if isinstance(t.op, PlaceholderOp)), None)
    if wrong is not None:
        raise CompileError(f"te.hybrid.build: output '{wrong}' is a placeholder, not a computation", code="TW0606")
    func = lower_blocks(schedule_func(sch, [*inputs, *outputs], name))
    tensors = [t for t in (*inputs, *outputs) if not isinstance(t, Var)]
    buffers = dict(zip(tensors, func.buffers, strict=True))
    params = [p if isinstance(p, Var) else buffers[p] for p in inputs]
    return HybridModule(function_text(name, params, [buffers[t] for t in outputs], func.body), name)


__all__ = ["HybridModule", "build"]
