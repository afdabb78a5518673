"""Dense linear algebra on stacks of small matrices: factorizations, triangular systems, eigenvalues, singular values.

Every kernel takes a stack of matrices (…, rows, columns), computes one matrix at a time in float64, and distributes the
matrices among threads. The conventions of packed results (one-based pivots, reflectors below the diagonal) are
LAPACK's. Source of the algorithms: G. H. Golub and C. F. Van Loan, Matrix Computations, 4th edition; section numbers
refer to that book.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, Output, loops
from tilewright.topi.shapes import at_most
from tilewright.topi.work import Step

__all__ = [
    "cholesky", "eigh", "geqrf", "householder_product", "lu", "matrix_exp", "permutation", "solve_triangular", "svd",
]

FLOAT64: Final = DataType("float64")
SWEEPS: Final = 40
"""Maximum number of sweeps. Jacobi's methods converge quadratically; matrices of thousands of rows take about ten
sweeps."""
EPSILON: Final = 2.0**-52


@dataclass(frozen=True, slots=True)
class Matrix:
    """A row-major matrix in memory that starts at the flat position `start`."""

    data: BufferVar
    columns: int
    start: Value = 0

    def __getitem__(self, at: tuple[Value, Value]) -> PrimExpr:
        return self.data[self._flat(at)]

    def __setitem__(self, at: tuple[Value, Value], value: Value) -> None:
        self.data[self._flat(at)] = value

    def _flat(self, at: tuple[Value, Value]) -> PrimExpr:
        return E.as_expr(self.start) + E.as_expr(at[0]) * self.columns + at[1]


@contextmanager
def _block(
    b: Loops, rows: Value, columns: Value, first: Value = 0, left: Value = 0
) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    with b.for_range(first, rows, "i") as i, b.for_range(left, columns, "j") as j:
        yield i, j


def _copied(b: Loops, source: BufferVar, item: PrimExpr, rows: int, columns: int, name: str) -> Matrix:
    """Return a float64 copy of one matrix of a stack."""
    found = Matrix(b.allocate(FLOAT64, max(1, rows * columns), name), columns)
    with _block(b, rows, columns) as (i, j):
        found[i, j] = E.cast(FLOAT64, source[item * (rows * columns) + i * columns + j])
    return found


def _identity(b: Loops, rows: int, columns: int, name: str) -> Matrix:
    found = Matrix(b.allocate(FLOAT64, max(1, rows * columns), name), columns)
    with _block(b, rows, columns) as (i, j):
        found[i, j] = E.if_then_else(E.compare(E.EQ, i, j), E.const(1.0, FLOAT64), E.const(0.0, FLOAT64))
    return found


def _stored(b: Loops, matrix: Matrix, out: BufferVar, item: PrimExpr, rows: int, columns: int) -> None:
    with _block(b, rows, columns) as (i, j):
        out[item * (rows * columns) + i * columns + j] = E.cast(out.dtype, matrix[i, j])


def _sum(b: Loops, first: Value, end: Value, term: Callable[..., PrimExpr], start: Value = 0.0) -> PrimExpr:
    """Return `start` plus the sum of `term(k)` over [first, end)."""
    total = b.variable("total", FLOAT64, start)
    with b.for_range(first, end, "k") as k:
        total[0] = total[0] + term(k)
    return b.let("sum", total[0])


Body = Callable[..., None]
"""A function `body(loops, item, inputs…, outputs…)` for one matrix of a stack."""


def _stacked(
    name: str,
    inputs: Sequence[te.Tensor],
    outputs: list[Output],
    lead: Sequence[int],
    work: float,
    body: Body,
) -> tuple[te.Tensor, ...]:
    """Run `body` for each matrix of stacks with the leading dimensions `lead`; `work` is its approximate number of
    steps."""
    batch = prod(lead)
    empty = not any(prod(s) for s, _ in outputs)

    def build(b: Loops, *buffers: BufferVar) -> None:
        if empty:
            return
        with b.shared(batch, batch * work, Step.MOVE, "item") as item:
            body(b, item, *buffers)

    return loops(name, inputs, outputs, build)


def cholesky(data: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return the lower factor of symmetric matrices (4.2.5), and the order of the first minor that is not positive.

    Only the lower half is read. From that row on, the factor is NaN.
    """
    *lead, n, _ = data.extents

    def body(b: Loops, item: PrimExpr, x: BufferVar, out: BufferVar, info: BufferVar) -> None:
        a = _copied(b, x, item, n, n, "a")
        wrong = b.variable("wrong", "int32", 0)
        with b.for_range(0, n, "row") as row:
            with b.for_range(0, row, "column") as column:
                a[row, column] = (
                    _sum(b, 0, column, lambda k: -(a[row, k] * a[column, k]), a[row, column]) / a[column, column]
                )
            rest = _sum(b, 0, row, lambda k: -(a[row, k] * a[row, k]), a[row, row])
            with b.if_scope(E.logical_and(E.logical_not(rest > 0.0), E.compare(E.EQ, wrong[0], 0))):
                wrong[0] = E.cast("int32", row + 1)
            a[row, row] = E.if_then_else(rest > 0.0, I.sqrt(rest), E.const(float("nan"), FLOAT64))
            with b.for_range(row + 1, n, "column") as column:
                a[row, column] = E.const(0.0, FLOAT64)
        _stored(b, a, out, item, n, n)
        info[item] = wrong[0]

    results: list[Any] = [((*lead, n, n), data.dtype), (tuple(lead), "int32")]
    return _stacked("cholesky", [data], results, lead, n**3 / 3, body)


