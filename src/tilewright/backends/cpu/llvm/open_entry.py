"""The functions that a C program calls for a program with dynamic shapes, as LLVM text.

    int32_t <name>_run(shapes, inputs, outputs)              checks the shapes, plans, calls `tw_run`
    int32_t <name>_output_shapes(shapes, output_shapes)      and <name>_output_bytes, <name>_workspace_bytes
    const char *<name>_message(status)

They do what `runtime/open_program.py` does in Python: solve for the symbols, fill the table of sizes, and place the
pieces of the workspace. A frame is one allocation that holds its capacity, a table, and a workspace. The frame of
the last call is kept: a call with the same sizes uses it as it is, another plans again, and grows it if necessary,
by an eighth more than needed.
Sizes beyond 2**47 bytes count as out of memory.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm.allocation import allocator
from tilewright.backends.cpu.llvm.c_entry import ARGUMENTS, DECLARATIONS
from tilewright.backends.cpu.llvm.text import c_string
from tilewright.base.memory_placement import ALIGNMENT
from tilewright.runtime.manifest import FIRST_MESSAGE, MEMORY_FAULT, NO_MEMORY, NO_SCRATCH, Manifest
from tilewright.runtime.size_rules import SizeRule, size_rules
from tilewright.runtime.size_table import first_piece
from tilewright.runtime.sizes import Size, parsed

_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "div", ast.Mod: "mod"
}
_RELATIONS: Final = {"==": "eq", ">=": "sge"}


def emit_open_functions(manifest: Manifest) -> str:
    """Return the text of the functions, without the context and `<name>_close`."""
    pointer, name = processors.pointer_bytes(manifest.triple), manifest.c_name
    return "\n".join([
        _SIZES, _PLACE, _solve(manifest, pointer), _plan(manifest), _output_shapes(manifest, pointer),
        _output_bytes(manifest), _message(manifest, name), _run(manifest, pointer)])


class _Lines:
    """The body of a function; sizes are computed at their first use, from the symbols in `%symbols`."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.text: list[str] = []
        self._known: dict[str, str] = {}
        for k, name in enumerate(symbols):
            self.text += [
                f"  %symbol{k}.at = getelementptr inbounds i64, ptr %symbols, i64 {k}",
                f"  %symbol{k} = load i64, ptr %symbol{k}.at, align 8"]
            self._known[name] = f"%symbol{k}"

    def size(self, size: Size) -> str:
        """Return a size as an operand."""
        return str(size) if isinstance(size, int) else self._value(parsed(size))

    def product(self, sizes: Sequence[Size]) -> str:
        """Return the product of sizes as an operand."""
        result = "1"
        for size in sizes:
            result = self._call("mul", result, self.size(size))
        return result

    def store(self, value: str, base: str, position: int) -> None:
        """Write an int64 to a position of an array."""
        at = f"%at{len(self.text)}"
        self.text += [
            f"  {at} = getelementptr inbounds i64, ptr {base}, i64 {position}",
            f"  store i64 {value}, ptr {at}, align 8"]

    def _value(self, e: ast.expr) -> str:
        match e:
            case ast.Constant(value=int() as number):
                return str(number)
            case ast.Name(id=name):
                return self._known[name]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._call("sub", "0", self._value(inner))
            case ast.BinOp(left=a, op=op, right=b):
                return self._call(_OPERATORS[type(op)], self._value(a), self._value(b))
            case ast.Call(func=ast.Name(id=name), args=args):
                result, *others = map(self._value, args)
                for other in others:
                    result = self._call(name, result, other)
                return result
        raise ValueError(f"{ast.unparse(e)!r} is not a size")

    def _call(self, function: str, a: str, b: str) -> str:
        key = f"{function} {a} {b}"
        if key not in self._known:
            self._known[key] = f"%value{len(self._known)}"
            self.text.append(
                f"  {self._known[key]} = call i64 @size_{function}(i64 {a}, i64 {b}, ptr %large)")
        return self._known[key]


