"""Apple's BNNS (Accelerate framework): supported operators of channels-first float32 networks."""

from __future__ import annotations

import itertools
from typing import Any, Final

from tilewright.ir.module import IRModule
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.contrib.rules import (
    Rule,
    attr_is,
    bias_is_of_channels,
    dtype_is,
    edited,
    kept,
    partition_with,
    rank_is,
    tensor,
)
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import SettleMain

TARGET: Final = "bnns"
FLOAT: Final = ("float32",)


def _conv2d(with_bias: bool, activation: str) -> DFPattern:
    found: DFPattern = is_op("nn.conv2d")(wildcard(), is_constant())
    if with_bias:
        found = is_op("nn.bias_add")(found, is_constant()) | is_op("add")(found, is_constant())
    return is_op(activation)(found) if activation else found


def _dense(with_bias: bool, gelu: bool) -> DFPattern:
    found: DFPattern = is_op("nn.dense")(wildcard(), is_constant())
    if with_bias:
        found = is_op("nn.bias_add")(found, is_constant()) | is_op("add")(found, is_constant())
    if not gelu:
        return found
    erf = is_op("erf")(is_op("multiply")(found, is_constant()))
    half = is_op("add")(is_op("multiply")(erf, is_constant()), is_constant())
    return is_op("multiply")(found, half)


def _check_conv2d(e: Expr) -> bool | Refusal:
    conv = _path(e, "nn.conv2d")[-1]
    op: Any = conv.op
    found = kept([
        dtype_is(conv.args[0], FLOAT, "the input"), rank_is(conv.args[0], (4,), "the input"),
        bias_is_of_channels(_path(e, "nn.conv2d")),
        attr_is(conv, "data_layout", ("NCHW",)), attr_is(conv, "kernel_layout", ("OIHW",)),
        (op.groups == 1 or op.groups == tensor(conv.args[0]).shape[1],
         f"nn.conv2d has {op.groups} groups; it must have one, or one for each channel", "make groups 1"),
    ])
    return found and _check_bias(e, conv)


def _check_bias(e: Expr, conv: Call) -> bool | Refusal:
    """Accept the addition of a vector over the channels of a convolution."""
    path = _path(e, "nn.conv2d")
    for at, below in itertools.pairwise(path):
        if at.op.name == "add":
            other = at.args[0] if at.args[1] is below else at.args[1]
            shape, channels = tensor(other).shape, tensor(conv).shape[1]
            vector = len(shape) >= 3 and shape[-3] == channels and all(d == 1 for i, d in enumerate(shape)
                if i != len(shape) - 3)
            return (
                kept(
                    [(vector, f"the operand added to nn.conv2d is {shape}; it must be a vector of its {channels} "
                      "channels",
                      f"add a ({channels}, 1, 1) to it")]))
    return True


def _path(e: Expr, name: str) -> list[Call]:
    """The calls from a match to the operator `name`, following the first argument that is not constant."""
    found = [e]
    while found[-1].op.name != name:  # type: ignore[attr-defined]
        found.append(next(a for a in found[-1].args if not isinstance(a, Constant)))  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def _check_dense(e: Expr) -> bool | Refusal:
    path = _path(e, "nn.dense")
    return kept([dtype_is(path[-1].args[0], FLOAT, "the input"), rank_is(path[-1].args[0], (2,), "the input"),
                 bias_is_of_channels(path)])


def _check_matmul(e: Expr) -> bool | Refusal:
    a, b = e.args  # type: ignore[attr-defined]
    return kept([dtype_is(a, FLOAT, "the first input"), dtype_is(b, FLOAT, "the second input"),
                 rank_is(a, (3,), "the first input")])


def _check_pool(e: Expr) -> bool | Refusal:
    op: Any = e.op  # type: ignore[attr-defined]
    rules: list[Rule] = [dtype_is(e, FLOAT, "the result"), attr_is(e, "layout", ("NCHW",))]  # type: ignore[arg-type]
    if hasattr(op, "ceil_mode"):
        rules += [
            (not op.ceil_mode, f"ceil_mode of {op.name} is True; it must be False", "make ceil_mode False",
             edited(op.name, ceil_mode=False)),
            (set(op.dilation) == {1}, f"dilation of {op.name} is {op.dilation}; it must be 1", "make dilation 1",
             edited(op.name, dilation=(1, 1))),
        ]
    return kept(rules)


def _check_instance_norm(e: Expr) -> bool | Refusal:
    return kept([dtype_is(e, FLOAT, "the result"), rank_is(e, (3, 4), "the result"),
                 attr_is(e, "axis", (1,))])  # type: ignore[arg-type]


def pattern_table() -> PatternTable:
    """The rows of BNNS, the largest composites first."""
    convs = [
        (f"bnns.conv2d{'_bias' if bias else ''}{'_' + act.removeprefix('nn.') if act else ''}", _conv2d(bias, act),
         _check_conv2d)
        for act in ("nn.relu", "sigmoid", "") for bias in (True, False)]
    denses = [
        (f"bnns.dense{'_bias' if bias else ''}{'_gelu' if gelu else ''}", _dense(bias, gelu), _check_dense)
        for gelu in (True, False) for bias in (True, False)]
    pools = [(f"bnns.{n.removeprefix('nn.')}", is_op(n)(wildcard()), _check_pool)
             for n in ("nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d")]
    return [
        *convs, *denses, ("bnns.batch_matmul", is_op("nn.batch_matmul")(wildcard(), wildcard()), _check_matmul), *pools,
        ("bnns.instance_norm", is_op("nn.instance_norm")(wildcard(), is_constant(), is_constant()),
         _check_instance_norm),
    ]


def partition_for_bnns(mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default") -> IRModule:
    """Partition a module after folding constants and batch norms: parts that BNNS supports become functions for `bnns`.

    This lowers quantized operators to integer arithmetic with the rounding of their runtime, so partition for targets
    of quantized networks first.
    """
    from tilewright.relay import transform

    before = [ChooseNumerics(), SettleMain(), transform.SimplifyInference(), transform.FoldConstant(),
              transform.FoldScaleAxis(), transform.DynamicToStatic(), transform.FoldConstant()]
    return partition_with(pattern_table(), TARGET, mod, params, mod_name, before=before)


register_pattern_table(TARGET, pattern_table)
register_partitioner(TARGET, partition_for_bnns)
