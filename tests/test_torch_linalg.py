"""Linear algebra against torch, results that are not unique by what they must satisfy; ONNX's determinant; refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.errors import ModelError, NotNativeWarning, ShapeError
from tilewright.relay.expr import var
from torch_functions import compiled

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
L = torch.linalg
torch.manual_seed(3)
SQUARE, OTHER = torch.randn(2, 4, 4, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
SYMMETRIC = SQUARE + SQUARE.mT
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(4, dtype=torch.float64)
WIDE, DEFICIENT = OTHER.mT.contiguous(), OTHER @ OTHER.mT
EMPTY = torch.zeros(2, 0, 0, dtype=torch.float64)
ORDERS = ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))

UNIQUE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (
        lambda a, b: (L.solve(a, b), L.solve(a, b[..., 0]), L.solve(a, b.mT, left=False), L.solve_ex(a, b)),
        (SQUARE, OTHER),
    ),
    "inverse": (
        lambda a: (L.inv(a), L.inv_ex(a), L.matrix_power(a, -3), L.matrix_power(a, 5), L.matrix_power(a, 0)),
        (SQUARE,),
    ),
    "determinant": (lambda a: (L.det(a), L.slogdet(a), torch.logdet(a)), (SQUARE,)),
    "of nothing": (lambda a: (L.det(a), L.slogdet(a), L.inv(a), L.svdvals(a), L.matrix_rank(a), L.cond(a)), (EMPTY,)),
    "cholesky": (
        lambda a, b: (
            L.cholesky(a),
            L.cholesky(a, upper=True),
            torch.cholesky_solve(b, a.tril()),
            torch.cholesky_inverse(a.triu(), upper=True),
        ),
        (POSITIVE, OTHER),
    ),
    "triangular": (
        lambda a, b: (
            L.solve_triangular(a, b, upper=True),
            L.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
            torch.triangular_solve(b, a, transpose=True),
        ),
        (POSITIVE, OTHER),
    ),
    "lu": (
        lambda a, b: (L.lu(a), L.lu(b), L.lu(b.mT), L.lu_factor_ex(a), torch.lu_unpack(*L.lu_factor(b))),
        (SQUARE, OTHER),
    ),
    "lu_solve": (
        lambda a, b: tuple(
            L.lu_solve(*L.lu_factor(a), b if left else b.mT, left=left, adjoint=adjoint)
            for left in (True, False)
            for adjoint in (True, False)
        ),
        (SQUARE, OTHER),
    ),
    "qr": (lambda a: (L.qr(a), L.qr(a, "complete"), L.qr(a.mT), L.qr(a, "r"), torch.geqrf(a)), (OTHER,)),
    "reflections": (
        lambda a, b: (
            L.householder_product(*torch.geqrf(a)),
            torch.ormqr(*torch.geqrf(a), b),
            torch.ormqr(*torch.geqrf(a), b.mT, left=False, transpose=True),
        ),
        (OTHER, SQUARE),
    ),
    "values": (
        lambda a, b: (
            L.eigvalsh(a),
            L.eigvalsh(a, "U"),
            L.svdvals(a),
            L.svdvals(b.mT),
            L.matrix_rank(a),
            L.matrix_rank(b @ b.mT),
        ),
        (SYMMETRIC, OTHER),
    ),
    "pinv": (
        lambda a, b, c: (L.pinv(a), L.pinv(b), L.pinv(c, hermitian=True), L.pinv(a, rtol=0.5), torch.pinverse(b.mT)),
        (OTHER, WIDE, SYMMETRIC),
    ),
    "cond": (lambda a: tuple(L.cond(a, p) for p in (None, *ORDERS)), (SQUARE,)),
    "norms": (
        lambda a: (
            tuple(L.matrix_norm(a, p) for p in ORDERS)
            + tuple(L.norm(a, p, (2, 0), True) for p in ORDERS)
            + (L.norm(a), L.norm(a, dim=(0, 1)), torch.norm(a[0], "nuc"))
        ),
        (OTHER,),
    ),
    "norms of rows": (
        lambda a: (
            L.norm(a[0, 0], 3),
            L.norm(a, 0, dim=1),
            L.norm(a[0], float("inf")),
            L.matrix_norm(a[:0], 2),
            L.norm(a[0, :0], 2),
        ),
        (OTHER,),
    ),
    "exponential": (lambda a: (torch.matrix_exp(a), torch.matrix_exp(20 * a), torch.matrix_exp(0 * a)), (SQUARE,)),
    "tensors": (
        lambda a, b: (L.tensorinv(a.reshape(2, 2, 4), 2), L.tensorsolve(a.reshape(2, 2, 2, 2), b.reshape(2, 2))),
        (SQUARE[0], SQUARE[1, 0]),
    ),
}


@pytest.mark.parametrize("name", UNIQUE)
def test_results_are_torchs(name: str) -> None:
    function, inputs = UNIQUE[name]
    wanted = torch.utils._pytree.tree_leaves(function(*inputs))
    found = compiled(function, *inputs)
    assert len(found) == len(wanted)
    for got, value in zip(found, wanted, strict=True):
        assert got.shape == tuple(value.shape)
        assert got.dtype == value.numpy().dtype
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("lower", [True, False])
def test_eigenvectors_of_symmetric_matrices(lower: bool) -> None:
    values, vectors = compiled(lambda a: L.eigh(a, "L" if lower else "U"), SYMMETRIC)
    np.testing.assert_allclose(SYMMETRIC.numpy() @ vectors, vectors * values[:, None], atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(vectors, 1, 2) @ vectors, np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-12)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    "data",
    [SQUARE, OTHER, WIDE, DEFICIENT, torch.zeros(1, 3, 2, dtype=torch.float64)],
    ids=["square", "tall", "wide", "deficient", "zero"],
)
def test_singular_vectors(data: Any, full: bool) -> None:
    u, s, vh = compiled(lambda a: L.svd(a, full_matrices=full), data)
    count, (m, n) = min(data.shape[-2:]), data.shape[-2:]
    assert u.shape[1:] == (m, m if full else count)
    assert vh.shape[1:] == (n if full else count, n)
    np.testing.assert_allclose(u[..., :count] * s[:, None] @ vh[:, :count], data.numpy(), atol=1e-12)
    for vectors in (u, np.swapaxes(vh, 1, 2)):
        np.testing.assert_allclose(
            np.swapaxes(vectors, 1, 2) @ vectors,
            np.broadcast_to(np.eye(vectors.shape[2]), (len(u), *[vectors.shape[2]] * 2)),
            atol=1e-12,
        )
    np.testing.assert_allclose(s, L.svdvals(data).numpy(), atol=1e-12)


def test_eigenvectors_of_any_matrices() -> None:
    with pytest.warns(NotNativeWarning):
        values, vectors = compiled(L.eig, SQUARE)
    np.testing.assert_allclose(SQUARE.numpy() @ vectors, vectors * values[:, None], atol=1e-12)


def test_factors_of_symmetric_matrices() -> None:
    data = SYMMETRIC - torch.diag_embed(SYMMETRIC.diagonal(dim1=-2, dim2=-1))
    wanted = L.ldl_factor_ex(data)
    with pytest.warns(NotNativeWarning):
        found = compiled(lambda a, b: (*L.ldl_factor_ex(a), L.ldl_solve(*L.ldl_factor(a), b)), data, OTHER)
    assert (wanted.pivots < 0).any()
    for got, value in zip(found, (*wanted, L.solve(data, OTHER)), strict=True):
        np.testing.assert_allclose(got, value.numpy(), atol=1e-11)


def test_a_matrix_that_has_no_factor() -> None:
    data = torch.diag(torch.tensor([1.0, 4.0, -1.0, 2.0]))
    factor, info = compiled(lambda a: tuple(L.cholesky_ex(a)), data)
    assert int(info) == 3
    assert np.isnan(factor[2, 2])
    packed, pivots, wrong = compiled(lambda a: tuple(L.lu_factor_ex(a)), torch.zeros(3, 3))
    assert int(wrong) == 1
    assert pivots.tolist() == [1, 2, 3]
    assert not packed.any()


def test_onnx_determinants() -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Det", ["x"], ["y"])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [2, 4, 4])], [value("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    x = SQUARE.numpy().astype("float32")
    found = tilewright.compile(model, threads=1)(x)
    np.testing.assert_allclose(found, np.linalg.det(x), rtol=1e-5)


def test_what_is_refused() -> None:
    whole, row, wide, matrix = (
        var("x", shape=(3, 3), dtype="int32"),
        var("x", shape=(3,)),
        var("x", shape=(2, 3)),
        var("x", shape=(2, 2)),
    )
    refused: list[tuple[Callable[[], relay.Expr], str]] = [
        (
            lambda: relay.linalg.cholesky(whole),
            "data is int32; linear algebra takes only float32 and float64: cast it first",
        ),
        (lambda: relay.linalg.lu(row), "data must be matrices, and it has the shape"),
        (lambda: relay.linalg.eigh(wide), "data must be square matrices, and it has the shape"),
        (lambda: relay.linalg.svd(wide), "must have at least as many rows as columns; transpose it first"),
        (
            lambda: relay.linalg.solve_triangular(matrix, var("b", shape=(3, 2))),
            "must have equal numbers of rows, and equal dimensions before them",
        ),
        (
            lambda: relay.linalg.householder_product(wide, var("t", shape=(2,))),
            "must have at least as many rows as columns, and factors",
        ),
        (lambda: relay.linalg.ldl_solve(matrix, row, matrix), "must have equal dimensions before the last one"),
        (lambda: relay.gcd(row, row), "integer tensors were expected, and these are float32"),
        (lambda: relay.linalg.permutation(row, size=3), "pivots must be rows of integers"),
    ]
    for build, why in refused:
        with pytest.raises(ShapeError, match=why):
            _ = build().checked_type


def test_an_order_that_no_matrix_norm_has() -> None:
    from tilewright.relay.frontend.pytorch.linalg import matrix_norm

    class Refusing:
        def refuse(self, why: str) -> None:
            raise ModelError(why, code="TW0107")

    with pytest.raises(
        ModelError, match="the norm of a matrix is 3; it must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf"
    ):
        matrix_norm(var("x", shape=(3, 3)), 3, Refusing())  # type: ignore[arg-type]
