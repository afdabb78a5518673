"""Tests derived from a declaration: random programs of every operator, compared with the meaning of Relay's operators.

    conformance(npu)                    a report of failures, true if there are none
    conformance(npu).check()            raises `ConformanceError`

Each sample is compiled for the declared memory and for one that is just large enough, so that all axes are tiled. It
runs in the independent simulator, and is saved and loaded. A refusal must name a rule and an edit. Cycles are compared
with the peak rate of multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.backends.accelerators.declared.codegen import generate
from tilewright.backends.accelerators.declared.declaration import Accelerator, Operator
from tilewright.backends.accelerators.declared.module import AcceleratorModule
from tilewright.backends.accelerators.declared.partition import pattern_table
from tilewright.backends.accelerators.declared.program import load
from tilewright.backends.accelerators.declared.stream import Compute, encode
from tilewright.base.errors import TVMError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Function
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.contrib import Refusal
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.transform.infer_type import InferType

Array = np.ndarray[Any, Any]
_TRIES = 20
"""Number of attempts to draw a sample that the accelerator accepts."""


class ConformanceError(TVMError):
    """A declaration contradicts itself or the meaning of Relay's operators."""

    code = "TW0915"


@dataclass
class Failure:
    """A failed sample: its operator, the fault, and the program."""

    operator: str
    what: str
    program: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.what}\n{self.program}"


@dataclass
class Conformance:
    """The result of the tests of a declaration; true if nothing failed."""

    accelerator: str
    ran: dict[str, int] = field(default_factory=dict)
    refused: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        lines = [
            f"{self.accelerator}: {sum(self.ran.values())} programs of {len(self.ran)} operators, {len(self.failures)} "
            "failures"
        ]
        for name, count in self.ran.items():
            lines.append(f"  {name}: {count} ran, {sum(self.refused[name].values())} refused")
            lines += [f"    {rule} ({n})" for rule, n in sorted(self.refused[name].items())]
        return "\n".join([*lines, *(f"FAILED {f}" for f in self.failures)])

    def check(self) -> None:
        """Raise `ConformanceError` with all failures."""
        if self.failures:
            raise ConformanceError(str(self))


def conformance(accelerator: Accelerator, samples: int = 12, seed: int = 0, stop_at: int = 10) -> Conformance:
    """Run `samples` random programs of each operator, or fewer if there are `stop_at` failures."""
    found = Conformance(accelerator.name)
    for operator, row in zip(accelerator.operators.values(), pattern_table(accelerator), strict=True):
        rng = np.random.default_rng([seed, *operator.name.encode()])
        _test_operator(accelerator, operator, row, rng, samples, found, stop_at)
    return found


def _test_operator(
    accelerator: Accelerator, operator: Operator, row: Any, rng: np.random.Generator, samples: int, found: Conformance,
    stop_at: int
) -> None:
    refused = found.refused.setdefault(operator.name, {})
    found.ran[operator.name] = 0
    program = ""
    for _ in range(_TRIES * samples):
        if found.ran[operator.name] >= samples or len(found.failures) >= stop_at:
            return
        try:
            program = ""
            function = operator.form.sample(rng, accelerator)
            program = InferType()(IRModule.from_expr(function)).astext(show_meta_data=False)
            problem, ran = _test_sample(accelerator, row, function, rng, refused)
        except Exception as error:  # any exception of a declaration is a reported failure
            problem, ran = f"{type(error).__name__}: {error}", True
        found.ran[operator.name] += ran
        if problem:
            found.failures.append(Failure(operator.name, problem, program))
    if not found.ran[operator.name] and len(found.failures) < stop_at:
        found.failures.append(
            Failure(
                operator.name,
                f"it takes none of {_TRIES * samples} programs; its constraints leave nothing, or its pattern matches "
                "nothing of its form",
                program))


def _test_sample(
    accelerator: Accelerator, row: Any, function: Function, rng: np.random.Generator, refused: dict[str, int]
) -> tuple[str, bool]:
    """Return the fault of one sample, or "", and whether the accelerator took it."""
    name, pattern, check = row
    if not pattern.match(function.body):
        return "the operator's pattern does not match a program of its own form", True
    says = check(function.body)
    if not says:
        complete = isinstance(says, Refusal) and says.rule and says.edit
        refused[says.rule if isinstance(says, Refusal) else str(says)] = (
            refused.get(says.rule if isinstance(says, Refusal) else str(says), 0) + 1
        )
        return ("" if complete else f"it refuses without a rule and an edit: {says!r}"), not complete
    composite = Function(function.params, function.body, attrs={"Composite": name})
    outer = [type(p)(p.name_hint, p.type_annotation) for p in function.params]
    attrs = {
        "Compiler": accelerator.name, "global_symbol": "sample",
        **({NUMERICS: accelerator.numerics} if accelerator.numerics else {})
    }
    whole = Function(tuple(outer), Call(composite, outer), attrs=attrs)
    inputs = [_values(rng, p.tensor_type) for p in function.params]
    meaning = Function(
        function.params, function.body, attrs={NUMERICS: accelerator.numerics} if accelerator.numerics else {})
    wanted = evaluate(meaning, *inputs)
    for device in _devices(accelerator, whole):
        problem = _test_program(device, generate(device, whole), inputs, wanted)
        if problem:
            return f"{problem} (with {device.near.size} bytes of {device.near.name})", True
    return "", True


