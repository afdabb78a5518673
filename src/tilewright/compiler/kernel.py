"""Lowering of one fused function to one kernel: tensor expressions, a schedule, loops.

Constant arguments may be repacked: a stage with `prepack` runs at compile time, and its result is the kernel's
parameter. A `kept` stage reads one such constant, and becomes a function of its own: a program runs it at the first
call that needs its result, which it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from tilewright import te
from tilewright.backends import kernel_options
from tilewright.backends.cpu.shared_loops import share_loops
from tilewright.backends.cpu.strategies.schedules.arrange import Inlined, arrange, variants
from tilewright.backends.decisions import Decisions
from tilewright.backends.kernel_options import KernelOptions, winograd_setting
from tilewright.backends.machine import Machine
from tilewright.backends.registry import find_backend
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError, Origin
from tilewright.base.graphs import reachable
from tilewright.base.memory_faults import Site
from tilewright.base.recursion import KERNEL, room_for
from tilewright.base.string_tensors import placeholder_shape
from tilewright.base.types import DataType, TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.op.strategy import OpImplementation, Seconds, registered_implementation, result_of, workload_of
from tilewright.relay.visitor import post_order
from tilewright.scalar.arith.open_sizes import granted
from tilewright.scalar.expr import Buffer, PrimExpr, const
from tilewright.scalar.expr import Var as Symbol
from tilewright.te.create import computations, create_prim_func
from tilewright.te.resolve import apply_schedule
from tilewright.te.schedule import Schedule as TeSchedule
from tilewright.te.tensor import ComputeOp, Operation, Tensor
from tilewright.tir.legality import refuse_gpu_threads
from tilewright.tir.stmt import NUMBERS, VERSIONED, IfThenElse, PrimFunc
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.instrument_memory import Checks
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import LoopPass, lower_checked

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class KeptStage:
    """A value that a program computes from a constant at the first call whose sizes satisfy the `condition`, and keeps.

    `func` computes it from parameter `source` of the kernel; it is scheduled, and flat once the kernel is.
    """

    func: PrimFunc
    source: int
    condition: PrimExpr


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a kernel, `nbytes` long: argument `sources[0]` of the fused function, the result of `pack` on
    constant arguments, or a `kept` value."""

    sources: tuple[int, ...]
    nbytes: int
    pack: Callable[..., Array] | None = None
    kept: KeptStage | None = None


Version: TypeAlias = tuple[PrimExpr | None, PrimFunc]
"""A scheduled program, and the condition under which it is chosen, if there are several."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A lowered kernel. Its parameters are `arguments`, then one buffer for each result."""

    func: PrimFunc
    arguments: tuple[Argument, ...]
    stages: dict[str, PrimFunc] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    """The accesses to memory that the code checks."""
    loops: PrimFunc | None = None
    """The loops before flattening."""
    workload: tuple[Any, ...] | None = None
    """The tuning task of the kernel's registered implementation, if any."""
    versions: tuple[Version, ...] = ()
    """The scheduled programs of a kernel with symbolic sizes."""

    @property
    def kept(self) -> tuple[PrimFunc, ...]:
        """The functions that compute kept values."""
        return tuple(a.kept.func for a in self.arguments if a.kept is not None)

    @property
    def declared(self) -> PrimFunc:
        """The function whose parameters have all their dimensions."""
        return self.loops or self.func


Shape = tuple[int, ...]
Found = Callable[[PrimFunc, Sequence[Tensor], Sequence[Tensor]], PrimFunc | None]
"""Schedules a program with one block per computation, given its inputs and outputs; returns None for an unknown
program."""


