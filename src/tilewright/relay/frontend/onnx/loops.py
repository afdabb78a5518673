"""Loop and Scan: their bodies as recursive functions, or unrolled if there are few iterations.

Values that a body captures are computed before the loop. The values that iterations emit are written into one tensor. A
loop whose states change type, or are sequences, is unrolled if its trip count is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import numpy as np
import onnx

from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.limits import MOST_TURNS
from tilewright.base.types import OpenSize
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.core.node import NotKnownError, SizeNotKnownError
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, pad, reshape, size_value, slice_axis, transpose
from tilewright.relay.loops import Loop, Turn
from tilewright.relay.types_of import dtype_of, rank, shape_of
from tilewright.topi.shapes import at_least, differ

Outside = Callable[[Expr], Expr]
MakeTurn = Callable[[Outside], Callable[[Expr, Sequence[Expr]], Turn]]

FEW: Final = 4
"""Largest trip count that is unrolled."""
_NOT_ALIKE: Final = ", because the types of the loop's values change between iterations"


def repeat(count: int, states: Sequence[Expr], make: MakeTurn,
           reverse: Sequence[bool]) -> tuple[list[Expr], list[Expr]]:
    """Run `count` iterations; return the last states, and the emitted values stacked along a new first dimension.

    Values are stacked from the end where `reverse` is set. `make` takes the function that makes outer values usable in
    an iteration, and returns the iteration.
    """
    if count > FEW:
        loop = Loop()
        try:
            return loop.run(count, states, make(loop.outside), reverse)[1:]
        except CompileError:
            if isinstance(count, OpenSize) or count > MOST_TURNS:
                raise  # unroll a few iterations whose types differ; unrolling reports its own errors
    turn = make(_itself)
    if not count:
        return list(states), list(map(_none, turn(_number(0), states).rows))
    done, rows = Turn(states), []
    for k in range(count):
        done = turn(_number(k), done.states)
        rows.append(done.rows)
    return list(done.states), [_stacked(column[::-1] if back else column)
                               for column, back in zip(zip(*rows, strict=True), reverse, strict=True)]


def _itself(e: Expr) -> Expr:
    return e


def _number(k: int) -> Constant:
    return Constant(np.asarray(k, np.int64))


def _none(row: Expr) -> Expr:
    """An empty stack of rows like `row`."""
    return op.zeros(shape=(0, *shape_of(row)), dtype=dtype_of(row))


def _stacked(rows: Sequence[Expr]) -> Expr:
    return op.stack(Tuple(tuple(rows)), axis=0) if len(rows) > 1 else op.expand_dims(rows[0], axis=0)


# Loop


@converter("Loop")
def loop(
    M: Expr | None = None, cond: Expr | None = None, *v_initial: Expr, body: onnx.GraphProto, node: Node,
) -> tuple[Expr, ...]:
    """The states after the last iteration, then the emitted values along a new first dimension."""
    made = _Loop(body, list(v_initial), node)
    if made.gathers < 0:
        node.refuse(f"its body gives {len(body.output)} values, but must give a condition and {len(v_initial)} states; "
                    "the file is damaged: export it again")
    limit = _limit(M, made, node)
    first = node.known(cond) if cond is not None else np.True_
    if first is None and made.needs_count:
        first = node.value(cond, "cond") if cond is not None else np.True_
    if first is not None and not first.reshape(-1)[0]:
        limit = 0
    if isinstance(limit, int) and first is not None and (made.has_sequences or (limit <= FEW and made.counts)):
        return made.copied(limit)
    return made.looped(limit, None if first is not None else reshape(cond, ()) if cond is not None else None)


def _limit(given: Expr | None, made: _Loop, node: Node) -> int | Expr | None:
    """The trip count: an int if it is known or must be known; None without a limit."""
    if given is None:
        if made.needs_count:
            node.refuse("it has no trip count, so that the sizes of its results are unknown; give input 'M' a value")
        return None
    if node.known(given) is None and not made.needs_count:
        return reshape(given, ())
    count, *others = node.sizes(given, "M")
    if others:
        node.refuse(f"input 'M' must be one number, but its shape is {shape_of(given)}")
    return at_least(count, 0)  # type: ignore[no-any-return]


class _Loop:
    """The conversion state of one Loop."""

    def __init__(self, body: onnx.GraphProto, states: list[Expr], node: Node) -> None:
        self.body, self.states, self.node = body, states, node
        self.gathers = len(body.output) - 1 - len(states)
        self.has_sequences = any(isinstance(s, Tuple) for s in states)
        self.needs_count = self.gathers > 0 or self.has_sequences
        self.decides = False
        """Whether an iteration converted so far computes the condition for the next one."""

    @property
    def counts(self) -> bool:
        """Whether the body's condition is constant or passed through, so that only the trip count ends the loop."""
        made = {name: n for n in self.body.node for name in n.output}
        name = self.body.output[0].name
        while name in made and made[name].op_type == "Identity":
            name = made.pop(name).input[0]  # a damaged file may contain a cycle
        return (name == self.body.input[1].name or (name in made and made[name].op_type == "Constant")
                or name in {t.name for t in self.body.initializer})

    def turn(self, number: Expr, states: Sequence[Expr],
             outside: Outside | None) -> tuple[Expr, list[Expr], list[Expr]]:
        """The condition after an iteration, its states and emitted values. The condition before it is true."""
        first = [_declared(number, self.body.input[0]), _declared(Constant(np.asarray(True)), self.body.input[1])]
        going, *rest = self.node.import_graph(self.body, [*first, *states], outside)
        return going, rest[: len(states)], rest[len(states) :]

    def copied(self, limit: int | None) -> tuple[Expr, ...]:
        """The unrolled loop; the trip count must be known now, or becomes known while the model runs."""
        states, rows = self.states, list[list[Expr]]()
        if isinstance(limit, OpenSize):
            self.node.refuse("it has a symbolic number of iterations and values of changing types; give numbers in "
                             "shapes=, or keep the types the same in every iteration")
        if limit is not None and limit > MOST_TURNS and self.counts:
            self._refuse_to_copy(f"it has {limit} iterations")
        while limit is None or len(rows) < limit:
            if len(rows) == MOST_TURNS:
                self._refuse_to_copy(f"it has more than {MOST_TURNS} iterations")
            going, states, row = self.turn(_number(len(rows)), states, None)
            rows.append(row)
            if len(rows) != limit and not self.node.value(going, self.body.output[0].name).reshape(-1)[0]:
                break
        if rows:
            return (*states, *map(_stacked, zip(*rows, strict=True)))
        return (*states, *map(_none, self.turn(_number(0), states, None)[2] if self.gathers else []))

    def _refuse_to_copy(self, turns: str) -> NoReturn:
        self.node.refuse(f"{turns} and values of changing types; such loops are unrolled up to {MOST_TURNS} "
                         "iterations; keep the shapes the same in every iteration, for example by padding")

    def looped(self, limit: int | Expr | None, first: Expr | None) -> tuple[Expr, ...]:
        """The loop as a recursive function. `first` is the condition before the first iteration; None means true."""
        loop = Loop()

        def turn(number: Expr, states: Sequence[Expr]) -> Turn:
            going, after, rows = self.turn(number, states, loop.outside)
            found = self.node.known(going)
            self.decides = found is None or not found.reshape(-1)[0]
            return Turn(after, rows, reshape(going, ()) if self.decides else None)

        try:
            turns, states, rows = loop.run(limit, self.states, turn, going=first)
        except CompileError as error:
            if isinstance(limit, OpenSize) or isinstance(error, SizeNotKnownError):
                raise
            changes = (isinstance(error, ShapeError) and error.origin is None) or isinstance(error, NotKnownError)
            if not changes and (not isinstance(limit, int) or limit > MOST_TURNS):
                raise
            if isinstance(limit, int) and limit > MOST_TURNS and isinstance(error, NotKnownError):
                raise
            if limit is not None and not isinstance(limit, int):
                limit = max(0, int(self.node.value(limit, "M", _NOT_ALIKE).reshape(-1)[0]))
            if first is not None and not self.node.value(first, "cond", _NOT_ALIKE).reshape(-1)[0]:
                limit = 0
            return self.copied(limit)
        if rows and self.decides:
            rows = [*(op.dyn.strided_slice(r, reshape(_number(0), (1,)), reshape(turns, (1,)),
                                           reshape(_number(1), (1,))) for r in rows)]
        return (*states, *rows)


