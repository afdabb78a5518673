"""Records the calls of a schedule's methods as a trace."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilewright.base.errors import ScheduleError
from tilewright.tir.instructions import KINDS, InstructionKind
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.schedule_trace import Instruction, Trace
from tilewright.tir.steps import BlockAt, SampledInt
from tilewright.tir.stmt import ROOT_BLOCK

if TYPE_CHECKING:
    from tilewright.tir.module_schedule import Schedule

C = TypeVar("C", bound=type)
_BLOCKS: Final = frozenset({"block", "block_or_loop", "consumer_blocks"})
"""Arguments that are blocks, or names of blocks."""


class CallTrace:
    """The trace of one schedule. Calls that a method makes itself are not recorded."""

    def __init__(self, trace: Trace | None = None) -> None:
        self._trace = Trace() if trace is None else trace
        self._known = {id(out): out for inst in self._trace.insts for out in inst.outputs}
        self.is_inside = False

    def copy(self) -> Trace:
        """Return a trace of the calls so far."""
        return Trace(self._trace.insts, self._trace.decisions)

    def append(self, inst: Instruction, decision: Any) -> None:
        """Add an instruction."""
        self._trace.append(inst, decision)
        self._known.update((id(out), out) for out in inst.outputs)

    def adopted(self, sch: Schedule, value: Any) -> Any:
        """Return the result in the trace that a reference means. One that no call made is requested first."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.adopted(sch, v) for v in value)
        if id(value) in self._known or not isinstance(value, (BlockAt, LoopRV)):
            return value
        same = [out for out in self._known.values() if type(out) is type(value) and out == value]
        if same:
            return same[-1]
        if isinstance(value, BlockAt):
            return sch.get_block(value.block, value.func or None)
        at = sch._engine(value.func).reference(value.var)
        return sch.get_loops(sch.get_block(at.block, value.func))[at.loop]


def traced(cls: C) -> C:
    """Record the calls of the methods of a schedule class that are kinds of instructions."""
    for kind in KINDS.values():
        method = getattr(cls, kind.method, None)
        if method is not None:
            setattr(cls, kind.method, _traced(kind, method))
    return cls


def _traced(kind: InstructionKind, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def run(self: Schedule, /, *args: Any, **options: Any) -> Any:
        if self._trace.is_inside:
            return method(self, *args, **_accepted(kind, signature, options))
        options = _accepted(kind, signature, options)
        bound = signature.bind(self, *args, **options)
        given = _requested(self, kind, bound, signature)
        named = {k: bound.arguments[k] for k in options}
        values = [v for k, v in given.items() if not k] or list(bound.arguments.values())[1 : 1 + len(args)]
        self._trace.is_inside = True
        try:
            result = method(self, *(values[0] if "" in given else values), **named)
        finally:
            self._trace.is_inside = False
        decision = _sampled(self.steps[-1].options["decision"]) if kind.is_sampled else None
        if kind.name == "GetBlock":
            given["func_name"] = result.func
        self._trace.append(Instruction(kind, *kind.packed(given), _outputs(result)), decision)
        return result

    return run


def _requested(
    sch: Schedule, kind: InstructionKind, bound: inspect.BoundArguments, signature: inspect.Signature
) -> dict[str, Any]:
    """Return the arguments of an instruction by name, with references to results in the trace.

    References in `bound` are replaced by these, too.
    """
    given: dict[str, Any] = {a.name: a.default for a in kind.arguments if a.has_default}
    for name, value in list(bound.arguments.items())[1:]:
        if name in _BLOCKS:
            value = [_block(sch, v) for v in value] if isinstance(value, (list, tuple)) else _block(sch, value)
        value = bound.arguments[name] = sch._trace.adopted(sch, value)
        each = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        given["" if each else name] = value
    bound.apply_defaults()
    for name, value in list(bound.arguments.items())[1:]:
        given.setdefault("" if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else name, value)
    if kind.name == "GetOutputBlocks" and not isinstance(given["scope_block"], BlockAt):
        name = given["scope_block"]
        of_function = name is None or name in sch.functions
        given["scope_block"] = sch.get_block(ROOT_BLOCK, name) if of_function else sch.get_block(name)
    if "index_map" in given:
        given["index_map"] = sch.noted(given["index_map"])
    if any(a.form == "buffer" for a in kind.arguments):
        given["buffer"] = sch.position_of(given["block"], given["buffer"])
    return given


def _accepted(kind: InstructionKind, signature: inspect.Signature, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those of TVM that the method has implicitly."""
    implied = {a.name: a.default for a in kind.arguments if a.has_default and a.name not in signature.parameters}
    return {k: v for k, v in options.items() if k not in implied or v != implied[k]} if implied else options


def _sampled(decision: Any) -> Any:
    """Return the decision of a sample for the trace."""
    return [*map(SampledInt, decision)] if isinstance(decision, tuple) else SampledInt(decision)


def _block(sch: Schedule, value: Any) -> Any:
    return sch.get_block(value) if isinstance(value, str) else value


def _outputs(result: Any) -> list[Any]:
    return [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]


def call(sch: Schedule, kind: InstructionKind, inputs: list[Any], attrs: list[Any], decision: Any) -> list[Any]:
    """Perform an instruction on a schedule, and return its results."""
    method = getattr(sch, kind.method)
    given = kind.unpacked(inputs, attrs)
    each = given.pop("", ())
    if kind.is_sampled and decision is not None:
        given["decision"] = decision
    try:
        return _outputs(method(*each, **given))
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise ScheduleError(f"the arguments of '{kind.name}' do not fit: {error}") from None
