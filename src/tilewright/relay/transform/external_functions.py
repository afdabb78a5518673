"""Manage functions of other compilers: move them into the module, mark them as extern, and inline them again.

    fn (%p, Compiler="npu", global_symbol="npu_0") { … }(%x)
      -> @npu_0(%x)                 OutlineCompilerFunctionsWithExistingGlobalSymbols
    def @npu_0(…, Compiler="npu") { … }
      -> with the attribute Extern   MarkCompilerFunctionsAsExtern
    @npu_0(%x)
      -> its body over %x            InlineCompilerFunctionsBoundTo, also those of its composite functions

A function that a let binds is moved, too, if it is only called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Let
from tilewright.relay.visitor import free_vars, operands, post_order, rewrite, substitute


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
        bound: dict[Expr, Function] = {}

        def outline(e: Expr) -> Expr | None:
            if isinstance(e, Let) and e.var in bound:
                return e.body
            function = bound.get(e.op, e.op) if isinstance(e, Call) and isinstance(e.op, Expr) else None
            if not isinstance(e, Call) or not self._is_moved(function):
                return None
            name = str(function.attrs["global_symbol"])
            known = mod[name] if name in mod else made.setdefault(name, function)
            if not structural_equal(known, function, exact=True):
                raise CompileError(f"two functions have the global symbol '{name}'; give each a unique one",
                                   function.span, code="TW0414")
            around = free_vars(function)
            if around:
                raise CompileError(f"the function '{name}' reads %{around[0].name_hint}, which is bound outside the "
                                   "function; make it a parameter", function.span, code="TW0414")
            kind: Any = function.known_type()
            return Call(GlobalVar(name, kind), e.args, span=e.span)

        def moved(function: Function) -> Any:
            bound.update(self._bound(function))
            return rewrite(function, outline, inside=bool(bound))

        new = mod.map_functions(moved, Function)
        if new is mod:
            return mod
        new.update({name: f for name, f in made.items() if name not in mod})
        return new

    def _is_moved(self, function: Any) -> TypeGuard[Function]:
        return _is_of(function, self.compiler_filter) and "global_symbol" in function.attrs

    def _bound(self, function: Function) -> dict[Expr, Function]:
        """Return the functions to move by the variables that lets bind them to, without variables that are read
        otherwise than as callees."""
        order = post_order(function)
        found: dict[Expr, Function] = {
            e.var: e.value for e in order if isinstance(e, Let) and self._is_moved(e.value)}
        for e in order if found else ():
            for o in e.args if isinstance(e, Call) else (e.value, e.body) if isinstance(e, Let) else operands(e):
                found.pop(o, None)
        return found


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


def _without_composite(e: Expr) -> Expr | None:
    """fn (%p, Composite="npu.conv") { body }(%x) -> body over %x"""
    if not (isinstance(e, Call) and isinstance(e.op, Function) and "Composite" in e.op.attrs):
        return None
    return substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))


@dataclass(frozen=True)
class InlineCompilerFunctionsBoundTo(Pass):
    """Inline the functions `global_vars`, made for other compilers, and their composite functions into their callers,
    and remove them from the module.
    """

    global_vars: Sequence[Any]

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        names = [g if isinstance(g, str) else g.name_hint for g in self.global_vars]
        bodies: dict[str, Any] = {
            n: rewrite(mod[n], _without_composite) for n in names if n in mod and _is_of(mod[n], "")}
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
