"""RNN, GRU and LSTM: one input product for all steps, then a loop over the steps with the product of the hidden state.

Weights have the specification's layout, with gates along the rows: [input, output, forget, cell] for LSTM, [update,
reset, hidden] for GRU. A cell is a function of the input's product for one step (batch, gates * hidden) and the states
(batch, hidden). It returns the states after the step; the first of them is the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tilewright.base.types import OpenSize
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx import math, quantize
from tilewright.relay.frontend.onnx.loops import Outside, repeat
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, size_value, slice_axis, transpose
from tilewright.relay.loops import Turn
from tilewright.relay.sequence_values import NOTHING
from tilewright.relay.types_of import dtype_of, scalar, shape_of
from tilewright.topi.shapes import differ, unequal

Activation = Callable[[Expr], Expr]
Cell = Callable[[Expr, Sequence[Expr]], list[Expr]]

_ACTIVATIONS: Final[dict[str, tuple[Callable[..., Expr], dict[str, float]]]] = {
    "affine": (lambda x, alpha, beta: op.add(op.multiply(x, scalar(alpha, x)), scalar(beta, x)),
               {"alpha": 1.0, "beta": 0.0}),
    "elu": (math.elu, {"alpha": 1.0}),
    "hardsigmoid": (math.hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": (math.leaky_relu, {"alpha": 0.01}),
    "relu": (op.nn.relu, {}),
    "scaledtanh": (lambda x, alpha, beta: op.multiply(op.tanh(op.multiply(x, scalar(beta, x))), scalar(alpha, x)),
                   {"alpha": 1.0, "beta": 1.0}),
    "sigmoid": (op.sigmoid, {}),
    "softplus": (math.softplus, {}),
    "softsign": (math.softsign, {}),
    "tanh": (op.tanh, {}),
    "thresholdedrelu": (math.thresholded_relu, {"alpha": 1.0}),
}
"""By lower-case name: the function, and its parameters with their defaults."""


@dataclass(frozen=True, slots=True)
class _Net:
    """The state shared by the three operators: `x` is (steps, batch, input), `directions` marks the backward ones."""

    x: Expr
    lengths: Expr | None
    hidden: int
    directions: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    layout: int
    clip: float
    node: Node
    rounded: Activation | None = None
    """Quantizes and dequantizes the left operand of products with quantized weights; None for float weights."""

    def product(self, x: Expr, w: Expr) -> Expr:
        """`x` times weights (outputs, inputs)."""
        return op.nn.dense(x if self.rounded is None else self.rounded(x), w)

    @property
    def gathers(self) -> bool:
        """Whether the outputs of all steps are used."""
        return bool(self.node.outputs[0])

    def clipped(self, x: Expr) -> Expr:
        """Clip the argument of an activation to [-clip, clip], if `clip` is positive."""
        return op.clip(x, a_min=-self.clip, a_max=self.clip) if self.clip > 0 else x

    def state(self, given: Expr | None, direction: int) -> Expr:
        """The initial state of a direction, (batch, hidden)."""
        batch = shape_of(self.x)[1]
        if given is not None and differ(found := shape_of(given)[0 if self.layout else 1], batch):
            self.node.refuse(f"an initial state has a batch of {found}, but X has one of {batch}")
        if given is None:
            shape = batch, self.hidden
            if any(isinstance(n, OpenSize) for n in shape):
                return op.zeros(shape=shape, dtype=dtype_of(self.x))
            return Constant(np.zeros(shape, self.x.tensor_type.dtype.numpy()))
        return op.take(given, _index(direction), axis=1 if self.layout else 0)

    def run(self, w: Expr, bias: Sequence[Expr | None], states: Sequence[Expr | None],
            cells: Callable[[int, Outside], Cell]) -> tuple[Expr, ...]:
        """Run all steps; return their outputs, then the last states. `bias[direction]` is added to the input product.
        """
        found = [self._direction(k, _part(w, k), bias[k], [self.state(s, k) for s in states], cells)
                 for k in range(len(self.directions))]
        lasts = [_joined([states[k] for states, _ in found], 1 if self.layout else 0) for k in range(len(states))]
        if not self.gathers:
            return (NOTHING, *lasts)
        every = _joined([rows[0] for _, rows in found], 1)
        return (transpose(every, (2, 0, 1, 3)) if self.layout else every, *lasts)

    def _direction(
        self, k: int, w: Expr, bias: Expr | None, states: list[Expr], cells: Callable[[int, Outside], Cell],
    ) -> tuple[list[Expr], list[Expr]]:
        """The last states of one direction, and its outputs of all steps if they are used."""
        steps, batch, size = self.node.static(self.x, "X")
        if not steps:
            return states, [Constant(np.zeros((0, batch, self.hidden), self.x.tensor_type.dtype.numpy()))]
        product = self.product(reshape(self.x, (steps * batch, size)), w)
        parts = reshape(op.add(product, bias) if bias is not None else product, (steps, batch, shape_of(w)[0]))
        backward = self.directions[k]

        def make(outside: Outside) -> Callable[[Expr, Sequence[Expr]], Turn]:
            source, cell = outside(parts), cells(k, outside)
            last = outside(size_value(steps - 1, _index(0))) if backward else None
            lengths = None if self.lengths is None else outside(reshape(cast(self.lengths, "int64"), (batch, 1)))

            def turn(number: Expr, before: Sequence[Expr]) -> Turn:
                step = number if last is None else self.node.settled(op.subtract(last, number))
                after = cell(op.take(source, step, axis=0), before)
                row = after[0]
                if lengths is not None:
                    within = op.less(step, lengths)
                    row = op.where(within, row, scalar(0, row))
                    after = [op.where(within, new, old) for new, old in zip(after, before, strict=True)]
                return Turn(after, [row] if self.gathers else [])

            return turn

        last, rows = repeat(steps, states, make, [backward] if self.gathers else [])
        if self.lengths is not None:  # the states of a sequence without steps are zero
            some = op.greater(reshape(self.lengths, (batch, 1)), scalar(0, self.lengths))
            last = [op.where(some, s, scalar(0, s)) for s in last]
        return last, rows


def _index(k: int) -> Constant:
    return Constant(np.asarray(k, np.int64))


def _joined(parts: Sequence[Expr], axis: int) -> Expr:
    """Stack the directions along a new dimension."""
    return op.stack(Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else op.expand_dims(parts[0], axis=axis)


def _part(x: Expr, k: int) -> Expr:
    """The slice of direction `k`."""
    return Constant(x.value[k], x.span) if isinstance(x, Constant) else op.take(x, _index(k), axis=0)


def _net(
    x: Expr, r: Expr, lengths: Expr | None, direction: str, activations: tuple[str, ...] | None,
    alphas: tuple[float, ...], betas: tuple[float, ...], default: tuple[str, ...], clip: float, layout: int, node: Node,
    gates: int, b: Expr | None,
) -> _Net:
    node.static(x, "X")
    turned = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction.lower())
    if turned is None:
        node.refuse(f"attribute 'direction' is '{direction}'; it is forward, reverse or bidirectional")
    count, rows, hidden = node.static(r, "R")
    if differ(count, len(turned)):
        node.refuse(f"R has weights for {count} directions, but attribute 'direction' is '{direction}'")
    if isinstance(hidden, OpenSize) or isinstance(rows, OpenSize):
        _require_rows(rows, hidden, gates, b)
    names = activations or default * len(turned)
    if names == default * 2:
        names = default * len(turned)  # a default for one direction applies to both
    if len(names) != len(default) * len(turned):
        node.refuse(f"attribute 'activations' has {len(names)} functions; {len(default) * len(turned)} are needed")
    left = {"alpha": list(alphas), "beta": list(betas)}
    made = [_activation(name, left, node) for name in names]
    each = tuple(tuple(made[k * len(default) : (k + 1) * len(default)]) for k in range(len(turned)))
    return _Net(transpose(x, (1, 0, 2)) if layout else x, lengths, shape_of(r)[2], turned, each, layout, clip, node)


def _require_rows(rows: int, hidden: int, gates: int, b: Expr | None) -> None:
    """Require dynamic numbers of rows of weights and of biases to be those of the gates. Raises `UnequalSizesError`."""
    for found, wanted in ((rows, gates * hidden), (shape_of(b)[1] if b is not None else None, 2 * gates * hidden)):
        if found is not None and differ(found, wanted):
            raise unequal(found, wanted, f"{found} rows of weights must be {wanted}")


def _activation(name: str, left: dict[str, list[float]], node: Node) -> Activation:
    """An activation by name; its parameters are the next given alpha and beta, or their defaults."""
    found = _ACTIVATIONS.get(name.lower())
    if found is None:
        node.refuse(f"attribute 'activations' has '{name}'; the functions are {', '.join(sorted(_ACTIVATIONS))}")
    function, defaults = found
    numbers = {name: left[name].pop(0) if left[name] else value for name, value in defaults.items()}
    return lambda x: function(x, **numbers)


def _gates(x: Expr, count: int, hidden: int) -> list[Expr]:
    return [slice_axis(x, 1, k * hidden, (k + 1) * hidden) for k in range(count)]


def _sum(a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else op.add(a, b)


def _biases(b: Expr | None, net: _Net, rows: int) -> list[tuple[Expr | None, Expr | None]]:
    """For each direction, the bias of the input product and that of the hidden state's product."""
    if b is None:
        return [(None, None)] * len(net.directions)
    parts = [_part(b, k) for k in range(len(net.directions))]
    return [(slice_axis(p, 0, 0, rows), slice_axis(p, 0, rows, 2 * rows)) for p in parts]