def _devices(accelerator: Accelerator, whole: Function) -> Iterator[Accelerator]:
    """Yield the accelerator, and a copy whose near memory is as small as possible."""
    yield accelerator
    least = _smallest(accelerator, whole)
    if least < accelerator.near.size:
        yield _with_near(accelerator, least)


def _with_near(accelerator: Accelerator, size: int) -> Accelerator:
    """Return the same accelerator with a near memory of another size."""
    made = replace(accelerator, near=replace(accelerator.near, size=size))
    made.instructions, made.operators = accelerator.instructions, accelerator.operators
    return made


def _smallest(accelerator: Accelerator, whole: Function) -> int:
    """Return the smallest power of two times the alignment that suffices as near memory for the program."""
    call: Any = whole.body
    composite = call.op
    size = accelerator.near.align * 64
    while size < accelerator.near.size:
        rows = {row[0]: row[2] for row in pattern_table(_with_near(accelerator, size))}
        if rows[str(composite.attrs["Composite"])](composite.body):
            return size
        size *= 2
    return accelerator.near.size


def _test_program(accelerator: Accelerator, module: AcceleratorModule, inputs: list[Array], wanted: Any) -> str:
    """Return the fault of a program, or ""."""
    found = module.simulator.run(*inputs)
    for got, want in zip(found, wanted if isinstance(wanted, (list, tuple)) else [wanted], strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"it gives {got.dtype}{list(got.shape)}, and Relay {want.dtype}{list(want.shape)}"
        if not np.allclose(got, want, rtol=accelerator.tolerance, atol=accelerator.tolerance, equal_nan=True):
            wrong = np.argwhere(
                ~np.isclose(got, want, rtol=accelerator.tolerance, atol=accelerator.tolerance, equal_nan=True))
            at = tuple(int(n) for n in wrong[0])
            return (
                f"{len(wrong)} of {want.size} elements differ from what Relay means, the first at {list(at)}: "
                f"{got[at]} and not {want[at]}"
            )
    cycles = module.cycles()
    room = accelerator.macs_per_cycle
    for layer in cycles.layers:
        if room and layer.macs and layer.compute * room < layer.macs:
            return (
                f"{layer.operator} does {layer.macs} multiplications in {layer.compute} cycles, and a cycle has room "
                f"for {room}"
            )
    if cycles.near_peak > accelerator.near.size:
        return f"it uses {cycles.near_peak} bytes of {accelerator.near.name}, which has {accelerator.near.size}"
    return _test_bytes(accelerator, module, inputs, found)


def _test_bytes(accelerator: Accelerator, module: AcceleratorModule, inputs: list[Array], found: list[Array]) -> str:
    """Check that commands survive encoding, and that a saved program computes the same results."""
    again = type(module)(load(module.program.save(accelerator), accelerator))
    if b"".join(map(encode, again.simulator.commands)) != module.program.commands:
        return "its commands are others after they were read"
    for command in again.simulator.commands:
        if isinstance(command.what, Compute) and command.what.cycles <= 0:
            return f"{command.text()} takes {command.what.cycles} cycles"
    if (
        not all(
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
            for a, b in zip(again.simulator.run(*inputs), found, strict=True)
        )
    ):
        return "it gives something else after it was saved and loaded"
    return ""


def _values(rng: np.random.Generator, t: TensorType) -> Array:
    """Return random data: integers from the whole range, with frequent limits; floats that are multiples of 1/8, so
    that sums in 16 bits are exact."""
    shape, kind = tuple(int(n) for n in t.shape), np.dtype(str(t.dtype))
    if kind.kind == "f":
        return (rng.integers(-16, 17, shape) / 8).astype(kind)
    info = np.iinfo(kind)
    values = rng.integers(info.min, info.max + 1, shape, dtype=kind)
    ends = rng.random(shape)
    low = rng.random() < 0.3
    values[ends < 0.1] = info.min
    values[ends > 0.9] = info.max
    if low and values.size:
        values[...] = rng.choice([info.min, info.max])
    return values


__all__ = ["Conformance", "ConformanceError", "Failure", "conformance"]
