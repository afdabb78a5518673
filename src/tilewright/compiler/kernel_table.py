"""Table of the distinct kernels of a program, with their symbols, made from its memory plans before any kernel is
lowered.

    step 3: conv2d_relu(%p0, w0)    step 5: conv2d_relu(%p0, w1)    step 6: npu_0(%x)
      ->  kernel_0_conv2d_relu (steps 3 and 5)      npu_0_0 (step 6, a loop program)

Two steps share a kernel if their functions are structurally equal, the same arguments are constants, and their
arrays have the same strides. A symbol has the kernel's number in the order of first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import InternalError, Origin
from tilewright.compiler.external import STAND_IN
from tilewright.ir.structural import structural_hash
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.plan_memory import MemoryPlan, MemorySpace, PlanStep
from tilewright.relay.visitor import post_order
from tilewright.tir.stmt import PrimFunc

Storage = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpec:
    """Everything that the code of one kernel is made from, apart from the options of the program.

    `function` is a primitive function of the graph, or a loop program that the hook of a target made. `constants[k]`
    marks argument `k` as known at compile time. `storage` has the shape of the enclosing array for each argument,
    then each result, or None if the array is contiguous. `origin` is the model's node at its first use. A function
    `in_python` has no native code.
    """

    symbol: str
    function: Function | PrimFunc
    constants: tuple[bool, ...]
    storage: Storage
    origin: Origin | None
    in_python: bool = False


class KernelTable:
    """Distinct kernels in the order of first use, and the kernel of each step of the plans."""

    def __init__(self, plans: Sequence[MemoryPlan], loops: Mapping[str, PrimFunc], by_origin: bool) -> None:
        """Fill the table. `loops` are the loop programs by symbol; `by_origin` gives each node of the model a kernel of
        its own."""
        self._loops, self._by_origin = loops, by_origin
        self._specs: dict[str, KernelSpec] = {}
        self._of: dict[PlanStep, KernelSpec] = {}
        self._numbers = [0, 0]  # numbers of graph functions and of loop programs
        for plan in plans:
            for step in plan.steps:
                self._enter(step)

    def __iter__(self) -> Iterator[KernelSpec]:
        return iter(self._specs.values())

    def kernel_of(self, step: PlanStep) -> KernelSpec | None:
        """Return the kernel that a step runs; None for a copy and for a call of a module that another compiler made."""
        return self._of.get(step)

    def _enter(self, step: PlanStep) -> None:
        if step.call is None:
            return
        function = step.call.op
        if not isinstance(function, Function):
            raise InternalError(
                f"a step of the plan calls {type(function).__name__}; only primitive functions have kernels")
        external = external_call(function)
        if external is None:
            self._of[step] = self._function(function, step)
        elif external.symbol in self._loops:
            self._of[step] = self._loop_program(external.symbol, step)

    def _function(self, function: Function, step: PlanStep) -> KernelSpec:
        constants = tuple(loc.place is MemorySpace.CONSTANT for loc in step.inputs)
        storage, origin = _storage(step), origin_of(step)
        in_python = _needs_python(function, step)
        layout = f"{'p' * in_python}{''.join(map(str, map(int, constants)))}{list(storage) if any(storage) else ''}"
        key = f"{structural_hash(function)}{layout}{origin or '' if self._by_origin else ''}"
        if key not in self._specs:
            symbol = f"kernel_{self._number(0)}_{title_of(function)}"
            self._specs[key] = KernelSpec(symbol, function, constants, storage, origin, in_python)
        return self._specs[key]

    def _loop_program(self, name: str, step: PlanStep) -> KernelSpec:
        """Enter a loop program, which is compiled as the kernels of the graph are."""
        storage, loops = _storage(step), self._loops[name]
        key = f"loops {name}{list(storage) if any(storage) else ''}"
        if key not in self._specs:
            origin = None if step.call is None else step.call.span
            func = loops if loops.origin else replace(loops, origin=origin)
            self._specs[key] = KernelSpec(f"{name}_{self._number(1)}", func, (), storage, origin)
        return self._specs[key]

    def _number(self, kind: int) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind] - 1


def external_call(function: Function) -> ExternalCall | None:
    """Return the call of external code that a function of the plan wraps, if it is one."""
    return function.body.op if isinstance(function.body, Call) and isinstance(function.body.op, ExternalCall) else None


def origin_of(step: PlanStep) -> Origin | None:
    """Return the model's node that a step computes."""
    assert step.call is not None
    return step.call.span or step.call.op.span


def title_of(function: Function) -> str:
    """Name a primitive function by its operators, for symbols and messages: `conv2d_add_relu`."""
    if STAND_IN in function.attrs:
        return f"{re.sub(r'[^A-Za-z0-9_]', '_', str(function.attrs[STAND_IN]))}_stand_in"
    calls = (e for e in post_order(function.body) if isinstance(e, Call))
    names = [e.op.name.rpartition(".")[2] for e in calls if hasattr(e.op, "name")]
    return "_".join(names[:6]) or "copy"


def _storage(step: PlanStep) -> Storage:
    return tuple(loc.storage for loc in (*step.inputs, *step.outputs))


def _needs_python(function: Function, step: PlanStep) -> bool:
    """Whether a step makes Python objects, or reads them except by operators with native string kernels on inputs of
    the program."""
    given = [(p, loc) for p, loc in zip(function.params, step.inputs, strict=True) if loc.type.dtype.is_object]
    foreign = any(loc.place is not MemorySpace.INPUT or loc.type.dtype != "string" for _, loc in given)
    if foreign or any(loc.type.dtype.is_object for loc in step.outputs):
        return True
    calls = [e for e in post_order(function.body) if isinstance(e, Call)] if given else []
    readers = [e.op for e in calls if any(p in e.args for p, _ in given)]
    return not all(isinstance(op, Op) and op.reads_texts for op in readers)
