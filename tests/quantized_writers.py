"""The networks of `quantized_networks.py` as modules of PyTorch, as TFLite files, and as ONNX models.

PyTorch and ONNX have unsigned bytes and channels first; TFLite has signed bytes, whose zero points are 128 less, and
channels last.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tflite_models as tf
from quantized_networks import Layer, Network, Value

Array = np.ndarray[Any, Any]


# PyTorch


def to_torch(net: Network) -> Any:
    """The network as a traced module of `torch.ao.nn.quantized`."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = _module(net).eval()
        with torch.no_grad():
            return torch.jit.trace(module, torch.zeros(net.input.shape), check_trace=False)


def _module(net: Network) -> Any:
    import torch

    nnq = torch.ao.nn.quantized

    class Quantized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = nnq.Quantize(
                torch.tensor([float(net.input.scale)]), torch.tensor([net.input.zero]), torch.quint8
            )
            self.layers = torch.nn.ModuleDict(
                {str(k): _torch_layer(layer) for k, layer in enumerate(net.layers) if layer.weight is not None}
            )

        def forward(self, x: Any) -> Any:
            values = {net.input: self.quant(x)}
            for k, layer in enumerate(net.layers):
                args = [values[v] for v in layer.inputs]
                values[
                    layer.output
                ] = self.layers[str(k)](args[0]) if layer.weight is not None else _torch_call(layer, args)
                if layer.attrs.get("act") == "relu6":
                    values[layer.output] = torch.ops.quantized.relu6(values[layer.output])
            return values[net.output].dequantize()

    return Quantized()


def _torch_layer(layer: Layer) -> Any:
    import torch

    nnq, fused = torch.ao.nn.quantized, torch.ao.nn.intrinsic.quantized
    relu = layer.attrs["act"] == "relu"
    assert layer.weight is not None and layer.bias is not None
    if layer.kind == "conv":
        out, depth, *kernel = layer.weight.shape
        kind: Any = fused.ConvReLU2d if relu else nnq.Conv2d
        made = kind(
            depth * layer.attrs["groups"], out, tuple(kernel), layer.attrs["stride"], layer.attrs["padding"], 1,
            layer.attrs["groups"]
        )
    else:
        kind = fused.LinearReLU if relu else nnq.Linear
        made = kind(layer.weight.shape[1], layer.weight.shape[0])
    made.set_weight_bias(_torch_weight(layer), torch.from_numpy((layer.bias * layer.bias_scale).astype(np.float32)))
    made.scale, made.zero_point = float(layer.output.scale), layer.output.zero
    return made


def _torch_weight(layer: Layer) -> Any:
    import torch

    assert layer.weight is not None and layer.weight_scale is not None
    integers, scale = torch.from_numpy(layer.weight), layer.weight_scale
    if scale.size == 1:
        return torch._make_per_tensor_quantized_tensor(integers, float(scale), 0)
    return torch._make_per_channel_quantized_tensor(
        integers, torch.from_numpy(scale.astype(np.float64)), torch.zeros(scale.size, dtype=torch.int64), 0
    )


def _torch_call(layer: Layer, args: list[Any]) -> Any:
    import torch

    ops, out, f = torch.ops.quantized, layer.output, torch.nn.functional
    scale, zero = float(out.scale), out.zero
    match layer.kind:
        case "add":
            return (ops.add_relu if layer.attrs["act"] == "relu" else ops.add)(args[0], args[1], scale, zero)
        case "concat":
            return ops.cat(args, 1, scale, zero)
        case "max_pool":
            return f.max_pool2d(args[0], layer.attrs["kernel"], layer.attrs["stride"], layer.attrs["padding"])
        case "mean":
            return f.adaptive_avg_pool2d(args[0], 1)
        case "flatten":
            return torch.flatten(args[0], 1)
        case _:
            return ops.softmax(args[0], -1, scale, zero)


# TFLite


