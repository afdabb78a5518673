"""Compiles functions for targets with hooks: graphs -> loop programs -> code of the host, or a module made by the
target.

    def @npu_0(%p, Compiler="npu") { … }   --RelayToTIR-->   def npu_0(p: Buffer, out: Buffer)   --> a kernel
                                                             --TIRToRuntime-->   a module with the function "npu_0"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.backends import kernel_options
from tilewright.backends.cpu.shared_loops import share_loops
from tilewright.backends.hooks import hook_of
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.base.memory_faults import Site
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.runtime.modules import ModuleNode
from tilewright.scalar.expr import Buffer, Load, PrimExpr
from tilewright.scalar.walk import rewrite
from tilewright.tir.stmt import Block, PrimFunc, Stmt, Store, map_bodies, map_expressions, walk_stmt
from tilewright.tir.transform.instrument_memory import Checks
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_checked
from tilewright.tir.transform.simplify import simplify


def take_hooked(
    external: Mapping[str, Function], results: Mapping[str, Sequence[TensorType]], target: Target
) -> tuple[dict[str, PrimFunc], list[ModuleNode]]:
    """Return the host's loop programs by symbol, and the modules, for those functions whose target has `RelayToTIR`.

    `external` has the functions by symbol, `results` their result types. Raises `CompileError` for invalid results of a
    hook.
    """
    kernels: dict[str, PrimFunc] = {}
    modules: list[ModuleNode] = []
    for kind in dict.fromkeys(str(f.attrs["Compiler"]) for f in external.values()):
        functions = {s: f for s, f in external.items() if f.attrs["Compiler"] == kind}
        hook = hook_of(kind, "RelayToTIR")
        if hook is None:
            continue
        with kernel_options.use(KernelOptions(target.machine)):
            made: Any = hook(IRModule(functions))
        if not isinstance(made, IRModule):
            raise CompileError(
                f"RelayToTIR of '{kind}', at {hook.where}, returned a {type(made).__name__}; it must return an "
                "IRModule of loop programs", code="TW0911")
        for symbol, function in functions.items():
            _check(kind, symbol, function, results[symbol], dict(made.items()).get(symbol))
        finish = hook_of(kind, "TIRToRuntime")
        if finish is None:
            more = [n for n, _ in made.items() if n not in functions]
            if more:
                raise CompileError(
                    f"RelayToTIR of '{kind}' made {', '.join(more)}, which the host does not call; give the target "
                    "TIRToRuntime, or omit these functions", code="TW0911")
            kernels |= {s: made[s] for s in functions}
            continue
        module = finish(made, target)
        if not isinstance(module, ModuleNode):
            raise CompileError(
                f"TIRToRuntime of '{kind}', at {finish.where}, returned a {type(module).__name__}; it must return a "
                "tvm.runtime.ModuleNode", code="TW0911")
        modules.append(module)
    return kernels, modules


def _check(kind: str, symbol: str, function: Function, results: Sequence[TensorType], found: Any) -> None:
    """Raise `CompileError` if the parameters of a loop program are not the inputs and results of the function."""
    wanted = [(tuple(t.shape), t.dtype) for t in (*(p.tensor_type for p in function.params), *results)]
    if not isinstance(found, PrimFunc):
        raise CompileError(
            f"RelayToTIR of '{kind}' made no loop program '{symbol}'; it must make one of the same name for each "
            "function",
            function.span, code="TW0911")
    given = [(tuple(p.shape), p.dtype) for p in found.buffers]
    if given != wanted:
        listed = ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in wanted)
        raise CompileError(
            f"the loop program '{symbol}' that RelayToTIR of '{kind}' made takes {', '.join(map(str, found.params))}; "
            f"the inputs and outputs are {listed}", function.span, code="TW0911")


def host_kernel(
    func: PrimFunc, name: str, storage: Sequence[tuple[int, ...] | None], target: Target, checks: Checks | None = None,
    first_site: int = 0,
) -> tuple[PrimFunc, tuple[Site, ...]]:
    """Return a loop program as a kernel, and its checked sites, numbered from `first_site` on.

    `storage[k]` is the shape of the larger array in whose first corner buffer `k` lies, if any.
    """
    with kernel_options.use(KernelOptions(target.machine)) as options:
        shared = share_loops(func, options.machine)
        flat = simplify(lower_blocks(shared) if any(isinstance(s, Block) for s in walk_stmt(func.body)) else shared)
        return lower_checked(
            replace(_in_corners(flat, storage), name=name), checks, first_site, target.backend.loop_passes)


def _in_corners(func: PrimFunc, storage: Sequence[tuple[int, ...] | None]) -> PrimFunc:
    """Return the function with the row strides of the larger arrays in its buffers."""
    new = {
        b: Buffer(b.name, b.shape, b.dtype, b.scope, _strides(s))
        for b, s in zip(func.buffers, storage, strict=True) if s is not None}
    if not new:
        return func

    def load(e: PrimExpr) -> PrimExpr | None:
        return Load(new[e.buffer], e.indices) if isinstance(e, Load) and e.buffer in new else None

    def visit(s: Stmt) -> Stmt:
        s = map_expressions(s, lambda e: rewrite(e, load))
        if isinstance(s, Store) and s.buffer in new:
            s = replace(s, buffer=new[s.buffer])
        return map_bodies(s, visit) or s

    params = tuple(new[p] if isinstance(p, Buffer) and p in new else p for p in func.params)
    return replace(func, params=params, body=visit(func.body))


def _strides(shape: Sequence[int]) -> list[int]:
    found = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        found[k] = found[k + 1] * shape[k + 1]
    return found
