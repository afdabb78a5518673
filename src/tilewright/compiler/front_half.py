"""The front half of the compiler: from a module to the functions that kernels are made of, one way for whatever is made of them.

    off_loaded   parts for accelerators and external compilers become calls of what those made
    front_half   control flow becomes a program of blocks, and `main`, or each of its blocks, goes through the passes over graphs

Artifacts (`build.py`), C files (`c_model.py`) and tuning (`fused.py`) begin here. What one of them cannot use, it refuses by looking at the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.backends.target import Target
from tilewright.compiler.entry_types import check_entry_types
from tilewright.compiler.external import take_external
from tilewright.compiler.flow import Lowered, lower_control, needs_control
from tilewright.compiler.offload import offload
from tilewright.compiler.stand_ins import with_stand_ins
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import SettleNumerics
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.pipeline import optimize
from tilewright.runtime.modules import ModuleNode
from tilewright.tir.stmt import PrimFunc


@dataclass(frozen=True, slots=True)
class OffLoaded:
    """A module without the parts that others compile, and the modules that they made of these."""

    module: IRModule
    modules: tuple[ModuleNode, ...]


@dataclass(frozen=True, slots=True)
class FrontHalf:
    """What the passes over graphs made of `main`.

    `optimized` has `main`, or for a program with `control` flow `block_0`, `block_1`, …, and `loops` are the loop programs that it calls by name.
    """

    main: Function
    control: Lowered | None
    optimized: IRModule
    loops: Mapping[str, PrimFunc]

    @property
    def functions(self) -> list[Function]:
        """The optimized functions, in order."""
        names: Sequence[str] = ("main",) if self.control is None else [f"block_{k}" for k in range(len(self.control.blocks))]
        return [self.optimized[name] for name in names]

    @property
    def output_names(self) -> Sequence[str]:
        """The names that the model gives its outputs, where it gives any."""
        names: Sequence[str] = self.main.attrs.get("output_tensor_names", ())
        return names


def off_loaded(mod: IRModule, target: Target) -> OffLoaded:
    """What the accelerators of `target` take of a module, and its external functions, compiled by those that they are for."""
    return OffLoaded(*take_external(with_stand_ins(offload(mod, target)), target.processor))


def front_half(mod: IRModule, processor: Target) -> FrontHalf:
    """The functions that kernels are made of, under the current `PassContext`. Raises `CompileError`."""
    main = mod["main"]
    loops = {n: f for n, f in mod.items() if isinstance(f, PrimFunc)}
    if not needs_control(main):
        check_entry_types(main)
        return FrontHalf(main, None, optimize(mod, processor), loops)
    control = lower_control(SettleNumerics()(ChooseNumerics()(InferType()(mod))))
    blocks = IRModule({f"block_{k}": f for k, f in enumerate(control.blocks)})
    return FrontHalf(main, control, optimize(blocks, processor), loops)
