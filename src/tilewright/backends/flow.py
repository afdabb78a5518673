"""The control language of programs between their kernels: functions over registers, branches, calls and cells.

Every value is a cell: a tensor, or a record of other cells (a tuple, a value of a data type, a closure, a reference).
Cells are reference-counted. Types are erased: a polymorphic function is one function. Straight-line parts are blocks,
`Run` of kernels over tensors.

    instruction ::= Run(outputs, block, inputs) | Wrap(out, constant) | Record(out, tag, fields)
                  | Field(out, record, index) | Read(out, ref) | Write(ref, value) | Call(out, callee, args)
                  | Apply(out, closure, args) | If(out, cond, then, other) | Choose(out, value, cases, site)
                  | Zeros(out, nbytes) | Update(out, data, row, index, rows, nbytes, size, width)
                  | Hold(value) | Drop(value)
    end         ::= Yield(value) | Return(value) | TailCall(callee, args) | TailApply(closure, args)

Numbers of bytes and rows are arithmetic over the symbols of the program (`runtime/sizes.py`) where sizes are dynamic.

A `Body` is a list of instructions whose last is an end. An `If` or `Choose` without `out` is an end, too: its branches
end the function. `backends/ownership.py` inserts `Hold` and `Drop`; before that, bodies never free cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.runtime.sizes import Size

Reg: TypeAlias = int
"""The number of a value in a function; it is set once on every path."""


@dataclass(slots=True)
class Run:
    """Runs block number `block`: kernels from tensors to new tensors."""

    outputs: tuple[Reg, ...]
    block: int
    inputs: tuple[Reg, ...]


@dataclass(slots=True)
class Wrap:
    """A constant tensor as a value, without a copy of its elements."""

    out: Reg
    constant: int


@dataclass(slots=True)
class Zeros:
    """A new tensor of zero bytes."""

    out: Reg
    nbytes: Size


@dataclass(slots=True)
class Update:
    """The tensor `data` (`rows` rows of `nbytes` bytes, `size` bytes in total) with one row replaced.

    It is replaced in place if there is no other reference to `data`. `index` is a tensor of one integer of
    `width` bits; an index outside the rows changes nothing.
    """

    out: Reg
    data: Reg
    row: Reg
    index: Reg
    rows: Size
    nbytes: Size
    size: Size
    width: int


@dataclass(slots=True)
class Record:
    """A new record. `tag` is the number of a constructor or of a closure's function, or 0."""

    out: Reg
    tag: int
    fields: tuple[Reg, ...]


@dataclass(slots=True)
class Field:
    out: Reg
    record: Reg
    index: int


@dataclass(slots=True)
class Read:
    """The value of a reference."""

    out: Reg
    ref: Reg


@dataclass(slots=True)
class Write:
    ref: Reg
    value: Reg


@dataclass(slots=True)
class Call:
    """A call of function number `callee`; a `TailCall` replaces its caller."""

    out: Reg
    callee: int
    args: tuple[Reg, ...]


@dataclass(slots=True)
class Apply:
    """A call of a closure."""

    out: Reg
    closure: Reg
    args: tuple[Reg, ...]


@dataclass(slots=True)
class If:
    """A branch on the one byte of the tensor `cond`."""

    out: Reg | None
    cond: Reg
    then: Body
    other: Body


@dataclass(slots=True)
class Case:
    """A case of `Choose`: it matches if the record at each path of `tests` has the given tag.

    `binds` are registers for the values at paths.
    """

    tests: tuple[tuple[tuple[int, ...], int], ...]
    binds: tuple[tuple[Reg, tuple[int, ...]], ...]
    body: Body


@dataclass(slots=True)
class Choose:
    """The first case that matches `value`; without one, the program fails with message number `site`."""

    out: Reg | None
    value: Reg
    cases: tuple[Case, ...]
    site: int


@dataclass(slots=True)
class Hold:
    """Increments the reference count of a cell."""

    value: Reg


@dataclass(slots=True)
class Drop:
    """Decrements the reference count of a cell, which is freed at zero."""

    value: Reg


@dataclass(slots=True)
class Yield:
    """The value of a branch."""

    value: Reg


@dataclass(slots=True)
class Return:
    value: Reg


@dataclass(slots=True)
class TailCall:
    callee: int
    args: tuple[Reg, ...]


@dataclass(slots=True)
class TailApply:
    closure: Reg
    args: tuple[Reg, ...]


Instruction: TypeAlias = (
    Run | Wrap | Zeros | Update | Record | Field | Read | Write | Call | Apply | If | Choose | Hold | Drop | Yield
    | Return | TailCall | TailApply
)
Body: TypeAlias = list[Instruction]


@dataclass(slots=True)
class FlowFunction:
    """A function. `captured` are registers that are filled from the record of its closure; `itself` is the register of
    that record."""

    name: str
    params: tuple[Reg, ...] = ()
    captured: tuple[Reg, ...] = ()
    itself: Reg | None = None
    body: Body = field(default_factory=list)

    def __repr__(self) -> str:
        seen = f" [{', '.join(map(_reg, self.captured))}]" if self.captured else ""
        own = "" if self.itself is None else f" as {_reg(self.itself)}"
        return "\n".join([f"{self.name}({', '.join(map(_reg, self.params))}){seen}{own}:", *_lines(self.body, "  ")])


