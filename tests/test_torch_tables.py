"""Functions of one quantised number on torch's engines: every byte, for several scales and zero points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright

pytest.importorskip("torch")
import torch
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
ENGINES = [e for e in ("x86", "qnnpack") if e in torch.backends.quantized.supported_engines]
F = np.float32
Q = torch.ops.quantized
Function = Callable[[Any, float, int], Any]
FUNCTIONS: dict[str, Function] = {
    "sigmoid": lambda x, s, z: torch.sigmoid(x), "tanh": lambda x, s, z: torch.tanh(x),
    "hardsigmoid": lambda x, s, z: functional.hardsigmoid(x),
    "relu": lambda x, s, z: torch.relu(x), "relu6": lambda x, s, z: Q.relu6(x), "hardswish": Q.hardswish,
    "leaky_relu": lambda x, s, z: Q.leaky_relu(x, 0.07, False, s, z),
    "leaky_relu of its scale": lambda x, s, z: functional.leaky_relu(x, 0.07),
    "elu": lambda x, s, z: Q.elu(x, s, z, 1.3), "celu": lambda x, s, z: Q.celu(x, s, z, 0.7),
    "clamp": lambda x, s, z: torch.clamp(x, -1.0, 2.0),
    "hardtanh": lambda x, s, z: functional.hardtanh(x, -1.0, 1.5),
    "threshold": lambda x, s, z: functional.threshold(x, 0.3, 0.1), "gelu": lambda x, s, z: functional.gelu(x),
    "softmax": lambda x, s, z: Q.softmax(x, -1, 1 / 256, 0), "add a number": lambda x, s, z: Q.add_scalar(x, 0.37),
    "add much": lambda x, s, z: Q.add_scalar(x, 40.0),
    "add below zero": lambda x, s, z: Q.add_scalar(x, -3.1), "add and relu": lambda x, s, z: Q.add_scalar_relu(x, -0.7),
    "times a number": lambda x, s, z: Q.mul_scalar(x, 0.37),
    "times below zero": lambda x, s, z: Q.mul_scalar(x, -1.3),
    "times and relu": lambda x, s, z: Q.mul_scalar_relu(x, -1.3), "times nothing": lambda x, s, z: Q.mul_scalar(x, 0.0),
    "concatenated": lambda x, s, z: Q.cat([x, x], 0, s, z), "means": lambda x, s, z: x.reshape(1, 4, 8, 8).mean((2, 3)),
    "enlarged": lambda x, s, z: functional.interpolate(
        x.reshape(1, 1, 16, 16), scale_factor=2.0, mode="bilinear", align_corners=False
    ), "squares": lambda x, s, z: Q.mul(x, x, s, z),
}


class Applied(torch.nn.Module):
    """A function between quantization and real numbers."""

    def __init__(self, function: Function, given: tuple[float, int], made: tuple[float, int]) -> None:
        super().__init__()
        self.function, self.given, self.made = function, given, made

    def forward(self, x: Any) -> Any:
        return self.function(torch.quantize_per_tensor(x, *self.given, torch.quint8), *self.made).dequantize()


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_byte_of_a_function(engine: str, name: str) -> None:
    before, threads = torch.backends.quantized.engine, torch.get_num_threads()
    torch.backends.quantized.engine = engine
    torch.set_num_threads(1)
    try:
        rng = np.random.default_rng(len(name))
        for turn in range(4):
            scale = F(rng.uniform(0.01, 0.1)) if turn % 2 else F(2.0 ** -int(rng.integers(3, 6)))
            zero, to, out = int(rng.integers(0, 256)), (
                F(rng.uniform(0.005, 0.05)) if turn % 2 else scale
            ), int(rng.integers(0, 256))
            x = ((np.arange(256) - zero).astype(F) * scale).reshape(1, 256)
            module = Applied(FUNCTIONS[name], (float(scale), zero), (float(to), out))
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = module(torch.from_numpy(x)).numpy()
                traced = torch.jit.trace(module, torch.from_numpy(x), check_trace=False)
                compiled = tilewright.compile(traced, threads=1)
            np.testing.assert_array_equal(compiled(x), wanted)
    finally:
        torch.backends.quantized.engine = before
        torch.set_num_threads(threads)
