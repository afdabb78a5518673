"""`check_grad`: gradients compared with central differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.nd import Device, device
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Expr, Function
from tilewright.relay.transform.gradient import gradient

Array = np.ndarray[Any, Any]


def random_of_type(t: Type, scale: float = 1, mean: float = 0) -> Array:
    """Return normally distributed values of a tensor type."""
    if not isinstance(t, TensorType):
        raise TypeError(f"random values have a tensor type, and this type is {t!r}; give the inputs of the function")
    values = np.random.default_rng().standard_normal(t.concrete_shape) * scale + mean
    return np.asarray(values).astype(t.dtype.numpy())


def check_grad(
    func: Function, inputs: Sequence[Array] | None = None, test_inputs: Sequence[Array] | None = None,
    eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, scale: float | None = None, mean: float = 0,
    mode: str = "higher_order", target_devices: Sequence[tuple[Any, Device]] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradients of a function with differences of its values at inputs `eps` apart.

    `inputs` are by default random, of the size `scale` around `mean`; `test_inputs` are those of them whose gradients
    are compared, by default all. `target_devices` are pairs of a target and a device. Raises `AssertionError` where a
    gradient differs by more than `atol + rtol * |difference|`.
    """
    from tilewright.relay.testing import run_infer_type

    forward = run_infer_type(func)
    backward = run_infer_type(gradient(forward, mode=mode))
    if inputs is None:
        inputs = [random_of_type(p.checked_type, 10 * eps if scale is None else scale, mean) for p in forward.params]
    tested = inputs if test_inputs is None else test_inputs
    if not tested:
        raise ValueError("check_grad: there are no inputs whose gradients could be compared")
    for target, at in target_devices or [("llvm", device("llvm"))]:
        value_and_gradients = _compiled(backward, executor_kind, target, at)
        value = _compiled(forward, executor_kind, target, at)
        _, found = value_and_gradients(*inputs)
        known = {id(x): g.numpy().astype("float64") for x, g in zip(inputs, found, strict=True)}
        for x in tested:
            np.testing.assert_allclose(known[id(x)], _differences(value, inputs, x, eps), rtol=rtol, atol=atol)


def _compiled(function: Expr, kind: str, target: Any, at: Device) -> Any:
    from tilewright import relay

    return relay.create_executor(kind, device=at, target=target).evaluate(function)


def _differences(value: Any, inputs: Sequence[Array], x: Array, eps: float) -> Array:
    """Return the central differences of the sum of the function's results for each element of the input `x`."""
    found = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        before = x[i]
        x[i] = before + eps
        above = value(*inputs).numpy().astype("float64")
        x[i] = before - eps
        below = value(*inputs).numpy().astype("float64")
        x[i] = before
        found[i] = np.sum((above - below) / (2 * eps))
    return found
