"""Linear algebra: factorizations, systems of equations, eigenvalues, singular values.

If torch would raise for a singular or not positive definite matrix, the results are not finite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.base.types import FLOAT32
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend import linear_algebra as L
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named, floating
from tilewright.relay.frontend.pytorch.reduce import vector_norm
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import movedim
from tilewright.relay.frontend.shaping import axis_of, cast, fields, reshape, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

# Cholesky


def _cholesky(a: Expr, upper: bool) -> tuple[Expr, Expr]:
    found, info = fields(op.linalg.cholesky(L.transposed(a) if upper else a), 2)
    return (L.transposed(found) if upper else found), info


@converter("cholesky", "linalg_cholesky")
def cholesky(self: Expr, upper: bool = False) -> Expr:
    return _cholesky(self, upper)[0]


@converter("linalg_cholesky_ex")
def cholesky_ex(self: Expr, upper: bool = False, check_errors: bool = False) -> tuple[Expr, Expr]:
    return _cholesky(self, upper)


@converter("cholesky_solve")
def cholesky_solve(self: Expr, input2: Expr, upper: bool = False) -> Expr:
    b, factor = L.aligned(self, L.transposed(input2) if upper else input2)
    return op.linalg.solve_triangular(L.transposed(factor), op.linalg.solve_triangular(factor, b), upper=True)


@converter("cholesky_inverse")
def cholesky_inverse(self: Expr, upper: bool = False) -> Expr:
    *lead, n, _ = shape_of(self)
    return cholesky_solve(L.identity(n, self, lead), self, upper)


# Triangular systems


def _triangular(a: Expr, b: Expr, upper: bool, unit: bool, left: bool = True) -> Expr:
    if not left:
        return L.transposed(_triangular(L.transposed(a), L.transposed(b), not upper, unit))
    a, b = L.aligned(a, b)
    return op.linalg.solve_triangular(a, b, upper=upper, unit=unit)


@converter("linalg_solve_triangular")
def solve_triangular(self: Expr, B: Expr, upper: bool, left: bool = True, unitriangular: bool = False) -> Expr:
    return _triangular(self, B, upper, unitriangular, left)


@converter("triangular_solve")
def triangular_solve(
    self: Expr, A: Expr, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Expr, Expr]:
    b, a = L.aligned(self, A)
    return _triangular(L.transposed(a) if transpose else a, b, upper != transpose, unitriangular), a


# LU


@converter("linalg_lu_factor")
def lu_factor(A: Expr, pivot: bool = True) -> tuple[Expr, Expr]:
    return L.lu(A, pivot)[:2]


@converter("linalg_lu_factor_ex", "_lu_with_info")
def lu_factor_ex(A: Expr, pivot: bool = True, check_errors: bool = False) -> tuple[Expr, ...]:
    return L.lu(A, pivot)


def _permutation_matrix(pivots: Expr, size: int, like: Expr) -> Expr:
    """P of A = P @ L @ U: column k has its 1 in row `rows[k]`."""
    rows = op.linalg.permutation(pivots, size=size)
    lead = shape_of(rows)[:-1]
    if not size:
        return L.filled((*lead, 0, 0), like)
    return cast(
        op.equal(reshape(rows, (*lead, 1, size)), Constant(np.arange(size, dtype=np.int32).reshape(size, 1))),
        dtype_of(like))


def _triangles(packed: Expr) -> tuple[Expr, Expr]:
    """L with its unit diagonal, and U."""
    *lead, m, n = shape_of(packed)
    count = min(m, n)
    left = packed if n == count else op.strided_slice(packed, begin=(0,), end=(count,), axes=(len(lead) + 1,))
    right = packed if m == count else op.strided_slice(packed, begin=(0,), end=(count,), axes=(len(lead),))
    ones = Constant(np.eye(m, count, dtype=dtype_of(packed).numpy()))
    return op.add(L.triangle(left, False, -1), ones) if count else left, L.triangle(right, True)


@converter("linalg_lu")
def lu(A: Expr, pivot: bool = True) -> tuple[Expr, ...]:
    packed, pivots, _ = L.lu(A, pivot)
    p = _permutation_matrix(pivots, shape_of(A)[-2], A) if pivot else L.filled((0,), A)
    return p, *_triangles(packed)


@converter("lu_unpack")
def lu_unpack(LU_data: Expr, LU_pivots: Expr, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Expr, ...]:
    none = L.filled((0,), LU_data)
    p = _permutation_matrix(LU_pivots, shape_of(LU_data)[-2], LU_data) if unpack_pivots else none
    return p, *(_triangles(LU_data) if unpack_data else (none, none))


@converter("lu_solve", "linalg_lu_solve")
def lu_solve(
    node: Node, self: Expr | None = None, LU_data: Expr | None = None, LU_pivots: Expr | None = None,
    LU: Expr | None = None, pivots: Expr | None = None, B: Expr | None = None, left: bool = True, adjoint: bool = False,
) -> Expr:
    packed, rows, b = (LU, pivots, B) if LU is not None else (LU_data, LU_pivots, self)
    assert packed is not None and rows is not None and b is not None
    return (
        L.lu_solve(packed, rows, b, adjoint)
        if left
        else L.transposed(L.lu_solve(packed, rows, L.transposed(b), not adjoint))
    )


# Indefinite symmetric matrices


@converter("linalg_ldl_factor")
def ldl_factor(self: Expr, hermitian: bool = False) -> tuple[Expr, ...]:
    return fields(op.linalg.ldl_factor(self), 3)[:2]


@converter("linalg_ldl_factor_ex")
def ldl_factor_ex(self: Expr, hermitian: bool = False, check_errors: bool = False) -> tuple[Expr, ...]:
    return fields(op.linalg.ldl_factor(self), 3)


@converter("linalg_ldl_solve")
def ldl_solve(LD: Expr, pivots: Expr, B: Expr, hermitian: bool = False) -> Expr:
    factors, b = L.aligned(LD, B)
    wanted = shape_of(factors)[:-1]
    return op.linalg.ldl_solve(
        factors, pivots if shape_of(pivots) == wanted else op.broadcast_to(pivots, shape=wanted), b)


# Systems of equations


def _solved(a: Expr, b: Expr, left: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """The solution, then the LU factors of A. `b` may be one vector for each matrix."""
    is_vector = rank(b) == 1 or (rank(b) == rank(a) - 1 and shape_of(b) == shape_of(a)[:-1])
    rhs = op.expand_dims(b, axis=rank(b)) if is_vector else b
    packed, pivots, info = L.lu(a)
    x = (
        L.lu_solve(packed, pivots, rhs)
        if left or is_vector
        else L.transposed(L.lu_solve(packed, pivots, L.transposed(rhs), True))
    )
    return (op.squeeze(x, axis=(rank(x) - 1,)) if is_vector else x), packed, pivots, info


@converter("linalg_solve")
def solve(A: Expr, B: Expr, left: bool = True) -> Expr:
    return _solved(A, B, left)[0]


@converter("linalg_solve_ex")
def solve_ex(A: Expr, B: Expr, left: bool = True, check_errors: bool = False) -> tuple[Expr, Expr]:
    x, _, _, info = _solved(A, B, left)
    return x, info


@converter("_linalg_solve_ex")
def solve_with_factors(A: Expr, B: Expr, left: bool = True, check_errors: bool = False) -> tuple[Expr, ...]:
    return _solved(A, B, left)


@converter("linalg_inv", "inverse")
def inv(node: Node, A: Expr | None = None, self: Expr | None = None) -> Expr:
    x = A if A is not None else self
    assert x is not None
    return L.inverse(x)


@converter("linalg_inv_ex")
def inv_ex(A: Expr, check_errors: bool = False) -> tuple[Expr, Expr]:
    packed, pivots, info = L.lu(A)
    *lead, n, _ = shape_of(A)
    return L.lu_solve(packed, pivots, L.identity(n, A, lead)), info


@converter("linalg_tensorinv")
def tensorinv(self: Expr, ind: int = 2) -> Expr:
    dims = shape_of(self)
    n = math.prod(dims[:ind])
    return reshape(L.inverse(reshape(self, (n, n))), (*dims[ind:], *dims[:ind]))


@converter("linalg_tensorsolve")
def tensorsolve(self: Expr, other: Expr, dims: list[int] | None = None) -> Expr:
    a = (
        self
        if dims is None
        else movedim(self, [d % rank(self) for d in dims], list(range(rank(self) - len(dims), rank(self))))
    )
    rest = shape_of(a)[rank(other) :]
    n = math.prod(rest)
    return reshape(L.solve(reshape(a, (n, n)), reshape(other, (n, 1))), rest)


# Determinants


@converter("linalg_det", "det")
def det(node: Node, A: Expr | None = None, self: Expr | None = None) -> Expr:
    x = A if A is not None else self
    assert x is not None
    return L.determinant(x)


@converter("_linalg_det")
def det_with_factors(A: Expr) -> tuple[Expr, Expr, Expr]:
    packed, pivots, _ = L.lu(A)
    return L.determinant_of(packed, pivots), packed, pivots


@converter("linalg_slogdet", "slogdet")
def slogdet(node: Node, A: Expr | None = None, self: Expr | None = None) -> tuple[Expr, Expr]:
    x = A if A is not None else self
    assert x is not None
    return L.sign_and_log(x)


@converter("_linalg_slogdet")
def slogdet_with_factors(A: Expr) -> tuple[Expr, ...]:
    return *L.sign_and_log(A), *L.lu(A)[:2]


@converter("logdet")
def logdet(self: Expr) -> Expr:
    sign, log = L.sign_and_log(self)
    return op.where(op.less(sign, scalar(0, sign)), scalar(math.nan, log), log)


# QR


@converter("linalg_qr")
def qr(A: Expr, node: Node, mode: str = "reduced") -> tuple[Expr, Expr]:
    if mode not in ("reduced", "complete", "r"):
        node.refuse(f"argument 'mode' is {mode!r}; it must be 'reduced', 'complete' or 'r'")
    q, r = L.qr(A, mode == "complete")
    return (L.filled((0,), A) if mode == "r" else q), r


@converter("qr")
def qr_of(self: Expr, some: bool = True) -> tuple[Expr, Expr]:
    return L.qr(self, not some)


@converter("geqrf")
def geqrf(self: Expr) -> tuple[Expr, ...]:
    return fields(op.linalg.geqrf(self), 2)


@converter("linalg_householder_product", "orgqr")
def householder_product(
    node: Node, tau: Expr | None = None, input2: Expr | None = None, input: Expr | None = None, self: Expr | None = None
) -> Expr:
    packed, factors = (input, tau) if input is not None else (self, input2)
    assert packed is not None and factors is not None
    return op.linalg.householder_product(packed, factors)


@converter("ormqr")
def ormqr(self: Expr, input2: Expr, input3: Expr, left: bool = True, transpose: bool = False) -> Expr:
    q = L.reflections(self, input2, shape_of(self)[-2])
    q = L.transposed(q) if transpose else q
    return L.product(q, input3) if left else L.product(input3, q)


# Eigenvalues


@converter("linalg_eigh", "_linalg_eigh")
def eigh(
    node: Node, self: Expr | None = None, A: Expr | None = None, UPLO: str = "L", compute_v: bool = True
) -> tuple[Expr, Expr]:
    x = A if A is not None else self
    assert x is not None
    values, vectors = L.eigh(x, UPLO.upper() == "L")
    return values, vectors if compute_v else L.filled((0,), x)


@converter("linalg_eigvalsh")
def eigvalsh(self: Expr, UPLO: str = "L") -> Expr:
    return L.eigh(self, UPLO.upper() == "L")[0]


@converter("linalg_eig")
def eig(self: Expr) -> tuple[Expr, ...]:
    return fields(op.linalg.eig(self), 2)


@converter("linalg_eigvals")
def eigvals(self: Expr) -> Expr:
    return fields(op.linalg.eig(self), 2)[0]


# Singular values


@converter("linalg_svd")
def svd(A: Expr, full_matrices: bool = True, driver: str | None = None) -> tuple[Expr, ...]:
    return L.svd(A, full_matrices)


@converter("_linalg_svd")
def svd_or_values(
    A: Expr, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Expr, ...]:
    u, s, vh = L.svd(A, full_matrices)
    none = L.filled((0,), A)
    return (u, s, vh) if compute_uv else (none, s, none)


@converter("svd")
def svd_of(self: Expr, some: bool = True, compute_uv: bool = True) -> tuple[Expr, ...]:
    *lead, m, n = shape_of(self)
    u, s, vh = L.svd(self, not some)
    return (u, s, L.transposed(vh)) if compute_uv else (L.filled((*lead, m, m), self), s, L.filled((*lead, n, n), self))


@converter("linalg_svdvals")
def svdvals(A: Expr, driver: str | None = None) -> Expr:
    return L.svd(A)[1]


def _tolerances(a: Expr, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Absolute and relative bound of values that count as zero; without `atol`, `rtol` defaults to size * epsilon."""
    least = max(shape_of(a)[-2:]) * float(np.finfo(dtype_of(a).numpy()).eps)
    if rtol is None and isinstance(atol, Expr):
        rtol = op.where(op.greater(atol, scalar(0, atol)), scalar(0, atol), scalar(least, atol))
    return 0.0 if atol is None else atol, (0.0 if atol else least) if rtol is None else rtol


