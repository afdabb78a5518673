"""Class probabilities from probabilities of pairs of classes."""

from __future__ import annotations

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.work import Step

__all__ = ["pairwise_coupling", "rounds"]


def rounds(classes: int) -> int:
    """Return the maximum number of iterations."""
    return max(100, classes)


def pairwise_coupling(pairs: te.Tensor, classes: int) -> te.Tensor:
    """Return probabilities (rows, classes) from `pairs` (rows, classes * (classes - 1) / 2): that of i against j, for i
    < j.

    T.-F. Wu, C.-J. Lin, R. C. Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004,
    algorithm 2.
    """
    rows, k, dtype = pairs.extents[0], classes, pairs.dtype

    def body(b: Loops, r: BufferVar, p: BufferVar) -> None:
        with b.shared(rows, rows * k * k * 20, Step.COMPARE) as row:
            q, qp = b.allocate(dtype, k * k, "q"), b.allocate(dtype, k, "qp")
            _matrix(b, r, row * (k * (k - 1) // 2), q, k)
            with b.for_range(0, k, "t") as t:
                p[row * k + t] = E.const(1 / k, dtype)
            going = b.variable("going", "int32", 1)
            with b.for_range(0, rounds(k), "round"), b.if_scope(E.compare(E.EQ, going[0], 1)):
                _improve(b, q, qp, p, row * k, k, going)

    return loops("pairwise_coupling", [pairs], [((rows, k), dtype)], body)[0]


def _matrix(b: Loops, r: BufferVar, first: E.PrimExpr, q: BufferVar, k: int) -> None:
    """Compute Q[t, t] = sum of r[j, t]^2 over j, Q[t, j] = -r[j, t] r[t, j]."""
    for t in range(k):
        q[t * k + t] = E.const(0, q.dtype)
    place = 0
    for i in range(k):
        for j in range(i + 1, k):
            one = b.let("one", r[first + place])
            other = b.let("other", E.const(1, q.dtype) - one)
            q[i * k + j] = E.const(0, q.dtype) - one * other
            q[j * k + i] = E.const(0, q.dtype) - one * other
            q[i * k + i] = q[i * k + i] + other * other
            q[j * k + j] = q[j * k + j] + one * one
            place += 1


def _improve(b: Loops, q: BufferVar, qp: BufferVar, p: BufferVar, first: E.PrimExpr, k: int, going: BufferVar) -> None:
    """Perform one iteration, or stop if all changes would be small."""
    dtype = q.dtype
    total, error = b.variable("total", dtype, 0.0), b.variable("error", dtype, 0.0)
    with b.for_range(0, k, "t") as t:
        part = b.variable("part", dtype, 0.0)
        with b.for_range(0, k, "j") as j:
            part[0] = part[0] + q[t * k + j] * p[first + j]
        qp[t] = part[0]
        total[0] = total[0] + p[first + t] * part[0]
    with b.for_range(0, k, "t") as t:
        error[0] = E.maximum(error[0], I.fabs(qp[t] - total[0]))
    with b.if_scope(error[0] < E.const(0.005 / k, dtype)):
        going[0] = 0
    with b.else_scope(), b.for_range(0, k, "t") as t:
        own = b.let("own", q[t * k + t])
        step = b.let("step", (total[0] - qp[t]) / own)
        scale = b.let("scale", E.const(1, dtype) / (step + E.const(1, dtype)))
        p[first + t] = p[first + t] + step
        total[0] = (total[0] + step * (step * own + qp[t] * E.const(2, dtype))) * scale * scale
        with b.for_range(0, k, "j") as j:
            qp[j] = (qp[j] + step * q[t * k + j]) * scale
            p[first + j] = p[first + j] * scale
