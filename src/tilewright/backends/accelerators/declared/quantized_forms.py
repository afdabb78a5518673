"""Forms of quantized operators, as produced by `relay.qnn.transform.Unify`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.accelerators.declared import samples
from tilewright.backends.accelerators.declared.declaration import Accelerator, Refused
from tilewright.backends.accelerators.declared.matches import (
    Form,
    Match,
    Reading,
    call_below,
    clipped,
    constants,
    data_of,
    is_call,
    number,
    padded_data,
    pool_geometry,
    require_layout,
    scaling_of,
    sides_of,
)

if TYPE_CHECKING:
    from tilewright.relay.dataflow_pattern import DFPattern
    from tilewright.relay.expr import Expr, Function

Array = np.ndarray[Any, Any]


def _finished(product: DFPattern) -> DFPattern:
    """Return a pattern of sums with a bias, requantized and optionally clipped."""
    from tilewright.relay.dataflow_pattern import is_op

    sums = is_op("nn.bias_add")(product, *constants(1))
    return is_op("qnn.requantize")(sums, *constants(4)).optional(is_op("clip"))


def _sums(root: Any, product: str, reading: Reading, real: bool) -> tuple[Any, dict[str, Any]]:
    """Return the product under `root`, and the bias, scaling and bounds of the result."""
    requantize, low, high = clipped(root)
    found: Any = call_below(requantize, "qnn.requantize", "nn.bias_add", product)
    axis, rank = requantize.args[0].op.axis, len(found.tensor_type.shape)
    channels = found.op.data_layout.index("C") if "data_layout" in found.op.attributes() else rank - 1
    if axis % rank != channels:
        raise Refused(
            f"a bias is one number for each output channel, along axis {channels}, and this is along axis "
            f"{axis % rank}",
            f"add it along axis {channels}")
    bias = requantize.args[0].args[1].value
    scaling = scaling_of(requantize, bias.size, reading, real)
    zero = found.args[3].value
    return found, {
        **scaling.attributes(),
        "bias": bias.astype(np.int32),
        "low": low,
        "high": high,
        "in_zero": int(number(found.args[2])),
        "weight_zero": np.broadcast_to(zero, (bias.size,)).astype(np.int32),
        "dtype": str(root.tensor_type.dtype),
    }


@dataclass(frozen=True)
class conv2d(Form):
    """A convolution: `x` with its padding, `weight` (kh, kw, ci, co), `bias`, `weight_zero`, `multiplier` and
    `exponent` (co), `once`, `in_zero`, `out_zero`, `low`, `high`, `kernel`, `strides`, `dilation`.

    If the form is `conv2d(depthwise=True)`, each channel has its own weight (kh, kw, c). With `pad=False`, a preceding
    padding is a separate operator. With `real=True`, sums are scaled in float32 by `factor` (co), which replaces
    `multiplier`, `exponent` and `once`.
    """

    depthwise: bool = False
    pad: bool = True
    real: bool = False

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        data = is_op("nn.pad")(wildcard(), *constants(1)) | wildcard() if self.pad else wildcard()
        conv: DFPattern = is_op("qnn.conv2d")(data, *constants(5))
        return _finished(conv if self.depthwise else conv.has_attr({"groups": 1}))

    def read(self, root: Expr, reading: Reading) -> Match:
        conv, found = _sums(root, "qnn.conv2d", reading, self.real)
        op = conv.op
        require_layout(op.data_layout, reading)
        x, _ = (
            padded_data(conv.args[0], op.data_layout, reading) if self.pad else (data_of(conv.args[0], reading), None)
        )
        if any(op.padding):
            if any(x.before) or any(x.after):
                raise Refused(
                    "a convolution has padding of its own, or nn.pad before it",
                    "bring both into nn.pad: relay.qnn.transform.NormalizeQnn()")
            x = x.pad(*sides_of(op.data_layout, *map(int, op.padding)), found["in_zero"])
        ordered = conv.args[1].value.transpose(op.axes()[1]).transpose(2, 3, 1, 0)
        kh, kw, depth, channels = ordered.shape
        if self.depthwise:
            if op.groups != channels or depth != 1 or channels != x.shape[op.data_layout.index("C")]:
                raise Refused(
                    f"a convolution in groups is depthwise, one channel in each, and this has {channels} channels in "
                    f"{op.groups} groups",
                    "split it into convolutions of one group each")
            ordered = ordered[:, :, 0]
        elif op.groups != 1:
            raise Refused(
                f"a convolution has one group, and this has {op.groups}", "split it into convolutions of one group each"
            )
        macs = math.prod(root.tensor_type.shape) * kh * kw * depth
        return Match(
            root, reading, x=x, weight=np.ascontiguousarray(ordered), kernel=(kh, kw), strides=_pair(op.strides),
            dilation=_pair(op.dilation), macs=macs, **found)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.conv2d(rng, accelerator, self.depthwise, self.pad)


@dataclass(frozen=True)
class dense(Form):
    """A matrix product: `x` (n, k), `weight` (k, units), and the attributes of `conv2d` for its sums."""

    real: bool = False

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return _finished(is_op("qnn.dense")(wildcard(), *constants(5)))

    def read(self, root: Expr, reading: Reading) -> Match:
        product, found = _sums(root, "qnn.dense", reading, self.real)
        x = data_of(product.args[0], reading)
        weight = np.ascontiguousarray(product.args[1].value.T)
        return Match(root, reading, x=x, weight=weight, macs=math.prod(x.shape) * weight.shape[1], **found)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.dense(rng, accelerator)


@dataclass(frozen=True)
class add(Form):
    """A sum of two tensors of equal shape: `a`, `b`, with `scales` and `zeros` (of a, b and the result), `low`, `high`.
    """

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("qnn.add")(wildcard(), wildcard(), *constants(6)).optional(is_op("clip"))

    def read(self, root: Expr, reading: Reading) -> Match:
        total, low, high = clipped(root)
        a, b = (data_of(v, reading) for v in total.args[:2])
        if a.shape != b.shape:
            raise Refused(
                f"the tensors of a sum have one shape, and these have {a.shape} and {b.shape}",
                "broadcast the smaller one before: relay.broadcast_to")
        scales, zeros = ([number(p) for p in total.args[k::2]] for k in (2, 3))
        return Match(
            root, reading, a=a, b=b, scales=tuple(scales), zeros=tuple(map(int, zeros)), low=low, high=high,
            dtype=a.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.add(rng, accelerator)


@dataclass(frozen=True)
class avg_pool2d(Form):
    """The mean of windows: `x`, `kernel`, `strides`, `padding`, `scales` and `zeros` (of data and result)."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("qnn.avg_pool2d")(wildcard(), *constants(4))

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        kernel, strides, padding = pool_geometry(call.op, reading)
        scales, zeros = ([number(p) for p in call.args[k::2]] for k in (1, 2))
        x = data_of(call.args[0], reading)
        return Match(
            root, reading, x=x, kernel=kernel, strides=strides, padding=padding, scales=tuple(scales),
            zeros=tuple(map(int, zeros)), dtype=x.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.avg_pool2d(rng, accelerator)


@dataclass(frozen=True)
class max_pool2d(Form):
    """The maximum of windows: `x` with its padding, `kernel`, `strides`. For 8-bit integers and floats."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("nn.max_pool2d")(wildcard())

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        kernel, strides, padding = pool_geometry(call.op, reading)
        x = data_of(call.args[0], reading)
        least = np.finfo(x.dtype).min if "float" in x.dtype else np.iinfo(x.dtype).min
        if any(padding):
            x = x.pad(*sides_of(call.op.layout, *padding), float(least))
        return Match(root, reading, x=x, kernel=kernel, strides=strides, dtype=x.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.max_pool2d(rng, accelerator)


@dataclass(frozen=True)
class concatenate(Form):
    """Tensors one after another: `parts`, a list, and `axis`."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, is_tuple

        return is_op("concatenate")(is_tuple(None))

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        parts = [data_of(v, reading) for v in call.args[0].fields]
        return Match(root, reading, parts=parts, axis=call.op.axis % len(parts[0].shape), dtype=parts[0].dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.concatenate(rng, accelerator)


@dataclass(frozen=True)
class reshape(Form):
    """The same elements in the same order with another shape: `x`.

    The function of the operator returns `f.x`, the attribute `x` of the match, because no data move.
    """

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("reshape")(wildcard())

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        x = data_of(call.args[0], reading)
        return Match(root, reading, x=x, dtype=x.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.reshape(rng, accelerator)


@dataclass(frozen=True)
class pad(Form):
    """Padding of images that several operators read: `x` with its padding."""

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("nn.pad")(wildcard(), *constants(1))

    def read(self, root: Expr, reading: Reading) -> Match:
        if len(root.tensor_type.shape) != 4:
            raise Refused("what is padded are images, of four dimensions", "pad before the tensor is reshaped")
        x, _ = padded_data(root, reading.accelerator.layout, reading)
        return Match(root, reading, x=x, dtype=x.dtype)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.pad(rng, accelerator)


@dataclass(frozen=True)
class requantize(Form):
    """8-bit integers under another scale, with scalar attributes: `x`, `multiplier`, `exponent`, `once` (or `factor` if
    `real`), `in_zero`, `out_zero`, `low`, `high`."""

    real: bool = False

    def pattern(self) -> DFPattern:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("qnn.requantize")(wildcard(), *constants(4))

    def read(self, root: Expr, reading: Reading) -> Match:
        call: Any = root
        x = data_of(call.args[0], reading)
        zero, _ = int(number(call.args[2])), number(call.args[1])
        from tilewright.relay.expr import Call, Constant

        centred = Call(
            call.op, [call.args[0], call.args[1], Constant(np.zeros((), np.int32)), *call.args[3:]], span=call.span)
        values = {
            k: v.item() if isinstance(v, np.ndarray) else v
            for k, v in scaling_of(centred, 1, reading, self.real).attributes().items()}
        _, low, high = clipped(root)
        return Match(root, reading, x=x, in_zero=zero, low=low, high=high, dtype=x.dtype, **values)

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        return samples.requantize(rng, accelerator)


def _pair(values: Any) -> tuple[int, int]:
    a, b = (int(v) for v in values)
    return a, b


__all__ = [
    "add", "avg_pool2d", "concatenate", "conv2d", "dense", "is_call", "max_pool2d", "pad", "requantize", "reshape"
]
