"""The kernels of a network as tasks: each is a fused function of the optimized program; its schedule's decisions are
its space.

A task holds its function as text, so that a record can be tuned further, or measured in another process, without the
network. The analytical choice is a configuration of the space, and is used without a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.decisions import Choice, Decisions, Value
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, OptionError
from tilewright.base.forks import lazy_attribute
from tilewright.base.types import TensorType, TupleType
from tilewright.compiler.kernel import Kernel, lower
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operations, operator_names
from tilewright.relay.expr import Expr, Function, Var
from tilewright.relay.parser import parse_expr
from tilewright.relay.printer import astext
from tilewright.relay.visitor import substitute
from tilewright.search.autotvm.task.dispatcher import Workload
from tilewright.search.autotvm.task.entities import Entity, OtherOptionEntity, SplitEntity
from tilewright.search.autotvm.task.space import Axis, Branch, ConfigEntity, ConfigSpace
from tilewright.search.autotvm.task.task import Task
from tilewright.tir.stmt import PrimFunc

PREFIX: Final = "fused."
LEVEL: Final = 3
"""The optimization level at which kernels are extracted and lowered."""


def is_kernel(name: str) -> bool:
    """Return whether a task of this name is a kernel of a network, not a template."""
    return name.startswith(PREFIX)


def workload_of(function: Function, constants: Sequence[bool]) -> Workload:
    """Return the workload of a fused function: its operators, its text, and the flags of constant arguments."""
    text = astext(_with_plain_names(function), True, lambda e: "").strip()
    return (PREFIX + title_of(function), text, "".join(str(int(c)) for c in constants))


def _with_plain_names(function: Function) -> Function:
    if all(p.name_hint == f"p{k}" for k, p in enumerate(function.params)):
        return function
    fresh = [Var(f"p{k}", p.checked_type) for k, p in enumerate(function.params)]
    body = substitute(function.body, dict(zip(function.params, fresh, strict=True)))
    return Function(fresh, body, function.ret_type, attrs=function.attrs)


def title_of(function: Function) -> str:
    """Return the operators of a function: `conv2d_add_relu`."""
    return "_".join(name.rpartition(".")[2] for name in operator_names(function)[:6]) or "copy"


class KernelTask(Task):
    """A fused function to tune. `args` are its text and the flags of its constant arguments."""

    def __init__(self, name: str, args: Sequence[Any], target: Target) -> None:
        super().__init__(name, args, target)
        if len(self.args) != 2 or not all(isinstance(a, str) for a in self.args):
            raise OptionError(
                f"a task '{name}' has two arguments, the text of a function and the flags of its constants, but was "
                f"given {len(self.args)}", code="TW1105")

    @staticmethod
    def of(function: Function, constants: Sequence[bool], target: Target) -> KernelTask:
        """Return the task of a fused function."""
        name, *args = workload_of(function, constants)
        return KernelTask(name, args, target)

    @lazy_attribute
    def function(self) -> Function:
        """The fused function. Raises `ParseError` for a malformed text."""
        made = parse_expr(self.args[0])
        if not isinstance(made, Function) or len(made.params) != len(self.args[1]):
            raise OptionError(
                f"the record of '{self.name}' holds no function of {len(self.args[1])} parameters", code="TW1105")
        return made

    @property
    def constants(self) -> list[bool]:
        return [c == "1" for c in self.args[1]]

    @property
    def title(self) -> str:
        shapes = [list(p.tensor_type.shape) for p in self.function.params[:2]]
        return f"{self.name.removeprefix(PREFIX)} {' '.join('x'.join(map(str, s)) for s in shapes)}"

    def kernel(self, decisions: Decisions | None = None, flat: bool = True) -> Kernel:
        """Lower the kernel under some decisions. Raises `NoNativeKernel` if the function has no native kernel."""
        with PassContext(LEVEL):
            return lower(
                self.function, self.constants, self.machine, "main", flat=flat, decided=decisions, target=self.target)

    def of_program(self) -> Task | None:
        """Return the task of the implementation that a program registered for the kernel, if there is one."""
        workload = self.kernel(flat=False).workload
        return None if workload is None else Task(workload[0], workload[1:], self.target)

    @lazy_attribute
    def config_space(self) -> KernelSpace:
        return KernelSpace(self)

    @property
    def is_tunable(self) -> bool:
        """Whether the kernel has an open choice; faster than building the whole space."""
        noted = Decisions(noting=True)
        self.kernel(noted, flat=False)
        return any(len(c.options) > 1 for c in noted.choices)

    @property
    def default_config(self) -> ConfigEntity:
        return self.config_space.get(self.config_space.default_index)

    @property
    def flop(self) -> float:
        if self._flop is None:
            moved = (math.prod(t.shape) for t in _results(self.function.body))  # for a kernel that only moves values
            self._flop = float(operations(self.function) or sum(moved))
        return self._flop

    def lower(self, config: ConfigSpace) -> PrimFunc:
        return self.lowered(config).func

    def lowered(self, config: ConfigSpace, flat: bool = False) -> Kernel:
        """Lower the kernel of a configuration. Raises `OptionError` for answers that this kernel does not accept.

        Answers to choices that the kernel does not have, because of other answers, have no effect.
        """
        assert isinstance(config, ConfigEntity)
        decisions = Decisions(config.decisions)
        made = self.kernel(decisions, flat)
        if decisions.refused:
            names = ", ".join(sorted(set(decisions.refused)))
            raise OptionError(f"{self.title} takes no such {names}: {dict(decisions.given)}", code="TW1106")
        return made

    def instantiate(self, config: ConfigSpace) -> tuple[Any, Any]:
        """Return the loop program of a configuration, which has its parameters, and None."""
        return self.lower(config), None


class KernelSpace(ConfigSpace):
    """The decisions of a kernel. A branch fixes the choices that others depend on (`Choice.selects`)."""

    def __init__(self, task: KernelTask) -> None:
        super().__init__()
        found = list(_explore(task, {}))
        self._branches = tuple(axes for axes, _ in found)
        self.default_index = self.index_of(found[0][1]) or 0

    @property
    def branches(self) -> tuple[Branch, ...]:
        return self._branches


def _explore(task: KernelTask, fixed: dict[str, Value]) -> Iterator[tuple[Branch, dict[str, Entity]]]:
    """Iterate over branches and their default answers, under the answers `fixed`.

    In the first branch all other selecting choices have the analytical answer.
    """
    noted = Decisions(dict(fixed), noting=True)
    try:
        task.kernel(noted, flat=False)
    except CompileError:
        return  # the schedule refuses this answer, so it is not a branch
    axes, default = [], dict[str, Entity]()
    for c in noted.choices:
        selected = noted.taken[c.selects] if c.selects else None
        at = c.names.index(c.selects) if c.selects else 0
        kept = [o for o in sorted(c.options, key=_in_order) if not c.selects or o[at] == selected]
        answers = tuple(tuple(entity_of(n, v) for n, v in zip(c.names, o, strict=True)) for o in kept)
        axes.append(Axis(c.names, answers))
        default.update(zip(c.names, (entity_of(n, noted.taken[n]) for n in c.names), strict=True))
    yield tuple(axes), default
    for c in noted.choices:
        if c.selects and c.selects not in fixed:
            yield from _others(task, c, fixed, noted)
            # further selecting choices vary under this answer
            fixed = {**fixed, **{n: noted.taken[n] for n in c.names}}


def _in_order(option: tuple[Value, ...]) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts numbers by size, so that neighbours are alike, then words."""
    return tuple((v, "") if isinstance(v, int) else (0, v) for v in option)