def lu(data: te.Tensor, pivot: bool = True) -> tuple[te.Tensor, ...]:
    """Return L without its unit diagonal and U in one matrix (3.4.4), the row swapped with each row, and the first zero
    pivot."""
    *lead, m, n = data.extents
    count = at_most(m, n)

    def body(b: Loops, item: PrimExpr, x: BufferVar, out: BufferVar, pivots: BufferVar, info: BufferVar) -> None:
        a = _copied(b, x, item, m, n, "a")
        wrong = b.variable("wrong", "int32", 0)
        with b.for_range(0, count, "step") as step:
            place = b.variable("place", "int64", step)
            if pivot:
                _swap_greatest(b, a, step, m, n, place)
            pivots[item * count + step] = E.cast("int32", place[0] + 1)
            divisor = b.let("divisor", a[step, step])
            with b.if_scope(E.logical_and(E.compare(E.EQ, divisor, 0.0), E.compare(E.EQ, wrong[0], 0))):
                wrong[0] = E.cast("int32", step + 1)
            with b.for_range(step + 1, m, "i") as i:
                scaled = (
                    E.if_then_else(E.compare(E.EQ, divisor, 0.0), a[i, step], a[i, step] / divisor)
                    if pivot
                    else a[i, step] / divisor
                )
                factor = b.let("factor", scaled)
                a[i, step] = factor
                with b.for_range(step + 1, n, "j") as j:
                    a[i, j] = a[i, j] - factor * a[step, j]
        _stored(b, a, out, item, m, n)
        info[item] = wrong[0]

    results: list[Any] = [((*lead, m, n), data.dtype), ((*lead, count), "int32"), (tuple(lead), "int32")]
    return _stacked("lu", [data], results, lead, m * n * count, body)


def _swap_greatest(b: Loops, a: Matrix, step: PrimExpr, m: int, n: int, place: BufferVar) -> None:
    """Swap row `step` with the row, at `step` or below, that has the element of greatest magnitude in column `step`."""
    greatest = b.variable("greatest", FLOAT64, I.fabs(a[step, step]))
    with b.for_range(step + 1, m, "i") as i:
        size = b.let("size", I.fabs(a[i, step]))
        with b.if_scope(size > greatest[0]):
            greatest[0] = size
            place[0] = i
    with b.for_range(0, n, "j") as j:
        held = b.let("held", a[step, j])
        a[step, j] = a[place[0], j]
        a[place[0], j] = held


def permutation(pivots: te.Tensor, size: int) -> te.Tensor:
    """Return the permutation of rows that results from the successive swaps `pivots` of `lu`.

    Row k of the permuted matrix is row result[k].
    """
    *lead, count = pivots.extents

    def body(b: Loops, item: PrimExpr, given: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, size, "k") as k:
            out[item * size + k] = E.cast("int32", k)
        with b.for_range(0, count, "k") as k:
            place = b.let("place", E.maximum(E.minimum(E.cast("int64", given[item * count + k]) - 1, size - 1), 0))
            held = b.let("held", out[item * size + k])
            out[item * size + k] = out[item * size + place]
            out[item * size + place] = held

    results: list[Any] = [((*lead, size), "int32")]
    return _stacked("permutation", [pivots], results, lead, size, body)[0]