class _TfliteWriter:
    """The tensors and operators of a file while it is written."""

    def __init__(self) -> None:
        self.tensors: list[tf.T] = []
        self.operators: list[tf.Op] = []
        self.numbers: dict[Value, int] = {}

    def tensor(self, t: tf.T) -> int:
        self.tensors.append(t)
        return len(self.tensors) - 1

    def quantized(self, name: str, shape: tuple[int, ...], v: Value) -> int:
        return self.tensor(tf.T(name, _last(shape), "int8", None, float(v.scale), v.zero - 128))

    def stored(self, name: str, value: Any, dtype: str, scale: Any = (), axis: int = 0) -> int:
        array = np.asarray(value, dtype)
        scales = [float(s) for s in np.asarray(scale).reshape(-1)]
        return self.tensor(tf.T(name, array.shape, dtype, array, scales, [0] * len(scales), axis))

    def operator(self, kind: str, inputs: list[int], output: int, options: str = "", **values: Any) -> int:
        self.operators.append(tf.Op(kind, inputs, [output], options, values))
        return output


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) != 4 else (shape[0], shape[2], shape[3], shape[1])


_ACTIVATIONS = {"none": 0, "relu": 1, "relu6": 3}


def to_tflite(net: Network) -> bytes:
    """The network as a file."""
    w = _TfliteWriter()
    given = w.tensor(tf.T("input", _last(net.input.shape)))
    w.numbers[net.input] = w.operator("QUANTIZE", [given], w.quantized("quantized", net.input.shape, net.input))
    for k, layer in enumerate(net.layers):
        w.numbers[layer.output] = _tflite_layer(w, f"layer{k}", layer, net)
    result = w.operator("DEQUANTIZE", [w.numbers[net.output]], w.tensor(tf.T("output", net.output.shape)))
    return tf.model(w.tensors, w.operators, [given], [result])


def _tflite_layer(w: _TfliteWriter, name: str, layer: Layer, net: Network) -> int:
    args, attrs = [w.numbers[v] for v in layer.inputs], layer.attrs
    out = w.quantized(name, layer.output.shape, layer.output)
    act = _ACTIVATIONS[attrs.get("act", "none")]
    match layer.kind:
        case "conv":
            return _tflite_conv(w, name, layer, out, act)
        case "dense":
            weight, bias = w.stored(
                f"{name}.w", _columns(layer, net), "int8", layer.weight_scale
            ), w.stored(f"{name}.b", layer.bias, "int32", layer.bias_scale)
            return w.operator(
                "FULLY_CONNECTED", [*args, weight, bias], out, "FullyConnectedOptions", FusedActivationFunction=act
            )
        case "add":
            return w.operator("ADD", args, out, "AddOptions", FusedActivationFunction=act)
        case "concat":
            return w.operator("CONCATENATION", args, out, "ConcatenationOptions", Axis=3)
        case "max_pool":
            around = (attrs["padding"],) * 2
            x, code = _padded(
                w, f"{name}.pad", layer.inputs[0], args[0], (attrs["kernel"],) * 2, attrs["stride"], around, -128
            )
            windows = {
                "FilterHeight": attrs["kernel"], "FilterWidth": attrs["kernel"], "StrideH": attrs["stride"],
                "StrideW": attrs["stride"]
            }
            return w.operator("MAX_POOL_2D", [x], out, "Pool2DOptions", Padding=code, **windows)
        case "mean":
            if layer.inputs[0].scale != layer.output.scale:  # the pool of the file keeps the scale
                return w.operator(
                    "MEAN", [*args, w.stored(f"{name}.axes", [1, 2], "int32")], out, "ReducerOptions", KeepDims=True
                )
            height, width = layer.inputs[0].shape[2:]
            windows = {"FilterHeight": height, "FilterWidth": width, "StrideH": 1, "StrideW": 1}
            return w.operator("AVERAGE_POOL_2D", args, out, "Pool2DOptions", Padding=1, **windows)
        case "flatten":
            return w.operator("RESHAPE", [*args, w.stored(f"{name}.shape", layer.output.shape, "int32")], out)
        case _:
            return w.operator("SOFTMAX", args, out, "SoftmaxOptions", Beta=1.0)