def _declared(x: Expr, info: onnx.ValueInfoProto) -> Expr:
    """Reshape a scalar to the shape that the body declares, which may be (1,)."""
    dims = info.type.tensor_type.shape.dim
    return reshape(x, (1,) * len(dims)) if len(dims) != rank(x) else x


# Scan


@converter("Scan", since=8)
def scan_batched(
    sequence_lens: Expr | None = None, *initial_state_and_scan_inputs: Expr, body: onnx.GraphProto,
    num_scan_inputs: int, directions: tuple[int, ...] = (), node: Node,
) -> tuple[Expr, ...]:
    """Scan each sample of a batch up to its own length; the outputs after that are zero."""
    given = initial_state_and_scan_inputs
    states = len(given) - num_scan_inputs
    samples, most = node.static(given[-1], "scan_input")[:2]
    lengths = [most] * samples if sequence_lens is None else node.ints(sequence_lens, "sequence_lens")
    results = []
    for k, length in enumerate(lengths):
        of_sample: list[Expr] = [op.take(x, Constant(np.asarray(k, np.int64)), axis=0) for x in given]
        of_sample[states:] = [slice_axis(x, 0, 0, length) if length < most else x for x in of_sample[states:]]
        scanned = scan(*of_sample, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions,
                       node=node)
        results.append([*scanned[:states], *(pad(r, [(0, most - length), *[(0, 0)] * (rank(r) - 1)], 0)
                                             for r in scanned[states:])])
    return tuple(map(_stacked, zip(*results, strict=True)))


