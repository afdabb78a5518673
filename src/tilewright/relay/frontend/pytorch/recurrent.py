"""LSTM, GRU and RNN: one product of all inputs, then a loop over the steps with the hidden state's product."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.linear import linear
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import number as number_of
from tilewright.relay.frontend.shaping import reshape, size_value, slice_axis, transpose
from tilewright.relay.loops import Loop, Turn
from tilewright.relay.types_of import scalar, shape_of

_FEW: Final = 4
"""Largest number of steps that is unrolled."""
Cell = Callable[[Expr, Sequence[Expr], Expr], list[Expr]]
"""Maps the input product of a step, the states, and the hidden state's product to the states after the step."""


@dataclass(frozen=True, slots=True)
class Products:
    """The products of input and hidden state for one direction of a layer; the latter takes `weights` last."""

    of_input: Callable[[Expr], Expr]
    of_state: Callable[..., Expr]
    weights: Sequence[Expr]


def _gates(x: Expr, count: int) -> list[Expr]:
    size = shape_of(x)[1] // count
    return [slice_axis(x, 1, k * size, (k + 1) * size) for k in range(count)]


def _lstm(x: Expr, states: Sequence[Expr], h: Expr) -> list[Expr]:
    i, f, g, o = _gates(op.add(x, h), 4)
    c = op.add(op.multiply(op.sigmoid(f), states[1]), op.multiply(op.sigmoid(i), op.tanh(g)))
    return [op.multiply(op.sigmoid(o), op.tanh(c)), c]


def _gru(x: Expr, states: Sequence[Expr], h: Expr) -> list[Expr]:
    xr, xz, xn = _gates(x, 3)
    hr, hz, hn = _gates(h, 3)
    z = op.sigmoid(op.add(xz, hz))
    n = op.tanh(op.add(xn, op.multiply(op.sigmoid(op.add(xr, hr)), hn)))
    return [op.add(op.multiply(op.subtract(scalar(1, z), z), n), op.multiply(z, states[0]))]


def _tanh(x: Expr, states: Sequence[Expr], h: Expr) -> list[Expr]:
    return [op.tanh(op.add(x, h))]


def _relu(x: Expr, states: Sequence[Expr], h: Expr) -> list[Expr]:
    return [op.nn.relu(op.add(x, h))]


CELLS: Final[dict[str, Cell]] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}


def _direction(parts: Expr, states: Sequence[Expr], products: Products, cell: Cell,
               backward: bool) -> tuple[list[Expr], Expr]:
    """The states after the last step, and the outputs of all steps (steps, batch, hidden)."""
    steps = shape_of(parts)[0]
    if steps <= _FEW:
        rows, last = [], list(states)
        for k in range(steps)[::-1] if backward else range(steps):
            last = cell(op.take(parts, Constant(np.asarray(k)), axis=0), last,
                        products.of_state(last[0], *products.weights))
            rows.append(last[0])
        return last, op.stack(Tuple(tuple(rows[::-1] if backward else rows)), axis=0)
    loop = Loop()
    source, weights = loop.outside(parts), [loop.outside(w) for w in products.weights]
    final = loop.outside(size_value(steps - 1, number_of(0)))

    def turn(number: Expr, before: Sequence[Expr]) -> Turn:
        place = op.subtract(final, number) if backward else number
        after = cell(op.take(source, place, axis=0), before, products.of_state(before[0], *weights))
        return Turn(after, [after[0]])

    _, last, gathered = loop.run(steps, states, turn, [backward])
    return last, gathered[0]


@converter("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(
    input: Expr, hx: Any, params: list[Expr], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool, node: Node,
) -> tuple[Expr, ...]:
    """Outputs of all steps, then the last states, (layers * directions, batch, hidden) each."""
    each = 4 if has_biases else 2
    count = num_layers * (2 if bidirectional else 1)
    if len(params) != each * count:
        node.refuse(f"it has {len(params)} weights, but {each * count} are expected; projections (proj_size) are not "
                    "supported")
    products = []
    for k in range(count):
        w, u, *biases = params[k * each : (k + 1) * each]
        bias = biases[0] if biases else None
        products.append(Products(functools.partial(linear, weight=w, bias=bias), linear, [u, *biases[1:]]))
    return network(input, hx, products, CELLS[node.name], dropout, train, bidirectional, batch_first, node)


def network(
    input: Expr, hx: Any, products: Sequence[Products], cell: Cell, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool, node: Node,
) -> tuple[Expr, ...]:
    """Layers of cells; `products` has an entry for each direction of each layer."""
    if train and dropout:
        node.refuse("it has dropout between layers, but only inference is supported; call model.eval() before tracing "
                    "or exporting it")
    given = hx if isinstance(hx, list) else [hx]
    directions = 2 if bidirectional else 1
    whole = len(shape_of(input)) == 3
    x = input if whole else reshape(input, (shape_of(input)[0], 1, shape_of(input)[1]))
    given = given if whole else [reshape(s, (shape_of(s)[0], 1, shape_of(s)[1])) for s in given]
    x = transpose(x, (1, 0, 2)) if batch_first and whole else x
    node.static(x, "input")
    ends: list[list[Expr]] = [[] for _ in given]
    for layer in range(len(products) // directions):
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            states = [op.take(s, Constant(np.asarray(k)), axis=0) for s in given]
            last, rows = _direction(products[k].of_input(x), states, products[k], cell, d == 1)
            outputs.append(rows)
            for kept, state in zip(ends, last, strict=True):
                kept.append(state)
        x = op.concatenate(Tuple(tuple(outputs)), axis=2) if directions == 2 else outputs[0]
    stacked = [op.stack(Tuple(tuple(states)), axis=0) for states in ends]
    if not whole:
        return reshape(x, (shape_of(x)[0], shape_of(x)[2])), *(reshape(s, (shape_of(s)[0], shape_of(s)[2]))
            for s in stacked)
    return transpose(x, (1, 0, 2)) if batch_first else x, *stacked


@converter("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def recurrent_cell(input: Expr, hx: Any, w_ih: Expr, w_hh: Expr, node: Node, b_ih: Expr | None = None,
                   b_hh: Expr | None = None) -> Any:
    states = hx if isinstance(hx, list) else [hx]
    found = CELLS[node.name.removesuffix("_cell")](linear(input, w_ih, b_ih), states, linear(states[0], w_hh, b_hh))
    return tuple(found) if len(found) > 1 else found[0]