@converter("RNN")
def rnn(
    X: Expr, W: Expr, R: Expr, B: Expr | None = None, sequence_lens: Expr | None = None, initial_h: Expr | None = None,
    *, activation_alpha: tuple[float, ...] = (), activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = ("Tanh", "Tanh"), clip: float = 0.0, direction: str = "forward",
    hidden_size: int = 0, layout: int = 0, output_sequence: int = 0, node: Node,
) -> tuple[Expr, ...]:
    """H = f(X W' + H R' + Wb + Rb)."""
    net = _net(X, R, sequence_lens, direction, activations, activation_alpha, activation_beta, ("Tanh",), clip, layout,
               node, 1, B)

    def cells(k: int, outside: Outside) -> Cell:
        recurrent, (f,) = outside(_part(R, k)), net.activations[k]
        return lambda x, states: [f(net.clipped(op.add(x, op.nn.dense(states[0], recurrent))))]

    return net.run(W, [_sum(*b) for b in _biases(B, net, net.hidden)], [initial_h], cells)


@converter("GRU")
def gru(
    X: Expr, W: Expr, R: Expr, B: Expr | None = None, sequence_lens: Expr | None = None, initial_h: Expr | None = None,
    *, activation_alpha: tuple[float, ...] = (), activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] | None = None, clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0, node: Node,
) -> tuple[Expr, ...]:
    """z, r = f(X W' + H R' + b); h = g(X W' + (r * H) R' + b) or g(X W' + r * (H R' + Rb) + Wb); H = h + z (H - h)."""
    net = _net(X, R, sequence_lens, direction, activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh"),
               clip, layout, node, 3, B)
    n = net.hidden
    biases = _biases(B, net, 3 * n)

    def cells(k: int, outside: Outside) -> Cell:
        weights, bias, (f, g) = _part(R, k), biases[k][1], net.activations[k]
        first = outside(weights if linear_before_reset else slice_axis(weights, 0, 0, 2 * n))
        last = None if linear_before_reset else outside(slice_axis(weights, 0, 2 * n, 3 * n))
        hidden_bias = outside(slice_axis(bias, 0, 2 * n, 3 * n)) if bias is not None and linear_before_reset else None

        def cell(x: Expr, states: Sequence[Expr]) -> list[Expr]:
            h = states[0]
            product = op.nn.dense(h, first)
            xz, xr, xh = _gates(x, 3, n)
            hz, hr, *hh = _gates(product, 3 if linear_before_reset else 2, n)
            z, r = f(net.clipped(op.add(xz, hz))), f(net.clipped(op.add(xr, hr)))
            inner = (op.nn.dense(op.multiply(r, h), last) if last is not None
                     else op.multiply(r, op.add(hh[0], hidden_bias) if hidden_bias is not None else hh[0]))
            new = g(net.clipped(op.add(xh, inner)))
            return [op.add(new, op.multiply(z, op.subtract(h, new)))]

        return cell

    def bias_of_input(k: int) -> Expr | None:
        of_input, of_hidden = biases[k]
        if of_input is None or of_hidden is None or not linear_before_reset:
            return _sum(of_input, of_hidden)
        added = op.add(slice_axis(of_input, 0, 0, 2 * n), slice_axis(of_hidden, 0, 0, 2 * n))
        return op.concatenate(Tuple((added, slice_axis(of_input, 0, 2 * n, 3 * n))), axis=0)

    return net.run(W, [bias_of_input(k) for k in range(len(net.directions))], [initial_h], cells)


