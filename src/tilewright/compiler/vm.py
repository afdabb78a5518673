"""`relay.vm`: TVM's interface for programs with control flow. It compiles the same native program as `relay.build`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import InputError
from tilewright.base.nd import NDArray, array
from tilewright.compiler.build import build, optimize_module
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Function
from tilewright.relay.visitor import post_order
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.program import kernel_symbols
from tilewright.runtime.vm import Executable, Listing, listing_of

_RUN: Final = re.compile(r"run block (\d+)\(")
AnyTarget = str | Mapping[str, Any] | Target | None


def compile(
    mod: Any, target: AnyTarget = None, target_host: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a module for `runtime.vm.VirtualMachine`. Raises `CompileError`."""
    compiler = VMCompiler()
    if params:
        compiler.set_params(params)
    compiler.lower(mod, target, target_host)
    compiler.codegen()
    return compiler.get_exec()


class VMCompiler:
    """Compiles in steps: `set_params`, `lower`, `codegen`, `get_exec`; `optimize` runs the passes over graphs only."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._wanted: tuple[Any, AnyTarget, str | Target | None] | None = None
        self._made: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values of parameters of `main`, by name; they become constants of the program."""
        self._params.update(params)

    def get_params(self) -> dict[str, NDArray]:
        """Return the values of `set_params`."""
        return {name: array(value) for name, value in self._params.items()}

    def lower(self, mod: Any, target: AnyTarget = None, target_host: str | Target | None = None) -> None:
        """Compile `mod`. Raises `CompileError`."""
        report = BuildReport()
        made = build(mod, target, target_host, self._params, "vm_mod", report=report, for_all_sizes=True)
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
        self._made = Executable(made, _listing(module, made, report))

    def codegen(self) -> None:
        """Do nothing: `lower` makes the code, since kernels are compiled while the graph is lowered."""

    def optimize(
        self, mod: Any, target: AnyTarget = None, target_host: str | Target | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:
        """Run the passes over graphs; return the module, and an empty dictionary, because `params` become constants."""
        return optimize_module(mod, target, {**self._params, **(params or {})})

    def get_exec(self) -> Executable:
        """Return the result of `lower`. Raises `InputError` before it."""
        if self._made is None:
            raise InputError("nothing is compiled; call lower(mod, target) first", code="TW0708")
        return self._made


def _listing(mod: IRModule, made: FactoryModule, report: BuildReport) -> Listing:
    """Return the text of a program: its functions with control flow, or the steps of straight-line code."""
    functions = [f for f in mod.functions.values() if isinstance(f, Function)]
    constants = [e for f in functions for e in post_order(f) if isinstance(e, Constant)]
    types = [f"NDArray[{tuple(c.value.shape)},{c.value.dtype}]" for c in constants]
    if report.control is None:
        return replace(listing_of(made), constants=types)
    program, blocks = report.control
    kernels = [kernel_symbols(b.steps) for b in blocks]
    listed, known = [], dict(mod.items())
    for f in program.functions:
        source = known.get(f.name)
        names = [p.name_hint for p in source.params] if isinstance(source, Function) else [f"%{r}" for r in f.params]
        listed.append((f.name, names, [_with_kernels(line, kernels) for line in repr(f).splitlines()[1:]]))
    return Listing(listed, types, list(dict.fromkeys(s for b in kernels for s in b)))


def _with_kernels(line: str, kernels: Sequence[Sequence[str]]) -> str:
    """Return an instruction; one that runs a block is followed by the kernels of the block."""
    found = _RUN.search(line)
    return line if found is None else f"{line}  # {', '.join(kernels[int(found[1])]) or 'no kernels'}"
