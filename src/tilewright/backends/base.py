"""The interface of a back end, which has every processor-dependent part of a compilation.

The front half of the compiler determines the computation of a program, a `Backend` its implementation. It turns the
options of a target into a `Machine`, chooses strategies for operators, and names the passes that flatten loops. It
emits and compiles text, links, and has a `Device` if kernels run in separate memory. `registry.py` finds back ends by
target kind, and those of other packages by entry points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker
    from tilewright.backends.cpu.llvm.debug_info import Source
    from tilewright.backends.host_code import HostCode
    from tilewright.backends.kernel_options import KernelOptions
    from tilewright.backends.machine import Machine
    from tilewright.backends.targets.target import Target
    from tilewright.runtime.scratch import Scratch
    from tilewright.te.tensor import KernelSchedule
    from tilewright.tir.stmt import PrimFunc
    from tilewright.tir.transform.pipeline import LoopPass

TEXT, NUMBER, LIST = "text", "number", "list"
"""The types of the options of a target; a list is separated by commas."""
OPTIONS: Final[Mapping[str, str]] = {
    "mcpu": TEXT, "mtriple": TEXT, "mattr": LIST, "mabi": TEXT, "mfloat-abi": TEXT, "device": TEXT, "model": TEXT,
    "keys": LIST, "libs": LIST, "num-cores": NUMBER, "vector-width": NUMBER, "opt-level": NUMBER, "tag": TEXT,
}
"""The options that every target accepts, with their types."""


def _always(op: Any, options: KernelOptions, *inputs: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compute an operator on the machines of a back end.

    `compute(op, options, *inputs)` returns the tensor expressions of the operator `op`, as `Op.compute` does.
    `schedule(op, options, *inputs)` returns the schedule of the kernel around the computation of the first result;
    without it, the computations have their schedules themselves. `accepts(op, options, *inputs)` tells whether the
    strategy applies to these types and attributes. `options` are the machine and the choices for the kernel.
    """

    name: str
    compute: Callable[..., Any]
    schedule: Callable[..., KernelSchedule] | None = None
    accepts: Callable[..., bool] = _always

    def apply(self, op: Any, options: KernelOptions, *inputs: Any) -> Any:
        """Return the tensors of `op`, with the schedule attached to the computation of the first."""
        from tilewright.te.tensor import Tensor

        made = self.compute(op, options, *inputs)
        if self.schedule is None:
            return made
        first = made[0] if isinstance(made, tuple) else made
        anchor = replace(first.op, schedule=self.schedule(op, options, *inputs), tensors=[])
        anchor.tensors.extend(Tensor(anchor, t.index, t.shape, t.dtype) for t in first.op.tensors)
        return tuple(anchor.tensors) if isinstance(made, tuple) else anchor.tensors[first.index]


@dataclass(slots=True)
class Strategies:
    """The strategies of a back end by class of operator; the last registered one that accepts an operator is chosen."""

    table: dict[type, list[Strategy]] = field(default_factory=dict)

    def register(self, operator: type, strategy: Strategy) -> None:
        """Add a strategy for the operators of a class and of the classes derived from it."""
        self.table.setdefault(operator, []).append(strategy)

    def find(self, op: Any, options: KernelOptions, *inputs: Any) -> Strategy | None:
        """Return the strategy for an operator with these inputs; None if `Op.compute` applies."""
        for kind in type(op).__mro__:
            for strategy in reversed(self.table.get(kind, ())):
                if strategy.accepts(op, options, *inputs):
                    return strategy
            if "compute" in vars(kind):  # strategies of base classes compute another operator
                return None
        return None

    def compute(self, op: Any, options: KernelOptions, *inputs: Any) -> Any:
        """Return the tensor expressions of an operator: those of its strategy, or of `Op.compute`.

        Raises `NoNativeKernel`, as `Op.compute` does.
        """
        strategy = self.find(op, options, *inputs)
        return op.compute(*inputs) if strategy is None else strategy.apply(op, options, *inputs)