def solve_triangular(matrix: te.Tensor, rhs: te.Tensor, upper: bool, unit: bool) -> te.Tensor:
    """Return X of `matrix` @ X = `rhs` by substitution (3.1); only one triangle is read, without its diagonal if
    `unit`."""
    *lead, n, m = rhs.extents

    def body(b: Loops, item: PrimExpr, a: BufferVar, given: BufferVar, out: BufferVar) -> None:
        x, left = _copied(b, given, item, n, m, "x"), Matrix(a, n, item * (n * n))
        with b.for_range(0, n, "step") as step:
            row = b.let("row", n - 1 - step if upper else step)
            first, end = (row + 1, n) if upper else (0, row)
            with b.for_range(first, end, "k") as k:
                factor = b.let("factor", E.cast(FLOAT64, left[row, k]))
                with b.for_range(0, m, "j") as j:
                    x[row, j] = x[row, j] - factor * x[k, j]
            if not unit:
                divisor = b.let("divisor", E.cast(FLOAT64, left[row, row]))
                with b.for_range(0, m, "j") as j:
                    x[row, j] = x[row, j] / divisor
        _stored(b, x, out, item, n, m)

    results: list[Any] = [((*lead, n, m), rhs.dtype)]
    return _stacked("solve_triangular", [matrix, rhs], results, lead, n * n * m, body)[0]


