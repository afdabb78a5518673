"""Writes the Python text of a tree of `doc`, under TVM's name (`tvm.script.printer.doc_printer`).

    to_python_script(doc, path_to_underline=[path])

    bar + baz
          ^^^

Parentheses are written where Python's grammar needs them. Operators of equal precedence group to the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.object_path import ObjectPath
from tilewright.tir.script.printer import doc as D
from tilewright.tir.script.printer.doc import Doc, ExprDoc, OperationKind

_LAMBDA, _CHOICE, _NOT, _COMPARISON, _UNARY, _POWER, _ATOM = 0, 1, 4, 5, 12, 13, 14
_UNARIES: Final = {
    OperationKind.USub: ("-", _UNARY),
    OperationKind.Invert: ("~", _UNARY),
    OperationKind.Not: ("not ", _NOT),
}
_BINARIES: Final = {
    OperationKind.Or: ("or", 2),
    OperationKind.And: ("and", 3),
    OperationKind.Lt: ("<", _COMPARISON),
    OperationKind.LtE: ("<=", _COMPARISON),
    OperationKind.Eq: ("==", _COMPARISON),
    OperationKind.NotEq: ("!=", _COMPARISON),
    OperationKind.Gt: (">", _COMPARISON),
    OperationKind.GtE: (">=", _COMPARISON),
    OperationKind.BitOr: ("|", 6),
    OperationKind.BitXor: ("^", 7),
    OperationKind.BitAnd: ("&", 8),
    OperationKind.LShift: ("<<", 9),
    OperationKind.RShift: (">>", 9),
    OperationKind.Add: ("+", 10),
    OperationKind.Sub: ("-", 10),
    OperationKind.Mul: ("*", 11),
    OperationKind.Div: ("/", 11),
    OperationKind.FloorDiv: ("//", 11),
    OperationKind.Mod: ("%", 11),
    OperationKind.Pow: ("**", _POWER),
}
"""Symbol and precedence of each operator; a larger number binds tighter."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"})


def to_python_script(
    doc: Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[ObjectPath] | None = None,
) -> str:
    """Return the text of a tree, without a line break at its end.

    A node is underlined if no node has a source path that is a longer prefix of a path of `path_to_underline`. With
    `num_context_lines`, only that many lines around underlined ones are printed. Raises `ValueError` for a comment of
    several lines after a statement of one line, and `CompileError` for an invalid number of operands.
    """
    writer = _Writer(indent_spaces)
    writer.doc(doc)
    lines = writer.lines()
    marked = _marks(lines, _underlined(writer.spans, path_to_underline or ()))
    shown = _shown(len(lines), sorted(marked), num_context_lines)
    return "\n".join(_layout(lines, marked, shown, print_line_numbers)).rstrip()


def _underlined(spans: Sequence[tuple[ObjectPath, int, int]], paths: Sequence[ObjectPath]) -> list[tuple[int, int]]:
    """Return the spans of text with the longest path that is a prefix of one of `paths`, for each of them."""
    found: list[tuple[int, int]] = []
    for path in paths:
        fitting = [s for s in spans if s[0].is_prefix_of(path)]
        longest = max((len(s[0]) for s in fitting), default=0)
        found += [(start, end) for p, start, end in fitting if len(p) == longest]
    return found


