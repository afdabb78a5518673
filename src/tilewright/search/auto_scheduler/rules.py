"""From computations to plans: what each computation may become in a schedule.

    inline      a cheap value, no sum and no function, is computed where it is read             pad[…] -> inside its reader
    tile        a sum is made in registers for one small tile of its reader at a time           C += A * B; D = max(C, 0)
    cache write a sum that has no such reader gets one: a copy to where the result belongs      C_local += A * B; C = C_local
    cache read  an operand that does not depend on all loops is copied, block by block           B_global = B[:, block]
    rfactor     a sum with few results is made of parts, which run side by side                 sum_rf[chunk] += …; sum += sum_rf
    rows        a sum along elements that lie side by side is made in the lanes of a vector      m[i] = max(m[i], S[i, lanes])

A `Plan` says for each computation which of these it is. Rules are tried on every computation; the plans are the combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.scalar.expr import number_of
from tilewright.search.auto_scheduler import access
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Reduce
from tilewright.topi.machine import Machine

INLINE, NEST, TILE, CACHE_WRITE, ROWS, RFACTOR = "inline", "nest", "tile", "cache write", "rows", "rfactor"
MOST_PLANS: Final = 16
_FEW: Final = 64
"""A sum is worth parts of its own where it has less results than this for each core."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a computation becomes. `reader` is the computation in whose tile a sum is made, `packed` the operand that is copied."""

    kind: str
    reader: Operation | None = None
    packed: Operation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The role of every computation of a DAG."""

    dag: ComputeDAG
    roles: Mapping[Operation, Role]

    def __str__(self) -> str:
        return "\n".join(
            f"{op.name}: {r.kind}" + (f" in {r.reader.name}" if r.reader else "") + (f", copies {r.packed.name}" if r.packed else "")
            for op, r in self.roles.items()
        )


def plans(dag: ComputeDAG, machine: Machine) -> list[Plan]:
    """The plans that the rules give, the plainest first; never none for a DAG that computes something."""
    inlined = {op for op in dag.ops if op not in dag.output_ops and access.is_cheap(op)}
    choices: dict[Operation, list[Role]] = {}
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            choices[op] = [Role(INLINE)] if op in inlined else _roles(dag, op, inlined, machine)
    found = [Plan(dag, dict(zip(choices, picked, strict=True))) for picked in itertools.product(*choices.values()) if _consistent(picked)]
    return found[:MOST_PLANS]


def _roles(dag: ComputeDAG, op: ComputeOp, inlined: set[Operation], machine: Machine) -> list[Role]:
    if not op.reduce_axis:
        return [Role(NEST)]
    roles: list[Role] = []
    single = len(op.body) == 1
    if not (along_lanes(op) and not access.has_reuse(op)):
        reader = tile_reader(dag, op, inlined)
        made = Role(TILE, reader) if reader is not None else Role(CACHE_WRITE)
        roles.append(made)
        roles += [Role(made.kind, made.reader, packed) for packed in packable(op)]
    if along_lanes(op) and single:
        roles.append(Role(ROWS))
    if single and access.spatial_size(op) < _FEW * machine.cores and access.reduction_size(op) >= _FEW * machine.cores and rfactored(op):
        roles.append(Role(RFACTOR))
    return roles or [Role(NEST)]


def tile_reader(dag: ComputeDAG, op: Operation, inlined: set[Operation]) -> Operation | None:
    """The computation that reads a sum point by point, directly or through inlined ones: in its tiles the sum is made."""
    if op in dag.output_ops:
        return None
    readers, at = dag.readers(op), op
    while len(readers) == 1 and access.reads_point_by_point(readers[0], at):
        at = readers[0]
        if at not in inlined:
            return at if access.is_elementwise(at) else None
        readers = dag.readers(at)
    return None


def packable(op: ComputeOp) -> list[Operation]:
    """Operands of a sum worth copying block by block: inputs read in lanes along the last axis, and by several trips of another."""
    if not op.axis:
        return []
    last, found = op.axis[-1].var, dict[Operation, None]()
    for e in access.elements_read(op):
        missing = access.missing_axes(op, e)
        if isinstance(e.tensor.op, PlaceholderOp) and missing and len(op.axis) - 1 not in missing and access.stride_along(e, last) == 1:
            found[e.tensor.op] = None
    return list(found)


def along_lanes(op: ComputeOp) -> bool:
    """Whether a sum goes over elements that lie side by side, and its results do not."""
    last = op.reduce_axis[-1].var
    strides = [access.stride_along(e, last) for e in access.elements_read(op)]
    body = op.body[0]
    sums = isinstance(body, Reduce) and body.combiner.name in ("sum", "max", "min", "prod")
    return sums and bool(strides) and all(s in (0, 1) for s in strides) and 1 in strides and int(number_of(op.reduce_axis[-1].extent) or 0) > 1


def rfactored(op: ComputeOp) -> bool:
    """Whether the outermost sum loop has parts enough to share out."""
    return len(op.reduce_axis) > 0 and int(number_of(op.reduce_axis[0].extent) or 0) >= 4


def _consistent(roles: Sequence[Role]) -> bool:
    """Two sums are not made in one tile, and one operand is copied for one of them."""
    readers = [r.reader for r in roles if r.reader is not None]
    return len(readers) == len(set(readers)) and sum(r.packed is not None for r in roles) <= 1
