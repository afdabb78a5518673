"""Manage functions of other compilers: move them into the module, mark them as extern, and inline them again.

    fn (%p, Compiler="npu", global_symbol="npu_0") { … }(%x)
      -> @npu_0(%x)                 OutlineCompilerFunctionsWithExistingGlobalSymbols
    def @npu_0(…, Compiler="npu") { … }
      -> with the attribute Extern   MarkCompilerFunctionsAsExtern
    @npu_0(%x)
      -> its body over %x            InlineCompilerFunctionsBoundTo
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, GlobalVar
from tilewright.relay.visitor import free_vars, rewrite, substitute


def _is_of(function: Any, compiler: str) -> bool:
    """Return whether the function belongs to another compiler: to `compiler`, or to any if that is empty."""
    return (isinstance(function, Function) and "Compiler" in function.attrs
            and compiler in ("", function.attrs["Compiler"]))


@dataclass(frozen=True)
class OutlineCompilerFunctionsWithExistingGlobalSymbols(Pass):
    """Move inline functions of the compiler `compiler_filter` (default: all) into the module, under their
    `global_symbol`.

    Structurally equal functions become one. Raises `CompileError` for different functions of one symbol, and for a
    function with free variables.
    """

    compiler_filter: str = ""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        made: dict[str, Function] = {}

        def outline(e: Expr) -> Expr | None:
            if not (isinstance(e, Call) and _is_of(e.op, self.compiler_filter)) or "global_symbol" not in e.op.attrs:
                return None
            name = str(e.op.attrs["global_symbol"])
            known = mod[name] if name in mod else made.setdefault(name, e.op)
            if not structural_equal(known, e.op, exact=True):
                raise CompileError(f"two functions have the global symbol '{name}'; give each a unique one", e.op.span,
                                   code="TW0414")
            around = free_vars(e.op)
            if around:
                raise CompileError(f"the function '{name}' reads %{around[0].name_hint}, "
                                   "which is bound outside the function; make it a parameter", e.op.span, code="TW0414")
            return Call(GlobalVar(name, e.op.known_type()), e.args, span=e.span)

        new = mod.map_functions(lambda f: rewrite(f, outline), Function)
        if new is mod:
            return mod
        new.update({name: f for name, f in made.items() if name not in mod})
        return new


@dataclass(frozen=True)
class MarkCompilerFunctionsAsExtern(Pass):
    """Set `Extern` on the functions of the compiler `compiler_filter` (default: all), whose code is linked in, and
    remove their callees."""

    compiler_filter: str = ""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        def mark(f: Any) -> Any:
            if not _is_of(f, self.compiler_filter):
                return f
            kept = f
            for key in ("Compiler", "global_symbol", "Inline", "Primitive"):
                kept = kept.without_attr(key) if key in kept.attrs else kept
            return kept.with_attr("Extern", 1)

        return mod.map_functions(mark, Function)


@dataclass(frozen=True)
class InlineCompilerFunctionsBoundTo(Pass):
    """Inline the functions `global_vars`, made for other compilers, into their callers, and remove them from the
    module.
    """

    global_vars: Sequence[Any]

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        names = [g if isinstance(g, str) else g.name_hint for g in self.global_vars]
        bodies = {n: mod[n] for n in names if n in mod and _is_of(mod[n], "")}
        if not bodies:
            return mod

        def inline(e: Expr) -> Expr | None:
            found = bodies.get(e.op.name_hint) if isinstance(e, Call) and isinstance(e.op, GlobalVar) else None
            if found is None or not isinstance(e, Call):
                return None
            return substitute(found.body, dict(zip(found.params, e.args, strict=True)))

        new = mod.map_functions(lambda f: rewrite(f, inline), Function).copy()
        for name in bodies:
            new.remove(name)
        return new
