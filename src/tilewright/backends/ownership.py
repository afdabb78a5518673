"""Inserts `Hold` and `Drop` into functions of the control language, so that every cell is freed after its last use.

A register owns one count of its cell. An instruction that takes a value over (a field of a record, an argument, a
result) takes the count with it; a value that is needed later is held once more before. A value that is only read is
dropped after its last use, or at the start of a branch that does not need it.

    %2 = record 0(%1, %1); %3 = %2.0; return %3  ->  hold %1; %2 = record 0(%1, %1); %3 = %2.0; drop %2; return %3

A loop that is a tail call owns only its arguments when it jumps, so its memory does not grow. Cells that refer to each
other in a cycle, which only references can make, are freed at the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.backends.flow import (
    Apply,
    Body,
    Call,
    Case,
    Choose,
    Drop,
    Field,
    FlowFunction,
    Hold,
    If,
    Instruction,
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
)


def own(function: FlowFunction) -> FlowFunction:
    """Return the function with every cell freed after its last use."""
    body, needed = _owned(function.body, set())
    given = [*function.params, *function.captured, *([] if function.itself is None else [function.itself])]
    return FlowFunction(
        function.name, function.params, function.captured, function.itself, [*_drops(given, needed), *body])


def _owned(body: Body, needed: set[Reg]) -> tuple[Body, set[Reg]]:
    """Return the body with counts, and the registers that it needs; `needed` are those that are needed after it."""
    needed = set(needed)
    done: Body = []  # in reverse order
    for i in reversed(body):
        if isinstance(i, (If, Choose)):
            needed = _branches(i, needed, done)
            continue
        made, looked, taken = _uses(i)
        done += [Drop(r) for r in made if r not in needed]
        needed.difference_update(made)
        done += [Drop(r) for r in dict.fromkeys(looked) if r not in needed]
        done.append(i)
        held: set[Reg] = set()
        for r in taken:
            if r in needed or r in held:
                done.append(Hold(r))
            held.add(r)
        needed.update(looked, taken)
    done.reverse()
    return done, needed


def _branches(i: If | Choose, needed: set[Reg], done: Body) -> set[Reg]:
    """Insert the counts into the branches of `i`; return the registers that are needed before it."""
    if i.out is not None:
        if i.out not in needed:
            done.append(Drop(i.out))
        needed = needed - {i.out}
    asked = i.cond if isinstance(i, If) else i.value
    if isinstance(i, If):
        branches = [_owned(i.then, needed), _owned(i.other, needed)]
        before = {asked}.union(*(n for _, n in branches))
        done.append(If(i.out, i.cond, *([*_drops(before, n), *b] for b, n in branches)))
        return before
    inner = [_owned(c.body, needed) for c in i.cases]
    bound = [{r for r, _ in c.binds} for c in i.cases]
    before = {asked}.union(*(n - b for (_, n), b in zip(inner, bound, strict=True)))
    cases = [
        Case(c.tests, tuple((r, p) for r, p in c.binds if r in n), [*_drops(before, n), *b])
        for c, (b, n) in zip(i.cases, inner, strict=True)]
    done.append(Choose(i.out, i.value, tuple(cases), i.site))
    return before


def _drops(owned: Iterable[Reg], needed: set[Reg]) -> list[Instruction]:
    return [Drop(r) for r in sorted(owned) if r not in needed]


def _uses(i: Instruction) -> tuple[Sequence[Reg], Sequence[Reg], Sequence[Reg]]:
    """Return the registers that an instruction sets, reads, and takes over; these sets are disjoint."""
    match i:
        case Run():
            return i.outputs, i.inputs, ()
        case Wrap() | Zeros():
            return (i.out,), (), ()
        case Update():
            return (i.out,), (i.row, i.index), (i.data,)
        case Record():
            return (i.out,), (), i.fields
        case Field():
            return (i.out,), (i.record,), ()
        case Read():
            return (i.out,), (i.ref,), ()
        case Write():
            return (), (i.ref,), (i.value,)
        case Call():
            return (i.out,), (), i.args
        case Apply():
            return (i.out,), (), (i.closure, *i.args)
        case Yield() | Return():
            return (), (), (i.value,)
        case TailCall():
            return (), (), i.args
        case TailApply():
            return (), (), (i.closure, *i.args)
        case _:
            raise TypeError(i)