class Device(Protocol):
    """A processor with separate memory. Addresses are integers; sizes are in bytes."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory. Raises `RunError` if the device has too little."""

    def release(self, address: int) -> None:
        """Free memory that `allocate` returned."""

    def copy(self, source: int, destination: int, nbytes: int, *, to_device: bool) -> None:
        """Copy between the memory of the host and that of the device."""

    def launch(self, symbol: str, arguments: Sequence[int]) -> None:
        """Start a kernel on addresses of the device; return before it ends."""

    def wait(self) -> None:
        """Return when all copies and kernels have ended. Raises `RunError` if one failed."""


class Backend:
    """A maker of programs for one kind of target. Subclasses are singletons without compilation state.

    Attributes: `name` is the kind of target (`llvm`); `keys` are the target keys that the kind implies; `options` are
    the accepted options with their types; `stages` are the texts of a program after its loops, by the names of
    `Model.dump`.
    """

    name: str
    keys: tuple[str, ...] = ()
    options: Mapping[str, str] = OPTIONS
    stages: tuple[str, ...] = ()
    one_text: bool = False
    """Whether all kernels of a program are one text, compiled when the last kernel is known; otherwise each is compiled
    separately."""
    has_debug_info: bool = False
    """Whether emitted text can carry the lines and variables of `Source`."""
    device: Device | None = None
    """The device on which kernels run; None for kernels that run on the host."""

    @functools.cached_property
    def strategies(self) -> Strategies:
        """The strategies by class of operator, those of `add_strategies` at first."""
        made = Strategies()
        self.add_strategies(made)
        return made

    @functools.cached_property
    def host_code(self) -> HostCode:
        """The writer of the code around kernels: by default LLVM text."""
        from tilewright.backends.cpu.llvm.host_code import LlvmHostCode

        return LlvmHostCode()

    def add_strategies(self, strategies: Strategies) -> None:
        """Register the strategies of the back end; called when the first kernel is made."""

    @property
    def loop_passes(self) -> Sequence[LoopPass]:
        """The passes from lowered loops to flat ones, in order."""
        from tilewright.tir.transform import pipeline

        return pipeline.LOOP_PASSES

    def check(self, target: Target) -> None:
        """Raise `TargetError` for values of options that the back end does not accept."""

    def check_code(self, target: Target) -> None:
        """Raise `TargetError` for a target that can be described, but for which no code is generated."""

    def machine(self, target: Target) -> Machine:
        """Return the processor of a target as a machine model for schedules."""
        raise NotImplementedError(f"the back end '{self.name}' describes no machine")

    def emit(
        self, funcs: Sequence[PrimFunc], target: Target, sources: Sequence[Source] = (),
        overlapping: frozenset[str] = frozenset(),
    ) -> tuple[str, Scratch]:
        """Return the text of flat functions, and the maximum scratch memory of one of them.

        `sources` has the text that each function's debug information points into, or is empty. The functions named in
        `overlapping` may read memory that they write. Raises `InternalError` for a function that is not flat.
        """
        raise NotImplementedError(f"the back end '{self.name}' writes no text")

    def scratch(self, func: PrimFunc) -> Scratch:
        """Return the scratch memory of a flat function, for back ends of one text, before that is emitted."""
        raise NotImplementedError(f"the back end '{self.name}' emits each kernel when it is ready")

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        """Return the object file of emitted text.

        With `in_order`, instructions keep the order of the text, for debuggers.
        """
        raise NotImplementedError(f"the back end '{self.name}' compiles no text")

    def texts(self, text: str, target: Target) -> Mapping[str, Callable[[], str]]:
        """Return the text at each of `stages`, computed on demand."""
        return {self.stages[0]: lambda: text}

    def with_note(self, text: str, note: str) -> str:
        """Return emitted text with a note from which the text alone can be loaded again; back ends without notes return
        it unchanged."""
        return text

    def identity(self, target: Target) -> str:
        """Return a text for the cache key: everything except the target that object files depend on."""
        return ""

    def link(
        self, objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None,
        stack: int = 0,
    ) -> None:
        """Link object files into `out`, in the form of its extension, exporting the symbols `exports`.

        A kernel takes `stack` bytes of the stack, which matters on systems with a fixed stack size. Temporary files go
        into the folder of `out`. Raises `ArtifactError` if no linker succeeds.
        """
        raise NotImplementedError(f"the back end '{self.name}' links nothing")
