"""Strategies that programs register for operators: `tvm.relay.op.strategy`.

    @relay.op.strategy.dense_strategy.register("cpu")
    def my_dense_strategy(attrs, inputs, out_type, target):
        strategy = relay.op.OpStrategy()
        strategy.add_implementation(relay.op.strategy.wrap_compute_dense(compute),
                                    relay.op.strategy.wrap_topi_schedule(schedule), "dense.mine", 20)
        return strategy

A strategy lists implementations: a computation as tensor expressions, its te schedule, and a priority level. Each call
of the operator uses the implementation with the highest level whose conditions hold, and its kernel follows the
schedule. There are three ways to register: the generic function `<operator>_strategy` of this module,
`register_strategy`, and the pair of `register_compute` and `register_schedule`. Otherwise the strategies of the back
end apply.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilewright import te
from tilewright.backends.generic_func import GenericFunc
from tilewright.backends.kernel_options import current
from tilewright.backends.registry import find_backend
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.base.types import TupleType, Type
from tilewright.ir.op_attributes import op_attr, register_op_attr
from tilewright.relay.op.hooks import COMPUTE, SCHEDULE, STRATEGY, register_schedule
from tilewright.relay.op.registered import Registered
from tilewright.relay.op.registry import OPS, Op
from tilewright.te.schedule import Schedule
from tilewright.te.specialized import SpecializedCondition
from tilewright.te.tensor import ComputeOp, producers_first
from tilewright.topi import generic as topi_generic
from tilewright.topi import x86 as topi_x86

Compute = Callable[[Any, list[te.Tensor], Type], Any]
"""`compute(attrs, inputs, out_type)` returns the list of the output tensors."""
ScheduleOf = Callable[[Any, list[te.Tensor], Target], Schedule]
"""`schedule(attrs, outs, target)` returns the te schedule of a kernel with the results `outs`."""
Seconds = Callable[[tuple[Any, ...]], float | None]
"""The measured time of a tuning task by its workload, in seconds; None without a record."""


@dataclass(frozen=True, slots=True)
class OpImplementation:
    """One implementation of an operator. The highest `plevel` is used."""

    fcompute: Compute
    fschedule: ScheduleOf | None
    name: str = "default"
    plevel: int = 10

    def compute(self, attrs: Any, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
        """Return the output tensors of the operator."""
        made = self.fcompute(attrs, list(inputs), out_type)
        return [made] if isinstance(made, te.Tensor) else list(made)

    def schedule(self, attrs: Any, outs: Sequence[te.Tensor], target: Target) -> Schedule:
        """Return the te schedule of a kernel with the results `outs`."""
        with target:
            return naive_schedule(attrs, outs, target) if self.fschedule is None else self.fschedule(
                attrs, list(outs), target)


@dataclass(slots=True)
class OpSpecialization:
    """The implementations under one condition; None means unconditional."""

    condition: SpecializedCondition | None
    implementations: list[OpImplementation] = field(default_factory=list)


@dataclass(slots=True)
class OpStrategy:
    """The implementations of one operator for given shapes and a given target."""

    specializations: list[OpSpecialization] = field(default_factory=list)

    def add_implementation(
        self, compute: Compute, schedule: ScheduleOf | None = None, name: str = "default", plevel: int = 10
    ) -> None:
        """Add an implementation, under the condition of the enclosing `te.SpecializedCondition`, if any."""
        condition = SpecializedCondition.current()
        known = next((s for s in self.specializations if s.condition is condition), None)
        if known is None:
            self.specializations.append(known := OpSpecialization(condition))
        known.implementations.append(OpImplementation(compute, schedule, name, plevel))

    @property
    def valid(self) -> list[OpImplementation]:
        """The implementations whose conditions hold."""
        return [i for s in self.specializations if s.condition is None or s.condition.holds for i in s.implementations]


class _StrategyOf(GenericFunc):
    """The strategy of an operator by target key. Its first registration sets the operator's attribute."""

    def __init__(self, op_name: str) -> None:
        super().__init__(f"{op_name.rpartition('.')[2]}_strategy", _of_the_compiler)
        self.op_name = op_name

    def register(
        self, first: Any, second: Any = None, override: bool = True, *, allow_override: bool | None = None
    ) -> Any:
        if op_attr(self.op_name, STRATEGY) is None:
            register_op_attr(self.op_name, STRATEGY, self, level=0)
        return super().register(first, second, override, allow_override=allow_override)


