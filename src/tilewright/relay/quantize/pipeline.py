"""The pass pipeline from a float network to integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.quantize.calibration import QuantizeCalibrate
from tilewright.relay.quantize.config import current_qconfig
from tilewright.relay.quantize.float_evaluation import Runner
from tilewright.relay.quantize.integers import realize
from tilewright.relay.quantize.selection import is_layer
from tilewright.relay.quantize.simulate import annotate, channel_axis, partition
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.transform.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.fold_scale_axis import FoldScaleAxis
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.simplify_inference import SimplifyInference
from tilewright.relay.visitor import rewrite


def prerequisite_optimize(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Bind `params`, fold norms and scales into weights, and turn additions to a layer's channels into its bias."""
    bound = bind_params(mod, params) if params else mod
    passes = Sequential((InferType(), SimplifyInference(), FoldConstant(), FoldExplicitPadding(), FoldScaleAxis(),
                         FoldConstant()))
    with PassContext(opt_level=3):
        return passes(bound).map_functions(lambda f: rewrite(f, biased), Function)


def biased(e: Expr) -> Expr | None:
    """add(layer, c) -> nn.bias_add(layer, c') for a constant with one number per channel; nested biases are added."""
    if not isinstance(e, Call) or not isinstance(e.op, (Add, BiasAdd)):
        return None
    x, c = e.args if not isinstance(e.args[0], Constant) else e.args[::-1]
    if not isinstance(c, Constant) or x.known_type() != e.known_type():
        return None
    before = (x.args[1] if isinstance(x, Call) and isinstance(x.op, BiasAdd) and isinstance(x.args[1], Constant)
              else None)
    layer = x.args[0] if isinstance(x, Call) and before is not None else x
    if not isinstance(layer, Call) or not is_layer(layer):
        return None
    axis, rank = channel_axis(layer), layer.tensor_type.ndim
    found = _of_channels(c.value, axis if isinstance(e.op, Add) else None, rank, layer.tensor_type.shape[axis])
    if found is None or (isinstance(e.op, BiasAdd) and (before is None or e.op.axis % rank != axis)):
        return None
    total = found if before is None else found + before.value
    return Call(BiasAdd(axis), [layer, Constant(total, c.span)], span=e.span)


def _of_channels(value: np.ndarray[Any, Any], axis: int | None, rank: int,
                 channels: int) -> np.ndarray[Any, Any] | None:
    """An added constant as one number per channel; None if it varies along other axes."""
    if axis is None:
        return value
    shape = (1,) * (rank - value.ndim) + value.shape
    if any(n != 1 for d, n in enumerate(shape) if d != axis):
        return None
    return np.ascontiguousarray(np.broadcast_to(value.reshape(-1), (channels,)))


def quantize(mod: IRModule, params: Mapping[str, Any] | None, dataset: Iterable[Any] | None,
             runner: Runner) -> IRModule:
    """Implementation of `compiler.calibration.quantize`; `runner` runs the network on data."""
    config = current_qconfig()
    passes: list[Pass] = [partition(), annotate(), QuantizeCalibrate(dataset, runner)]
    if not config.do_simulation:
        passes.append(realize())
    with PassContext(opt_level=3):
        made = Sequential([*passes, FoldConstant()])(prerequisite_optimize(mod, params))
    if config.partition_conversions == "disabled":
        return made
    from tilewright.relay.quantize.conversions import partition_conversions

    return partition_conversions(made, config.partition_conversions == "fully_integral")
