"""Limits of symbolic sizes that operators need, and sizes that a model divides by large numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import tilewright
from small_models import onnxruntime_answers
from tilewright import relay
from tilewright.relay.expr import Function


def real(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("make", "least"), [
    (lambda x: relay.nn.pad(x, pad_width=((0, 0), (0, 0), (5, 7)), pad_mode="reflect"), 8),
    (lambda x: relay.nn.mirror_pad(x, pad_width=((0, 0), (0, 0), (5, 7)), mode="REFLECT"), 8),
    (lambda x: relay.nn.mirror_pad(x, pad_width=((0, 0), (0, 0), (5, 7)), mode="SYMMETRIC"), 7),
    (lambda x: relay.sliding_window(x, axis=2, window_shape=(6,), strides=(2,)), 6),
    (lambda x: relay.nn.conv1d_transpose(x, relay.const(real(3, 4, 4)), channels=4, kernel_size=4, padding=3), 4),
    (lambda x: relay.slice_like(x, relay.const(real(1, 1, 9)), axes=(2,)), 9),
    (lambda x: relay.topk(x, k=5, axis=2, ret_type="values"), 5),
], ids=["pad", "mirror_pad", "mirror_pad with the edge", "sliding_window", "conv1d_transpose", "slice_like", "topk"])
def test_sizes_that_operators_need_limit_the_program(make: Any, least: int) -> None:
    """The program reads nothing outside of its inputs, and accepts the sizes that the operator accepts."""
    def of(*shape: Any) -> Function:
        x = relay.var("x", shape=shape)
        return Function([x], make(x))

    program = tilewright.compile(of(relay.Any(), 3, relay.Any()), symbolic=True, threads=1)
    assert [s.least for s in program.artifact.manifest.symbols] == [1, least]
    for n in (least, least + 1, 40):
        np.testing.assert_allclose(program(real(2, 3, n)), tilewright.compile(of(2, 3, n))(real(2, 3, n)), rtol=1e-5)


def test_quotients_of_sizes_are_large_where_schedules_differ() -> None:
    """Thresholds of schedules lie between the usual samples of a size that a network divides by 80."""
    of = parser.parse_model("""<ir_version: 9, opset_import: ["": 17]> g (float[1, 4, n] x) => (float[a, b, c] y) {
        p = AveragePool<kernel_shape = [80], strides = [80]>(x)  t = Transpose<perm = [0, 2, 1]>(p)
        s = MatMul(t, p)  w = Softmax(s)  y = MatMul(w, t) }""")
    program = tilewright.compile(of, symbolic=True, threads=1)
    for n in (80, 159, 160, 1000, 3333):
        np.testing.assert_allclose(program(real(1, 4, n)), onnxruntime_answers(of, {"x": real(1, 4, n)})[0], 1e-4, 1e-5)