def _others(
    task: KernelTask, c: Choice, fixed: dict[str, Value], noted: Decisions
) -> Iterator[tuple[Branch, dict[str, Entity]]]:
    at = c.names.index(c.selects)
    for value in dict.fromkeys(o[at] for o in c.options):
        if value != noted.taken[c.selects]:
            first = next(o for o in c.options if o[at] == value)
            yield from _explore(task, {**fixed, **dict(zip(c.names, first, strict=True))})


def entity_of(name: str, value: Value) -> Entity:
    """Return a decision in the form of records: tiles are splits of an axis, all others are options."""
    return SplitEntity((-1, int(value))) if "tile_" in name else OtherOptionEntity(value)


def _results(e: Expr) -> list[TensorType]:
    t = e.checked_type
    return [f for f in (t.fields if isinstance(t, TupleType) else (t,)) if isinstance(f, TensorType)]


def constant_values(kernel: Kernel, draw: Mapping[int, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the packed constants of a kernel by parameter name, from the arrays `draw` of the function's arguments."""
    made = {}
    for buffer, argument in zip(kernel.func.params, kernel.arguments, strict=False):
        if argument.pack is not None:
            made[buffer.name] = np.ascontiguousarray(argument.pack(*(draw[k] for k in argument.sources)))
    return made
