"""Networks that an accelerator takes whole, each with one thing changed: what stays on the CPU then has a cause that is
known.

`cases()` makes them: chains of blocks, each of which one row of a pattern table takes, with the changed block first,
between or last. A case says which operator stays behind (by the name of its origin), the kind of the reason, and words
that the reason has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilewright import relay
from tilewright.base.errors import Origin
from tilewright.ir import IRModule
from tilewright.relay.dataflow_pattern import is_constant, is_expr, is_op, is_tuple_get_item, is_var, wildcard
from tilewright.relay.offload import Kind
from tilewright.relay.op.contrib import Refusal
from tilewright.relay.op.registry import get

Expr = Any
Rows = list[tuple[Any, ...]]
Block = Callable[["Net", Expr, str], Expr]
CHANNELS = 8


@dataclass(frozen=True)
class Case:
    """One mutated network, and what is known of it."""

    name: str
    mod: IRModule
    table: Rows
    node: str
    kind: Kind
    words: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    mends: bool = True
    """Whether there is an edit that brings the operator to the accelerator."""


class Net:
    """A network while it is built: its inputs, the values of those that are weights, and results beside the last
    value."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.params: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.beside: list[Expr] = []

    def input(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Expr:
        self.inputs.append(relay.var(name, shape=shape, dtype=dtype))
        return self.inputs[-1]

    def array(self, *shape: int, dtype: str = "float32") -> Any:
        return self.rng.integers(-9, 9, shape).astype(dtype)

    def constant(self, *shape: int, dtype: str = "float32") -> Expr:
        return relay.Constant(self.array(*shape, dtype=dtype))

    def seen(self, value: Expr) -> Expr:
        """Make `value` a result of the program too, and return it."""
        self.beside.append(value)
        return value

    def weight(self, name: str, *shape: int, dtype: str = "float32") -> Expr:
        """A weight that is an input of the program."""
        self.params[name] = self.array(*shape, dtype=dtype)
        return self.input(name, shape, dtype)

    def module(self, last: Expr) -> IRModule:
        body = last if not self.beside else relay.Tuple([last, *self.beside])
        return IRModule.from_expr(relay.Function(self.inputs, body))


def call(name: str, *args: Expr, origin: str = "", **attrs: Any) -> Expr:
    return get(name)(**attrs)(*args, span=Origin(origin or f"{name}@"))


def channels(x: Expr) -> int:
    return int(x.checked_type.shape[1])


# --- an accelerator of real numbers
# -----------------------------------------------------------------------------------------
def small_window(match: Expr) -> Any:
    size = match.op.pool_size
    if max(size) <= 3:
        return True
    return Refusal(
        "windows are at most 3 by 3", "make the window 3 by 3",
        lambda e: call("nn.max_pool2d", e.args[0], origin=e.span.name, **{**e.op.attributes(), "pool_size": (3, 3)})
    )


def small_steps(match: Expr) -> bool:
    return max(match.op.strides) <= 1 and not match.op.ceil_mode


def not_exclusive(match: Expr) -> Any:
    return True if match.op.block_size == 2 else Refusal("blocks are 2 by 2")


def real_table() -> Rows:
    conv = is_op("nn.conv2d")(wildcard(), is_constant()).has_attr(
        {"dilation": (1, 1), "data_layout": "NCHW", "strides": (1, 1)}
    )
    biased = is_op("nn.bias_add")(conv, is_constant())
    dense = is_op("nn.dense")(wildcard().has_dtype("float32"), is_constant().has_dtype("float32"))
    x = wildcard()
    doubled = is_op("multiply")(wildcard(), is_expr(relay.const(np.float32(2))))
    masked = is_op("maximum")(wildcard(), is_var("mask"))
    field = is_op("tanh")(is_tuple_get_item(is_op("split")(wildcard()), 0))
    fixed = is_op("exp")(wildcard().has_shape((1, CHANNELS, 12, 12)))
    typed = is_op("log")(wildcard().has_type(relay.TensorType((1, CHANNELS, 12, 12), "float32")))
    line = is_op("nn.bias_add")(is_op("nn.conv1d")(wildcard(), is_constant()).has_dtype("float32"), is_constant())
    leaky = is_op("nn.leaky_relu")(
        is_op("nn.batch_flatten")(wildcard()).has_shape((1, CHANNELS * 144))
    ).has_attr({"alpha": 0.125})
    return [
        ("npu.conv2d", is_op("nn.relu")(biased)),
        ("npu.dense", is_op("add")(dense, is_constant().has_dtype("float32"))),
        ("npu.max_pool", is_op("nn.max_pool2d")(wildcard()), small_window),
        ("npu.avg_pool", is_op("nn.avg_pool2d")(wildcard()), small_steps),
        ("npu.blocks", is_op("nn.space_to_depth")(wildcard()), not_exclusive),
        ("npu.swish", is_op("divide")(x, is_op("sigmoid")(x))),
        ("npu.doubled", doubled), ("npu.masked", masked), ("npu.field", field), ("npu.fixed", fixed),
        ("npu.typed", typed), ("npu.leaky", leaky), ("npu.line", line),
        (
            "npu.sum",
            is_op("clip")(is_op("subtract")(wildcard(), wildcard()) | is_op("minimum")(wildcard(), wildcard()))
        ),
    ]


def conv_block(
    net: Net, x: Expr, n: str, weight: Expr = None, bias: Any = None, between: Callable[[Expr], Expr] | None = None,
    after: Callable[[Expr], Expr] | None = None, last: str | None = "nn.relu", seen: int = 0, **attrs: Any,
) -> Expr:
    c = channels(x)
    w = net.constant(c, c, 3, 3) if weight is None else weight(net, (c, c, 3, 3))
    y = call("nn.conv2d", x, w, origin=f"conv{n}", **{"padding": (1, 1), "channels": c, "kernel_size": (3, 3), **attrs})
    net.beside += [y] if seen == 1 else []
    y = y if between is None else between(y)
    y = y if bias is False else call(
        "nn.bias_add", y, net.constant(c) if bias is None else bias(net, (c,)), origin=f"bias{n}"
    )
    net.beside += [y] if seen == 2 else []
    y = y if after is None else after(y)
    return y if last is None else call(last, y, origin=f"relu{n}", **({"alpha": 0.1} if "leaky" in last else {}))


def transposed_conv_block(net: Net, x: Expr, n: str) -> Expr:
    """The same with channels last."""
    c = channels(x)
    y = call("transpose", x, axes=(0, 2, 3, 1))
    y = call(
        "nn.conv2d", y, net.constant(3, 3, c, c), origin=f"conv{n}", padding=(1, 1), channels=c, kernel_size=(3, 3),
        data_layout="NHWC", kernel_layout="HWIO"
    )
    y = call("nn.bias_add", y, net.constant(c), axis=3)
    return call("transpose", call("nn.relu", y), axes=(0, 3, 1, 2))


def dense_block(net: Net, x: Expr, n: str, dtype: str = "float32", weight: Any = None, bias: bool = True) -> Expr:
    flat = call("nn.batch_flatten", x)
    flat = flat if dtype == "float32" else call("cast", flat, dtype=dtype)
    flat = flat if dtype == "float32" else call("abs", flat)
    size = int(flat.checked_type.shape[1])
    w = net.constant(4, size, dtype=dtype) if weight is None else weight(net, (4, size))
    y = call("nn.dense", flat, w, origin=f"dense{n}")
    return call("add", y, net.constant(4, dtype=dtype), origin=f"add{n}") if bias else y


def constants_multiplied(net: Net, shape: tuple[int, ...]) -> Expr:
    return call("multiply", net.constant(*shape), relay.const(np.float32(0.5)))


def as_input(name: str) -> Callable[[Net, tuple[int, ...]], Expr]:
    return lambda net, shape: net.weight(name, *shape)


def between(name: str, **attrs: Any) -> Callable[[Expr], Expr]:
    def put(y: Expr) -> Expr:
        made = call(name, y, origin="between", **attrs)
        return made[0] if name == "nn.dropout" else made

    return put


def conv_mutations() -> Iterator[tuple[str, Block, str, Kind, tuple[str, ...]]]:
    """`(name, block, operator, kind, words)` of mutations of the block of a convolution."""
    for attribute, value in (("dilation", (2, 2)), ("strides", (2, 2)), ("strides", (3, 3)), ("dilation", (1, 2))):
        changed: dict[str, Any] = {attribute: value}
        yield f"{attribute}{value}", partial(conv_block, **changed), "conv", Kind.ATTRIBUTE, (
            attribute, str(value), "(1, 1)"
        )
    yield "weights_input", lambda net, x, n: conv_block(
        net, x, n, weight=as_input(f"w{n}")
    ), "conv", Kind.CONSTANT, ("%w", "nn.conv2d[1]")
    yield "bias_input", lambda net, x, n: conv_block(
        net, x, n, bias=as_input(f"b{n}")
    ), "conv", Kind.CONSTANT, ("%b", "nn.bias_add[1]")
    yield "weights_computed", lambda net, x, n: conv_block(
        net, x, n, weight=constants_multiplied
    ), "conv", Kind.CONSTANT, ("multiply", "nn.conv2d[1]", "FoldConstant")
    yield "bias_computed", lambda net, x, n: conv_block(net, x, n, bias=constants_multiplied), "bias", Kind.CONSTANT, (
        "multiply", "nn.bias_add[1]", "FoldConstant"
    )
    yield "no_bias", lambda net, x, n: conv_block(net, x, n, bias=False), "conv", Kind.MISSING, ("nn.bias_add",)
    yield "no_relu", lambda net, x, n: conv_block(net, x, n, last=None), "conv", Kind.MISSING, ("nn.relu",)
    for name in ("nn.dropout", "negative", "copy", "abs"):
        yield f"{name}_between", partial(conv_block, between=between(name)), "conv", Kind.EXTRA, (
            name, "nn.conv2d directly"
        )
        yield f"{name}_after", partial(conv_block, after=between(name)), "bias", Kind.EXTRA, (
            name, "nn.bias_add directly"
        )
    for name in ("nn.leaky_relu", "negative", "sigmoid", "erf"):
        yield f"{name}_for_relu", partial(conv_block, last=name), "conv", Kind.OPERATOR, ("nn.relu", name)
    yield "conv_seen", lambda net, x, n: conv_block(net, x, n, seen=1), "conv", Kind.ESCAPE, ("nn.conv2d", "outside")
    yield "bias_seen", lambda net, x, n: conv_block(net, x, n, seen=2), "bias", Kind.ESCAPE, ("nn.bias_add", "outside")
    yield "channels_last", transposed_conv_block, "conv", Kind.ATTRIBUTE, ("data_layout", "NHWC", "ConvertLayout")


def one_call(operator: str, **attrs: Any) -> Block:
    """The block of one call of `operator`, whose origin is `op` and the block's number."""
    return lambda net, x, n: call(operator, x, origin=f"op{n}", **attrs)


def other_mutations() -> Iterator[tuple[str, Block, str, Kind, tuple[str, ...], bool]]:
    """The same of the other rows; the last says whether there is an edit."""
    pool: dict[str, Any] = {"pool_size": (2, 2), "strides": (1, 1)}
    for size in ((4, 4), (5, 3), (4, 2)):
        yield f"pool{size}", one_call("nn.max_pool2d", **{**pool, "pool_size": size}), "op", Kind.CHECK, (
            "at most 3 by 3", "make the window"
        ), True
    for step in ((2, 2), (3, 3), (2, 1)):
        yield f"steps{step}", one_call("nn.avg_pool2d", **{**pool, "strides": step}), "op", Kind.CHECK, (
            "small_steps", "rejects it", "strides = (1, 1)"
        ), True
    yield "ceil", one_call("nn.avg_pool2d", **pool, ceil_mode=True), "op", Kind.CHECK, (
        "small_steps", "ceil_mode = False"
    ), True
    yield "blocks", lambda net, x, n: call(
        "nn.batch_flatten", call("nn.space_to_depth", x, origin=f"op{n}", block_size=4)
    ), "op", Kind.CHECK, ("2 by 2", "block_size = 2"), True
    yield "two_values", lambda net, x, n: call(
        "divide", x, call("sigmoid", call("abs", x)), origin=f"op{n}"
    ), "op", Kind.SAME, ("abs",), True
    yield "equal_values", lambda net, x, n: call(
        "divide", call("abs", x), call("sigmoid", call("abs", x)), origin=f"op{n}"
    ), "op", Kind.SAME, ("abs", "once"), True
    yield "other_number", lambda net, x, n: call(
        "multiply", x, relay.const(np.float32(3)), origin=f"op{n}"
    ), "op", Kind.VALUE, ("2.0", "3.0"), True
    yield "mask_constant", lambda net, x, n: call(
        "maximum", x, net.constant(1), origin=f"op{n}"
    ), "op", Kind.VARIABLE, ("%mask", "a constant"), True
    yield "mask_named", lambda net, x, n: call(
        "maximum", x, net.input("cover", (1,)), origin=f"op{n}"
    ), "op", Kind.VARIABLE, ("%mask", "%cover"), True
    yield "second_field", lambda net, x, n: call(
        "tanh", call("split", x, indices_or_sections=2, axis=2)[1], origin=f"op{n}"
    ), "op", Kind.INDEX, ("field 0", "field 1"), True
    yield "dtype", lambda net, x, n: dense_block(
        net, x, n, "float16"
    ), "dense", Kind.DTYPE, ("float32", "float16"), True
    yield "dense_weights", lambda net, x, n: dense_block(
        net, x, n, weight=as_input(f"w{n}")
    ), "dense", Kind.CONSTANT, ("%w", "nn.dense[1]"), True
    yield "dense_computed", lambda net, x, n: dense_block(
        net, x, n, weight=constants_multiplied
    ), "add", Kind.CONSTANT, ("multiply", "FoldConstant"), True
    yield "dense_alone", lambda net, x, n: dense_block(net, x, n, bias=False), "dense", Kind.MISSING, ("add",), True
    yield "dtype_of_a_result", half_conv, "op", Kind.DTYPE, ("float32", "float16"), True
    yield "batch", lambda net, x, n: call(
        "exp", call("negative", net.input("y", (2, CHANNELS, 12, 12))), origin=f"op{n}"
    ), "op", Kind.SHAPE, ("batch of 1", "%y"), True
    yield "between_fields", lambda net, x, n: call(
        "tanh", call("negative", call("split", x, indices_or_sections=2, axis=2)[0]), origin=f"op{n}"
    ), "op", Kind.EXTRA, ("negative",), True
    yield "shape", lambda net, x, n: call(
        "exp", net.input("y", (2, CHANNELS, 12, 12)), origin=f"op{n}"
    ), "op", Kind.SHAPE, ("(1, 8, 12, 12)", "(2, 8, 12, 12)", "%y"), True
    yield "reshaped", lambda net, x, n: call(
        "exp", call("reshape", x, newshape=(1, CHANNELS, 144)), origin=f"op{n}"
    ), "op", Kind.SHAPE, ("(1, 8, 144)", "reshape"), True
    yield "type", lambda net, x, n: call(
        "log", net.input("y", (1, CHANNELS, 12, 12), "float16"), origin=f"op{n}"
    ), "op", Kind.TYPE, ("float32", "float16", "%y"), True
    for slope in (0.01, 0.3):
        yield f"alpha{slope}", partial(flat_leaky_relu, alpha=slope), "op", Kind.ATTRIBUTE, ("alpha", "0.125"), True
    yield "unknown", one_call("nn.softmax"), "op", Kind.UNKNOWN, ("nn.softmax", "no row"), False
    for name in ("subtract", "minimum"):
        yield f"{name}_alone", partial(sum_alone, name=name), "op", Kind.MISSING, ("clip",), True
        yield f"{name}_negative", partial(negative_sum, name=name), "op", Kind.EXTRA, ("negative", name), True
        yield f"{name}_seen", partial(seen_sum, name=name), "op", Kind.ESCAPE, (name, "outside"), True
    yield "another_sum", lambda net, x, n: call(
        "clip", call("maximum", x, net.constant(1)), origin=f"op{n}", a_min=0.0, a_max=6.0
    ), "op", Kind.MISSING, ("subtract",), True


def half_conv(net: Net, x: Expr, n: str) -> Expr:
    """A convolution in 16 bits, of which only the result has to be in 32."""
    x = call("abs", call("cast", x, dtype="float16"))
    y = call(
        "nn.conv1d", call("reshape", x, newshape=(1, CHANNELS, -1)),
        net.constant(CHANNELS, CHANNELS, 3, dtype="float16"), origin=f"op{n}", kernel_size=3, channels=CHANNELS
    )
    return call("nn.bias_add", y, net.constant(CHANNELS, dtype="float16"))


def flat_leaky_relu(net: Net, x: Expr, n: str, alpha: float) -> Expr:
    return call("nn.leaky_relu", call("nn.batch_flatten", x), origin=f"op{n}", alpha=alpha)


def sum_alone(net: Net, x: Expr, n: str, name: str) -> Expr:
    return call(name, x, call("abs", x), origin=f"op{n}")


def negative_sum(net: Net, x: Expr, n: str, name: str) -> Expr:
    return call("clip", call("negative", sum_alone(net, x, n, name)), a_min=0.0, a_max=6.0)


def seen_sum(net: Net, x: Expr, n: str, name: str) -> Expr:
    y = sum_alone(net, x, n, name)
    net.beside.append(y)
    return call("clip", y, a_min=0.0, a_max=6.0)


# --- an accelerator of quantized numbers
# ------------------------------------------------------------------------------------
def scale(value: float) -> Expr:
    return relay.const(np.float32(value))


def zero(value: int) -> Expr:
    return relay.const(np.int32(value))


def quantized_table() -> Rows:
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    conv = is_op("qnn.conv2d")(data, *(is_constant() for _ in range(5))).has_attr({"dilation": (1, 1)})
    dense = is_op("qnn.dense")(wildcard(), *(is_constant() for _ in range(5)))
    scaled = [
        is_op("qnn.requantize")(
            is_op("nn.bias_add")(p, is_constant()), *(is_constant() for _ in range(4))
        ).has_dtype("int8") for p in (conv, dense)
    ]
    return [
        ("npu.conv2d", scaled[0], lambda e: max(e.args[0].args[0].op.strides) <= 2),
        ("npu.dense", scaled[1]),
        ("npu.add", is_op("qnn.add")(wildcard(), wildcard(), *(is_constant() for _ in range(6)))),
    ]


def quantized_conv(
    net: Net, x: Expr, n: str, weight: Any = None, bias: Any = None, between: Callable[[Expr], Expr] | None = None,
    after: Callable[[Expr], Expr] | None = None, out: str = "int8", last: bool = True, seen: int = 0,
    zero_point: Any = None, **attrs: Any,
) -> Expr:
    c = channels(x)
    padded = call("nn.pad", x, relay.const(np.int8(3)), pad_width=((0, 0), (0, 0), (1, 1), (1, 1)), origin=f"pad{n}")
    w = net.constant(c, c, 3, 3, dtype="int8") if weight is None else weight(net, (c, c, 3, 3))
    given = zero(3) if zero_point is None else zero_point(net, ())
    y = call(
        "qnn.conv2d", padded, w, given, zero(0), scale(0.1), scale(0.02), origin=f"conv{n}",
        **{"channels": c, "kernel_size": (3, 3), **attrs}
    )
    net.beside += [y] if seen == 1 else []
    y = y if between is None else between(y)
    y = y if bias is False else call(
        "nn.bias_add", y, net.constant(c, dtype="int32") if bias is None else bias(net, (c,)), origin=f"bias{n}"
    )
    net.beside += [y] if seen == 2 else []
    y = y if after is None else after(y)
    return call(
        "qnn.requantize", y, scale(0.002), zero(0), scale(0.1), zero(3), axis=1, out_dtype=out, origin=f"scale{n}"
    ) if last else y


def quantized_here(dtype: str) -> Callable[[Net, tuple[int, ...]], Expr]:
    """Weights that the graph quantizes."""
    return lambda net, shape: call("qnn.quantize", net.constant(*shape), scale(0.02), zero(0), out_dtype=dtype, axis=0)


def integers_input(name: str, dtype: str) -> Callable[[Net, tuple[int, ...]], Expr]:
    return lambda net, shape: net.weight(name, *shape, dtype=dtype)


def quantized_mutations() -> Iterator[tuple[str, Block, str, Kind, tuple[str, ...]]]:
    q = quantized_conv
    yield "weights_quantized", lambda net, x, n: q(net, x, n, weight=quantized_here("int8")), "conv", Kind.CONSTANT, (
        "qnn.quantize", "qnn.conv2d[1]", "fold_qnn"
    )
    yield "bias_quantized", lambda net, x, n: q(net, x, n, bias=quantized_here("int32")), "conv", Kind.CONSTANT, (
        "qnn.quantize", "nn.bias_add[1]", "fold_qnn"
    )
    yield "both_quantized", lambda net, x, n: q(
        net, x, n, quantized_here("int8"), quantized_here("int32")
    ), "scale", Kind.CONSTANT, ("qnn.quantize", "fold_qnn")
    yield "weights_input", lambda net, x, n: q(
        net, x, n, weight=integers_input(f"w{n}", "int8")
    ), "conv", Kind.CONSTANT, ("%w", "qnn.conv2d[1]")
    yield "zero_input", lambda net, x, n: q(
        net, x, n, zero_point=integers_input(f"z{n}", "int32")
    ), "conv", Kind.CONSTANT, ("%z", "qnn.conv2d[2]")
    yield "no_bias", lambda net, x, n: q(net, x, n, bias=False), "conv", Kind.MISSING, ("nn.bias_add",)
    yield "no_scaling", lambda net, x, n: call(
        "clip", q(net, x, n, last=False), a_min=0.0, a_max=6.0
    ), "conv", Kind.MISSING, ("qnn.requantize",)
    yield "dilation_across", lambda net, x, n: q(
        net, x, n, dilation=(1, 2)
    ), "conv", Kind.ATTRIBUTE, ("dilation", "(1, 2)")
    yield "dilation", lambda net, x, n: q(net, x, n, dilation=(2, 2)), "conv", Kind.ATTRIBUTE, ("dilation",)
    for name in ("copy", "abs", "nn.relu"):
        yield f"{name}_between", partial(q, between=between(name)), "conv", Kind.EXTRA, (name, "qnn.conv2d directly")
        yield f"{name}_after", partial(q, after=between(name)), "scale", Kind.EXTRA, (name, "nn.bias_add directly")
    for out in ("uint8", "int32"):
        yield f"to_{out}", partial(q, out=out), "conv", Kind.DTYPE, ("int8", out, "out_dtype")
    yield "strides", lambda net, x, n: q(net, x, n, strides=(3, 3)), "conv", Kind.CHECK, ("rejects it", "strides")
    yield "conv_seen", lambda net, x, n: q(net, x, n, seen=1), "conv", Kind.ESCAPE, ("qnn.conv2d", "outside")
    yield "bias_seen", lambda net, x, n: q(net, x, n, seen=2), "conv", Kind.ESCAPE, ("nn.bias_add", "outside")


def chained(seed: int, block: Block, place: int, good: Block, dtype: str) -> tuple[Net, IRModule]:
    """A network of three blocks, of which the one at `place` is `block`."""
    net = Net(seed)
    y: Expr = net.input("x", (1, CHANNELS, 12, 12), dtype)
    for i in range(place):
        y = good(net, y, f"_good{i}")
    y = block(net, y, "")
    for i in range(place, 2):
        if len(y.checked_type.shape) == 4 and y.checked_type.dtype == dtype:
            y = good(net, y, f"_good{i}")
    return net, net.module(y)


def cases() -> Iterator[Case]:
    """All mutated networks."""
    real, quantized = real_table(), quantized_table()
    for place in range(3):
        for name, block, node, kind, words in conv_mutations():
            net, mod = chained(place, block, place, conv_block, "float32")
            yield Case(f"conv-{name}-{place}", mod, real, node, kind, words, net.params)
        for name, block, node, kind, words, mends in other_mutations():
            net, mod = chained(place, block, place, conv_block, "float32")
            yield Case(f"{name}-{place}", mod, real, node, kind, words, net.params, mends)
        for name, block, node, kind, words in quantized_mutations():
            net, mod = chained(place, block, place, quantized_conv, "int8")
            yield Case(f"qnn-{name}-{place}", mod, quantized, node, kind, words, net.params)
        yield from table_cases(place)


def table_cases(place: int) -> Iterator[Case]:
    """What is changed in the table, not in the network."""
    _, mod = chained(place, conv_block, place, conv_block, "float32")
    conv = ("npu.alone", is_op("nn.conv2d")(wildcard(), is_constant()))
    yield Case(f"earlier_row-{place}", mod, [conv, *real_table()], "relu", Kind.TAKEN, ("npu.alone", "tried before"))
    bias = ("npu.bias", is_op("nn.bias_add")(wildcard(), is_constant()))
    yield Case(f"earlier_bias-{place}", mod, [bias, *real_table()], "conv", Kind.TAKEN, ("npu.bias", "tried before"))
    stored = is_op("qnn.conv2d")(wildcard(), *(is_constant() for _ in range(5))).has_attr(
        {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    )
    _, images = chained(place, quantized_conv, place, quantized_conv, "int8")
    yield Case(
        f"qnn-layout-{place}", images, [("npu.stored", stored)], "conv", Kind.ATTRIBUTE,
        ("data_layout", "ConvertLayout")
    )
    named = [("dsp" + r[0].removeprefix("npu"), *r[1:]) for r in real_table()]
    yield Case(f"other_name-{place}", mod, named, "conv", Kind.NAME, ("dsp.conv2d", "npu."))