@room_for(KERNEL)
def lower(
    function: Function, constants: Sequence[bool], machine: Machine, name: str, *, keep_stages: bool = False,
    storage: Sequence[Shape | None] = (), symbols: Sequence[Symbol] = (), flat: bool = True,
    decided: Decisions | None = None,
    found: Found | None = None, checks: Checks | None = None, first_site: int = 0, target: Target | None = None,
    seconds: Seconds = lambda workload: None,
) -> Kernel:
    """Lower a primitive function. `constants[k]` marks argument k as known at compile time.

    `symbols` are the symbolic sizes of the program, which every kernel takes after its buffers. `storage` has, for each
    argument and then each result, the shape of the larger array in whose first corner it lies, if any. `decided`
    overrides the tiles, orders and algorithms of the cost model, except in kernels with symbolic sizes. `found`
    schedules the computations that it recognises, instead of their own schedule. Registered strategies are queried for
    `target`; `seconds` are the measured times of their tasks. With `checks`, accesses are checked, at sites numbered
    from `first_site` on. Unless `flat` is set, the result is the stage `lowered`; with symbolic sizes it has only
    `versions`, for comparison, since what follows depends on nothing but them.

    Raises `NoNativeKernel` from `Op.compute` when an operator has no tensor expression.
    """
    options = _options(machine, None if symbols else decided)
    with kernel_options.use(options):
        inputs = [_placeholder(p, c) for p, c in zip(function.params, constants, strict=True)]
        made = _Computed(
            function, inputs, constants, storage, _Programs(target or Target.current() or Target("llvm"), seconds),
            options)
        func = made.func(name, symbols)
        chosen = variants(made.args, made.outputs, options) if symbols and made.schedule is None else []
        versions: tuple[Version, ...]
        kept: dict[Tensor, KeptStage] = {}
        if made.schedule is not None:
            versions = ((None, made.scheduled(func, made.schedule)),)
        elif chosen:
            versions, made.args, kept = _by_size(made, func, chosen)
        else:
            known = None if found is None or symbols else found(func, made.args, made.outputs)
            versions = ((None, arrange(func, made.args, made.outputs, options) if known is None else known),)
        where = {t: k for k, t in enumerate(inputs)}
        arguments = tuple(_argument(t, where, kept) for t in made.args)
        if not flat and symbols:
            return Kernel(func, arguments, versions=versions)
        workload = None if made.schedule is None else workload_of(made.outputs)
        blocks = _joined(versions)
        if not flat:
            return Kernel(blocks, arguments, loops=blocks, workload=workload)
        passes = find_backend(machine.backend).loop_passes
        flattened, sites = lower_checked(blocks, checks, first_site, passes)
        arguments, more = _flat_stages(arguments, checks, first_site + len(sites), passes)
        sites = (*sites, *more)
    stages = {"scheduled": func if chosen else versions[0][1], "lowered": blocks} if keep_stages else {}
    return Kernel(
        flattened, arguments, stages, sites, blocks, workload, versions if symbols else ())


@dataclass(frozen=True, slots=True)
class Parts:
    """An unscheduled kernel: `func`, a program with one block per computation, its inputs and its outputs."""

    args: list[Tensor]
    outputs: list[Tensor]
    arguments: tuple[Argument, ...]
    func: PrimFunc
    options: KernelOptions

    def scheduled(self) -> PrimFunc:
        """Return the program with its own schedule applied."""
        return arrange(self.func, self.args, self.outputs, self.options)


def parts_of(function: Function, constants: Sequence[bool], target: Target) -> Parts:
    """Return the computations of a primitive function for a target; packed constants are among its inputs.

    Raises `NoNativeKernel`, as `lower` does.
    """
    options = _options(target.machine)
    with kernel_options.use(options):
        inputs = [_placeholder(p, c) for p, c in zip(function.params, constants, strict=True)]
        made = _Computed(function, inputs, constants, (), _Programs(target, lambda workload: None), options)
    where = {t: k for k, t in enumerate(inputs)}
    arguments = tuple(_argument(t, where, {}) for t in made.args)
    return Parts(made.args, made.outputs, arguments, made.func("main", ()), options)


def _options(machine: Machine, decisions: Decisions | None = None) -> KernelOptions:
    """Return the options of a kernel, those of the current pass context among them."""
    return KernelOptions(machine, decisions or Decisions(), winograd_tiles=winograd_setting())


