"""The elements of buffers that expressions and stores access, each with the conditions of the access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

from tilewright.base.errors import CompileError
from tilewright.base.graphs import post_order
from tilewright.base.memory_faults import READ, WRITE
from tilewright.scalar.expr import (
    And,
    Broadcast,
    Buffer,
    Call,
    Load,
    Or,
    PrimExpr,
    Ramp,
    Select,
    add,
    as_expr,
    cast,
    const,
    logical_not,
    mul,
    sub,
)
from tilewright.scalar.intrinsics import address_of, expect, prefetch, stride_of
from tilewright.tir.stmt import Stmt, Store, expressions

_MOST_WAYS: Final = 256
"""Maximum number of combinations of conditions under which one expression is visited."""
_NO_READS: Final = (prefetch, stride_of, expect)
"""Intrinsics that do not read the element given as their argument."""



@dataclass(frozen=True, slots=True)
class Access:
    """An element that is read or written if all conditions of `path` hold.

    `seen` is the expression shown in the program's text; `reads` is true if the program uses the element's value.
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    path: tuple[PrimExpr, ...]
    kind: str
    seen: PrimExpr
    reads: bool = True


Accesses: TypeAlias = dict[Access, None]


def accesses_of(s: Stmt) -> list[Access]:
    """Return the accesses of a statement itself, without its body, in the order of evaluation."""
    found: Accesses = {}
    reads = _Reads(found)
    for e in expressions(s):
        reads.collect(e)
    if isinstance(s, Store):
        _collect_element(
            s.buffer, s.indices, () if s.mask is None else (s.mask,), WRITE, Load(s.buffer, s.indices), found)
    return list(found)


class _Reads:
    """Collects the elements that expressions read; the elements that an index or a condition reads come first.

    A shared subexpression is visited once for each sequence of conditions that leads to it, unless a prefix of that
    sequence was visited.
    """

    def __init__(self, found: Accesses) -> None:
        self.found = found
        self.ways: dict[PrimExpr, list[tuple[PrimExpr, ...]]] = {}
        self.denied: dict[PrimExpr, PrimExpr] = {}

    def collect(self, e: PrimExpr, path: tuple[PrimExpr, ...] = ()) -> None:
        """Add the elements that `e` reads if all conditions of `path` hold. Raises `CompileError` for too many
        combinations of conditions."""
        ways = self.ways.setdefault(e, [])
        if any(len(way) <= len(path) and all(a is b for a, b in zip(way, path, strict=False)) for way in ways):
            return
        if len(ways) == _MOST_WAYS:
            raise CompileError(
                f"the accesses of an expression of {e.dtype} cannot be checked: more than {_MOST_WAYS} "
                "combinations of conditions lead to it; store the value that the branches share in a "
                "buffer, or disable tir.instrument_*", code="TW0412")
        ways.append(path)
        if isinstance(e, Select):
            self.collect(e.condition, path)
            self._collect_shared(e.true_value, e.false_value, path)
            self.collect(e.true_value, (*path, e.condition))
            self.collect(e.false_value, (*path, self._not(e.condition)))
        elif _is_short(e):
            self.collect(e.a, path)
            self.collect(e.b, (*path, e.a if isinstance(e, And) else self._not(e.a)))
        elif isinstance(e, Call) and e.op in _NO_READS:
            return
        elif isinstance(e, Call) and e.op is address_of and isinstance(e.args[0], Load):
            self._collect_box(e, e.args[0], path)
        else:
            for operand in e.operands():
                self.collect(operand, path)
            if isinstance(e, Load):
                _collect_element(e.buffer, e.indices, path, READ, e, self.found)

    def _not(self, condition: PrimExpr) -> PrimExpr:
        if condition not in self.denied:
            self.denied[condition] = logical_not(condition)
        return self.denied[condition]

    def _collect_shared(self, a: PrimExpr, b: PrimExpr, path: tuple[PrimExpr, ...]) -> None:
        """Add the elements that both sides of a choice read unconditionally."""
        first = set(_always(a))
        if len(first) > 1:
            for e in _always(b):
                if e in first:
                    self.collect(e, path)

    def _collect_box(self, e: Call, load: Load, path: tuple[PrimExpr, ...]) -> None:
        """Add the first and the last element of the region that is passed to an external function."""
        for i in load.indices:
            self.collect(i, path)
        kind = WRITE if as_expr(e.args[1]) is const(2, e.args[1].dtype) else READ
        sizes = e.args[2:] if len(e.args) - 2 == len(load.indices) else [as_expr(1)] * len(load.indices)
        last = tuple(add(i, sub(cast(i.dtype, n), 1)) for i, n in zip(load.indices, sizes, strict=True))
        for at in dict.fromkeys((load.indices, last)):
            self.found.setdefault(Access(load.buffer, at, path, kind, load, False))


def _is_short(e: PrimExpr) -> TypeGuard[And | Or]:
    """Return whether the second operand is evaluated only if the first does not decide the result."""
    return isinstance(e, And | Or) and e.dtype.lanes == 1


def _always(root: PrimExpr) -> list[PrimExpr]:
    """Return the subexpressions that are evaluated unconditionally, operands first."""
    def below(e: PrimExpr) -> list[PrimExpr]:
        found = (e.condition,) if isinstance(e, Select) else (e.a,) if _is_short(e) else e.operands()
        return [o for o in found if reads(o)]

    def reads(e: PrimExpr) -> bool:
        return not (isinstance(e, Call) and e.op in (*_NO_READS, address_of))

    return post_order([root], below) if reads(root) else []


def _collect_element(
    buffer: Buffer, indices: tuple[PrimExpr, ...], path: tuple[PrimExpr, ...], kind: str, seen: PrimExpr,
    found: Accesses
) -> None:
    """Add an element, or the elements of a vector: only the first and the last of consecutive elements."""
    lanes = max((i.dtype.lanes for i in indices), default=1)
    in_row = (
        all(isinstance(i, Ramp | Broadcast) or i.dtype.lanes == 1 for i in indices)
        and all(c.dtype.lanes == 1 for c in path)
    )
    for k in (0, lanes - 1) if in_row and lanes > 1 else range(lanes):
        at, conditions = tuple(_lane(i, k) for i in indices), tuple(_lane(c, k) for c in path)
        if kind == WRITE or Access(buffer, at, (), kind, seen) not in found:
            found.setdefault(Access(buffer, at, conditions, kind, seen, kind == READ))


def _lane(e: PrimExpr, k: int) -> PrimExpr:
    """Return lane `k` of a vector expression."""
    if e.dtype.lanes == 1:
        return e
    match e:
        case Ramp():
            return add(e.base, mul(e.stride, const(k, e.base.dtype)))
        case Broadcast():
            return e.value
        case Call():
            return Call(e.dtype.element, e.op, [_lane(a, k) for a in e.args])
        case _:
            return e.with_operands([_lane(x, k) for x in e.operands()])
