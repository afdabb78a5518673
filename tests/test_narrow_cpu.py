"""The back end of `examples/narrow_cpu`: found by its entry point; random kernels and networks agree with their meaning
and with LLVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import daily
import tilewright
from narrow_package import PACKAGE, install
from random_kernels import KINDS, Maker
from shipped_models import MODELS_FOLDER
from test_kernels_native import agree
from tilewright import relay
from tilewright.backends import registry
from tilewright.backends.targets.target import Target
from tilewright.base.errors import TargetError
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay import testing
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform.bind_params import bind_params
from tilewright.runtime.host import host_arch

V2 = MODELS_FOLDER / "mobilenet_v2_1.0_224_quant.tflite"
SEEDS = daily.sample([(kind, seed) for kind, (_, count) in KINDS.items() for seed in range(count)], 60, "narrow")


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        install(tmp_path_factory.mktemp("site"), patch)
        yield
    registry.forget()


def chosen(x: relay.Expr, w: relay.Expr, **attrs: Any) -> str:
    """The text of the loops of one convolution."""
    made = relay.Function(
        [v for v in (x, w) if isinstance(v, relay.Var)],
        relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **attrs)
    )
    return tilewright.compile(IRModule.from_expr(made), target="narrow_cpu").dump("tir")


def test_options_of_the_target() -> None:
    target = Target("narrow_cpu -scratchpad=32768 -num-cores=2")
    assert (
        target.keys, target.vector_bits, target.cores, target.machine.l1_bytes
    ) == (("narrow_cpu", "cpu"), 128, 2, 32768)
    assert target.machine.backend == "narrow_cpu" and "narrow_cpu" in Target.list_kinds()
    with pytest.raises(TargetError, match="has less than 1 KiB; give it more, as in -scratchpad=65536"):
        Target("narrow_cpu -scratchpad=1")
    with pytest.raises(TargetError, match="'-scratchpad' is not an option of a target"):
        Target("llvm -scratchpad=32768")


def test_the_strategy_is_taken_where_it_accepts() -> None:
    x, weight = relay.var("x", shape=(1, 12, 12, 8)), np.ones((3, 3, 8, 16), np.float32)
    assert "scratchpad" in chosen(x, relay.const(weight), padding=(1, 1))
    assert "scratchpad" in chosen(x, relay.const(weight[:, :, :1, :8]), padding=(1, 1), groups=8)
    assert "scratchpad" not in chosen(x, relay.const(weight[:, :, :4]), padding=(1, 1), groups=2)
    assert "scratchpad" not in chosen(relay.var("x", shape=(1, 12, 1200, 8)), relay.const(weight))


@pytest.mark.skipif(host_arch() != "x86_64", reason="the names of registers are those of x86-64")
def test_vectors_have_128_bits() -> None:
    x, weight = relay.var("x", shape=(1, 12, 12, 8)), relay.const(np.ones((3, 3, 8, 16), np.float32))
    model = tilewright.compile(
        IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO"))),
        target="narrow_cpu"
    )
    assert "xmm" in model.dump("asm") and not re.search("[yz]mm", model.dump("asm"))


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_random_kernels(kind: str, seed: int) -> None:
    made = Maker(seed).make(KINDS[kind][0])
    run = build_module(IRModule.from_expr(made.function), Target("narrow_cpu")).executable(threads=1 + seed % 2)
    agree(run(*made.arrays), evaluate(made.function, *made.arrays))


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0, 1, 3)])
@pytest.mark.parametrize(
    ("strides", "dilation", "groups", "channels"),
    [((1, 1), (1, 1), 1, 7), ((2, 1), (1, 2), 1, 2), ((2, 2), (1, 1), 6, 6), ((1, 3), (2, 1), 6, 6)]
)
def test_convolutions(
    padding: tuple[int, ...], strides: tuple[int, int], dilation: tuple[int, int], groups: int, channels: int
) -> None:
    random = np.random.default_rng(channels)
    x, w = relay.var("x", shape=(2, 13, 11, 6)), random.standard_normal((3, 3, 6 // groups, channels), np.float32)
    made = relay.nn.conv2d(
        x, relay.const(w), strides=strides, padding=padding, dilation=dilation, groups=groups, data_layout="NHWC",
        kernel_layout="HWIO"
    )
    function, given = relay.Function([x], relay.nn.relu(made)), random.standard_normal((2, 13, 11, 6), np.float32)
    agree(
        build_module(IRModule.from_expr(function), Target("narrow_cpu")).executable(threads=2)(given),
        evaluate(function, given)
    )


@pytest.mark.slow
def test_mobilenet() -> None:
    mod = bind_params(*testing.mobilenet.get_workload(image_shape=(3, 64, 64)))
    model = tilewright.compile(mod, target="narrow_cpu")
    assert "scratchpad" in model.dump("tir")
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)
    np.testing.assert_allclose(model(x), tilewright.compile(mod, target="llvm")(x), rtol=1e-4, atol=1e-6)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.skipif(not V2.exists(), reason=f"{V2} is not there")
def test_mobilenet_v2() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3)).astype(np.uint8)
    np.testing.assert_array_equal(
        tilewright.compile(V2, target="narrow_cpu")(pixels), tilewright.compile(V2, target="llvm")(pixels)
    )


def test_the_package_has_at_most_300_lines() -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")) <= 300
