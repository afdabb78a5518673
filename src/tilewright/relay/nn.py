"""Operators of neural networks as functions: `relay.nn.conv2d(data, weight, padding=1)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, Origin
from tilewright.relay.expr import Call, Constant, Expr, Tuple, const
from tilewright.relay.op.blocks import MirrorPad
from tilewright.relay.op.dynamic import DynPad
from tilewright.relay.op.nn import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool3d,
    DensePack,
    Dropout,
    Pad,
)
from tilewright.relay.op.nn_binary import BitPack
from tilewright.relay.op.nn_sparse import SparseAdd, SparseDense, SparseTranspose
from tilewright.relay.op.registry import as_relay, operator_names, public_function
from tilewright.relay.op.transform import StridedSlice

_FAR: Final = 2**31 - 1
"""An end beyond that of any dimension."""


def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant", span: Origin | None = None) -> Call:
    """Return `data` with `pad_width[d] = (before, after)` elements added along each dimension; see the operator
    `nn.pad`.

    A number as `pad_value` becomes a constant of the dtype of the data. A tensor (dimensions, 2) as `pad_width` makes
    the operator `dyn.nn.pad`, whose result has unknown sizes. Negative numbers cut elements off the padded data.
    """
    tensor = as_relay(data)
    known = tensor.known_type()
    dtype = getattr(known, "dtype", "float32")
    value: Any = const(pad_value, dtype) if isinstance(pad_value, (int, float)) else pad_value
    if isinstance(pad_width, Expr) and not isinstance(pad_width, Constant):
        return DynPad(pad_mode)(tensor, pad_width, value, span=span)
    widths = pad_width.value.tolist() if isinstance(pad_width, Constant) else pad_width
    if not any(isinstance(n, int) and n < 0 for pair in widths for n in pair):
        return Pad(widths, pad_mode)(tensor, value, span=span)
    padded = Pad(tuple((max(before, 0), max(after, 0)) for before, after in widths), pad_mode)(tensor, value, span=span)
    axes = [d for d, pair in enumerate(widths) if min(pair) < 0]
    first, last = ([pair[k] for pair in (widths[d] for d in axes)] for k in (0, 1))
    return StridedSlice(tuple(max(-n, 0) for n in first), tuple(min(n, 0) or _FAR for n in last),
                        axes=tuple(axes))(padded, span=span)


def dropout(data: Any, rate: float = 0.5, span: Origin | None = None) -> Expr:
    """Return `data` unchanged: the first result of the operator `nn.dropout`, which also returns a mask."""
    return dropout_raw(data, rate, span)[0]


def dropout_raw(data: Any, rate: float = 0.5, span: Origin | None = None) -> Call:
    """The data and the mask of the operator `nn.dropout`."""
    return Dropout(rate)(as_relay(data), span=span)


def mirror_pad(data: Any, pad_width: Any, mode: str = "SYMMETRIC") -> Call:
    """`data` mirrored at its edges; see the operator `nn.mirror_pad`."""
    return MirrorPad(mode, pad_width)(data)


def global_avg_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The mean of each row: (batch, channels, 1)."""
    return AdaptiveAvgPool1d(None, layout, out_layout)(data)


def global_max_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The maximum of each row: (batch, channels, 1)."""
    return AdaptiveMaxPool1d(None, layout, out_layout)(data)


def global_avg_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The mean of each volume: (batch, channels, 1, 1, 1)."""
    return AdaptiveAvgPool3d(None, layout, out_layout)(data)


def global_max_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The maximum of each volume: (batch, channels, 1, 1, 1)."""
    return AdaptiveMaxPool3d(None, layout, out_layout)(data)


def contrib_dense_pack(data: Any, weight: Any, weight_layout: str = "NK", units: int | None = None,
                       out_dtype: str = "") -> Call:
    """data times the transpose of a weight in panels; see the operator `nn.contrib_dense_pack`."""
    return DensePack(units, out_dtype, weight_layout)(data, weight)


def bitpack(data: Any, bits: int = 1, pack_axis: int = 1, bit_axis: int = 2, pack_type: str = "uint32",
            name: str = "BitPack") -> Call:
    """Return the bit planes of `data` as words; see the operator `nn.bitpack`. `name`, TVM's name of a buffer, has no
    effect.
    """
    return BitPack(bits, pack_axis, bit_axis, pack_type)(data)


def sparse_dense(dense_mat: Any, *sparse_mat: Any, sparse_lhs: bool = False, span: Origin | None = None,
                 **named: Any) -> Call:
    """Multiply a matrix by the transpose of a sparse one, given as (data, indices, indptr) or a scipy sparse matrix;
    see `nn.sparse_dense`."""
    if sparse_mat and isinstance(sparse_mat[-1], bool):
        sparse_mat, sparse_lhs = sparse_mat[:-1], sparse_mat[-1]
    return SparseDense(sparse_lhs)(dense_mat, *_sparse(sparse_mat, named, "sparse_dense"), span=span)


def sparse_add(dense_mat: Any, *sparse_mat: Any, span: Origin | None = None, **named: Any) -> Call:
    """Add a sparse matrix, given as (data, indices, indptr) or a scipy sparse matrix, to a dense one."""
    return SparseAdd()(dense_mat, *_sparse(sparse_mat, named, "sparse_add"), span=span)


def sparse_transpose(*x: Any, span: Origin | None = None, **named: Any) -> Call:
    """Return the (data, indices, indptr) of the transpose of a square sparse matrix, given in this form or as a scipy
    one."""
    return SparseTranspose()(*_sparse(x, named, "sparse_transpose"), span=span)


def _sparse(given: tuple[Any, ...], named: Mapping[str, Any], what: str) -> tuple[Any, ...]:
    """Return the values, columns and row starts of a sparse matrix in any of TVM's forms."""
    parts: Any = (*given, *named.values())
    if len(parts) == 1:
        (matrix,) = parts
        parts = matrix if isinstance(matrix, (tuple, list)) else tuple(getattr(matrix, n, None)
            for n in ("data", "indices", "indptr"))
        parts = matrix.fields if isinstance(matrix, Tuple) else parts
    if len(parts) != 3 or any(p is None for p in parts):
        raise CompileError(f"nn.{what}: a sparse matrix must be (data, indices, indptr), or an object "
                           f"with these attributes, not {given!r}", code="TW0307")
    return tuple(p if isinstance(p, Expr) else const(np.asarray(p)) for p in parts)


def __getattr__(name: str) -> Callable[..., Call]:
    return public_function("nn." + name.removesuffix("_nchwc") + "_NCHWc" if name.endswith("_nchwc") else "nn." + name,
                           __name__)


def __dir__() -> list[str]:
    return operator_names("nn.")
