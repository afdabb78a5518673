"""The passes from a lowered program to a flat one, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.memory_faults import Site
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.fill_constants import fill_constants
from tilewright.tir.transform.flatten_buffers import flatten_buffers
from tilewright.tir.transform.instrument_memory import Checks, instrument_memory
from tilewright.tir.transform.lower_math import lower_math
from tilewright.tir.transform.partition_loops import partition_loops
from tilewright.tir.transform.remove_dead_memory import remove_dead_memory
from tilewright.tir.transform.scalarize import scalarize
from tilewright.tir.transform.simplify import simplify
from tilewright.tir.transform.split_vector_elements import split_vector_elements
from tilewright.tir.transform.tighten_loop_bounds import tighten_loop_bounds
from tilewright.tir.transform.unroll_loops import unroll_loops
from tilewright.tir.transform.vectorize_loops import vectorize_loops
from tilewright.tir.transform.widen_halves import widen_halves

LoopPass = Callable[[PrimFunc], PrimFunc]
"""A pass over the loops of one function."""

LOOP_PASSES: Final[tuple[LoopPass, ...]] = (
    fill_constants,
    split_vector_elements,
    widen_halves,
    simplify,
    tighten_loop_bounds,
    partition_loops,
    flatten_buffers,
    vectorize_loops,
    lower_math,
    unroll_loops,
)
"""The passes in order. Expensive ones run before unrolling multiplies the statements.

Common subexpressions, hoisted conditions and shared storage are not included: LLVM does the first two, and register and
cache allocation the third. On 14 computations with plain loops (moves, padding, pools, products, norms, look-ups), each
changed the speed of the code by less than 3 %. Common subexpressions also lengthened compilation by up to a half.
"""

SCALAR_PASSES: Final[tuple[LoopPass, ...]] = (
    *LOOP_PASSES[: LOOP_PASSES.index(lower_math)], scalarize, simplify, tighten_loop_bounds, remove_dead_memory,
)
"""Passes for a back end whose compiler vectorizes, unrolls and has a mathematics library: programs stay loops over
scalars."""


def lower_loops(func: PrimFunc, passes: Sequence[LoopPass] | None = None) -> PrimFunc:
    """Make a lowered program (no blocks) flat (`verify_flat`), ready for code generation, by `passes` (default:
    `LOOP_PASSES`)."""
    for loop_pass in LOOP_PASSES if passes is None else passes:
        func = loop_pass(func)
    return func


def lower_checked(
    func: PrimFunc, checks: Checks | None, first: int, passes: Sequence[LoopPass]
) -> tuple[PrimFunc, tuple[Site, ...]]:
    """Make a lowered program flat, with checks of its memory accesses. Return it with the sites of the checks, numbered
    from `first` on.

    Loops with checks are not partitioned, since each segment would copy the checks.
    """
    if checks is None:
        return lower_loops(func, passes), ()
    checked, sites = instrument_memory(simplify(split_vector_elements(fill_constants(func))), checks, first)
    if not sites:  # all accesses are proved correct
        return lower_loops(func, passes), ()
    return lower_loops(checked, [p for p in passes if p is not partition_loops]), sites