def _columns(layer: Layer, net: Network) -> Array:
    """The weight of a matrix product, for elements in the order in which TFLite flattens them."""
    assert layer.weight is not None
    before = next((other for other in net.layers if other.output is layer.inputs[0] and other.kind == "flatten"), None)
    if before is None:
        return layer.weight
    shape = before.inputs[0].shape
    return layer.weight.reshape(-1, *shape[1:]).transpose(0, 2, 3, 1).reshape(layer.weight.shape)


def _tflite_conv(w: _TfliteWriter, name: str, layer: Layer, out: int, act: int) -> int:
    attrs, weight = layer.attrs, layer.weight
    assert weight is not None
    deep = attrs["groups"] > 1 and weight.shape[1] == 1
    value = weight.transpose(1, 2, 3, 0) if deep else weight.transpose(0, 2, 3, 1)
    number = w.stored(f"{name}.w", value, "int8", layer.weight_scale, 3 if deep else 0)
    bias = w.stored(f"{name}.b", layer.bias, "int32", layer.bias_scale)
    source = layer.inputs[0]
    x, code = _padded(
        w, f"{name}.pad", source, w.numbers[source], weight.shape[2:], attrs["stride"], attrs["padding"],
        source.zero - 128
    )
    values = {"Padding": code, "StrideH": attrs["stride"], "StrideW": attrs["stride"], "FusedActivationFunction": act}
    if deep:
        return w.operator(
            "DEPTHWISE_CONV_2D", [x, number, bias], out, "DepthwiseConv2DOptions", DepthMultiplier=1, **values
        )
    return w.operator("CONV_2D", [x, number, bias], out, "Conv2DOptions", **values)


def _padded(
    w: _TfliteWriter, name: str, v: Value, x: int, kernel: tuple[int, ...], stride: int, padding: tuple[int, int],
    zero: int,
) -> tuple[int, int]:
    """The value, padded where the file's SAME (0) or VALID (1) does not do it, and the code of the padding."""
    sizes = v.shape[2:]
    totals = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in zip(sizes, kernel, strict=True)]
    if not any(padding):
        return x, 1
    if all(
        t // 2 == p and t - t // 2 == p and (n + 2 * p - k) // stride + 1 == -(-n // stride) for t, p, n,
        k in zip(totals, padding, sizes, kernel, strict=True)
    ):
        return x, 0
    shape = (*v.shape[:2], *(n + 2 * p for n, p in zip(sizes, padding, strict=True)))
    widths = w.stored(f"{name}.widths", [[0, 0], *([p, p] for p in padding), [0, 0]], "int32")
    made = w.quantized(name, shape, v)
    if zero == v.zero - 128:
        return w.operator("PAD", [x, widths], made), 1
    least = w.tensor(tf.T(f"{name}.least", (), "int8", np.asarray(zero, np.int8), float(v.scale), v.zero - 128))
    return w.operator("PADV2", [x, widths, least], made), 1


# ONNX


