"""Tensors that are stored sparse, as initializers and as constants, against the dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright.base.errors import ModelError
from tilewright.relay.frontend import from_onnx

Array = np.ndarray[Any, Any]
DENSE = np.array([[0, 2, 0], [0, 0, -1.5], [3, 0, 0], [0, 0, 0]], np.float32)


def sparse(values: Array, places: Array, dims: tuple[int, ...], name: str = "w") -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(values, name), numpy_helper.from_array(places, f"{name}_places"), dims
    )


def coordinates(by_dimension: bool) -> onnx.SparseTensorProto:
    where = np.argwhere(DENSE) if by_dimension else np.flatnonzero(DENSE)
    return sparse(DENSE[DENSE != 0], where.astype(np.int64), DENSE.shape)


def product(stored: onnx.SparseTensorProto | None, constant: onnx.SparseTensorProto | None = None) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if constant is not None:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=constant))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, d)) for n, d in (("x", 4), ("y", 3)))
    graph = helper.make_graph(nodes, "g", [x], [y], sparse_initializer=[stored] if stored is not None else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("by_dimension", [False, True])
@pytest.mark.parametrize("as_constant", [False, True])
def test_products_with_sparse_weights(by_dimension: bool, as_constant: bool) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    weight = coordinates(by_dimension)
    model = product(None, weight) if as_constant else product(weight)
    onnx.checker.check_model(model)
    np.testing.assert_allclose(tvm.compile(model)(x), x @ DENSE)


def test_an_empty_one_is_zero() -> None:
    model = product(sparse(np.zeros(0, np.float32), np.zeros(0, np.int64), (4, 3)))
    assert not tvm.compile(model)(np.ones((2, 4), np.float32)).any()


@pytest.mark.parametrize(("values", "places", "dims", "words"), [
    ([1], [12], (4, 3), r"sparse tensor 'w' has an element outside its shape \(4, 3\)"),
    ([1], [-1], (4, 3), "has an element outside"),
    ([1], [[4, 0]], (4, 3), "has an element outside"),
    ([1, 2], [1], (4, 3), r"has values of shape \(2,\), but indices of shape \(1,\) and type int64"),
    ([1], [0], (1 << 40, 3), r"has the shape \(1099511627776, 3\), which is negative or too large"),
    ([1], [0], (-4, 3), "which is negative or too large; the file is damaged: export the model again"),
])
def test_what_does_not_fit_is_refused(
    values: list[float], places: list[Any], dims: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        from_onnx(product(sparse(np.array(values, np.float32), np.array(places, np.int64), dims)))