@converter("LSTM")
def lstm(
    X: Expr, W: Expr, R: Expr, B: Expr | None = None, sequence_lens: Expr | None = None, initial_h: Expr | None = None,
    initial_c: Expr | None = None, P: Expr | None = None, *, activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (), activations: tuple[str, ...] | None = None, clip: float = 0.0,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, layout: int = 0, output_sequence: int = 0,
    node: Node,
) -> tuple[Expr, ...]:
    """i, f, o = f(X W' + H R' + P * C + b); C = f * C + i * g(X W' + H R' + b); H = o * h(C); o sees the new C."""
    net = _net(X, R, sequence_lens, direction, activations, activation_alpha, activation_beta,
               ("Sigmoid", "Tanh", "Tanh"), clip, layout, node, 4, B)
    return _lstm(net, W, R, B, initial_h, initial_c, P, bool(input_forget))


@converter("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    X: Expr, W: Expr, R: Expr, B: Expr | None = None, sequence_lens: Expr | None = None, initial_h: Expr | None = None,
    initial_c: Expr | None = None, P: Expr | None = None, W_scale: Expr | None = None, W_zero_point: Expr | None = None,
    R_scale: Expr | None = None, R_zero_point: Expr | None = None, *, activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (), activations: tuple[str, ...] | None = None, clip: float = 0.0,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, node: Node,
) -> tuple[Expr, ...]:
    """LSTM with 8-bit weights (directions, inputs, gates * hidden); inputs and states are quantized to uint8."""
    w, r = _dequantized(W, W_scale, W_zero_point, "W", node), _dequantized(R, R_scale, R_zero_point, "R", node)
    net = _net(X, r, sequence_lens, direction, activations, activation_alpha, activation_beta,
               ("Sigmoid", "Tanh", "Tanh"), clip, 0, node, 4, B)
    return _lstm(replace(net, rounded=quantize.dynamically_quantized), w, r, B, initial_h, initial_c, P,
                 bool(input_forget))


