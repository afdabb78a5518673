"""The trace of a schedule: its calls as instructions, whose sampled values are named.

    b0 = sch.get_block(name="C", func_name="main")
    l1, l2 = sch.get_loops(block=b0)
    v3, v4 = sch.sample_perfect_tile(loop=l1, n=2, max_innermost_factor=16, decision=[4, 32])
    l5, l6 = sch.split(loop=l1, factors=[v3, v4], preserve_unit_iters=True)

A later instruction refers to the results of earlier ones, so another decision of a sample changes what follows. As
JSON, a trace is `[instructions, decisions]` in TVM's form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import PrimExpr, number_of
from tilewright.tir.instructions import InstructionKind
from tilewright.tir.steps import BlockAt, SampledInt

POSTPROC: Final = "EnterPostproc"
DecisionProvider = Callable[["Instruction", list[Any], list[Any], Any], Any]
"""Returns the decision of a sample, from the instruction, its current inputs, its attributes and its decision."""


class Scheduled(Protocol):
    """A schedule, to which a trace can be applied."""

    def call(self, kind: InstructionKind, inputs: list[Any], attrs: list[Any], decision: Any) -> list[Any]:
        """Perform an instruction, and return its results."""


class Instruction:
    """A call on a schedule. `outputs` are its results, to which the inputs of later instructions refer."""

    __slots__ = ("attrs", "inputs", "kind", "outputs")

    def __init__(
        self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self.kind, self.inputs, self.attrs, self.outputs = kind, list(inputs), list(attrs), list(outputs)

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def __repr__(self) -> str:
        return self.as_python({})

    def as_python(self, names: Mapping[int, str], decision: Any = None) -> str:
        """Return the call; `names` has the names of results by the id of the object, `_` without one."""
        def named(value: Any) -> str:
            return names.get(id(value), "_")

        def text(value: Any) -> str:
            if is_reference(value) or id(value) in names:
                return named(value)
            if isinstance(value, (list, tuple)):
                inside = ", ".join(map(text, value))
                return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
            return json.dumps(value) if isinstance(value, str) else _number_text(value)

        arguments = []
        for name, value in self.kind.unpacked(self.inputs, self.attrs).items():
            if name == "consumer_blocks" and not value:
                continue
            arguments += [text(v) for v in value] if not name else [f"{name}={text(value)}"]
        if decision is not None:
            arguments.append(f"decision={text(_plain(decision))}")
        given = ", ".join(map(named, self.outputs))
        comma = "," if self.kind.gives_list and len(self.outputs) == 1 else ""
        return f"{given}{comma}{' = ' if given else ''}sch.{self.kind.method}({', '.join(arguments)})"


class Trace:
    """Instructions in order, and the decisions of samples by instruction. The text is a function in Python."""

    def __init__(self, insts: Iterable[Instruction] = (), decisions: Mapping[Instruction, Any] | None = None) -> None:
        self.insts = list(insts)
        self.decisions: dict[Instruction, Any] = dict(decisions or {})

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.insts)

    def __len__(self) -> int:
        return len(self.insts)

    def __str__(self) -> str:
        lines = [f"  {line}" for line in self.as_python()] or ["  pass"]
        return "\n".join(["# from tvm import tir", "def apply_trace(sch: tir.Schedule) -> None:", *lines])

    def show(self) -> None:
        """Print the function."""
        print(self)

    def get_decision(self, inst: Instruction) -> Any:
        """Return the decision of an instruction; None if it has none."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add an instruction at the end."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Remove the last instruction and return it; None if the trace is empty, or if it begins postprocessing."""
        if not self.insts or self.insts[-1].kind.name == POSTPROC:
            return None
        last = self.insts.pop()
        self.decisions.pop(last, None)
        return last

    def names(self) -> dict[int, str]:
        """Return the names of all results by the id of the object: `b0`, `l1`, `v2`."""
        found: dict[int, str] = {}
        for inst in self.insts:
            for out in inst.outputs:
                found[id(out)] = f"{_letter(inst.kind, out)}{len(found)}" if id(out) not in found else found[id(out)]
        return found

    def as_python(self) -> list[str]:
        """Return the calls on a schedule `sch`, one per line."""
        names = self.names()
        return [inst.as_python(names, self.decisions.get(inst)) for inst in self.insts]

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """Return `[[[kind, inputs, attributes, outputs], …], [[index, decision], …]]`, for `json.dumps`."""
        names = self.names()

        def data(value: Any) -> Any:
            if is_reference(value) or id(value) in names:
                return names.get(id(value), "_")
            if isinstance(value, (list, tuple)):
                return [data(v) for v in value]
            return json.dumps(value) if isinstance(value, str) else _plain(value)

        insts, decisions = [], []
        for k, inst in enumerate(self._kept(remove_postproc)):
            outputs = [names[id(out)] for out in inst.outputs]
            insts.append([inst.kind.name, data(inst.inputs), [_plain(a) for a in inst.attrs], outputs])
            if inst in self.decisions:
                decisions.append([k, _plain(self.decisions[inst])])
        return [insts, decisions]

    @staticmethod
    def from_json(json_obj: Any) -> Trace:
        """Return the trace of the output of `as_json`. Raises `ScheduleError` for any other object."""
        try:
            rows, decisions = json_obj
            known: dict[str, Any] = {}
            insts = [_read(row, known) for row in rows]
            return Trace(insts, {insts[k]: decision for k, decision in decisions})
        except (TypeError, ValueError, IndexError, AttributeError, KeyError):
            raise ScheduleError(
                "a trace is a list of the instructions and a list of the decisions, as Trace.as_json returns them",
               ) from None

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Scheduled) -> None:
        """Apply the trace of the output of `as_json`."""
        Trace.from_json(json_obj).apply_to_schedule(sch)

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool = False) -> Trace:
        """Return the trace with another decision of one sample."""
        if not any(i is inst for i in self.insts):
            raise ScheduleError(f"{inst} is not in this trace")
        kept = self._kept(remove_postproc)
        return Trace(kept, {i: d for i, d in {**self.decisions, inst: decision}.items() if i in kept})

    def simplified(self, remove_postproc: bool) -> Trace:
        """Return the trace without queries and samples whose results are not used; `remove_postproc` also drops all
        instructions from `enter_postproc` on."""
        used: set[int] = set()
        kept: list[Instruction] = []
        for inst in reversed(self._kept(remove_postproc)):
            if not inst.kind.is_pure or any(id(out) in used for out in inst.outputs):
                kept.append(inst)
                used.update(map(id, _flat(inst.inputs)))
        return Trace(kept[::-1], {i: self.decisions[i] for i in reversed(kept) if i in self.decisions})

    def apply_to_schedule(
        self, sch: Scheduled, remove_postproc: bool = False, decision_provider: DecisionProvider | None = None
    ) -> None:
        """Perform the instructions on `sch`; with `remove_postproc`, only those before `enter_postproc`.

        Raises `ScheduleError` with the instruction if one does not fit the program.
        """
        made: dict[int, Any] = {}

        def now(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [now(v) for v in value]
            return made.get(id(value), value)

        for number, inst in enumerate(self._kept(remove_postproc)):
            inputs, decision = [now(v) for v in inst.inputs], self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            try:
                results = sch.call(inst.kind, inputs, inst.attrs, decision)
            except ScheduleError as error:
                raise ScheduleError(
                    f"instruction {number}, {inst}: {error.message}", error.origin, code=error.code) from None
            if len(results) != len(inst.outputs):
                raise ScheduleError(
                    f"instruction {number}, {inst}, has {len(results)} results here, but {len(inst.outputs)} in the "
                    "trace; the trace belongs to another program")
            made.update((id(old), new) for old, new in zip(inst.outputs, results, strict=True))

    def _kept(self, remove_postproc: bool) -> list[Instruction]:
        names = [i.kind.name for i in self.insts]
        return self.insts[: names.index(POSTPROC)] if remove_postproc and POSTPROC in names else self.insts


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference to a block or a loop."""
    from tilewright.tir.loop_steps import LoopRV

    return isinstance(value, (BlockAt, LoopRV))


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from _flat(v)
        else:
            yield v