@cache
def generic_strategy(op_name: str) -> GenericFunc:
    """The generic strategy function of an operator; by default it lists the compiler's implementation."""
    return _StrategyOf(op_name)


def _of_the_compiler(attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target) -> OpStrategy:
    strategy = OpStrategy()
    family = "arm_cpu" if "arm_cpu" in target.keys else "cpu"
    strategy.add_implementation(
        built_in_compute, wrap_topi_schedule(topi_x86.schedule_anchor), f"{attrs.name.rpartition('.')[2]}.{family}")
    return strategy


def built_in_compute(attrs: Any, inputs: Sequence[te.Tensor], out_type: Type) -> list[te.Tensor]:
    """The output tensors of an operator, from the current back end's strategy or the plain definition."""
    options = current()
    strategies = find_backend(options.machine.backend).strategies
    made = strategies.compute(attrs, options, *((tuple(inputs),) if attrs.variadic else inputs))
    return [made] if isinstance(made, te.Tensor) else list(made)


def get_valid_implementations(
    op: type[Op], attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target
) -> list[OpImplementation]:
    """The implementations of an operator whose conditions hold; by default those of the compiler."""
    strategy = op_attr(op.name, STRATEGY)
    if strategy is None and (op_attr(op.name, SCHEDULE) or op_attr(op.name, COMPUTE)):
        return [_of_parts(op.name)]
    with target:
        found = (strategy or generic_strategy(op.name))(attrs, list(inputs), out_type, target)
    if not isinstance(found, OpStrategy):
        raise CompileError(
            f"the strategy of {op.name} returned {found!r}; it must return a relay.op.OpStrategy", code="TW0312")
    return found.valid


def registered_implementation(
    op: Op, inputs: Sequence[te.Tensor], out_type: Type, target: Target, seconds: Seconds = lambda workload: None,
) -> tuple[OpImplementation, list[te.Tensor]] | None:
    """The implementation that programs registered for an operator, with its outputs; None if there is no registration.

    Raises `CompileError` if a registered strategy has no implementation for these shapes.
    """
    strategy, compute = op_attr(op.name, STRATEGY), None if isinstance(op, Registered) else op_attr(op.name, COMPUTE)
    if isinstance(strategy, _StrategyOf) and strategy.implementation(target) is None:
        return None
    if strategy is None and compute is None and op_attr(op.name, SCHEDULE) is None:
        return None
    return select(
        get_valid_implementations(type(op), op, inputs, out_type, target), op, inputs, out_type, target, seconds)


def select(
    found: Sequence[OpImplementation], attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target,
    seconds: Seconds,
) -> tuple[OpImplementation, list[te.Tensor]]:
    """The implementation that was measured to be fastest, otherwise that with the highest level, and its outputs.

    Raises `CompileError` if `found` is empty.
    """
    if not found:
        shapes = ", ".join(map(repr, inputs))
        raise CompileError(
            f"the registered strategy of {attrs.name} has no implementation for {shapes}; add one without a condition",
            code="TW0312")
    measured: list[tuple[float, int]] = []
    made: dict[int, list[te.Tensor]] = {}
    best = max(range(len(found)), key=lambda k: found[k].plevel)
    with target:
        for k, one in enumerate(found):
            if k == best or len(found) > 1:
                made[k] = one.compute(attrs, inputs, out_type)
                workload = workload_of(made[k])
                time = None if workload is None else seconds(workload)
                measured += [] if time is None else [(time, k)]
    chosen = min(measured)[1] if measured else best
    return found[chosen], made[chosen]


def workload_of(outs: Sequence[te.Tensor], task_name: str | None = None) -> tuple[Any, ...] | None:
    """The workload of the tuning task that computed `outs` (`autotvm.register_topi_compute`), or None."""
    for op in reversed(producers_first([t.op for t in outs])):
        workload: tuple[Any, ...] | None = op.attrs.get("workload") if isinstance(op, ComputeOp) else None
        if workload is not None and task_name in (None, workload[0]):
            return workload
    return None