def _marks(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Return the line of carets below each line that has an underlined part, by the number of the line."""
    marks: dict[int, list[str]] = {}
    first = 0
    for number, line in enumerate(lines):
        blank = len(line) - len(line.lstrip())
        for start, end in spans:
            low, high = max(start - first, blank), min(end - first, len(line))
            if low < high:
                carets = marks.setdefault(number, [" "] * len(line))
                carets[low:high] = "^" * (high - low)
        first += len(line) + 1
    return {number: "".join(carets).rstrip() for number, carets in marks.items()}


def _shown(count: int, marked: Sequence[int], around: int | None) -> list[bool]:
    """Return whether each line is printed; a single line between printed ones is printed too."""
    if around is None or not marked:
        return [True] * count
    shown = [any(abs(k - m) <= around for m in marked) for k in range(count)]
    beside = [True, *shown, True]
    return [here or (beside[k] and beside[k + 2]) for k, here in enumerate(shown)]


def _layout(lines: Sequence[str], marked: dict[int, str], shown: Sequence[bool], numbered: bool) -> Iterator[str]:
    width = len(str(len(lines))) if numbered else 0
    skipped = 0
    for k, line in enumerate(lines):
        if not shown[k]:
            skipped += 1
            if k + 1 == len(lines) or shown[k + 1]:
                yield f"(... {skipped} lines skipped ...)"
                skipped = 0
            continue
        yield f"{k + 1:>{width}} {line}" if numbered else line
        if k in marked:
            yield f"{' ' * (width + 1)}{marked[k]}" if numbered else marked[k]


class _Writer:
    """The text so far, and the parts of it that have source paths."""

    def __init__(self, indent: int) -> None:
        self.spans: list[tuple[ObjectPath, int, int]] = []
        self._parts: list[str] = []
        self._length, self._depth, self._indent = 0, 0, indent

    def lines(self) -> list[str]:
        text = "".join(self._parts).rstrip("\n")
        return text.split("\n")

    def put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    @contextmanager
    def part(self, doc: Doc) -> Iterator[None]:
        """Note the source paths of a node for the text that is written meanwhile."""
        start = self._length
        yield
        self.spans += [(path, start, self._length) for path in doc.source_paths]

    def doc(self, doc: Doc) -> None:
        """Write a tree."""
        if isinstance(doc, ExprDoc):
            self.expr(doc)
        elif isinstance(doc, D.SliceDoc):
            self.index(doc)
        elif isinstance(doc, D.StmtBlockDoc):
            with self.part(doc):
                self.stmts(doc.stmts)
        else:
            self.stmts([doc])  # type: ignore[list-item]

    # Statements.
    def stmts(self, stmts: Sequence[D.StmtDoc]) -> None:
        for s in stmts:
            with self.part(s):
                _STATEMENTS[type(s)](self, s)

    def line(self, *parts: str | ExprDoc) -> None:
        """Begin a line, at the current depth."""
        self.put(" " * (self._depth * self._indent))
        for p in parts:
            self.put(p) if isinstance(p, str) else self.expr(p)

    def end(self, s: D.StmtDoc) -> None:
        """End the line of a statement, with its comment."""
        if s.comment is not None and "\n" in s.comment:
            raise ValueError(f"the comment of a {type(s).__name__} cannot have newlines: {s.comment!r}")
        self.put(f"  # {s.comment}\n" if s.comment else "\n")

    def remark(self, s: D.StmtDoc) -> None:
        """Write the comment of a statement on lines of its own."""
        for text in s.comment.split("\n") if s.comment else ():
            self.line(f"# {text}".rstrip())
            self.put("\n")

    def docstring(self, s: D.StmtDoc) -> None:
        """Write the comment of a statement as a string that documents the function or class around it."""
        for text in ('"""', *s.comment.split("\n"), '"""') if s.comment else ():
            self.line(text) if text else None
            self.put("\n")

    def body(self, stmts: Sequence[D.StmtDoc], above: D.StmtDoc | None = None) -> None:
        """Write the statements inside another, after the documentation of a function or class `above`."""
        self.put(":\n")
        self._depth += 1
        if above is not None:
            self.docstring(above)
        if stmts:
            self.stmts(stmts)
        else:
            self.line("pass")
            self.put("\n")
        self._depth -= 1

    def assign(self, s: D.AssignDoc) -> None:
        self.line()
        self.assigned(s)
        self.end(s)

    def assigned(self, s: D.AssignDoc) -> None:
        """Write an assignment, or a parameter of a function."""
        if isinstance(s.lhs, D.TupleDoc) and s.lhs.elements:
            with self.part(s.lhs):
                self.several(s.lhs.elements)
                self.put("," if len(s.lhs.elements) == 1 else "")
        else:
            self.expr(s.lhs)
        if s.annotation is not None:
            self.put(": ")
            self.expr(s.annotation)
        if s.rhs is not None:
            self.put(" = ")
            self.expr(s.rhs)

    def branch(self, s: D.IfDoc) -> None:
        self.remark(s)
        self.line("if ", s.predicate)
        self.body(s.then_branch)
        if s.else_branch:
            self.line("else")
            self.body(s.else_branch)

    def loop(self, s: D.WhileDoc) -> None:
        self.remark(s)
        self.line("while ", s.predicate)
        self.body(s.body)

    def iteration(self, s: D.ForDoc) -> None:
        self.remark(s)
        self.line("for ")
        names = s.lhs.elements if isinstance(s.lhs, D.TupleDoc) and len(s.lhs.elements) > 1 else [s.lhs]
        self.several(names)
        self.put(" in ")
        self.expr(s.rhs)
        self.body(s.body)

    def scope(self, s: D.ScopeDoc) -> None:
        self.remark(s)
        self.line("with ", s.rhs, *(() if s.lhs is None else (" as ", s.lhs)))
        self.body(s.body)

    def expression(self, s: D.ExprStmtDoc) -> None:
        self.line(s.expr)
        self.end(s)

    def assertion(self, s: D.AssertDoc) -> None:
        self.line("assert ", s.test, *(() if s.msg is None else (", ", s.msg)))
        self.end(s)

    def returned(self, s: D.ReturnDoc) -> None:
        self.line("return ", s.value)
        self.end(s)

    def decorators(self, decorators: Sequence[ExprDoc]) -> None:
        for d in decorators:
            self.line("@", d)
            self.put("\n")

    def function(self, s: D.FunctionDoc) -> None:
        self.decorators(s.decorators)
        self.line("def ", s.name, "(")
        for k, a in enumerate(s.args):
            self.put(", " if k else "")
            with self.part(a):
                self.assigned(a)
        self.put(")")
        if s.return_type is not None:
            self.put(" -> ")
            self.expr(s.return_type)
        self.body(s.body, s)
        self.put("\n" if self._depth else "")

    def definition(self, s: D.ClassDoc) -> None:
        self.decorators(s.decorators)
        self.line("class ", s.name)
        self.body(s.body, s)

    # Expressions.
    def expr(self, e: ExprDoc, least: int = _LAMBDA) -> None:
        """Write an expression, in parentheses if it binds less tightly than `least`."""
        enclosed = _precedence(e) < least
        self.put("(" if enclosed else "")
        with self.part(e):
            _EXPRESSIONS[type(e)](self, e)
        self.put(")" if enclosed else "")

    def several(self, items: Sequence[D.Index]) -> None:
        for k, e in enumerate(items):
            self.put(", " if k else "")
            self.expr(e) if isinstance(e, ExprDoc) else self.index(e)

    def index(self, s: D.SliceDoc) -> None:
        with self.part(s):
            if s.start is not None:
                self.expr(s.start)
            self.put(":")
            if s.stop is not None:
                self.expr(s.stop)
            if s.step is not None:
                self.put(":")
                self.expr(s.step)

    def literal(self, e: D.LiteralDoc) -> None:
        self.put(_literal(e.value))

    def name(self, e: D.IdDoc) -> None:
        self.put(e.name)

    def attribute(self, e: D.AttrAccessDoc) -> None:
        self.primary(e.value)
        self.put(f".{e.name}")

    def element(self, e: D.IndexDoc) -> None:
        self.primary(e.value)
        self.put("[")
        self.several(e.indices)
        self.put("]" if e.indices else "()]")

    def call(self, e: D.CallDoc) -> None:
        self.primary(e.callee)
        self.put("(")
        self.several(e.args)
        for k, (name, value) in enumerate(zip(e.kwargs_keys, e.kwargs_values, strict=True), len(e.args)):
            self.put(f"{', ' if k else ''}{name}=")
            self.expr(value)
        self.put(")")

    def primary(self, e: ExprDoc) -> None:
        """Write the value before a dot, an index or a call; `1.real` would be a number and a name."""
        number = isinstance(e, D.LiteralDoc) and isinstance(e.value, (int, float)) and not isinstance(e.value, bool)
        self.expr(e, _ATOM + 1 if number else _ATOM)

    def operation(self, e: D.OperationDoc) -> None:
        if e.kind in _UNARIES:
            (a,), (symbol, strength) = _operands(e, 1), _UNARIES[e.kind]
            self.put(symbol)
            self.expr(a, strength)
        elif e.kind is OperationKind.IfThenElse:
            condition, yes, no = _operands(e, 3)
            self.expr(yes, _CHOICE + 1)
            self.put(" if ")
            self.expr(condition, _CHOICE + 1)
            self.put(" else ")
            self.expr(no, _CHOICE + 1)
        else:
            self.binary(e)

    def binary(self, e: D.OperationDoc) -> None:
        """Write two operands. A power groups to the right; a comparison with a comparison would be a chain."""
        (a, b), (symbol, strength) = _operands(e, 2), _BINARIES[e.kind]
        is_power = e.kind is OperationKind.Pow
        self.expr(a, strength + (is_power or strength == _COMPARISON))
        self.put(f" {symbol} ")
        self.expr(b, _UNARY if is_power else strength + 1)

    def function_of(self, e: D.LambdaDoc) -> None:
        self.put("lambda ")
        self.several(e.args)
        self.put(": ")
        self.expr(e.body)

    def tuple(self, e: D.TupleDoc) -> None:
        self.put("(")
        self.several(e.elements)
        self.put(",)" if len(e.elements) == 1 else ")")

    def list(self, e: D.ListDoc) -> None:
        self.put("[")
        self.several(e.elements)
        self.put("]")

    def dictionary(self, e: D.DictDoc) -> None:
        self.put("{")
        for k, (key, value) in enumerate(zip(e.keys, e.values, strict=True)):
            self.put(", " if k else "")
            self.expr(key)
            self.put(": ")
            self.expr(value)
        self.put("}")


def _operands(e: D.OperationDoc, count: int) -> tuple[ExprDoc, ...]:
    if len(e.operands) != count:
        raise CompileError(
            f"the operator {e.kind.name} has {count} operand{'s' if count > 1 else ''}, but was given "
            f"{len(e.operands)}",
            code="TW0405",
        )
    return e.operands


def _precedence(e: ExprDoc) -> int:
    match e:
        case D.OperationDoc():
            return _CHOICE if e.kind is OperationKind.IfThenElse else {**_UNARIES, **_BINARIES}[e.kind][1]
        case D.LambdaDoc():
            return _LAMBDA
        case D.LiteralDoc(value=int() | float()) if not isinstance(e.value, bool) and str(e.value).startswith("-"):
            return _UNARY
        case _:
            return _ATOM


def _literal(value: D.Literal) -> str:
    if isinstance(value, str):
        escaped = value.translate(_ESCAPES)
        return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in escaped) + '"'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


_STATEMENTS: Final[dict[type[D.StmtDoc], Callable[[_Writer, Any], None]]] = {
    D.AssignDoc: _Writer.assign,
    D.IfDoc: _Writer.branch,
    D.WhileDoc: _Writer.loop,
    D.ForDoc: _Writer.iteration,
    D.ScopeDoc: _Writer.scope,
    D.ExprStmtDoc: _Writer.expression,
    D.AssertDoc: _Writer.assertion,
    D.ReturnDoc: _Writer.returned,
    D.FunctionDoc: _Writer.function,
    D.ClassDoc: _Writer.definition,
    D.CommentDoc: _Writer.remark,
    D.DocStringDoc: _Writer.docstring,
}
_EXPRESSIONS: Final[dict[type[ExprDoc], Callable[[_Writer, Any], None]]] = {
    D.LiteralDoc: _Writer.literal,
    D.IdDoc: _Writer.name,
    D.AttrAccessDoc: _Writer.attribute,
    D.IndexDoc: _Writer.element,
    D.CallDoc: _Writer.call,
    D.OperationDoc: _Writer.operation,
    D.LambdaDoc: _Writer.function_of,
    D.TupleDoc: _Writer.tuple,
    D.ListDoc: _Writer.list,
    D.DictDoc: _Writer.dictionary,
}