@dataclass(slots=True)
class FlowProgram:
    """Functions by number; `main` is the first. `blocks` are the bytes of the inputs and outputs of each block.

    `results` are the paths to the output tensors from the result of `main`. `messages` are those of failures.
    `fallible` are the blocks that may fail, in a call or for lack of memory. `records` are the parameters of `main`
    that are cells of the caller. If `is_boxed`, `main` has no `results`: its only output is the address of its value.
    """

    functions: list[FlowFunction]
    blocks: list[tuple[tuple[Size, ...], tuple[Size, ...]]]
    results: tuple[tuple[int, ...], ...]
    messages: list[str]
    fallible: set[int] = field(default_factory=set)
    records: frozenset[int] = frozenset()
    is_boxed: bool = False

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.functions))


def bodies(i: Any) -> Sequence[Body]:
    """Return the branches of an instruction."""
    if isinstance(i, If):
        return (i.then, i.other)
    return tuple(c.body for c in i.cases) if isinstance(i, Choose) else ()


def walk(body: Body) -> Iterator[Instruction]:
    """Yield every instruction, branches included."""
    for i in body:
        yield i
        for inner in bodies(i):
            yield from walk(inner)


def sizes_of(program: FlowProgram) -> Iterator[Size]:
    """Yield the numbers of bytes and rows that the functions of a program need."""
    for _, outputs in program.blocks:
        yield from outputs
    for f in program.functions:
        for i in walk(f.body):
            if isinstance(i, Zeros):
                yield i.nbytes
            elif isinstance(i, Update):
                yield from (i.rows, i.nbytes, i.size)


def has_calls(program: FlowProgram) -> bool:
    """Return whether functions call each other; without calls there are no loops."""
    return any(isinstance(i, (Call, Apply, TailCall, TailApply)) for f in program.functions for i in walk(f.body))


def written_in_place(program: FlowProgram) -> dict[Reg, int]:
    """Return the registers of `main` that are outputs written directly into the memory of the caller, each with its
    output.

    These are results of blocks that run once, in a `main` that is not called and has a single end. Results of branches
    and calls are copied.
    """
    main, everything = program.functions[0], [i for f in program.functions for i in walk(f.body)]
    again = any(
        (isinstance(i, (Call, TailCall)) and i.callee == 0) or (isinstance(i, Record) and i.tag == 0 and not i.fields)
        for i in everything)
    end = main.body[-1] if main.body else None
    if again or not isinstance(end, Return):
        return {}
    fields = {i.out: i.fields for i in main.body if isinstance(i, Record)}
    made = {r for i in main.body if isinstance(i, Run) for r in i.outputs}
    found: dict[Reg, int] = {}
    for number, path in enumerate(program.results):
        at: Reg | None = end.value
        for step in path:
            at = fields[at][step] if at in fields else None
        if at in made:
            found.setdefault(at, number)
    return found


def _reg(r: Reg) -> str:
    return f"%{r}"


def _regs(values: Sequence[Reg]) -> str:
    return ", ".join(map(_reg, values))


def _path(path: Sequence[int]) -> str:
    return "".join(f".{k}" for k in path) or "."


def _lines(body: Body, indent: str) -> Iterator[str]:
    for i in body:
        match i:
            case If():
                yield f"{indent}{_set(i.out)}if {_reg(i.cond)}:"
                yield from _lines(i.then, indent + "  ")
                yield f"{indent}else:"
                yield from _lines(i.other, indent + "  ")
            case Choose():
                yield f"{indent}{_set(i.out)}choose {_reg(i.value)}, else fail {i.site}:"
                for c in i.cases:
                    tests = ", ".join(f"{_path(p)} is {t}" for p, t in c.tests) or "always"
                    binds = "".join(f"; {_reg(r)} = {_path(p)}" for r, p in c.binds)
                    yield f"{indent}  case {tests}{binds}:"
                    yield from _lines(c.body, indent + "    ")
            case _:
                yield indent + _line(i)


def _set(out: Reg | None) -> str:
    return "" if out is None else f"{_reg(out)} = "


def _line(i: Instruction) -> str:
    match i:
        case Run(outputs, block, inputs):
            return f"{_regs(outputs)} = run block {block}({_regs(inputs)})"
        case Wrap(out, constant):
            return f"{_reg(out)} = constant {constant}"
        case Zeros(out, nbytes):
            return f"{_reg(out)} = zeros {nbytes}"
        case Update(out, data, row, index, rows, nbytes):
            return f"{_reg(out)} = update {_reg(data)}[{_reg(index)}] = {_reg(row)} of {rows} x {nbytes}"
        case Record(out, tag, fields):
            return f"{_reg(out)} = record {tag}({_regs(fields)})"
        case Field(out, record, index):
            return f"{_reg(out)} = {_reg(record)}.{index}"
        case Read(out, ref):
            return f"{_reg(out)} = read {_reg(ref)}"
        case Write(ref, value):
            return f"write {_reg(ref)}, {_reg(value)}"
        case Call(out, callee, args):
            return f"{_reg(out)} = call {callee}({_regs(args)})"
        case Apply(out, closure, args):
            return f"{_reg(out)} = apply {_reg(closure)}({_regs(args)})"
        case TailCall(callee, args):
            return f"jump {callee}({_regs(args)})"
        case TailApply(closure, args):
            return f"jump {_reg(closure)}({_regs(args)})"
        case Hold() | Drop() | Yield() | Return():
            return f"{type(i).__name__.lower()} {_reg(i.value)}"
        case _:
            raise TypeError(i)
