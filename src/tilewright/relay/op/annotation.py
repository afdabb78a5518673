"""Marks: the regions of a graph that a target computes, and the devices on which values are.

A region has `compiler_begin` where values go in and `compiler_end` where they come out; it is the nodes between marks of one target. `AnnotateTarget` makes them, `PartitionGraph` makes functions of them.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright import te
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Fusion, Op, function, op, public_function, tensors
from tilewright.topi.math import identity
from tilewright.types import TensorType, Type


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


def __getattr__(name: str) -> Any:
    """The marks by their names; says of those of accelerators why they are not here."""
    return public_function("annotation." + name, __name__)
