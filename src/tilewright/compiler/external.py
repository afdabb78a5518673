"""Functions for accelerators: each handed to the code generator of its target, and called in its place.

    def @main(%x) { nn.relu(@npu_0(%x)) }                     relay.ext.npu(@npu_0) -> a module with the function "npu_0"
    def @npu_0(%p, Compiler="npu", …) { nn.bias_add(%p, b) }  -> nn.relu(external_call(%x, symbol="npu_0", compiler="npu"))

Done before any pass over the graph, so that no pass of ours looks into what is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.hooks import hook_of
from tilewright.backends.target import Target
from tilewright.base.errors import CompileError
from tilewright.base.global_functions import FUNCTIONS, get_global_func
from tilewright.base.nd import NDArray, array
from tilewright.base.plugins import find_accelerator
from tilewright.base.types import TensorType, TupleType
from tilewright.compiler.target_hooks import take_hooked
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, GlobalVar
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import rewrite
from tilewright.runtime.constants_module import ConstantsModule
from tilewright.runtime.modules import ModuleNode

_GENERATOR = "relay.ext."


def take_external(mod: IRModule, target: Target | None = None) -> tuple[IRModule, tuple[ModuleNode, ...]]:
    """The module without its functions for accelerators, and what their code generators made of them, in the order of the module.

    What a target's hooks made loop programs of is in the module as such, by its symbol, for code of `target`. Raises `CompileError` for a target without a code generator, and for one that returns no module.
    """
    if not any(name != "main" and isinstance(f, Function) and _is_external(f) for name, f in mod.items()):
        return mod, ()
    mod = ChooseNumerics()(InferType()(mod))
    rounding = mod["main"].attrs.get(NUMERICS)  # what main says holds for all functions, and code generators see one of them
    external = {name: with_numerics(f, rounding) if rounding else f for name, f in mod.items() if name != "main" and isinstance(f, Function) and _is_external(f)}

    def called(e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name_hint in external):
            return None
        function = external[e.op.name_hint]
        results = _results(e.op.name_hint, function)
        shapes, dtypes = tuple(t.shape for t in results), tuple(str(t.dtype) for t in results)
        return ExternalCall(_symbol(e.op.name_hint, function), str(function.attrs["Compiler"]), shapes, dtypes)(*e.args, span=e.span)

    rest = mod.copy()
    for name in external:
        rest.remove(name)
    rest = InferType()(rest.map_functions(lambda f: rewrite(f, called), Function))
    symbols = {_symbol(name, f): name for name, f in external.items()}
    kernels, modules = take_hooked(
        {s: external[n] for s, n in symbols.items()}, {s: _results(n, external[n]) for s, n in symbols.items()}, target or Target("llvm")
    )
    rest.update(kernels)
    generated = {s: n for s, n in symbols.items() if hook_of(str(external[n].attrs["Compiler"]), "RelayToTIR") is None}
    modules += [_generated(name, external[name]) for name in generated.values()]
    constants = {s: found for s, n in generated.items() if (found := _constants(external[n], s)) is not None}
    return rest, (*modules, *([ConstantsModule(constants)] if constants else []))


def _constants(function: Function, symbol: str) -> dict[str, NDArray] | None:
    """What `relay.ext.<target>.constant_updater` says the code of a function needs, for its `__init_<symbol>`; None without one."""
    compiler = function.attrs["Compiler"]
    hook = get_global_func(f"{_GENERATOR}{compiler}.constant_updater", allow_missing=True)
    if hook is None:
        return None
    found: Any = hook(function, symbol)
    if not isinstance(found, Mapping) or not all(isinstance(k, str) and hasattr(v, "__array__") for k, v in found.items()):
        raise CompileError(f"the constant updater of '{compiler}', at {hook.where}, returned {type(found).__name__}; it returns arrays by name", function.span, code="TW0911")
    return {k: array(v) for k, v in found.items()}


def _is_external(function: Function) -> bool:
    return function.attrs.get("Compiler", "default") not in ("", "default")


def _symbol(name: str, function: Function) -> str:
    return str(function.attrs.get("global_symbol", name))


def _results(name: str, function: Function) -> tuple[TensorType, ...]:
    """The type of the result, or of each of several; raises `CompileError` for what cannot be handed over."""
    found = function.ret_type
    types = found.fields if isinstance(found, TupleType) and len(found.fields) > 1 else (found,)
    if not all(isinstance(t, TensorType) and t.is_static for t in types):
        raise CompileError(f"the function @{name}, for '{function.attrs['Compiler']}', gives {found!r}; it gives a tensor of known shape, or a tuple of them", function.span, code="TW0904")
    return types  # type: ignore[return-value]


def _generated(name: str, function: Function) -> ModuleNode:
    """What the code generator of its target makes of a function."""
    compiler = function.attrs["Compiler"]
    generator = get_global_func(f"{_GENERATOR}{compiler}", allow_missing=True)
    if generator is None and (plugin := find_accelerator(str(compiler))) is not None:
        hasattr(plugin, "pattern_table")  # a package that imports its compiler late does it now
        generator = get_global_func(f"{_GENERATOR}{compiler}", allow_missing=True)
    if generator is None:
        known = ", ".join(sorted(n.removeprefix(_GENERATOR) for n in FUNCTIONS if n.startswith(_GENERATOR) and n.count(".") == 2))
        raise CompileError(
            f"the function @{name} is for '{compiler}', which has no code generator; register one, a function of a relay function that returns a "
            f"module: @tvm.register_func('{_GENERATOR}{compiler}'); those there are: {known or 'none'}", function.span, code="TW0910"
        )
    made: Any = generator(function)
    if not isinstance(made, ModuleNode):
        raise CompileError(f"the code generator of '{compiler}', at {generator.where}, returned a {type(made).__name__} for @{name}; it returns a tvm.runtime.ModuleNode", function.span, code="TW0911")
    return made
