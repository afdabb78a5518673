"""Ten networks, each quantized once, and written three times: as a module of PyTorch, as a TFLite file, and as an ONNX
model.

`NETWORKS[name]()` is a description: layers in order, and for every value its scale and zero point, by what the layers
make of one random picture; weights and biases are integers of a fixed seed. The topologies are those of the networks;
channels and pictures are smaller than in those that were trained, so that the tests are quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Value:
    """A quantized tensor (batch, channels, height, width) or (batch, features), of unsigned bytes; and what it is
    about, as a torch.Tensor."""

    real: Any
    scale: np.float32
    zero: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.real.shape)


@dataclass(eq=False)
class Layer:
    """One layer: its kind, what it reads and makes, its settings, and the integers of its weight and bias."""

    kind: str
    inputs: tuple[Value, ...]
    output: Value
    attrs: dict[str, Any] = field(default_factory=dict)
    weight: Array | None = None
    weight_scale: Array | None = None
    bias: Array | None = None

    @property
    def bias_scale(self) -> Array:
        """What sums of products are worth: a number, or one for each output channel."""
        assert self.weight_scale is not None
        return np.asarray(self.inputs[0].scale * self.weight_scale, np.float32)


class Network:
    """A network while it is described: each method adds a layer and returns its result."""

    def __init__(self, name: str, shape: tuple[int, ...], per_channel: bool = True, seed: int = 0) -> None:
        import torch

        self.name, self.per_channel = name, per_channel
        self.rng = np.random.default_rng(seed)
        self.layers: list[Layer] = []
        self.input = Value(
            torch.from_numpy(self.rng.uniform(-2, 2.6, shape).astype(np.float32)), np.float32(0.0186579), 114
        )

    @property
    def output(self) -> Value:
        return self.layers[-1].output

    def _add(self, kind: str, inputs: tuple[Value, ...], real: Any, like: Value | None = None, **attrs: Any) -> Value:
        """A layer whose result has the scale of another value, or one of its own: what it makes about fills the
        range."""
        act = attrs.get("act", "none")
        real = real.clamp(0, 6) if act == "relu6" else real.relu() if act == "relu" else real
        if like is not None:
            out = Value(real, like.scale, like.zero)
        elif act == "none":
            out = Value(real, np.float32(float(real.abs().max()) / 110), int(self.rng.integers(112, 144)))
        else:
            out = Value(real, np.float32((float(real.max()) + 1e-3) / 240), 0)
        self.layers.append(Layer(kind, inputs, out, attrs))
        return out

    def _weights(self, shape: tuple[int, ...], x: Value, layer: dict[str, Any]) -> tuple[Any, Any]:
        """Integers for a weight and a bias, and the real numbers that they stand for; results are about as large as
        `x`."""
        import torch

        out = shape[0]
        weight, bias = self.rng.integers(
            -127, 128, shape
        ).astype(np.int8), self.rng.integers(-2000, 2000, out).astype(np.int32)
        size = 1.3 / (73 * math.sqrt(math.prod(shape[1:])))
        scale = (size * self.rng.uniform(0.6, 1.4, out if self.per_channel else ())).astype(np.float32)
        layer.update(weight=weight, weight_scale=scale, bias=bias)
        real = weight * scale.reshape(-1, *[1] * (len(shape) - 1))
        return torch.from_numpy(real.astype(np.float32)), torch.from_numpy(
            (bias * (x.scale * scale)).astype(np.float32)
        )

    def _weighted(
        self, kind: str, x: Value, real: Any, like: Value | None, weights: dict[str, Any], **attrs: Any
    ) -> Value:
        made = self._add(kind, (x,), real, like, **attrs)
        for name, value in weights.items():
            setattr(self.layers[-1], name, value)
        return made

    def conv(
        self, x: Value, out: int, kernel: int | tuple[int, int] = 3, stride: int = 1,
        padding: int | tuple[int, int] | None = None, groups: int = 1,
             act: str = "relu", like: Value | None = None) -> Value:
        import torch

        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        around = (kh // 2, kw // 2) if padding is None else (padding, padding) if isinstance(padding, int) else padding
        weights: dict[str, Any] = {}
        weight, bias = self._weights((out, x.shape[1] // groups, kh, kw), x, weights)
        real = torch.nn.functional.conv2d(x.real, weight, bias, stride, around, 1, groups)
        return self._weighted("conv", x, real, like, weights, stride=stride, padding=around, groups=groups, act=act)

    def dense(self, x: Value, out: int, act: str = "none") -> Value:
        weights: dict[str, Any] = {}
        weight, bias = self._weights((out, x.shape[1]), x, weights)
        return self._weighted("dense", x, x.real @ weight.T + bias, None, weights, act=act)

    def add(self, a: Value, b: Value, act: str = "none") -> Value:
        return self._add("add", (a, b), a.real + b.real, act=act)

    def concat(self, *parts: Value) -> Value:
        import torch

        return self._add("concat", parts, torch.cat([p.real for p in parts], 1), parts[0])

    def max_pool(self, x: Value, kernel: int = 2, stride: int = 2, padding: int = 0) -> Value:
        import torch

        return self._add(
            "max_pool", (x,), torch.nn.functional.max_pool2d(x.real, kernel, stride, padding), x, kernel=kernel,
            stride=stride, padding=padding
        )

    def mean(self, x: Value) -> Value:
        return self._add("mean", (x,), x.real.mean((2, 3), keepdim=True), x)

    def flatten(self, x: Value) -> Value:
        return self._add("flatten", (x,), x.real.flatten(1), x)

    def softmax(self, x: Value) -> Value:
        return self._add("softmax", (x,), x.real.softmax(-1), Value(None, np.float32(1 / 256), 0))

    def classify(self, x: Value, classes: int = 10) -> Network:
        """The mean of each channel, and a matrix product."""
        self.dense(self.flatten(self.mean(x)), classes)
        return self


# The networks


def mobilenet_v1(width: int = 1) -> Network:
    net = Network("mobilenet_v1", (1, 3, 64, 64))
    x = net.conv(net.input, 8 * width, stride=2, act="relu6")
    for out, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)):
        x = net.conv(x, x.shape[1], stride=stride, groups=x.shape[1], act="relu6")
        x = net.conv(x, out * width, 1, act="relu6")
    net.classify(x)
    net.softmax(net.output)
    return net


def _inverted(net: Network, x: Value, out: int, expand: int, stride: int, kernel: int = 3, act: str = "relu") -> Value:
    y = net.conv(x, x.shape[1] * expand, 1, act=act) if expand > 1 else x
    y = net.conv(y, y.shape[1], kernel, stride, groups=y.shape[1], act=act)
    y = net.conv(y, out, 1, act="none")
    return net.add(x, y) if stride == 1 and x.shape == y.shape else y


def mobilenet_v2() -> Network:
    """With ReLU, as torchvision quantizes it."""
    net = Network("mobilenet_v2", (1, 3, 64, 64), per_channel=False)
    x = net.conv(net.input, 8, stride=2)
    for expand, out, count, stride in (
        (1, 8, 1, 1), (6, 8, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1)
    ):
        for k in range(count):
            x = _inverted(net, x, out, expand, stride if k == 0 else 1)
    return net.classify(net.conv(x, 160, 1))


def efficientnet_lite0() -> Network:
    net = Network("efficientnet_lite0", (1, 3, 64, 64))
    x = net.conv(net.input, 8, stride=2, act="relu6")
    stages = (
        (1, 3, 1, 1, 8), (6, 3, 2, 2, 8), (6, 5, 2, 2, 16), (6, 3, 3, 2, 24), (6, 5, 3, 1, 32), (6, 5, 4, 2, 48),
        (6, 3, 1, 1, 80)
    )
    for expand, kernel, count, stride, out in stages:
        for k in range(count):
            x = _inverted(net, x, out, expand, stride if k == 0 else 1, kernel, "relu6")
    return net.classify(net.conv(x, 160, 1, act="relu6"))


def resnet_18(width: int = 1) -> Network:
    net = Network("resnet_18", (1, 3, 64, 64))
    x = net.max_pool(net.conv(net.input, 8 * width, 7, 2), 3, 2, 1)
    for stage, out in enumerate((8 * width, 16 * width, 32 * width, 64 * width)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = net.conv(net.conv(x, out, stride=stride), out, act="none")
            short = net.conv(x, out, 1, stride, act="none") if stride == 2 else x
            x = net.add(y, short, "relu")
    return net.classify(x)


def resnet_50(width: int = 1) -> Network:
    net = Network("resnet_50", (1, 3, 64, 64), per_channel=False)
    x = net.max_pool(net.conv(net.input, 8 * width, 7, 2), 3, 2, 1)
    for stage, (out, count) in enumerate(((8 * width, 3), (16 * width, 4), (32 * width, 6), (64 * width, 3))):
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = net.conv(net.conv(net.conv(x, out, 1), out, stride=stride), 4 * out, 1, act="none")
            short = net.conv(x, 4 * out, 1, stride, act="none") if not block else x
            x = net.add(y, short, "relu")
    return net.classify(x)


def resnet_8() -> Network:
    """Of the MLPerf Tiny suite, on pictures of its size."""
    net = Network("resnet_8", (1, 3, 32, 32))
    x = net.conv(net.input, 16)
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        y = net.conv(net.conv(x, out, stride=stride), out, act="none")
        x = net.add(net.conv(x, out, 1, stride, act="none") if stride == 2 else x, y, "relu")
    net.classify(x)
    net.softmax(net.output)
    return net


def ds_cnn() -> Network:
    """Keyword spotting of the MLPerf Tiny suite, on spectrograms of its size."""
    net = Network("ds_cnn", (1, 1, 49, 10))
    x = net.conv(net.input, 64, (10, 4), 2, (5, 1))
    for _ in range(4):
        x = net.conv(net.conv(x, 64, groups=64), 64, 1)
    return net.classify(x, 12)


def _fire(net: Network, x: Value, squeeze: int, expand: int) -> Value:
    s = net.conv(x, squeeze, 1)
    left = net.conv(s, expand, 1)
    return net.concat(left, net.conv(s, expand, like=left))


def squeezenet() -> Network:
    """Version 1.1; its last layer is a convolution."""
    net = Network("squeezenet", (1, 3, 67, 67))
    x = net.max_pool(net.conv(net.input, 16, stride=2, padding=0), 3, 2)
    x = net.max_pool(_fire(net, _fire(net, x, 4, 16), 4, 16), 3, 2)
    x = net.max_pool(_fire(net, _fire(net, x, 8, 32), 8, 32), 3, 2)
    for squeeze, expand in ((12, 48), (12, 48), (16, 64), (16, 64)):
        x = _fire(net, x, squeeze, expand)
    net.flatten(net.mean(net.conv(x, 10, 1)))
    return net


def vgg_11() -> Network:
    """What is flattened has a height and a width, whose order the weights behind them follow."""
    net = Network("vgg_11", (1, 3, 64, 64), per_channel=False)
    x = net.input
    for out in (8, None, 16, None, 32, 32, None, 64, 64, None, 64, 64, None):
        x = net.max_pool(x) if out is None else net.conv(x, out)
    for out in (128, 128):
        x = net.dense(net.flatten(x) if len(x.shape) == 4 else x, out, "relu")
    net.dense(x, 10)
    return net


def _inception(net: Network, x: Value, a: int, b: tuple[int, int], c: tuple[int, int], d: int) -> Value:
    first = net.conv(x, a, 1)
    second = net.conv(net.conv(x, b[0], 1), b[1], like=first)
    third = net.conv(net.conv(x, c[0], 1), c[1], like=first)
    fourth = net.conv(net.max_pool(x, 3, 1, 1), d, 1, like=first)
    return net.concat(first, second, third, fourth)


def googlenet() -> Network:
    net = Network("googlenet", (1, 3, 65, 65))
    x = net.max_pool(net.conv(net.input, 8, 7, 2), 3, 2, 1)
    x = net.max_pool(net.conv(net.conv(x, 8, 1), 24), 3, 2, 1)
    x = _inception(net, x, 8, (12, 16), (2, 4), 4)
    x = net.max_pool(_inception(net, x, 16, (16, 24), (4, 12), 8), 3, 2, 1)
    for a, b, c, d in (
        (24, (12, 26), (2, 6), 8), (20, (14, 28), (3, 8), 8), (16, (16, 32), (3, 8), 8), (14, (18, 36), (4, 8), 8),
        (32, (20, 40), (4, 16), 16)
    ):
        x = _inception(net, x, a, b, c, d)
    x = net.max_pool(x)
    x = _inception(net, _inception(net, x, 32, (20, 40), (4, 16), 16), 48, (24, 48), (6, 16), 16)
    return net.classify(x)


NETWORKS: dict[str, Callable[..., Network]] = {
    f.__name__: f for f in (
        mobilenet_v1, mobilenet_v2, resnet_18, resnet_50, efficientnet_lite0, resnet_8, ds_cnn, squeezenet, vgg_11,
        googlenet
    )
}
WIDTHS = {"mobilenet_v1": 4, "resnet_18": 8, "resnet_50": 8}
"""Networks that take how many times as many channels they have, and how many times that is in those that were
trained."""