class _OnnxWriter:
    """The nodes and stored tensors of a model while it is written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.stored: dict[str, Array] = {}
        self.names: dict[Value, str] = {}

    def store(self, name: str, value: Any, dtype: Any) -> str:
        self.stored[name] = np.asarray(value, dtype)
        return name

    def node(self, kind: str, inputs: list[str], output: str, domain: str = "", **attrs: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, domain=domain, **attrs))
        return output

    def parameters(self, name: str, v: Value) -> list[str]:
        """Scale and zero point of a value."""
        return [self.store(f"{name}.s", v.scale, np.float32), self.store(f"{name}.z", v.zero, np.uint8)]

    def quantized(self, name: str, real: str, v: Value) -> str:
        return self.node("QuantizeLinear", [real, *self.parameters(name, v)], name)

    def real(self, v: Value) -> str:
        """The real numbers of a value."""
        name = self.names[v]
        return self.node("DequantizeLinear", [name, f"{name}.s", f"{name}.z"], f"{name}.real{len(self.nodes)}")

    def tensor(self, name: str, value: Any, dtype: str, scale: Any) -> str:
        """A stored quantized tensor as real numbers."""
        scale = np.asarray(scale, np.float32)
        given = [
            self.store(name, value, dtype), self.store(f"{name}.s", scale, np.float32),
            self.store(f"{name}.z", np.zeros(scale.shape), dtype)
        ]
        return self.node("DequantizeLinear", given, f"{name}.real", axis=0)


def to_onnx(net: Network, operators: bool = False) -> bytes:
    """The network as a model: real numbers between DequantizeLinear and QuantizeLinear, or `operators` of integers
    (QLinearConv)."""
    from onnx import TensorProto, helper, numpy_helper

    w = _OnnxWriter()
    w.names[net.input] = w.quantized("quantized", "input", net.input)
    for k, layer in enumerate(net.layers):
        made = _qlinear(w, f"layer{k}", layer) if operators else None
        w.names[layer.output] = made or w.quantized(f"layer{k}", _onnx_layer(w, f"layer{k}", layer), layer.output)
    w.nodes.append(helper.make_node("Identity", [w.real(net.output)], ["output"]))
    graph = helper.make_graph(
        w.nodes, net.name, [helper.make_tensor_value_info("input", TensorProto.FLOAT, net.input.shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, net.output.shape)],
        [numpy_helper.from_array(v, n) for n, v in w.stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _onnx_layer(w: _OnnxWriter, name: str, layer: Layer) -> str:
    """The real numbers that a layer makes."""
    args, attrs = [w.real(v) for v in layer.inputs], layer.attrs
    match layer.kind:
        case "conv" | "dense":
            weight, bias = w.tensor(
                f"{name}.w", layer.weight, "int8", layer.weight_scale
            ), w.tensor(f"{name}.b", layer.bias, "int32", layer.bias_scale)
            if layer.kind == "dense":
                y = w.node("Gemm", [*args, weight, bias], f"{name}.y", transB=1)
            else:
                y = w.node(
                    "Conv", [*args, weight, bias], f"{name}.y", strides=[attrs["stride"]] * 2,
                    pads=[*attrs["padding"]] * 2, group=attrs["groups"]
                )
        case "add":
            y = w.node("Add", args, f"{name}.y")
        case "concat":
            y = w.node("Concat", args, f"{name}.y", axis=1)
        case "max_pool":
            y = w.node(
                "MaxPool", args, f"{name}.y", kernel_shape=[attrs["kernel"]] * 2, strides=[attrs["stride"]] * 2,
                pads=[attrs["padding"]] * 4
            )
        case "mean":
            y = w.node("GlobalAveragePool", args, f"{name}.y")
        case "flatten":
            y = w.node("Flatten", args, f"{name}.y", axis=1)
        case _:
            y = w.node("Softmax", args, f"{name}.y", axis=-1)
    if attrs.get("act") == "relu":
        return w.node("Relu", [y], f"{name}.act")
    if attrs.get("act") == "relu6":
        return w.node(
            "Clip", [y, w.store(f"{name}.low", 0, np.float32), w.store(f"{name}.high", 6, np.float32)], f"{name}.act"
        )
    return y


def _qlinear(w: _OnnxWriter, name: str, layer: Layer) -> str | None:
    """A layer as an operator of integers, where there is one; what is below zero is cut off by the range of the
    type."""
    attrs = layer.attrs
    assert attrs.get("act") != "relu" or layer.output.zero == 0
    names = [w.names[v] for v in layer.inputs]
    given = [n for v in names for n in (v, f"{v}.s", f"{v}.z")]
    if layer.kind == "conv":
        scale = np.asarray(layer.weight_scale, np.float32)
        weight = [
            w.store(f"{name}.w", layer.weight, np.int8), w.store(f"{name}.w.s", scale, np.float32),
            w.store(f"{name}.w.z", np.zeros(scale.shape), np.int8)
        ]
        inputs = [*given, *weight, *w.parameters(name, layer.output), w.store(f"{name}.b", layer.bias, np.int32)]
        return w.node(
            "QLinearConv", inputs, name, strides=[attrs["stride"]] * 2, pads=[*attrs["padding"]] * 2,
            group=attrs["groups"]
        )
    if layer.kind == "add":
        return w.node("QLinearAdd", [*given, *w.parameters(name, layer.output)], name, "com.microsoft")
    if layer.kind == "mean":
        return w.node("QLinearGlobalAveragePool", [*given, *w.parameters(name, layer.output)], name, "com.microsoft")
    return None
