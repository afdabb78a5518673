"""Rules that give each computation a role in a schedule:

    inline       a cheap value is computed where it is read                      pad[…] -> inside its reader
    tile         a sum is computed in registers, tile by tile of its reader      C += A * B; D = max(C, 0)
    cache write  a sum without such a reader gets one, a copy of the result      C_local += A * B; C = C_local
    cache read   an operand that is reused is copied, block by block             B_global = B[:, block]
    rfactor      a sum with few results is computed in parallel parts            sum_rf[chunk] += …; sum += sum_rf
    rows         a sum along contiguous elements uses the lanes of a vector      m[i] = max(m[i], S[i, lanes])

A `Plan` has the role of each computation. Rules are tried on every computation; the plans are the combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.backends.machine import Machine
from tilewright.search.auto_scheduler import access
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Reduce

INLINE, NEST, TILE, CACHE_WRITE, ROWS, RFACTOR = "inline", "nest", "tile", "cache write", "rows", "rfactor"
MAX_PLANS: Final = 16
_FEW: Final = 64
"""Number of results per core below which a sum is computed in parts."""


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a computation in a sketch: `kind` is the rule that applies to it.

    `reader` is the computation in whose tile a sum is computed, `packed` the operand that is copied.
    """

    kind: str
    reader: Operation | None = None
    packed: Operation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The role of every computation of a DAG."""

    dag: ComputeDAG
    roles: Mapping[Operation, Role]

    def __str__(self) -> str:
        lines = []
        for op, r in self.roles.items():
            reader, packed = f" in {r.reader.name}" if r.reader else "", f", copies {r.packed.name}" if r.packed else ""
            lines.append(f"{op.name}: {r.kind}{reader}{packed}")
        return "\n".join(lines)


def plans(dag: ComputeDAG, machine: Machine) -> list[Plan]:
    """Return the plans of a DAG, the plainest first; at least one for a DAG that computes something."""
    inlined = {op for op in dag.ops if op not in dag.output_ops and access.is_cheap(op)}
    choices: dict[Operation, list[Role]] = {}
    for op in dag.ops:
        if isinstance(op, ComputeOp):
            choices[op] = [Role(INLINE)] if op in inlined else _roles(dag, op, inlined, machine)
    combinations = filter(_consistent, itertools.product(*choices.values()))
    return [Plan(dag, dict(zip(choices, picked, strict=True))) for picked in itertools.islice(combinations, MAX_PLANS)]


def _roles(dag: ComputeDAG, op: ComputeOp, inlined: set[Operation], machine: Machine) -> list[Role]:
    if not op.reduce_axis:
        return [Role(NEST)]
    roles: list[Role] = []
    single = len(op.body) == 1
    if not along_lanes(op) or access.has_reuse(op):
        reader = tile_reader(dag, op, inlined)
        kind = TILE if reader is not None else CACHE_WRITE
        roles += [Role(kind, reader, packed) for packed in (None, *packable(op))]
    if along_lanes(op) and single:
        roles.append(Role(ROWS))
    few = _FEW * machine.cores
    if single and access.spatial_size(op) < few <= access.reduction_size(op) and access.extent_of(
        op.reduce_axis[0]
    ) >= 4:
        roles.append(Role(RFACTOR))
    return roles or [Role(NEST)]


def tile_reader(
    dag: ComputeDAG, op: Operation, inlined: set[Operation], zeros: bool = False
) -> Operation | None:
    """Return the computation that reads a sum point by point, directly or through inlined ones, or None. `zeros` is
    that of `reads_point_by_point`."""
    if op in dag.output_ops:
        return None
    readers, at = dag.readers(op), op
    while len(readers) == 1 and access.reads_point_by_point(readers[0], at, zeros):
        at = readers[0]
        if at not in inlined:
            return at if access.is_elementwise(at) else None
        readers = dag.readers(at)
    return None


def packable(op: ComputeOp) -> list[Operation]:
    """Return the operands to copy block by block: inputs contiguous along the last axis, and reused along another."""
    if not op.axis:
        return []
    last, found = op.axis[-1].var, dict[Operation, None]()
    for e in access.elements_read(op):
        missing = access.missing_axes(op, e)
        reused = missing and len(op.axis) - 1 not in missing
        if isinstance(e.tensor.op, PlaceholderOp) and reused and access.stride_along(e, last) == 1:
            found[e.tensor.op] = None
    return list(found)


def along_lanes(op: ComputeOp) -> bool:
    """Return whether a sum goes over contiguous elements."""
    last = op.reduce_axis[-1].var
    strides = [access.stride_along(e, last) for e in access.elements_read(op)]
    body = op.body[0]
    sums = isinstance(body, Reduce) and body.combiner.name in ("sum", "max", "min", "prod")
    return sums and 1 in strides and set(strides) <= {0, 1} and access.extent_of(op.reduce_axis[-1]) > 1


def _consistent(roles: Sequence[Role]) -> bool:
    """Return whether no two sums share a tile, and at most one operand is copied."""
    readers = [r.reader for r in roles if r.reader is not None]
    return len(readers) == len(set(readers)) and sum(r.packed is not None for r in roles) <= 1
