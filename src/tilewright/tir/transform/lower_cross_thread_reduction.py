"""Reduce over the threads of a GPU: each thread reduces its own part, and then all threads combine their results.

    for i: for ko: for ki in T.thread_binding(32, "threadIdx.x"):
        with block("B", vi = i, vk = ko * 32 + ki): init: B[vi] = 0.0; B[vi] = B[vi] + A[vi, vk]
      ->
    for i: for ki in T.thread_binding(32, "threadIdx.x"):
        with block("B_in_thread_init"): in_thread_B[0] = 0.0
        for ko: with block("B_in_thread", vi = i, vk = ko * 32 + ki): in_thread_B[0] = in_thread_B[0] + A[vi, vk]
        with block("B_cross_thread"): tvm_thread_allreduce(1, in_thread_B[0], True, cross_thread_B[0], ki)
        with block("B_write_back", vi = i) where ki == 0: B[vi] = cross_thread_B[0]

The attribute `reduce_scope` around the call has the reducer. Without loops that are not threads, and without a
condition of the block, the threads combine the terms themselves. `LowerThreadAllreduce` gives the call its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import ThreadError
from tilewright.base.types import BOOL
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import EQ, Buffer, Call, Load, PrimExpr, Var, all_of, compare, const, number_of
from tilewright.scalar.intrinsics import call_opaque, reinterpret
from tilewright.scalar.walk import free_vars, substitute
from tilewright.tir.block_tree import own_loops, without_note
from tilewright.tir.reductions import Reduction, reduction_of
from tilewright.tir.stmt import (
    THREAD,
    AttrStmt,
    Block,
    Evaluate,
    For,
    IterVar,
    PrimFunc,
    Stmt,
    Store,
    map_bodies,
    nest,
    path_to,
    redirect,
    replaced,
    seq,
    walk_stmt,
)
from tilewright.tir.threads import is_shared_by
from tilewright.tir.transform.buffer_homes import INTERMEDIATES, intermediates_of

REDUCE_SCOPE = "reduce_scope"
"""Key of the attribute around a reduction over threads, whose node is the reducer."""
_FIRST = (const(0, "int64"),)


def lower_cross_thread_reduction(func: PrimFunc) -> PrimFunc:
    """Split the reductions of a schedulable program that have a loop over threads.

    Raises `ThreadError` if such a reduction is not the whole body of its loops, has a loop over blocks of threads, or
    has a form that is not known (`reductions.py`).
    """
    for block in [s for s in walk_stmt(func.body) if isinstance(s, Block) and s.init is not None]:
        func = _lowered(func, block)
    return func


@dataclass(frozen=True, slots=True)
class _Split:
    """A reduction over threads, and its loops."""

    block: Block
    over: tuple[For, ...]
    """The loops that reduce, outermost first."""
    reduction: Reduction

    @property
    def threads(self) -> list[For]:
        return [f for f in self.over if THREAD in f.annotations]

    def buffers(self, name: str) -> list[Buffer]:
        """Return new memory of one thread for the results."""
        return [Buffer(f"{name}_{b.name}", (1,), b.dtype, "local") for b in self.reduction.results]


def _lowered(func: PrimFunc, block: Block) -> PrimFunc:
    loops = own_loops(path_to(func.body, block))
    reduced = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)}
    over = tuple(f for f in loops if f.var in reduced)
    if not any(THREAD in f.annotations for f in over):
        return func
    _check(func, block, loops[loops.index(over[0]) :], over)
    reduction = reduction_of(block)
    if reduction is None:
        raise _fault(
            func, block, "is not a sum, a product, a maximum, a minimum, or a choice by a comparison that begins with "
            "its neutral value; reduce it in serial loops")
    split = _Split(block, over, reduction)
    whole, made = _whole(split)
    attrs = {**func.attrs, INTERMEDIATES: (*intermediates_of(func), *made)}
    return replace(replaced(func, over[0], whole), attrs=attrs)


def _check(func: PrimFunc, block: Block, inner: Sequence[For], over: Sequence[For]) -> None:
    """Raise `ThreadError` unless the loops `inner` only reduce, and only over threads of one block."""
    other = next((f for f in inner if f not in over), None)
    if other is not None:
        raise _fault(
            func, block, f"has loop '{other.var.name}', which does not reduce, inside of its loop "
            f"'{over[0].var.name}' over threads or parts of the reduction; reorder the loops")
    wrong = next((f for f in over if not str(f.annotations.get(THREAD, "threadIdx")).startswith("threadIdx")), None)
    if wrong is not None:
        raise _fault(
            func, block, f"reduces over '{wrong.annotations[THREAD]}', but only the threads of one block can combine "
            "values; bind the loop to threadIdx")
    mine = {f.var for f in over}
    both = next((
        i for i, b in zip(block.iters, block.bindings, strict=True)
        if i.kind != "reduce" and not mine.isdisjoint(free_vars(b))), None)
    if both is not None:
        raise _fault(
            func, block, f"has the axis '{both.var.name}' over loops that reduce, too; split these loops apart")


def _fault(func: PrimFunc, block: Block, why: str) -> ThreadError:
    return ThreadError(f"block '{block.name}' {why}", block.origin or func.origin)


def _whole(split: _Split) -> tuple[Stmt, list[Buffer]]:
    """Return the statement in place of the loops, and its buffers."""
    block, reduction, threads = split.block, split.reduction, split.threads
    totals = split.buffers("cross_thread")
    parts: list[Buffer] = []
    begin: Stmt | None = None
    step: Block | None = None
    group = block
    terms = reduction.terms
    if len(threads) < len(split.over) or number_of(block.predicate) != 1:
        parts = split.buffers("in_thread")
        begin, step = _first_values(split, parts), _step(split, parts)
        terms = tuple(Load(b, _FIRST) for b in parts)
        group = _grouping(f"{block.name}_cross_thread", Evaluate(const(0, "int64")))
    call = call_opaque(
        "tvm_thread_allreduce", const(len(totals), "uint32"), *terms, const(1, BOOL),
        *(Load(b, _FIRST) for b in totals), *(f.var for f in threads))
    no_value = Call("handle", reinterpret, (const(0, "uint64"),))
    combined = replace(
        group, name=f"{block.name}_cross_thread", init=None, annotations={},
        body=AttrStmt(reduction.reducer, REDUCE_SCOPE, no_value, Evaluate(call)))
    rest = _inner(split.over[0], block, step, threads)
    body = seq(begin, rest, combined, _write_back(split, totals))
    return nest(threads, body), [*totals, *parts]


def _grouping(name: str, body: Stmt) -> Block:
    """Return a block without axes."""
    return Block(name, (), (), const(1, BOOL), None, body)


def _first_values(split: _Split, parts: Sequence[Buffer]) -> Block:
    stores = [Store(b, v, _FIRST) for b, v in zip(parts, split.reduction.first, strict=True)]
    return _grouping(f"{split.block.name}_in_thread_init", seq(*stores))


def _step(split: _Split, parts: Sequence[Buffer]) -> Block:
    """Return the block that reduces the part of one thread."""
    body = split.block.body
    for result, part in zip(split.reduction.results, parts, strict=True):
        body = redirect(body, result, part, lambda _: _FIRST)
    notes = without_note(split.block, "combiner")
    return replace(split.block, name=f"{split.block.name}_in_thread", init=None, body=body, annotations=notes)


def _inner(s: Stmt, block: Block, step: Block | None, threads: Sequence[For]) -> Stmt | None:
    """Return the loops without those over threads, with `step` in place of the block; None if nothing is left."""
    if s is block:
        return step
    inner = map_bodies(s, lambda b: _inner(b, block, step, threads))
    return inner.body if isinstance(inner, For) and s in threads else inner


def _write_back(split: _Split, totals: Sequence[Buffer]) -> Block:
    """Return the block that stores the results, in one thread of those that share their memory."""
    block, reduction = split.block, split.reduction
    kept = [(i, b) for i, b in zip(block.iters, block.bindings, strict=True) if i.kind != "reduce"]
    axes = [IterVar(Var(i.var.name, i.var.dtype), i.extent, i.kind) for i, _ in kept]
    points: dict[PrimExpr, PrimExpr] = {i.var: a.var for (i, _), a in zip(kept, axes, strict=True)}
    values: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    mine = {f.var for f in split.over}
    conditions = [c for c in conjuncts(substitute(block.predicate, values)) if mine.isdisjoint(free_vars(c))]
    once = [
        compare(EQ, f.var, f.min) for f in split.threads if any(is_shared_by(b, f) for b in reduction.results)]
    stores = [
        Store(b, Load(total, _FIRST), tuple(substitute(i, points) for i in place))
        for b, total, place in zip(reduction.results, totals, reduction.places, strict=True)]
    return Block(
        f"{block.name}_write_back", tuple(axes), tuple(b for _, b in kept), all_of(*conditions, *once), None,
        seq(*stores))
