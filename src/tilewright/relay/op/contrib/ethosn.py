"""Arm Ethos-N77 and -N78: supported operators of quantized networks, channels last, one image at a time.

The rules follow the documentation of the Ethos-N Support Library. The library itself is not called, so it may reject an
accepted operator. Rows for cheaper special cases of sums and products precede the general ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.contrib.rules import (
    Rule,
    attr_is,
    batch_is_one,
    bias_is_of_channels,
    chain_to,
    dtype_is,
    edited,
    inner,
    kept,
    partition_with,
    rank_is,
    result_quantized,
    tensor,
    value_of,
)

if TYPE_CHECKING:
    from tilewright.relay.op.contrib.ethosn_passes import (
        Available,
        ConvertEquivalents,
        InlineNonComputeIntensivePartitions,
        ethosn_api_version,
        ethosn_available,
    )

__all__ = [
    "Available", "ConvertEquivalents", "InlineNonComputeIntensivePartitions", "ethosn_api_version", "ethosn_available",
    "partition_for_ethosn", "partition_for_ethosn77", "partition_for_ethosn78", "pattern_table",
]

TARGET: Final = "ethos-n"
BYTES: Final = ("uint8", "int8")
VARIANTS: Final = ("n77", "n78")
KERNELS: Final = (1, 2, 3, 5, 7, 9)
NHWC_EDIT: Final = "run transform.ConvertLayout({'qnn.conv2d': ['NHWC', 'HWIO'], 'nn.max_pool2d': ['NHWC']}) before"


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tilewright.relay.op.contrib import ethosn_passes

        return getattr(ethosn_passes, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def _constants(count: int) -> list[DFPattern]:
    return [is_constant() for _ in range(count)]


def _requantized(p: DFPattern) -> DFPattern:
    return is_op("qnn.requantize")(p, *_constants(4))


def _product(name: str, data: DFPattern, optional_bias: bool) -> DFPattern:
    product: DFPattern = is_op(name)(data, *_constants(5))
    biased = is_op("nn.bias_add")(product, is_constant())
    return _requantized(product | biased if optional_bias else biased)


def _pointwise(name: str) -> DFPattern:
    """The pattern of a float function between dequantize and quantize, or of the equivalent quantized operator."""
    real = is_op("qnn.quantize")(is_op(name)(is_op("qnn.dequantize")(wildcard(), *_constants(2))), *_constants(2))
    return is_op(f"qnn.{name.removeprefix('nn.')}")(wildcard(), *_constants(4)) | real


def _whole_image(e: Expr) -> list[Rule]:
    return [dtype_is(e, BYTES, "the input"), rank_is(e, (4,), "the input"), batch_is_one(e, "the input")]


def _result(e: Expr) -> Rule:
    return dtype_is(e, BYTES, "the result")


def _check_conv2d(e: Expr) -> bool | Refusal:
    conv = inner(e, "qnn.conv2d")
    op: Any = conv.op
    rules = [
        (op.data_layout == "NHWC", f"data_layout of qnn.conv2d is {op.data_layout}; it must be NHWC", NHWC_EDIT),
        *_whole_image(conv.args[0]), _result(e), *_check_weight(conv),
        (max(op.strides) <= 2, f"strides of qnn.conv2d are {op.strides}; they must be 1 or 2", "make strides 1 or 2",
         edited("qnn.conv2d", strides=tuple(min(s, 2) for s in op.strides))),
        (set(op.dilation) == {1}, f"dilation of qnn.conv2d is {op.dilation}; it must be 1", "make dilation 1",
         edited("qnn.conv2d", dilation=(1, 1))),
        (op.groups in (1, tensor(conv.args[0]).shape[3]), f"qnn.conv2d has {op.groups} groups; it must have one, or "
         "one for each channel", "make groups 1"),
        bias_is_of_channels(chain_to(e, "qnn.conv2d")),
    ]
    found = kept(rules)
    return _check_padding(conv) if found else found


def _check_weight(conv: Call) -> list[Rule]:
    op: Any = conv.op
    size = op.kernel_size or ()
    zero = value_of(conv.args[3])
    return [
        (all(k in KERNELS for k in size), f"kernel_size of {op.name} is {size}; each must be one of {KERNELS}",
         f"make kernel_size one of {KERNELS}"),
        (str(tensor(conv.args[1]).dtype) == "uint8" or not np.any(zero), f"the zero point of the weight of {op.name}, "
         f"of signed bytes, is {zero}; it must be 0", "quantize the weight around 0"),
    ]


def _check_padding(conv: Call) -> bool | Refusal:
    """Accept padding of rows and columns by the zero point before a convolution."""
    pad = conv.args[0]
    if not (isinstance(pad, Call) and getattr(pad.op, "name", "") == "nn.pad"):
        return True
    op: Any = pad.op
    widths, zero = op.pad_width, value_of(conv.args[2])
    number = value_of(pad.args[1])
    return kept([
        (op.pad_mode == "constant", f"pad_mode of nn.pad is {op.pad_mode}; it must be constant",
         "pad with a constant"),
        (not any((*widths[0], *widths[3])), f"nn.pad pads {widths}; only rows and columns can be padded",
         "pad rows and columns only"),
        (float(number) == float(zero), f"nn.pad pads with {number}, and zero of its input is {zero}",
         f"pad with {zero}", edited("nn.pad", {1: zero})),
    ])


def _check_conv2d_transpose(e: Expr) -> bool | Refusal:
    conv = inner(e, "qnn.conv2d_transpose")
    op: Any = conv.op
    return kept([
        (op.data_layout == "NHWC", f"data_layout of qnn.conv2d_transpose is {op.data_layout}; it must be NHWC",
         NHWC_EDIT),
        *_whole_image(conv.args[0]), _result(e), *_check_weight(conv),
        (tuple(op.strides) == (2, 2), f"strides of qnn.conv2d_transpose are {op.strides}; they must be (2, 2)",
         "make strides (2, 2)", edited("qnn.conv2d_transpose", strides=(2, 2))),
        (set(op.dilation) == {1}, f"dilation of qnn.conv2d_transpose is {op.dilation}; it must be 1",
         "make dilation 1"),
        attr_is(conv, "groups", (1,)), bias_is_of_channels(chain_to(e, "qnn.conv2d_transpose")),
    ])


def _check_fc(e: Expr) -> bool | Refusal:
    chain = chain_to(e, "qnn.dense")
    data = chain[-1].args[0]
    return kept([dtype_is(data, BYTES, "the input"), rank_is(data, (2,), "the input"), batch_is_one(data, "the input"),
                 _result(e), bias_is_of_channels(chain)])


def _check_avg_pool2d(e: Expr) -> bool | Refusal:
    pool = _call_of(e, ("qnn.avg_pool2d", "nn.avg_pool2d"))
    given = pool.args[0]
    source = given.args[0] if isinstance(given, Call) and getattr(given.op, "name", "") == "cast" else given
    op: Any = pool.op
    return kept([
        attr_is(pool, "layout", ("NHWC",)), *_whole_image(source), _result(e),
        (not any(op.padding) or not op.count_include_pad, f"count_include_pad of {op.name} counts padding; it must be "
         "False", "make count_include_pad False", edited(op.name, count_include_pad=False)),
    ])


def _call_of(e: Expr, names: tuple[str, ...]) -> Call:
    at: Any = e
    while at.op.name not in names:
        at = at.args[0]
    found: Call = at
    return found


def _check_mean(e: Expr) -> bool | Refusal:
    mean = inner(e, "mean")
    op: Any = mean.op
    shape = tensor(mean.args[0]).shape
    axes = tuple(a % 4 for a in (op.axis if isinstance(op.axis, (tuple, list)) else (op.axis,)) if a is not None)
    return kept([
        rank_is(mean.args[0], (4,), "the input"), _result(e),
        (axes == (1, 2), f"mean is over axes {axes}; it must be over rows and columns, (1, 2)", "make axis (1, 2)"),
        (bool(op.keepdims), "keepdims of mean is False; it must be True", "make keepdims True, and reshape"),
        (shape[1:3] in ((7, 7), (8, 8)), f"mean is over {shape[1]} x {shape[2]}; it must be over 7 x 7 or 8 x 8",
         "average with nn.avg_pool2d"),
    ])


def _check_pointwise(e: Expr) -> bool | Refusal:
    return kept([_result(e), rank_is(e, (1, 2, 3, 4), "the result"), batch_is_one(e, "the result")])


def _check_table(name: str, denominator: int, place: str, **zeros: int) -> Callable[[Expr], bool | Refusal]:
    """Return a check of a result: its scale is 1 / `denominator`, and `zeros` has its zero point by its dtype."""

    def check(e: Expr) -> bool | Refusal:
        scale, zero = (value_of(a) for a in e.args[-2:])  # type: ignore[attr-defined]
        found, wanted = _check_pointwise(e), zeros.get(str(tensor(e).dtype), zeros["uint8"])
        return found and kept([(
            np.isclose(scale, 1 / denominator) and int(zero) == wanted,
            f"{name} gives a scale of {scale} {place} {zero}; it must be 1/{denominator} {place} {wanted}",
            f"quantize the result of {name} by 1/{denominator}", result_quantized(e, 1 / denominator, wanted))])

    return check


def _check_leaky_relu(e: Expr) -> bool | Refusal:
    alpha = _call_of(e, ("qnn.leaky_relu", "nn.leaky_relu")).op.alpha
    found = _check_pointwise(e)
    return found and kept(
        [(0 < alpha < 1, f"alpha of leaky_relu is {alpha}; it must be above 0 and below 1", "make alpha less than 1")])


def _check_requantize(e: Expr) -> bool | Refusal:
    source = e.args[0]  # type: ignore[attr-defined]
    quotient = float(np.max(value_of(e.args[1]) / value_of(e.args[3])))  # type: ignore[attr-defined]
    return kept([
        dtype_is(source, BYTES, "the input"), _result(e), rank_is(e, (1, 2, 3, 4), "the result"),
        (1 / 128 <= quotient < 128, f"qnn.requantize multiplies by {quotient}; it must be from 1/128 to 128",
         "choose scales that are nearer to each other"),
    ])


def _check_resize(e: Expr) -> bool | Refusal:
    resize = inner(e, "image.resize2d")
    op: Any = resize.op
    before = tensor(resize.args[0]).shape
    after = tensor(resize).shape
    doubled = all(after[i] in (2 * before[i], 2 * before[i] - 1) for i in (1, 2)) if len(before) == 4 else False
    return kept([
        attr_is(resize, "layout", ("NHWC",)), *_whole_image(resize.args[0]), _result(e),
        (op.method in ("nearest_neighbor", "linear"), f"method of image.resize2d is {op.method}; it must be "
         "nearest_neighbor or linear", "make method linear"),
        (doubled, f"image.resize2d makes {after[1:3]} of {before[1:3]}; it must double the size",
         "resize to twice the size"),
    ])


def _operands(e: Expr) -> tuple[Expr, Expr]:
    return e.args[0], e.args[1]  # type: ignore[attr-defined]


def _check_sum(e: Expr) -> bool | Refusal:
    a, b = _operands(e)
    return kept([
        *_whole_image(a), dtype_is(b, BYTES, "the second input"), _result(e),
        (not isinstance(b, Constant) and not isinstance(a, Constant), "a constant operand of a sum must be a number "
                                                                      "or a vector of "
                                                                      "channels", "add a vector of channels"),
        (tensor(a).shape == tensor(b).shape, f"the inputs are {tensor(a).shape} and {tensor(b).shape}; they must be of "
         "one shape", "broadcast the smaller one"),
    ])


def _check_with_constant(of_channels: bool) -> Any:
    """The check of a sum or product with a constant: a scalar, or if `of_channels`, one number per channel."""
    def check(e: Expr) -> bool | Refusal:
        a, b = _operands(e)
        data, constant = (b, a) if isinstance(a, Constant) else (a, b)
        shape, size = tensor(constant).shape, int(np.size(value_of(constant))) if isinstance(constant, Constant) else 0
        wanted = tensor(data).shape[-1] if of_channels else 1
        what = f"one for each of {wanted} channels" if of_channels else "one number"
        return kept([
            (isinstance(constant, Constant), "neither input is a constant", "make one a constant"),
            *_whole_image(data), _result(e),
            (size == wanted and (not of_channels or shape[-1:] == (wanted,)),
             f"the constant is {shape}; it must be {what}", f"make it {what}"),
        ])

    return check


def _check_max_pool2d(e: Expr) -> bool | Refusal:
    op: Any = e.op  # type: ignore[attr-defined]
    size, strides = tuple(op.pool_size), tuple(op.strides)
    return kept([
        attr_is(e, "layout", ("NHWC",)), *_whole_image(e.args[0]), _result(e),  # type: ignore[arg-type, attr-defined]
        (size in ((2, 2), (3, 3), (1, 1)), f"pool_size of nn.max_pool2d is {size}; it must be (2, 2), (3, 3) or "
         "(1, 1)", "make pool_size (3, 3)", edited("nn.max_pool2d", pool_size=(3, 3))),
        (strides == (2, 2), f"nn.max_pool2d of {size} has strides {strides}; it must be 2 x 2 or 3 x 3 with strides 2",
         "make strides (2, 2)", edited("nn.max_pool2d", strides=(2, 2))),
    ])


def _check_concatenate(e: Expr) -> bool | Refusal:
    op: Any = e.op  # type: ignore[attr-defined]
    return (
        kept(
            [_result(e), rank_is(e, (4,), "the result"), batch_is_one(e, "the result"), (op.axis % 4 != 0,
                "concatenate is over images; it must be over rows, columns or channels", "make axis 1, 2 or 3")]))


def _check_depth_to_space(e: Expr) -> bool | Refusal:
    return kept(
        [attr_is(e, "layout", ("NHWC",)), *_whole_image(e.args[0]), _result(e),  # type: ignore[arg-type, attr-defined]
                 attr_is(e, "block_size", (2,))])  # type: ignore[arg-type]


def pattern_table() -> PatternTable:
    """The rows of Ethos-N: composites of quantized operators, then single ones."""
    padded = is_op("nn.pad")(wildcard(), is_constant()) | wildcard()
    mean = is_op("mean")(is_op("cast")(wildcard()) | wildcard())
    pool = is_op("cast")(is_op("nn.avg_pool2d")(is_op("cast")(wildcard())))
    resize = is_op("image.resize2d")(wildcard())
    add, mul = (is_op(n)(wildcard(), wildcard(), *_constants(6)) for n in ("qnn.add", "qnn.mul"))
    return [
        ("ethos-n.qnn_mul_to_reinterpret_quantize", mul, _check_with_constant(of_channels=False)),
        ("ethos-n.qnn_mul_to_depthwise", mul, _check_with_constant(of_channels=True)),
        ("ethos-n.qnn_add_to_reinterpret_quantize", add, _check_with_constant(of_channels=False)),
        ("ethos-n.qnn_add_to_depthwise", add, _check_with_constant(of_channels=True)),
        ("ethos-n.qnn_add", add, _check_sum),
        ("ethos-n.qnn_conv2d", _product("qnn.conv2d", padded, optional_bias=False), _check_conv2d),
        ("ethos-n.qnn_conv2d_transpose", _product("qnn.conv2d_transpose", wildcard(), optional_bias=True),
         _check_conv2d_transpose),
        ("ethos-n.qnn_fc", _product("qnn.dense", wildcard(), optional_bias=True), _check_fc),
        ("ethos-n.qnn_avg_pool2d", is_op("qnn.avg_pool2d")(wildcard(), *_constants(4)) | pool, _check_avg_pool2d),
        ("ethos-n.qnn_mean", _requantized(mean), _check_mean),
        ("ethos-n.qnn_sigmoid", _pointwise("sigmoid"), _check_table("sigmoid", 256, "from", int8=-128, uint8=0)),
        ("ethos-n.qnn_tanh", _pointwise("tanh"), _check_table("tanh", 128, "around", int8=0, uint8=128)),
        ("ethos-n.qnn_leaky_relu", _pointwise("nn.leaky_relu"), _check_leaky_relu),
        ("ethos-n.qnn_resize", _requantized(resize) | resize, _check_resize),
        ("ethos-n.qnn_requantize", _requantized(wildcard()), _check_requantize),
        ("ethos-n.max_pool2d", is_op("nn.max_pool2d")(wildcard()), _check_max_pool2d),
        ("ethos-n.concatenate", is_op("concatenate")(wildcard()), _check_concatenate),
        ("ethos-n.depth_to_space", is_op("nn.depth_to_space")(wildcard()), _check_depth_to_space),
        ("ethos-n.split", is_op("split")(wildcard()), lambda e: kept(_whole_image(e.args[0]))),
        ("ethos-n.reshape", is_op("reshape")(wildcard()),
         lambda e: kept([_result(e), batch_is_one(e, "the result"), batch_is_one(e.args[0], "the input")])),
        ("ethos-n.clip", is_op("clip")(wildcard()), _check_pointwise),
    ]


def partition_for_ethosn(mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default",
                         variant: str = "n78", **opts: Any) -> IRModule:
    """Partition a module: the parts that Ethos-N supports become functions for `ethos-n`.

    `opts` are the options of the driver (`sram_size`, `tops`, `ple_ratio`), kept as attributes of the functions. Raises
    `OptionError` for another variant.
    """
    from tilewright.relay.expr import Function
    from tilewright.relay.transform import DeadCodeElimination

    if variant.lower().removeprefix("ethos-") not in VARIANTS:
        raise OptionError(f"there is no Ethos-N of the variant '{variant}'; there are {' and '.join(VARIANTS)}",
                          code="TW0902")
    found = partition_with(pattern_table(), TARGET, mod, params, mod_name, before=[DeadCodeElimination()],
                           dtypes=BYTES)
    extra = {"ethos-n.variant": variant, **{f"ethos-n.{k}": v for k, v in opts.items()}}

    def configured(f: Any) -> Any:
        if f.attrs.get("Compiler") != TARGET:
            return f
        for key, value in extra.items():
            f = f.with_attr(key, value)
        return f

    return found.map_functions(configured, Function)


def partition_for_ethosn77(mod: IRModule, params: dict[str, Any] | None = None, **opts: Any) -> IRModule:
    """Partition for an Ethos-N77, which has no options."""
    if opts:
        raise OptionError(f"an Ethos-N77 has no options, and was given {', '.join(opts)}", code="TW0902")
    return partition_for_ethosn(mod, params, variant="n77")


def partition_for_ethosn78(mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default",
                           **opts: Any) -> IRModule:
    """Partition for an Ethos-N78; `opts` are its driver options (`tops`, `ple_ratio`, `sram_size`)."""
    return partition_for_ethosn(mod, params, mod_name, variant="n78", **opts)


register_pattern_table(TARGET, pattern_table)
register_partitioner(TARGET, partition_for_ethosn)
