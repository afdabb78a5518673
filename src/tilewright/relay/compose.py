"""TVM's functions that build several operators, or one operator with its parameters in another order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from tilewright.base.errors import CompileError, Origin
from tilewright.base.global_functions import get_global_func, register_func
from tilewright.relay.expr import Call, Constant, Expr, Tuple, const
from tilewright.relay.op.annotation import Debug
from tilewright.relay.op.broadcast import Add, Subtract
from tilewright.relay.op.create import Arange, Ones, ShapeOf, Zeros
from tilewright.relay.op.dynamic import DynArange, DynSparseToDense, DynZeros
from tilewright.relay.op.elementwise import Cast, Exp, Log, Sqrt
from tilewright.relay.op.indexing import Gather, ScatterNd
from tilewright.relay.op.lookup import MatrixSetDiag, UnravelIndex
from tilewright.relay.op.reduction import Max, Mean, Sum, Variance
from tilewright.relay.op.registry import as_relay, function
from tilewright.relay.op.scattering import SparseToDense
from tilewright.relay.op.shaping import ExpandDims, Reshape, ReverseReshape, Squeeze
from tilewright.relay.op.signal import Stft
from tilewright.relay.op.transform import Concatenate, SliceLike, StridedSlice
from tilewright.topi.shapes import axes_of

Axis = int | tuple[int, ...] | None
_FAR: Final = 2**31 - 1
"""An end beyond that of any dimension."""


def gather(data: Any, axis: int, indices: Any) -> Call:
    """`out[i…] = data[i… with i[axis] = indices[i…]]`; see the operator `gather`."""
    return Gather(axis)(data, indices)


def strided_slice(
    data: Any, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end",
    span: Origin | None = None,
) -> Call:
    """Slice along `axes`, by default the leading ones; see the operator `strided_slice`. Without axes, dimensions that
    `end` has no number for are kept from `begin` on, with step 1 unless `strides` says otherwise; dimensions that
    `begin` has no number for begin at their start. Dimensions that `strides`, of two numbers or more, has no number for
    have the step 1."""
    if axes is None and not isinstance(begin, Expr) and not isinstance(end, Expr) and len(begin) < len(end):
        strides = None if strides is None else [*strides, *[1] * (len(end) - len(strides) if len(strides) > 1 else 0)]
        begin = [*begin, *[_FAR if strides and len(strides) > k and strides[k] < 0 else 0
                           for k in range(len(begin), len(end))]]
    if axes is None and not isinstance(begin, Expr) and not isinstance(end, Expr) and len(end) < len(begin):
        steps = list(strides or (1,))
        steps = steps * len(begin) if len(steps) == 1 else steps + [1] * (len(begin) - len(steps))
        strides = steps if slice_mode == "end" else None
        rest = [(-1 if slice_mode == "size" else _FAR if step > 0 else -_FAR) for step in steps[len(end):]]
        end = [*end, *rest]
    if axes is None and isinstance(strides, (list, tuple)) and len(strides) > 1 and not isinstance(begin, Expr):
        strides = [*strides, *[1] * (len(begin) - len(strides))]
    given = {} if strides is None else {"strides": strides}
    return function(StridedSlice)(data, begin, end, axes=axes, slice_mode=slice_mode, span=span, **given)


def sparse_to_dense(sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0) -> Call:
    """`sparse_values` at the points `sparse_indices` of a tensor of `output_shape`, `default_value` elsewhere; the
    shape is numbers, or a vector of them."""
    values = as_relay(sparse_values)
    default_value = 0 if default_value is None else default_value
    filling = (const(default_value, values.tensor_type.dtype) if isinstance(default_value, (int, float))
               else default_value)
    if isinstance(output_shape, Expr) and not isinstance(output_shape, Constant):
        return DynSparseToDense()(sparse_indices, values, filling, output_shape)
    sizes = output_shape.value.tolist() if isinstance(output_shape, Constant) else output_shape
    return SparseToDense(tuple(_number(n, "sparse_to_dense", "output_shape") for n in sizes))(sparse_indices, values,
                                                                                               filling)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | Expr | None = None) -> Call:
    """Sum the elements of `data` of equal segment, by first index; the result has `num_segments` rows.

    Without `num_segments`, the number of rows is the largest segment plus one. Rows of `data` beyond the length of
    `segment_ids` are ignored.
    """
    x, where = as_relay(data), as_relay(segment_ids)
    shape = x.tensor_type.shape
    if len(where.tensor_type.shape) != 1:
        raise CompileError("segment_ids must have one entry for each row of data; their "
                           f"shape is {where.tensor_type.shape}", where.span, code="TW0308")
    rows = _known_number(num_segments)
    if isinstance(rows, int) and all(isinstance(d, int) for d in shape[1:]):
        empty = Zeros((rows, *shape[1:]), x.tensor_type.dtype)()
    else:
        if rows is None:
            rows = Add()(Max((0,))(Cast("int64")(where)), const(1, "int64"))
        count = const([rows], "int64") if isinstance(rows, int) else Reshape((1,))(Cast("int64")(rows))
        rest = [StridedSlice((1,), (len(shape),))(ShapeOf("int64")(x))] if len(shape) > 1 else []
        empty = DynZeros(str(x.tensor_type.dtype))(Concatenate(0)(Tuple((count, *rest))))
    known = isinstance(shape[0], int) and shape[0] == where.tensor_type.shape[0]
    return ScatterNd("add")(empty, ExpandDims(0)(where), x if known else SliceLike((0,))(x, where))


def stft(
    data: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    normalized: bool = False, onesided: bool = True,
) -> Call:
    """The Fourier transforms of windows that slide over signals; see the operator `stft`. A missing window is all ones;
    one of another dtype is converted."""
    x, width = as_relay(data), n_fft if win_length is None else win_length
    weights = Ones((width,), x.tensor_type.dtype)() if window is None else as_relay(window)
    if weights.tensor_type.dtype is not x.tensor_type.dtype:
        weights = Cast(str(x.tensor_type.dtype))(weights)
    return Stft(n_fft, n_fft // 4 if hop_length is None else hop_length, width, normalized, onesided)(x, weights)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Call:
    """Return start, start + step, … below stop; a single argument is the stop. Bounds are numbers or one-element
    tensors; with values computed at run time the result is a `dyn.arange`."""
    given = [_known_number(v) for v in ((0, start, step) if stop is None else (start, stop, step))]
    if any(isinstance(v, Expr) for v in given):
        return DynArange(dtype)(*(Reshape(())(v) if isinstance(v, Expr)
                                  else const(v, "int64" if isinstance(v, int) else "float64") for v in given))
    first, last, apart = given
    return Arange(first, last, apart, dtype)()


def _known_number(value: Any) -> Any:
    return value.value.item() if isinstance(value, Constant) and value.value.size == 1 else value


def _number(value: Any, name: str, what: str) -> Any:
    known = _known_number(value)
    if isinstance(known, Expr):
        raise CompileError(f"{name}: {what} must be a number or a constant, because it determines the shape of the "
                           "result",
                           known.span, code="TW0303")
    return known


def variance(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False,
             with_mean: Any = None) -> Call:
    """The mean of (data - mean)^2 along `axis`. `with_mean` is the mean if known, with its axes kept."""
    x = as_relay(data)
    mean = Mean(axis, True, exclude)(x) if with_mean is None else with_mean
    return Variance(axis, keepdims, exclude, unbiased)(x, mean)


def std(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False) -> Call:
    """The square root of the variance."""
    return Sqrt()(variance(data, axis, keepdims, exclude, unbiased))


def logsumexp(data: Any, axis: Axis = None, keepdims: bool = False) -> Call:
    """log(sum(exp(data))) along `axis`, without overflow."""
    x = as_relay(data)
    most = Max(axis, True)(x)
    total = Add()(Log()(Sum(axis, True)(Exp()(Subtract()(x, most)))), most)
    return total if keepdims else Squeeze(axes_of(axis, x.tensor_type.ndim))(total)


def mean_variance(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False,
                  unbiased: bool = False) -> Tuple:
    """The mean and the variance along `axis`."""
    x = as_relay(data)
    return Tuple((Mean(axis, keepdims, exclude)(x),
                  variance(x, axis, keepdims, exclude, unbiased, Mean(axis, True, exclude)(x))))


def mean_std(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tuple:
    """The mean and the standard deviation along `axis`."""
    x = as_relay(data)
    return Tuple((Mean(axis, keepdims, exclude)(x), std(x, axis, keepdims, exclude)))


def matrix_set_diag(data: Any, diagonal: Any, k: int | tuple[int, int] = 0, align: str = "RIGHT_LEFT") -> Call:
    """Matrices with the diagonal `k`, or those from k[0] to k[1], taken from `diagonal`; see the operator
    `matrix_set_diag`.

    `align` gives the padded side of shorter diagonals: first those above the main diagonal, then those below.
    """
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    above, _, below = align.partition("_")
    if {above, below} - {"LEFT", "RIGHT"}:
        raise CompileError(f"matrix_set_diag: align '{align}' is not supported; "
                           "it must be RIGHT_LEFT, LEFT_RIGHT, LEFT_LEFT or RIGHT_RIGHT", code="TW0308")
    return MatrixSetDiag(low, high, above == "RIGHT", below == "RIGHT")(data, diagonal)


def unravel_index(indices: Any, shape: Any) -> Call:
    """The coordinates of row-major positions along a tensor of `shape`: numbers, or a vector of them."""
    return UnravelIndex()(indices, const(list(shape), "int64") if isinstance(shape, (tuple, list)) else shape)


def reverse_reshape(data: Any, newshape: Any) -> Call:
    """`reshape` whose special numbers are read from the last dimension to the first."""
    return ReverseReshape((newshape,) if isinstance(newshape, int) else tuple(newshape))(data)


def debug(expr: Any, debug_func: Callable[..., Any] | None = None) -> Call:
    """The value of `expr`. The program calls `debug_func` with it, as an `NDArray` or a tuple of them; by default it
    calls `breakpoint`."""
    number = next(n for n in count() if get_global_func(f"debugger_func{n}", allow_missing=True) is None)
    name = f"debugger_func{number}"
    register_func(name, (lambda value: breakpoint()) if debug_func is None else debug_func)
    return function(Debug)(expr, debug_func=name)
