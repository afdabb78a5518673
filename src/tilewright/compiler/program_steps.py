"""Steps of a program's manifest, made from a memory plan, the kernel table and the code of its kernels.

    step of the plan: conv2d_relu(input[0], constant[3]) -> workspace[64]
      ->  KernelCall("kernel_0_conv2d_relu", (input 0, constant 4096, workspace 64), "/conv1 (Conv)")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.nd import content
from tilewright.base.types import OpenSize, TensorType
from tilewright.compiler.constant_pool import ConstantPool
from tilewright.compiler.kernel import Argument, KeptStage
from tilewright.compiler.kernel_code import ProgramCode
from tilewright.compiler.kernel_table import KernelTable, external_call, origin_of, title_of
from tilewright.relay.expr import Call, Function
from tilewright.relay.interpreter import Meaning, prepared
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.op.runtime_checks import RequireZero
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, MemorySpace, PlanStep
from tilewright.relay.visitor import calls
from tilewright.runtime.manifest import Kept, Piece
from tilewright.runtime.program import (
    KEPT,
    Check,
    Copy,
    ExternalStep,
    HostStep,
    HostValue,
    KernelCall,
    Place,
    Step,
    external_symbol,
)
from tilewright.runtime.sizes import Size, check_size
from tilewright.scalar.arith.open_sizes import takes_open
from tilewright.scalar.expr import LT, PrimExpr, maximum, minimum, sub
from tilewright.scalar.walk import text_of

Array = np.ndarray[Any, Any]


class StepMaker:
    """Makes the steps of the plans of one program, which share a pool of constants, and the messages that a run may end
    with.

    `in_python` tells whether a function without a native kernel may become a step that runs in Python. `calls` are the
    modules of other compilers that native code calls, where a program with control flow cannot make them steps
    (`external` is false).
    """

    def __init__(
        self, table: KernelTable, code: ProgramCode, in_python: bool = True, failures: Sequence[str] = (),
        external: bool | None = None
    ) -> None:
        self.table, self.code, self.in_python = table, code, in_python
        self._has_external_steps = in_python if external is None else external
        self.constants = ConstantPool()
        self.failures: list[str] = [*failures]
        self.calls: list[ExternalStep] = []
        self.kept: list[Kept] = []
        """The values that the program computes from constants and keeps, if sizes are dynamic."""
        self.pieces: list[Piece] = []
        """The pieces of memory of all plans, if sizes are dynamic."""
        self._first_piece = self._steps = 0
        self._known: Sequence[Array] = ()

    def steps(self, plan: MemoryPlan) -> tuple[Step, ...]:
        """Return the steps of a plan. Raises `CompileError` for a step in Python in a program that allows none."""
        self._known, self._first_piece = plan.constants, len(self.pieces)
        self.pieces += [
            Piece(written(p.nbytes), self._steps + p.birth, self._steps + p.death) for p in plan.pieces if p.offset < 0]
        self._steps += len(plan.steps)
        return tuple(map(self._step, plan.steps))

    def value(self, loc: Location) -> HostValue:
        """Return an array of the plan as steps without native code read and write it."""
        return HostValue(self._place(loc), static_shape(loc.type, "a value"), loc.type.dtype, loc.strides)

    def _written(self, loc: Location) -> HostValue:
        """Return the `value` of a location with dynamic sizes as text."""
        value = self.value(loc)
        strides = None if value.strides is None else tuple(map(written, value.strides))
        return replace(value, shape=tuple(map(written, value.shape)), strides=strides)

    def _step(self, s: PlanStep) -> Step:
        if s.call is None:
            return self._copy(s)
        function, origin = s.call.op, str(origin_of(s) or "")
        spec = self.table.kernel_of(s)
        if spec is None:
            external = external_call(function)
            assert external is not None
            return self._external(external, function, s, origin)
        code = self.code.of[spec]
        if code is None:
            return self._in_python(function, s, origin)
        if code.kernel is None:
            return KernelCall(spec.symbol, tuple(map(self._place, (*s.inputs, *s.outputs))), origin)
        places: list[Place] = []
        for a in code.kernel.arguments:
            places.append(self._argument(a, s.inputs) if a.kept is None else self._kept(a.kept, a.nbytes, places))
        return KernelCall(spec.symbol, (*places, *map(self._place, s.outputs)), origin, self._checks(function, s))

    def _copy(self, s: PlanStep) -> Step:
        (source,), (destination,) = s.inputs, s.outputs
        if not destination.type.dtype.is_object:
            return Copy(self._place(source), self._place(destination), written(destination.type.nbytes))
        known = self._known[source.index] if source.place is MemorySpace.CONSTANT else None
        run = np.copy if known is None else functools.partial(np.copy, known)
        return self._host("copy", run, s, "", [known], None if known is None else content(known))

    def _checks(self, function: Function, s: PlanStep) -> tuple[Check, ...]:
        """Return the values that must be zero before the kernel runs: the second arguments of its `require_zero`."""
        found = []
        for call in calls(function):
            if isinstance(call.op, RequireZero):
                where = next(k for k, p in enumerate(function.params) if p is call.args[1])
                if call.op.message not in self.failures:
                    self.failures.append(call.op.message)
                found.append(Check(self._place(s.inputs[where]), self.failures.index(call.op.message)))
        return tuple(found)

    def _place(self, loc: Location) -> Place:
        match loc.place:
            case MemorySpace.CONSTANT:
                value = self._known[loc.index]
                return Place("constant", self.constants.add((value,), None, value.nbytes))
            case MemorySpace.INPUT | MemorySpace.OUTPUT:
                return Place(loc.place.value, loc.index, written(loc.skip))
            case MemorySpace.OBJECT:
                return Place("object", loc.index)
            case MemorySpace.PIECE:
                return Place("piece", self._first_piece + loc.index, written(loc.skip))
            case _:
                return Place("workspace", loc.index)

    def _argument(self, a: Argument, inputs: Sequence[Location]) -> Place:
        if a.pack is None:
            return self._place(inputs[a.sources[0]])
        values = tuple(self._known[inputs[k].index] for k in a.sources)
        return Place("constant", self.constants.add(values, a.pack, a.nbytes))

    def _kept(self, stage: KeptStage, nbytes: int, places: Sequence[Place]) -> Place:
        """Return the place of a kept value; `places` are those of the arguments before it."""
        value = Kept(stage.func.name, places[stage.source], nbytes, _needed(stage.condition))
        if value not in self.kept:
            self.kept.append(value)
        return Place(KEPT, self.kept.index(value))

    def _in_python(self, function: Function, s: PlanStep, origin: str) -> HostStep:
        title = title_of(function)
        if not self.in_python:
            raise CompileError(
                f"{title} ({origin or 'no origin'}) has no native kernel, but a program with control flow cannot run "
                "Python steps; replace it, or evaluate the program with relay.create_executor('debug')",
                code="TW0403")
        constants = [loc.place is MemorySpace.CONSTANT and loc.type.dtype.is_object for loc in s.inputs]
        kept = [self._known[loc.index] if c else None for loc, c in zip(s.inputs, constants, strict=True)]
        meaning = _meaning(function, kept) if takes_open() else None
        return self._host(title, prepared(function, kept), s, origin, kept, meaning)

    def _host(
        self, title: str, run: Callable[..., Any], s: PlanStep, origin: str, kept: Sequence[Array | None],
        meaning: object,
    ) -> HostStep:
        """Make a step that runs in Python; constants that are Python objects are `kept` by the step itself."""
        inputs = [self._written(loc) for loc, k in zip(s.inputs, kept, strict=True) if k is None]
        outputs = tuple(map(self._written, s.outputs))
        return HostStep(title, run, tuple(inputs), outputs, origin, isinstance(run, Meaning), meaning)

    def _external(
        self, call: ExternalCall, function: Function, s: PlanStep, origin: str
    ) -> ExternalStep | KernelCall:
        """Make a step that calls another compiler's module; in a program with control flow, a call that native code
        makes. The module gets each argument of the call, also one that the call has twice."""
        body = function.body
        assert isinstance(body, Call)
        places = [next(k for k, p in enumerate(function.params) if p is a) for a in body.args]
        inputs, outputs = tuple(self.value(s.inputs[k]) for k in places), tuple(map(self.value, s.outputs))
        if self._has_external_steps:
            return ExternalStep(call.symbol, inputs, outputs, origin)
        given = tuple(replace(v, place=Place("input", k)) for k, v in enumerate(inputs))
        made = tuple(replace(v, place=Place("output", k)) for k, v in enumerate(outputs))
        self.calls.append(ExternalStep(call.symbol, given, made, origin))
        return KernelCall(external_symbol(len(self.calls) - 1), tuple(v.place for v in (*inputs, *outputs)), origin)


def static_shape(t: Any, what: str) -> tuple[int, ...]:
    """Return the shape of a tensor. Raises `CompileError` if a dimension is not known."""
    if not isinstance(t, TensorType) or not t.is_static:
        raise CompileError(
            f"the shape of {what} is {t!r}; give its symbolic dimensions a size (shapes={{name: (1, 3, 224, 224)}})",
            code="TW0303")
    return tuple(t.shape)


def _needed(condition: PrimExpr) -> Size:
    """Return a size that is 1 where a condition on the symbols holds, and 0 elsewhere; 1 if no size can say that."""
    if not isinstance(condition, LT):
        return 1
    try:
        return check_size(text_of(minimum(maximum(sub(condition.b, condition.a), 0), 1)))
    except ValueError:
        return 1


def written(size: int) -> Size:
    """Return a size as the manifest has it: a number, or arithmetic over the symbols as text."""
    return text_of(size.expr) if isinstance(size, OpenSize) else int(size)


def _meaning(function: Function, kept: Sequence[Array | None]) -> object:
    """Return the text of a function that runs in Python and the constants that it keeps. Raises `CompileError` if it
    computes with a sample of a dynamic size."""
    for call in calls(function):
        if any(_has_sample(getattr(call.op, f.name)) for f in fields(call.op)):
            raise CompileError(
                f"{title_of(function)} runs in Python, with an attribute that depends on the sizes", call.span,
                code="TW0304")
    return function.astext(), tuple(None if k is None else content(k) for k in kept)


def _has_sample(value: Any) -> bool:
    """Return whether an attribute contains a sample of a dynamic size."""
    return isinstance(value, OpenSize) or (isinstance(value, tuple) and any(map(_has_sample, value)))