def geqrf(data: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return R above the diagonal, the vectors of Householder reflections below it (5.2.2), and the factors of these.

    This is LAPACK's `geqrf`.
    """
    *lead, m, n = data.extents
    count = at_most(m, n)

    def body(b: Loops, item: PrimExpr, x: BufferVar, out: BufferVar, factors: BufferVar) -> None:
        a = _copied(b, x, item, m, n, "a")
        with b.for_range(0, count, "step") as step:
            below = _sum(b, step + 1, m, lambda k: a[k, step] * a[k, step])
            head = b.let("head", a[step, step])
            length = b.let("length", I.sqrt(head * head + below))
            beta = b.let(
                "beta", E.if_then_else(E.compare(E.EQ, below, 0.0), head, E.if_then_else(head > 0.0, -length, length))
            )
            still = b.let("still", E.compare(E.EQ, below, 0.0))
            factor = b.let("factor", E.if_then_else(still, E.const(0.0, FLOAT64), (beta - head) / beta))
            factors[item * count + step] = E.cast(data.dtype, factor)
            scale = b.let("scale", E.if_then_else(still, E.const(0.0, FLOAT64), 1.0 / (head - beta)))
            with b.for_range(step + 1, m, "i") as i:
                a[i, step] = a[i, step] * scale
            a[step, step] = beta
            with b.for_range(step + 1, n, "j") as j:
                _reflect(b, a, j, step, m, lambda k, step=step: a[k, step], factor)
        _stored(b, a, out, item, m, n)

    shapes: list[Output] = [((*lead, m, n), data.dtype), ((*lead, count), data.dtype)]
    return _stacked("geqrf", [data], shapes, lead, m * n * count * 2, body)


def _reflect(
    b: Loops, a: Matrix, column: PrimExpr, step: PrimExpr, rows: int, vector: Callable[..., PrimExpr], factor: PrimExpr
) -> None:
    """Reflect a column of `a`.

    Subtract `factor` times its product with the vector, which is one at `step` and `vector` below.
    """
    product = b.let("product", factor * _sum(b, step + 1, rows, lambda k: vector(k) * a[k, column], a[step, column]))
    a[step, column] = a[step, column] - product
    with b.for_range(step + 1, rows, "i") as i:
        a[i, column] = a[i, column] - product * vector(i)


def householder_product(data: te.Tensor, factors: te.Tensor) -> te.Tensor:
    """Return the first columns of the product of the reflections of `geqrf` (5.1.6), as many as `data` has."""
    *lead, m, n = data.extents
    count = factors.extents[-1]

    def body(b: Loops, item: PrimExpr, x: BufferVar, tau: BufferVar, out: BufferVar) -> None:
        q, vectors = _identity(b, m, n, "q"), Matrix(x, n, item * (m * n))
        with b.for_range(0, count, "back") as back:
            step = b.let("step", count - 1 - back)
            factor = b.let("factor", E.cast(FLOAT64, tau[item * count + step]))
            with b.for_range(0, n, "j") as j:
                _reflect(b, q, j, step, m, lambda k, step=step: E.cast(FLOAT64, vectors[k, step]), factor)
        _stored(b, q, out, item, m, n)

    shapes: list[Output] = [((*lead, m, n), data.dtype)]
    return _stacked("householder_product", [data, factors], shapes, lead, m * n * count * 2, body)[0]


def _rotation(b: Loops, zeta: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return tangent, cosine and sine of the smaller angle whose doubled cotangent is `zeta` (8.5.2)."""
    size = b.let("size", I.fabs(zeta))
    tangent = b.let(
        "tangent",
        E.if_then_else(zeta < 0.0, E.const(-1.0, FLOAT64), E.const(1.0, FLOAT64)) / (size + I.sqrt(1.0 + size * size)),
    )
    cosine = b.let("cosine", 1.0 / I.sqrt(1.0 + tangent * tangent))
    return tangent, cosine, b.let("sine", tangent * cosine)


def _turn(
    b: Loops, a: Matrix, p: PrimExpr, q: PrimExpr, count: int, cosine: PrimExpr, sine: PrimExpr, columns: bool = False
) -> None:
    """Rotate rows p and q of a matrix, or its columns, by an angle."""
    with b.for_range(0, count, "k") as k:
        at_p, at_q = ((k, p), (k, q)) if columns else ((p, k), (q, k))
        x, y = b.let("x", a[at_p]), b.let("y", a[at_q])
        a[at_p] = cosine * x - sine * y
        a[at_q] = sine * x + cosine * y


def eigh(data: te.Tensor, lower: bool) -> tuple[te.Tensor, ...]:
    """Return the eigenvalues of symmetric matrices, ascending, and their vectors as columns: Jacobi's cyclic method
    (8.5).

    Only one triangle is read. The component of greatest magnitude of each vector is positive.
    """
    *lead, n, _ = data.extents

    def body(b: Loops, item: PrimExpr, x: BufferVar, values: BufferVar, out: BufferVar) -> None:
        a, vectors = _copied(b, x, item, n, n, "a"), _identity(b, n, n, "vectors")
        with b.for_range(0, n, "i") as i, b.for_range(0, i, "j") as j:
            if lower:
                a[j, i] = a[i, j]
            else:
                a[i, j] = a[j, i]
        _diagonalized(b, a, vectors, n)
        order = _order(b, n, lambda p, q: a[p, p] < a[q, q])
        with b.for_range(0, n, "to") as to:
            place = b.let("place", order[to])
            values[item * n + to] = E.cast(data.dtype, a[place, place])
            sign = _sign(b, n, lambda k, place=place: vectors[place, k])
            with b.for_range(0, n, "k") as k:
                out[item * (n * n) + k * n + to] = E.cast(data.dtype, vectors[place, k] * sign)

    results: list[Any] = [((*lead, n), data.dtype), ((*lead, n, n), data.dtype)]
    return _stacked("eigh", [data], results, lead, n**3 * 40, body)


def _diagonalized(b: Loops, a: Matrix, vectors: Matrix, n: int) -> None:
    """Diagonalize a symmetric matrix by rotations, which are also applied to the rows of `vectors`."""
    size = b.variable("size", FLOAT64, 0.0)
    with _block(b, n, n) as (i, j):
        size[0] = size[0] + a[i, j] * a[i, j]
    least = b.let("least", I.sqrt(size[0]) * (EPSILON / 64))
    active = b.variable("active", "int32", 1)
    with b.for_range(0, SWEEPS, "sweep"), b.if_scope(active[0] > 0):
        active[0] = 0
        with b.for_range(0, n, "p") as p, b.for_range(p + 1, n, "q") as q:
            beside = b.let("beside", a[p, q])
            with b.if_scope(I.fabs(beside) > least):
                active[0] = 1
                _, cosine, sine = _rotation(b, b.let("zeta", (a[q, q] - a[p, p]) / (2.0 * beside)))
                _turn(b, a, p, q, n, cosine, sine)
                _turn(b, a, p, q, n, cosine, sine, columns=True)
                _turn(b, vectors, p, q, n, cosine, sine)
                a[p, q] = E.const(0.0, FLOAT64)
                a[q, p] = E.const(0.0, FLOAT64)


def _order(b: Loops, n: int, before: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> BufferVar:
    """Return the sorted order of n items, by counting the items before each."""
    order = b.allocate("int64", max(1, n), "order")
    with b.for_range(0, n, "p") as p:
        rank = b.variable("rank", "int64", 0)
        with b.for_range(0, n, "q") as q:
            tied = E.logical_and(E.logical_not(before(p, q)), q < p)
            rank[0] = rank[0] + E.cast("int64", E.logical_or(before(q, p), tied))
        order[rank[0]] = p
    return order


def _sign(b: Loops, n: int, component: Callable[..., PrimExpr]) -> PrimExpr:
    """Return -1 if the component of greatest magnitude is negative, else 1."""
    greatest, sign = b.variable("greatest", FLOAT64, -1.0), b.variable("sign", FLOAT64, 1.0)
    with b.for_range(0, n, "k") as k:
        x = b.let("x", component(k))
        with b.if_scope(I.fabs(x) > greatest[0] * (1.0 + 2.0**-20)):  # of two nearly equal components, the first counts
            greatest[0] = I.fabs(x)
            sign[0] = E.if_then_else(x < 0.0, E.const(-1.0, FLOAT64), E.const(1.0, FLOAT64))
    return b.let("sign_of_vector", sign[0])


def svd(data: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return U, the singular values, descending, and V transposed, of matrices with at least as many rows as columns.

    One-sided Jacobi (8.6.3). U has the shape of the matrices; columns without a nonzero singular value complete the
    orthonormal basis. The component of greatest magnitude of each row of V transposed is positive.
    """
    *lead, m, n = data.extents

    def body(b: Loops, item: PrimExpr, x: BufferVar, left: BufferVar, values: BufferVar, right: BufferVar) -> None:
        rows = Matrix(b.allocate(FLOAT64, max(1, m * n), "rows"), m)  # the columns of the matrix, one after another
        with _block(b, n, m) as (i, j):
            rows[i, j] = E.cast(FLOAT64, x[item * (m * n) + j * n + i])
        vectors = _identity(b, n, n, "vectors")
        _made_orthogonal(b, rows, vectors, m, n)
        lengths = b.allocate(FLOAT64, max(1, n), "lengths")
        with b.for_range(0, n, "p") as p:
            lengths[p] = I.sqrt(_sum(b, 0, m, lambda k, p=p: rows[p, k] * rows[p, k]))
        order = _order(b, n, lambda p, q: lengths[p] > lengths[q])
        ordered = Matrix(b.allocate(FLOAT64, max(1, m * n), "ordered"), m)
        with b.for_range(0, n, "to") as to:
            place = b.let("place", order[to])
            sign = _sign(b, n, lambda k, place=place: vectors[place, k])
            length = b.let("length", lengths[place])
            values[item * n + to] = E.cast(data.dtype, length)
            with b.for_range(0, n, "k") as k:
                right[item * (n * n) + to * n + k] = E.cast(data.dtype, vectors[place, k] * sign)
            with b.for_range(0, m, "k") as k:
                ordered[to, k] = rows[place, k] * sign / length
            with b.if_scope(E.logical_not(length > lengths[order[0]] * (EPSILON * 4))):
                _completed(b, ordered, to, m)
        with _block(b, m, n) as (i, j):
            left[item * (m * n) + i * n + j] = E.cast(data.dtype, ordered[j, i])

    results: list[Any] = [((*lead, m, n), data.dtype), ((*lead, n), data.dtype), ((*lead, n, n), data.dtype)]
    return _stacked("svd", [data], results, lead, m * n * n * 40, body)


def _made_orthogonal(b: Loops, rows: Matrix, vectors: Matrix, m: int, n: int) -> None:
    """Rotate pairs of rows, and those of `vectors` likewise, until all rows are orthogonal."""
    active = b.variable("active", "int32", 1)
    with b.for_range(0, SWEEPS, "sweep"), b.if_scope(active[0] > 0):
        active[0] = 0
        with b.for_range(0, n, "p") as p, b.for_range(p + 1, n, "q") as q:
            alpha = _sum(b, 0, m, lambda k, p=p: rows[p, k] * rows[p, k])
            beta = _sum(b, 0, m, lambda k, q=q: rows[q, k] * rows[q, k])
            gamma = _sum(b, 0, m, lambda k, p=p, q=q: rows[p, k] * rows[q, k])
            with b.if_scope(I.fabs(gamma) > I.sqrt(alpha) * I.sqrt(beta) * (EPSILON * 2)):
                active[0] = 1
                _, cosine, sine = _rotation(b, b.let("zeta", (beta - alpha) / (2.0 * gamma)))
                _turn(b, rows, p, q, m, cosine, sine)
                _turn(b, vectors, p, q, n, cosine, sine)


def _completed(b: Loops, rows: Matrix, at: PrimExpr, m: int) -> None:
    """Make row `at` a unit vector orthogonal to the rows before it.

    It is the axis farthest from these rows, minus its projections on them.
    """
    place, farthest = b.variable("axis", "int64", 0), b.variable("farthest", FLOAT64, -1.0)
    with b.for_range(0, m, "axis") as axis:
        rest = _sum(b, 0, at, lambda k, axis=axis: -(rows[k, axis] * rows[k, axis]), 1.0)
        with b.if_scope(rest > farthest[0] * (1.0 + 2.0**-20)):
            farthest[0] = rest
            place[0] = axis
    with b.for_range(0, m, "k") as k:
        rows[at, k] = E.if_then_else(E.compare(E.EQ, k, place[0]), E.const(1.0, FLOAT64), E.const(0.0, FLOAT64))
    with b.for_range(0, 2, "again"), b.for_range(0, at, "other") as other:
        along = _sum(b, 0, m, lambda k: rows[other, k] * rows[at, k])
        with b.for_range(0, m, "k") as k:
            rows[at, k] = rows[at, k] - along * rows[other, k]
    length = b.let("length", I.sqrt(_sum(b, 0, m, lambda k: rows[at, k] * rows[at, k])))
    with b.for_range(0, m, "k") as k:
        rows[at, k] = rows[at, k] / length


TAYLOR: Final = 18
"""Number of terms of the exponential series for a matrix of norm at most 1/2: the next term is below 2^-65."""


def matrix_exp(data: te.Tensor) -> te.Tensor:
    """Return the exponential of square matrices, by scaling and squaring (9.3.1) of the exponential series."""
    *lead, n, _ = data.extents

    def body(b: Loops, item: PrimExpr, x: BufferVar, out: BufferVar) -> None:
        a = _copied(b, x, item, n, n, "a")
        norm = b.variable("norm", FLOAT64, 0.0)
        with b.for_range(0, n, "j") as j:
            total = _sum(b, 0, n, lambda k, j=j: I.fabs(a[k, j]))
            norm[0] = E.maximum(norm[0], total)
        finite = E.logical_and(norm[0] > 0.5, norm[0] < 2.0**1000)
        doublings = b.let("doublings", E.if_then_else(finite, I.ceil(I.log2(norm[0])) + 1.0, E.const(0.0, FLOAT64)))
        scale = b.let("scale", I.exp2(-doublings))
        with _block(b, n, n) as (i, j):
            a[i, j] = a[i, j] * scale
        found = _identity(b, n, n, "found")
        held = Matrix(b.allocate(FLOAT64, n * n, "held"), n)
        with b.for_range(0, TAYLOR, "back") as back:
            degree = b.let("degree", E.cast(FLOAT64, TAYLOR - back))
            _product_into(b, held, a, found, n)
            with _block(b, n, n) as (i, j):
                found[i, j] = held[i, j] / degree + E.if_then_else(
                    E.compare(E.EQ, i, j), E.const(1.0, FLOAT64), E.const(0.0, FLOAT64)
                )
        with b.for_range(0, E.cast("int64", doublings), "doubling"):
            _product_into(b, held, found, found, n)
            with _block(b, n, n) as (i, j):
                found[i, j] = held[i, j]
        _stored(b, found, out, item, n, n)

    results: list[Any] = [((*lead, n, n), data.dtype)]
    return _stacked("matrix_exp", [data], results, lead, n**3 * 30, body)[0]


def _product_into(b: Loops, to: Matrix, x: Matrix, y: Matrix, n: int) -> None:
    with b.for_range(0, n, "i") as i:
        with b.for_range(0, n, "j") as j:
            to[i, j] = E.const(0.0, FLOAT64)
        with b.for_range(0, n, "k") as k:
            factor = b.let("factor", x[i, k])
            with b.for_range(0, n, "j") as j:
                to[i, j] = to[i, j] + factor * y[k, j]
