"""Converts a function of composite functions to a TFLite file: one operator per row of Ethos-U's table, and a `PAD`
before a padded layer.

TFLite stores scales and zero points on tensors instead of operators. A tensor has those of the layer that makes it,
else of a layer that reads it; a layer that only moves data has the same scale before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.frontend.tflite.schema import ELEMENT_TYPES, OPERATORS
from tilewright.relay.frontend.tflite.write import model_bytes
from tilewright.relay.op.contrib.rules import inner
from tilewright.relay.visitor import post_order

Array = np.ndarray[Any, Any]
Scale = tuple[float, int]
"""A scale and a zero point."""

_VALID: Final = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A constant that an operator reads, with its scales along `axis`."""

    name: str
    value: Array
    scales: Array | None = None
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator: its inputs in TFLite's order with their scales if known, the result's scale, and its options."""

    kind: str
    reads: tuple[Expr, ...]
    scales: tuple[Scale | None, ...]
    gives: Scale | None
    stored: tuple[Stored, ...] = ()
    options: tuple[str, Mapping[str, Any]] | None = None
    pad: Array | None = None
    """Padding of the first input: (dimensions, 2)."""


def tflite_bytes(function: Function) -> bytes:
    """Return the file. Raises `CompileError` for a body with composites that are not in the table, and for conflicting
    scales of a tensor."""
    return _Graph(function).model()


@dataclass
class _Graph:
    function: Function
    tensors: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    codes: list[str] = field(default_factory=list)
    numbers: dict[Expr, int] = field(default_factory=dict)

    def model(self) -> bytes:
        layers = _layers(self.function)
        scales = _scales(layers)
        for p in self.function.params:
            self.numbers[p] = self._value(p, p.name_hint, scales)
        for k, (e, layer) in enumerate(layers.items()):
            self._layer(e, layer, f"layer{k}", scales)
        body = self.function.body
        results = [self.numbers[r] for r in (body.fields if isinstance(body, Tuple) else (body,))]
        graph = {
            "tensors": self.tensors, "operators": self.operators,
            "inputs": [self.numbers[p] for p in self.function.params], "outputs": results
        }
        codes = [
            {"builtin_code": OPERATORS.index(k), "deprecated_builtin_code": min(OPERATORS.index(k), 127), "version": 1}
            for k in self.codes]
        return model_bytes(
            {
                "version": 3, "operator_codes": codes, "subgraphs": [graph], "buffers": self.buffers,
                "description": "a part for Ethos-U"
            })

    def _value(self, e: Expr, name: str, scales: Mapping[Expr, Scale]) -> int:
        kind: Any = e.checked_type
        return self._tensor(name, kind.concrete_shape, str(kind.dtype), scales.get(e, (1.0, 0)))

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: str, scale: Scale, buffer: int = 0) -> int:
        quantization = {"scale": [scale[0]], "zero_point": [scale[1]]}
        self.tensors.append(
            {
                "name": name, "shape": list(shape), "type": ELEMENT_TYPES.index(dtype), "buffer": buffer,
                "quantization": quantization
            })
        return len(self.tensors) - 1

    def _stored(self, s: Stored, prefix: str) -> int:
        self.buffers.append({"data": np.ascontiguousarray(s.value).tobytes()})
        given = {
            "name": f"{prefix}.{s.name}", "shape": list(s.value.shape), "type": ELEMENT_TYPES.index(str(s.value.dtype)),
            "buffer": len(self.buffers) - 1
        }
        if s.scales is not None:
            found = [float(v) for v in s.scales.reshape(-1)]
            given["quantization"] = {"scale": found, "zero_point": [0] * len(found), "quantized_dimension": s.axis}
        self.tensors.append(given)
        return len(self.tensors) - 1

    def _layer(self, e: Expr, layer: Layer, name: str, scales: Mapping[Expr, Scale]) -> None:
        reads = [self.numbers[r] for r in layer.reads]
        if layer.pad is not None:
            source: Any = layer.reads[0].checked_type
            shape = tuple(int(n + a + b) for n, (a, b) in zip(source.concrete_shape, layer.pad, strict=True))
            padded = self._tensor(f"{name}.padded", shape, str(source.dtype), scales[layer.reads[0]])
            self._operator(
                "PAD", [reads[0], self._stored(Stored("widths", layer.pad.astype(np.int32)), name)], padded,
                ("PadOptions", {}))
            reads[0] = padded
        stored = [self._stored(s, name) for s in layer.stored]
        self.numbers[e] = self._value(e, name, scales)
        self._operator(layer.kind, [*reads, *stored], self.numbers[e], layer.options)

    def _operator(
        self, kind: str, inputs: list[int], output: int, options: tuple[str, Mapping[str, Any]] | None
    ) -> None:
        if kind not in self.codes:
            self.codes.append(kind)
        given: dict[str, Any] = {"opcode_index": self.codes.index(kind), "inputs": inputs, "outputs": [output]}
        self.operators.append(given | ({"builtin_options": options} if options else {}))


def _layers(function: Function) -> dict[Expr, Layer]:
    """Return the layers by their calls, in order."""
    order = post_order(function.body)
    inside = set(post_order(*(e.body for e in order if isinstance(e, Function))))
    found: dict[Expr, Layer] = {}
    for e in order:
        if isinstance(e, Call) and e not in inside:
            row = str(e.op.attrs.get("Composite", "")) if isinstance(e.op, Function) else ""
            reader = _READERS.get(row.removeprefix("ethos-u."))
            if reader is None:
                what = row or getattr(e.op, "name", type(e.op).__name__)
                raise CompileError(
                    f"Ethos-U was given {what}, which is not in its table; partition with partition_for_ethosu(mod, "
                    "params)",
                    e.span, code="TW0904")
            found[e] = reader(e.op.body, dict(zip(e.op.params, e.args, strict=True)))
    return found


def _scales(layers: Mapping[Expr, Layer]) -> dict[Expr, Scale]:
    found: dict[Expr, Scale] = {}
    for e, layer in layers.items():  # results of computing layers
        gives = layer.gives or found.get(layer.reads[0]) or layer.scales[0]
        if gives is not None:
            found[e] = gives
        for source, scale in zip(layer.reads, layer.scales, strict=True):
            known = found.get(source, scale)
            if scale is not None and known != scale:
                raise CompileError(
                    f"one layer gives a tensor the scale {known}, but {layer.kind} reads it as {scale}; requantize "
                    "between them",
                    e.span, code="TW0904")
            if known is not None:
                found[source] = known
    for e, layer in reversed(list(layers.items())):  # moved data have the scale of the result
        if layer.gives is None and e in found:
            found.setdefault(layer.reads[0], found[e])
    return found


def _number(e: Expr) -> Any:
    assert isinstance(e, Constant)
    return e.value


def _scale(scale: Expr, zero: Expr) -> Scale:
    return float(_number(scale).reshape(-1)[0]), int(_number(zero).reshape(-1)[0])


Arguments = Mapping[Expr, Expr]


def _conv2d(body: Any, args: Arguments) -> Layer:
    conv = inner(body, "qnn.conv2d")
    op: Any = conv.op
    source, pad = conv.args[0], None
    if isinstance(source, Call):
        pad = np.asarray(source.op.pad_width)
        source = source.args[0]
    if any(op.padding):
        top, left, bottom, right = op.padding
        pad = np.asarray([[0, 0], [top, bottom], [left, right], [0, 0]]) + (0 if pad is None else pad)
    weight = _number(conv.args[1]).transpose(op.axes()[1])  # (outputs, inputs, rows, columns)
    deep = op.groups > 1
    value = weight.transpose(1, 2, 3, 0) if deep else weight.transpose(0, 2, 3, 1)
    axis = 3 if deep else 0
    options = {
        "padding": _VALID, "stride_h": op.strides[0], "stride_w": op.strides[1], "dilation_h_factor": op.dilation[0],
        "dilation_w_factor": op.dilation[1]
    }
    table = ("DepthwiseConv2DOptions", {**options, "depth_multiplier": 1}) if deep else ("Conv2DOptions", options)
    return _product(
        "DEPTHWISE_CONV_2D" if deep else "CONV_2D", body, conv, args[source],
        Stored("weight", value, _number(conv.args[5]), axis), table, pad)


def _fully_connected(body: Any, args: Arguments) -> Layer:
    dense = inner(body, "qnn.dense")
    weight = Stored("weight", _number(dense.args[1]), _number(dense.args[5]))
    return _product("FULLY_CONNECTED", body, dense, args[dense.args[0]], weight, ("FullyConnectedOptions", {}), None)


def _product(
    kind: str, body: Any, product: Call, source: Expr, weight: Stored, options: tuple[str, Mapping[str, Any]],
    pad: Array | None
) -> Layer:
    """Return the layer of a product; `body` is the requantization of its sums."""
    sums = body.args[0]
    own = _scale(product.args[4], product.args[2])
    count = weight.value.shape[weight.axis]
    bias = _number(sums.args[1]) if sums is not product else np.zeros(count, np.int32)
    assert weight.scales is not None
    scales = np.float32(own[0]) * np.asarray(weight.scales, np.float32)
    return Layer(
        kind, (source,), (own,), _scale(body.args[3], body.args[4]),
        (weight, Stored("bias", bias.reshape(-1).astype(np.int32), scales)), options, pad)


def _pool(kind: str, call: Call, args: Arguments, scales: tuple[Scale | None, Scale | None]) -> Layer:
    op: Any = call.op
    options = {
        "padding": _VALID, "stride_h": op.strides[0], "stride_w": op.strides[1], "filter_height": op.pool_size[0],
        "filter_width": op.pool_size[1]
    }
    return Layer(kind, (args[call.args[0]],), scales[:1], scales[1], (), ("Pool2DOptions", options))


def _avg_pool2d(body: Any, args: Arguments) -> Layer:
    return _pool("AVERAGE_POOL_2D", body, args, (_scale(*body.args[1:3]), _scale(*body.args[3:5])))


def _max_pool2d(body: Any, args: Arguments) -> Layer:
    return _pool("MAX_POOL_2D", body, args, (None, None))


def _binary(kind: str, options: str) -> Callable[[Any, Arguments], Layer]:
    def read(body: Any, args: Arguments) -> Layer:
        a, b, *p = body.args
        return Layer(kind, (args[a], args[b]), (_scale(*p[0:2]), _scale(*p[2:4])), _scale(*p[4:6]), (), (options, {}))

    return read


def _reshape(body: Any, args: Arguments) -> Layer:
    kind: Any = body.checked_type
    assert isinstance(kind, TensorType)
    shape = np.asarray(kind.concrete_shape, np.int32)
    return Layer(
        "RESHAPE", (args[body.args[0]],), (None,), None, (Stored("shape", shape),),
        ("ReshapeOptions", {"new_shape": shape.tolist()}))


def _softmax(body: Any, args: Arguments) -> Layer:
    return Layer(
        "SOFTMAX", (args[body.args[0]],), (_scale(*body.args[1:3]),), _scale(*body.args[3:5]), (),
        ("SoftmaxOptions", {"beta": 1.0}))


_READERS: Final[Mapping[str, Callable[[Any, Arguments], Layer]]] = {
    "conv2d": _conv2d, "fully_connected": _fully_connected, "avg_pool2d": _avg_pool2d, "max_pool2d": _max_pool2d,
    "add": _binary("ADD", "AddOptions"),
    "mul": _binary("MUL", "MulOptions"), "reshape": _reshape, "softmax": _softmax,
}
