"""Finds the values that no clause of a match covers.

Maranget, Warnings for pattern matching (2007): clauses are rows of patterns. An uncovered case is found by trying every
constructor of the first column, and recursing into its fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.module import IRModule
from tilewright.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)

Row = tuple[Pattern, ...]


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Return patterns of values that no clause covers; empty if the match is complete. `mod` has the definitions of the
    data types."""
    return [row[0] for row in _missing([(c.lhs,) for c in match.clauses], 1, mod)]


def _missing(rows: Sequence[Row], width: int, mod: IRModule | None) -> list[Row]:
    """Return rows of `width` patterns that match no row of `rows`."""
    if not width:
        return [] if rows else [()]
    heads = [r[0] for r in rows if isinstance(r[0], (PatternConstructor, PatternTuple))]
    if not heads:
        return [(PatternWildcard(), *rest) for rest in _missing([r[1:] for r in rows], width - 1, mod)]
    first = heads[0]
    if isinstance(first, PatternTuple):
        found = _missing([_opened(r, len(first.patterns)) for r in rows], len(first.patterns) + width - 1, mod)
        return [(PatternTuple(f[: len(first.patterns)]), *f[len(first.patterns) :]) for f in found]
    missing: list[Row] = []
    for c in _siblings(first.constructor, heads, mod):
        fitting = [_opened(r, len(c.inputs)) for r in rows if not isinstance(r[0], PatternConstructor)
                   or r[0].constructor.tag == c.tag]
        missing += [(PatternConstructor(c, f[: len(c.inputs)]), *f[len(c.inputs) :])
                    for f in _missing(fitting, len(c.inputs) + width - 1, mod)]
    return missing


def _opened(row: Row, fields: int) -> Row:
    """Return a row with its first pattern replaced by the fields of that pattern."""
    head = row[0]
    if isinstance(head, (PatternVar, PatternWildcard)):
        return (*(PatternWildcard() for _ in range(fields)), *row[1:])
    assert isinstance(head, (PatternTuple, PatternConstructor))
    return (*head.patterns, *row[1:])


def _siblings(c: Constructor, heads: Sequence[Pattern], mod: IRModule | None) -> Sequence[Constructor]:
    """Return all constructors of the data type of `c`; without a module, those that the clauses name."""
    if mod is not None and c.belong_to in mod.type_definitions:
        found: Sequence[Constructor] = mod[c.belong_to].constructors
        return found
    named = {h.constructor.tag: h.constructor for h in heads if isinstance(h, PatternConstructor)}
    return [named[tag] for tag in sorted(named)]
