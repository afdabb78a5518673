"""Operators with tensors in place of some attributes, computed at run time: `dyn.reshape(data, newshape)`.

Each corresponds to an operator with attributes; its last arguments hold the values of these attributes. Its type has
unknown dimensions. With constant arguments it becomes that operator (`Op.simplify`, `DynamicToStatic`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import CompileError, Origin, ShapeError
from tilewright.base.types import OpenSize, TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr, const
from tilewright.relay.op import broadcast, create, image, scattering, shaping, sorting, transform, vision
from tilewright.relay.op.deferred import Ask, all_known
from tilewright.relay.op.registry import OPS, Array, Fusion, Op, Precision, attributes, op, tensors
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.topi.shapes import axis_of, is_dynamic, require_at_least, require_rank, same, text


class Dynamic(Op):
    """Base: the arguments at the positions `places` are the attributes of the static operator."""

    objects = True
    places: ClassVar[tuple[int, ...]] = (1,)
    standing: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Values of inputs that may be left out, where they are not the defaults of the static operator's attributes."""

    def static(self, *values: Array) -> Op:
        """Return the operator for these values of the arguments at `places`."""
        raise NotImplementedError

    def reference(self, *args: Any) -> Any:
        how = self.static(*(np.asarray(args[k]) for k in self.places))
        return how.reference(*(a for k, a in enumerate(args) if k not in self.places))

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        """The call of the static operator if `ask` knows all values that it depends on, otherwise None."""
        known = all_known([ask(call.args[k]) for k in self.places])
        if known is None:
            return None
        return Call(self.static(*known), [a for k, a in enumerate(call.args) if k not in self.places], span=call.span)

    def simplify(self, call: Call) -> Expr | None:
        """The call of the static operator if all values that it depends on are constant, otherwise None."""
        return self.resolve(call, lambda e: e.value if isinstance(e, Constant) else None)


def with_tensor_attributes(cls: type[Op], args: Sequence[Any], named: Mapping[str, Any], span: Origin | None) -> Call:
    """A call of an operator with expressions as attributes: constants become attributes, others need `dyn.…`.

    Tensors that are not given have the default values of the attributes. Raises `CompileError` if the operator has no
    dynamic form with these arguments.
    """
    plain = {n: v.value.tolist() if isinstance(v, Constant) else v for n, v in named.items()}
    if not any(isinstance(v, Expr) for v in plain.values()):
        return cls(**plain)(*args, span=span)
    dynamic = OPS.get(f"dyn.{cls.name}")
    inputs = list(inspect.signature(dynamic.infer).parameters)[1:] if dynamic is not None else []
    computed = [n for n, v in plain.items() if isinstance(v, Expr) and n not in inputs]
    left = inputs[len(args) :]
    standing = getattr(dynamic, "standing", {})
    given = {n: v for n, v in named.items() if v is not None or n not in standing}
    known = {**cls.attribute_defaults, **standing, **given}
    if dynamic is None or computed or any(known.get(n) is None for n in left):
        need = f"; dyn.{cls.name} takes {', '.join(inputs)}" if dynamic is not None else ""
        raise CompileError(f"{cls.name} cannot take "
                           f"{', '.join(computed or [n for n, v in plain.items() if isinstance(v, Expr)])} as a "
                           f"tensor{need}", span, code="TW0307")
    return dynamic(**{n: v for n, v in plain.items() if n not in inputs})(
        *args, *(v if isinstance(v := known[n], Expr) else const(np.asarray(v)) for n in left), span=span)


def _unknown(ndim: int) -> tuple[UnknownDim, ...]:
    return tuple(UnknownDim() for _ in range(ndim))


def _whole(value: Array) -> tuple[Any, ...]:
    """Return the elements as integers; symbolic sizes, which object arrays hold, stay symbolic."""
    return tuple(n if isinstance(n, (OpenSize, PrimExpr)) else int(n) for n in value.reshape(-1))


def _count(t: Type, what: str, floats: bool = False) -> int:
    """The length of a vector of sizes, which is the rank of the result and must be known."""
    (v,) = tensors(t)
    if v.ndim != 1 or not isinstance(v.shape[0], int) or (v.dtype.is_float and not floats):
        raise ShapeError(f"{what} must be a vector of integers of known length, and it is {v!r}")
    return int(v.shape[0])


