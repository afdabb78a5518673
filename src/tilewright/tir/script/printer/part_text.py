"""Texts of parts of programs in TVMScript: `expression.script()`, `statement.script()`.

    A = T.Buffer((16, 16))
    for i, j in T.grid(16, 16):
        A[i, j] = T.max(A[i, j], T.float32(0))

A part becomes a tree of `doc`, which `doc_printer` writes. `tir/printer.py` prints whole functions, in the form that
the parser reads back to an equal program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tilewright.base import scriptable
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, PointerType, PrimType, TupleType, integer_range
from tilewright.scalar import expr_nodes as E
from tilewright.scalar.arith.linear import expression, linear
from tilewright.scalar.buffer_region import BufferRegion
from tilewright.scalar.intrinsics import Extern, Opaque, Packed, address_of
from tilewright.scalar.range import Range
from tilewright.scalar.walk import walk
from tilewright.tir import stmt as S
from tilewright.tir.block_tree import without_note
from tilewright.tir.printer import new_name
from tilewright.tir.script.printer import doc as D
from tilewright.tir.script.printer.doc import ExprDoc, OperationKind, StmtDoc
from tilewright.tir.script.printer.doc_printer import to_python_script

_T: Final = D.IdDoc("T")
_OPERATORS: Final = {
    E.Add: OperationKind.Add, E.Sub: OperationKind.Sub, E.Mul: OperationKind.Mult, E.FloorDiv: OperationKind.FloorDiv,
    E.FloorMod: OperationKind.Mod, E.LT: OperationKind.Lt, E.LE: OperationKind.LtE, E.EQ: OperationKind.Eq,
    E.NE: OperationKind.NotEq, E.GT: OperationKind.Gt, E.GE: OperationKind.GtE, E.And: OperationKind.And,
    E.Or: OperationKind.Or,
}
_FUNCTIONS: Final = {E.TruncDiv: "Div", E.TruncMod: "truncmod", E.Min: "min", E.Max: "max"}
_LOOPS: Final = {S.PARALLEL: "parallel", S.VECTORIZED: "vectorized", S.UNROLLED: "unroll"}
_AXES: Final = {"spatial": "DataPar", "reduce": "CommReduce", "scan": "Ordered", "opaque": "Opaque"}
_REMAPPED: Final = {"spatial": "S", "reduce": "R"}
_BARE: Final = ("int32", "int64")
"""Types whose constants are written without a type: indices are int64 here, and int32 in TVM."""


@scriptable.script_text.provide
def script_text(part: Any, verbose_expr: bool) -> str:
    """Return the text of a part of a program. Raises `CompileError` for a value without a form in TVMScript."""
    docs = _Docs()
    if isinstance(part, S.Stmt):
        shown = docs.body(part) if isinstance(part, S.Seq) else docs.inner(part)
        return to_python_script(D.StmtBlockDoc([*docs.declarations, *shown]))
    value = docs.value(part)
    declared = docs.declarations if verbose_expr else []
    return to_python_script(D.StmtBlockDoc([*declared, D.ExprStmtDoc(value)]))


def _call(word: str, *args: ExprDoc, **options: ExprDoc) -> ExprDoc:
    return _T.attr(word).call(*args, **options)


def _axis(kind: str, *args: ExprDoc) -> ExprDoc:
    return _T.attr("axis").attr(kind).call(*args)


def _text(text: str) -> ExprDoc:
    return D.LiteralDoc(text)


def _type(dtype: DataType) -> ExprDoc:
    return _T.attr(str(dtype))


def _end(low: E.PrimExpr, extent: E.PrimExpr) -> E.PrimExpr:
    """Return the number after the last one of a range."""
    return expression(linear(low + extent), extent.dtype)


def _is_zero(e: E.PrimExpr) -> bool:
    return isinstance(e, E.IntImm) and e.value == 0


def _is_plain(s: S.Stmt) -> bool:
    """Return whether a statement is a serial loop from 0 without annotations."""
    return isinstance(s, S.For) and s.kind == S.SERIAL and _is_zero(s.min) and not s.annotations


def _nest(s: S.For) -> list[S.For]:
    """Return the loops that one `T.grid` writes, outermost first: plain loops whose extents do not depend on others."""
    found, inner = [s], s.body
    while _is_plain(s) and isinstance(inner, S.For) and _is_plain(inner):
        outer = {f.var for f in found}
        if any(x in outer for x in walk(inner.extent)):
            break
        found.append(inner)
        inner = inner.body
    return found


class _Docs:
    """Trees of the parts of one program, with the declarations of the names that it does not bind."""

    def __init__(self) -> None:
        self.declarations: list[StmtDoc] = []
        self._names: dict[Any, D.IdDoc] = {}
        self._taken: set[str] = set()
        self._loops: dict[E.Var, S.For] = {}

    # Names.
    def bind(self, thing: E.Var | E.Buffer) -> D.IdDoc:
        """Return a new name of a variable or buffer."""
        self._names[thing] = made = D.IdDoc(new_name(thing.name, self._taken))
        return made

    def name(self, thing: E.Var | E.Buffer) -> D.IdDoc:
        """Return the name of a variable or buffer, which is declared if no statement binds it."""
        known = self._names.get(thing)
        if known is None:
            value = self.declared(thing) if isinstance(thing, E.Var) else self.memory("Buffer", thing)
            known = self.bind(thing)
            self.declarations.append(D.AssignDoc(known, value))
        return known

    def declared(self, v: E.Var) -> ExprDoc:
        kind = v.type_annotation
        if isinstance(kind, PointerType):
            return self.kind(kind)
        return _type(v.dtype).call()

    def memory(self, word: str, b: E.Buffer) -> ExprDoc:
        """Return a declaration of a buffer."""
        args = [self.sizes(b.shape), *(() if b.dtype == "float32" else (_text(str(b.dtype)),))]
        options: dict[str, ExprDoc] = {"strides": self.sizes(b.strides)} if b.strides else {}
        if b.scope != "global":
            options["scope"] = _text(b.scope)
        return _call(word, *args, **options)

    def sizes(self, sizes: Sequence[Any]) -> ExprDoc:
        return D.TupleDoc([self.value(d) for d in sizes])

    # Statements.
    def body(self, s: S.Stmt) -> list[StmtDoc]:
        """Return the last statements of a body; names that they bind hold to its end."""
        found: list[StmtDoc] = []
        while True:
            if isinstance(s, S.Seq) and s.stmts:
                for x in s.stmts[:-1]:
                    found += self.inner(x)
                s = s.stmts[-1]
            elif isinstance(s, (S.Let, S.Allocate, S.AttrStmt, S.AssertStmt)):
                found.append(self.opened(s))
                s = s.body
            else:
                return found + self.inner(s)

    def inner(self, s: S.Stmt) -> list[StmtDoc]:
        """Return a statement that others may follow."""
        match s:
            case S.Seq():
                return [d for x in s.stmts for d in self.inner(x)] or [D.ExprStmtDoc(_call("evaluate", self.value(0)))]
            case S.Let():
                value = _call("LetStmt", self.value(s.value))
                return [D.ScopeDoc(self.bind(s.var), value, self.body(s.body))]
            case S.Allocate():
                value = self.constant(s) if isinstance(s, S.AllocateConst) else self.memory("decl_buffer", s.buffer)
                return [D.ScopeDoc(self.bind(s.buffer), value, self.body(s.body))]
            case S.AssertStmt():
                value = _call("Assert", self.value(s.condition), _text(s.message))
                return [D.ScopeDoc(None, value, self.body(s.body))]
            case S.AttrStmt():
                return [D.ScopeDoc(None, self.attribute(s), self.body(s.body))]
            case _:
                return [_STATEMENTS[type(s)](self, s)]

    def opened(self, s: S.Let | S.Allocate | S.AttrStmt | S.AssertStmt) -> StmtDoc:
        """Return the first line of a statement that holds to the end of its body."""
        if isinstance(s, S.AssertStmt):
            return D.AssertDoc(self.value(s.condition), _text(s.message))
        if isinstance(s, S.AllocateConst):
            value = self.constant(s)
            return D.AssignDoc(self.bind(s.buffer), value)
        if isinstance(s, S.AttrStmt):
            return D.ExprStmtDoc(self.attribute(s))
        if isinstance(s, S.Allocate):
            memory = self.memory("decl_buffer", s.buffer)
            return D.AssignDoc(self.bind(s.buffer), memory)
        value = self.value(s.value)
        return D.AssignDoc(self.bind(s.var), value, _type(s.var.dtype))

    def constant(self, s: S.AllocateConst) -> ExprDoc:
        elements = D.ListDoc([D.LiteralDoc(x) for x in s.values.tolist()])
        return _call("allocate_const", elements, _text(str(s.buffer.dtype)), D.ListDoc(self.several(s.buffer.shape)))

    def repetition(self, s: S.While) -> StmtDoc:
        return D.WhileDoc(self.value(s.condition), self.body(s.body))

    def attribute(self, s: S.AttrStmt) -> ExprDoc:
        return _call("attr", self.value(s.node), _text(s.attr_key), self.value(s.value))

    def loop(self, s: S.For) -> StmtDoc:
        nest = _nest(s)
        extents = [self.value(f.extent) for f in nest]
        trips = _call("grid", *extents) if len(nest) > 1 else self.trips(s, extents[0])
        names = [self.bind(f.var) for f in nest]
        self._loops.update({f.var: f for f in nest})
        return D.ForDoc(D.TupleDoc(names) if len(nest) > 1 else names[0], trips, self.body(nest[-1].body))

    def trips(self, s: S.For, extent: ExprDoc) -> ExprDoc:
        """Return the range of a loop of its own."""
        ends = [extent] if _is_zero(s.min) else [self.value(s.min), self.value(_end(s.min, s.extent))]
        notes = dict(s.annotations)
        thread = notes.pop(S.THREAD, None)
        options = {"annotations": self.value(notes)} if notes else {}
        if thread is not None:
            return _call("thread_binding", *ends, thread=_text(str(thread)), **options)
        if s.kind == S.SERIAL and not notes:
            return D.IdDoc("range").call(*ends)
        return _call(_LOOPS.get(s.kind, "serial"), *ends, **options)

    def store(self, s: S.Store) -> StmtDoc:
        value = self.value(s.value)
        if s.mask is not None:
            value = _call("masked", self.value(s.mask), value)
        return D.AssignDoc(self.name(s.buffer)[tuple(map(self.value, s.indices))], value)

    def choice(self, s: S.IfThenElse) -> StmtDoc:
        no = [] if s.else_case is None else self.body(s.else_case)
        return D.IfDoc(self.value(s.condition), self.body(s.then_case), no)

    def evaluate(self, s: S.Evaluate) -> StmtDoc:
        value = self.value(s.value)
        return D.ExprStmtDoc(value if isinstance(s.value, E.Call) else _call("evaluate", value))

    def block(self, s: S.Block) -> StmtDoc:
        lines = list(self.axes(s))
        if not (isinstance(s.predicate, E.IntImm) and s.predicate.value):
            lines.append(D.ExprStmtDoc(_call("where", self.value(s.predicate))))
        lines.append(D.ExprStmtDoc(_call("reads", *map(self.value, s.reads))))
        lines.append(D.ExprStmtDoc(_call("writes", *map(self.value, s.writes))))
        notes = without_note(s, "combiner")
        if notes:
            lines.append(D.ExprStmtDoc(_call("block_attr", self.value(notes))))
        if s.init is not None:
            lines.append(D.ScopeDoc(None, _call("init"), self.body(s.init)))
        free = {"no_realize": D.LiteralDoc(True)} if s.iters and not s.bindings else {}
        return D.ScopeDoc(None, _call("block", _text(s.name), **free), lines + self.body(s.body))

    def axes(self, s: S.Block) -> Iterator[StmtDoc]:
        """Yield the axes of a block; axes in a row that are loops around the block share one line."""
        if not s.bindings:
            yield from (D.AssignDoc(self.bind(a.var), _axis(a.kind, self.value(a.extent))) for a in s.iters)
            return
        waiting: list[tuple[S.IterVar, E.PrimExpr]] = []
        for axis, bound in zip(s.iters, s.bindings, strict=True):
            if self.is_loop(axis, bound):
                waiting.append((axis, bound))
                continue
            yield from self.remapped(waiting)
            waiting = []
            yield self.axis(axis, bound)
        yield from self.remapped(waiting)

    def is_loop(self, axis: S.IterVar, bound: E.PrimExpr) -> bool:
        """Return whether an axis is the variable of a loop around the block, over the same numbers."""
        loop = self._loops.get(bound) if isinstance(bound, E.Var) else None
        return (
            loop is not None and axis.kind in _REMAPPED and _is_zero(loop.min)
            and (loop.extent is axis.extent or E.number_of(loop.extent) == E.number_of(axis.extent) is not None)
        )

    def remapped(self, axes: Sequence[tuple[S.IterVar, E.PrimExpr]]) -> Iterator[StmtDoc]:
        if len(axes) < 2:
            yield from (self.axis(axis, bound) for axis, bound in axes)
            return
        loops = D.ListDoc([self.value(bound) for _, bound in axes])
        kinds = _text("".join(_REMAPPED[axis.kind] for axis, _ in axes))
        names = D.TupleDoc([self.bind(axis.var) for axis, _ in axes])
        yield D.AssignDoc(names, _T.attr("axis").attr("remap").call(kinds, loops))

    def axis(self, axis: S.IterVar, bound: E.PrimExpr) -> StmtDoc:
        extent, value = self.value(axis.extent), self.value(bound)
        return D.AssignDoc(self.bind(axis.var), _axis(axis.kind, extent, value))

    # Values.
    def value(self, x: Any) -> ExprDoc:
        """Return an expression, a buffer, a range, a type, or a container of them."""
        for kind in type(x).__mro__:
            write = _VALUES.get(kind)
            if write is not None:
                return write(self, x)
        raise CompileError(f"{type(x).__name__} has no text in TVMScript: {x!r}", code="TW0608")

    def several(self, items: Sequence[Any]) -> list[ExprDoc]:
        return [self.value(x) for x in items]

    def unknown(self, e: E.UnknownDim) -> ExprDoc:
        return _call("Any")

    def integer(self, e: E.IntImm) -> ExprDoc:
        if e.dtype.code == "bool":
            return _type(e.dtype).call(D.LiteralDoc(bool(e.value)))
        number = D.LiteralDoc(e.value)
        return number if e.dtype in _BARE else _type(e.dtype).call(number)

    def floating(self, e: E.FloatImm) -> ExprDoc:
        number: str | float = e.value if math.isfinite(e.value) else str(e.value)
        whole = isinstance(number, float) and number.is_integer() and abs(number) < 1e16
        return _type(e.dtype).call(D.LiteralDoc(int(number) if whole else number))

    def binary(self, e: E.Binary) -> ExprDoc:
        a, b = e.a, e.b
        kind, numbers = _OPERATORS.get(type(e)), (E.IntImm, E.FloatImm)
        if isinstance(e, E.Div) and e.dtype.is_float:
            kind = OperationKind.Div
        if kind is None or (isinstance(a, numbers) and isinstance(b, numbers)):
            return _call(_FUNCTIONS.get(type(e), type(e).__name__), self.value(a), self.value(b))
        if isinstance(e, E.Add) and isinstance(b, E.IntImm) and integer_range(b.dtype)[0] < b.value < 0:
            kind, b = OperationKind.Sub, E.IntImm(b.dtype, -b.value)
        return D.OperationDoc(kind, self.several((a, b)))

    def negation(self, e: E.Not) -> ExprDoc:
        return D.OperationDoc(OperationKind.Not, self.several(e.operands()))

    def cast(self, e: E.Cast) -> ExprDoc:
        return _call("Cast", _text(str(e.dtype)), *self.several(e.operands()))

    def select(self, e: E.Select) -> ExprDoc:
        return _call("if_then_else", *self.several(e.operands()))

    def vector(self, e: E.Ramp | E.Broadcast) -> ExprDoc:
        return _call(type(e).__name__, *self.several(e.operands()), D.LiteralDoc(e.lanes))

    def load(self, e: E.Load) -> ExprDoc:
        return self.name(e.buffer)[tuple(self.several(e.indices))]

    def call(self, e: E.Call) -> ExprDoc:
        if e.op is address_of:
            return _call("address_of", self.value(e.args[0]))
        args = self.several(e.args)
        if isinstance(e.op, Extern):
            return _call(e.op.name.removeprefix("tir."), _text(str(e.dtype)), _text(e.op.spelling), *args)
        if isinstance(e.op, (Opaque, Packed)):
            for place, text in e.op.texts:
                args.insert(place, _text(text))
        if isinstance(e.op, Packed):
            return _call("call_packed", _text(e.op.function), *args)
        typed = [_text(str(e.dtype))] if e.op.spelling == "reinterpret" else []
        return _call(e.op.spelling, *typed, *args)

    def buffer(self, b: E.Buffer) -> ExprDoc:
        return self.name(b)

    def range(self, r: Range) -> ExprDoc:
        return _call("Range", self.value(r.min), self.value(_end(r.min, r.extent)))

    def region(self, r: BufferRegion) -> ExprDoc:
        return self.name(r.buffer)[tuple(map(self.side, r.region))]

    def side(self, r: Range) -> D.Index:
        """Return one dimension of a region: an index if it is one element, else a slice."""
        low = self.value(r.min)
        return low if E.number_of(r.extent) == 1 else D.SliceDoc(low, self.value(_end(r.min, r.extent)))

    def iteration(self, i: S.IterVar) -> ExprDoc:
        return _call("iter_var", self.name(i.var), self.value(i.dom), _text(_AXES[i.kind]), _text(""))

    def reducer(self, r: S.Reducer) -> ExprDoc:
        names = [self.bind(v) for v in r.params]
        body = self.several(r.body)
        combined = body[0] if len(body) == 1 else D.TupleDoc(body)
        return _call("comm_reducer", D.LambdaDoc(names, combined), D.ListDoc(self.several(r.neutral)))

    def number_type(self, t: PrimType) -> ExprDoc:
        return _type(t.dtype)

    def kind(self, t: PointerType) -> ExprDoc:
        return _call("handle", _text(str(t.element_type.dtype)), *([_text(t.storage_scope)] if t.storage_scope else []))

    def tuple_type(self, t: TupleType) -> ExprDoc:
        return _call("Tuple", *self.several(t.fields))

    def literal(self, x: Any) -> ExprDoc:
        return D.LiteralDoc(x)

    def row(self, x: Sequence[Any]) -> ExprDoc:
        return D.ListDoc(self.several(x)) if isinstance(x, list) else D.TupleDoc(self.several(x))

    def table(self, x: dict[Any, Any]) -> ExprDoc:
        return D.DictDoc({self.value(k): self.value(v) for k, v in x.items()})


_STATEMENTS: Final[dict[type[S.Stmt], Callable[[_Docs, Any], StmtDoc]]] = {
    S.For: _Docs.loop, S.Store: _Docs.store, S.IfThenElse: _Docs.choice, S.Evaluate: _Docs.evaluate,
    S.Block: _Docs.block, S.While: _Docs.repetition,
}
_VALUES: Final[dict[type, Callable[[_Docs, Any], ExprDoc]]] = {
    E.UnknownDim: _Docs.unknown, E.Var: _Docs.name, E.IntImm: _Docs.integer, E.FloatImm: _Docs.floating,
    E.Binary: _Docs.binary, E.Not: _Docs.negation, E.Cast: _Docs.cast, E.Select: _Docs.select, E.Ramp: _Docs.vector,
    E.Broadcast: _Docs.vector, E.Load: _Docs.load, E.Call: _Docs.call, E.Buffer: _Docs.buffer, Range: _Docs.range,
    BufferRegion: _Docs.region, S.IterVar: _Docs.iteration, S.Reducer: _Docs.reducer, PrimType: _Docs.number_type,
    PointerType: _Docs.kind, TupleType: _Docs.tuple_type, str: _Docs.literal, int: _Docs.literal,
    float: _Docs.literal, type(None): _Docs.literal, list: _Docs.row, tuple: _Docs.row, dict: _Docs.table,
}
