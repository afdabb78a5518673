"""The families of changed networks of each target, and two pattern tables of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from offload_blind import (
    CONSTANT,
    CONV,
    ESCAPE,
    EXTRA,
    LIMIT,
    TYPE,
    Case,
    Cause,
    Expr,
    Quantized,
    Rng,
    attrs,
    blocks,
    change_conv,
    change_dense,
    conv_families,
    family,
    scalar,
    scale,
    zero,
)
from tilewright import relay
from tilewright.relay.dataflow_pattern import is_constant, is_op, wildcard
from tilewright.relay.op.contrib import Refusal

Make = Callable[[Quantized, bool], Expr]


def x4(q: Quantized, dtype: str = "float32") -> relay.Var:
    """An image as the input of a network."""
    return relay.var("x", shape=(1, q.cin, q.size, q.size), dtype=dtype)


def declare() -> None:
    for target in ("npu", "ethos-n", "cmsis-nn"):
        conv_families(target)
    npu_families()
    ethos_families()
    cmsis_families()
    for target in ("bnns", "dnnl"):
        float_families(target)
    bnns_families()
    dnnl_families()
    edge_families()
    core_families()


def pool(q: Quantized, kind: str = "max", dtype: str = "", **over: Any) -> Expr:
    values = {"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC"} | over
    x = q.image(dtype=dtype or q.dtype)
    if kind == "max":
        return relay.nn.max_pool2d(x, **values)
    return relay.qnn.op.avg_pool2d(x, scale(0.05), zero(3), scale(0.05), zero(3), **values)


def no_bias(q: Quantized) -> dict[str, Any]:
    return {"bias": False}


def grouped(q: Quantized) -> dict[str, Any]:
    return {"attrs": {"groups": 2}}


def image(**over: Any) -> Callable[[Quantized], dict[str, Any]]:
    return lambda q: {"image": over}


def dense_weight(q: Quantized) -> dict[str, Any]:
    return {"weight": relay.var("w", shape=(q.cout, q.cin), dtype="int8")}


def dense_quantized(q: Quantized) -> dict[str, Any]:
    real = relay.const(q.rng.standard_normal((q.cout, q.cin)).astype("float32"))
    return {"weight": relay.qnn.op.quantize(real, scale(0.01), zero(0), out_dtype="int8", axis=0)}


def dense_families(target: str, clip: bool) -> None:
    op = "qnn.dense"
    for label, over, cause in (
        ("weight is an input", dense_weight, Cause(op, CONSTANT, r"\bw\b")),
        ("weight quantized in the graph", dense_quantized, Cause(op, CONSTANT, r"qnn\.quantize")),
        ("relu before requantize", lambda q: {"after_bias": relay.nn.relu}, Cause(op, EXTRA, r"nn\.relu")),
        ("scale is an input", scalar("sc", "float32", "out_scale", 0.07), Cause(op, CONSTANT, r"\bsc\b")),
        ("zero point is an input", scalar("zp", "int32", "in_zero", 3), Cause(op, CONSTANT, r"\bzp\b")),
    ):
        family(change_dense, f"{target}: dense, {label}", target, over, cause, True)


def npu_families() -> None:
    t = "npu"
    for label, over, cause, knobs in (
        ("strides", attrs(strides=(17, 17)), Cause(CONV, LIMIT, r"strides|\bs[hw]\b"), {"size": 40}),
        ("dilation", attrs(dilation=(8, 8)), Cause(CONV, LIMIT, r"dilation|\bd[hw]\b"), {"size": 20}),
        ("groups", grouped, Cause(CONV, LIMIT, r"groups", editable=False), {}),
        ("16 bits out", lambda q: {"out_dtype": "int16", "no_clip": True}, Cause(CONV, TYPE, r"int16"), {}),
        ("sums of 32 bits out", lambda q: {"out_dtype": "int32", "no_clip": True}, Cause(CONV, TYPE, r"int32"), {}),
        ("16 bits in", image(dtype="int16"), Cause(CONV, TYPE, r"int16"), {}),
        ("no bias", no_bias, Cause(CONV, ("missing",), r"bias_add"), {}),
    ):
        family(
            change_conv, f"npu: {label}", t, over, cause, label == "no bias" or "16" in label or "32" in label, knobs
        )
    dense_families(t, clip=True)
    family(change_dense, "npu: dense, no bias", t, no_bias, Cause("qnn.dense", ("missing",), r"bias_add"), True)
    parts: dict[str, tuple[Make, Cause, bool]] = {
        "pool of floats": (
            lambda q, c: pool(q, dtype="float32" if c else ""), Cause("nn.max_pool2d", TYPE, r"float32"), True
        ),
        "pool of 16 bits": (
            lambda q, c: pool(q, dtype="int16" if c else ""), Cause("nn.max_pool2d", TYPE, r"int16"), True
        ),
        "pool, layout": (
            lambda q, c: pool(q, layout="NCHW" if c else "NHWC"), Cause("nn.max_pool2d", LIMIT, r"NCHW|layout"), True
        ),
        "pool, dilation": (
            lambda q, c: pool(q, dilation=(2, 2) if c else (1, 1)), Cause("nn.max_pool2d", LIMIT, r"dilation"), True
        ),
        "sum, broadcast": (
            lambda q, c: q.add(
                q.image("a"), relay.var("b", shape=(1, 1, 1, q.cin) if c else (1, q.size, q.size, q.cin), dtype=q.dtype)
            ),
            Cause("qnn.add", (*TYPE, "shape"), r"shape|broadcast|size", editable=False),
            True,
        ),
        "sum, scale is an input": (
            lambda q, c: q.add(
                q.image("a"), q.image("b"), **({"a_scale": relay.var("sc", shape=(), dtype="float32")} if c else {})
            ),
            Cause("qnn.add", CONSTANT, r"\bsc\b"),
            True,
        ),
    }
    for label, (make, cause, rows) in parts.items():
        family(blocks, f"npu: {label}", t, make, cause, rows)


def ethos_families() -> None:
    t = "ethos-n"
    for label, over, cause, knobs in (
        ("strides", attrs(strides=(3, 3)), Cause(CONV, LIMIT, r"strides"), {}),
        ("dilation", attrs(dilation=(2, 2)), Cause(CONV, LIMIT, r"dilation"), {}),
        ("groups", grouped, Cause(CONV, LIMIT, r"groups", editable=False), {}),
        ("two images", image(batch=2), Cause(CONV, (*TYPE, "shape"), r"batch|image"), {}),
        ("16 bits out", lambda q: {"out_dtype": "int16"}, Cause(CONV, TYPE, r"int16"), {}),
        ("16 bits in", image(dtype="int16"), Cause(CONV, TYPE, r"int16"), {}),
        ("no bias", no_bias, Cause(CONV, ("missing",), r"bias_add"), {}),
    ):
        family(
            change_conv, f"ethos-n: {label}", t, lambda q, over=over: {"no_clip": True, **over(q)}, cause, True, knobs
        )
    dense_families(t, clip=False)
    parts: dict[str, tuple[Make, Cause]] = {
        "pool, size": (
            lambda q, c: pool(q, pool_size=(5, 5) if c else (2, 2)),
            Cause("nn.max_pool2d", LIMIT, r"pool_size|window|kernel|size|of \(5, 5\)(?! has strides)")
        ),
        "pool, strides": (
            lambda q, c: pool(q, strides=(3, 3) if c else (2, 2)), Cause("nn.max_pool2d", LIMIT, r"strides|size")
        ),
        "pool, layout": (
            lambda q, c: pool(q, layout="NCHW" if c else "NHWC"), Cause("nn.max_pool2d", LIMIT, r"NCHW|layout")
        ),
        "pool of floats": (
            lambda q, c: pool(q, dtype="float32" if c else ""), Cause("nn.max_pool2d", TYPE, r"float32")
        ),
        "sum, 16 bits": (
            lambda q, c: q.add(
                q.image("a", dtype="int16" if c else q.dtype), q.image("b", dtype="int16" if c else q.dtype)
            ),
            Cause("qnn.add", TYPE, r"int16"),
        ),
        "parts joined along images": (
            lambda q, c: relay.concatenate(relay.Tuple([q.image("a"), q.image("b")]), axis=0 if c else 3),
            Cause("concatenate", (*LIMIT, "shape"), r"axis|batch|image"),
        ),
        "blocks of three": (
            lambda q, c: relay.nn.depth_to_space(
                relay.var("x", shape=(1, 8, 8, 36), dtype=q.dtype), block_size=3 if c else 2, layout="NHWC"
            ),
            Cause("nn.depth_to_space", LIMIT, r"block"),
        ),
        "clip of floats": (
            lambda q, c: relay.clip(q.image(dtype="float32" if c else q.dtype), a_min=-3.0, a_max=6.0),
            Cause("clip", TYPE, r"float32")
        ),
    }
    for label, (make, cause) in parts.items():
        family(blocks, f"ethos-n: {label}", t, make, cause, True)


def softmax(q: Quantized, **over: Any) -> Expr:
    values: dict[str, Any] = {"axis": -1, "out": 1 / 256, "zero": -128, "dtype": "int8"} | over
    x = relay.var("x", shape=(1, 12), dtype=values["dtype"])
    y = relay.nn.softmax(relay.qnn.op.dequantize(x, scale(0.1), zero(3)), axis=values["axis"])
    return relay.qnn.op.quantize(y, scale(values["out"]), zero(values["zero"]), out_dtype="int8")


def cmsis_families() -> None:
    t = "cmsis-nn"
    for label, over, cause, knobs in (
        ("groups", grouped, Cause(CONV, LIMIT, r"groups", editable=False), {}),
        ("32 bits out", lambda q: {"out_dtype": "int32", "no_clip": True}, Cause(CONV, TYPE, r"int32"), {}),
        ("unsigned bytes in", image(dtype="uint8"), Cause(CONV, TYPE, r"uint8"), {}),
        ("unsigned bytes out", lambda q: {"out_dtype": "uint8", "no_clip": True}, Cause(CONV, TYPE, r"uint8"), {}),
        ("weight has a zero point", lambda q: {"weight_zero": zero(5)}, Cause(CONV, (*LIMIT, "value"), r"zero"), {}),
    ):
        family(change_conv, f"cmsis-nn: {label}", t, over, cause, True, knobs)
    dense_families(t, clip=True)
    parts: dict[str, tuple[Make, Cause]] = {
        "pool of unsigned bytes": (
            lambda q, c: pool(q, dtype="uint8" if c else ""), Cause("nn.max_pool2d", TYPE, r"uint8")
        ),
        "pool, layout": (
            lambda q, c: pool(q, layout="NCHW" if c else "NHWC"), Cause("nn.max_pool2d", LIMIT, r"NCHW|layout")
        ),
        "pool, two images": (
            lambda q, c: relay.nn.max_pool2d(
                q.image(batch=2 if c else 1), pool_size=(2, 2), strides=(2, 2), layout="NHWC"
            ),
            Cause("nn.max_pool2d", (*TYPE, "shape"), r"batch|image"),
        ),
        "softmax, scale": (
            lambda q, c: softmax(q, out=1 / 128 if c else 1 / 256), Cause("nn.softmax", (*LIMIT, "value"), r"scale")
        ),
        "softmax, zero point": (
            lambda q, c: softmax(q, zero=0 if c else -128), Cause("nn.softmax", (*LIMIT, "value"), r"zero|from -128")
        ),
        "softmax, axis": (lambda q, c: softmax(q, axis=0 if c else -1), Cause("nn.softmax", LIMIT, r"axis")),
        "sum of unsigned bytes": (
            lambda q, c: q.add(*(q.image(n, dtype="uint8" if c else "int8") for n in "ab")),
            Cause("qnn.add", TYPE, r"uint8"),
        ),
        "sum, scale is an input": (
            lambda q, c: q.add(
                q.image("a"), q.image("b"), **({"a_scale": relay.var("sc", shape=(), dtype="float32")} if c else {})
            ),
            Cause("qnn.add", CONSTANT, r"\bsc\b"),
        ),
    }
    for label, (make, cause) in parts.items():
        family(blocks, f"cmsis-nn: {label}", t, make, cause, True)


# ------------------------------------------------------------------ networks of floats


def real(rng: Rng, *shape: int, dtype: str = "float32") -> Expr:
    return relay.Constant(rng.standard_normal(shape).astype(dtype))


def block(q: Quantized, **over: Any) -> Expr:
    """A convolution with bias and activation, channels first."""
    dtype, groups = over.get("dtype", "float32"), over.get("attrs", {}).get("groups", 1)
    x = relay.var("x", shape=(1, q.cin, q.size, q.size), dtype=dtype)
    values = {"kernel_size": (3, 3), "channels": q.cout, "padding": (1, 1)} | over.get("attrs", {})
    weight = over.get("weight") or real(q.rng, q.cout, q.cin // groups, 3, 3, dtype=dtype)
    y = over.get("after_conv", lambda v: v)(relay.nn.conv2d(x, weight, **values))
    y = over.get("after_bias", lambda v: v)(relay.nn.bias_add(y, real(q.rng, q.cout, dtype=dtype)))
    return over.get("act", relay.nn.relu)(y)


def float_variable(q: Quantized) -> Expr:
    return relay.var("w", shape=(q.cout, q.cin, 3, 3))


def computed_weight(q: Quantized) -> Expr:
    return relay.multiply(real(q.rng, q.cout, q.cin, 3, 3), real(q.rng, q.cout, 1, 1, 1))


def product(q: Quantized, **over: Any) -> Expr:
    dtype = over.get("dtype", "float32")
    x = relay.var("x", shape=(4, q.cin), dtype=dtype)
    y = relay.nn.dense(x, over.get("weight") or real(q.rng, q.cout, q.cin, dtype=dtype), units=q.cout)
    return relay.nn.bias_add(over.get("after", lambda v: v)(y), real(q.rng, q.cout, dtype=dtype))


def float_families(target: str) -> None:
    conv = "nn.conv2d"
    parts: dict[str, tuple[Make, Cause]] = {
        "weight is an input": (
            lambda q, c: block(q, **({"weight": float_variable(q)} if c else {})), Cause(conv, CONSTANT, r"\bw\b")
        ),
        "weight computed in the graph": (
            lambda q, c: block(q, **({"weight": computed_weight(q)} if c else {})), Cause(conv, CONSTANT, r"multiply")
        ),
        "float64": (lambda q, c: block(q, dtype="float64" if c else "float32"), Cause(conv, TYPE, r"float64")),
        "product, float64": (
            lambda q, c: product(q, dtype="float64" if c else "float32"), Cause("nn.dense", TYPE, r"float64")
        ),
        "product, weight is an input": (
            lambda q, c: product(q, **({"weight": relay.var("w", shape=(q.cout, q.cin))} if c else {})),
            Cause("nn.dense", CONSTANT, r"\bw\b"),
        ),
        "pool, float64": (
            lambda q, c: relay.nn.max_pool2d(
                relay.var("x", shape=(1, q.cin, q.size, q.size), dtype="float64" if c else "float32"), pool_size=(2, 2),
                strides=(2, 2)
            ),
            Cause("nn.max_pool2d", TYPE, r"float64"),
        ),
    }
    for label, (make, cause) in parts.items():
        family(blocks, f"{target}: {label}", target, make, cause, True)


def bnns_families() -> None:
    conv, t = "nn.conv2d", "bnns"
    parts: dict[str, tuple[Make, Cause]] = {
        "groups": (
            lambda q, c: block(q, attrs={"groups": 2} if c else {}), Cause(conv, LIMIT, r"groups", editable=False)
        ),
        "cast between": (
            lambda q, c: block(q, **({"after_bias": relay.abs} if c else {})),
            Cause("nn.relu", (*EXTRA, "unknown"), r"abs"),
        ),
        "tanh in place of relu": (
            lambda q, c: block(q, act=relay.tanh if c else relay.nn.relu),
            Cause("tanh", ("operator", "unknown"), r"tanh", editable=False)
        ),
        "softmax after all": (
            lambda q, c: relay.nn.softmax(block(q), axis=1) if c else block(q),
            Cause("nn.softmax", ("unknown",), r"softmax", editable=False)
        ),
        "pool, channels last": (
            lambda q, c: relay.nn.max_pool2d(x4(q), pool_size=(2, 2), strides=(2, 2), layout="NHWC" if c else "NCHW"),
            Cause("nn.max_pool2d", LIMIT, r"layout|NHWC"),
        ),
        "convolution, channels last": (
            lambda q, c: relay.nn.conv2d(
                relay.var("x", shape=(1, 8, 8, q.cin)), real(q.rng, 3, 3, q.cin, 8), kernel_size=(3, 3), channels=8,
                data_layout="NHWC", kernel_layout="HWIO"
            )
            if c
            else relay.nn.conv2d(x4(q), real(q.rng, 8, q.cin, 3, 3), kernel_size=(3, 3), channels=8),
            Cause(conv, LIMIT, r"layout|NHWC"),
        ),
    }
    for label, (make, cause) in parts.items():
        family(blocks, f"{t}: {label}", t, make, cause, True)


def dnnl_families() -> None:
    t = "dnnl"
    parts: dict[str, tuple[Make, Cause]] = {
        "softmax, float64": (
            lambda q, c: relay.nn.softmax(relay.var("x", shape=(4, q.cin), dtype="float64" if c else "float32")),
            Cause("nn.softmax", TYPE, r"float64")
        ),
        "parts of int32": (
            lambda q, c: relay.concatenate(
                relay.Tuple([relay.var(n, shape=(4, q.cin), dtype="int32" if c else "float32") for n in "ab"]), axis=1
            ),
            Cause("concatenate", TYPE, r"int32"),
        ),
        "relu of int32": (
            lambda q, c: relay.nn.relu(relay.var("x", shape=(4, q.cin), dtype="int32" if c else "float32")),
            Cause("nn.relu", TYPE, r"int32")
        ),
        "erf after all": (
            lambda q, c: relay.erf(block(q)) if c else block(q),
            Cause("erf", ("unknown", "missing", "other", "operator"), r"erf|none", editable=False)
        ),
        "layer norm, its scale an input": (
            lambda q, c: relay.nn.layer_norm(
                relay.var("x", shape=(4, q.cin)), relay.var("gamma", shape=(q.cin,)) if c else real(q.rng, q.cin),
                real(q.rng, q.cin)
            ),
            Cause("nn.layer_norm", CONSTANT, r"gamma"),
        ),
        "layer norm, axis": (
            lambda q, c: relay.nn.layer_norm(
                relay.var("x", shape=(q.cin, q.cin)), real(q.rng, q.cin), real(q.rng, q.cin), axis=0 if c else -1
            ),
            Cause("nn.layer_norm", LIMIT, r"axis"),
        ),
    }
    for label, (make, cause) in parts.items():
        family(blocks, f"{t}: {label}", t, make, cause, True)


# ------------------------------------------------------------------ two tables of the test's own


def eighths(root: Any) -> Any:
    conv = root
    while conv.op.name != "nn.conv2d":
        conv = conv.args[0]
    channels = conv.checked_type.shape[1]
    return True if channels % 8 == 0 else Refusal(
        f"channels come in eights, and there are {channels}", "make it a multiple of eight"
    )


def untransposed(call: Any) -> Any:
    """The same attention without the flag of its product, of a transposed operand."""
    product, by = call.args[0].args
    product = relay.nn.batch_matmul(
        relay.transpose(product.args[0], axes=[0, 2, 1]), product.args[1], transpose_a=False, transpose_b=True
    )
    return relay.nn.softmax(relay.divide(product, by), axis=-1)


def product_check(call: Any) -> Any:
    if call.args[0].args[0].op.transpose_a:
        return Refusal("transpose_a has to be false", "transpose before", untransposed)
    return True


def edge_table() -> list[tuple[Any, ...]]:
    conv = is_op("nn.conv2d")(wildcard(), is_constant()).has_attr(
        {"dilation": (1, 1), "groups": 1, "data_layout": "NCHW"}
    )
    biased = is_op("nn.bias_add")(conv, is_constant())
    act = is_op("nn.relu")(biased) | is_op("sigmoid")(biased) | is_op("clip")(biased)
    return [
        ("edge.block", act, eighths),
        ("edge.pool", is_op("nn.max_pool2d")(wildcard().has_dtype("float32")).has_attr({"ceil_mode": False})),
        ("edge.flat", is_op("nn.batch_flatten")(wildcard()).has_shape((1, 128))),
    ]


def core_table() -> list[tuple[Any, ...]]:
    product = is_op("nn.batch_matmul")(wildcard(), wildcard())
    scaled = is_op("multiply")(wildcard(), is_constant()).optional(lambda p: is_op("add")(p, is_constant()))
    return [
        (
            "core.attention", is_op("nn.softmax")(is_op("divide")(product, is_constant())).has_attr({"axis": -1}),
            product_check
        ),
        ("core.norm", is_op("nn.relu")(scaled)),
        ("core.join", is_op("concatenate")(wildcard()).has_attr({"axis": 1})),
    ]


def own(name: str, rng: Rng, target: str, table: Callable[[], Any], make: Make, cause: Cause) -> Case:
    case = blocks(name, rng, target, make, cause)
    return Case(name, target, case.base, case.changed, cause, {target: table()})


def squashed(q: Quantized, **over: Any) -> Expr:
    widths = {"cout": over.pop("cout", q.cout)}
    act = [relay.nn.relu, relay.sigmoid, lambda y: relay.clip(y, a_min=0.0, a_max=6.0)][int(q.rng.integers(3))]
    values = {"act": act} | over
    return block(Quantized(q.rng, size=q.size, cin=q.cin, **widths), **values)


def escaped(q: Quantized) -> Expr:
    kept: list[Expr] = []

    def keep(biased: Expr) -> Expr:
        kept.append(biased)
        return biased

    y = squashed(q, after_bias=keep)
    return relay.Tuple([y, kept[0]])


def attention(
    q: Quantized, axis: int = -1, flag: bool = False, between: Callable[[Expr], Expr] = lambda v: v,
    by: Expr | None = None
) -> Expr:
    n = q.cin
    a, b = (relay.var(v, shape=(2, n, n)) for v in "ab")
    y = between(relay.nn.batch_matmul(a, b, transpose_a=flag, transpose_b=True))
    return relay.nn.softmax(relay.divide(y, by or relay.const(np.float32(8))), axis=axis)


def norm(
    q: Quantized, factor: Expr | None = None, shift: bool = True, act: Callable[[Expr], Expr] = relay.nn.relu,
    between: Callable[[Expr], Expr] = lambda v: v
) -> Expr:
    y = relay.multiply(relay.var("x", shape=(2, q.cin)), factor or real(q.rng, q.cin))
    y = relay.add(y, real(q.rng, q.cin)) if shift else y
    return act(between(y))


def joined(q: Quantized, axis: int) -> Expr:
    return relay.concatenate(relay.Tuple([relay.var(v, shape=(2, q.cin, q.cin)) for v in "ab"]), axis=axis)


def edge_families() -> None:
    conv = "nn.conv2d"
    parts: dict[str, tuple[Make, Cause]] = {
        "dilation": (
            lambda q, c: squashed(q, attrs={"dilation": (2, 2)} if c else {}), Cause(conv, LIMIT, r"dilation")
        ),
        "groups": (
            lambda q, c: squashed(q, attrs={"groups": 2} if c else {}), Cause(conv, LIMIT, r"groups", editable=False)
        ),
        "twelve channels": (
            lambda q, c: squashed(q, cout=12 if c else 16), Cause(conv, LIMIT, r"eights", editable=False)
        ),
        "weight is an input": (
            lambda q, c: squashed(q, **({"weight": float_variable(q)} if c else {})), Cause(conv, CONSTANT, r"\bw\b")
        ),
        "weight computed in the graph": (
            lambda q, c: squashed(q, **({"weight": computed_weight(q)} if c else {})),
            Cause(conv, CONSTANT, r"multiply")
        ),
        "tanh": (
            lambda q, c: squashed(q, **({"act": relay.tanh} if c else {})),
            Cause("tanh", ("operator",), r"tanh", saved=conv)
        ),
        "no activation": (
            lambda q, c: squashed(q, **({"act": lambda v: v} if c else {})),
            Cause(conv, ("missing",), r"relu|sigmoid|clip")
        ),
        "exp before the bias": (
            lambda q, c: squashed(q, **({"after_conv": relay.exp} if c else {})), Cause(conv, EXTRA, r"exp")
        ),
        "exp after the bias": (
            lambda q, c: squashed(q, **({"after_bias": relay.exp} if c else {})), Cause(conv, EXTRA, r"exp")
        ),
        "biased sums used outside": (lambda q, c: escaped(q) if c else squashed(q), Cause(conv, ESCAPE, r"bias_add")),
        "pool of float16": (
            lambda q, c: relay.nn.max_pool2d(x4(q, "float16" if c else "float32"), pool_size=(2, 2)),
            Cause("nn.max_pool2d", TYPE, r"float16")
        ),
        "pool rounds up": (
            lambda q, c: relay.nn.max_pool2d(x4(q), pool_size=(2, 2), ceil_mode=c),
            Cause("nn.max_pool2d", LIMIT, r"ceil_mode")
        ),
        "another shape": (
            lambda q, c: relay.nn.batch_flatten(relay.var("x", shape=(1, 2, 8, 10 if c else 8))),
            Cause("nn.batch_flatten", ("shape", "type"), r"160", editable=False),
        ),
    }
    for label, (make, cause) in parts.items():
        family(own, f"edge: {label}", "edge", edge_table, make, cause)


def core_families() -> None:
    soft, mul = "nn.softmax", "multiply"
    parts: dict[str, tuple[Make, Cause]] = {
        "axis of softmax": (lambda q, c: attention(q, axis=1 if c else -1), Cause(soft, LIMIT, r"axis")),
        "a transposed operand": (lambda q, c: attention(q, flag=c), Cause("nn.batch_matmul", LIMIT, r"transpose_a")),
        "relu between": (
            lambda q, c: attention(q, between=relay.nn.relu if c else lambda v: v),
            Cause("nn.batch_matmul", EXTRA, r"nn\.relu")
        ),
        "cast between": (
            lambda q, c: attention(
                q, between=(lambda v: relay.cast(relay.cast(v, dtype="float16"), dtype="float32")) if c else lambda v: v
            ),
            Cause("nn.batch_matmul", EXTRA, r"cast"),
        ),
        "transpose between": (
            lambda q, c: attention(q, between=(lambda v: relay.transpose(v, axes=[0, 2, 1])) if c else lambda v: v),
            Cause("nn.batch_matmul", EXTRA, r"transpose")
        ),
        "divided by an input": (
            lambda q, c: attention(q, by=relay.var("d", shape=()) if c else None), Cause("divide", CONSTANT, r"\bd\b")
        ),
        "factor is an input": (
            lambda q, c: norm(q, factor=relay.var("f", shape=(q.cin,)) if c else None), Cause(mul, CONSTANT, r"\bf\b")
        ),
        "other activation": (
            lambda q, c: norm(q, shift=bool(q.cin % 8), act=relay.tanh if c else relay.nn.relu),
            Cause("tanh", ("operator",), r"tanh", saved=mul)
        ),
        "exp between": (
            lambda q, c: norm(q, shift=bool(q.cin % 8), between=relay.exp if c else lambda v: v),
            Cause(mul, EXTRA, r"exp")
        ),
        "axis of joining": (lambda q, c: joined(q, 2 if c else 1), Cause("concatenate", LIMIT, r"axis")),
    }
    for label, (make, cause) in parts.items():
        family(own, f"core: {label}", "core", core_table, make, cause)