def _placeholder(p: Var, constant: bool) -> Tensor:
    t = p.tensor_type
    if t.dtype.is_object:
        return te.placeholder(placeholder_shape(t.shape), "uint8", name=p.name_hint)
    return te.placeholder(t.shape, t.dtype, name=p.name_hint, constant=constant)


@dataclass(slots=True)
class _Programs:
    """The registered implementations of the operators of one kernel; the anchor's implementation schedules the kernel.
    """

    target: Target
    seconds: Seconds
    kind: int = -1
    anchor: tuple[Op, OpImplementation] | None = None

    def computed(self, call: Call, args: Sequence[Any]) -> Any:
        """Return the value of a call by a registered implementation, or None."""
        flat = [t for a in args for t in (a if isinstance(a, tuple) else (a,))]
        found = registered_implementation(call.op, flat, call.checked_type, self.target, self.seconds)
        if call.op.kind >= self.kind:
            self.kind, self.anchor = call.op.kind, None if found is None else (call.op, found[0])
        return None if found is None else result_of(found[1], call.checked_type)

    def schedule(self, outputs: Sequence[Tensor]) -> TeSchedule | None:
        """Return the schedule of the anchor, if a program registered its implementation."""
        return None if self.anchor is None else self.anchor[1].schedule(self.anchor[0], outputs, self.target)


class _Computed:
    """The computations of a function, their input tensors and their output tensors.

    `schedule` is a registered te schedule of the kernel; its steps leave no packing to the compiler.
    """

    def __init__(
        self, function: Function, inputs: Sequence[Tensor], constants: Sequence[bool], storage: Sequence[Shape | None],
        programs: _Programs, options: KernelOptions,
    ) -> None:
        self.function, self.inputs, self.constants, self.storage, self.programs, self.options = (
            function, inputs, constants, storage, programs, options
        )
        self.origins: dict[Operation, Origin] = {}
        self.outputs = _tensors(function, inputs, self.origins, programs, options)
        self.schedule = programs.schedule(self.outputs)
        known = {
            t for t,
            c in zip(inputs, constants, strict=True) if c
            and (self.schedule is None or self.schedule.arrange is not None)}
        packed = _packable(self.outputs, known)
        self.kept = [op.outputs[0] for op in _all(self.outputs) if op.kept]
        needed = _needed(packed, self.outputs)
        self.args = [t for t in [*inputs, *packed, *self.kept] if t in needed]

    def func(self, name: str, symbols: Sequence[Symbol], params: Sequence[Buffer] = ()) -> PrimFunc:
        """Return the loops, one nest per computation, over `params` if they are given."""
        larger = {
            t: shape for t, shape in zip((*self.inputs, *self.outputs), self.storage, strict=False) if shape is not None
        }
        binds = dict(zip((*self.args, *self.outputs), params, strict=True)) if params else None
        origin = self.function.span or _origin(self.function)
        made = create_prim_func(self.args, self.outputs, name, origin, self.origins, binds, storage=larger)
        func = share_loops(made, self.options.machine)
        return replace(func, attrs={**func.attrs, NUMBERS: tuple(symbols)}) if symbols else func

    def again(self, options: KernelOptions) -> _Computed:
        """Return the same computations made anew, for tiles of another height."""
        return _Computed(self.function, self.inputs, self.constants, self.storage, self.programs, options)

    def scheduled(self, func: PrimFunc, schedule: TeSchedule) -> PrimFunc:
        """Return the loops with a te schedule applied. Raises `ScheduleError` if a step cannot be applied."""
        if schedule.arrange is not None:
            return schedule.arrange(func, self.args, self.outputs)
        made = apply_schedule(schedule, [*self.args, *self.outputs], func)
        refuse_gpu_threads(made)
        return made


