"""Operators by their plain definitions, as a back end without strategies of its own computes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.backends.base import Strategies, Strategy
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.registry import find_backend
from tilewright.compiler.cache import Cache
from tilewright.relay.op.nn import Attention, Dense
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.qnn.products import QnnConv2d
from tilewright.topi.kinds import ChannelBlocks

RNG = np.random.default_rng(3)


@pytest.fixture(params=["llvm", "c"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A target whose back end has no strategies."""
    monkeypatch.setattr(find_backend(request.param), "strategies", Strategies())
    yield request.param


def array(*shape: int, dtype: str = "float32") -> Any:
    return RNG.standard_normal(shape).astype(dtype) if dtype.startswith("float") else RNG.integers(
        -9, 9, shape
    ).astype(dtype)


def call(op: Any, *inputs: Any) -> tuple[Any, Any]:
    """The function of one call, and what the reference of the operator gives."""
    params = [relay.var(f"x{k}", shape=x.shape, dtype=str(x.dtype)) for k, x in enumerate(inputs)]
    return relay.Function(params, op(*params)), op.reference(*inputs)


nn = relay.op.get
CASES: dict[str, tuple[Any, Sequence[Any]]] = {
    "dense": (nn("nn.dense")(), [array(3, 20), array(7, 20)]),
    "dense_3d": (nn("nn.dense")(), [array(2, 3, 20), array(7, 20)]),
    "dense_int8": (nn("nn.dense")(out_dtype="int32"), [array(3, 20, dtype="int8"), array(7, 20, dtype="int8")]),
    "dense_float16": (nn("nn.dense")(), [array(3, 20, dtype="float16"), array(7, 20, dtype="float16")]),
    "matmul": (nn("nn.matmul")(transpose_a=True), [array(20, 3), array(20, 7)]),
    "batch_matmul": (nn("nn.batch_matmul")(), [array(4, 3, 20), array(1, 7, 20)]),
    "batch_matmul_turned": (
        nn("nn.batch_matmul")(transpose_a=True, transpose_b=False), [array(1, 20, 3), array(4, 20, 7)]
    ),
    "conv1d": (nn("nn.conv1d")(padding=(2,)), [array(1, 3, 20), array(5, 3, 4)]),
    "conv2d": (nn("nn.conv2d")(strides=(2, 1), padding=(1, 2)), [array(2, 4, 9, 8), array(6, 4, 3, 3)]),
    "conv2d_nhwc": (
        nn("nn.conv2d")(padding=(1, 1), dilation=(2, 2), data_layout="NHWC", kernel_layout="HWIO"),
        [array(1, 9, 8, 4), array(3, 3, 4, 6)],
    ),
    "depthwise": (nn("nn.conv2d")(groups=4), [array(1, 4, 9, 8), array(8, 1, 3, 3)]),
    "groups": (nn("nn.conv2d")(groups=2), [array(1, 4, 9, 8), array(6, 2, 3, 3)]),
    "conv2d_int8": (
        nn("nn.conv2d")(out_dtype="int32"), [array(1, 4, 9, 8, dtype="uint8"), array(6, 4, 3, 3, dtype="int8")]
    ),
    "conv3d": (nn("nn.conv3d")(padding=(1, 0, 1)), [array(1, 2, 5, 6, 7), array(3, 2, 3, 3, 3)]),
    "conv1d_transpose": (nn("nn.conv1d_transpose")(strides=(2,), groups=2), [array(1, 4, 9), array(4, 3, 5)]),
    "conv2d_transpose": (
        nn("nn.conv2d_transpose")(strides=(2, 2), padding=(1, 1), output_padding=(1, 0)),
        [array(1, 4, 5, 6), array(4, 3, 3, 3)],
    ),
    "conv2d_transpose_nhwc": (
        nn("nn.conv2d_transpose")(strides=(2, 2), data_layout="NHWC", kernel_layout="HWOI"),
        [array(1, 5, 6, 4), array(2, 2, 3, 4)],
    ),
    "conv2d_blocked": (
        nn("nn.conv2d")(padding=(1, 1), data_layout="NCHW4c", kernel_layout="OIHW4i4o"),
        [array(1, 2, 9, 8, 4), array(2, 2, 3, 3, 4, 4)],
    ),
    "max_pool": (nn("nn.max_pool2d")(pool_size=(3, 3), strides=(2, 2), padding=(1, 1)), [array(1, 4, 9, 8)]),
    "max_pool_nhwc": (nn("nn.max_pool2d")(pool_size=(3, 3), ceil_mode=True, layout="NHWC"), [array(1, 9, 8, 4)]),
    "avg_pool": (nn("nn.avg_pool2d")(pool_size=(3, 3), strides=(2, 2), padding=(1, 1)), [array(1, 4, 9, 8)]),
    "avg_pool_counted": (
        nn("nn.avg_pool2d")(pool_size=(3, 2), padding=(1, 1), count_include_pad=True), [array(1, 4, 9, 8)]
    ),
    "avg_pool_int8": (nn("nn.avg_pool1d")(pool_size=(3,)), [array(1, 4, 9, dtype="int8")]),
    "attention": (Attention(heads=2, size=8, width=4), [array(2, 5, 16), array(2, 7, 16), array(2, 7, 8)]),
    "attention_masked": (
        Attention(heads=2, size=8, width=8, starts=(0, 16, 32), causal=True),
        [*[x := array(1, 6, 48)] * 3, array(1, 1, 6, 6)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_plain_definitions_compute_what_the_reference_does(name: str, target: str) -> None:
    op, inputs = CASES[name]
    function, wanted = call(op, *inputs)
    found = tvm.compile(tvm.IRModule.from_expr(function), target=target, cache=Cache(None))(*inputs)
    tolerance = 2e-2 if inputs[0].dtype == np.float16 else 1e-4
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


def test_processors_choose_a_strategy_by_the_class_of_the_operator() -> None:
    strategies = find_backend("llvm").strategies
    data, weight = te.placeholder((1, 4, 8, 8)), te.placeholder((4, 4, 3, 3))
    options = KernelOptions()
    found = strategies.find(Conv2d(), options, data, weight)
    assert found is not None and found.compute(Conv2d(), options, data, weight).extents == (1, 4, 6, 6)
    blocked, chunks = Conv2d(data_layout="NCHW4c", kernel_layout="OIHW"), te.placeholder((1, 1, 8, 8, 4))
    assert strategies.find(blocked, options, chunks, weight) is None
    assert isinstance(strategies.compute(blocked, options, chunks, weight).op.inputs[0].op.schedule, ChannelBlocks)
    assert strategies.find(relay.op.get("nn.relu")(), options, data) is None


def test_a_strategy_is_not_inherited_by_operators_that_compute_something_else() -> None:
    class Halved(Dense):
        def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
            return te.compute((1,), lambda i: data(0, 0) / 2.0, name="halved")

    strategies = Strategies()
    strategies.register(Dense, Strategy("of products", lambda op, options, data, weight: data))
    inputs = te.placeholder((2, 3)), te.placeholder((4, 3))
    options = KernelOptions()
    assert strategies.compute(Dense(), options, *inputs) is inputs[0]
    assert strategies.compute(object.__new__(Halved), options, *inputs).op.name == "halved"
    assert strategies.find(QnnConv2d.__new__(QnnConv2d), options, *inputs) is None
