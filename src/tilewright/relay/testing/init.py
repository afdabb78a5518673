"""Initial weights of networks, random by kind of layer and reproducible by seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base import nd
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.infer_type import InferType

Array = np.ndarray[Any, Any]


class Initializer:
    """Values by parameter name: ones for gamma and variance, zeros for beta, mean and bias, `weight` for the others."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        """Return the values of the parameter `name`."""
        if name.endswith(("gamma", "var")):
            return np.ones(shape, dtype)
        if name.endswith(("beta", "mean", "bias", "state", "init")):
            return np.zeros(shape, dtype)
        return self.weight(shape).astype(dtype)

    def weight(self, shape: tuple[int, ...]) -> Array:
        """Return the values of a weight; here uniform in [0, 1)."""
        return self.random.random(shape, "float32")


class Xavier(Initializer):
    """Weights that preserve the variance of activations (Glorot and Bengio, 2010)."""

    def __init__(self, magnitude: float = 3, seed: int = 0) -> None:
        super().__init__(seed)
        self.magnitude = magnitude

    def weight(self, shape: tuple[int, ...]) -> Array:
        """Return uniform values whose variance suits the numbers of inputs and outputs of the layer."""
        window = math.prod(shape[2:])
        fans = (shape[0] + shape[1]) * window if len(shape) > 1 else 2 * shape[0]
        bound = math.sqrt(2 * self.magnitude / fans)
        return self.random.uniform(-bound, bound, shape).astype("float32")


class Constant(Initializer):
    """Weights that are all equal, with the sum 1."""

    def weight(self, shape: tuple[int, ...]) -> Array:
        """Return the same value for all elements."""
        return np.full(shape, 1 / math.prod(shape), "float32")


def create_workload(net: Function, initializer: Initializer | Callable[[str, Array], Any] | None = None,
                    seed: int = 0) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Return the module of a network, and arrays for its parameters except `data` and labels.

    A function as `initializer` receives a name and an array of zeros, and fills the array.
    """
    made = initializer if initializer is not None else Xavier(seed=seed)
    mod = InferType()(IRModule.from_expr(net))
    params = {}
    for p in mod["main"].params:
        if p.name_hint != "data" and not p.name_hint.endswith("label"):
            t = p.checked_type
            assert isinstance(t, TensorType)
            params[p.name_hint] = nd.array(_values(made, p.name_hint, t))
    return mod, params


def _values(made: Initializer | Callable[[str, Array], Any], name: str, t: TensorType) -> Array:
    shape = tuple(map(int, t.concrete_shape))
    if isinstance(made, Initializer):
        return made(name, shape, str(t.dtype))
    value = np.zeros(shape, t.dtype.numpy())
    made(name, value)
    return value