def _by_size(
    made: _Computed, func: PrimFunc, chosen: Sequence[tuple[KernelOptions, PrimExpr]]
) -> tuple[tuple[Version, ...], list[Tensor], dict[Tensor, KeptStage]]:
    """Return the versions of a kernel for several tile heights and algorithms, its arguments (those of all versions),
    and the stages of kept arguments. Computations that do not depend on the height are made once."""
    found: list[Version] = []
    kept: dict[Tensor, KeptStage] = {}
    params = dict(zip(made.args, func.buffers, strict=False))
    results = func.buffers[len(made.args):]
    shared = None if "height" in made.options.asked else Inlined.of(func, made.args, made.outputs)
    for options, condition in reversed(chosen):
        is_usual = options.winograd_tiles == made.options.winograd_tiles and not options.alternative
        with granted(), kernel_options.use(options):
            if is_usual and shared is not None:
                found.append((condition, shared.scheduled(options)))
                continue
            one = made.again(options)
            shares = is_usual or options.alternative
            args = _same(made, one) if shares else one.args
            own = [params.setdefault(t, _renamed(t, params)) for t in args]
            for t in one.kept:
                source = _source(t, one.args)
                name = f"{func.name}_keep_{len(kept)}"
                stage = arrange(create_prim_func([source], [t], name, func.origin), [source], [t], options)
                kept[t] = KeptStage(stage, list(params).index(args[one.args.index(source)]), condition)
            same = one.func(func.name, func.attrs[NUMBERS], [*own, *results])
            found.append((condition, arrange(same, one.args, one.outputs, options)))
    whole = (*params.values(), *results)
    versions = tuple((condition, replace(version, params=whole)) for condition, version in reversed(found))
    return versions, list(params), kept


def _same(made: _Computed, one: _Computed) -> list[Tensor]:
    """Return the arguments of `made` that equal those of `one`, which may not need every input; kept values are
    arguments of their own."""
    packed = iter([t for t in made.args if t not in made.inputs])
    return [t if t in one.inputs or t in one.kept else next(packed) for t in one.args]


def _source(kept: Tensor, args: Sequence[Tensor]) -> Tensor:
    """Return the argument from which a kept value is computed."""
    given = set(args) - {kept}
    read = [t for t in reachable([kept], lambda t: () if t in given else t.op.inputs) if t in given]
    if len(read) != 1:
        raise InternalError(f"the kept value '{kept.name}' reads {len(read)} arguments of its kernel; it may read one")
    return read[0]


def _flat_stages(
    arguments: Sequence[Argument], checks: Checks | None, first: int, passes: Sequence[LoopPass]
) -> tuple[tuple[Argument, ...], tuple[Site, ...]]:
    """Return the arguments with flat code of their kept stages, and the sites that this code checks, numbered from
    `first` on."""
    made, sites = [], list[Site]()
    for a in arguments:
        if a.kept is not None:
            func, more = lower_checked(lower_blocks(a.kept.func), checks, first + len(sites), passes)
            a, sites = replace(a, kept=replace(a.kept, func=func)), [*sites, *more]
        made.append(a)
    return tuple(made), tuple(sites)


def _joined(versions: Sequence[Version]) -> PrimFunc:
    """Return the loops of a kernel, which selects one of several versions by its sizes."""
    *others, (_, last) = versions
    joined = lower_blocks(last)
    if not others:
        return joined
    body = joined.body
    for condition, version in reversed(others):
        assert condition is not None
        body = IfThenElse(condition, lower_blocks(version).body, body)
    return convert_ssa(replace(joined, body=body, attrs={**joined.attrs, VERSIONED: True}))


def _renamed(t: Tensor, others: Mapping[Tensor, Buffer]) -> Buffer:
    """Return the parameter for a packed constant of one of several algorithms."""
    taken = {b.name for b in others.values()}
    name = next(n for n in (t.name, *(f"{t.name}_{k}" for k in range(len(taken)))) if n not in taken)
    return Buffer(name, t.shape, t.dtype)


