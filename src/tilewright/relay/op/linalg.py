"""Dense linear algebra on stacks of matrices, from which frontends compose further functions.

The last two dimensions are the matrix. Kernels are in `topi/linalg.py`; they compute in float64 and round to the dtype
of the argument. The compositions are in `frontend/linear_algebra.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi import linalg as topi
from tilewright.topi.shapes import at_most, differ, is_at_most, require_same_dtype, text

_COMPLEX: Final = {"float32": "complex64", "float64": "complex128"}


def _matrices(t: TensorType, *, square: bool = False, name: str = "data") -> tuple[Any, ...]:
    """Return the shape of a stack of matrices. Raises `ShapeError` for other tensors."""
    if t.dtype not in _COMPLEX:
        raise ShapeError(f"{name} is {t.dtype}; linear algebra takes only float32 and float64: cast it first")
    if t.ndim < 2:
        raise ShapeError(f"{name} must be matrices, and it has the shape {text(t.shape)}")
    if square and differ(t.shape[-1], t.shape[-2]):
        raise ShapeError(f"{name} must be square matrices, and it has the shape {text(t.shape)}")
    return t.shape


class Factorization(Op):
    """Base of the operators of linear algebra: `infer` describes whole stacks, `of_one` computes one matrix."""

    precision = Precision.NEVER
    ranks: ClassVar[tuple[int, ...]] = (2,)
    """Rank of each argument without its batch: 2 for matrices, 1 for rows."""
    count: ClassVar[int] = 1
    """Number of results."""

    @property
    def results(self) -> int | None:
        return self.count if self.count > 1 else None

    def of_one(self, *args: Any) -> Any:
        """Compute the results for one matrix or row of each argument; floats are float64."""
        raise NotImplementedError

    def reference(self, *arrays: Array) -> Any:
        inferred = self.infer(*(TensorType(a.shape, a.dtype.name) for a in arrays))
        types = tensors(*(inferred.fields if isinstance(inferred, TupleType) else (inferred,)))
        lead = arrays[0].shape[: arrays[0].ndim - self.ranks[0]]
        found = [np.zeros((prod(lead), *t.shape[len(lead) :]), str(t.dtype)) for t in types]
        flat = [a.reshape(prod(lead), *a.shape[a.ndim - r :]) for a, r in zip(arrays, self.ranks, strict=True)]
        with np.errstate(all="ignore"):
            for k in range(prod(lead)):
                given = self.of_one(*(a[k].astype(np.float64) if a.dtype.kind == "f" else a[k] for a in flat))
                for out, value in zip(found, given if len(types) > 1 else (given,), strict=True):
                    out[k] = value
        whole = tuple(f.reshape(t.shape) for f, t in zip(found, types, strict=True))
        return whole if len(whole) > 1 else whole[0]


@op("linalg.cholesky", kind=Fusion.OPAQUE)
class Cholesky(Factorization):
    """The lower triangular L of symmetric matrices L @ L.T, and the order of the first minor that is not positive, or
    0.

    Only the lower triangle of `data` is read. From the row of that minor on, the diagonal of L is NaN.
    """

    count = 2

    def infer(self, data: Type) -> TupleType:
        """The type of the data, square matrices of float32 or float64; an int32 for each matrix."""
        (t,) = tensors(data)
        shape = _matrices(t, square=True)
        return TupleType((t, TensorType(shape[:-2], "int32")))

    def of_one(self, a: Array) -> tuple[Array, int]:
        found, wrong = np.zeros_like(a), 0
        for k in range(len(a)):
            for j in range(k):
                found[k, j] = (a[k, j] - found[k, :j] @ found[j, :j]) / found[j, j]
            rest = a[k, k] - found[k, :k] @ found[k, :k]
            wrong = wrong or (0 if rest > 0 else k + 1)
            found[k, k] = np.sqrt(rest) if rest > 0 else np.nan
        return found, wrong

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.cholesky(data)


@op("linalg.lu", kind=Fusion.OPAQUE)
class LU(Factorization):
    """LU factors of matrices in one matrix (L without its unit diagonal), pivots, and the first zero pivot, or 0.

    Pivot k, counted from one, is the row that row k was swapped with in step k (LAPACK `getrf`).
    """

    pivot: bool = True
    """True swaps rows (partial pivoting)."""
    count = 3

    def infer(self, data: Type) -> TupleType:
        """The type of the data; pivots (…, min(m, n)) and an info for each matrix, both int32."""
        (t,) = tensors(data)
        shape = _matrices(t)
        return TupleType((t, TensorType((*shape[:-2], at_most(*shape[-2:])), "int32"), TensorType(shape[:-2], "int32")))

    def of_one(self, data: Array) -> tuple[Array, Array, int]:
        a, wrong = data.copy(), 0
        pivots = np.arange(1, min(a.shape) + 1)
        for k in range(min(a.shape)):
            if self.pivot:
                place = k + int(np.argmax(np.abs(a[k:, k])))
                a[[k, place]] = a[[place, k]]
                pivots[k] = place + 1
            wrong = wrong or (k + 1 if a[k, k] == 0 else 0)
            if a[k, k] != 0 or not self.pivot:
                a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return a, pivots, wrong

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.lu(data, self.pivot)


@op("linalg.permutation", kind=Fusion.OPAQUE)
class Permutation(Factorization):
    """The permutation of `size` rows that the swaps of `linalg.lu`'s pivots make."""

    size: int
    """Number of rows of the factored matrix."""

    ranks = (1,)

    def infer(self, pivots: Type) -> TensorType:
        """(…, size); int32. The pivots are integer."""
        (t,) = tensors(pivots)
        if not t.ndim or not t.dtype.is_integer:
            raise ShapeError(f"pivots must be rows of integers, and they are {t!r}")
        return TensorType((*t.shape[:-1], self.size), "int32")

    def of_one(self, pivots: Array) -> Array:
        rows = np.arange(self.size)
        for k, place in enumerate(np.clip(pivots - 1, 0, self.size - 1)):
            rows[[k, place]] = rows[[place, k]]
        return rows

    def compute(self, pivots: te.Tensor) -> te.Tensor:
        return topi.permutation(pivots, self.size)


