"""Runs steps of recurrent operators over time: as a loop (`relay/loops.py`), or unrolled for few steps.

A step takes the data of one time step and the states before it; it returns a row of the result and the new states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import number, reshape, size_value, slice_axis, transpose
from tilewright.relay.loops import Loop, Turn

Step = Callable[[Sequence[Expr], Sequence[Expr]], tuple[Expr, list[Expr]]]

_FEW: Final = 4
"""Largest number of time steps that is unrolled."""


def over_time(data: Sequence[Expr], states: Sequence[Expr], step: Step, reverse: bool = False) -> Expr:
    """Run all steps over data (time, batch, …), and stack the rows along the first dimension."""
    count = data[0].tensor_type.shape[0]
    if count <= _FEW:
        rows: list[Expr] = []
        for k in range(count):
            place = count - 1 - k if reverse else k
            row, states = step([reshape(slice_axis(x, 0, place, place + 1), x.tensor_type.shape[1:]) for x in data],
                               states)
            rows.append(row)
        return op.stack(Tuple(tuple(rows[::-1] if reverse else rows)), axis=0)
    loop = Loop()
    sources = [loop.outside(x) for x in data]
    final = loop.outside(size_value(count - 1, number(0)))

    def turn(time: Expr, values: Sequence[Expr]) -> Turn:
        place = op.subtract(final, time) if reverse else time
        row, after = step([op.take(x, place, axis=0) for x in sources], values)
        return Turn(after, (row,))

    return loop.run(count, states, turn, (reverse,))[2][0]


def sequence(data: Sequence[Expr], states: Sequence[Expr], step: Step, time_major: bool, reverse: bool = False) -> Expr:
    """Run all steps as `over_time` does, also over data (batch, time, …). Raises `ModelError` for another rank."""
    if any(x.tensor_type.ndim != 3 for x in data):
        raise ModelError(f"its data have {' and '.join(str(x.tensor_type.ndim) for x in data)} dimensions, but must "
                         "have 3: time, batch and depth; the file is damaged: convert it again", code="TW0107")
    found = over_time([x if time_major else transpose(x, (1, 0, 2)) for x in data], states, step, reverse)
    return found if time_major else transpose(found, (1, 0, 2))