def _letter(kind: InstructionKind, out: Any) -> str:
    if isinstance(out, BlockAt):
        return "b"
    return "l" if is_reference(out) or kind.name == "SampleComputeLocation" else "v"


def _plain(value: Any) -> Any:
    """Return a constant as JSON-compatible data."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, PrimExpr):
        value = number_of(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise ScheduleError(
        f"a step contains {value!r} ({type(value).__name__}), which cannot be saved; annotate with numbers, "
        "strings, and lists and dictionaries of these only")


def _number_text(value: Any) -> str:
    found = number_of(value) if isinstance(value, PrimExpr) else value
    if isinstance(found, float) and found == int(found):
        return str(int(found))
    return str(found)


def _read(row: Sequence[Any], known: dict[str, Any]) -> Instruction:
    """Return the instruction of a row of JSON; `known` has the results so far by name."""
    from tilewright.tir.loop_steps import LoopRV

    name, inputs, attrs, outputs = row

    def value(data: Any) -> Any:
        if isinstance(data, list):
            return [value(v) for v in data]
        if not isinstance(data, str):
            return data
        return json.loads(data) if data.startswith('"') else known[data]

    kind = InstructionKind.get(name)
    given = [value(v) for v in inputs]
    for out in outputs:
        known[out] = {"b": BlockAt, "l": LoopRV, "v": SampledInt}[out[0]]()
    return Instruction(kind, given, attrs, [known[out] for out in outputs])