def _pseudo_inverse(a: Expr, atol: Any, rtol: Any, hermitian: bool) -> Expr:
    *lead, m, n = shape_of(a)
    if not math.prod(shape_of(a)):
        return L.filled((*lead, n, m), a)
    if hermitian:
        values, u = L.eigh(a)
        vh = L.transposed(u)
        size: Expr = op.abs(values)
    else:
        u, values, vh = L.svd(a)
        size = values
    kept = L.kept_values(size, *_tolerances(a, atol, rtol))
    inverse: Expr = op.where(
        kept, op.divide(scalar(1, values), op.where(kept, values, scalar(1, values))), scalar(0, values))
    return L.product(op.multiply(L.transposed(vh), op.expand_dims(inverse, axis=rank(inverse) - 1)), L.transposed(u))


@converter("linalg_pinv", "pinverse")
def pinv(
    self: Expr, node: Node, atol: Any = None, rtol: Any = None, rcond: Any = None, hermitian: bool = False
) -> Expr:
    default = 1e-15 if node.name == "pinverse" else None
    return _pseudo_inverse(
        self, atol, rtol if rcond is None and default is None else rcond if rcond is not None else default, hermitian)


@converter("linalg_matrix_rank")
def matrix_rank(
    node: Node, self: Expr | None = None, input: Expr | None = None, atol: Any = None, rtol: Any = None,
    tol: Any = None, hermitian: bool = False,
) -> Expr:
    a = self if self is not None else input
    assert a is not None
    *lead, m, n = shape_of(a)
    if not m * n:
        return Constant(np.zeros(lead, np.int64))
    values = op.abs(L.eigh(a)[0]) if hermitian else L.svd(a)[1]
    bounds = (tol, 0.0) if tol is not None else _tolerances(a, atol, rtol)
    return op.sum(cast(L.kept_values(values, *bounds), "int64"), axis=(rank(values) - 1,))


