"""TVM's `tvm.contrib.cblas`: products of matrices by the BLAS library that numpy uses.

    C = cblas.matmul(A, B, transb=True)       a stage of a tensor expression
    tvm.build(te.create_schedule(C.op), [A, B, C], "llvm")

A stage calls the registered function `tvm.contrib.cblas.matmul` or `tvm.contrib.cblas.batch_matmul`. Programs that are
loaded from a file need this module to be imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.base.global_functions import register_func
from tilewright.te.tensor import Tensor

__all__ = ["batch_matmul", "matmul"]


def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, **kwargs: Any) -> Tensor:
    """Return the product (n, m) of two matrices of shapes (n, k) and (k, m), each of which may be given transposed.
    `kwargs` are those of `te.extern`."""
    rows, columns = lhs.shape[1 if transa else 0], rhs.shape[0 if transb else 1]
    return _stage("tvm.contrib.cblas.matmul", (rows, columns), lhs, rhs, transa, transb, kwargs)


def batch_matmul(
    lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Tensor:
    """Return the products (batch, n, m) of matrices (batch, n, k) and (batch, k, m); a batch of one is used for all
    products of the other. `iterative` has no effect: numpy chooses how batches are computed."""
    batch = rhs.shape[0] if isinstance(lhs.shape[0], int) and lhs.shape[0] == 1 else lhs.shape[0]
    rows, columns = lhs.shape[2 if transa else 1], rhs.shape[1 if transb else 2]
    return _stage("tvm.contrib.cblas.batch_matmul", (batch, rows, columns), lhs, rhs, transa, transb, kwargs)


def _stage(
    function: str, shape: tuple[Any, ...], lhs: Tensor, rhs: Tensor, transa: bool, transb: bool, options: dict[str, Any]
) -> Tensor:
    """Return a stage that calls a registered function with two matrices, the result, and the two flags."""
    result: Tensor = te.extern(
        shape, [lhs, rhs],
        lambda ins, outs: tir.call_packed(function, ins[0], ins[1], outs[0], bool(transa), bool(transb)),
        **{"name": "C", "dtype": lhs.dtype, **options})
    return result


@register_func("tvm.contrib.cblas.batch_matmul")
@register_func("tvm.contrib.cblas.matmul")
def _product(lhs: Any, rhs: Any, out: Any, transa: bool, transb: bool) -> None:
    """Write the product of the last two axes into `out`."""
    a, b = lhs.numpy(), rhs.numpy()
    out.copyfrom(np.matmul(a.swapaxes(-1, -2) if transa else a, b.swapaxes(-1, -2) if transb else b))
