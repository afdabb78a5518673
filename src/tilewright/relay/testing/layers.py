"""Layers with variables as parameters, named after the layer: `conv0_weight`, `bn0_gamma`."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.nd import NDArray
from tilewright.ir.module import IRModule
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, Var, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.transform import Concatenate
from tilewright.relay.testing.init import create_workload
from tilewright.relay.visitor import free_vars
from tilewright.topi.windows import per_dimension

Workload = tuple[IRModule, dict[str, NDArray]]


def data_of(batch_size: int, shape: tuple[int, ...], dtype: str = "float32") -> Var:
    """Return the input of a network."""
    return var("data", shape=(batch_size, *shape), dtype=dtype)


def network(result: Expr) -> Function:
    """Return the function of `data` and the weights, in order of use."""
    return Function(free_vars(result), result)


def workload(net: Function) -> Workload:
    """Return the module and random weights of a network."""
    return create_workload(net)


def _channels(data: Expr, layout: str) -> int:
    size = data.tensor_type.shape[layout.index("C")]
    if not isinstance(size, int):
        raise CompileError(f"the channels of {data.checked_type!r} are not a number", data.span, code="TW0417")
    return size


def batch_norm_infer(
    data: Expr, gamma: Expr | None = None, beta: Expr | None = None, moving_mean: Expr | None = None, moving_var: Expr
    | None = None,
    name: str = "bn", axis: int = 1, **attrs: Any,
) -> Expr:
    """Return the normalized data of a batch norm; missing parameters become variables `name_…`."""
    t = data.tensor_type
    given = (("gamma", gamma), ("beta", beta), ("moving_mean", moving_mean), ("moving_var", moving_var))
    params = [p if p is not None else var(f"{name}_{what}", shape=(t.shape[axis],), dtype=t.dtype) for what, p in given]
    normalised: Expr = nn.batch_norm(data, *params, axis=axis, **attrs)[0]
    return normalised


def conv2d(data: Expr, weight: Expr | None = None, *, name: str = "conv", channels: int, kernel_size: Any,
           groups: int = 1, **attrs: Any) -> Expr:
    """Return a convolution; a missing weight becomes the variable `name_weight`."""
    layout, order = attrs.get("data_layout", "NCHW"), attrs.get("kernel_layout", "OIHW")
    if weight is None:
        height, width = per_dimension(kernel_size, 2, "kernel_size")
        size = {"O": channels, "I": _channels(data, layout) // groups, "H": height, "W": width}
        weight = var(f"{name}_weight", shape=[size[axis] for axis in order], dtype=data.tensor_type.dtype)
    made: Expr = nn.conv2d(data, weight, channels=channels, kernel_size=kernel_size, groups=groups, **attrs)
    return made


def conv2d_transpose(data: Expr, weight: Expr | None = None, *, name: str = "deconv", channels: int, kernel_size: Any,
                     **attrs: Any) -> Expr:
    """Return a transposed convolution of channels-first images."""
    if weight is None:
        weight = var(f"{name}_weight", shape=(_channels(data, "NCHW"), channels,
            *per_dimension(kernel_size, 2, "kernel_size")), dtype=data.tensor_type.dtype)
    made: Expr = nn.conv2d_transpose(data, weight, channels=channels, kernel_size=kernel_size, **attrs)
    return made


def dense_add_bias(data: Expr, weight: Expr | None = None, bias: Expr | None = None, units: int | None = None,
                   name: str = "fc") -> Expr:
    """Return a product with a bias. `units` is required if the weight or bias is missing."""
    t = data.tensor_type
    if weight is None or bias is None:
        if units is None:
            raise CompileError(f"the layer {name} needs `units`, or a weight and a bias", data.span, code="TW0417")
        weight = weight if weight is not None else var(f"{name}_weight", shape=(units, t.shape[-1]), dtype=t.dtype)
        bias = bias if bias is not None else var(f"{name}_bias", shape=(units,), dtype=t.dtype)
    made: Expr = nn.bias_add(nn.dense(data, weight, units=units), bias, axis=-1)
    return made


def conv_bn_relu(data: Expr, name: str, channels: int, kernel_size: Any, *, epsilon: float = 1e-5,
                 **attrs: Any) -> Expr:
    """Return a convolution with batch norm and ReLU, the usual sequence in networks."""
    axis = attrs.get("data_layout", "NCHW").index("C")
    made = conv2d(data, name=f"{name}_conv", channels=channels, kernel_size=kernel_size, **attrs)
    return Relu()(batch_norm_infer(made, name=f"{name}_bn", axis=axis, epsilon=epsilon))


def classified(data: Expr, num_classes: int, name: str = "fc1") -> Expr:
    """Return a dense layer over the flattened input, and a softmax."""
    return Softmax()(dense_add_bias(nn.batch_flatten(data), units=num_classes, name=name))


def joined(*parts: Expr) -> Expr:
    """Return images concatenated along the channels, channels first."""
    return Concatenate(1)(parts)