@converter("linalg_cond")
def cond(self: Expr, node: Node, p: Any = None) -> Expr:
    """The condition number: the norm of a matrix times that of its inverse."""
    if p in (None, 2, -2):
        values = L.svd(self)[1]
        count = shape_of(values)[-1]
        if not count:
            return L.filled(shape_of(values)[:-1], self)
        first, last = (
            op.take(values, Constant(np.asarray(k, np.int64)), axis=rank(values) - 1) for k in (0, count - 1))
        return op.divide(last, first) if p == -2 else op.divide(first, last)
    if not shape_of(self)[-1]:
        return L.filled(shape_of(self)[:-2], self)
    return op.multiply(matrix_norm(self, p, node), matrix_norm(L.inverse(self), p, node))


def matrix_norm(a: Expr, order: Any, node: Node) -> Expr:
    """The norm of matrices; `order` is "fro", "nuc", 1, -1, 2, -2, infinity or minus infinity."""
    n = rank(a)
    if order not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        node.refuse(f"the norm of a matrix is {order!r}; it must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    if not math.prod(shape_of(a)):
        return L.filled(shape_of(a)[:-2], a)
    if order == "fro":
        return vector_norm(a, node, 2, None, (n - 2, n - 1))
    if order in ("nuc", 2, -2):
        values = L.svd(a)[1]
        return {"nuc": op.sum, 2: op.max, -2: op.min}[order](values, axis=(rank(values) - 1,))
    summed = op.sum(op.abs(a), axis=(n - 2 if abs(order) == 1 else n - 1,))
    return (op.max if order > 0 else op.min)(summed, axis=(n - 2,))


def _norm_along(self: Expr, order: Any, dim: list[int], keepdim: bool, node: Node) -> Expr:
    """The norms of the matrices along two dimensions."""
    axes = [axis_of(d, rank(self), node) for d in dim]
    a = transpose(self, [*(k for k in range(rank(self)) if k not in axes), *axes])
    found = matrix_norm(a, order, node)
    return reshape(found, [1 if k in axes else d for k, d in enumerate(shape_of(self))]) if keepdim else found


@converter("linalg_matrix_norm", "nuclear_norm")
def matrix_norm_along(
    self: Expr, node: Node, ord: Any = None, dim: list[int] | None = None, keepdim: bool = False, dtype: Any = None
) -> Expr:
    x = floating(self if dtype is None else cast(self, dtype_named(dtype, node)), node)
    order = ("nuc" if node.name == "nuclear_norm" else "fro") if ord is None else ord
    return _norm_along(x, order, [-2, -1] if dim is None else dim, keepdim, node)


@converter("linalg_norm")
def norm(self: Expr, node: Node, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Expr:
    """The norm of a vector or matrix, along `dim` if given; without an order, the 2-norm of all elements."""
    x = floating(self if dtype is None else cast(self, dtype_named(dtype, node)), node)
    dims = dim if dim is None or isinstance(dim, list) else [dim]
    count = rank(x) if dims is None else len(dims)
    if ord is None or count == 1:
        return vector_norm(x, node, 2 if ord is None else ord, None, dims, keepdim)
    return _norm_along(x, ord, [0, 1] if dims is None else dims, keepdim, node)


# Powers


@converter("linalg_matrix_power", "matrix_power")
def matrix_power(self: Expr, n: int) -> Expr:
    return L.power(self, n)


@converter("matrix_exp", "linalg_matrix_exp")
def matrix_exp(self: Expr) -> Expr:
    return (
        op.linalg.matrix_exp(self)
        if dtype_of(self) != "float16"
        else cast(op.linalg.matrix_exp(cast(self, FLOAT32)), "float16")
    )