@op("dyn.reshape", kind=Fusion.OPAQUE)
class DynReshape(Dynamic):
    """`reshape` with `newshape` given by the second tensor."""

    precision = Precision.NEVER
    allowzero: bool = False
    """True makes 0 in `newshape` a size of zero; False copies the dimension of the input."""

    def infer(self, data: Type, newshape: Type) -> TensorType:
        """A shape of unknown sizes, the rank being the length of `newshape`; the dtype of the data."""
        return TensorType(_unknown(_count(newshape, "newshape")), tensors(data)[0].dtype)

    def static(self, *values: Array) -> Op:
        return shaping.Reshape(_whole(values[0]), self.allowzero)

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        """The call of `reshape`; symbolic sizes are limited to values that are sizes, and no codes."""
        found = super().resolve(call, ask)
        if isinstance(found, Call) and isinstance(found.op, shaping.Reshape):
            shape = call.args[0].tensor_type.shape
            for axis, size in enumerate(found.op.newshape):
                if is_dynamic(size) and not (axis < len(shape) and same(size, shape[axis])):
                    require_at_least(size, 0 if self.allowzero else 1)
        return found


@op("dyn.broadcast_to", kind=Fusion.OPAQUE)
class DynBroadcastTo(Dynamic):
    """`broadcast_to` the shape given by the second tensor."""

    precision = Precision.NEVER

    def infer(self, data: Type, shape: Type) -> TensorType:
        """A shape of unknown sizes, the rank being the length of `shape`; the dtype of the data."""
        return TensorType(_unknown(_count(shape, "shape")), tensors(data)[0].dtype)

    def static(self, *values: Array) -> Op:
        return broadcast.BroadcastTo(_whole(values[0]))


@op("dyn.full", kind=Fusion.OPAQUE)
class DynFull(Dynamic):
    """`full` with the shape given by the second tensor."""

    precision = Precision.NEVER
    dtype: str = ""
    """Type of the result; "" means that of `fill_value`."""

    def infer(self, fill_value: Type, shape: Type) -> TensorType:
        """A shape of unknown sizes, the rank being the length of `shape`; `dtype` or that of `fill_value`."""
        return TensorType(_unknown(_count(shape, "shape")), self.dtype or tensors(fill_value)[0].dtype)

    def static(self, *values: Array) -> Op:
        return create.Full(_whole(values[0]), self.dtype)


@attributes
class _Filled(Dynamic):
    """Base of `dyn.zeros` and `dyn.ones`."""
    places = (0,)
    dtype: str
    """Type of the result."""
    filled: ClassVar[type[Op]]

    def infer(self, shape: Type) -> TensorType:
        """A shape of unknown sizes, the rank being the length of `shape`; `dtype`."""
        return TensorType(_unknown(_count(shape, "shape")), self.dtype)

    def static(self, *values: Array) -> Op:
        return self.filled(shape=_whole(values[0]), dtype=self.dtype)


@op("dyn.zeros", kind=Fusion.OPAQUE)
class DynZeros(_Filled):
    """`zeros` of the shape given by the tensor."""

    filled = create.Zeros


@op("dyn.ones", kind=Fusion.OPAQUE)
class DynOnes(_Filled):
    """`ones` of the shape given by the tensor."""

    filled = create.Ones


@op("dyn.arange", kind=Fusion.OPAQUE)
class DynArange(Dynamic):
    """`arange` with start, stop and step given by scalar tensors."""

    precision = Precision.NEVER
    places = (0, 1, 2)
    dtype: str = "float32"
    """Type of the result."""

    def infer(self, start: Type, stop: Type, step: Type) -> TensorType:
        """A vector of unknown length; `dtype`. The three inputs are scalars."""
        for what, t in zip(("start", "stop", "step"), tensors(start, stop, step), strict=True):
            if t.ndim:
                raise ShapeError(f"{what} must be one number, and it is {t!r}")
        return TensorType(_unknown(1), self.dtype)

    def static(self, *values: Array) -> Op:
        start, stop, step = (v.reshape(()).item() for v in values)
        return create.Arange(start, stop, step, self.dtype)


