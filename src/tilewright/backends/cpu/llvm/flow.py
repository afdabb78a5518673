"""Functions of the control language as LLVM text: branches, calls, jumps, and the cells that hold values.

    cell   = { i64 holders, i32 tag, i32 class, … }, at a multiple of 64 bytes
    tensor = { …, ptr data, elements }        the elements are elsewhere for an input or a constant
    record = { …, ptr field 0, ptr field 1, … }

Every size has its own class with a list of free cells, so no memory is lost to rounding. The bytes of the classes are
constants, or are computed at the start of a run from the table of sizes (`runtime/size_table.py`).
Cells are cut from chunks, which a run frees as a whole when it ends. A run keeps its state in its own frame, so runs
are independent; its first chunk is part of the workspace, so small programs allocate nothing.

All functions are `ptr f(ptr run, ptr closure)`. Arguments are passed in the run's frame and read first, so every tail
call is a jump, and a loop uses one frame. A function that fails stores the status in the run and returns null, and its
callers do the same.

A long run checks for pending signals (`interrupts.py`) inside blocks, after them, and at the entry of functions. Each
adds the estimated time of its body to the counter `work` of the run, and signals are checked when the counter reaches a
limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.backends.cpu.llvm.cells import RUNTIME
from tilewright.backends.cpu.llvm.interrupts import DECLARATIONS, entries_text
from tilewright.backends.cpu.llvm.text import comment
from tilewright.backends.flow import (
    Apply,
    Body,
    Call,
    Choose,
    Drop,
    Field,
    FlowFunction,
    FlowProgram,
    Hold,
    If,
    Read,
    Record,
    Reg,
    Return,
    Run,
    TailApply,
    TailCall,
    Update,
    Wrap,
    Write,
    Yield,
    Zeros,
    walk,
    written_in_place,
)
from tilewright.backends.host_code import FIRST_CHUNK, ControlFlow, Watch
from tilewright.runtime.manifest import FIRST_MESSAGE, NO_MEMORY, NO_STACK
from tilewright.runtime.sizes import Size

_LINE: Final = 64
_CONTEXT, _CONSTANTS, _WORKSPACE, _FREE_FROM, _FREE_TO, _CHUNKS, _LIMIT, _STATUS, _OUTPUTS, _PENDING, _WORK, _ARGS = (
    range(0, 96, 8)
)
_FIELDS: Final = 16
_NEAR, _FAR = 32, 64
_BESIDE_BLOCKS: Final = 100
"""Estimated nanoseconds of a call of a function without its blocks."""


def emit_flow(flow: ControlFlow) -> str:
    """Return the functions of a program and its entry `tw_run`; the blocks `flow.block.<n>` are defined elsewhere.

    A program that looks for signals also has `tw_run_interruptible`, which calls the functions of `interrupts.py`.
    """
    cells, program, watch = _Cells(), flow.program, flow.watch
    calls = [i for f in program.functions for i in walk(f.body) if isinstance(i, (Call, Apply, TailCall, TailApply))]
    most = max([1, *(len(f.params) for f in program.functions), *(len(i.args) for i in calls)])
    table = _Table(flow.sizes, _ARGS + 8 * most)
    texts = [_Text(program, flow.constants, cells, k, table, watch).emit(f) for k, f in enumerate(program.functions)]
    lists = table.slot + 8 * bool(flow.sizes)
    entry = _entry(flow, cells, table, lists)
    sizes, fields = zip(*cells.known, strict=True)
    tables = [
        *([] if flow.sizes else [
            f"@flow.sizes = private constant [{len(sizes)} x i64] [{', '.join(f'i64 {n}' for n in sizes)}]"]),
        f"@flow.fields = private constant [{len(sizes)} x i64] [{', '.join(f'i64 {n}' for n in fields)}]",
        f"@flow.code = private constant [{len(texts)} x ptr] "
        f"[{', '.join(f'ptr @flow.{k}' for k in range(len(texts)))}]",
    ]
    size_of = _SIZE_IN_RUN.format(offset=lists + 8 * len(sizes)) if flow.sizes else _CONSTANT_SIZE.format(
        classes=len(sizes))
    runtime = RUNTIME.format(
        classes=len(sizes), lists=lists, free_from=_FREE_FROM, free_to=_FREE_TO, chunks=_CHUNKS, status=_STATUS,
        no_memory=NO_MEMORY, size_of=size_of)
    looks = [] if watch is None else [DECLARATIONS, entries_text("tw_run")]
    return "\n".join([*tables, runtime, *texts, entry, *looks, ""])


_CONSTANT_SIZE: Final = "%size.at = getelementptr [{classes} x i64], ptr @flow.sizes, i64 0, i64 %class"
_SIZE_IN_RUN: Final = """\
%size.slot = getelementptr i64, ptr %run, i64 %class
  %size.at = getelementptr i8, ptr %size.slot, i64 {offset}"""


@dataclass(frozen=True, slots=True)
class _Table:
    """The positions of dynamic sizes in the table of sizes, whose address is in the run at the offset `slot`."""

    positions: Mapping[str, int]
    slot: int


class _Cells:
    """The classes of cells: their numbers of bytes and of fields. A dynamic number is that of the elements alone."""

    def __init__(self) -> None:
        self.known: dict[tuple[Size, int], int] = {}

    def tensor(self, nbytes: Size) -> int:
        if isinstance(nbytes, str):
            return self.known.setdefault((nbytes, 0), len(self.known))
        return self._number(_elements(nbytes) + nbytes, 0)

    def record(self, fields: int) -> int:
        return self._number(_FIELDS + 8 * fields, fields)

    def wrapper(self) -> int:
        """Return the class of a tensor with elements elsewhere."""
        return self._number(_NEAR, 0)

    def _number(self, nbytes: int, fields: int) -> int:
        return self.known.setdefault((-(-nbytes // _LINE) * _LINE, fields), len(self.known))


def _elements(nbytes: Size) -> int:
    """Return the offset of the elements of a tensor in its cell.

    Small tensors have them in the same cache line, large ones, and those of dynamic sizes, at the start of another
    line.
    """
    return _NEAR if isinstance(nbytes, int) and nbytes <= _LINE - _NEAR else _FAR


class _Text:
    """One function as text."""

    def __init__(
        self, program: FlowProgram, constants: Sequence[int], cells: _Cells, number: int, table: _Table,
        watch: Watch | None = None,
    ) -> None:
        self.program, self.constants, self.cells, self.number, self.watch = program, constants, cells, number, watch
        self.table = table
        self.in_place = {} if number else written_in_place(program)
        self.lines: list[str] = []
        self.names = 0
        self.here = "entry"
        self.ends: list[list[tuple[Reg, str]]] = []
        """For each open branch, outermost first, the values that it yields."""

    def emit(self, f: FlowFunction) -> str:
        inner = list(walk(f.body))
        slots = max((self._slots(i.block) for i in inner if isinstance(i, Run)), default=0)
        for k, p in enumerate(f.params):
            self._load(f"%r{p}", self._at("%run", _ARGS + 8 * k))
        for k, r in enumerate(f.captured):
            self._load(f"%r{r}", self._at("%self", _FIELDS + 8 * k))
            self._hold(r)
        if f.itself is not None:
            self._line(f"%r{f.itself} = getelementptr i8, ptr %self, i64 0")
        if self.watch is not None:
            self._count_work(
                _BESIDE_BLOCKS + sum(self.watch.work[i.block] for i in inner if isinstance(i, Run)), self.watch.span)
        self._body(f.body)
        head = [comment(f.name), f"define internal ptr @flow.{self.number}(ptr %run, ptr %self) nounwind {{", "entry:"]
        if slots:
            head.append(f"  %args = alloca [{slots} x ptr], align 8")
        if any(isinstance(i, (Call, Apply)) for i in inner):
            head += [
                "  %frame = alloca i64, align 8",
                "  %frame.at = ptrtoint ptr %frame to i64",
                f"  %limit.at = getelementptr i8, ptr %run, i64 {_LIMIT}",
                "  %limit = load i64, ptr %limit.at",
                "  %deep = icmp ult i64 %frame.at, %limit",
                "  br i1 %deep, label %too.deep, label %start",
                "too.deep:",
                f"  %status.at = getelementptr i8, ptr %run, i64 {_STATUS}",
                f"  store i64 {NO_STACK}, ptr %status.at",
                "  br label %fail",
            ]
        else:
            head.append("  br label %start")
        return "\n".join([*head, "start:", *self.lines, "fail:", "  ret ptr null", "}"])

    def _slots(self, block: int) -> int:
        inputs, outputs = self.program.blocks[block]
        return len(inputs) + len(outputs) + len(self._shared())

    def _shared(self) -> Sequence[int]:
        """Return the offsets in the run of the last arguments of each block."""
        return (_CONSTANTS, _WORKSPACE, *([self.table.slot] if self.table.positions else []))

    # Text

    def _line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def _label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.here = name

    def _new(self) -> str:
        self.names += 1
        return f"%t{self.names}"

    def _at(self, base: str, offset: int) -> str:
        if not offset:
            return base
        name = self._new()
        self._line(f"{name} = getelementptr i8, ptr {base}, i64 {offset}")
        return name

    def _load(self, name: str, place: str, kind: str = "ptr") -> str:
        self._line(f"{name} = load {kind}, ptr {place}")
        return name

    def _size(self, size: Size) -> str:
        """Return a number of bytes or rows as an operand."""
        if isinstance(size, int):
            return str(size)
        table = self._load(self._new(), self._at("%run", self.table.slot))
        return self._load(self._new(), self._at(table, 8 * self.table.positions[size]), "i64")

    def _hold(self, r: Reg) -> None:
        count, more = self._new(), self._new()
        self._line(f"{count} = load i64, ptr %r{r}")
        self._line(f"{more} = add i64 {count}, 1")
        self._line(f"store i64 {more}, ptr %r{r}")

    def _check(self, value: str) -> None:
        """Leave the function if `value` is null."""
        bad = self._new()
        good = f"ok.{bad[1:]}"
        self._line(f"{bad} = icmp eq ptr {value}, null")
        self._line(f"br i1 {bad}, label %fail, label %{good}")
        self._label(good)

    def _take(self, r: Reg, number: int) -> None:
        self._line(f"%r{r} = call ptr @flow.take(ptr %run, i64 {number})")
        self._check(f"%r{r}")

    # Instructions

    def _body(self, body: Body) -> None:
        for i in body:
            match i:
                case Run():
                    self._run(i)
                case If():
                    self._if(i)
                case Choose():
                    self._choose(i)
                case Yield():
                    self.ends[-1].append((i.value, self.here))
                case Hold():
                    self._hold(i.value)
                case Drop():
                    self._line(f"call void @flow.drop(ptr %run, ptr %r{i.value})")
                case Call() | Apply() | TailCall() | TailApply() | Return():
                    self._control(i)
                case _:
                    self._memory(i)

    def _memory(self, i: object) -> None:
        match i:
            case Wrap():
                self._take(i.out, self.cells.wrapper())
                base = self._load(self._new(), self._at("%run", _CONSTANTS))
                self._line(
                    f"store ptr {self._at(base, self.constants[i.constant])}, ptr {self._at(f'%r{i.out}', _FIELDS)}")
            case Zeros():
                self._take(i.out, self.cells.tensor(i.nbytes))
                elements = self._at(f"%r{i.out}", _elements(i.nbytes))
                self._line(f"store ptr {elements}, ptr {self._at(f'%r{i.out}', _FIELDS)}")
                self._line(f"call void @llvm.memset.p0.i64(ptr {elements}, i8 0, i64 {self._size(i.nbytes)}, i1 false)")
            case Update():
                self._update(i)
            case Record():
                self._take(i.out, self.cells.record(len(i.fields)))
                self._line(f"store i32 {i.tag}, ptr {self._at(f'%r{i.out}', 8)}")
                for k, r in enumerate(i.fields):
                    self._line(f"store ptr %r{r}, ptr {self._at(f'%r{i.out}', _FIELDS + 8 * k)}")
            case Field():
                self._load(f"%r{i.out}", self._at(f"%r{i.record}", _FIELDS + 8 * i.index))
                self._hold(i.out)
            case Read():
                self._load(f"%r{i.out}", self._at(f"%r{i.ref}", _FIELDS))
                self._hold(i.out)
            case Write():
                place = self._at(f"%r{i.ref}", _FIELDS)
                old = self._load(self._new(), place)
                self._line(f"store ptr %r{i.value}, ptr {place}")
                self._line(f"call void @flow.drop(ptr %run, ptr {old})")
            case _:
                raise TypeError(i)

    def _update(self, i: Update) -> None:
        """Make a tensor writable, and write the row if its index is valid."""
        self._line(
            f"%r{i.out} = call ptr @flow.writable(ptr %run, ptr %r{i.data}, i64 {self.cells.tensor(i.size)}, i64 "
            f"{_elements(i.size)}, i64 {self._size(i.size)})")
        self._check(f"%r{i.out}")
        elements, row, place = (self._load(self._new(), self._at(f"%r{r}", _FIELDS)) for r in (i.out, i.row, i.index))
        number, wide = self._load(self._new(), place, f"i{i.width}"), self._new()
        self._line(f"{wide} = sext i{i.width} {number} to i64" if i.width < 64 else f"{wide} = add i64 {number}, 0")
        rows, nbytes = self._size(i.rows), self._size(i.nbytes)
        fits, offset, target = self._new(), self._new(), self._new()
        self._line(f"{fits} = icmp ult i64 {wide}, {rows}")
        self._line(f"br i1 {fits}, label %fits.{fits[1:]}, label %past.{fits[1:]}")
        self._label(f"fits.{fits[1:]}")
        self._line(f"{offset} = mul i64 {wide}, {nbytes}")
        self._line(f"{target} = getelementptr i8, ptr {elements}, i64 {offset}")
        self._line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {row}, i64 {nbytes}, i1 false)")
        self._line(f"br label %past.{fits[1:]}")
        self._label(f"past.{fits[1:]}")

    def _run(self, i: Run) -> None:
        """Write the addresses of the elements of inputs and new tensors, then the kernels of the block."""
        sizes = self.program.blocks[i.block]
        places = [self._load(self._new(), self._at(f"%r{r}", _FIELDS)) for r in i.inputs]
        for r, nbytes in zip(i.outputs, sizes[1], strict=True):
            if r in self.in_place:
                self._take(r, self.cells.wrapper())
                elements = self._load(
                    self._new(), self._at(self._load(self._new(), self._at("%run", _OUTPUTS)), 8 * self.in_place[r]))
            else:
                self._take(r, self.cells.tensor(nbytes))
                elements = self._at(f"%r{r}", _elements(nbytes))
            self._line(f"store ptr {elements}, ptr {self._at(f'%r{r}', _FIELDS)}")
            places.append(elements)
        places += [self._load(self._new(), self._at("%run", k)) for k in self._shared()]
        for k, place in enumerate(places):
            self._line(f"store ptr {place}, ptr {self._at('%args', 8 * k)}")
        context = self._load(self._new(), self._at("%run", _CONTEXT))
        looks = self.watch is not None and i.block in self.watch.blocks
        pending = f", ptr {self._load(self._new(), self._at('%run', _PENDING))}" if looks else ""
        status = self._new()
        self._line(f"{status} = call i32 @flow.block.{i.block}(ptr {context}, ptr %args{pending})")
        if looks or i.block in self.program.fallible:
            self._fail_by(status)
        if self.watch is not None and self.watch.work[i.block] >= self.watch.span:
            self._look()

    def _count_work(self, nanoseconds: int, span: int) -> None:
        """Add to the work of the run, and check for signals if the work has reached `span`."""
        place, total, due = self._at("%run", _WORK), self._new(), self._new()
        before = self._load(self._new(), place, "i64")
        self._line(f"{total} = add i64 {before}, {nanoseconds}")
        self._line(f"{due} = icmp uge i64 {total}, {span}")
        left = self._new()
        self._line(f"{left} = select i1 {due}, i64 0, i64 {total}")
        self._line(f"store i64 {left}, ptr {place}")
        self._line(f"br i1 {due}, label %look.{due[1:]}, label %on.{due[1:]}")
        self._label(f"look.{due[1:]}")
        self._look()
        self._line(f"br label %on.{due[1:]}")
        self._label(f"on.{due[1:]}")

    def _look(self) -> None:
        """Leave the function if the handler of a signal has raised."""
        pending, status = self._load(self._new(), self._at("%run", _PENDING)), self._new()
        self._line(f"{status} = call i32 @tw_look(ptr {pending})")
        self._fail_by(status)

    def _fail_by(self, status: str) -> None:
        """If `status` is not 0, leave the function and end the program with it."""
        wide, done = self._new(), self._new()
        self._line(f"{wide} = sext i32 {status} to i64")
        self._line(f"store i64 {wide}, ptr {self._at('%run', _STATUS)}")
        self._line(f"{done} = icmp eq i32 {status}, 0")
        self._line(f"br i1 {done}, label %done.{done[1:]}, label %fail")
        self._label(f"done.{done[1:]}")

    def _control(self, i: Call | Apply | TailCall | TailApply | Return) -> None:
        if isinstance(i, Return):
            self._line(f"ret ptr %r{i.value}")
            return
        for k, r in enumerate(i.args):
            self._line(f"store ptr %r{r}, ptr {self._at('%run', _ARGS + 8 * k)}")
        if isinstance(i, (Call, TailCall)):
            code, closure = f"@flow.{i.callee}", "null"
        else:
            closure = f"%r{i.closure}"
            tag, wide, slot = self._load(self._new(), self._at(closure, 8), "i32"), self._new(), self._new()
            self._line(f"{wide} = zext i32 {tag} to i64")
            self._line(f"{slot} = getelementptr ptr, ptr @flow.code, i64 {wide}")
            code = self._load(self._new(), slot)
        if isinstance(i, (Call, Apply)):
            self._line(f"%r{i.out} = call ptr {code}(ptr %run, ptr {closure})")
            self._check(f"%r{i.out}")
        else:
            result = self._new()
            self._line(f"{result} = musttail call ptr {code}(ptr %run, ptr {closure})")
            self._line(f"ret ptr {result}")

    def _branch(self, label: str, body: Body, join: str | None) -> None:
        self._label(label)
        self._branch_body(body, join)

    def _branch_body(self, body: Body, join: str | None) -> None:
        before = len(self.ends[-1])
        self._body(body)
        if join is not None and len(self.ends[-1]) > before:
            self._line(f"br label %{join}")

    def _join(self, out: Reg | None, join: str) -> None:
        ends = self.ends.pop()
        if out is None:
            return
        self._label(join)
        values = ", ".join(f"[ %r{r}, %{label} ]" for r, label in ends)
        self._line(f"%r{out} = phi ptr {values}" if ends else f"%r{out} = inttoptr i64 0 to ptr")

    def _if(self, i: If) -> None:
        name = self._new()[1:]
        place = self._load(self._new(), self._at(f"%r{i.cond}", _FIELDS))
        byte, true = self._load(self._new(), place, "i8"), self._new()
        self._line(f"{true} = icmp ne i8 {byte}, 0")
        self._line(f"br i1 {true}, label %then.{name}, label %else.{name}")
        join = None if i.out is None else f"join.{name}"
        self.ends.append([])
        self._branch(f"then.{name}", i.then, join)
        self._branch(f"else.{name}", i.other, join)
        self._join(i.out, f"join.{name}")

    def _choose(self, i: Choose) -> None:
        name = self._new()[1:]
        join = None if i.out is None else f"join.{name}"
        self.ends.append([])
        for k, case in enumerate(i.cases):
            self._line(f"br label %case.{name}.{k}")
            self._label(f"case.{name}.{k}")
            found: dict[tuple[int, ...], str] = {(): f"%r{i.value}"}
            for path, tag in case.tests:
                same = self._new()
                has = self._load(self._new(), self._at(self._follow(path, found), 8), "i32")
                self._line(f"{same} = icmp eq i32 {has}, {tag}")
                self._line(f"br i1 {same}, label %fits.{same[1:]}, label %not.{name}.{k}")
                self._label(f"fits.{same[1:]}")
            for r, path in case.binds:
                self._line(f"%r{r} = getelementptr i8, ptr {self._follow(path, found)}, i64 0")
                self._hold(r)
            self._branch_body(case.body, join)
            self._label(f"not.{name}.{k}")
        self._line(f"store i64 {FIRST_MESSAGE + i.site}, ptr {self._at('%run', _STATUS)}")
        self._line("br label %fail")
        self._join(i.out, f"join.{name}")

    def _follow(self, path: tuple[int, ...], found: dict[tuple[int, ...], str]) -> str:
        """Return the record at a path, loaded once for each case."""
        known = found.get(path)
        if known is None:
            known = found[path] = self._load(
                self._new(), self._at(self._follow(path[:-1], found), _FIELDS + 8 * path[-1]))
        return known


def _entry(flow: ControlFlow, cells: _Cells, table: _Table, lists: int) -> str:
    """Return `tw_run`, or the function that does its work: it sets up a run, calls `main`, and copies outputs that are
    not in place.

    The output of a boxed program is two words: the cell of the value, and the first of the linked chunks that hold it,
    which the caller frees. An input that is a record is one word, the address of a cell that is never released.
    """
    program, looks = flow.program, flow.watch is not None
    inputs, outputs = len(program.functions[0].params), len(program.results) + program.is_boxed
    wrapper = cells.wrapper()
    size = lists + 8 * len(cells.known) * (2 if flow.sizes else 1)
    text = _Text(program, (), cells, 0, table)

    def keep(offset: int, value: str, kind: str = "ptr") -> None:
        text._line(f"store {kind} {value}, ptr {text._at('%run', offset)}")

    def argument(k: int) -> str:
        return text._load(text._new(), text._at("%args", 8 * k))

    text._line(f"call void @llvm.memset.p0.i64(ptr %run, i8 0, i64 {size}, i1 false)")
    text._line(f"store i64 {NO_MEMORY}, ptr {text._at('%run', _STATUS)}")
    keep(_CONTEXT, "%ctx")
    if looks:
        keep(_PENDING, "%pending")
    keep(_OUTPUTS, text._at("%args", 8 * inputs))
    keep(_CONSTANTS, argument(inputs + outputs))
    workspace = argument(inputs + outputs + 1)
    keep(_WORKSPACE, workspace)
    if flow.sizes:
        keep(table.slot, argument(inputs + outputs + 2))
        _fill_sizes(text, cells, lists + 8 * len(cells.known))
    if not program.is_boxed:  # the value outlives the call, but its workspace does not
        keep(_FREE_FROM, text._at(workspace, flow.workspace_bytes))
        keep(_FREE_TO, text._at(workspace, flow.workspace_bytes + FIRST_CHUNK))
    if any(isinstance(i, (Call, Apply)) for f in program.functions for i in walk(f.body)):
        text._line("%limit = call i64 @flow.limit(ptr %run)")
        keep(_LIMIT, "%limit", "i64")
    for k in range(inputs):
        if k in program.records:
            text._load(f"%r{k}", argument(k))
        else:
            text._take(k, wrapper)
            text._line(f"store ptr {argument(k)}, ptr {text._at(f'%r{k}', _FIELDS)}")
        keep(_ARGS + 8 * k, f"%r{k}")
    text._line("%result = call ptr @flow.0(ptr %run, ptr null)")
    text._check("%result")
    for k, (path, nbytes) in enumerate(zip(program.results, flow.result_bytes, strict=True)):
        elements, target = text._load(
            text._new(), text._at(text._follow(path, {(): "%result"}), _FIELDS)
        ), argument(inputs + k)
        there = text._new()
        text._line(f"{there} = icmp eq ptr {elements}, {target}")
        text._line(f"br i1 {there}, label %there.{k}, label %copy.{k}")
        text._label(f"copy.{k}")
        length = text._size(nbytes)
        text._line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {elements}, i64 {length}, i1 false)")
        text._line(f"br label %there.{k}")
        text._label(f"there.{k}")
    if program.is_boxed:
        target = argument(inputs)
        text._line(f"store ptr %result, ptr {target}")
        chunks = text._load(text._new(), text._at("%run", _CHUNKS))
        text._line(f"store ptr {chunks}, ptr {text._at(target, 8)}")
    return "\n".join([
        "define internal i32 @tw_run.steps(ptr %ctx, ptr %args, ptr %pending) nounwind {" if looks
        else "define i32 @tw_run(ptr %ctx, ptr %args) nounwind {",
        "entry:", f"  %run = alloca [{size} x i8], align 16", *text.lines,
        *([] if program.is_boxed else ["  call void @flow.finish(ptr %run)"]), "  ret i32 0", "fail:",
        f"  %status.at = getelementptr i8, ptr %run, i64 {_STATUS}",
        "  %status = load i64, ptr %status.at", "  call void @flow.finish(ptr %run)",
        "  %short = trunc i64 %status to i32", "  ret i32 %short", "}",
    ])


def _fill_sizes(text: _Text, cells: _Cells, offset: int) -> None:
    """Write the bytes of each class of cells into the run, from this offset on."""
    for k, (size, _) in enumerate(cells.known):
        nbytes = str(size)
        if isinstance(size, str):
            more, nbytes = text._new(), text._new()
            text._line(f"{more} = add i64 {text._size(size)}, {_FAR + _LINE - 1}")
            text._line(f"{nbytes} = and i64 {more}, {-_LINE}")
        text._line(f"store i64 {nbytes}, ptr {text._at('%run', offset + 8 * k)}")
