"""Exported programs whose quantization is in the open (PT2E): operators by hand, and what torchao's quantizers write
where that is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import tilewright

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def operators() -> Any:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # declares them
    return torch.ops.quantized_decomposed


class Static(torch.nn.Module):
    """A convolution of bytes between quantizations."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("weight", torch.randint(-127, 128, (8, 3, 3, 3), dtype=torch.int8, generator=generator))
        self.register_buffer("scales", torch.rand(8, generator=generator) * 0.01 + 0.002)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        q = operators()
        real = q.dequantize_per_tensor.default(
            q.quantize_per_tensor.default(x, 0.02, 120, 0, 255, torch.uint8), 0.02, 120, 0, 255, torch.uint8
        )
        weight = q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = torch.relu(torch.nn.functional.conv2d(real, weight, padding=1))
        return q.dequantize_per_tensor.default(
            q.quantize_per_tensor.default(y, 0.05, 0, 0, 255, torch.uint8), 0.05, 0, 0, 255, torch.uint8
        )


class Dynamic(torch.nn.Module):
    """A matrix product of data that are quantized by their range."""

    def __init__(self, symmetric: bool) -> None:
        super().__init__()
        self.symmetric, self.linear = symmetric, torch.nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        q = operators()
        choose = q.choose_qparams_symmetric.tensor if self.symmetric else q.choose_qparams.tensor
        scale, zero = choose(x, -127, 127, 1.1920928955078125e-07, torch.int8)
        integers = q.quantize_per_tensor.tensor(x, scale, zero, -127, 127, torch.int8)
        return self.linear(q.dequantize_per_tensor.tensor(integers, scale, zero, -127, 127, torch.int8))


def answers(module: Any, x: Any) -> tuple[Any, Any]:
    with torch.no_grad():
        exported = torch.export.export(module.eval(), (x,))
        return tilewright.compile(exported, threads=1)(x.numpy()), module(x).numpy()


def test_a_convolution_is_one_of_integers_and_at_most_one_step_from_real_numbers() -> None:
    x = torch.randn(1, 3, 12, 12)
    found, wanted = answers(Static(), x)
    steps = np.rint((found - wanted) / np.float32(0.05))
    assert np.abs(steps).max() <= 1
    assert (steps != 0).mean() < 0.01
    mod = tilewright.relay.frontend.from_pytorch(torch.export.export(Static().eval(), (x,)))[0]
    assert "qnn.conv2d" in str(tilewright.relay.transform.FakeQuantizationToInteger(use_qat=True)(mod))


def test_a_bias_of_real_numbers_is_not_rounded() -> None:
    """In units of the sums it would move some elements in a thousand by a step."""
    class Biased(Static):
        def forward(self, x: Any) -> Any:
            q = operators()
            real = q.dequantize_per_tensor.default(
                q.quantize_per_tensor.default(x, 0.02, 120, 0, 255, torch.uint8), 0.02, 120, 0, 255, torch.uint8
            )
            weight = q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
            y = torch.nn.functional.conv2d(real, weight, torch.linspace(-0.7, 0.9, 8), padding=1)
            return q.quantize_per_tensor.default(y, 0.0007, 120, 0, 255, torch.uint8)

    torch.manual_seed(3)
    found, wanted = answers(Biased(), torch.randn(4, 3, 48, 48))
    assert np.count_nonzero(found != wanted) <= 2 and len(np.unique(wanted)) == 256


@pytest.mark.parametrize("symmetric", [False, True])
def test_data_are_quantized_by_their_range(symmetric: bool) -> None:
    torch.manual_seed(1)
    found, wanted = answers(Dynamic(symmetric), torch.randn(5, 32) * 3)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_torchao_writes_is_imported(dynamic: bool) -> None:
    pytest.importorskip("torchao", reason="the quantizers of PT2E live in torchao; install it")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5)
    ).eval()
    x = torch.randn(1, 3, 8, 8)
    quantizer = x86.X86InductorQuantizer().set_global(
        x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    )
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    prepared(x)
    converted = convert_pt2e(prepared)
    with torch.no_grad():
        found = tilewright.compile(torch.export.export(converted, (x,)), threads=1)(x.numpy())
        np.testing.assert_allclose(found, converted(x).numpy(), rtol=1e-4, atol=1e-4)