def _solve(manifest: Manifest, pointer: int) -> str:
    """Return `i32 @solve(shapes, symbols)`, which writes the symbols, or returns the status of the rule that the shapes
    break."""
    rules = size_rules(manifest.inputs, manifest.symbols)
    places = {s.name: k for k, s in enumerate(manifest.symbols)}
    first = FIRST_MESSAGE + len(manifest.failures)
    lines = ["define internal i32 @solve(ptr %shapes, ptr %symbols) nounwind {", "  %large = alloca i8, align 1"]
    lines.append("  store i8 0, ptr %large, align 1")
    for k, info in enumerate(manifest.inputs):
        if info.shape:
            lines += [
                f"  %shape{k}.at = getelementptr inbounds ptr, ptr %shapes, i64 {k}",
                f"  %shape{k} = load ptr, ptr %shape{k}.at, align {pointer}"]
    for number, rule in enumerate(rules):
        lines += [
            f"  %dim{number}.at = getelementptr inbounds i64, ptr %shape{rule.tensor}, i64 {rule.axis}",
            f"  %dim{number} = load i64, ptr %dim{number}.at, align 8"]
        if rule.symbol is not None:
            lines += _symbol(rule, number, places[rule.symbol.name], first)
        elif isinstance(rule.size, int):
            lines += _checked(number, f"icmp eq i64 %dim{number}, {rule.size}", first)
    body = _Lines([s.name for s in manifest.symbols])
    for number, rule in enumerate(rules):
        if rule.symbol is None and isinstance(rule.size, str):
            value = body.size(rule.size)
            body.text += _checked(number, f"icmp eq i64 %dim{number}, {value}", first)
    for number, requirement in enumerate(manifest.requirements, len(rules)):
        left, right = body.size(requirement.left), body.size(requirement.right)
        body.text += _checked(number, f"icmp {_RELATIONS[requirement.relation]} i64 {left}, {right}", first)
    return "\n".join([*lines, *body.text, *_status(), "}", ""])


def _symbol(rule: SizeRule, number: int, place: int, first: int) -> list[str]:
    """Return the lines that check a dimension and write the symbol that it determines."""
    assert rule.symbol is not None
    most = rule.symbol.most if rule.symbol.most is not None else (1 << 63) // rule.factor - 1
    return [
        f"  %rest{number} = srem i64 %dim{number}, {rule.factor}",
        *_checked(number, f"icmp eq i64 %rest{number}, 0", first, ".multiple"),
        f"  %found{number} = sdiv i64 %dim{number}, {rule.factor}",
        *_checked(number, f"icmp sge i64 %found{number}, {rule.symbol.least}", first, ".least"),
        *_checked(number, f"icmp sle i64 %found{number}, {most}", first, ".most"),
        f"  %place{number} = getelementptr inbounds i64, ptr %symbols, i64 {place}",
        f"  store i64 %found{number}, ptr %place{number}, align 8",
    ]


def _checked(number: int, condition: str, first: int, part: str = "") -> list[str]:
    """Return the lines that end the function with the status of rule `number` unless the condition holds."""
    name = f"rule{number}{part}"
    return [
        f"  %{name} = {condition}", f"  br i1 %{name}, label %{name}.kept, label %{name}.broken", f"{name}.broken:",
        f"  ret i32 {first + number}", f"{name}.kept:",
    ]


