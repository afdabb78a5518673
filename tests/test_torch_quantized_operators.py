"""Quantized operators of PyTorch beyond images: one and three dimensions, norms, bounds, embeddings, and what quantizes
its data as it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright

pytest.importorskip("torch")
import torch
import torch.ao.nn.intrinsic.quantized as fused
from torch.ao import quantization
from torch.ao.nn import quantized

from test_torch_engines import ENGINES, F, Wrapped, agrees, pytestmark, single_threaded  # noqa: F401
from tilewright.base.errors import OpNotImplemented
from tilewright.relay.frontend import from_pytorch


def convolution(
    rng: np.random.Generator, n: int, cin: int, cout: int, size: int = 3, groups: int = 1, channels: bool = True,
    relu: bool = False, transposed: bool = False,
                **more: Any) -> Any:
    """A convolution whose sums are worth half a step of the result, but for the last bits of the scales; with the scale
    of its input."""
    scale, base = float(F(rng.uniform(0.01, 0.05))), F(rng.uniform(0.002, 0.01))
    shape = (cin, cout // groups, *[size] * n) if transposed else (cout, cin // groups, *[size] * n)
    real = torch.from_numpy((rng.integers(-3, 4, shape) * base).astype(F))
    if channels:
        scales = (base * (1 + rng.integers(-3, 4, cout) * F(1.2e-7))).astype(np.float64)
        weight = torch.quantize_per_channel(
            real, torch.from_numpy(scales), torch.zeros(cout, dtype=torch.long), 0, torch.qint8
        )
    else:
        weight = torch.quantize_per_tensor(real, float(base), 0, torch.qint8)
    kind = getattr(quantized, f"ConvTranspose{n}d") if transposed else getattr(
        fused if relu else quantized, f"Conv{'ReLU' * relu}{n}d"
    )
    made = kind(cin, cout, size, padding=size // 2, groups=groups, **more)
    made.set_weight_bias(
        weight,
        torch.from_numpy((rng.integers(-60, 60, cout) * base * scale * (1 + rng.uniform(-3e-7, 3e-7, cout))).astype(F))
    )
    made.scale, made.zero_point = float(F(2 * scale * base)), int(rng.choice([0, 1, 64, 127, 128]))
    return made, scale


CONVOLUTIONS: list[tuple[int, dict[str, Any]]] = [
    (1, {"cin": 16, "cout": 32, "relu": True}), (1, {"cin": 32, "cout": 32, "groups": 4}),
    (1, {"cin": 16, "cout": 16, "channels": False, "stride": 2, "dilation": 2}),
    (3, {"cin": 8, "cout": 16, "relu": True}), (3, {"cin": 16, "cout": 16, "groups": 4, "stride": 2}),
    (3, {"cin": 8, "cout": 16, "size": 1}), (3, {"cin": 16, "cout": 16, "groups": 16}),
    (3, {"cin": 8, "cout": 16, "dilation": (2, 1, 1)}),
    (1, {"cin": 16, "cout": 16, "channels": False, "transposed": True, "stride": 2}),
    (2, {"cin": 16, "cout": 16, "channels": False, "transposed": True, "stride": 2, "groups": 4}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "options"), CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_convolutions(engine: str, n: int, options: dict[str, Any]) -> None:
    if engine == "qnnpack" and n == 3:
        pytest.skip("QNNPACK does not tell the weights of convolutions of three dimensions")
    torch.backends.quantized.engine = engine
    rng = np.random.default_rng(len(str(options)) + n)
    for zero in (0, 128):
        made, scale = convolution(rng, n, **options)
        shape = (2, options["cin"], *{1: [20], 2: [6, 7], 3: [5, 6, 7]}[n])
        agrees(made, [(rng.integers(max(0, zero - 3), zero + 4, shape).astype(np.uint8), scale, zero)])


def test_a_transposed_convolution_may_make_its_result_larger() -> None:
    torch.backends.quantized.engine = "fbgemm"
    made, scale = convolution(
        np.random.default_rng(0), 2, 16, 24, channels=False, transposed=True, stride=2, output_padding=1
    )
    agrees(made, [(np.random.default_rng(1).integers(0, 7, (1, 16, 5, 5)).astype(np.uint8), scale, 3)])


def test_transposed_convolutions_of_volumes_are_refused_by_name() -> None:
    torch.backends.quantized.engine = "fbgemm"
    made, _ = convolution(np.random.default_rng(0), 3, 4, 4, channels=False, transposed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Wrapped(made, [(0.1, 0)]), torch.rand(1, 4, 3, 3, 3), check_trace=False)
    with pytest.raises(OpNotImplemented, match="quantized::conv_transpose3d"):
        from_pytorch(traced, [("x", (1, 4, 3, 3, 3))])


Q: Any = torch.ops.quantized
W, B = (torch.from_numpy(np.random.default_rng(k).standard_normal(32).astype(F)) for k in (0, 1))
TO = (1e-5, 0.03, 100)


def slopes() -> Any:
    return torch.quantize_per_tensor(W.abs(), 0.01, 0, torch.quint8)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "layer norm": (lambda x: Q.layer_norm(x, [32], W, B, *TO), (50, 32)),
    "layer norm of two axes": (lambda x: Q.layer_norm(x, [4, 8], W.reshape(4, 8), B.reshape(4, 8), *TO), (50, 4, 8)),
    "plain layer norm": (lambda x: Q.layer_norm(x, [32], None, None, *TO), (50, 32)),
    "group norm": (lambda x: Q.group_norm(x, 8, W, B, *TO), (2, 32, 6, 6)),
    "group norm of many": (lambda x: Q.group_norm(x, 1, W, B, *TO), (1, 32, 40, 40)),
    "instance norm": (lambda x: Q.instance_norm(x, W, B, *TO), (2, 32, 6, 6)),
    "plain instance norm": (lambda x: Q.instance_norm(x, None, None, *TO), (2, 32, 6, 6)),
    "prelu": (lambda x: Q.prelu(x, slopes(), 0.02, 80), (2, 32, 6, 6)),
    "prelu with one slope": (lambda x: Q.prelu(x, slopes()[:1], 0.02, 80), (2, 32, 6, 6)),
    "clamp": (lambda x: Q.clamp(x, -0.7, 1.1), (2, 32, 6, 6)),
    "threshold": (lambda x: Q.threshold(x, 0.3, 0.1), (2, 32, 6, 6)),
    "pool of images": (lambda x: Q.max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], False), (2, 32, 6, 6)),
    "pool of rows": (lambda x: Q.max_pool1d(x, [3], [2], [1], [1], False), (2, 32, 6)),
    "batch norm of rows": (lambda x: Q.batch_norm1d(x, W, B, B, W.abs() + 0.5, *TO), (2, 32, 6)),
    "batch norm of volumes": (lambda x: Q.batch_norm3d_relu(x, W, B, B, W.abs() + 0.5, *TO), (2, 32, 3, 4, 5)),
    "dropout": (lambda x: Q.dropout(x, 0.1, 0), (2, 100)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    inner, shape = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    for zero in (0, 77, 128):
        agrees(inner, [(rng.integers(0, 256, shape).astype(np.uint8), float(F(rng.uniform(0.01, 0.05))), zero)])


# What quantizes its data as it runs


def compared(module: Any, x: Any, atol: float) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = module.eval()(x)
        traced = torch.jit.trace(module, (x,), check_trace=False)
    found = tilewright.compile(traced, threads=1)(x.numpy())
    theirs = [
        v for w in (wanted if isinstance(wanted, tuple) else (wanted,)) for v in (w if isinstance(w, tuple) else (w,))
    ]
    for mine, its in zip(found if isinstance(found, (list, tuple)) else [found], theirs, strict=True):
        np.testing.assert_allclose(mine, its.numpy(), rtol=0, atol=atol)


def dynamic(made: Any, dtype: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantization.quantize_dynamic(torch.nn.Sequential(made), {type(made)}, dtype=dtype)


RECURRENT: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "lstm of two layers": (lambda: torch.nn.LSTM(8, 6, 2), (5, 2, 8)),
    "lstm both ways": (lambda: torch.nn.LSTM(8, 6, bidirectional=True, batch_first=True), (5, 3, 8)),
    "gru": (lambda: torch.nn.GRU(8, 6), (3, 2, 8)), "linear": (lambda: torch.nn.Linear(8, 16), (3, 5, 8)),
}


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16], ids=str)
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("engine", ENGINES)
def test_dynamic_layers(engine: str, name: str, dtype: Any) -> None:
    if dtype is torch.float16 and engine != "fbgemm":
        pytest.skip("weights of halves are FBGEMM's")
    torch.backends.quantized.engine = engine
    torch.manual_seed(0)
    make, shape = RECURRENT[name]
    compared(dynamic(make(), dtype), torch.randn(*shape), 2e-6)


@pytest.mark.parametrize("make", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_dynamic_cells(make: Any) -> None:
    torch.manual_seed(0)
    compared(dynamic(make(8, 6), torch.qint8), torch.randn(4, 8), 1e-6)


def test_a_dynamic_product_has_the_bits_of_the_engine() -> None:
    torch.backends.quantized.engine = "fbgemm"
    torch.manual_seed(0)
    compared(dynamic(torch.nn.Linear(64, 48), torch.qint8), torch.randn(20, 64), 0)


@pytest.mark.parametrize("kind", [torch.quint8, torch.quint4x2], ids=str)
def test_embeddings(kind: Any) -> None:
    torch.manual_seed(0)
    observer = quantization.PerChannelMinMaxObserver(
        dtype=kind, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
    )
    weight = torch.randn(50, 16)
    observer(weight)
    whole = torch.quantize_per_channel(weight, *observer.calculate_qparams(), 0, kind)
    compared(quantized.Embedding(50, 16, _weight=whole, dtype=kind), torch.randint(0, 50, (3, 7)), 0)
    bag = quantized.EmbeddingBag(50, 16, _weight=whole, dtype=kind, mode="sum", include_last_offset=True)

    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = bag

        def forward(self, indices: Any) -> Any:
            return self.bag(indices, torch.tensor([0, 3, 3, 20]))

    compared(Bags(), torch.randint(0, 50, (20,)), 1e-5)