@op("dyn.one_hot", kind=Fusion.OPAQUE)
class DynOneHot(Dynamic):
    """`one_hot` with the depth given by the fourth tensor."""

    places = (3,)
    axis: int = -1
    """Position of the new dimension in the result; negative counts from the end."""
    dtype: str = "float32"
    """Type of the result."""

    def infer(self, indices: Type, on_value: Type, off_value: Type, depth: Type) -> TensorType:
        """The shape of the indices with an unknown size inserted at `axis`; `dtype`."""
        t, _ = tensors(indices, depth)
        at = axis_of(self.axis, t.ndim + 1)
        return TensorType((*t.shape[:at], UnknownDim(), *t.shape[at:]), self.dtype)

    def static(self, *values: Array) -> Op:
        return create.OneHot(int(values[0].reshape(())), self.axis, self.dtype)


@op("dyn.tile", kind=Fusion.OPAQUE)
class DynTile(Dynamic):
    """`tile` with the repetitions given by the second tensor."""

    precision = Precision.NEVER

    def infer(self, data: Type, reps: Type) -> TensorType:
        """A shape of unknown sizes, of the larger rank; the dtype of the data. The repetitions are integers, or floats
        with integer values."""
        (t,) = tensors(data)
        return TensorType(_unknown(max(t.ndim, _count(reps, "reps", floats=True))), t.dtype)

    def static(self, *values: Array) -> Op:
        return transform.Tile(_whole(values[0]))


@op("dyn.topk", kind=Fusion.OPAQUE)
class DynTopK(Dynamic):
    """`topk` with k given by the second tensor."""

    precision = Precision.NEVER
    axis: int = -1
    """Dimension that is sorted; negative counts from the end."""
    ret_type: str = "both"
    """Results: "both", "values" or "indices"."""
    is_ascend: bool = False
    """True selects the smallest elements, False the largest."""
    dtype: str = "int32"
    """Type of the indices."""

    def infer(self, data: Type, k: Type) -> Type:
        """The types of `topk` with an unknown size at `axis`."""
        t, _ = tensors(data, k)
        at = axis_of(self.axis, t.ndim)
        return self._fixed(0).infer(TensorType((*t.shape[:at], UnknownDim(), *t.shape[at + 1 :]), t.dtype))

    def _fixed(self, k: int) -> sorting.TopK:
        return sorting.TopK(k, self.axis, self.ret_type, self.is_ascend, self.dtype)

    def static(self, *values: Array) -> Op:
        return self._fixed(int(values[0].reshape(())))


@op("dyn.strided_slice", kind=Fusion.OPAQUE)
class DynStridedSlice(Dynamic):
    """`strided_slice` with begin, end and strides given by tensors."""

    precision = Precision.NEVER
    places = (1, 2, 3)
    standing = MappingProxyType({"strides": (1,)})
    slice_mode: str = "end"
    """Meaning of `end`: "end" (exclusive bounds) or "size" (numbers of elements, -1 for the rest)."""
    axes: tuple[int, ...] | None = None
    """Dimensions that are sliced; None means the leading ones."""

    def infer(self, data: Type, begin: Type, end: Type, strides: Type) -> TensorType:
        """Unknown sizes for the sliced dimensions, the sizes of the data for the others."""
        (t,) = tensors(data)
        n = _count(begin, "begin")
        if n > t.ndim:
            raise ShapeError(f"begin has {n} numbers, and the data {text(t.shape)} has {t.ndim} dimensions")
        sliced = self._sliced(n, t.ndim)
        return TensorType([UnknownDim() if d in sliced else s for d, s in enumerate(t.shape)], t.dtype)

    def _sliced(self, count: int, ndim: int) -> tuple[int, ...]:
        if self.axes is None:
            return tuple(range(count))
        if len(self.axes) != count:
            raise ShapeError(f"begin has {count} numbers for the {len(self.axes)} axes {text(self.axes)}")
        return tuple(axis_of(a, ndim) for a in self.axes)

    def static(self, *values: Array) -> Op:
        begin, end, strides = map(_whole, values)
        if len(strides) == 1:
            strides *= len(begin)
        return transform.StridedSlice(begin, end, None if self.slice_mode == "size" else strides,
                                      self.axes or tuple(range(len(begin))), self.slice_mode)

    def reference(self, data: Array, begin: Array, end: Array, strides: Array) -> Array:
        if self.axes is not None or self.slice_mode != "end" or strides.size != begin.size:
            found: Array = super().reference(data, begin, end, strides)
            return found
        return np.ascontiguousarray(data[tuple(map(slice, begin.tolist(), end.tolist(), strides.tolist()))])


