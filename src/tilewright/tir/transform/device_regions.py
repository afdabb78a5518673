"""Attributes that mark the parts of a function for another device.

    A[0] = 0.0    ->    with T.attr(0, "device_scope", 0): A[0] = 0.0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.ir.structural import structural_equal
from tilewright.scalar.expr import as_expr
from tilewright.tir.stmt import (
    THREAD,
    Allocate,
    AttrStmt,
    For,
    IfThenElse,
    PrimFunc,
    Seq,
    Stmt,
    bodies,
    map_bodies,
    seq,
)


def mark_device_scope(func: PrimFunc) -> PrimFunc:
    """Put the whole body into an attribute `device_scope`."""
    return func.with_body(AttrStmt(0, "device_scope", as_expr(0), func.body))


def annotate_device_regions(func: PrimFunc) -> PrimFunc:
    """Put each outermost loop over threads, and each attribute `device_scope`, into an attribute `target`, whose node
    is the target of the function without its host. A function without a target stays."""
    target = func.attrs.get("target")
    if target is None:
        return func
    return func.with_body(_annotated(func.body, target.without_host()))


def _annotated(s: Stmt, target: Any) -> Stmt:
    is_region = (isinstance(s, For) and THREAD in s.annotations) or (
        isinstance(s, AttrStmt) and s.attr_key == "device_scope")
    if is_region:
        return AttrStmt(target, "target", as_expr(0), s)
    if isinstance(s, AttrStmt) and s.attr_key == "target":
        return s
    return map_bodies(s, lambda b: _annotated(b, target)) or s


def lift_attributes(func: PrimFunc, key: str) -> PrimFunc:
    """Move attributes of one key outwards, as far as all statements around have the same one, but not out of
    allocations.

    for i: with T.attr(c, key, 1): A[i] = 0    ->    with T.attr(c, key, 1): for i: A[i] = 0

    Of a sequence, neighbours with the same attribute share one.
    """
    body, outer = _lifted(func.body, key)
    return func.with_body(_around(outer, body))


Attribute = AttrStmt | None


def _around(attribute: Attribute, body: Stmt) -> Stmt:
    return body if attribute is None else replace(attribute, body=body)


def _lifted(s: Stmt, key: str) -> tuple[Stmt, Attribute]:
    """Return a statement without the attribute that holds for all of it, and this attribute."""
    if isinstance(s, AttrStmt) and s.attr_key == key:
        body, inner = _lifted(s.body, key)
        return (body, s) if inner is None or _same(s, inner) else (_around(inner, body), s)
    if isinstance(s, Seq):
        return _lifted_sequence(s, key)
    if isinstance(s, IfThenElse) and s.else_case is not None:
        (then, first), (other, second) = _lifted(s.then_case, key), _lifted(s.else_case, key)
        if first is not None and second is not None and _same(first, second):
            return replace(s, then_case=then, else_case=other), first
        return replace(s, then_case=_around(first, then), else_case=_around(second, other)), None
    if len(bodies(s)) != 1:
        return s, None
    body, outer = _lifted(bodies(s)[0], key)
    if isinstance(s, Allocate):
        return replace(s, body=_around(outer, body)), None
    return map_bodies(s, lambda _: body) or s, outer


def _lifted_sequence(s: Seq, key: str) -> tuple[Stmt, Attribute]:
    groups: list[tuple[Attribute, list[Stmt]]] = []
    for body, outer in (_lifted(x, key) for x in s.stmts):
        last = groups[-1][0] if groups else None
        if groups and ((outer is None and last is None) or (
                outer is not None and last is not None and _same(outer, last))):
            groups[-1][1].append(body)
        else:
            groups.append((outer, [body]))
    if len(groups) == 1:
        return seq(*groups[0][1]), groups[0][0]
    return seq(*(_around(outer, seq(*parts)) for outer, parts in groups)), None


def _same(a: AttrStmt, b: AttrStmt) -> bool:
    return a.node is b.node and structural_equal(a.value, b.value)
