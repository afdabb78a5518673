"""oneDNN as a back end: each row of its pattern table gives the numbers of our own kernels, in sub-graphs, in files and on threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import dnnl
from tilewright.contrib.dnnl.library import Library, find, library
from tilewright.contrib.dnnl.program import Program
from tilewright.errors import ArtifactError, CompileError, TargetError
from tilewright.relay.op.contrib import Refusal

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def _why_not() -> str:
    try:
        library()
    except TargetError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
needs_library = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def const(*shape: int) -> relay.Expr:
    return relay.const(RNG.standard_normal(shape, np.float32))


def var(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape)


def conv(x: relay.Expr, out: int = 8, kernel: tuple[int, ...] = (3, 3), **attrs: Any) -> relay.Expr:
    channels = x.tensor_type.shape[attrs.get("data_layout", "NCHW").index("C")]
    w = const(out, channels // attrs.get("groups", 1), *kernel)
    if attrs.get("kernel_layout", "") == "HWIO":
        w = relay.const(np.ascontiguousarray(w.value.transpose(2, 3, 1, 0)))
    return relay.nn.conv2d(x, w, kernel_size=kernel, **{"padding": (1, 1), **attrs})


def gelu(x: relay.Expr) -> relay.Expr:
    return relay.multiply(relay.multiply(x, relay.const(0.5)), relay.add(relay.erf(relay.multiply(x, relay.const(2**-0.5))), relay.const(1.0)))


def hard_swish(x: relay.Expr) -> relay.Expr:
    return relay.multiply(x, relay.clip(relay.add(relay.multiply(x, relay.const(1 / 6)), relay.const(0.5)), 0.0, 1.0))


def residual(x: relay.Expr) -> relay.Expr:
    """Two convolutions whose results are added: one of them is in the way of no other use."""
    first = relay.nn.relu(relay.nn.bias_add(conv(x), const(8)))
    return relay.nn.relu(relay.add(relay.nn.bias_add(conv(first), const(8)), first))


def kept_residual(x: relay.Expr) -> relay.Expr:
    """The residual is used again, so that nothing may be summed into it."""
    first = relay.nn.relu(conv(x))
    return relay.add(conv(relay.add(conv(first), first)), first)


def own_residual(x: relay.Expr) -> relay.Expr:
    """The residual is what the convolution reads, too."""
    first = relay.nn.relu(conv(x))
    return relay.add(conv(first), first)


def right_residual(x: relay.Expr) -> relay.Expr:
    """The left term of the sum is used elsewhere: the right one takes it as its residual."""
    first = relay.nn.bias_add(conv(x), const(8))
    return relay.add(first, relay.nn.bias_add(conv(first), const(8)))


IMAGE = (2, 8, 9, 7)
CASES: dict[str, tuple[tuple[int, ...], Callable[[relay.Expr], relay.Expr], set[str]]] = {
    "convolution": (IMAGE, lambda x: conv(x), {"conv"}),
    "bias": (IMAGE, lambda x: relay.nn.bias_add(conv(x), const(8)), {"conv"}),
    "bias as a sum": (IMAGE, lambda x: relay.add(conv(x), const(8, 1, 1)), {"conv"}),
    "bias and relu": (IMAGE, lambda x: relay.nn.relu(relay.nn.bias_add(conv(x), const(8)))  , {"conv"}),
    "a single number for all channels": (IMAGE, lambda x: relay.add(conv(x), relay.const(0.5)), {"conv"}),
    "clip": (IMAGE, lambda x: relay.clip(conv(x), 0.0, 6.0), {"conv"}),
    "leaky relu": (IMAGE, lambda x: relay.nn.leaky_relu(conv(x), 0.1), {"conv"}),
    "strides, dilation, uneven padding": (IMAGE, lambda x: conv(x, strides=(2, 1), dilation=(1, 2), padding=(0, 1, 2, 3)), {"conv"}),
    "groups": (IMAGE, lambda x: conv(x, 12, groups=4), {"conv"}),
    "depthwise": ((1, 16, 8, 8), lambda x: relay.nn.bias_add(conv(x, 16, groups=16), const(16)), {"conv"}),
    "channels last": ((2, 9, 7, 8), lambda x: relay.nn.relu(relay.nn.bias_add(conv(x, data_layout="NHWC", kernel_layout="HWIO"), const(8), axis=3)), {"conv"}),
    "1d": ((2, 8, 9), lambda x: relay.nn.conv1d(x, const(4, 8, 3), kernel_size=(3,), padding=(1,)), {"conv"}),
    "3d": ((1, 4, 5, 6, 7), lambda x: relay.nn.conv3d(x, const(4, 4, 3, 3, 3), kernel_size=(3, 3, 3), padding=(1, 1, 1)), {"conv"}),
    "transposed": (IMAGE, lambda x: relay.nn.bias_add(relay.nn.conv2d_transpose(x, const(8, 5, 3, 3), kernel_size=(3, 3), strides=(2, 2)), const(5)), {"conv_transpose"}),
    "transposed, groups": (IMAGE, lambda x: relay.nn.conv2d_transpose(x, const(8, 2, 3, 3), kernel_size=(3, 3), groups=4), {"conv_transpose"}),
    "residual": (IMAGE, residual, {"conv"}),
    "a residual that is used again": (IMAGE, kept_residual, {"conv"}),
    "a residual that is read by its convolution": (IMAGE, own_residual, {"conv"}),
    "a residual that is an input": ((1, 8, 6, 6), lambda x: relay.add(conv(x), x), {"conv"}),
    "a sum that is broadcast": (IMAGE, lambda x: relay.add(conv(x), relay.nn.relu(conv(x, 8, (9, 7), padding=(0, 0)))), {"conv"}),
    "a residual from the left": (IMAGE, right_residual, {"conv"}),
    "a bias of its own": (IMAGE, lambda x: conv(relay.nn.bias_add(relay.tanh(x), const(8))), {"conv", "eltwise", "bias"}),
    "gelu": (IMAGE, lambda x: gelu(relay.nn.bias_add(conv(x), const(8))), {"conv_gelu"}),
    "swish": (IMAGE, lambda x: (lambda y: relay.multiply(y, relay.sigmoid(y)))(relay.nn.bias_add(conv(x), const(8))), {"conv_swish"}),
    "hard swish": (IMAGE, lambda x: hard_swish(conv(x)), {"conv_hard_swish"}),
    "pools": (IMAGE, lambda x: relay.nn.avg_pool2d(relay.nn.max_pool2d(conv(x), (3, 3), (2, 2), padding=(1, 1)), (2, 2), padding=(1, 1), count_include_pad=True), {"conv", "pool"}),
    "pools that round up": (IMAGE, lambda x: relay.nn.avg_pool2d(relay.nn.max_pool2d(conv(x), (3, 3), (2, 2), ceil_mode=True), (2, 2), (2, 2), ceil_mode=True), {"conv", "pool"}),
    "head": (IMAGE, lambda x: relay.nn.softmax(relay.nn.bias_add(relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(conv(x))), const(6, 8)), const(6))), {"conv", "pool", "view", "dense", "softmax"}),
    "squeeze and excite": (IMAGE, lambda x: (lambda y: relay.multiply(y, relay.sigmoid(conv(relay.nn.global_avg_pool2d(y), 8, (1, 1), padding=(0, 0)))))(conv(x)), {"conv", "pool", "binary"}),
    "concatenation": (IMAGE, lambda x: relay.concatenate([conv(x), conv(x, 4), x], axis=1), {"conv", "concatenate"}),
    "rows of three dimensions": ((2, 5, 8), lambda x: gelu(relay.nn.bias_add(relay.nn.dense(x, const(6, 8)), const(6), axis=-1)), {"dense_gelu"}),
    "a residual of three dimensions": ((2, 5, 8), lambda x: relay.nn.layer_norm(relay.add(relay.nn.dense(x, const(8, 8)), x), const(8), const(8)), {"dense", "layer_norm"}),
    "products": ((3, 4, 5), lambda x: relay.nn.batch_matmul(relay.nn.batch_matmul(x, x), relay.transpose(x, (0, 2, 1))), {"batch_matmul", "view"}),
    "products the other way": ((3, 4, 5), lambda x: relay.nn.batch_matmul(x, x, transpose_a=True, transpose_b=False), {"batch_matmul"}),
    "functions of one element": (IMAGE, lambda x: conv(relay.tanh(relay.exp(relay.sqrt(relay.abs(gelu(x)))))), {"conv", "eltwise", "gelu"}),
    "arithmetic": (IMAGE, lambda x: conv(relay.divide(relay.subtract(relay.maximum(x, const(8, 1, 1)), const(7)), relay.const(2.0))), {"conv", "binary"}),
    "a transposed image": (IMAGE, lambda x: conv(relay.transpose(conv(x), (0, 1, 3, 2))), {"conv", "view"}),
    "two results": (IMAGE, lambda x: (lambda y: relay.Tuple([relay.nn.relu(y), relay.nn.global_max_pool2d(y)]))(conv(x)), {"conv", "eltwise", "pool"}),
}


def rows(mod: tvm.IRModule) -> set[str]:
    """The rows of the pattern table in the functions for oneDNN."""
    found = set()
    for _, f in mod.items():
        if f.attrs.get("Compiler") == "dnnl":
            calls = [e.op for e in relay.visitor.post_order(f.body, inside=False) if isinstance(e, relay.Call)]
            found |= {str(c.attrs["Composite"]).removeprefix("dnnl.") for c in calls}
    return found


def module(case: str) -> tvm.IRModule:
    shape, build, _ = CASES[case]
    x = var(*shape)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))


def values(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(values(found), values(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5 * float(np.abs(b).max()))


@pytest.mark.parametrize("case", CASES)
def test_rows_take_what_they_say(case: str) -> None:
    mod = dnnl.partition_for_dnnl(module(case))
    assert rows(mod) == CASES[case][2]
    assert sum("Compiler" in f.attrs for _, f in mod.items()) == 1


@needs_library
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_our_own_kernels(case: str) -> None:
    mod = module(case)
    x = RNG.standard_normal(CASES[case][0], np.float32)
    lib = relay.build(dnnl.partition_for_dnnl(mod), "llvm")
    wanted = relay.build(mod, "llvm").executable(x)
    for threads in (1, 2):
        lib.executable.threads = threads
        close(lib.executable(x), wanted)
        close(lib.executable(x), wanted)