def _of_parts(op_name: str) -> OpImplementation:
    """The implementation given by `register_compute` and `register_schedule`."""
    return OpImplementation(
        op_attr(op_name, COMPUTE) or built_in_compute,
        op_attr(op_name, SCHEDULE) or wrap_topi_schedule(topi_x86.schedule_anchor), "registered")


def result_of(made: Sequence[te.Tensor], out_type: Type) -> te.Tensor | tuple[te.Tensor, ...]:
    """The output tensors of an implementation as the value of a call: a tuple for a tuple type."""
    return tuple(made) if isinstance(out_type, TupleType) else made[0]


# Wrappers that turn functions of `topi` into parts of an implementation.


def naive_schedule(attrs: Any, outs: Sequence[te.Tensor], target: Target) -> Schedule:
    """A schedule of plain loops without inlining."""
    return te.create_schedule([t.op for t in outs])


def wrap_topi_schedule(topi_schedule: Callable[[list[te.Tensor]], Schedule]) -> ScheduleOf:
    """`schedule(attrs, outs, target)` for a function of `outs`, which is called inside `with target`."""

    def schedule(attrs: Any, outs: list[te.Tensor], target: Target) -> Schedule:
        with target:
            return topi_schedule(outs)

    return schedule


schedule_injective = schedule_injective_cpu = wrap_topi_schedule(topi_x86.schedule_anchor)
schedule_reduce = schedule_reduce_cpu = schedule_pool = schedule_pool_cpu = schedule_injective
schedule_default = wrap_topi_schedule(topi_generic.schedule_default)


def register_injective_schedule(op_name: str, level: int = 10) -> Any:
    """Register the default schedule for an operator: vectorized elementwise loops, tiled products and reductions."""
    return register_schedule(op_name, schedule_injective, level)


register_broadcast_schedule = register_reduce_schedule = register_injective_schedule


def _wrapped(
    topi_compute: Callable[..., Any], arguments: Callable[[Any, list[te.Tensor], Any], Iterable[Any]]
) -> Compute:
    """`compute(attrs, inputs, out_type)` for a function that is called with `arguments(attrs, inputs, out_type)`."""

    def compute(attrs: Any, inputs: list[te.Tensor], out_type: Type) -> list[te.Tensor]:
        made = topi_compute(*arguments(attrs, inputs, out_type))
        return [made] if isinstance(made, te.Tensor) else list(made)

    return compute


def _out_dtype(attrs: Any, inputs: Sequence[te.Tensor]) -> str:
    return str(attrs.out_dtype) if attrs.out_dtype not in ("", "same", "void", None) else str(inputs[0].dtype)


def wrap_topi_compute(topi_compute: Callable[..., Any]) -> Compute:
    """Wrap `f(*inputs)`."""
    return _wrapped(topi_compute, lambda attrs, inputs, _: inputs)


def wrap_compute_softmax(topi_compute: Callable[..., Any]) -> Compute:
    """Wrap `f(x, axis)`."""
    return _wrapped(topi_compute, lambda attrs, inputs, _: (inputs[0], attrs.axis))


def wrap_compute_dense(topi_compute: Callable[..., Any], *options: bool, **more: bool) -> Compute:
    """Wrap `f(data, weight, bias, out_dtype)`; the bias is None."""
    return _wrapped(topi_compute, lambda attrs, inputs, _: (*inputs[:2], None, _out_dtype(attrs, inputs)))


def wrap_compute_matmul(topi_compute: Callable[..., Any], *options: bool, **more: bool) -> Compute:
    """Wrap `f(a, b, bias, out_dtype, transpose_a, transpose_b)`; the bias is None."""
    return _wrapped(
        topi_compute,
        lambda attrs, inputs, _: (*inputs[:2], None, _out_dtype(attrs, inputs), attrs.transpose_a, attrs.transpose_b))


def wrap_compute_batch_matmul(
    topi_compute: Callable[..., Any], *options: bool, need_out_dtype: bool = False, **more: bool
) -> Compute:
    """Wrap `f(a, b, out_shape, out_dtype, transpose_a, transpose_b)`; out_dtype is None without `need_out_dtype`."""
    return _wrapped(
        topi_compute,
        lambda attrs, inputs, out: (
            *inputs[:2], out.shape, str(out.dtype) if need_out_dtype else None, attrs.transpose_a, attrs.transpose_b
        ))