@op("dyn.squeeze", kind=Fusion.OPAQUE)
class DynSqueeze(Dynamic):
    """`squeeze` of the axes given by the second tensor."""

    def infer(self, data: Type, axis: Type) -> TensorType:
        """A shape of unknown sizes, the rank less the length of `axis`; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(_unknown(t.ndim - _count(axis, "axis")), t.dtype)

    def static(self, *values: Array) -> Op:
        return shaping.Squeeze(_whole(values[0]))


@op("dyn.expand_dims", kind=Fusion.OPAQUE)
class DynExpandDims(Dynamic):
    """`expand_dims` at the axis given by the second tensor."""

    num_newaxis: int = 1
    """Number of new dimensions of size one."""

    def infer(self, data: Type, axis: Type) -> TensorType:
        """A shape of unknown sizes, the rank plus `num_newaxis`; the dtype of the data."""
        t, _ = tensors(data, axis)
        return TensorType(_unknown(t.ndim + self.num_newaxis), t.dtype)

    def static(self, *values: Array) -> Op:
        return shaping.ExpandDims(int(values[0].reshape(())), self.num_newaxis)


@op("dyn.nn.pad", kind=Fusion.OPAQUE)
class DynPad(Dynamic):
    """`nn.pad` with the widths (rank, 2) given by the second tensor."""

    pad_mode: str = "constant"
    """Padding: "constant", "edge" or "reflect", as in `nn.pad`."""

    def infer(self, data: Type, pad_width: Type, pad_value: Type) -> TensorType:
        """A shape of unknown sizes of the rank of the data; `pad_width` is (rank, 2)."""
        t, widths, _ = tensors(data, pad_width, pad_value)
        if widths.ndim != 2 or widths.shape != (t.ndim, 2):
            raise ShapeError(f"pad_width must have the shape ({t.ndim}, 2), a pair for each dimension, and it has "
                             f"{text(widths.shape)}")
        return TensorType(_unknown(t.ndim), t.dtype)

    def static(self, *values: Array) -> Op:
        return transform.Pad(tuple((int(a), int(b)) for a, b in values[0]), self.pad_mode)


@op("dyn.nn.upsampling", kind=Fusion.OPAQUE)
class DynUpsampling(Dynamic):
    """`nn.upsampling` with the factors given by scalar tensors."""

    places = (1, 2)
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW" or "NHWC"."""
    method: str = "nearest_neighbor"
    """Interpolation: "nearest_neighbor", "bilinear" or "bicubic"."""
    align_corners: bool = False
    """True keeps the values of the corners, False maps position i to i / scale."""

    def infer(self, data: Type, scale_h: Type, scale_w: Type) -> TensorType:
        """The shape of the data with unknown height and width; the dtype of the data."""
        t, _, _ = tensors(data, scale_h, scale_w)
        return TensorType([UnknownDim() if c in "HW" else n for n, c in zip(t.shape, self.layout, strict=True)],
                          t.dtype)

    def static(self, *values: Array) -> Op:
        height, width = (float(v.reshape(())) for v in values)
        return image.Upsampling(height, width, self.layout, self.method, self.align_corners)


@op("dyn.nn.upsampling3d", kind=Fusion.OPAQUE)
class DynUpsampling3d(Dynamic):
    """`nn.upsampling3d` with the factors given by scalar tensors."""

    places = (1, 2, 3)
    layout: str = "NCDHW"
    """Order of the dimensions: "NCDHW" or "NDHWC"."""
    method: str = "nearest_neighbor"
    """Interpolation: "nearest_neighbor" or "trilinear"."""
    coordinate_transformation_mode: str = "half_pixel"
    """Mapping of output positions to input positions, as in `image.resize3d`."""

    def infer(self, data: Type, scale_d: Type, scale_h: Type, scale_w: Type) -> TensorType:
        """The shape of the data with unknown depth, height and width; the dtype of the data."""
        t, *_ = tensors(data, scale_d, scale_h, scale_w)
        require_rank(t, 5, "data")
        return TensorType([UnknownDim() if c in "DHW" else n for n, c in zip(t.shape, self.layout, strict=True)],
                          t.dtype)

    def static(self, *values: Array) -> Op:
        depth, height, width = (float(v.reshape(())) for v in values)
        return image.Upsampling3d(depth, height, width, self.layout, self.method, self.coordinate_transformation_mode)


