"""A long short-term memory that is unrolled over the steps of a sequence (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

from tilewright.relay import sigmoid, split, tanh
from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.testing.layers import Workload, data_of, dense_add_bias, network, workload


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """`iterations` steps over one `data` of `num_hidden` values; the result is the last output."""
    data = data_of(batch_size, (num_hidden,), dtype)
    shape = (batch_size, num_hidden)
    gates = {side: [var(f"{side}_{what}", shape=s, dtype=dtype) for what, s in (("weight", (4 * num_hidden, num_hidden)), ("bias", (4 * num_hidden,)))] for side in ("i2h", "h2h")}
    hidden: Expr = var("hidden_state", shape=shape, dtype=dtype)
    cell: Expr = var("cell_state", shape=shape, dtype=dtype)
    for _ in range(iterations):
        whole = dense_add_bias(data, *gates["i2h"], units=4 * num_hidden) + dense_add_bias(hidden, *gates["h2h"], units=4 * num_hidden)
        taken, kept, new, out = split(whole, indices_or_sections=4, axis=1)
        cell = sigmoid(kept) * cell + sigmoid(taken) * tanh(new)
        hidden = sigmoid(out) * tanh(cell)
    return network(hidden)


def get_workload(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Workload:
    """The module and random weights."""
    return workload(get_net(iterations, num_hidden, batch_size, dtype))
