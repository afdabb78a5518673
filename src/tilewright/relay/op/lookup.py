"""Operators that read elements at positions from indices, lengths or coordinates, and that set slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import lookup as topi
from tilewright.topi import moves
from tilewright.topi.shapes import (
    at_most,
    axis_of,
    broadcast_shapes,
    differ,
    is_too_small,
    product,
    require_same_dtype,
    slices,
    text,
)


def _integers(t: TensorType, what: str) -> TensorType:
    if not t.dtype.is_integer:
        raise ShapeError(f"{what} must be integers, and they are {t.dtype}; cast them first")
    return t


def _fields(inputs: Any, what: str) -> tuple[TensorType, ...]:
    if not isinstance(inputs, TupleType) or not inputs.fields:
        raise ShapeError(f"{what} takes one tuple of tensors, and was given {inputs!r}")
    return tensors(*inputs.fields)


@op("adv_index", kind=Fusion.OPAQUE, variadic=True)
class AdvIndex(Op):
    """`data[indices[0], indices[1], …]` of the tuple (data, indices…), as in numpy: integer tensors that broadcast."""

    def infer(self, inputs: Type) -> TensorType:
        """The broadcast shape of the integer indices and the remaining sizes of the data; the dtype of the data."""
        data, *indices = _fields(inputs, self.name)
        if not 1 <= len(indices) <= data.ndim:
            raise ShapeError(f"{len(indices)} indices are given for {data.ndim} dimensions; give one or more, and at "
                             "most one for each")
        lead = broadcast_shapes(*(_integers(t, "indices").shape for t in indices))
        return TensorType((*lead, *data.shape[len(indices) :]), data.dtype)

    def reference(self, inputs: Sequence[Array]) -> Array:
        data, *indices = inputs
        return np.asarray(data[tuple(indices)])

    def compute(self, inputs: Sequence[te.Tensor]) -> te.Tensor:
        data, *indices = inputs
        return topi.adv_index(data, indices)


@op("unravel_index", kind=Fusion.OPAQUE)
class UnravelIndex(Op):
    """The coordinates `[d, i…]` of the row-major positions `indices[i…]` in a tensor whose shape is the vector `shape`.
    """

    def infer(self, indices: Type, shape: Type) -> TensorType:
        """(rank, *shape of the indices); the dtype of the indices. `shape` is a vector of known length."""
        where, sizes = tensors(indices, shape)
        _integers(where, "indices")
        _integers(sizes, "shape")
        if sizes.ndim != 1 or not isinstance(sizes.shape[0], int):
            raise ShapeError(f"shape must be a vector of known length, and it is {sizes!r}")
        return TensorType((sizes.shape[0], *where.shape), where.dtype)

    def reference(self, indices: Array, shape: Array) -> Array:
        return np.stack(np.unravel_index(indices, tuple(map(int, shape)))).astype(indices.dtype)

    def compute(self, indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
        return topi.unravel_index(indices, shape)


@op("sequence_mask", kind=Fusion.OPAQUE)
class SequenceMask(Op):
    """`data` (time, batch, …), or (batch, time, …) with `axis` 1, with `mask_value` from time `valid_length[batch]` on.
    """

    mask_value: float = 0.0
    """Value of the masked elements."""
    axis: int = 0
    """Dimension of the time: 0 or 1; the batch is the other one."""

    def infer(self, data: Type, valid_length: Type) -> TensorType:
        """The type of the data, of rank 2 or more; `valid_length` is a vector over the batch."""
        t, lengths = tensors(data, valid_length)
        if self.axis not in (0, 1) or t.ndim < 2:
            raise ShapeError(f"axis {self.axis} cannot be the time axis of a tensor of shape {text(t.shape)}; it must "
                             "be 0 or 1, and the batch the other of these")
        if lengths.ndim != 1 or differ(lengths.shape[0], t.shape[1 - self.axis]):
            raise ShapeError(f"valid_length must have one number for each of the {t.shape[1 - self.axis]} elements of "
                             f"the batch, but it has the shape {text(lengths.shape)}")
        return t

    def reference(self, data: Array, valid_length: Array) -> Array:
        time = np.expand_dims(np.arange(data.shape[self.axis]), 1 - self.axis)
        inside = time < np.expand_dims(valid_length.astype(np.int64), self.axis)
        inside = inside.reshape(*inside.shape, *(1,) * (data.ndim - 2))
        return np.where(inside, data, np.asarray(self.mask_value).astype(data.dtype))

    def compute(self, data: te.Tensor, valid_length: te.Tensor) -> te.Tensor:
        return topi.sequence_mask(data, valid_length, self.mask_value, self.axis)


@op("reverse_sequence", kind=Fusion.OPAQUE)
class ReverseSequence(Op):
    """The data with the first `seq_lengths[b]` elements along `seq_axis` reversed, for each index b of `batch_axis`
    (ONNX ReverseSequence).
    """

    seq_axis: int = 1
    """Dimension that is reversed."""
    batch_axis: int = 0
    """Dimension of the batch."""

    def infer(self, data: Type, seq_lengths: Type) -> TensorType:
        """The type of the data; `seq_lengths` is an integer vector over `batch_axis`."""
        t, lengths = tensors(data, seq_lengths)
        along, batch = axis_of(self.seq_axis, t.ndim, "seq_axis"), axis_of(self.batch_axis, t.ndim, "batch_axis")
        _integers(lengths, "seq_lengths")
        if along == batch or lengths.ndim != 1 or differ(lengths.shape[0], t.shape[batch]):
            raise ShapeError(f"seq_lengths {text(lengths.shape)} must have one number for each of the {t.shape[batch]} "
                             f"elements of batch_axis {batch}, which must not be seq_axis {along}")
        return t

    def reference(self, data: Array, seq_lengths: Array) -> Array:
        result = data.copy()
        moved, source = (np.moveaxis(x, (self.batch_axis, self.seq_axis), (0, 1)) for x in (result, data))
        for b, n in enumerate(seq_lengths):
            moved[b, : max(n, 0)] = source[b, : max(n, 0)][::-1]
        return result

    def compute(self, data: te.Tensor, seq_lengths: te.Tensor) -> te.Tensor:
        return moves.reverse_sequence(data, seq_lengths, self.seq_axis, self.batch_axis)


@op("matrix_set_diag", kind=Fusion.OPAQUE)
class MatrixSetDiag(Op):
    """Matrices (…, rows, columns) with the diagonals `k1` to `k2` replaced by `diagonal` (TensorFlow MatrixSetDiagV3).

    `diagonal` is (…, length) for one diagonal, else (…, diagonals, longest length), the uppermost diagonal first.
    """

    k1: int = 0
    """Lowest diagonal; 0 is the main diagonal, positive lies above it."""
    k2: int = 0
    """Highest diagonal, at least `k1`."""
    super_diag_right_align: bool = True
    """True when shorter diagonals above the main one end at the end of their row, False at its start."""
    sub_diag_right_align: bool = False
    """True when shorter diagonals below the main one end at the end of their row, False at its start."""

    def infer(self, input: Type, diagonal: Type) -> TensorType:
        """The type of `input`, matrices; `diagonal` has its dtype."""
        t, values = tensors(input, diagonal)
        require_same_dtype((t, values))
        if t.ndim < 2 or self.k1 > self.k2:
            raise ShapeError(f"diagonals {self.k1} to {self.k2} cannot be set in a tensor of shape {text(t.shape)}; "
                             "the tensor must be matrices, and k1 at most k2")
        rows, columns = t.shape[-2:]
        wanted: tuple[Any, ...] = t.shape[:-2] if self.k1 == self.k2 else (*t.shape[:-2], self.k2 - self.k1 + 1)
        if isinstance(rows, int) and isinstance(columns, int):
            if is_too_small(rows, 1 - self.k1) or is_too_small(columns, self.k2 + 1):
                raise ShapeError(f"diagonals {self.k1} to {self.k2} are not all inside matrices of {rows} rows and "
                                 f"{columns} columns")
            wanted = (*wanted, at_most(rows + min(self.k2, 0), columns - max(self.k1, 0)))
        if values.ndim != len(wanted) + (not isinstance(rows, int)
                                         or not isinstance(columns, int)) or any(map(differ, wanted, values.shape)):
            raise ShapeError(f"diagonal must have the shape {text(wanted)}, and it has {text(values.shape)}")
        return t

    def reference(self, input: Array, diagonal: Array) -> Array:
        result = input.copy()
        rows, columns = input.shape[-2:]
        for k in range(self.k1, self.k2 + 1):
            length = at_most(rows + min(k, 0), columns - max(k, 0))
            right = self.super_diag_right_align if k >= 0 else self.sub_diag_right_align
            values = diagonal if self.k1 == self.k2 else diagonal[..., self.k2 - k, :]
            first = values.shape[-1] - length if right else 0
            i = np.arange(length)
            result[..., i + max(-k, 0), i + max(k, 0)] = values[..., first : first + length]
        return result

    def compute(self, input: te.Tensor, diagonal: te.Tensor) -> te.Tensor:
        above, below = ("RIGHT" if right else "LEFT"
                        for right in (self.super_diag_right_align, self.sub_diag_right_align))
        return topi.matrix_set_diag(input, diagonal, (self.k1, self.k2), f"{above}_{below}")


@op("sliding_window", kind=Fusion.OPAQUE)
class SlidingWindow(Op):
    """Every window of `window_shape` over the dimensions from `axis` on: the positions of the windows, then their
    elements.
    """

    axis: int
    """First dimension of the window; negative counts from the end."""
    window_shape: tuple[int, ...]
    """Shape of the window over the dimensions from `axis` to the last."""
    strides: tuple[int, ...]
    """Step of the window along each of these dimensions; 1 or more."""

    def infer(self, data: Type) -> TensorType:
        """(*sizes before `axis`, *number of windows, *window_shape); the dtype of the data."""
        (t,) = tensors(data)
        at = axis_of(self.axis, t.ndim)
        if (len(self.window_shape) != len(self.strides) or at + len(self.window_shape) != t.ndim
                or min(self.strides) < 1):
            raise ShapeError(f"windows of {text(self.window_shape)} with strides {text(self.strides)} do not cover the "
                             f"dimensions from {at} on of {text(t.shape)}")
        for n, w in zip(t.shape[at:], self.window_shape, strict=True):
            if is_too_small(w, 1) or is_too_small(n, w):
                raise ShapeError(f"a window of {w} does not fit in a dimension of {n}")
        places = [(n - w) // s + 1 for n, w, s in zip(t.shape[at:], self.window_shape, self.strides, strict=True)]
        return TensorType((*t.shape[:at], *places, *self.window_shape), t.dtype)

    def reference(self, data: Array) -> Array:
        at = self.axis % data.ndim
        every = np.lib.stride_tricks.sliding_window_view(data, self.window_shape, tuple(range(at, data.ndim)))
        return every[(*(slice(None),) * at, *(slice(None, None, s) for s in self.strides))].copy()

    def compute(self, data: te.Tensor) -> te.Tensor:
        return moves.sliding_window(data, self.axis, self.window_shape, self.strides)


@op("meshgrid", kind=Fusion.OPAQUE, variadic=True)
class MeshGrid(Op):
    """The coordinates of a grid, one tensor for each vector of the tuple (`numpy.meshgrid`)."""

    indexing: str = "ij"
    """Order of the first two dimensions: "ij" (matrix) or "xy" (Cartesian, swapped)."""

    def infer(self, data: Type) -> TupleType:
        """A tuple of tensors, each of the sizes of all vectors; the common dtype."""
        fields = _fields(data, self.name)
        require_same_dtype(fields)
        if self.indexing not in ("ij", "xy"):
            raise ShapeError(f"indexing '{self.indexing}' is not supported; it must be ij or xy")
        if any(t.ndim > 1 for t in fields):
            raise ShapeError("meshgrid takes vectors and scalars, and was given "
                             f"{', '.join(text(t.shape) for t in fields)}")
        sizes = [product(t.shape) for t in fields]
        if self.indexing == "xy" and len(sizes) > 1:
            sizes[:2] = sizes[1::-1]
        return TupleType([TensorType(sizes, t.dtype) for t in fields])

    def reference(self, data: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(np.ascontiguousarray(x)
                     for x in np.meshgrid(*data, indexing=self.indexing))  # type: ignore[call-overload]

    def compute(self, data: Sequence[te.Tensor]) -> tuple[te.Tensor, ...]:
        return tuple(moves.meshgrid(list(data), self.indexing))


@op("strided_set", kind=Fusion.OPAQUE)
class StridedSet(Op):
    """`data` with the slice `data[begin:end:strides]` of its leading dimensions replaced by `v`."""

    begin: tuple[int, ...]
    """First index of each leading dimension; the dimension from its start where it is shorter than `end`."""
    end: tuple[int, ...]
    """Exclusive last index of each leading dimension; the rest of the dimension where it is shorter than `begin`."""
    strides: tuple[int, ...] | None = None
    """Step of each leading dimension; None means 1."""

    def _full(self, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the attributes completed for all `ndim` dimensions."""
        given = self.strides or ()
        steps = (*given, *(1,) * (ndim - len(given)))
        first = (0 if step > 0 else 2**31 - 1 for step in steps[len(self.begin):])
        rest = (2**31 - 1 if step > 0 else -(2**31) for step in steps[len(self.end):])
        return (*self.begin, *first), (*self.end, *rest), steps

    def infer(self, data: Type, v: Type) -> TensorType:
        """The type of the data; `v` has its dtype and the shape of the slice."""
        t, values = tensors(data, v)
        require_same_dtype((t, values))
        strides, known = self.strides or (), max(len(self.begin), len(self.end))
        if known > t.ndim or len(strides) > known:
            raise ShapeError(f"begin {text(self.begin)} and end {text(self.end)} have at most the rank of "
                             f"{text(t.shape)}, and strides {text(strides)} is not longer than them")
        begin, end, steps = self._full(t.ndim)
        part = tuple(n for _, n, _ in slices(t.shape, begin, end, steps, None, "end"))
        if values.ndim != t.ndim or any(map(differ, part, values.shape)):
            raise ShapeError(f"the replaced slice has the shape {text(part)}, but v has {text(values.shape)}")
        return t

    def reference(self, data: Array, v: Array) -> Array:
        result = data.copy()
        along = slices(data.shape, *self._full(data.ndim), None, "end")
        result[np.ix_(*(f + s * np.arange(n) for f, n, s in along))] = v
        return result

    def compute(self, data: te.Tensor, v: te.Tensor) -> te.Tensor:
        begin, end, steps = self._full(data.ndim)
        return moves.strided_set(data, v, begin, end, steps)
