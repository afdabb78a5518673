"""Fusion of consecutive loop nests (`merge`), and splitting of a loop into consecutive ones (`loop_partition`).

Both change only the order of trips, or their distribution over loops, and not what a trip computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, linear
from tilewright.scalar.expr import Buffer, IntImm, Var, add, as_expr, const
from tilewright.scalar.walk import walk
from tilewright.tir.legality import fault
from tilewright.tir.region import region_of
from tilewright.tir.stmt import (
    ROLLING,
    SERIAL,
    Block,
    For,
    PrimFunc,
    Seq,
    Stmt,
    block_names,
    loaded_buffers,
    map_bodies,
    path_to,
    replaced,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.lower_blocks import mixed_loops


def merge(func: PrimFunc, loops: Sequence[For]) -> tuple[PrimFunc, Var]:
    """Merge consecutive nests from their outermost loops down to the given ones.

    Return the inner merged variable.

    for i: for j: B[i, j] = …;  for i: for j: C[i, j] = B[i, j]
        ->  for i_m: { for j: B[i_m, j] = …; for j: C[i_m, j] = B[i_m, j] }
    """
    if len(loops) < 2:
        raise ScheduleError("merge takes two loops or more")
    paths = [[*path_to(func.body, f), f] for f in loops]
    shared = sum(
        1 for level in itertools.takewhile(lambda level: all(s is level[0] for s in level), zip(*paths, strict=False)))
    around, nests = paths[0][shared - 1] if shared else None, [p[shared:] for p in paths]
    names = ", ".join(f.var.name for f in loops)
    if not isinstance(around, Seq) or not all(nests):
        raise fault(
            f"the loops {names} are not in adjacent loop nests, so they cannot be merged", loops[0], func)
    places = [next(k for k, s in enumerate(around.stmts) if s is n[0]) for n in nests]
    if places != list(range(places[0], places[0] + len(nests))):
        raise fault(
            f"the nests of the loops {names} must directly follow each other in this order, without other statements "
            "between them",
            loops[0], func)
    chains = [_chain(func, nest) for nest in nests]
    first = chains[0]
    for chain in chains[1:]:
        if (
            len(chain) != len(first)
            or any(a.extent is not b.extent or a.min is not b.min for a, b in zip(first, chain, strict=False))
        ):
            sizes = " and ".join(" x ".join(str(f.extent) for f in c) for c in (first, chain))
            raise fault(
                f"the nests down to the loops {names} must have equal loops to be merged; they have {sizes} iterations",
                chain[0], func)
    merged = [Var(f"{f.var.name}_m") for f in first]
    parts = [substitute_stmt(c[-1].body, {f.var: v for f, v in zip(c, merged, strict=True)}) for c in chains]
    _check_apart(func, first, merged, parts)
    body = seq(*parts)
    for f, v in zip(reversed(first), reversed(merged), strict=True):
        body = replace(f, var=v, body=body)
    stmts = (*around.stmts[: places[0]], body, *around.stmts[places[-1] + 1 :])
    return replaced(func, around, seq(*stmts)), merged[-1]


def _chain(func: PrimFunc, nest: Sequence[Stmt]) -> list[For]:
    found = []
    for s in nest:
        if not isinstance(s, For):
            raise fault(
                f"there are other statements between the loops around '{_loop_name(nest)}', so they cannot be merged",
                nest[0], func)
        found.append(check_plain(func, s, "merge"))
    return found


def _loop_name(nest: Sequence[Stmt]) -> str:
    return next(s.var.name for s in reversed(nest) if isinstance(s, For))


def check_plain(func: PrimFunc, loop: For, step: str) -> For:
    """Return `loop`. Raise `ScheduleError` if it is not serial, or has annotations, which `step` would drop."""
    if loop.kind != SERIAL or loop.annotations:
        said = loop.kind if loop.kind != SERIAL else f"annotated with {', '.join(loop.annotations)}"
        kept = (
            "; the loop of a rolling buffer cannot be changed" if loop.annotations.get(ROLLING)
            else f"; {step} before that"
        )
        raise fault(f"loop '{loop.var.name}' is {said}{kept}", loop, func)
    return loop


def _check_apart(func: PrimFunc, loops: Sequence[For], merged: Sequence[Var], parts: Sequence[Stmt]) -> None:
    """Check that an element that one nest writes and another accesses is written and accessed in the same iteration."""
    ranges = Ranges()
    for s in [x for x in path_to(func.body, loops[0]) if isinstance(x, For)]:
        ranges = ranges.bind_loop(s.var, s.min, s.extent)
    for f, v in zip(loops, merged, strict=True):
        ranges = ranges.bind_loop(v, f.min, f.extent)
    for a, b in itertools.combinations(parts, 2):
        touched = [(set(stored_buffers(x)), set(stored_buffers(x)) | set(loaded_buffers(x))) for x in (a, b)]
        for buffer in (touched[0][0] & touched[1][1]) | (touched[0][1] & touched[1][0]):
            if not _disjoint(seq(a, b), buffer, loops, merged, ranges):
                names = ", ".join(f.var.name for f in loops)
                raise fault(
                    f"an iteration of the loops {names} accesses elements of '{buffer.name}' that "
                    "other iterations write; merge only loops with independent iterations", loops[0], func)


def _disjoint(both: Stmt, buffer: Buffer, loops: Sequence[For], merged: Sequence[Var], ranges: Ranges) -> bool:
    """Return whether different trips of the merged loops access different elements: along some dimension, each loop
    steps over everything that a trip accesses."""
    box = region_of(both, buffer, ranges, stores=True)
    if box is None:
        return True
    single = {v for v, f in zip(merged, loops, strict=True) if isinstance(f.extent, IntImm) and f.extent.value == 1}
    stepped: set[Var] = set()
    for first, size in box:
        form = linear(first)
        inside = [v for v in merged if v not in single and any(x is v for atom in form.coefs for x in walk(atom))]
        if len(inside) == 1 and isinstance(size, int) and size <= abs(form.coefs.get(inside[0], 0)):
            stepped.add(inside[0])
    return stepped | single >= set(merged)


def loop_partition(func: PrimFunc, loop: For, factors: Sequence[int | None]) -> tuple[PrimFunc, list[Var]]:
    """Split a loop into consecutive loops over copies of its blocks. Return the new variables.

    for i in range(10): B[i] = …  ->  for i_0 in range(2): B[i_0] = …;  for i_1 in range(8): B[i_1 + 2] = …
    """
    check_plain(func, loop, "loop_partition")
    if not isinstance(loop.extent, IntImm):
        raise fault(
            f"loop '{loop.var.name}' has the extent {loop.extent}, but loop_partition needs a constant "
            "extent", loop, func)
    sizes = _sizes(loop, loop.extent.value, factors)
    around = [s.var for s in path_to(func.body, loop) if isinstance(s, For)]
    for b in walk_stmt(loop):
        if isinstance(b, Block) and b.init is not None and any(_sums_over(b, v) for v in around):
            raise fault(
                f"block '{b.name}' is a reduction over a loop around '{loop.var.name}' and stores its initial value "
                "before it; call decompose_reduction first",
                loop, func)
    taken = set(block_names(func)) - {b.name for b in walk_stmt(loop) if isinstance(b, Block)}
    parts: list[Stmt] = []
    new: list[Var] = []
    start = 0
    for k, size in enumerate(sizes):
        v = Var(f"{loop.var.name}_{k}")
        body = substitute_stmt(loop.body, {loop.var: add(add(v, start), loop.min)})
        parts.append(
            For(v, const(0, INT64), as_expr(size), SERIAL, _copied(body, v, k, taken, loop.var), origin=loop.origin))
        new.append(v)
        start += size
    return convert_ssa(replaced(func, loop, seq(*parts))), new


def _sizes(loop: For, extent: int, factors: Sequence[int | None]) -> list[int]:
    known = [f for f in factors if f is not None]
    text = f"loop '{loop.var.name}' of {extent} iterations cannot be partitioned into {list(factors)}"
    if not factors or len(factors) - len(known) > 1 or any(f < 1 for f in known):
        raise ScheduleError(f"{text}: give sizes of 1 or more, of which one may be None for the rest")
    rest = extent - sum(known)
    if (len(known) == len(factors) and rest != 0) or (len(known) < len(factors) and rest < 1):
        raise ScheduleError(
            f"{text}: the parts have {sum(known)} iterations in total; give None for one of them, or give sizes that "
            "add up")
    return [rest if f is None else f for f in factors]


def _sums_over(b: Block, v: Var) -> bool:
    return any(i.kind == "reduce" and any(x is v for x in walk(e)) for i, e in zip(b.iters, b.bindings, strict=True))


def _copied(s: Stmt, loop: Var, k: int, taken: set[str], old: Var) -> Stmt:
    """Rename the blocks of a part. Only the first part of a sum stores its initial value, unless the part contains the
    start of other sums."""
    if not isinstance(s, Block):
        return map_bodies(s, lambda b: _copied(b, loop, k, taken, old)) or s
    wanted = name = f"{s.name}_{old.name}{k}"
    for n in itertools.count(1):
        if name not in taken:
            break
        name = f"{wanted}_{n}"
    taken.add(name)
    return replace(s, name=name, init=None if k and _sums_over(s, loop) and loop not in mixed_loops(s) else s.init)
