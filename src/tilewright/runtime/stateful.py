"""Programs with states: outputs of a call that are inputs of the next one, such as caches and recurrent states.

    chat = model.stateful({"past.*": "present.*"})      model: (ids, past.key, past.value) -> (logits, present.key, …)
    logits = chat(ids)                                  past is empty or zero
    logits = chat(ids[:, -1:])                          past is what the first call returned as present

A state has two buffers. A call reads one and writes the other, so nothing is copied between calls, and a program may
read a state after it has written its next value. The buffers of a growing state grow by half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.forks import new_lock
from tilewright.base.nd import aligned_empty, as_numpy
from tilewright.base.settings import nearest
from tilewright.runtime.call_inputs import in_order
from tilewright.runtime.executable import Executable
from tilewright.runtime.guards import shape_of
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.sizes import solved

Array = np.ndarray[Any, Any]
_GROWTH: Final = 1.5


class _Buffers:
    """The two buffers of a state; `now` is its value."""

    def __init__(self, value: Array) -> None:
        self.now = value
        self._spare: Array = aligned_empty((0,))
        self._used: Array = aligned_empty((0,))

    def next(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return memory for the next value, which does not overlap `now`."""
        needed = math.prod(shape) * dtype.itemsize
        if self._spare.nbytes < needed:
            room = needed if not self._spare.nbytes else int(needed * _GROWTH)
            self._spare = aligned_empty((room,))
        return self._spare[:needed].view(dtype).reshape(shape)

    def advance(self, value: Array) -> None:
        """Make the result of `next` the value."""
        self.now, self._spare, self._used = value, self._used, self._spare


class Stateful:
    """A program whose states stay with it: a call takes the other inputs, and returns the other outputs.

    One object has one sequence of states; calls from several threads take turns. Any number of objects share the code
    and the weights of one program.
    """

    def __init__(
        self, program: Executable, states: Mapping[str, str], initial: Mapping[str, Any] | None = None
    ) -> None:
        """`states` maps inputs to outputs; `*` in both stands for the same text. See `reset` for `initial`.

        Raises `InputError` for names that the program lacks, and for a state whose input and output differ in type.
        """
        self.program = program
        inputs = {t.name: t for t in program.inputs}
        outputs = {t.name: k for k, t in enumerate(program.outputs)}
        self._pairs = {n: outputs[o] for n, o in _expanded(states, inputs, outputs).items()}
        """The position of the output for each input that is a state."""
        for name, k in self._pairs.items():
            _check_pair(inputs[name], program.outputs[k])
        self._inputs = [t for t in program.inputs if t.name not in self._pairs]
        self._returned = [k for k in range(len(program.outputs)) if k not in set(self._pairs.values())]
        self._lock = new_lock()
        self._buffers: dict[str, _Buffers] = {}
        self._initial: dict[str, Array] = {}
        self.reset(initial)

    @property
    def state(self) -> dict[str, Array]:
        """The states by the names of their inputs, empty before the first call. The next calls overwrite them."""
        return {n: b.now for n, b in self._buffers.items()}

    def reset(self, initial: Mapping[str, Any] | None = None) -> None:
        """Start again with these states; the others are zeros, with the smallest sizes that the program takes with the
        other inputs. Raises `InputError` for a name that is no state."""
        given = dict(initial or {})
        for name in given:
            if name not in self._pairs:
                raise InputError(
                    f"'{name}' is not a state; the states are {', '.join(self._pairs)}{nearest(name, self._pairs)}",
                    code="TW0702")
        with self._lock:
            self._buffers = {}
            self._initial = {n: as_numpy(v) for n, v in given.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the inputs that are no states, by position or by name. Raises `InputError`, and then keeps the states
        as they are."""
        given = self._named(args, kwargs)
        with self._lock:
            buffers = self._buffers or self._first(given)
            feed = {t.name: buffers[t.name].now if t.name in buffers else given[t.name] for t in self.program.inputs}
            out: list[Array | None] = [None] * len(self.program.outputs)
            plan = self._plan(feed)
            for name, k in self._pairs.items():
                dtype, shape = plan.output_types[k]
                out[k] = buffers[name].next(shape, dtype)
            found = self.program(*feed.values(), out=out)
            results = found if isinstance(found, tuple) else (found,)
            for name, k in self._pairs.items():
                buffers[name].advance(results[k])
            self._buffers = buffers
        returned = tuple(results[k] for k in self._returned)
        return returned[0] if len(returned) == 1 else returned

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [t.name for t in self._inputs]
        values = in_order(names, args, kwargs, lambda: f"{', '.join(map(str, self._inputs))} beside its states")
        return dict(zip(names, map(as_numpy, values), strict=True))

    def _first(self, given: Mapping[str, Array]) -> dict[str, _Buffers]:
        """Return the states before the first call."""
        program = self.program
        known = {**self._initial, **given}
        sizes = {s.name: s.least for s in program.manifest.symbols}
        sizes |= solved((t.shape, known[t.name].shape) for t in program.inputs if t.name in known)
        return {
            t.name: _Buffers(
                self._initial[t.name] if t.name in self._initial else np.zeros(shape_of(t, sizes), t.dtype.numpy()))
            for t in program.inputs if t.name in self._pairs}

    def _plan(self, feed: Mapping[str, Array]) -> Executable:
        program = self.program
        return program.at(tuple(x.shape for x in feed.values())) if isinstance(program, OpenExecutable) else program


def _expanded(
    states: Mapping[str, str], inputs: Mapping[str, TensorInfo], outputs: Mapping[str, int]
) -> dict[str, str]:
    """Return the names of pairs, with every `*` replaced."""
    found: dict[str, str] = {}
    for name, output in states.items():
        head, star, tail = name.partition("*")
        if not star:
            found[name] = output
            continue
        between = {
            n: n[len(head) : len(n) - len(tail)] for n in inputs
            if n.startswith(head) and n.endswith(tail) and len(n) >= len(head) + len(tail)}
        if not between:
            raise InputError(f"no input matches the state '{name}'; the inputs are {', '.join(inputs)}", code="TW0702")
        found.update({n: output.replace("*", text) for n, text in between.items()})
    for name, output in found.items():
        if name not in inputs:
            raise InputError(
                f"the state '{name}' is not an input; the inputs are {', '.join(inputs)}{nearest(name, inputs)}",
                code="TW0702")
        if output not in outputs:
            raise InputError(
                f"the state '{name}' is '{output}' of the call before, which is not an output; the outputs are "
                f"{', '.join(outputs)}{nearest(output, outputs)}", code="TW0702")
    if len({*found.values()}) != len(found):
        raise InputError(
            f"two states are the same output: {', '.join(f'{n} = {o}' for n, o in found.items())}", code="TW0702")
    return found


def _check_pair(before: TensorInfo, after: TensorInfo) -> None:
    pairs = zip(before.shape, after.shape, strict=False)
    fixed = (isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if before.dtype != after.dtype or len(before.shape) != len(after.shape) or any(fixed):
        raise InputError(
            f"the state {before} cannot be the output {after} of the call before: they differ in type", code="TW0702")
