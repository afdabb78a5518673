"""Sparse tensors of a model, which are made dense while they are read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.frontend.onnx.reading import Source, read_tensor

if TYPE_CHECKING:
    from onnx import SparseTensorProto

_MOST_BYTES: Final = 1 << 31
"""Largest size of a dense tensor, in bytes: the limit of an ONNX file."""


def read_sparse(tensor: SparseTensorProto, source: Source) -> np.ndarray[Any, Any]:
    """The dense value. Indices (N,) are flat, indices (N, rank) are by dimension.

    Raises `ModelError` for inconsistent shape, values and indices, before anything is allocated.
    """
    what = f"sparse tensor '{tensor.values.name}'" if tensor.values.name else "a constant sparse tensor"
    values, places, dims = read_tensor(tensor.values, source), read_tensor(tensor.indices, source), tuple(tensor.dims)

    def refuse(why: str) -> ModelError:
        return ModelError(f"{what} {why}; the file is damaged: export the model again", source.origin, code="TW0103")

    if any(d < 0 for d in dims) or math.prod(dims) * values.itemsize > _MOST_BYTES:
        raise refuse(f"has the shape {dims}, which is negative or too large")
    if values.ndim != 1 or places.dtype.kind not in "iu" or places.shape not in (values.shape,
        (*values.shape, len(dims))):
        raise refuse(f"has values of shape {values.shape}, but indices of shape {places.shape} and type {places.dtype}")
    bounds = np.array([math.prod(dims)] if places.ndim == 1 else dims, np.int64)
    if ((places < 0) | (places.reshape(-1, len(bounds)) >= bounds).reshape(places.shape)).any():
        raise refuse(f"has an element outside its shape {dims}")
    dense = np.zeros(dims, values.dtype)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values
    else:
        dense[tuple(places.T)] = values
    return dense
