"""Further families, which no report was mended after: whole networks of two blocks, constants of each channel, and the
tables of Ethos-U and the Arm Compute Library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from offload_blind import CONSTANT, CONV, EXTRA, LIMIT, TYPE, Cause, Expr, Quantized, blocks, family, ints, zero
from offload_blind_families import Make, pool, real
from tilewright import relay

Parts = dict[str, tuple[Make, Cause]]


def declare_more() -> None:
    for target in ("npu", "ethos-n", "cmsis-nn"):
        declared(target, networks())
        declared(target, constants())
        declared(target, layouts())
    for target in ("ethos-n", "cmsis-nn", "ethos-u"):
        declared(target, zero_points())
    declared("ethos-u", ethos_u())
    declared("arm_compute_lib", compute_library())


def declared(target: str, parts: Parts) -> None:
    for label, (make, cause) in parts.items():
        family(blocks, f"{target}: {label}", target, make, cause, True)


def network(q: Quantized, which: int, **over: Any) -> Expr:
    """Two convolutions, of which one has other knobs."""
    second = Quantized(q.rng, q.dtype, size=q.size - 2, cin=q.cout, cout=q.cout)
    y = q.conv(q.image(), **(over if which == 0 else {}))
    return relay.nn.max_pool2d(
        second.conv(y, **(over if which else {})), pool_size=(2, 2), strides=(2, 2), layout="NHWC"
    )


def widened(y: Expr) -> Expr:
    return relay.cast(relay.cast(y, dtype="int64"), dtype="int32")


def networks() -> Parts:
    found: Parts = {}
    for which in (0, 1):

        def relu(q: Quantized, c: bool, which: int = which) -> Expr:
            return network(q, which, **({"after_bias": relay.nn.relu} if c else {}))

        def cast(q: Quantized, c: bool, which: int = which) -> Expr:
            return network(q, which, **({"after_conv": widened} if c else {}))

        def weight(q: Quantized, c: bool, which: int = which) -> Expr:
            shape = (3, 3, q.cout if which else q.cin, q.cout)
            return network(q, which, **({"weight": relay.var("w", shape=shape, dtype="int8")} if c else {}))

        found[f"relu in block {which}"] = (relu, Cause(CONV, EXTRA, r"nn\.relu"))
        found[f"casts in block {which}"] = (cast, Cause(CONV, EXTRA, r"cast"))
        found[f"weight of block {which} is an input"] = (weight, Cause(CONV, CONSTANT, r"\bw\b"))
    return found


def _conv_with(knob: str, make: Callable[[Quantized], Expr], q: Quantized, changed: bool) -> Expr:
    return q.conv(q.image(), **({knob: make(q)} if changed else {}))


def constants() -> Parts:
    conv: dict[str, tuple[str, Callable[[Quantized], Expr], str]] = {
        "scales of channels are an input": ("weight_scale", lambda q: relay.var("ws", shape=(q.cout,)), r"\bws\b"),
        "bias is an input": ("bias_value", lambda q: relay.var("bb", shape=(q.cout,), dtype="int32"), r"\bbb\b"),
        "bias cast in the graph": (
            "bias_value", lambda q: relay.cast(ints(q.rng, (q.cout,), "int16"), dtype="int32"), r"cast"
        ),
    }
    found: Parts = {}
    for label, (knob, make, words) in conv.items():
        found[label] = (partial(_conv_with, knob, make), Cause(CONV, CONSTANT, words))
    found["dense, bias is an input"] = (
        lambda q, c: q.dense(
            q.rows(), **({"bias_value": relay.var("bb", shape=(q.cout,), dtype="int32")} if c else {})
        ),
        Cause("qnn.dense", CONSTANT, r"\bbb\b"),
    )
    found["dense, negated before requantize"] = (
        lambda q, c: q.dense(q.rows(), **({"after_bias": relay.negative} if c else {})),
        Cause("qnn.dense", EXTRA, r"negative"),
    )
    return found


def layouts() -> Parts:
    def first(q: Quantized, c: bool) -> Expr:
        if not c:
            return q.conv(q.image())
        return q.conv(
            relay.var("x", shape=(1, q.cin, q.size, q.size), dtype="int8"), attrs={"data_layout": "NCHW"}, axis=1
        )

    return {"convolution, channels first": (first, Cause(CONV, LIMIT, r"NCHW|layout"))}


def zero_points() -> Parts:
    def each(q: Quantized, c: bool) -> Expr:
        return q.conv(q.image(), weight_zero=relay.const(np.arange(q.cout, dtype="int32")) if c else zero(0))

    return {
        "zero points of channels": (each, Cause(CONV, (*LIMIT, "value"), r"zero")),
        "zero point of the weight": (
            lambda q, c: q.conv(q.image(), weight_zero=zero(4 if c else 0)), Cause(CONV, (*LIMIT, "value"), r"zero")
        ),
    }


def ethos_u() -> Parts:
    op = "nn.max_pool2d"
    return {
        "strides": (
            lambda q, c: q.conv(q.image(), attrs={"strides": (4, 4)} if c else {}), Cause(CONV, LIMIT, r"strides")
        ),
        "dense, relu before requantize": (
            lambda q, c: q.dense(q.rows(), **({"after_bias": relay.nn.relu} if c else {})),
            Cause("qnn.dense", EXTRA, r"nn\.relu"),
        ),
        "pool, padding": (lambda q, c: pool(q, padding=(1, 1) if c else (0, 0)), Cause(op, LIMIT, r"padding")),
        "pool, strides": (lambda q, c: pool(q, strides=(4, 4) if c else (2, 2)), Cause(op, LIMIT, r"strides")),
        "pool, layout": (lambda q, c: pool(q, layout="NCHW" if c else "NHWC"), Cause(op, LIMIT, r"layout|NCHW")),
        "pool of floats": (lambda q, c: pool(q, dtype="float32" if c else ""), Cause(op, TYPE, r"float32")),
        "pool, two images": (
            lambda q, c: relay.nn.max_pool2d(
                q.image(batch=2 if c else 1), pool_size=(2, 2), strides=(2, 2), layout="NHWC"
            ),
            Cause(op, (*TYPE, "shape"), r"batch|image"),
        ),
        "sum of 16 bits": (
            lambda q, c: q.add(*(q.image(n, dtype="int16" if c else "int8") for n in "ab")),
            Cause("qnn.add", TYPE, r"int16")
        ),
    }


def real_block(q: Quantized, **over: Any) -> Expr:
    """A convolution of floats, channels last."""
    dtype = over.get("dtype", "float32")
    x = relay.var("x", shape=(1, q.size, q.size, q.cin), dtype=dtype)
    weight = over.get("weight") or real(q.rng, 3, 3, q.cin, q.cout, dtype=dtype)
    y = relay.nn.conv2d(x, weight, kernel_size=(3, 3), channels=q.cout, data_layout="NHWC", kernel_layout="HWIO")
    return relay.nn.relu(
        relay.nn.bias_add(over.get("between", lambda v: v)(y), real(q.rng, q.cout, dtype=dtype), axis=3)
    )


def compute_library() -> Parts:
    conv, op = "nn.conv2d", "nn.max_pool2d"
    return {
        "float64": (lambda q, c: real_block(q, dtype="float64" if c else "float32"), Cause(conv, TYPE, r"float64")),
        "exp before the bias": (
            lambda q, c: real_block(q, **({"between": relay.exp} if c else {})),
            Cause("nn.bias_add", (*EXTRA, "unknown"), r"exp"),
        ),
        "weight is an input": (
            lambda q, c: real_block(q, **({"weight": relay.var("w", shape=(3, 3, q.cin, q.cout))} if c else {})),
            Cause(conv, CONSTANT, r"\bw\b"),
        ),
        "pool, channels first": (
            lambda q, c: pool(q, dtype="float32", layout="NCHW" if c else "NHWC"), Cause(op, LIMIT, r"layout|NCHW")
        ),
        "pool, dilation": (
            lambda q, c: pool(q, dtype="float32", dilation=(2, 2) if c else (1, 1)), Cause(op, LIMIT, r"dilation")
        ),
    }