@converter("Scan", since=9)
def scan(
    *initial_state_and_scan_inputs: Expr, body: onnx.GraphProto, num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] = (), scan_input_directions: tuple[int, ...] = (),
    scan_output_axes: tuple[int, ...] = (), scan_output_directions: tuple[int, ...] = (), node: Node,
) -> tuple[Expr, ...]:
    """One iteration per slice of the scanned tensors; returns the last states and the outputs along `scan_output_axes`.
    """
    given = initial_state_and_scan_inputs
    split = len(given) - num_scan_inputs
    if not 0 <= split <= len(body.output) or num_scan_inputs < 1:
        node.refuse(f"it has {len(given)} inputs, {num_scan_inputs} of them scanned, but its body gives "
                    f"{len(body.output)} values; the file is damaged: export it again")
    states, scanned = list(given[:split]), given[split:]
    axes = [axis_of(a, rank(x), node) for a, x in zip(scan_input_axes or (0,) * len(scanned), scanned, strict=True)]
    count, *others = (node.static(x, "scan_input")[a] for a, x in zip(axes, scanned, strict=True))
    if any(differ(n, count) for n in others):
        node.refuse(f"its scanned inputs have {', '.join(map(str, sorted({count, *others})))} slices; all must have "
                    "the same number")
    backward = scan_input_directions or (0,) * len(scanned)

    def make(outside: Outside) -> Callable[[Expr, Sequence[Expr]], Turn]:
        sources, last = [outside(x) for x in scanned], outside(size_value(count - 1, _number(0)))

        def turn(number: Expr, values: Sequence[Expr]) -> Turn:
            places: list[Expr] = [op.subtract(last, number) if back else number for back in backward]
            slices = [node.settled(op.take(x, p, axis=a)) for x, p, a in zip(sources, map(node.settled, places), axes,
                strict=True)]
            found = node.import_graph(body, [*values, *slices], outside)
            return Turn(found[:split], found[split:])

        return turn

    reverse = [bool(d) for d in scan_output_directions or (0,) * (len(body.output) - split)]
    last, rows = repeat(count, states, make, reverse)
    return (*last, *(_along(r, a, node) for r, a in zip(rows, scan_output_axes or (0,) * len(rows), strict=True)))


def _along(x: Expr, axis: int, node: Node) -> Expr:
    """Move the first dimension of `x` to `axis`."""
    rest = list(range(1, rank(x)))
    rest.insert(axis_of(axis, rank(x), node), 0)
    return transpose(x, rest)