def _dequantized(x: Expr, scale: Expr | None, zero_point: Expr | None, name: str, node: Node) -> Constant:
    """Weights (directions, gates * hidden, inputs) as float32; scales are per direction, or per direction and output.
    """
    if scale is None or zero_point is None:
        node.refuse(f"input {name}_scale or {name}_zero_point is missing; both are needed")
    q, s, z = node.value(x, name), node.value(scale, f"{name}_scale"), node.value(zero_point, f"{name}_zero_point")
    if s.shape not in ((q.shape[0],), (q.shape[0], q.shape[2])) or z.shape != s.shape:
        node.refuse(f"{name}_scale has shape {s.shape} and {name}_zero_point {z.shape}; both must be {(q.shape[0],)} "
                    f"or {(q.shape[0], q.shape[2])}")
    rows = (len(q), 1, -1)
    real = (q.astype(np.float32) - z.reshape(rows).astype(np.float32)) * s.reshape(rows)
    return Constant(np.ascontiguousarray(real.transpose(0, 2, 1)), x.span)


def _lstm(
    net: _Net, W: Expr, R: Expr, B: Expr | None, initial_h: Expr | None, initial_c: Expr | None, P: Expr | None,
    input_forget: bool,
) -> tuple[Expr, ...]:
    n = net.hidden
    if P is not None and differ(shape_of(P)[1], 3 * n):
        net.node.refuse(f"P has {shape_of(P)[1]} weights for each direction; {3 * n} are needed")

    def cells(k: int, outside: Outside) -> Cell:
        recurrent, (f, g, h) = outside(_part(R, k)), net.activations[k]
        peepholes = None if P is None else [outside(slice_axis(_part(P, k), 0, j * n, (j + 1) * n)) for j in range(3)]

        def cell(x: Expr, states: Sequence[Expr]) -> list[Expr]:
            def seen(gate: Expr, j: int, c: Expr) -> Expr:
                return f(net.clipped(gate if peepholes is None else op.add(gate, op.multiply(peepholes[j], c))))

            before = states[1]
            xi, xo, xf, xc = _gates(op.add(x, net.product(states[0], recurrent)), 4, n)
            i = seen(xi, 0, before)
            keep = op.subtract(scalar(1, i), i) if input_forget else seen(xf, 2, before)
            c = op.add(op.multiply(keep, before), op.multiply(i, g(net.clipped(xc))))
            return [op.multiply(seen(xo, 1, c), h(c)), c]

        return cell

    return net.run(W, [_sum(*b) for b in _biases(B, net, 4 * n)], [initial_h, initial_c], cells)
