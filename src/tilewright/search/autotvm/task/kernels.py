"""The kernels of a network as tasks: each is a fused function of the optimized program, and what its schedule decides is its space.

A task holds its function as text, so a record can be tuned further, or measured in another process, without the network.
The analytical choice is a configuration of the space, and what is taken where there is no record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, OptionError
from tilewright.base.forks import lazy_attribute
from tilewright.base.types import TensorType, TupleType
from tilewright.compiler.kernel import Kernel, lower
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operations
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.parser import parse_expr
from tilewright.relay.printer import astext
from tilewright.relay.visitor import post_order
from tilewright.search.autotvm.task.dispatcher import Workload
from tilewright.search.autotvm.task.entities import Entity, OtherOptionEntity, SplitEntity
from tilewright.search.autotvm.task.space import Axis, Branch, ConfigEntity, ConfigSpace
from tilewright.search.autotvm.task.task import Task
from tilewright.tir.stmt import PrimFunc
from tilewright.topi.decisions import Choice, Decisions, Value

PREFIX: Final = "fused."
_MOST_BRANCHES: Final = 64
_LEVEL: Final = 3


def is_kernel(name: str) -> bool:
    """Whether a task of this name is a kernel of a network, not a template."""
    return name.startswith(PREFIX)


def workload_of(function: Function, constants: Sequence[bool]) -> Workload:
    """What a fused function is known by: `fused.` and its operators, its text, and which arguments are known while compiling."""
    text = astext(_with_plain_names(function), True, lambda e: "").strip()
    return (PREFIX + title_of(function), text, "".join(str(int(c)) for c in constants))


def _with_plain_names(function: Function) -> Function:
    if all(p.name_hint == f"p{k}" for k, p in enumerate(function.params)):
        return function
    from tilewright.relay.expr import Var
    from tilewright.relay.visitor import substitute

    fresh = [Var(f"p{k}", p.checked_type) for k, p in enumerate(function.params)]
    return Function(fresh, substitute(function.body, dict(zip(function.params, fresh, strict=True))), function.ret_type, attrs=function.attrs)


def title_of(function: Function) -> str:
    """The operators of a function: `conv2d_add_relu`."""
    names = [e.op.name.rpartition(".")[2] for e in post_order(function.body) if isinstance(e, Call) and hasattr(e.op, "name")]
    return "_".join(names[:6]) or "copy"


class KernelTask(Task):
    """A fused function to tune. `args` are its text and the flags of its constant arguments."""

    def __init__(self, name: str, args: Sequence[Any], target: Target) -> None:
        super().__init__(name, args, target)
        if len(self.args) != 2 or not all(isinstance(a, str) for a in self.args):
            raise OptionError(f"a task '{name}' has two arguments, the text of a function and the flags of its constants, and was given {len(self.args)}", code="TW1105")

    @staticmethod
    def of(function: Function, constants: Sequence[bool], target: Target) -> KernelTask:
        """The task of a fused function."""
        name, *args = workload_of(function, constants)
        return KernelTask(name, args, target)

    @lazy_attribute
    def function(self) -> Function:
        """The fused function; raises `ParseError` where the text is none."""
        made = parse_expr(self.args[0])
        if not isinstance(made, Function) or len(made.params) != len(self.args[1]):
            raise OptionError(f"the record of '{self.name}' holds no function of {len(self.args[1])} parameters", code="TW1105")
        return made

    @property
    def constants(self) -> list[bool]:
        return [c == "1" for c in self.args[1]]

    @property
    def title(self) -> str:
        shapes = [list(p.tensor_type.shape) for p in self.function.params[:2]]
        return f"{self.name.removeprefix(PREFIX)} {' '.join('x'.join(map(str, s)) for s in shapes)}"

    def kernel(self, decisions: Decisions | None = None, flat: bool = True) -> Kernel:
        """The kernel under some decisions. Raises `NoNativeCompute` where the function has no native kernel."""
        with PassContext(_LEVEL):
            return lower(self.function, self.constants, self.target.machine, "main", flat=flat, decided=decisions, target=self.target)

    def of_program(self) -> Task | None:
        """Return the task of the implementation that a program registered for the kernel (`register_topi_compute`), if there is one."""
        workload = self.kernel(flat=False).workload
        return None if workload is None else Task(workload[0], workload[1:], self.target)

    @lazy_attribute
    def config_space(self) -> KernelSpace:
        return KernelSpace(self)

    @property
    def is_tunable(self) -> bool:
        """Whether the kernel leaves anything open; quicker than to look at the whole space."""
        noted = Decisions(noting=True)
        self.kernel(noted, flat=False)
        return any(len(c.options) > 1 for c in noted.choices)

    @property
    def default_config(self) -> ConfigEntity:
        return self.config_space.get(self.config_space.default_index)

    @property
    def flop(self) -> float:
        if self._flop is None:
            self._flop = float(operations(self.function) or sum(math.prod(t.shape) for t in _results(self.function.body)))  # what only moves values has speed, too
        return self._flop

    def lower(self, config: ConfigSpace) -> PrimFunc:
        return self.lowered(config).func

    def lowered(self, config: ConfigSpace, flat: bool = False) -> Kernel:
        """The kernel of a configuration; raises `OptionError` for answers that this kernel does not take.

        Answers to what it does not ask, because of others, do nothing.
        """
        assert isinstance(config, ConfigEntity)
        decisions = Decisions(config.decisions)
        made = self.kernel(decisions, flat)
        if decisions.refused:
            raise OptionError(f"{self.title} takes no such {', '.join(sorted(set(decisions.refused)))}: {dict(decisions.given)}", code="TW1106")
        return made

    def instantiate(self, config: ConfigSpace) -> tuple[Any, Any]:
        """The loop program of a configuration, and None: it has its parameters already."""
        return self.lower(config), None


class KernelSpace(ConfigSpace):
    """What a kernel decides. A branch is a set of answers to the choices that others depend on (`Choice.selects`)."""

    def __init__(self, task: KernelTask) -> None:
        super().__init__()
        found = list(_explore(task, {}))
        self._branches = tuple(b.axes for b in found)
        self.default_index = self.index_of(found[0].default) or 0

    @property
    def branches(self) -> tuple[Branch, ...]:
        return self._branches


@dataclass(frozen=True)
class _Found:
    axes: Branch
    default: dict[str, Entity]


def _explore(task: KernelTask, fixed: dict[str, Value]) -> Iterator[_Found]:
    """The branch in which the choices `fixed` are answered so and no other selecting choice differs from the model's answer, then the others."""
    noted = Decisions(dict(fixed), noting=True)
    try:
        task.kernel(noted, flat=False)
    except CompileError:
        return  # an answer that the schedule refuses is no branch
    axes, default = [], dict[str, Entity]()
    for c in noted.choices:
        selected = noted.taken[c.selects] if c.selects else None
        kept = [o for o in sorted(c.options, key=_in_order) if not c.selects or dict(zip(c.names, o, strict=True))[c.selects] == selected]
        answers = tuple(tuple(entity_of(n, v) for n, v in zip(c.names, o, strict=True)) for o in kept)
        axes.append(Axis(c.names, answers))
        default.update(zip(c.names, (entity_of(n, noted.taken[n]) for n in c.names), strict=True))
    yield _Found(tuple(axes), default)
    for c in noted.choices:
        if c.selects and c.selects not in fixed:
            yield from _others(task, c, fixed, noted)
            fixed = {**fixed, **{n: noted.taken[n] for n in c.names}}  # further selecting choices differ beside this answer


