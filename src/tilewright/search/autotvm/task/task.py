"""Tasks and templates: a template is a function that schedules a workload according to a configuration.

    @autotvm.template("matmul")
    def matmul(n, m, k, dtype):
        …
        cfg = autotvm.get_config()
        cfg.define_split("tile_y", y, num_outputs=2)
        yo, yi = cfg["tile_y"].apply(s, c, y)
        return s, [a, b, c]

    task = autotvm.task.create("matmul", args=(512, 512, 512, "float32"), target="llvm")

A template is run once to fill the space of its task, and once for each configuration that is measured. Called as a
function, it makes the schedule of the current `DispatchContext`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.backends import kernel_options
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, TVMError
from tilewright.base.forks import lazy_attribute
from tilewright.base.settings import nearest
from tilewright.search.auto_scheduler.access import flops
from tilewright.search.autotvm.task.dispatcher import ApplyConfig, DispatchContext, Workload
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace, InstantiationError
from tilewright.search.features import arithmetic
from tilewright.search.task import TuningTask
from tilewright.te.resolve import schedule_func
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Tensor, placeholder
from tilewright.tir.stmt import PrimFunc

TEMPLATES: Final[dict[str, Callable[..., Any]]] = {}
"""The templates by name."""


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments of a task in the form of a record: a tensor is `("TENSOR", shape, dtype)`, lists are tuples."""

    def one(x: Any) -> Any:
        if isinstance(x, Tensor):
            return ("TENSOR", tuple(int(n) for n in x.extents), str(x.dtype))
        if isinstance(x, (list, tuple)):
            return tuple(map(one, x))
        if x is None or isinstance(x, (str, int, float, bool)):
            return x
        return str(x)

    return tuple(map(one, args))


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Return the arguments that `serialize_args` wrote: tensors are placeholders."""
    return [
        placeholder(x[1], x[2], name=f"arg{k}") if isinstance(x, (tuple, list)) and x and x[0] == "TENSOR" else x
        for k, x in enumerate(args)]


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> Workload:
    """Return the workload of a task: its name, then its arguments."""
    return (task_name, *serialize_args(args)) if task_name else serialize_args(args)


class FlopCalculationError(TVMError):
    """The computations of a schedule have no arithmetic on elements."""

    code = "TW1109"


def compute_flop(sch: Schedule) -> float:
    """Return the arithmetic operations of all computations of a schedule, those of indices and casts left out. Raises
    `FlopCalculationError` if there are none."""
    total = sum(flops(stage.op) for stage in sch.stages)
    if not total:
        raise FlopCalculationError(
            "the computations only move elements; count their operations with cfg.add_flop in the template")
    return total


class Task(TuningTask):
    """A template with its arguments and a target, and the space of its configurations."""

    def __init__(
        self, name: str, args: Sequence[Any], target: Target | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """`target` is by default the current one, or else `llvm`. Raises `OptionError` without a template of that name.
        """
        super().__init__(target or Target.current(allow_none=True) or Target("llvm"))
        self.name, self.args, self.kwargs = name, serialize_args(args), dict(kwargs or {})
        self._flop: float | None = None

    @lazy_attribute
    def func(self) -> Callable[..., Any]:
        """The template."""
        return template_of(self.name)

    @property
    def workload(self) -> Workload:
        return (self.name, *self.args)

    @property
    def key(self) -> str:
        return json.dumps([self.name, self.args, self.kwargs])

    @property
    def title(self) -> str:
        return self.name

    @lazy_attribute
    def config_space(self) -> ConfigSpace:
        """The choices that the template leaves open."""
        space = ConfigSpace()
        self._run(space)
        return space

    @property
    def flop(self) -> float:
        """Operations of one run: those that the template counts (`add_flop`), or else the arithmetic of its loops."""
        if self._flop is None:
            space = self.config_space
            self._flop = space.flop or arithmetic(self.lower(space.get(space.index_at(0))))
        return self._flop

    @property
    def default_config(self) -> ConfigEntity | None:
        """The configuration that is used without a record; None if only the template knows it."""
        return None

    def _run(self, config: ConfigSpace) -> tuple[Any, list[Any]]:
        with self.target, ApplyConfig(config):
            schedule, tensors = self.func(*deserialize_args(self.args), **self.kwargs)
        return schedule, list(tensors)

    def instantiate(self, config: ConfigSpace) -> tuple[Any, Any]:
        """Return the schedule and the tensors of a configuration. Raises `InstantiationError` if it gives none."""
        config.errors.clear()
        made = self._run(config)
        if not config.valid():
            raise InstantiationError("; ".join(config.errors))
        return made

    def lower(self, config: ConfigSpace) -> PrimFunc:
        """Return the loops of a configuration."""
        with kernel_options.use(KernelOptions(self.machine)):
            schedule, tensors = self.instantiate(config)
            return schedule_func(schedule, tensors, "main")

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def template(task_name: str, func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Register a function, which returns a schedule and its tensors, as a template (a decorator)."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        if task_name in TEMPLATES and _place(TEMPLATES[task_name]) != _place(f):
            raise OptionError(
                f"there is a template '{task_name}' already, {_place(TEMPLATES[task_name])}; use another name",
                code="TW1105")
        TEMPLATES[task_name] = f

        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            config = DispatchContext.current.query(Target.current(), args_to_workload(args, task_name))
            with ApplyConfig(config):
                return f(*args, **kwargs)

        return call

    return register(func) if func is not None else register


def _place(f: Callable[..., Any]) -> tuple[str, str]:
    return f.__module__, f.__qualname__


def template_of(name: str) -> Callable[..., Any]:
    """Return the template of a name. Raises `OptionError` with the nearest name."""
    if name not in TEMPLATES:
        hint = nearest(name, TEMPLATES) or f"; the templates are: {', '.join(sorted(TEMPLATES)) or 'none yet'}"
        raise OptionError(
            f"there is no template '{name}'{hint}. A template is registered by @autotvm.template, before its task is "
            "created or a record of it is read", code="TW1105")
    return TEMPLATES[name]


def get_config() -> Any:
    """Return the configuration of the running template, or the space that is being filled."""
    return DispatchContext.current.query(Target.current(), None)


def create(
    task_name: str, args: Sequence[Any], target: str | Target, target_host: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Task:
    """Return the task of a template, or of a network's kernel. Raises `OptionError` for unknown names."""
    from tilewright.search.autotvm.task import kernels

    chosen = Target(target)
    if kernels.is_kernel(task_name):
        return kernels.KernelTask(task_name, args, chosen)
    template_of(task_name)
    return Task(task_name, args, chosen, kwargs)