@op("dyn.image.resize2d", kind=Fusion.OPAQUE)
class DynResize2d(Dynamic):
    """`image.resize2d` with the size given by the second tensor, the region of interest by the third."""

    places = (1, 2)
    standing = MappingProxyType({"roi": ()})
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW" or "NHWC"."""
    method: str = "linear"
    """Interpolation: "nearest_neighbor", "linear" or "cubic"."""
    coordinate_transformation_mode: str = "half_pixel"
    """Mapping of output positions to input positions, as in `image.resize2d`."""
    rounding_method: str = ""
    """Rounding of nearest-neighbour positions, as in `image.resize2d`."""
    cubic_alpha: float = -0.5
    """Coefficient of the cubic kernel."""
    cubic_exclude: int = 0
    """1 gives taps outside of the image no weight, 0 clamps them to its edge."""
    extrapolation_value: float = 0.0
    """Value of points outside of the image with "tf_crop_and_resize"."""
    out_dtype: str | None = None
    """Type of the result; None means that of the data."""

    def infer(self, data: Type, size: Type, roi: Type) -> TensorType:
        """The shape of the data with unknown height and width; `out_dtype` or the dtype of the data."""
        t, _, _ = tensors(data, size, roi)
        return TensorType([UnknownDim() if c in "HW" else n for n, c in zip(t.shape, self.layout, strict=True)],
                          self.out_dtype or t.dtype)

    def static(self, *values: Array) -> Op:
        roi = tuple(float(v) for v in values[1].reshape(-1))
        return image.Resize2d(size=_whole(values[0]), roi=roi or None, **self.attributes())


@op("dyn.sparse_to_dense", kind=Fusion.OPAQUE)
class DynSparseToDense(Dynamic):
    """`sparse_to_dense` with the shape given by the fourth tensor."""

    places = (3,)

    def infer(self, sparse_indices: Type, sparse_values: Type, default_value: Type, output_shape: Type) -> TensorType:
        """A shape of unknown sizes, the rank being the length of `output_shape`; the dtype of the values."""
        return TensorType(_unknown(_count(output_shape, "output_shape")), tensors(sparse_values)[0].dtype)

    def static(self, *values: Array) -> Op:
        return scattering.SparseToDense(_whole(values[0]))


@op("dyn.vision.non_max_suppression", kind=Fusion.OPAQUE)
class DynNonMaxSuppression(Dynamic):
    """`vision.non_max_suppression` with the largest number of boxes and the threshold given by scalar tensors."""

    places = (3, 4)
    force_suppress: bool = False
    """True compares boxes of all classes, False those of one class only."""
    top_k: int = -1
    """Number of best boxes that are considered; -1 means all."""
    coord_start: int = 2
    """Position of the first of the four coordinates among the values of a box."""
    score_index: int = 1
    """Position of the score among the values of a box."""
    id_index: int = 0
    """Position of the class among the values of a box; -1 for none."""
    return_indices: bool = True
    """True returns the indices of the kept boxes and their number, False the boxes."""
    invalid_to_bottom: bool = False
    """True moves the kept boxes to the front."""

    def infer(
        self, data: Type, valid_count: Type, indices: Type, max_output_size: Type, iou_threshold: Type
    ) -> Type:
        """The types of `vision.non_max_suppression`; the last two inputs are scalars."""
        for what, t in zip(("max_output_size", "iou_threshold"), tensors(max_output_size, iou_threshold), strict=True):
            if t.ndim:
                raise ShapeError(f"{what} must be one number, and it is {t!r}")
        return self._with(-1, 0.5).infer(data, valid_count, indices)

    def _with(self, most: int, threshold: float) -> vision.NonMaxSuppression:
        return vision.NonMaxSuppression(max_output_size=most, iou_threshold=threshold, **self.attributes())

    def static(self, *values: Array) -> Op:
        return self._with(int(values[0].reshape(())), float(values[1].reshape(())))
