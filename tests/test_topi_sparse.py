"""Matrices in compressed rows: `tvm.contrib.sparse` and `topi.sparse`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.base.errors import CompileError, ShapeError
from tilewright.compat.contrib import sparse

Array = np.ndarray[Any, Any]


def sparse_matrix(rows: int, columns: int, dtype: str = "float32") -> Array:
    """Return a matrix with an empty row."""
    numbers = np.random.default_rng(rows)
    found: Array = (numbers.integers(0, 2, (rows, columns)) * numbers.uniform(-9, 9, (rows, columns))).astype(dtype)
    found[rows // 2] = 0
    return found


def whole_matrix(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(1).uniform(-9, 9, shape).astype(dtype)


def test_arrays() -> None:
    values = sparse_matrix(4, 5)
    made = sparse.array(values)
    assert (made.shape, made.stype, made.dtype) == ((4, 5), "csr", "float32")
    assert made.indptr.shape == (5,) and made.indices.dtype == "int32"
    np.testing.assert_array_equal(made.numpy(), values)
    again = sparse.CSRNDArray((made.data, made.indices, made.indptr), shape=(4, 5))
    np.testing.assert_array_equal(again.asnumpy(), values)
    with pytest.raises(ShapeError, match="needs its shape"):
        sparse.CSRNDArray((made.data, made.indices, made.indptr))
    with pytest.raises(ShapeError, match="compressed rows are matrices"):
        sparse.array(np.zeros(3))
    with pytest.raises(CompileError, match="'bsr' is not supported"):
        sparse.placeholder((3, 4), stype="bsr")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
def test_products_of_any_number_of_rows(dtype: str, has_bias: bool, columns: int) -> None:
    rows, count = te.var("rows"), te.var("count")
    a = sparse.placeholder((rows, 7), nonzeros=count, dtype=dtype, name="a")
    b, c = te.placeholder((7, columns), dtype, name="b"), te.placeholder((rows,), dtype, name="c")
    product = topi.sparse.csrmv if columns == 1 else topi.sparse.csrmm
    d = product(a, b, c if has_bias else None)
    function = tvm.build(te.create_schedule(d.op), [rows, a.data, a.indices, a.indptr, b, c, d], "llvm")
    for n in (1, 5):
        values, right, bias = sparse_matrix(n, 7, dtype), whole_matrix(7, columns, dtype=dtype), whole_matrix(
            n, dtype=dtype)
        given, out = sparse.array(values), np.zeros((n, columns), dtype)
        function(n, given.data, given.indices, given.indptr, right, bias, out)
        np.testing.assert_allclose(out, values @ right + (bias[:, None] if has_bias else 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", ["data", "weight"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_dense_layers(which: str, has_bias: bool) -> None:
    values = {"data": whole_matrix(3, 5), "weight": whole_matrix(2, 5)}
    values[which] = sparse_matrix(len(values[which]), 5)
    held = sparse.placeholder(values[which].shape, nonzeros=te.var("count"), name="held")
    operands: dict[str, Any] = {k: te.placeholder(v.shape, name=k) for k, v in values.items()}
    plain = operands["weight" if which == "data" else "data"]
    operands[which] = held
    bias = te.placeholder((2,), name="bias")
    y = topi.sparse.dense(operands["data"], operands["weight"], bias if has_bias else None)
    function = tvm.build(te.create_schedule(y.op), [held.data, held.indices, held.indptr, plain, bias, y], "llvm")
    given, out, added = sparse.array(values[which]), np.zeros((3, 2), "float32"), whole_matrix(2)
    function(given.data, given.indices, given.indptr, values["weight" if which == "data" else "data"], added, out)
    want = values["data"] @ values["weight"].T + (added if has_bias else 0)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_operands_that_are_refused() -> None:
    a, b = sparse.placeholder((3, 7)), te.placeholder((3, 7))
    assert a.data.extents == (21,)
    for x, y in ((a, a), (b, b)):
        with pytest.raises(ShapeError, match="exactly one of data and weight must be sparse"):
            topi.sparse.dense(x, y)
    with pytest.raises(ShapeError, match="csrmv multiplies"):
        topi.sparse.csrmv(a, te.placeholder((7,)))
    with pytest.raises(ShapeError, match="csrmm multiplies"):
        topi.sparse.csrmm(a, te.placeholder((7,)))
