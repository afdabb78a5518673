"""A kernel as four texts, Relay, loops, LLVM and assembly, with links between their lines.

The loops carry the nodes of the model that they compute (`Origin`). Each LLVM instruction carries its line of the loops
as debug information, and assembly is made from LLVM text that carries its own lines. So every link comes from the
compiler itself, and debug information changes no instruction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.backend import LLVM
from tilewright.backends.targets.target import Target
from tilewright.base.errors import Origin
from tilewright.compiler.debug_texts import loops_source, relay_lines
from tilewright.relay.expr import Function
from tilewright.tir.printer import PrintedFunc
from tilewright.tir.stmt import Stmt

if TYPE_CHECKING:
    from tilewright.compiler.kernel import Kernel

_LOCATION: Final = re.compile(r"^!(\d+) = !DILocation\(line: (\d+), column: 1, scope: (!\d+)\)$", re.MULTILINE)
_AT: Final = re.compile(r", !dbg !(\d+)$")
_SCOPE: Final = re.compile(r" !dbg !\d+(?= \{$)")
_METADATA: Final = re.compile(r"^!(?:\d+|llvm\.[\w.]+) = ")
_LINE_OF: Final = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")
_DEBUG_ONLY: Final = re.compile(r"^\s*\.(?:loc|file|cfi_\w+|ident|addrsig\w*)\b|^\.L(?:tmp|func_(?:begin|end))\d+:")
_SECTION: Final = re.compile(r"^\s*\.section\s+\"?\.(\w+)")


@dataclass(frozen=True, slots=True)
class Text:
    """The lines of a text, and for each line the source lines in the previous text, counted from 1; empty if unknown.
    """

    title: str
    lines: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...] = ()


def texts_of(kernel: Kernel, function: Function, target: Target) -> list[Text]:
    """Return Relay, loops, and for LLVM targets LLVM text and assembly, each linked to the previous text."""
    relay, places = relay_lines(function)
    relay = relay[:-1] if relay and not relay[-1] else relay
    printed = PrintedFunc(kernel.func)
    origins = _Origins(printed)
    texts = [Text("Relay", tuple(relay))]
    if not target.backend.has_debug_info:
        return [*texts, Text("TIR", tuple(printed.lines))]
    source = loops_source(kernel.func, kernel.declared, written=False)
    marked, _ = target.backend.emit((kernel.func,), target, (replace(source, line=origins.line),))
    loops = tuple(
        tuple(places.get(origins.found[k], ())) if k in origins.found else () for k in range(1, len(printed.lines) + 1))
    llvm, numbered = own_lines(marked)
    return [
        *texts, Text("TIR", tuple(printed.lines), loops), llvm,
        shown_assembly(target.backend.texts(numbered, target)["asm"](), len(llvm.lines))
    ]


class _Origins:
    """Records the node of the model that each line of the loops computes, during code generation."""

    def __init__(self, printed: PrintedFunc) -> None:
        self.printed = printed
        self.found: dict[int, Origin] = {}

    def line(self, s: Stmt, origin: Origin | None) -> int:
        number = self.printed.line_of(s)
        if number and origin is not None:
            self.found[number] = origin
        return number


def own_lines(marked: str) -> tuple[Text, str]:
    """Return LLVM text without metadata, with each line linked to the loops; and the same text with its own lines as
    debug information."""
    lines_of = {number: (int(line), scope) for number, line, scope in _LOCATION.findall(marked)}
    first = 1 + max((int(k) for k in re.findall(r"^!(\d+) = ", marked, re.MULTILINE)), default=-1)
    shown: list[str] = []
    sources: list[tuple[int, ...]] = []
    code: list[str] = []
    metadata: list[str] = []
    for text in marked.split("\n"):
        if _METADATA.match(text):
            metadata.append(text)
            continue
        found = _AT.search(text)
        line, scope = lines_of[found[1]] if found else (0, "")
        shown.append(_SCOPE.sub("", _AT.sub("", text)))
        sources.append((line,) if line else ())
        if found:
            own = f"!{first + len(shown)}"
            metadata.append(f"{own} = !DILocation(line: {len(shown)}, column: 1, scope: {scope})")
            text = f"{text[:found.start()]}, !dbg {own}"
        code.append(text)
    while shown and not shown[-1]:
        shown.pop()
        sources.pop()
    return Text("LLVM", tuple(shown), tuple(sources)), "\n".join([*code, *metadata, ""])


def shown_assembly(text: str, lines: int) -> Text:
    """Return assembly without debugger directives, each instruction linked to one of the `lines` of LLVM text."""
    shown: list[str] = []
    sources: list[tuple[int, ...]] = []
    at, hidden = 0, False
    for line in text.split("\n"):
        if found := _LINE_OF.match(line):
            at = int(found[1])
        if found := _SECTION.match(line):
            hidden = found[1].startswith(("debug", "note", "eh_frame", "llvm"))
        elif re.match(r"\s*\.text\b", line):
            hidden = False
        if hidden or _DEBUG_ONLY.match(line) or not line.strip():
            continue
        shown.append(_in_columns(line))
        is_code = line.startswith(("\t", " ")) and not line.lstrip().startswith((".", "#"))
        sources.append((at,) if is_code and 0 < at <= lines else ())
    return Text("Assembly", tuple(shown), tuple(sources))


def _in_columns(line: str) -> str:
    """Return a line of assembly with its operands in a column."""
    if not line.startswith("\t"):
        return line.expandtabs(4)
    name, _, operands = line.strip().partition("\t")
    return f"    {name:<11} {operands.expandtabs(4)}".rstrip()


def plain_texts(llvm: str, target: Target) -> list[Text]:
    """Return LLVM text and assembly, without links, of code that was not made from loops."""
    return [Text("LLVM", tuple(llvm.rstrip("\n").split("\n"))), shown_assembly(LLVM.texts(llvm, target)["asm"](), 0)]