def _argument(t: Tensor, where: Mapping[Tensor, int], kept: Mapping[Tensor, KeptStage]) -> Argument:
    nbytes = TensorType(t.extents, t.dtype).nbytes
    if t in kept:
        return Argument((), nbytes, kept=kept[t])
    if t in where:
        return Argument((where[t],), nbytes)
    assert isinstance(t.op, ComputeOp)
    return Argument(tuple(where[i] for i in t.op.inputs), nbytes, t.op.prepack)


def _origin(function: Function) -> Origin | None:
    spans = [e.span for e in post_order(function.body) if isinstance(e, Call) and e.span is not None]
    return spans[-1] if spans else None


def _tensors(
    function: Function, inputs: Sequence[Tensor], origins: dict[Operation, Origin], programs: _Programs,
    options: KernelOptions,
) -> list[Tensor]:
    """Return the results of a primitive function as tensor expressions, and fill in `origins`."""
    values: dict[Expr, Any] = dict(zip(function.params, inputs, strict=True))
    strategies = find_backend(options.machine.backend).strategies
    for e in post_order(function.body):
        match e:
            case Var():
                continue
            case Constant():
                values[e] = _constant(e)
            case Tuple():
                values[e] = tuple(values[f] for f in e.fields)
            case TupleGetItem():
                values[e] = values[e.tuple_value][e.index]
            case Call():
                args = [values[a] for a in e.args]
                made = programs.computed(e, args)
                values[e] = strategies.compute(e.op, options, *args) if made is None else made
                if e.span is not None:
                    _mark(values[e], e.span, origins)
            case _:
                raise InternalError(f"a {type(e).__name__} inside a primitive function cannot be lowered")
    result = values[function.body]
    results = list(result) if isinstance(result, tuple) else [result]
    _check_types(function.body, results)
    return results


def _check_types(body: Expr, results: Sequence[Tensor]) -> None:
    """Raise `InternalError` if a result's element type differs from its buffer's; a wider type would overrun the
    buffer."""
    kinds = body.checked_type.fields if isinstance(body.checked_type, TupleType) else (body.checked_type,)
    for t, kind in zip(results, kinds, strict=True):
        if isinstance(kind, TensorType) and t.dtype != kind.dtype:
            raise InternalError(f"an operator computes {t.dtype} for a result of {kind.dtype}: {body}")


def _mark(result: Any, span: Origin, origins: dict[Operation, Origin]) -> None:
    """Record `span` as the origin of every computation of an operator's result."""
    stack = list(result) if isinstance(result, tuple) else [result]
    while stack:
        op = stack.pop().op
        if isinstance(op, ComputeOp) and op not in origins:
            origins[op] = span
            stack.extend(op.inputs)


def _constant(e: Constant) -> Tensor:
    """Return a scalar constant of a primitive function as a tensor."""
    if e.value.size != 1:
        raise InternalError("a constant tensor inside a primitive function must be one of its arguments")
    value = const(e.value.reshape(()).item(), DataType(e.value.dtype))
    return te.compute(e.value.shape, lambda *i: value, name="constant")


def _packable(outputs: Sequence[Tensor], known: set[Tensor]) -> list[Tensor]:
    """Return the stages that can run at compile time: they have `prepack` and read only constants."""
    return [op.outputs[0] for op in _all(outputs) if op.prepack is not None and all(i in known for i in op.inputs)]


def _all(outputs: Sequence[Tensor]) -> list[ComputeOp]:
    placeholders = [t for t in reachable(outputs, lambda t: t.op.inputs) if not isinstance(t.op, ComputeOp)]
    return [op for op in computations(placeholders, outputs) if isinstance(op, ComputeOp)]


def _needed(packed: Sequence[Tensor], outputs: Sequence[Tensor]) -> set[Tensor]:
    """Return the tensors that are read when `packed` are given."""
    given = set(packed)
    return set(reachable(outputs, lambda t: () if t in given else t.op.inputs))
