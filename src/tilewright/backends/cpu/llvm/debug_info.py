"""Debug information as LLVM metadata (DWARF 4): lines of a text for instructions, and places of loop variables and
buffers.

A `Source` is the text of one function: its loops, the Relay function that it computes, or the list of the model's nodes
in it. With `locals`, every parameter, inner buffer and loop variable has a place on the stack from which a debugger
reads it. Without, there are only lines, which change no instruction. The type of a buffer is a pointer to its elements,
named `tensor <dtype> <shape>`, which `driver/gdb_printers.py` recognises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import Origin
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer
from tilewright.tir.stmt import Stmt

_ENCODINGS: Final = {
    "float": "DW_ATE_float", "bfloat": "DW_ATE_float", "int": "DW_ATE_signed", "uint": "DW_ATE_unsigned",
    "bool": "DW_ATE_boolean"
}


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a function's text for a debugger: the file `folder`/`file`, and the lines of its statements.

    `line` returns the line of a statement, or 0 if it has none.
    """

    file: str
    folder: str
    title: str
    """The name of the function in a debugger."""
    line: Callable[[Stmt, Origin | None], int]
    first: int = 1
    """The line where the function begins."""
    name: Callable[[Any], str] = field(default=lambda thing: str(thing.name))
    """The name of a variable or buffer in a debugger."""
    shapes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The shapes of parameters by name, if the code has flat buffers."""
    locals: bool = False


class DebugInfo:
    """The metadata of one LLVM module."""

    def __init__(self, *, full: bool) -> None:
        self._nodes: list[str] = []
        self._known: dict[str, str] = {}
        self._full = full
        self._unit = ""

    def node(self, text: str, *, distinct: bool = False) -> str:
        """Return the number of a node, `!n`; equal texts are one node unless they are `distinct`."""
        if not distinct and text in self._known:
            return self._known[text]
        number = f"!{len(self._nodes)}"
        self._nodes.append(f"distinct {text}" if distinct else text)
        if not distinct:
            self._known[text] = number
        return number

    def file(self, source: Source) -> str:
        """Return the node of the file of a source; the first one is the file of the unit."""
        found = self.node(f'!DIFile(filename: "{_escaped(source.file)}", directory: "{_escaped(source.folder)}")')
        if not self._unit:
            kind = "FullDebug" if self._full else "LineTablesOnly"
            unit = (
                f'!DICompileUnit(language: DW_LANG_C99, file: {found}, producer: "tilewright", isOptimized: true, '
                f'runtimeVersion: 0, emissionKind: {kind})'
            )
            self._unit = self.node(unit, distinct=True)
        return found

    def function(self, source: Source, symbol: str) -> DebugFunction:
        """Return the debug information of a function of the module; `symbol` is its LLVM name."""
        file = self.file(source)
        kind = self.node("!DISubroutineType(types: !{})")
        # gdb finds a C function only by its linkage name, if it has one
        linkage = f'linkageName: "{_escaped(symbol)}", ' if source.title == symbol else ""
        text = (
            f'!DISubprogram(name: "{_escaped(source.title)}", {linkage}scope: {file}, file: {file}, line: '
            f'{source.first}, type: {kind}, '
            f"scopeLine: {source.first}, spFlags: DISPFlagDefinition, unit: {self._unit})"
        )
        return DebugFunction(self, source, file, self.node(text, distinct=True))

    def scalar(self, dtype: DataType) -> str:
        """Return the type of a number."""
        bits = max(8, dtype.bits)
        return self.node(
            f'!DIBasicType(name: "{dtype.element}", size: {bits}, encoding: '
            f'{_ENCODINGS.get(dtype.code, "DW_ATE_unsigned")})')

    def tensor(self, dtype: DataType, shape: Sequence[Any]) -> str:
        """Return the type of a buffer: a pointer to an array, or to the first element for a dynamic size."""
        known = [d for d in shape if isinstance(d, int)]
        element = self.scalar(dtype)
        pointee = element
        if len(known) == len(shape) and shape:
            bits = max(8, dtype.bits)
            for d in known:
                bits *= d
            ranges = ", ".join(self.node(f"!DISubrange(count: {d})") for d in known)
            pointee = self.node(
                f"!DICompositeType(tag: DW_TAG_array_type, baseType: {element}, size: {bits}, elements: "
                f"{self.node(f'!{{{ranges}}}')})")
        pointer = self.node(f"!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {pointee}, size: 64)")
        name = f"tensor {dtype} {', '.join(map(str, shape))}"
        return self.node(f'!DIDerivedType(tag: DW_TAG_typedef, name: "{_escaped(name)}", baseType: {pointer})')

    def text(self) -> str:
        """Return all nodes, and the named metadata that refers to them."""
        flags = [self.node('!{i32 7, !"Dwarf Version", i32 4}'), self.node('!{i32 2, !"Debug Info Version", i32 3}')]
        named = [f"!llvm.dbg.cu = !{{{self._unit}}}", f"!llvm.module.flags = !{{{', '.join(flags)}}}"]
        return "\n".join([*named, *(f"!{k} = {text}" for k, text in enumerate(self._nodes))])


class DebugFunction:
    """The debug information of one LLVM function: the locations of its instructions, and its variables."""

    def __init__(self, info: DebugInfo, source: Source, file: str, scope: str) -> None:
        self.info, self.source, self._file, self.scope = info, source, file, scope
        self._arguments = 0

    def inner(self, symbol: str) -> DebugFunction:
        """Return the debug information of a function that holds the body of a loop of this function."""
        return self.info.function(self.source, symbol)

    def at(self, s: Stmt, origin: Origin | None) -> str:
        """Return the suffix of the instructions of a statement; empty without a line."""
        line = self.source.line(s, origin)
        return self.location(line) if line else ""

    def location(self, line: int) -> str:
        return f", !dbg {self._location(line)}"

    @property
    def begin(self) -> str:
        """The location of instructions before the first statement."""
        return self.location(self.source.first)

    def variable(self, thing: Any, line: int) -> str:
        """Return the node of a number as a variable of this name."""
        return self._variable(self.source.name(thing), line, self.info.scalar(thing.dtype))

    def buffer(self, b: Buffer, line: int, *, parameter: bool = False) -> str:
        """Return the node of a buffer as a variable; `parameter` is set for parameters of the function."""
        shape = self.source.shapes.get(b.name, b.shape) if parameter else b.shape
        return self._variable(self.source.name(b), line, self.info.tensor(b.dtype, shape), parameter)

    def declare(self, place: str, variable: str, line: int) -> str:
        """Return the line that declares the place of a variable."""
        return f"    #dbg_declare(ptr {place}, {variable}, !DIExpression(), {self._location(line)})"

    def _location(self, line: int) -> str:
        return self.info.node(f"!DILocation(line: {line}, column: 1, scope: {self.scope})")

    def _variable(self, name: str, line: int, kind: str, parameter: bool = False) -> str:
        argument = ""
        if parameter:
            self._arguments += 1
            argument = f"arg: {self._arguments}, "
        return self.info.node(
            f'!DILocalVariable(name: "{_escaped(name)}", {argument}scope: {self.scope}, file: {self._file}, line: '
            f'{line}, type: {kind})')


def _escaped(text: str) -> str:
    """Return a text as LLVM writes it in quotes."""
    return "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode())
        for c in text)