@op("linalg.solve_triangular", kind=Fusion.OPAQUE)
class SolveTriangular(Factorization):
    """X of matrix @ X = rhs; only one triangle of `matrix` is read."""

    upper: bool = False
    """True reads the upper triangle, False the lower one."""
    unit: bool = False
    """True takes the diagonal as ones without reading it."""

    ranks = (2, 2)

    def infer(self, matrix: Type, rhs: Type) -> TensorType:
        """The type of `rhs`; both inputs have one dtype, float32 or float64, and one batch."""
        a, b = tensors(matrix, rhs)
        require_same_dtype((a, b))
        shape, other = _matrices(a, square=True, name="matrix"), _matrices(b, name="rhs")
        if len(shape) != len(other) or any(map(differ, shape[:-1], other[:-1])):
            raise ShapeError(
                f"matrix {text(a.shape)} and rhs {text(b.shape)} must have equal numbers of rows, "
                "and equal dimensions before them")
        return b

    def of_one(self, a: Array, b: Array) -> Array:
        x = b.copy()
        for k in range(len(a))[:: -1 if self.upper else 1]:
            others = slice(k + 1, None) if self.upper else slice(0, k)
            x[k] -= a[k, others] @ x[others]
            x[k] /= 1 if self.unit else a[k, k]
        return x

    def compute(self, matrix: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        return topi.solve_triangular(matrix, rhs, self.upper, self.unit)


@op("linalg.geqrf", kind=Fusion.OPAQUE)
class Geqrf(Factorization):
    """Householder's QR factorization: R with the reflection vectors below it, and the factors of the reflections
    (LAPACK `geqrf`).
    """

    count = 2

    def infer(self, data: Type) -> TupleType:
        """The type of the data, and factors (…, min(m, n)) of its dtype."""
        (t,) = tensors(data)
        shape = _matrices(t)
        return TupleType((t, TensorType((*shape[:-2], at_most(*shape[-2:])), t.dtype)))

    def of_one(self, a: Array) -> tuple[Array, Array]:
        if not a.size:
            return a, np.zeros(min(a.shape))
        packed, factors = np.linalg.qr(a, mode="raw")
        return packed.T, factors

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.geqrf(data)


@op("linalg.householder_product", kind=Fusion.OPAQUE)
class HouseholderProduct(Factorization):
    """The first n columns of the product of the reflections that `linalg.geqrf` returns (LAPACK `orgqr`), for `data`
    (m, n).
    """

    ranks = (2, 1)

    def infer(self, data: Type, factors: Type) -> TensorType:
        """The type of the data, (…, m, n) with m >= n; factors are (…, k) with k <= n."""
        t, tau = tensors(data, factors)
        require_same_dtype((t, tau))
        shape = _matrices(t)
        if (
            not is_at_most(shape[-1], shape[-2])
            or tau.ndim != t.ndim - 1
            or any(map(differ, tau.shape[:-1], shape[:-2]))
            or not is_at_most(tau.shape[-1], shape[-1])
        ):
            raise ShapeError(
                f"data {text(t.shape)} must have at least as many rows as columns, "
                f"and factors {text(tau.shape)} at most one for each column")
        return t

    def of_one(self, a: Array, factors: Array) -> Array:
        found = np.eye(*a.shape)
        for k in reversed(range(len(factors))):
            vector = np.concatenate([np.zeros(k), [1.0], a[k + 1 :, k]])
            found -= factors[k] * np.outer(vector, vector @ found)
        return found

    def compute(self, data: te.Tensor, factors: te.Tensor) -> te.Tensor:
        return topi.householder_product(data, factors)


def _signs(vectors: Array) -> Array:
    """The sign of the component with the greatest magnitude in each row; of nearly equal ones, of the first."""
    found = np.ones(len(vectors))
    for k, row in enumerate(vectors):
        size = -1.0
        for x in row:
            if abs(x) > size * (1 + 2.0**-20):
                size, found[k] = abs(x), -1.0 if x < 0 else 1.0
    return found


@op("linalg.eigh", kind=Fusion.OPAQUE)
class Eigh(Factorization):
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns.

    The largest component of each vector in magnitude is positive.
    """

    lower: bool = True
    """True reads the lower triangle, False the upper one."""
    count = 2

    def infer(self, data: Type) -> TupleType:
        """Eigenvalues (…, n) and vectors (…, n, n) of the dtype of the square data."""
        (t,) = tensors(data)
        shape = _matrices(t, square=True)
        return TupleType((TensorType(shape[:-1], t.dtype), t))

    def of_one(self, a: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(a, "L" if self.lower else "U")
        return values, vectors * _signs(vectors.T)

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.eigh(data, self.lower)


@op("linalg.svd", kind=Fusion.OPAQUE)
class SVD(Factorization):
    """U, the singular values in descending order, and V transposed; U @ diag(values) @ V transposed is `data`.

    The largest component of each row of V transposed in magnitude is positive.
    """

    count = 3

    def infer(self, data: Type) -> TupleType:
        """U (…, m, n), values (…, n) and V transposed (…, n, n) from (…, m, n) with m >= n."""
        (t,) = tensors(data)
        *lead, m, n = _matrices(t)
        if not is_at_most(n, m):
            raise ShapeError(f"data {text(t.shape)} must have at least as many rows as columns; transpose it first")
        return TupleType((t, TensorType((*lead, n), t.dtype), TensorType((*lead, n, n), t.dtype)))

    def of_one(self, a: Array) -> tuple[Array, Array, Array]:
        left, values, right = np.linalg.svd(a, full_matrices=False)
        signs = _signs(right)
        return left * signs, values, right * signs[:, None]

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.svd(data)


@op("linalg.eig", kind=Fusion.OPAQUE)
class Eig(Factorization):
    """The eigenvalues of square matrices and the eigenvectors as columns of length one; both complex."""

    count = 2

    def infer(self, data: Type) -> TupleType:
        """Values (…, n) and vectors (…, n, n); complex64 for float32, complex128 for float64."""
        (t,) = tensors(data)
        shape = _matrices(t, square=True)
        kind = _COMPLEX[str(t.dtype)]
        return TupleType((TensorType(shape[:-1], kind), TensorType(shape, kind)))

    def of_one(self, a: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eig(a)
        return values, vectors


@op("linalg.matrix_exp", kind=Fusion.OPAQUE)
class MatrixExp(Factorization):
    """The matrix exponential: the sum of data^k / k! over k from 0."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, square matrices of float32 or float64."""
        (t,) = tensors(data)
        _matrices(t, square=True)
        return t

    def of_one(self, a: Array) -> Array:
        norm = np.abs(a).sum(0).max(initial=0.0)
        doublings = int(np.ceil(np.log2(norm)) + 1) if 0.5 < norm < 2.0**1000 else 0
        found = np.eye(len(a))
        for degree in range(topi.TAYLOR, 0, -1):
            found = np.eye(len(a)) + a * 2.0**-doublings @ found / degree
        for _ in range(doublings):
            found = found @ found
        return found

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.matrix_exp(data)


_GROWTH: Final = (1 + 17**0.5) / 8
"""Smallest ratio of a pivot to the greatest element of its column (Bunch and Kaufman, 1977)."""


@op("linalg.ldl_factor", kind=Fusion.OPAQUE)
class LDLFactor(Factorization):
    """L and the block diagonal D of symmetric matrices L @ D @ L.T (LAPACK `sytrf`), pivots, and the first zero pivot,
    or 0.

    Only the lower triangle of `data` is read. Pivot k, counted from one, is the row and column that k was swapped with;
    two equal negative pivots mark a block of two.
    """

    count = 3

    def infer(self, data: Type) -> TupleType:
        """The type of the square data; pivots (…, n) and an info for each matrix, both int32."""
        (t,) = tensors(data)
        shape = _matrices(t, square=True)
        return TupleType((t, TensorType(shape[:-1], "int32"), TensorType(shape[:-2], "int32")))

    def of_one(self, data: Array) -> tuple[Array, Array, int]:
        a = np.tril(data)
        n, k, wrong = len(a), 0, 0
        pivots = np.zeros(n, np.int32)
        while k < n:
            place, width = _pivot(a, k)
            if not np.any(a[k:, k]):
                wrong = wrong or k + 1
            _exchange(a, k, k + width - 1, place)
            block = a[k : k + width, k : k + width]
            if width == 2:
                block[0, 1] = block[1, 0]
            below = a[k + width :, k : k + width].copy()
            if np.any(block):
                a[k + width :, k : k + width] = below @ np.linalg.inv(block)
                a[k + width :, k + width :] -= np.tril(a[k + width :, k : k + width] @ below.T)
            if width == 2:
                block[0, 1] = 0
            pivots[k : k + width] = place + 1 if width == 1 else -(place + 1)
            k += width
        return a, pivots, wrong


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """The row to move to the end of the next block, and the size of the block (1 or 2)."""
    size = np.abs(a)
    column = size[k + 1 :, k]
    if not column.size or size[k, k] >= _GROWTH * column.max():
        return k, 1
    other = k + 1 + int(column.argmax())
    widest = max(size[other, k:other].max(), size[other + 1 :, other].max(initial=0.0))
    if size[k, k] * widest >= _GROWTH * column.max() ** 2:
        return k, 1
    return other, 1 if size[other, other] >= _GROWTH * widest else 2


def _exchange(a: Array, k: int, at: int, place: int) -> None:
    """Swap the rows and columns `at` and `place` of the remainder from k on, in the lower triangle."""
    whole = a[k:, k:] + np.tril(a[k:, k:], -1).T
    order = np.arange(k, len(a))
    order[[at - k, place - k]] = order[[place - k, at - k]]
    a[k:, k:] = np.tril(whole[np.ix_(order - k, order - k)])


@op("linalg.ldl_solve", kind=Fusion.OPAQUE)
class LDLSolve(Factorization):
    """X of A @ X = rhs, from the factors and pivots of `linalg.ldl_factor`."""

    ranks = (2, 1, 2)

    def infer(self, factors: Type, pivots: Type, rhs: Type) -> TensorType:
        """The type of `rhs`; factors are (…, n, n), pivots (…, n) integers."""
        a, places, b = tensors(factors, pivots, rhs)
        require_same_dtype((a, b))
        shape, other = _matrices(a, square=True, name="factors"), _matrices(b, name="rhs")
        if (
            len(shape) != len(other) or places.ndim != len(shape) - 1 or not places.dtype.is_integer
            or any(map(differ, shape[:-1], other[:-1])) or any(map(differ, places.shape, shape[:-1]))
        ):
            raise ShapeError(
                f"factors {text(a.shape)}, pivots {text(places.shape)} and rhs {text(b.shape)} "
                "must have equal dimensions before the last one")
        return b

    def of_one(self, a: Array, pivots: Array, rhs: Array) -> Array:
        x, k, n = rhs.copy(), 0, len(a)
        starts: list[tuple[int, int]] = []
        while k < n:
            width = 1 if pivots[k] > 0 else 2
            starts.append((k, width))
            _swap(x, k + width - 1, int(abs(pivots[k])) - 1)
            block = np.tril(a[k : k + width, k : k + width])
            x[k + width :] -= a[k + width :, k : k + width] @ x[k : k + width]
            whole = block + np.tril(block, -1).T
            x[k : k + width] = np.linalg.solve(whole, x[k : k + width]) if np.linalg.det(whole) else np.inf
            k += width
        for k, width in reversed(starts):
            x[k : k + width] -= a[k + width :, k : k + width].T @ x[k + width :]
            _swap(x, k + width - 1, int(abs(pivots[k])) - 1)
        return x


def _swap(x: Array, first: int, second: int) -> None:
    x[[first, second]] = x[[second, first]]
