"""LSTM over a sequence (Hochreiter and Schmidhuber, 1997), unrolled over the time steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import PrimExpr, Value, Var, add, const, mul
from tilewright.topi import math
from tilewright.topi.shapes import text
from tilewright.topi.transform import stack

Activation = Callable[[te.Tensor], te.Tensor]


def _product(x: te.Tensor, w: te.Tensor, name: str) -> te.Tensor:
    """Return `x[b, k] * w[j, k]` summed over k."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0], w.shape[0]), lambda b, j: te.sum(x(b, k) * w(j, k), axis=k), name=name)


def _zeros(batch: Any, width: Any, dtype: str, name: str) -> te.Tensor:
    return te.compute((batch, width), lambda b, j: const(0, dtype), name=name, inline=False)


def lstm(
    Xs: te.Tensor, Wi: te.Tensor, Wh: te.Tensor, Bi: te.Tensor | None = None, Bh: te.Tensor | None = None,
    h_init: te.Tensor | None = None,
    c_init: te.Tensor | None = None, proj: te.Tensor | None = None, p_i: te.Tensor | None = None,
    p_f: te.Tensor | None = None,
    p_o: te.Tensor | None = None, f_act: Activation = math.sigmoid, g_act: Activation = math.tanh,
    h_act: Activation = math.tanh, reverse: bool = False, weight_layout: str = "IFGO",
) -> tuple[te.Tensor, te.Tensor]:
    """Return the hidden states and cell states, both (time, batch, hidden), of a sequence `Xs` (time, batch, in).

    `Wi` (4 * hidden, in), `Wh` (4 * hidden, hidden) and the biases (4 * hidden,) hold the input, forget, cell and
    output gates in the order of `weight_layout`. `proj` (p, hidden) projects hidden states to size p; `p_i`, `p_f`,
    `p_o` (batch, hidden) are peepholes. With `reverse`, the sequence is processed from its end; states are in order of
    computation. Raises `ShapeError`.
    """
    if sorted(weight_layout) != sorted("IFGO"):
        raise ShapeError(f"weight_layout '{weight_layout}' must contain each of the letters I, F, G and O once")
    time, batch, _ = Xs.extents
    hidden = Wi.extents[0] // 4
    width = hidden if proj is None else proj.extents[0]
    if Wi.extents != (4 * hidden, Xs.extents[2]) or Wh.extents != (4 * hidden, width):
        raise ShapeError(
            f"weights {text(Wi.extents)} and {text(Wh.extents)} do not fit inputs {text(Xs.extents)} and hidden states "
            f"of {width}"
        )
    h = _zeros(batch, width, Xs.dtype, "h_init") if h_init is None else h_init
    c = _zeros(batch, hidden, Xs.dtype, "c_init") if c_init is None else c_init
    hs, cs = [], []

    def gate(letter: str, sums: tuple[te.Tensor, te.Tensor], peephole: te.Tensor | None, cell: te.Tensor) -> te.Tensor:
        first = weight_layout.index(letter) * hidden

        def element(b: Var, j: Var) -> PrimExpr:
            value: Value = add(sums[0](b, first + j), sums[1](b, first + j))
            for bias in (Bi, Bh):
                value = value if bias is None else add(value, bias(first + j))
            return add(value, 0 if peephole is None else mul(peephole(b, j), cell(b, j)))

        return te.compute((batch, hidden), element, name=f"gate_{letter}")

    for t in range(time):
        step = time - 1 - t if reverse else t
        x = te.compute(Xs.shape[1:], lambda b, k, step=step: Xs(step, b, k), name="x")
        sums = _product(x, Wi, "from_input"), _product(h, Wh, "from_state")
        i, f, g = f_act(gate("I", sums, p_i, c)), f_act(gate("F", sums, p_f, c)), g_act(gate("G", sums, None, c))
        c = te.compute(
            (batch, hidden), lambda b, j, i=i, f=f, g=g, c=c: f(b, j) * c(b, j) + i(b, j) * g(b, j), name="cell",
            inline=False
        )
        o, shown = f_act(gate("O", sums, p_o, c)), h_act(c)
        h = te.compute(
            (batch, hidden), lambda b, j, o=o, shown=shown: o(b, j) * shown(b, j), name="hidden", inline=False
        )
        h = h if proj is None else _product(h, proj, "projected")
        hs.append(h)
        cs.append(c)
    return stack(hs, 0), stack(cs, 0)


__all__ = ["lstm"]
