"""Simulated quantization: the passes `partition` and `annotate`, and the rewriting shared with post-training
quantization.

    partition    nn.conv2d(%x, w) -> nn.conv2d(annotation.cast_hint(%x, dtype="int8"), w)
    annotate     nn.conv2d(annotation.cast_hint(%x, dtype="int8"), w)
                 -> nn.conv2d(simulated_quantize(%x, %dom_scale, %clip_min, %clip_max), simulated_quantize(w, …))

Values that share a scale have the same three variables, which calibration replaces by numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.annotation import CastHint, SimulatedQuantize
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.quantize.config import QAnnotateKind, QConfig, current_qconfig
from tilewright.relay.quantize.ranges import Levels
from tilewright.relay.quantize.selection import Choice, Selection, layers, select
from tilewright.relay.visitor import operands, post_order, with_operands

Parameters = tuple[Expr, Expr, Expr]
"""Scale, lowest and highest level of a simulated quantization."""


def constants(levels: Levels) -> Parameters:
    """Levels as arguments of `simulated_quantize`."""
    return (Constant(levels.scale), Constant(np.asarray(levels.low, np.float32)),
            Constant(np.asarray(levels.high, np.float32)))


def rebuilt(function: Function, replace: Callable[[Expr, Expr], Expr], made: dict[Expr, Expr]
            | None = None) -> Function:
    """`function` with each node replaced by `replace(node, node with new operands)`; `made` receives the new nodes."""
    new = {} if made is None else made
    for e in post_order(function, inside=False):
        old = operands(e)
        now = [new.get(o, o) for o in old]
        new[e] = replace(e, e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now))
    result = new[function]
    assert isinstance(result, Function)
    return result


def simulated(
    function: Function, places: Selection, of_value: Callable[[Expr], Parameters],
    of_weight: Callable[[Call], Parameters],
    biases: Mapping[Expr, Constant] | None = None, made: dict[Expr, Expr] | None = None,
) -> Function:
    """`function` with simulated quantizations of the selected values, for all consumers, and of the layers' weights.

    `of_value` is called once for each scale, with its representative value. `biases` replaces those of some calls of
    `nn.bias_add`. `made` receives the new node of each old one.
    """
    shared: dict[Expr, Parameters] = {}
    chosen = set(places.layers)

    def replace(old: Expr, new: Expr) -> Expr:
        if old in chosen and isinstance(old, Call) and isinstance(new, Call):
            new = Call(new.op, [new.args[0], simulated_weight(old, of_weight(old))], span=new.span)
        if biases is not None and old in biases and isinstance(new, Call):
            new = Call(new.op, [new.args[0], biases[old]], span=new.span)
        if old not in places.values:
            return new
        root = places.scales[old]
        if root not in shared:
            shared[root] = of_value(root)
        return simulated_value(new, shared[root])

    return rebuilt(function, replace, made)


def simulated_value(x: Expr, parameters: Parameters) -> Call:
    """The simulated quantization of a layer's data."""
    return Call(SimulatedQuantize(QAnnotateKind.INPUT.value), [x, *parameters], span=x.span)


def simulated_weight(layer: Call, parameters: Parameters) -> Call:
    """The simulated quantization of a layer's weight."""
    return Call(SimulatedQuantize(QAnnotateKind.WEIGHT.value), [layer.args[1], *parameters], span=layer.args[1].span)


def channel_axis(layer: Call) -> int:
    """The output channel axis of a layer's result."""
    return layer.op.axes()[2].index(1) if isinstance(layer.op, Conv2d) else layer.tensor_type.ndim - 1


def weight_axis(layer: Call) -> int:
    """The output channel axis of a layer's weight."""
    return int(layer.op.axes()[1][0]) if isinstance(layer.op, Conv2d) else 0


def float_form(function: Function, made: dict[Expr, Expr] | None = None) -> Function:
    """`function` without simulated quantizations and marks; `made` receives the new node of each old one."""
    return rebuilt(function, lambda _, e: e.args[0] if isinstance(e, Call)
                   and isinstance(e.op, (SimulatedQuantize, CastHint)) else e, made)


def configured(config: QConfig, function: Function) -> Choice:
    """The predicate for the layers that the options quantize."""
    skipped = set(config.skip_conv_layers or ())
    left = [e for k, e in enumerate(e for e in layers(function) if isinstance(e.op, Conv2d)) if k in skipped]
    enabled = config.debug_enabled_ops

    def chosen(e: Call) -> bool:
        if enabled is not None and getattr(e.op, "name", "") not in enabled:
            return False
        return e not in left and not (config.skip_dense_layer and isinstance(e.op, Dense))

    return chosen


@dataclass(frozen=True)
class QuantizePartition(FunctionPass):
    """Mark the values that the current `qconfig` quantizes. Needs known types and constant weights."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        config = current_qconfig()
        plain = float_form(function)
        places = select(plain, configured(config, plain), config.debug_enabled_ops)

        def marked(old: Expr, new: Expr) -> Expr:
            return Call(CastHint(config.dtype_input), [new], span=new.span) if old in places.values else new

        return rebuilt(plain, marked)


@dataclass(frozen=True)
class QuantizeAnnotate(FunctionPass):
    """Replace the marks of `partition` by simulated quantizations with variables for their scales and bounds."""

    exact: ClassVar[bool] = False
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        config = current_qconfig()
        plain = float_form(function)
        places = select(plain, configured(config, plain), config.debug_enabled_ops)
        count = iter(range(len(places.values) + len(places.layers)))

        return simulated(plain, places, lambda _: variables(str(next(count))), lambda _: variables(str(next(count))))


def variables(suffix: str = "") -> Parameters:
    """Return variables for the scale and bounds of a simulated quantization."""
    scale, low, high = (Var(name + suffix, TensorType((), "float32")) for name in ("dom_scale", "clip_min", "clip_max"))
    return scale, low, high


def attach_simulated_quantize(data: Expr, kind: int, sign: bool = True, rounding: str = "round") -> Expr:
    """Return the simulated quantization of `data` in a role (`QAnnotateKind`), with variables for its scale and bounds;
    `data` itself if it has that role already."""
    op = SimulatedQuantize(int(kind), sign, rounding)
    if isinstance(data, Call) and isinstance(data.op, SimulatedQuantize) and data.op == op:
        return data
    return Call(op, [data, *variables()], span=data.span)


def partition() -> Pass:
    """The pass that marks the quantized values."""
    return QuantizePartition()


def annotate() -> Pass:
    """The pass that replaces marks by simulated quantizations."""
    return QuantizeAnnotate()
