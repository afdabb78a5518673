"""Quantised operators of PyTorch on each of its engines, on numbers that stand half-way between two results: the bits
are the engine's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from small_models import NO_VNNI, VNNI

pytest.importorskip("torch")
import torch
import torch.ao.nn.intrinsic.quantized as fused
from torch.ao.nn import quantized

ENGINES = [e for e in ("x86", "onednn", "fbgemm", "qnnpack") if e in torch.backends.quantized.supported_engines]
pytestmark = [
    pytest.mark.skipif(not VNNI, reason=NO_VNNI),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning"),
]
F = np.float32


class Wrapped(torch.nn.Module):
    """Quantizes its inputs, calls, and gives real numbers."""

    def __init__(self, inner: Callable[..., Any], parameters: list[tuple[float, int]]) -> None:
        super().__init__()
        self.inner, self.parameters_of_inputs = inner, parameters

    def forward(self, *inputs: Any) -> Any:
        made = [
            torch.quantize_per_tensor(x, s, z, torch.quint8) for x,
            (s, z) in zip(inputs, self.parameters_of_inputs, strict=True)
        ]
        return self.inner(*made).dequantize()


@pytest.fixture(autouse=True)
def single_threaded() -> Any:
    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.backends.quantized.engine = engine


def agrees(inner: Callable[..., Any], inputs: list[tuple[np.ndarray[Any, Any], float, int]]) -> None:
    """Integers of the inputs, given as such with their scales and zero points."""
    real = [torch.from_numpy((q.astype(np.int64) - z).astype(F) * F(s)) for q, s, z in inputs]
    module = Wrapped(inner, [(s, z) for _, s, z in inputs]).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = module(*real).numpy()
        traced = torch.jit.trace(module, tuple(real), check_trace=False)
    assert len(np.unique(wanted)) > 8, "the numbers of the test say nothing"
    compiled = tilewright.compile(traced, threads=1)
    np.testing.assert_array_equal(compiled(*(x.numpy() for x in real)), wanted)


def layer(
    kind: str, rng: np.random.Generator, cin: int, cout: int, size: int = 1, groups: int = 1, channels: bool = True,
    bias: bool = True, relu: bool = False
) -> Any:
    """A layer whose sums are worth half a step of the result, but for the last bits of the scales; with the scale of
    its input."""
    scale, base = float(F(rng.uniform(0.01, 0.05))), F(rng.uniform(0.002, 0.01))
    scales = (base * (1 + rng.integers(-3, 4, cout if channels else 1) * F(1.2e-7))).astype(F)
    shape = (cout, cin // groups, size, size) if kind == "conv" else (cout, cin)
    real = torch.from_numpy((rng.integers(-3, 4, shape) * base).astype(F))
    if channels:
        weight = torch.quantize_per_channel(
            real, torch.from_numpy(scales.astype(np.float64)), torch.zeros(cout, dtype=torch.long), 0, torch.qint8
        )
    else:
        weight = torch.quantize_per_tensor(real, float(scales[0]), 0, torch.qint8)
    offsets = (rng.integers(-60, 60, cout) * base * scale * (1 + rng.uniform(-3e-7, 3e-7, cout))).astype(F)
    made: Any
    if kind == "conv":
        made = (fused.ConvReLU2d if relu else quantized.Conv2d)(cin, cout, size, padding=size // 2, groups=groups)
    else:
        made = (fused.LinearReLU if relu else quantized.Linear)(cin, cout)
    made.set_weight_bias(weight, torch.from_numpy(offsets) if bias else None)
    made.scale, made.zero_point = float(F(2 * scale * base)), int(rng.choice([0, 1, 64, 127, 128]))
    return made, scale


@pytest.mark.sampled(24)
@pytest.mark.parametrize("channels", [True, False], ids=["channels", "tensor"])
@pytest.mark.parametrize(("kind", "options"), [
    ("conv", {"cin": 16, "cout": 32, "size": 3}), ("conv", {"cin": 64, "cout": 64}),
    ("conv", {"cin": 3, "cout": 24, "size": 3, "relu": True}),
    ("conv", {"cin": 128, "cout": 128, "size": 3, "groups": 128}),
    ("conv", {"cin": 32, "cout": 32, "size": 3, "groups": 4}),
    ("conv", {"cin": 16, "cout": 16, "bias": False}), ("linear", {"cin": 64, "cout": 40}),
    ("linear", {"cin": 64, "cout": 40, "bias": False}), ("linear", {"cin": 48, "cout": 24, "relu": True}),
], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_layers(engine: str, kind: str, options: dict[str, Any], channels: bool) -> None:
    torch.backends.quantized.engine = engine
    rng = np.random.default_rng(len(str(options)) + channels)
    for zero in (0, 3, 128):
        made, scale = layer(kind, rng, channels=channels, **options)
        shape = (2, options["cin"], 9, 9) if kind == "conv" else (20, options["cin"])
        agrees(made, [(rng.integers(max(0, zero - 3), zero + 4, shape).astype(np.uint8), scale, zero)])


@pytest.mark.sampled(24)
@pytest.mark.parametrize("shape", [(1, 4096), (3, 100), (2, 24, 5, 7), (1, 64, 8, 8)], ids=str)
@pytest.mark.parametrize("name", ["add", "add_relu", "mul", "mul_relu"])
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_and_products(engine: str, name: str, shape: tuple[int, ...]) -> None:
    torch.backends.quantized.engine = engine
    rng = np.random.default_rng(len(shape))
    for turn in range(4):
        a, b = (rng.integers(0, 256, shape).astype(np.uint8) for _ in "ab")
        s = F(rng.uniform(0.01, 0.1))
        t = F(s * rng.choice([1, 0.5, 0.25, 0.75])) if turn % 2 else F(rng.uniform(0.01, 0.1))
        to = F(s * rng.choice([1, 2, 4, 1.5, 3])) if turn % 2 else F(rng.uniform(0.05, 0.3))
        zeros = [int(z) for z in rng.integers(0, 256, 3)]
        if "mul" in name:
            a, b = (np.clip(rng.integers(-10, 11, shape) + z, 0, 255).astype(np.uint8) for z in zeros[:2])
            to = F(2 * s * t * (1 + rng.integers(-3, 4) * F(1.2e-7)))
            zeros[2] = zeros[2] // 4 + 96
        call = getattr(torch.ops.quantized, name)
        given = [
            (x if len(shape) < 4 else x.transpose(0, 3, 1, 2).copy().transpose(0, 2, 3, 1), float(v), z) for x, v,
            z in zip((a, b), (s, t), zeros, strict=False)
        ]
        agrees(_channels_last(lambda x, y, to=float(to), z=zeros[2], call=call: call(x, y, to, z)), given)


def _channels_last(inner: Callable[..., Any]) -> Callable[..., Any]:
    """As what layers of images give is stored."""
    def called(*inputs: Any) -> Any:
        return inner(*(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs))
    return called


@pytest.mark.parametrize("zero", [0, 77, 128])
def test_quantization_is_one_rounding_to_whole_numbers(zero: int) -> None:
    rng = np.random.default_rng(zero)
    scale = F(rng.uniform(0.01, 0.1))
    x = (rng.integers(-300, 300, 5000) * F(0.5) * scale * (1 + rng.integers(-3, 4, 5000) * F(6e-8))).astype(F)

    class Quantizes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.quantize_per_tensor(x, float(scale), zero, torch.quint8).int_repr()

    module = Quantizes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, torch.from_numpy(x), check_trace=False)
    found = tilewright.compile(traced, threads=1)(x)
    np.testing.assert_array_equal(found, module(torch.from_numpy(x)).numpy())


POOLS: dict[str, Callable[[Any], Any]] = {
    "whole image": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
    "parts": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2),
    "windows": lambda x: torch.nn.functional.avg_pool2d(x, 2),
    "padded windows": lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1),
    "uncounted padding": lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    "maximum": lambda x: torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1),
}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("channels", [8, 40, 64])
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("engine", ENGINES)
def test_pools(engine: str, name: str, channels: int) -> None:
    torch.backends.quantized.engine = engine
    rng = np.random.default_rng(channels)
    for size, zero in ((4, 5), (6, 128)):
        x = rng.integers(0, 256, (2, channels, size, size)).astype(np.uint8)
        agrees(_channels_last(POOLS[name]), [(x, float(F(rng.uniform(0.01, 0.1))), zero)])
