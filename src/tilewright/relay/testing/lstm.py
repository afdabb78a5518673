"""A long short-term memory, unrolled over the steps of a sequence (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

from tilewright.relay.expr import Expr, Function, var
from tilewright.relay.op.elementwise import Sigmoid, Tanh
from tilewright.relay.op.transform import Split
from tilewright.relay.testing.layers import Workload, dense_add_bias, network, workload


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """Return `iterations` steps over the inputs `data`, `data1`, … of `num_hidden` values; the result is the last
    output."""
    shape = (batch_size, num_hidden)
    steps = [var(f"data{k or ''}", shape=shape, dtype=dtype) for k in range(iterations)]
    gates = [(var(f"{side}_weight", shape=(4 * num_hidden, num_hidden), dtype=dtype),
              var(f"{side}_bias", shape=(4 * num_hidden,), dtype=dtype)) for side in ("i2h", "h2h")]
    hidden: Expr = var("hidden_state", shape=shape, dtype=dtype)
    cell: Expr = var("cell_state", shape=shape, dtype=dtype)
    for data in steps:
        from_data, from_hidden = (dense_add_bias(x, weight, bias)
                                  for x, (weight, bias) in zip((data, hidden), gates, strict=True))
        taken, kept, new, out = Split(4, 1)(from_data + from_hidden)
        cell = Sigmoid()(kept) * cell + Sigmoid()(taken) * Tanh()(new)
        hidden = Sigmoid()(out) * Tanh()(cell)
    return network(hidden)


def get_workload(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Workload:
    """Return the module and random weights."""
    return workload(get_net(iterations, num_hidden, batch_size, dtype))