def _in_order(option: tuple[Value, ...]) -> tuple[tuple[int, str], ...]:
    """Numbers by size, so that neighbours are alike, then words."""
    return tuple((v, "") if isinstance(v, int) else (0, v) for v in option)


def _others(task: KernelTask, c: Choice, fixed: dict[str, Value], noted: Decisions) -> Iterator[_Found]:
    at = c.names.index(c.selects)
    for value in dict.fromkeys(o[at] for o in c.options):
        if value != noted.taken[c.selects]:
            first = next(o for o in c.options if o[at] == value)
            yield from _explore(task, {**fixed, **dict(zip(c.names, first, strict=True))})


def entity_of(name: str, value: Value) -> Entity:
    """A decision as it stands in records: tiles are splits of an axis, all else are options."""
    return SplitEntity((-1, int(value))) if "tile_" in name else OtherOptionEntity(value)


def _results(e: Expr) -> list[TensorType]:
    t = e.checked_type
    return [f for f in t.fields if isinstance(f, TensorType)] if isinstance(t, TupleType) else [t] if isinstance(t, TensorType) else []


def constant_values(kernel: Kernel, draw: Mapping[int, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The packed constants of a kernel by the names of its parameters, made from the arrays `draw` of the function's arguments."""
    made = {}
    for buffer, argument in zip(kernel.func.params, kernel.arguments, strict=False):
        if argument.pack is not None:
            made[buffer.name] = np.ascontiguousarray(argument.pack(*(draw[k] for k in argument.sources)))
    return made
