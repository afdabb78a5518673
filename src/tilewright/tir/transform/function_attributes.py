"""Attributes of functions: their targets, and which of them is the entry.

    BindTarget(Target("cuda", host="llvm"))    a function with a global symbol gets the target with its host, others
                                               get it without; a function with a target keeps it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.tir.stmt import PrimFunc

TARGET: Final = "target"
ENTRY: Final = "tir.is_entry_func"
SYMBOL: Final = "global_symbol"
EXPORTED: Final = "tir.is_global_func"
CONVENTION: Final = "calling_conv"
"""Attribute of a function that was given a calling convention: `PACKED` or `LAUNCHED`."""
PACKED: Final = 1
LAUNCHED: Final = 2


def bind_target(func: PrimFunc, target: Any) -> PrimFunc:
    """Give a function a target. A target that it has already only gets the new host, if it has none and the function
    has a global symbol."""
    old, exposed = func.attrs.get(TARGET), SYMBOL in func.attrs
    if old is None:
        return func.with_attr(TARGET, target if exposed else target.without_host())
    if exposed and target.host is not None and old.host is None:
        return func.with_attr(TARGET, old.with_host(target.host))
    return func


def is_exposed(func: PrimFunc) -> bool:
    """Return whether a function can be called from outside of its module, and has no calling convention yet."""
    return SYMBOL in func.attrs and not func.attrs.get(CONVENTION)


def target_of(func: PrimFunc, pass_name: str) -> Any:
    """Return the target of a function. Raises `CompileError` if it has none."""
    target = func.attrs.get(TARGET)
    if target is None:
        raise CompileError(
            f"{pass_name} required the function to be annotated with tvm::attr::kTarget: '{func.name}' has no "
            f"attribute '{TARGET}'; add it with BindTarget", func.origin, code="TW0611")
    return target


def host_of(target: Any) -> Any:
    """Return the target of the code that calls kernels: the host of a target, or the target itself."""
    return (target if target.host is None else target.host).without_host()


def annotate_entry(mod: IRModule) -> IRModule:
    """Mark the only function of a module as its entry. Raises `CompileError` for several functions without a mark."""
    functions = {name: f for name, f in mod.items() if isinstance(f, PrimFunc)}
    if any(f.attrs.get(ENTRY) for f in functions.values()):
        return mod
    if len(functions) != 1:
        raise CompileError(
            f"the module has {len(functions)} functions ({', '.join(functions)}); mark the entry with the attribute "
            f"'{ENTRY}'", code="TW0611")
    (only,) = functions.values()
    return mod.map_functions(lambda f: f.with_attr(ENTRY, True) if f is only else f, PrimFunc)


def filtered(mod: IRModule, condition: Callable[[PrimFunc], bool]) -> IRModule:
    """Return the module without the loop programs for which a condition does not hold."""
    kept = {name: f for name, f in mod.items() if not isinstance(f, PrimFunc) or condition(f)}
    return mod if len(kept) == len(mod) else IRModule(kept, mod.type_definitions, mod.attrs)
