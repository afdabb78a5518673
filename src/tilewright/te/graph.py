"""How operations depend on each other: `CreateReadGraph`, `PostDFSOrder`, `ScanGetBody` and `ScanFixPointAnalysis` of
TVM's `tvm.te.schedule`.

    graph = te.schedule.CreateReadGraph([C.op])             # C.op -> [A, B]
    te.schedule.PostDFSOrder([C.op], graph)                 # [A.op, B.op, C.op]
    te.schedule.ScanFixPointAnalysis(total.op)              # total.op.spatial_axis_[0] -> 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base.containers import Map
from tilewright.base.graphs import post_order
from tilewright.scalar.expr import PrimExpr, Var, const
from tilewright.scalar.walk import free_vars, walk
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import ComputeOp, Operation, Tensor, TensorElem, producers_first


def CreateReadGraph(ops: Sequence[Operation]) -> dict[Operation, list[Tensor]]:
    """Return the tensors that each operation reads: of `ops`, and of all operations that they depend on."""
    return {op: list(op.inputs) for op in producers_first(ops)}


def PostDFSOrder(roots: Sequence[Operation], graph: Mapping[Operation, Sequence[Tensor]]) -> list[Operation]:
    """Return operations and those that they depend on by a read graph, each once, producers first."""
    return post_order(roots, lambda op: [t.op for t in graph.get(op, ())])


def ScanGetBody(scan_op: ScanOp) -> list[Operation]:
    """Return the operations of a step of a scan, producers first: those between its states and its updates, and the
    scan."""
    inside: set[Operation] = set()
    states = {t.op for t in scan_op.state}
    ordered = producers_first([t.op for t in scan_op.update])
    for op in ordered:
        if any(t.op in inside or t.op in states for t in op.inputs):
            inside.add(op)
    return [*(op for op in ordered if op in inside or op in {t.op for t in scan_op.update}), scan_op]


def ScanFixPointAnalysis(scan_op: ScanOp) -> Map:
    """Return for each of the axes `spatial_axis_` of a scan 1 if all steps of an element depend only on elements of the
    same index along the axis, so that indices can be computed independently; else 0."""
    axes = iter(scan_op.spatial_axis_)
    found = {}
    for k, t in enumerate(scan_op.outputs):
        for d in range(1, len(t.shape)):
            found[next(axes)] = const(int(_is_apart(scan_op, k, d)), "int32")
    return Map(found)


def _is_apart(scan: ScanOp, result: int, dim: int) -> bool:
    """Return whether each index of dimension `dim` of a result is computed from states at the same index alone."""
    same: dict[Operation, set[int]] = {scan.update[result].op: {dim}}
    for op in reversed(ScanGetBody(scan)[:-1]):
        if not isinstance(op, ComputeOp):
            return False
        index: set[PrimExpr] = {op.axis[d].var for d in same.get(op, ())}
        for e in (x for v in op.body for x in walk(v) if isinstance(x, TensorElem)):
            if e.tensor is scan.state[result] and e.indices[dim] not in index:
                return False
            for d, i in enumerate(e.indices):
                if not _uses(i, index) or (e.tensor is scan.state[result] and d == dim):
                    continue
                if e.tensor in scan.state or i not in index:
                    return False
                same.setdefault(e.tensor.op, set()).add(d)
    return True


def _uses(e: PrimExpr, variables: set[PrimExpr]) -> bool:
    return any(isinstance(v, Var) and v in variables for v in free_vars(e))


__all__ = ["CreateReadGraph", "PostDFSOrder", "ScanFixPointAnalysis", "ScanGetBody"]
