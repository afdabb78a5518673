"""Annotations: borders of the regions that a target computes, devices of values, ends of lifetimes, and functions that
a program calls with a value.

A region starts at `compiler_begin` and ends at `compiler_end`; it is the nodes between marks of one target.
`AnnotateTarget` inserts the marks, `PartitionGraph` makes functions of the regions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.global_functions import get_global_func
from tilewright.base.nd import NDArray
from tilewright.base.types import FLOAT32, TensorType, Type
from tilewright.ir.virtual_device import FREE, VirtualDevice, virtual_device
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import Divide, Maximum, Minimum, Multiply
from tilewright.relay.op.elementwise import Round
from tilewright.relay.op.registry import Array, Fusion, Op, attributes, function, op, public_function, tensors
from tilewright.topi.math import identity
from tilewright.topi.shapes import broadcast_shapes


class Passed(Op):
    """Base of the marks and hints, which leave their value unchanged."""

    keeps_type = True

    def infer(self, data: Type) -> Type:
        """The type of the data."""
        return data

    def reference(self, data: Any) -> Any:
        return data

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@attributes
class Mark(Passed):
    """Base of the marks at the border of a region."""

    telling = True
    compiler: str
    """Name of the target that computes the region."""


@op("annotation.compiler_begin", kind=Fusion.OPAQUE)
class CompilerBegin(Mark):
    """The value as it enters a region of the target `compiler`."""


@op("annotation.compiler_end", kind=Fusion.OPAQUE)
class CompilerEnd(Mark):
    """The value as it leaves a region of the target `compiler`."""


@op("annotation.checkpoint", kind=Fusion.OPAQUE)
class Checkpoint(Passed):
    """The value. It marks a point from which training recomputes; inference ignores it."""


@op("annotation.cast_hint", kind=Fusion.OPAQUE)
class CastHint(Passed):
    """The value. It hints that quantization may store it as `dtype`; no pass uses the hint."""

    dtype: str
    """Type in which quantization may store the value, such as "int8"."""


@op("annotation.stop_fusion", kind=Fusion.OPAQUE)
class StopFusion(Op):
    """The value, computed in another kernel than its consumers."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be a tensor."""
        return tensors(data)[0]

    def reference(self, data: Any) -> Any:
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        return identity(data)


@op("on_device", kind=Fusion.OPAQUE)
class OnDevice(Op):
    """The value, with the device that computes it and holds it."""

    telling = True
    keeps_type = True
    virtual_device: VirtualDevice
    """Device of the value: a `VirtualDevice`, a device, or its name "kind:index"."""
    constrain_result: bool = False
    """True when the result must stay on the device."""
    constrain_body: bool = True
    """True when the operators that compute the value run on the device, too."""

    def __post_init__(self) -> None:
        free = not self.constrain_result and not self.constrain_body
        object.__setattr__(self, "virtual_device", FREE if free else virtual_device(self.virtual_device))

    def infer(self, body: Type) -> Type:
        """The type of the value."""
        return body

    def reference(self, body: Any) -> Any:
        return body

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@op("device_copy", kind=Fusion.OPAQUE)
class DeviceCopy(Passed):
    """The value, copied from one device to another."""

    telling = True
    src_virtual_device: VirtualDevice
    """Device that holds the value: a `VirtualDevice`, a device, or its name "kind:index"."""
    dst_virtual_device: VirtualDevice
    """Device that receives the copy."""

    def __post_init__(self) -> None:
        for name in ("src_virtual_device", "dst_virtual_device"):
            object.__setattr__(self, name, virtual_device(getattr(self, name)))

    def simplify(self, call: Call) -> Expr | None:
        """The value, if both devices are the same."""
        return call.args[0] if self.src_virtual_device == self.dst_virtual_device else None


@op("debug", kind=Fusion.OPAQUE)
class Debug(Passed):
    """The value. The program calls the registered function `debug_func` with it; `relay.op.debug` registers one."""

    telling = True
    pure = False
    objects = True
    debug_func: str
    """Name of the function (`register_func`): its argument is an `NDArray`, or a tuple of them."""

    def reference(self, data: Any) -> Any:
        get_global_func(self.debug_func)(_arrays(data))
        return data

    def simplify(self, call: Call) -> Expr | None:
        """None: the call of the function stays."""
        return None


def _arrays(value: Any) -> Any:
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else NDArray(np.asarray(value))


@op("relay.op.annotation.simulated_quantize", kind=Fusion.BROADCAST)
class SimulatedQuantize(Op):
    """round(clip(data / dom_scale, clip_min, clip_max)) * dom_scale: the effect of quantization on float32 data.

    `clip_min` and `clip_max` are integers as float32; the zero point of uint8 is `-clip_min`. `dom_scale` is a scalar,
    or has one element for each channel in a shape that broadcasts to the data.
    """

    telling = True
    kind_of_value: int = 1
    """Role of the data (`relay.quantize.QAnnotateKind`): 0 marked only, 1 input, 2 weight, 3 sum."""
    sign: bool = True
    """True for signed integers."""
    rounding: str = "round"
    """Rounding mode; only "round" (to nearest, ties to even) exists."""

    def __post_init__(self) -> None:
        if self.rounding != "round":
            raise CompileError(f"{self.name}: rounding is {self.rounding!r}; it must be 'round', to the "
                               "nearest", code="TW1004")

    def infer(self, data: Type, dom_scale: Type, clip_min: Type, clip_max: Type) -> TensorType:
        """The type of the data; all inputs are float32, and `dom_scale` broadcasts to the data."""
        t, *parameters = tensors(data, dom_scale, clip_min, clip_max)
        if (any(p.dtype is not FLOAT32 for p in (t, *parameters))
                or broadcast_shapes(t.shape, parameters[0].shape) != t.shape):
            raise ShapeError("data, scale and bounds must be float32 and the scale broadcast to the data, and they "
                             f"are {t!r}, {parameters!r}")
        return t

    def reference(self, data: Array, dom_scale: Array, clip_min: Array, clip_max: Array) -> Array:
        if not self.kind_of_value:
            return data
        return np.rint(np.clip(data / dom_scale, clip_min, clip_max)) * dom_scale

    def simplify(self, call: Call) -> Expr:
        """The computation as float operators."""
        data, scale, low, high = call.args
        if not self.kind_of_value:
            return data
        held: Expr = Call(Divide(), [data, scale], span=call.span)
        for step, bound in ((Maximum(), low), (Minimum(), high)):
            held = Call(step, [held, bound], span=call.span)
        return Call(Multiply(), [Call(Round(), [held], span=call.span), scale], span=call.span)


def on_device(body: Any, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> Call:
    """`body`, to be computed on `device`: a `tvm.device`, a name, or a `VirtualDevice`."""
    return OnDevice(virtual_device(device), constrain_result, constrain_body)(body)


def device_copy(data: Any, src_device: Any, dst_device: Any) -> Call:
    """`data` copied from one device to another."""
    return DeviceCopy(virtual_device(src_device), virtual_device(dst_device))(data)


checkpoint: Final = function(Checkpoint)
cast_hint: Final = function(CastHint)
stop_fusion: Final = function(StopFusion)
compiler_begin: Final = function(CompilerBegin)
compiler_end: Final = function(CompilerEnd)
simulated_quantize: Final = function(SimulatedQuantize)


def __getattr__(name: str) -> Any:
    """Return a mark by its name; for a mark of an accelerator, raise the reason why it is not available."""
    return public_function("annotation." + name, __name__)
