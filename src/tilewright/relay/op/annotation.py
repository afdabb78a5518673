"""Marks: the regions of a graph that a target computes, and the devices on which values are.

A region has `compiler_begin` where values go in and `compiler_end` where they come out; it is the nodes between marks of one target. `AnnotateTarget` makes them, `PartitionGraph` makes functions of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import FLOAT32, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import Divide, Maximum, Minimum, Multiply
from tilewright.relay.op.elementwise import Round
from tilewright.relay.op.registry import Array, Fusion, Op, function, op, public_function, tensors
from tilewright.topi.math import identity
from tilewright.topi.shapes import broadcast_shapes


class Mark(Op):
    """Base of the marks: the value itself, at the border of a region of the target `compiler`."""

    telling = True
    compiler: str

    def infer(self, data: Type) -> Type:
        return data

    def reference(self, data: Any) -> Any:
        return data

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@op("annotation.compiler_begin", kind=Fusion.OPAQUE)
class CompilerBegin(Mark):
    """The value, as it goes into a region of the target `compiler`."""

    compiler: str


@op("annotation.compiler_end", kind=Fusion.OPAQUE)
class CompilerEnd(Mark):
    """The value, as it comes out of a region of the target `compiler`."""

    compiler: str


class Passed(Op):
    """Base of the marks that say something of a value to passes, and leave it as it is."""

    def infer(self, data: Type) -> Type:
        return data

    def reference(self, data: Any) -> Any:
        return data

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@op("annotation.checkpoint", kind=Fusion.OPAQUE)
class Checkpoint(Passed):
    """The value, from which a gradient would be computed again: nothing for inference."""


@op("annotation.cast_hint", kind=Fusion.OPAQUE)
class CastHint(Passed):
    """The value, which quantization may store as `dtype`: a hint that nothing here needs."""

    dtype: str


@op("annotation.stop_fusion", kind=Fusion.OPAQUE)
class StopFusion(Op):
    """The value, which is computed in another kernel than what uses it."""

    def infer(self, data: Type) -> TensorType:
        return tensors(data)[0]

    def reference(self, data: Any) -> Any:
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        return identity(data)


@op("on_device", kind=Fusion.OPAQUE)
class OnDevice(Op):
    """The value itself, which is computed on `virtual_device` ("cpu:0") and, with `constrain_result`, stays there.

    Without `constrain_body` only the result is meant, not what computes it.
    """

    telling = True
    virtual_device: str
    constrain_result: bool = False
    constrain_body: bool = True

    def infer(self, body: Type) -> Type:
        return body

    def reference(self, body: Any) -> Any:
        return body

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@op("device_copy", kind=Fusion.OPAQUE)
class DeviceCopy(Op):
    """The value, copied from one device to another."""

    telling = True
    src_virtual_device: str
    dst_virtual_device: str

    def infer(self, data: Type) -> Type:
        return data

    def reference(self, data: Any) -> Any:
        return data

    def simplify(self, call: Call) -> Expr | None:
        """Between two places that are one device, the value."""
        return call.args[0] if self.src_virtual_device == self.dst_virtual_device else None


@op("relay.op.annotation.simulated_quantize", kind=Fusion.BROADCAST)
class SimulatedQuantize(Op):
    """round(clip(data / dom_scale, clip_min, clip_max)) * dom_scale: what is left of `data` when it is quantized, as float32.

    `clip_min` and `clip_max` are whole numbers, so that they say the zero point too: of uint8 it is `-clip_min`. `dom_scale` is one number, or one
    for each channel in a shape that broadcasts. `kind` says what the data are (`relay.quantize.QAnnotateKind`): a value that is
    only marked (0), a layer's input (1), its weights (2), or its sums (3).
    """

    telling = True
    kind_of_value: int = 1
    sign: bool = True
    rounding: str = "round"

    def __post_init__(self) -> None:
        if self.rounding != "round":
            raise CompileError(f"{self.name}: rounding is {self.rounding!r}; values are rounded to the nearest, which is 'round'", code="TW1004")

    def infer(self, data: Type, dom_scale: Type, clip_min: Type, clip_max: Type) -> TensorType:
        t, *parameters = tensors(data, dom_scale, clip_min, clip_max)
        if any(p.dtype is not FLOAT32 for p in (t, *parameters)) or broadcast_shapes(t.shape, parameters[0].shape) != t.shape:
            raise ShapeError(f"data, scale and bounds must be float32 and the scale broadcast to the data, and they are {t!r}, {parameters!r}")
        return t

    def reference(self, data: Array, dom_scale: Array, clip_min: Array, clip_max: Array) -> Array:
        if not self.kind_of_value:
            return data
        return np.rint(np.clip(data / dom_scale, clip_min, clip_max)) * dom_scale

    def simplify(self, call: Call) -> Expr:
        """The same in operators of real numbers."""
        data, scale, low, high = call.args
        if not self.kind_of_value:
            return data
        held: Expr = Call(Divide(), [data, scale], span=call.span)
        for step, bound in ((Maximum(), low), (Minimum(), high)):
            held = Call(step, [held, bound], span=call.span)
        return Call(Multiply(), [Call(Round(), [held], span=call.span), scale], span=call.span)


def device_name(device: Any) -> str:
    """A device as attributes name it: `tvm.cpu(0)`, `"cpu"` and `"cpu:0"` are "cpu:0"."""
    text = device if isinstance(device, str) else f"{getattr(device, 'kind', device)}:{getattr(device, 'index', 0)}"
    return text if ":" in text else f"{text}:0"


def on_device(body: Any, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> Call:
    """`body`, to be computed on `device`: a `tvm.device` or a name."""
    return OnDevice(device_name(device), constrain_result, constrain_body)(body)


def device_copy(data: Any, src_device: Any, dst_device: Any) -> Call:
    """`data` copied from one device to another."""
    return DeviceCopy(device_name(src_device), device_name(dst_device))(data)


checkpoint: Final = function(Checkpoint)
cast_hint: Final = function(CastHint)
stop_fusion: Final = function(StopFusion)
compiler_begin: Final = function(CompilerBegin)
compiler_end: Final = function(CompilerEnd)
simulated_quantize: Final = function(SimulatedQuantize)


def __getattr__(name: str) -> Any:
    """The marks by their names; says of those of accelerators why they are not here."""
    return public_function("annotation." + name, __name__)
