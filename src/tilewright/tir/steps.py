"""Schedule steps as data, to be printed, stored, edited and replayed.

A step is the name of a schedule method with its arguments. References are valid for every copy of the program. A block
is given by its name, a loop by a block inside it and the loop's index among the loops around this block before the
step, outermost first.

    {"step": "split", "args": [{"block": "C", "loop": 0}, [null, 16]]}      sch.split(sch.get_loops("C")[0], (None, 16))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tilewright.base.errors import ScheduleError
from tilewright.base.settings import nearest
from tilewright.tir.printer import value_text

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Recorder")


@dataclass(frozen=True, slots=True)
class BlockAt:
    """A reference to a block by name; `func` is its function in a module of several."""

    block: str = ""
    func: str = ""

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def __str__(self) -> str:
        return (
            f"sch.get_block({value_text(self.block)}" + (f", func_name={value_text(self.func)})" if self.func else ")")
        )


class SampledInt(int):
    """A sampled number. A trace refers to it as the result of its sample; arithmetic gives plain integers."""

    @property
    def value(self) -> int:
        """The number."""
        return int(self)


@dataclass(frozen=True, slots=True)
class LoopAt:
    """A reference to a loop by its index among the loops around a block; the outermost is 0."""

    block: str
    loop: int
    func: str = ""

    def __str__(self) -> str:
        block = str(BlockAt(self.block, self.func)) if self.func else value_text(self.block)
        return f"sch.get_loops({block})[{self.loop}]"


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One step: the method `name` on `args` and `options`, which contain references, numbers, strings and tuples of
    these."""

    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the call on the schedule `sch` that performs the step."""
        named = [f"{k}={_text(v)}" for k, v in self.options.items()]
        return f"sch.{self.name}({', '.join([*map(_text, self.args), *named])})"

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON-compatible data."""
        data: dict[str, Any] = {"step": self.name, "args": [_to_json(a) for a in self.args]}
        return data | {"options": {k: _to_json(v) for k, v in self.options.items()}} if self.options else data

    @staticmethod
    def from_json(data: Any) -> ScheduleStep:
        """Return the step for the output of `as_json`. Raises `ScheduleError` for other data."""
        if (
            not isinstance(data, dict) or not isinstance(data.get("step"), str)
            or not isinstance(data.get("args"), list)
        ):
            raise ScheduleError(
                f'{data!r} is not a schedule step; one is {{"step": "unroll", "args": [{{"block": "C", "loop": 0}}]}}')
        options = {str(k): _from_json(v) for k, v in data.get("options", {}).items()}
        return ScheduleStep(data["step"], tuple(_from_json(a) for a in data["args"]), options)


class Recorder:
    """Base of schedules: methods marked `recorded` are added to `steps` after they succeed."""

    steps: list[ScheduleStep]
    is_recorded = True

    def reference(self, arg: Any) -> Any:
        """Return an argument as data: loops and blocks as references."""
        raise NotImplementedError

    def referred(self, data: Any) -> Any:
        """Return the argument that `data` refers to in the current program."""
        raise NotImplementedError

    def apply(self, steps: Iterable[ScheduleStep]) -> None:
        """Apply the steps in order. Raises `ScheduleError` with the step if one does not fit the program."""
        for number, step in enumerate(steps):
            try:
                self._method(step)(*self._now(step.args), **{k: self._now(v) for k, v in step.options.items()})
            except ScheduleError as error:
                raise ScheduleError(f"step {number}, {step}: {error.message}", error.origin) from None

    def _now(self, data: Any) -> Any:
        if isinstance(data, dict):
            return {k: self._now(v) for k, v in data.items()}
        return tuple(map(self._now, data)) if isinstance(data, tuple) else self.referred(data)

    def noted(self, arg: Any) -> Any:
        """Return an argument as data, with sequences as tuples."""
        if isinstance(arg, dict):
            return {k: self.noted(v) for k, v in arg.items()}
        return tuple(map(self.noted, arg)) if isinstance(arg, (tuple, list)) else self.reference(arg)

    def _method(self, step: ScheduleStep) -> Callable[..., Any]:
        method: Any = getattr(type(self), step.name, None)
        if not hasattr(method, "is_step"):
            known = [name for name in dir(type(self)) if hasattr(getattr(type(self), name), "is_step")]
            raise ScheduleError(
                f"there is no step '{step.name}'{nearest(step.name, known) or '; the steps are ' + ', '.join(known)}")
        try:
            inspect.signature(method).bind(self, *step.args, **step.options)
        except TypeError as error:
            raise ScheduleError(f"the arguments do not fit: {error}") from None
        bound: Callable[..., Any] = functools.partial(method, self)
        return bound


def recorded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Mark a method as a step: a successful call is recorded with references to the program before it."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        if not self.is_recorded:
            return method(self, *args, **options)
        step = ScheduleStep(method.__name__, self.noted(args), {k: self.noted(v) for k, v in options.items()})
        result = method(self, *args, **options)
        self.steps.append(step)
        return result

    run.is_step = True  # type: ignore[attr-defined]
    return run


F = TypeVar("F", bound=Callable[..., Any])


def notes_itself(method: F) -> F:
    """Mark a method as a step that records itself, including its random decision."""
    method.is_step = True  # type: ignore[attr-defined]
    return method


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    return str(value) if isinstance(value, (BlockAt, LoopAt)) else value_text(value)


_VALUES: Final = "values"
"""Key of a dictionary in an argument, as JSON."""


def _to_json(value: Any) -> Any:
    match value:
        case LoopAt():
            return {"block": value.block, "loop": value.loop} | ({"func": value.func} if value.func else {})
        case BlockAt():
            return {"block": value.block} | ({"func": value.func} if value.func else {})
        case tuple():
            return [_to_json(v) for v in value]
        case dict() if all(isinstance(k, str) for k in value):
            return {_VALUES: {k: _to_json(v) for k, v in value.items()}}
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise ScheduleError(
                f"a step contains {value!r} ({type(value).__name__}), which cannot be saved; annotate with numbers, "
                "strings, and lists and dictionaries of these only")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if not isinstance(value, dict):
        return value
    if isinstance(value.get(_VALUES), dict) and len(value) == 1:
        return {str(k): _from_json(v) for k, v in value[_VALUES].items()}
    block, func, loop = value.get("block"), value.get("func", ""), value.get("loop")
    if isinstance(block, str) and isinstance(func, str) and (loop is None or isinstance(loop, int)):
        return BlockAt(block, func) if loop is None else LoopAt(block, loop, func)
    raise ScheduleError(
        f'{value!r} is not a reference to a block or a loop; a block is {{"block": "C"}}, a loop {{"block": "C", '
        f'"loop": 0}}'
    )