def _plan(manifest: Manifest) -> str:
    """Return `i64 @plan(symbols, table)`, which fills the table, and returns the bytes of the workspace; -1 if they are
    too many."""
    body = _Lines([s.name for s in manifest.symbols])
    for k, size in enumerate((*(s.name for s in manifest.symbols), *manifest.sizes)):
        body.store(body.size(size), "%table", k)
    for k, piece in enumerate(manifest.pieces):
        body.store(body.size(piece.nbytes), "%bytes", k)
    count, static = len(manifest.pieces), manifest.workspace_bytes

    def constants(name: str, values: Sequence[int]) -> str:
        return f"@{name} = private constant [{count} x i64] [{', '.join(f'i64 {v}' for v in values)}]"

    return "\n".join([
        constants("births", [p.birth for p in manifest.pieces]),
        constants("deaths", [p.death for p in manifest.pieces]),
        "define internal i64 @plan(ptr %symbols, ptr %table) nounwind {",
        "  %large = alloca i8, align 1", f"  %bytes = alloca [{count} x i64], align 8",
        f"  %order = alloca [{count} x i64], align 8", "  store i8 0, ptr %large, align 1", *body.text,
        f"  %offsets = getelementptr inbounds i64, ptr %table, i64 {first_piece(manifest)}",
        f"  %total = call i64 @place(i64 {count}, ptr %bytes, ptr %offsets, ptr %order, i64 {static}, ptr %large)",
        f"  %end = getelementptr inbounds i64, ptr %offsets, i64 {count}", "  store i64 0, ptr %end, align 8",
        "  %state = load i8, ptr %large, align 1", "  %right = icmp eq i8 %state, 0",
        "  %result = select i1 %right, i64 %total, i64 -1", "  ret i64 %result", "}", "",
    ])


def _output_shapes(manifest: Manifest, pointer: int) -> str:
    body = _Lines([s.name for s in manifest.symbols])
    for k, info in enumerate(manifest.outputs):
        if info.shape:
            body.text += [
                f"  %shape{k}.at = getelementptr inbounds ptr, ptr %results, i64 {k}",
                f"  %shape{k} = load ptr, ptr %shape{k}.at, align {pointer}"]
        for axis, size in enumerate(info.shape):
            body.store(body.size(size), f"%shape{k}", axis)
    return _question(manifest, f"{manifest.c_name}_output_shapes", body)


def _output_bytes(manifest: Manifest) -> str:
    body = _Lines([s.name for s in manifest.symbols])
    for k, info in enumerate(manifest.outputs):
        body.store(body.product((*info.shape, info.dtype.itemsize)), "%results", k)
    return _question(manifest, f"{manifest.c_name}_output_bytes", body)


def _status() -> list[str]:
    """Return the lines that return 0, or `NO_MEMORY` if a size was too large."""
    return [
        "  %state = load i8, ptr %large, align 1", "  %right = icmp eq i8 %state, 0",
        f"  %result = select i1 %right, i32 0, i32 {NO_MEMORY}", "  ret i32 %result",
    ]


def _question(manifest: Manifest, name: str, body: _Lines) -> str:
    """Return the function `name(shapes, results)`, which answers from the symbols of valid shapes."""
    return "\n".join([
        f"define i32 @{name}(ptr %shapes, ptr %results) nounwind {{",
        f"  %symbols = alloca [{len(manifest.symbols)} x i64], align 8", "  %large = alloca i8, align 1",
        "  store i8 0, ptr %large, align 1", "  %status = call i32 @solve(ptr %shapes, ptr %symbols)",
        "  %solved = icmp eq i32 %status, 0", "  br i1 %solved, label %answer, label %wrong", "wrong:",
        "  ret i32 %status", "answer:", *body.text, *_status(), "}", "",
    ])


def _message(manifest: Manifest, name: str) -> str:
    """Return `ptr <name>_message(i32)`, which gives the text of a status."""
    known = {0: "done", NO_MEMORY: "out of memory", NO_SCRATCH: "out of memory"}
    known |= {MEMORY_FAULT: "a wrong access to memory was found, and left out"} if manifest.sites else {}
    known |= dict(enumerate(manifest.messages, FIRST_MESSAGE))
    texts, cases, blocks = [], [], []
    for k, text in enumerate([*known.values(), "an unknown status"]):
        texts.append(f"@message{k} = private constant {c_string(text)}")
        blocks += [f"message{k}:", f"  ret ptr @message{k}"]
    cases = [f"    i32 {status}, label %message{k}" for k, status in enumerate(known)]
    return "\n".join([
        *texts, f"define ptr @{name}_message(i32 %status) nounwind {{",
        f"  switch i32 %status, label %message{len(known)} [", *cases, "  ]", *blocks, "}", "",
    ])