def wrap_compute_conv2d(
    topi_compute: Callable[..., Any], need_data_layout: bool = False, need_kernel_layout: bool = False,
    need_out_layout: bool = False, has_groups: bool = False, *options: bool, **more: bool,
) -> Compute:
    """Wrap `f(data, weight, strides, padding, dilation[, groups][, layouts…], out_dtype)`."""
    wanted = {
        "groups": has_groups, "data_layout": need_data_layout, "kernel_layout": need_kernel_layout,
        "out_layout": need_out_layout
    }
    return _convolution(
        topi_compute,
        ("strides", "padding", "dilation", *(name for name, is_wanted in wanted.items() if is_wanted), "out_dtype"))


def wrap_compute_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """Wrap `f(data, weight, strides, padding, dilation, out_dtype)`."""
    return _convolution(topi_compute, ("strides", "padding", "dilation", "out_dtype"))


def wrap_compute_group_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """Wrap `f(data, weight, strides, padding, dilation, groups, out_dtype)`."""
    return _convolution(topi_compute, ("strides", "padding", "dilation", "groups", "out_dtype"))


def wrap_compute_conv3d(
    topi_compute: Callable[..., Any], need_layout: bool = False, *options: bool, **more: bool
) -> Compute:
    """Wrap `f(data, weight, strides, padding, dilation, groups[, layout], out_dtype)`."""
    return _convolution(
        topi_compute,
        ("strides", "padding", "dilation", "groups", *(["data_layout"] if need_layout else []), "out_dtype"))


def wrap_compute_conv2d_transpose(
    topi_compute: Callable[..., Any], has_groups: bool = False, *options: bool, **more: bool
) -> Compute:
    """Wrap `f(data, weight, strides, padding, out_dtype, output_padding[, groups])`."""
    return _convolution(
        topi_compute, ("strides", "padding", "out_dtype", "output_padding", *(["groups"] if has_groups else [])))


wrap_compute_conv1d_transpose = wrap_compute_conv3d_transpose = wrap_compute_conv2d_transpose


def _convolution(topi_compute: Callable[..., Any], attributes: Sequence[str]) -> Compute:
    def arguments(attrs: Any, inputs: list[te.Tensor], _: Any) -> Iterable[Any]:
        return *inputs[:2], *(
            _out_dtype(attrs, inputs) if name == "out_dtype" else _whole(attrs, name) for name in attributes)

    return _wrapped(topi_compute, arguments)


def _whole(attrs: Any, name: str) -> Any:
    """The value of an attribute; an empty output layout is the layout of the data."""
    value = getattr(attrs, name)
    return attrs.data_layout if name == "out_layout" and not value else value


def __getattr__(name: str) -> Any:
    """The generic function `<operator>_strategy`, or `<operator>_strategy_cpu`, the compiler's strategy.

    The operator's name may omit `nn.`, `image.` or `vision.`. The modules `generic`, `x86` and `arm_cpu` are this
    module.
    """
    if name in ("generic", "x86", "arm_cpu"):
        return sys.modules[__name__]
    base, found, family = name.partition("_strategy")
    op_name = next(
        (
            n for n in (f"nn.{base}", base, f"nn.contrib_{base}", f"image.{base}", f"vision.{base}") if found
            and n in OPS
        ), None)
    if op_name is not None and family in ("", "_cpu", "_arm_cpu"):
        return _of_the_compiler if family else generic_strategy(op_name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


__all__ = [
    "OpImplementation", "OpSpecialization", "OpStrategy", "naive_schedule", "schedule_injective", "schedule_pool",
    "schedule_reduce",
    "wrap_compute_batch_matmul", "wrap_compute_conv1d", "wrap_compute_conv1d_transpose", "wrap_compute_conv2d",
    "wrap_compute_conv2d_transpose",
    "wrap_compute_conv3d", "wrap_compute_conv3d_transpose", "wrap_compute_dense", "wrap_compute_group_conv1d",
    "wrap_compute_matmul",
    "wrap_compute_softmax", "wrap_topi_compute", "wrap_topi_schedule",
]
