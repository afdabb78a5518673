"""Source texts for debug information, written into the cache, one folder per text; debuggers find them by recorded
paths.

`tir.debug_info` selects the text: "tir", the loops as compiled; "relay", the graph function of the kernel; "model", the
model's nodes in it, one per line, after a line that names the function.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.backends.cpu.llvm.debug_info import Source
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, Origin
from tilewright.compiler.cache import Cache
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.printer import astext
from tilewright.relay.visitor import post_order
from tilewright.runtime.files import write_atomically
from tilewright.tir.printer import PrintedFunc
from tilewright.tir.stmt import PrimFunc, Stmt

OFF, TIR, RELAY, MODEL = "off", "tir", "relay", "model"
SETTING: Final = "tir.debug_info"


def asked() -> str:
    """Return the kind of text that the current `PassContext` requests; empty by default."""
    return str(PassContext.current().get(SETTING))


def asked_for(target: Target) -> str:
    """Return the kind of text requested for code of `target`. Raises `OptionError` if its back end writes the text for
    debuggers itself, as C does."""
    kind = asked()
    if target.backend.has_debug_info:
        return kind
    if kind not in ("", OFF):
        raise OptionError(
            f"{SETTING}='{kind}' is for targets of LLVM; a debugger shows the C text itself where it is compiled with "
            "-g: export_library('….so', options=['-g'])", code="TW0204")
    return OFF


def loops_source(func: PrimFunc, declared: PrimFunc, *, written: bool, title: str = "") -> Source:
    """Return the source of flat loops. `declared` has the parameters with all dimensions. Unless `written`, the source
    has line numbers only, and its text is printed on demand."""
    printed = PrintedFunc(func)
    head = next(k for k, line in enumerate(printed.lines, 1) if line.startswith("def "))
    file, folder = f"{_file_name(func.name)}.tir.py", ""
    if written:
        folder = write_source(file, "\n".join(printed.lines) + "\n")
    shapes = {b.name: b.shape for b in declared.buffers}
    return Source(
        file, folder, title or func.name, lambda s, origin: printed.line_of(s), head, printed.name, shapes, written)


def kernel_source(kind: str, func: PrimFunc, declared: PrimFunc, function: Function) -> Source:
    """Return the source of that kind for a kernel that computes a function of the graph."""
    if kind == TIR:
        return loops_source(func, declared, written=True)
    calls = [e for e in post_order(function.body) if isinstance(e, Call)]
    lines, places = _first_places(function) if kind == RELAY else _nodes(func.name, calls)
    known = [e.span for e in calls if e.span is not None]
    anchor = func.origin or (known[-1] if known else None)
    title = anchor.name if kind == MODEL and anchor is not None else func.name
    file = f"{_file_name(func.name)}.{'relay' if kind == RELAY else 'nodes.txt'}"
    folder = write_source(file, "\n".join(lines) + "\n")
    usual = places.get(anchor, min(2, len(lines)))
    printed = PrintedFunc(func)

    def line(s: Stmt, origin: Origin | None) -> int:
        return places.get(origin, usual)

    return Source(file, folder, title, line, 1, printed.name, {b.name: b.shape for b in declared.buffers}, True)


def relay_lines(function: Function) -> tuple[list[str], dict[Origin, list[int]]]:
    """Return the function's text, and the lines of the calls from each node, counted from 1."""
    mark = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}"
    spans: list[Origin] = []

    def annotate(e: Expr) -> str:
        known = e.known_type()
        typed = "" if known is None else f" /* ty={known!r} */"
        span = getattr(e, "span", None)
        if not isinstance(e, Call) or span is None:
            return typed
        spans.append(span)
        return f"{typed}{mark}{len(spans) - 1}{mark}"

    places: dict[Origin, list[int]] = {}
    lines = []
    for number, text in enumerate(astext(function, annotate=annotate).split("\n"), 1):
        for found in re.findall(rf"{mark}(\d+){mark}", text):
            places.setdefault(spans[int(found)], []).append(number)
        lines.append(re.sub(rf"{mark}\d+{mark}", "", text))
    return lines, places


def _first_places(function: Function) -> tuple[list[str], dict[Origin | None, int]]:
    lines, places = relay_lines(function)
    return lines, {origin: numbers[0] for origin, numbers in places.items()}


def _nodes(name: str, calls: Sequence[Call]) -> tuple[list[str], dict[Origin | None, int]]:
    """Return the model's nodes, one per line, in order of computation; an operator without a node has its own name.

    The first line is the function itself. It must differ from the line of the computation, so that debuggers stop after
    the prologue.
    """
    lines: list[str] = [f"{name} computes"]
    places: dict[Origin | None, int] = {}
    for e in calls:
        if e.span not in places or e.span is None:
            lines.append(str(e.span) if e.span is not None else _operator(e))
            places.setdefault(e.span, len(lines))
    return lines, places


def _operator(e: Call) -> Any:
    return getattr(e.op, "name", "function")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)[:100]


def write_source(file: str, text: str) -> str:
    """Write a text unless it exists; return its folder."""
    base = Cache.default().folder or Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"
    folder = base / "sources" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (folder / file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / file, lambda target: target.writelines([text.encode()]))
    return str(folder)