def _run(manifest: Manifest, pointer: int) -> str:
    allocate, free = allocator(manifest.triple)
    input_bytes, output_bytes = pointer * len(manifest.inputs), pointer * len(manifest.outputs)
    entries = first_piece(manifest) + len(manifest.pieces) + 1
    return _RUN.format(
        name=manifest.c_name, pointer=pointer, allocate=allocate, free=free, symbols=len(manifest.symbols),
        slots=len(manifest.inputs) + len(manifest.outputs) + 3, input_bytes=input_bytes, output_bytes=output_bytes,
        constants_slot=input_bytes + output_bytes, workspace_slot=input_bytes + output_bytes + pointer,
        table_slot=input_bytes + output_bytes + 2 * pointer, entries=entries, table_bytes=8 * entries,
        header=-(-8 * (1 + entries) // ALIGNMENT) * ALIGNMENT, no_memory=NO_MEMORY)


_SIZES: Final = """\
declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.ssub.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

; Arithmetic of sizes. A result that does not fit sets *large.
define internal i64 @size_checked({i64, i1} %pair, ptr %large) nounwind alwaysinline {
  %value = extractvalue {i64, i1} %pair, 0
  %lost = extractvalue {i64, i1} %pair, 1
  br i1 %lost, label %note, label %done
note:
  store i8 1, ptr %large, align 1
  br label %done
done:
  ret i64 %value
}
define internal i64 @size_add(i64 %a, i64 %b, ptr %large) nounwind {
  %pair = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %a, i64 %b)
  %value = call i64 @size_checked({i64, i1} %pair, ptr %large)
  ret i64 %value
}
define internal i64 @size_sub(i64 %a, i64 %b, ptr %large) nounwind {
  %pair = call {i64, i1} @llvm.ssub.with.overflow.i64(i64 %a, i64 %b)
  %value = call i64 @size_checked({i64, i1} %pair, ptr %large)
  ret i64 %value
}
define internal i64 @size_mul(i64 %a, i64 %b, ptr %large) nounwind {
  %pair = call {i64, i1} @llvm.smul.with.overflow.i64(i64 %a, i64 %b)
  %value = call i64 @size_checked({i64, i1} %pair, ptr %large)
  ret i64 %value
}
; rounded down; a division by zero sets *large
define internal i64 @size_div(i64 %a, i64 %b, ptr %large) nounwind {
  %none = icmp eq i64 %b, 0
  br i1 %none, label %undefined, label %divide
undefined:
  store i8 1, ptr %large, align 1
  ret i64 0
divide:
  %quotient = sdiv i64 %a, %b
  %rest = srem i64 %a, %b
  %exact = icmp eq i64 %rest, 0
  %signs = xor i64 %rest, %b
  %apart = icmp slt i64 %signs, 0
  %below = sub i64 %quotient, 1
  %rounded = select i1 %apart, i64 %below, i64 %quotient
  %value = select i1 %exact, i64 %quotient, i64 %rounded
  ret i64 %value
}
define internal i64 @size_mod(i64 %a, i64 %b, ptr %large) nounwind {
  %quotient = call i64 @size_div(i64 %a, i64 %b, ptr %large)
  %whole = mul i64 %quotient, %b
  %value = sub i64 %a, %whole
  ret i64 %value
}
define internal i64 @size_min(i64 %a, i64 %b, ptr %large) nounwind {
  %value = call i64 @llvm.smin.i64(i64 %a, i64 %b)
  ret i64 %value
}
define internal i64 @size_max(i64 %a, i64 %b, ptr %large) nounwind {
  %value = call i64 @llvm.smax.i64(i64 %a, i64 %b)
  ret i64 %value
}
"""
_PLACE: Final = """\
define internal i64 @rounded(i64 %bytes) nounwind alwaysinline {
  %some = call i64 @llvm.smax.i64(i64 %bytes, i64 1)
  %more = add i64 %some, 63
  %value = and i64 %more, -64
  ret i64 %value
}

; Places the pieces as `base/memory_placement.py` does, and returns the end of the last: the largest pieces first, each
; into the tightest gap between pieces that are live at the same time. `order` has the pieces by bytes; its start
; becomes the placed pieces by offset.
define internal i64 @place(i64 %count, ptr %bytes, ptr %offsets, ptr %order, i64 %static, ptr %large) nounwind {
entry:
  br label %sort
sort:
  %i = phi i64 [ 0, %entry ], [ %i.next, %sorted ]
  %sorting = icmp slt i64 %i, %count
  br i1 %sorting, label %take, label %pieces
take:
  %new.at = getelementptr inbounds i64, ptr %bytes, i64 %i
  %new = load i64, ptr %new.at, align 8
  %huge = icmp ugt i64 %new, 140737488355328
  br i1 %huge, label %refuse, label %shift
refuse:
  store i8 1, ptr %large, align 1
  ret i64 -1
shift:
  %j = phi i64 [ %i, %take ], [ %j.before, %shifted ]
  %j.left = icmp sgt i64 %j, 0
  br i1 %j.left, label %compare, label %sorted
compare:
  %j.before = sub i64 %j, 1
  %other.at = getelementptr inbounds i64, ptr %order, i64 %j.before
  %other = load i64, ptr %other.at, align 8
  %other.bytes.at = getelementptr inbounds i64, ptr %bytes, i64 %other
  %other.bytes = load i64, ptr %other.bytes.at, align 8
  %smaller = icmp slt i64 %other.bytes, %new
  br i1 %smaller, label %shifted, label %sorted
shifted:
  %free.at = getelementptr inbounds i64, ptr %order, i64 %j
  store i64 %other, ptr %free.at, align 8
  br label %shift
sorted:
  %slot.at = getelementptr inbounds i64, ptr %order, i64 %j
  store i64 %i, ptr %slot.at, align 8
  %i.next = add i64 %i, 1
  br label %sort

pieces:
  %p = phi i64 [ 0, %sort ], [ %p.next, %listed ]
  %total = phi i64 [ 0, %sort ], [ %total.next, %listed ]
  %placing = icmp slt i64 %p, %count
  br i1 %placing, label %piece, label %done
piece:
  %k.at = getelementptr inbounds i64, ptr %order, i64 %p
  %k = load i64, ptr %k.at, align 8
  %k.bytes.at = getelementptr inbounds i64, ptr %bytes, i64 %k
  %k.bytes = load i64, ptr %k.bytes.at, align 8
  %size = call i64 @rounded(i64 %k.bytes)
  %birth.at = getelementptr inbounds i64, ptr @births, i64 %k
  %birth = load i64, ptr %birth.at, align 8
  %death.at = getelementptr inbounds i64, ptr @deaths, i64 %k
  %death = load i64, ptr %death.at, align 8
  br label %gaps
gaps:
  %q = phi i64 [ 0, %piece ], [ %q.next, %passed ]
  %best = phi i64 [ -1, %piece ], [ %best.next, %passed ]
  %room = phi i64 [ 9223372036854775807, %piece ], [ %room.next, %passed ]
  %end = phi i64 [ 0, %piece ], [ %end.next, %passed ]
  %looking = icmp slt i64 %q, %p
  br i1 %looking, label %neighbour, label %found
neighbour:
  %c.at = getelementptr inbounds i64, ptr %order, i64 %q
  %c = load i64, ptr %c.at, align 8
  %c.birth.at = getelementptr inbounds i64, ptr @births, i64 %c
  %c.birth = load i64, ptr %c.birth.at, align 8
  %c.death.at = getelementptr inbounds i64, ptr @deaths, i64 %c
  %c.death = load i64, ptr %c.death.at, align 8
  %begins = icmp sle i64 %c.birth, %death
  %lasts = icmp sle i64 %birth, %c.death
  %clashes = and i1 %begins, %lasts
  br i1 %clashes, label %clash, label %passed
clash:
  %c.offset.at = getelementptr inbounds i64, ptr %offsets, i64 %c
  %c.offset = load i64, ptr %c.offset.at, align 8
  %c.begin = sub i64 %c.offset, %static
  %c.bytes.at = getelementptr inbounds i64, ptr %bytes, i64 %c
  %c.bytes = load i64, ptr %c.bytes.at, align 8
  %c.size = call i64 @rounded(i64 %c.bytes)
  %c.end = add i64 %c.begin, %c.size
  %gap = sub i64 %c.begin, %end
  %holds = icmp sge i64 %gap, %size
  %tighter = icmp slt i64 %gap, %room
  %better = and i1 %holds, %tighter
  %best.now = select i1 %better, i64 %end, i64 %best
  %room.now = select i1 %better, i64 %gap, i64 %room
  %end.now = call i64 @llvm.smax.i64(i64 %end, i64 %c.end)
  br label %passed
passed:
  %best.next = phi i64 [ %best, %neighbour ], [ %best.now, %clash ]
  %room.next = phi i64 [ %room, %neighbour ], [ %room.now, %clash ]
  %end.next = phi i64 [ %end, %neighbour ], [ %end.now, %clash ]
  %q.next = add i64 %q, 1
  br label %gaps
found:
  %no.gap = icmp slt i64 %best, 0
  %offset = select i1 %no.gap, i64 %end, i64 %best
  %k.end = add i64 %offset, %size
  %total.next = call i64 @llvm.smax.i64(i64 %total, i64 %k.end)
  %k.offset = add i64 %offset, %static
  %k.offset.at = getelementptr inbounds i64, ptr %offsets, i64 %k
  store i64 %k.offset, ptr %k.offset.at, align 8
  %over = icmp sgt i64 %total.next, 140737488355328
  br i1 %over, label %refuse, label %list
list:
  %m = phi i64 [ %p, %found ], [ %m.before, %moved ]
  %m.left = icmp sgt i64 %m, 0
  br i1 %m.left, label %ordered, label %listed
ordered:
  %m.before = sub i64 %m, 1
  %d.at = getelementptr inbounds i64, ptr %order, i64 %m.before
  %d = load i64, ptr %d.at, align 8
  %d.offset.at = getelementptr inbounds i64, ptr %offsets, i64 %d
  %d.offset = load i64, ptr %d.offset.at, align 8
  %after = icmp sgt i64 %d.offset, %k.offset
  br i1 %after, label %moved, label %listed
moved:
  %m.at = getelementptr inbounds i64, ptr %order, i64 %m
  store i64 %d, ptr %m.at, align 8
  br label %list
listed:
  %m.slot = getelementptr inbounds i64, ptr %order, i64 %m
  store i64 %k, ptr %m.slot, align 8
  %p.next = add i64 %p, 1
  br label %pieces
done:
  %result = add i64 %static, %total
  ret i64 %result
}
"""
_RUN: Final = DECLARATIONS + """\

define internal i1 @same(ptr %a, ptr %b) nounwind {{
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %next, %equal ]
  %done = icmp eq i64 %k, {symbols}
  br i1 %done, label %ends, label %compare
compare:
  %a.at = getelementptr inbounds i64, ptr %a, i64 %k
  %b.at = getelementptr inbounds i64, ptr %b, i64 %k
  %x = load i64, ptr %a.at, align 8
  %y = load i64, ptr %b.at, align 8
  %next = add i64 %k, 1
  %is = icmp eq i64 %x, %y
  br i1 %is, label %equal, label %differs
equal:
  br label %each
ends:
  ret i1 true
differs:
  ret i1 false
}}

define i32 @{name}_workspace_bytes(ptr %shapes, ptr %bytes) nounwind {{
  %symbols = alloca [{symbols} x i64], align 8
  %table = alloca [{entries} x i64], align 8
  %solved = call i32 @solve(ptr %shapes, ptr %symbols)
  %right = icmp eq i32 %solved, 0
  br i1 %right, label %plan, label %wrong
wrong:
  ret i32 %solved
plan:
  %needed = call i64 @plan(ptr %symbols, ptr %table)
  store i64 %needed, ptr %bytes, align 8
  %large = icmp slt i64 %needed, 0
  %status = select i1 %large, i32 {no_memory}, i32 0
  ret i32 %status
}}

; 0: done. A call takes the spare frame (capacity, table, workspace), or allocates one, and leaves it as the spare.
define i32 @{name}_run(ptr %shapes, ptr %inputs, ptr %outputs) nounwind {{
  %args = alloca [{slots} x ptr], align 8
  %symbols = alloca [{symbols} x i64], align 8
  %table = alloca [{entries} x i64], align 8
  %solved = call i32 @solve(ptr %shapes, ptr %symbols)
  %right = icmp eq i32 %solved, 0
  br i1 %right, label %prepare, label %wrong
wrong:
  ret i32 %solved
prepare:
""" + ARGUMENTS + """\
  br i1 %no_spare, label %plan, label %compare
compare:
  %planned.at = getelementptr inbounds i8, ptr %spare, i64 8
  %planned = call i1 @same(ptr %symbols, ptr %planned.at)
  br i1 %planned, label %run, label %plan
plan:
  %needed = call i64 @plan(ptr %symbols, ptr %table)
  %large = icmp slt i64 %needed, 0
  br i1 %large, label %release, label %choose
choose:
  br i1 %no_spare, label %allocate, label %measure
measure:
  %capacity = load i64, ptr %spare, align 8
  %enough = icmp sle i64 %needed, %capacity
  br i1 %enough, label %fill, label %allocate
allocate:
  call void @{free}(ptr %spare)
  %eighth = lshr i64 %needed, 3
  %extra = select i1 %no_spare, i64 0, i64 %eighth
  %grown = add i64 %needed, %extra
  %more = add i64 %grown, 63
  %room = and i64 %more, -64
  %whole = add i64 %room, {header}
  %fresh = call ptr @{allocate}(i64 64, i64 %whole)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %no_memory, label %made
made:
  store i64 %room, ptr %fresh, align 8
  br label %fill
fill:
  %filled = phi ptr [ %spare, %measure ], [ %fresh, %made ]
  %filled.at = getelementptr inbounds i8, ptr %filled, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr %filled.at, ptr %table, i64 {table_bytes}, i1 false)
  br label %run
run:
  %frame = phi ptr [ %spare, %compare ], [ %filled, %fill ]
  %workspace = getelementptr inbounds i8, ptr %frame, i64 {header}
  %args.workspace = getelementptr inbounds i8, ptr %args, i64 {workspace_slot}
  store ptr %workspace, ptr %args.workspace, align {pointer}
  %frame.table = getelementptr inbounds i8, ptr %frame, i64 8
  %args.table = getelementptr inbounds i8, ptr %args, i64 {table_slot}
  store ptr %frame.table, ptr %args.table, align {pointer}
  %status = call i32 @tw_run(ptr %context, ptr %args)
  %other = atomicrmw xchg ptr @spare, ptr %frame acq_rel, align {pointer}
  call void @{free}(ptr %other)
  ret i32 %status
release:
  call void @{free}(ptr %spare)
  br label %no_memory
no_memory:
  ret i32 {no_memory}
}}
"""
