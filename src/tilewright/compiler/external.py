"""Parts of a program for accelerators and external compilers, taken before any pass over the graph.

    "npu, llvm": @main(%x) { … }  --offload-->         @main(%x) { nn.relu(@npu_0(%x)) }
    @npu_0(%p, Compiler="npu", …) --take_external-->   nn.relu(external_call(%x, symbol="npu_0", compiler="npu"))
                                                       and relay.ext.npu(@npu_0), a module with the function "npu_0"
    @bnns_0(%p, Compiler="bnns")  --with_stand_ins-->  a kernel fn (%a, %c0, Primitive=1, StandIn="bnns.conv2d_bias")

Accelerators take their parts one after another, in the order of the target's text. A stand-in replaces calls of a C
library that is not installed. Layouts, fusion and order are those of the library's calls; the times are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tilewright.backends.hooks import hook_of
from tilewright.backends.offload_kinds import is_offload_kind
from tilewright.backends.targets.accelerators import Accelerator
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, TargetError
from tilewright.base.global_functions import FUNCTIONS, get_global_func
from tilewright.base.nd import NDArray, array
from tilewright.base.plugins import find_accelerator
from tilewright.base.types import TensorType, TupleType
from tilewright.compiler.target_hooks import take_hooked
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.op.contrib import partition_for
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.transform.external_functions import OutlineCompilerFunctionsWithExistingGlobalSymbols
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import calls, post_order, rewrite, substitute
from tilewright.runtime.constants_module import ConstantsModule
from tilewright.runtime.modules import ModuleNode


def offload(mod: IRModule, target: Target) -> IRModule:
    """Return `mod` with the parts that the accelerators of `target` take as separate functions.

    Existing partitions are kept; functions that are called in place become functions of the module. Raises
    `OptionError` for an unknown accelerator, `TargetError` for an option that it does not have.
    """
    if any(isinstance(c.op, Function) and _is_external(c.op) for c in calls(mod["main"].body)):
        mod = OutlineCompilerFunctionsWithExistingGlobalSymbols()(InferType()(mod))
    for accelerator in target.accelerators:
        if not any(isinstance(f, Function) and f.attrs.get("Compiler") == accelerator.name for _, f in mod.items()):
            mod = _partitioned(accelerator, mod)
        if is_offload_kind(accelerator.name) and accelerator.options:
            mod = mod.map_functions(partial(_with_options, accelerator), Function)
    return mod


def _with_options(accelerator: Accelerator, function: Function) -> Function:
    """Return a function for an accelerator with the options of the target as attributes, such as `ccompiler.header`."""
    if function.attrs.get("Compiler") != accelerator.name:
        return function
    return function.with_attr({f"{accelerator.name}.{k}": v for k, v in accelerator.options})


def _partitioned(accelerator: Accelerator, mod: IRModule) -> IRModule:
    is_kind = is_offload_kind(accelerator.name)
    options = {} if is_kind else {k.replace("-", "_"): v for k, v in accelerator.options}
    try:
        made = partition_for(accelerator.name, mod, {}, **options)
    except TypeError as error:
        if not options:
            raise
        raise TargetError(
            f"the accelerator {accelerator.name} does not take the options "
            f"{', '.join(f'-{k}' for k, _ in accelerator.options)}: {error}", code="TW0902"
        ) from error
    if not isinstance(made, IRModule):
        raise CompileError(
            f"the accelerator {accelerator.name} made a {type(made).__name__} of a network; partition_for(mod, params) "
            "must return a module", code="TW0911")
    return made


LIBRARIES: Final = ("bnns",)
"""Libraries with stand-ins: their calls are float operators, which native kernels can compute."""
STAND_IN: Final = "StandIn"
"""Attribute of a primitive function that replaces a library call: the name of the row of the pattern table."""


def with_stand_ins(mod: IRModule) -> IRModule:
    """Replace the functions for `LIBRARIES` in `mod` by kernels, if the context requests it."""
    if not PassContext.current().get("relay.library_calls.stand_in"):
        return mod
    parts = {n: f for n, f in mod.items() if isinstance(f, Function) and f.attrs.get("Compiler") in LIBRARIES}
    if not parts:
        return mod
    rest = mod.copy()
    for name in parts:
        rest.remove(name)
    return InferType()(rest.map_functions(lambda f: rewrite(f, lambda e: _inlined(e, parts)), Function))


def _inlined(e: Expr, parts: Mapping[str, Function]) -> Expr | None:
    """Return the body of a part in place of its call, or None."""
    if not (isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name_hint in parts):
        return None
    part = parts[e.op.name_hint]
    body = rewrite(part.body, _kernel)
    return substitute(body, dict(zip(part.params, e.args, strict=True)))


def without_parts(mod: IRModule) -> IRModule:
    """Return a module whose external functions, and the composite functions in them, are operators of their callers."""
    parts = {n: f for n, f in mod.items() if n != "main" and isinstance(f, Function) and _is_external(f)}
    if not parts:
        return mod
    mod = ChooseNumerics()(InferType()(mod))
    parts = {n: f for n, f in mod.items() if n in parts and isinstance(f, Function)}
    rest = mod.copy()
    for name in parts:
        rest.remove(name)

    def plain(e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name_hint in parts):
            return None
        part = parts[e.op.name_hint]
        return substitute(rewrite(part.body, _opened), dict(zip(part.params, e.args, strict=True)))

    return InferType()(rest.map_functions(lambda f: rewrite(f, plain), Function))


def _opened(e: Expr) -> Expr | None:
    """Return the body of a composite function in place of its call, or None."""
    if not (isinstance(e, Call) and isinstance(e.op, Function) and "Composite" in e.op.attrs):
        return None
    return substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))


def _kernel(e: Expr) -> Expr | None:
    """Return a call of a composite function as one of a primitive function, with its constants as arguments, or None.
    """
    if not (isinstance(e, Call) and isinstance(e.op, Function) and "Composite" in e.op.attrs):
        return None
    constants = [c for c in post_order(e.op.body) if isinstance(c, Constant)]
    params = {c: Var(f"constant_{k}", c.checked_type) for k, c in enumerate(constants)}
    body = rewrite(e.op.body, lambda c: params.get(c) if isinstance(c, Constant) else None)
    function = Function(
        (*e.op.params, *params.values()), body, attrs={"Primitive": 1, STAND_IN: e.op.attrs["Composite"]},
        span=e.op.span)
    return Call(function, (*e.args, *constants), span=e.span)


_GENERATOR = "relay.ext."


def take_external(mod: IRModule, target: Target | None = None) -> tuple[IRModule, tuple[ModuleNode, ...]]:
    """Return the module without its external functions, and the modules that their code generators made, in order.

    Loop programs made by the hooks of a target are in the module under their symbols, as code for `target`. Raises
    `CompileError` for a target without a code generator, and for one that returns no module.
    """
    if not any(name != "main" and isinstance(f, Function) and _is_external(f) for name, f in mod.items()):
        return mod, ()
    mod = ChooseNumerics()(InferType()(mod))
    # the numerics of main apply to all functions, and a code generator sees one of them
    rounding = mod["main"].attrs.get(NUMERICS)
    external = {
        name: with_numerics(f, rounding) if rounding else f
        for name, f in mod.items() if name != "main" and isinstance(f, Function) and _is_external(f)}

    def called(e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op.name_hint in external):
            return None
        function = external[e.op.name_hint]
        results = _results(e.op.name_hint, function)
        shapes, dtypes = tuple(t.shape for t in results), tuple(str(t.dtype) for t in results)
        return ExternalCall(
            _symbol(e.op.name_hint, function), str(function.attrs["Compiler"]), shapes, dtypes
        )(*e.args, span=e.span)

    rest = mod.copy()
    for name in external:
        rest.remove(name)
    rest = InferType()(rest.map_functions(lambda f: rewrite(f, called), Function))
    symbols = {_symbol(name, f): name for name, f in external.items()}
    kernels, modules = take_hooked(
        {s: external[n] for s, n in symbols.items()}, {s: _results(n, external[n]) for s, n in symbols.items()},
        target or Target("llvm"))
    rest.update(kernels)
    generated = {s: n for s, n in symbols.items() if hook_of(str(external[n].attrs["Compiler"]), "RelayToTIR") is None}
    modules += [_generated(name, external[name]) for name in generated.values()]
    constants = {s: found for s, n in generated.items() if (found := _constants(external[n], s)) is not None}
    return rest, (*modules, *([ConstantsModule(constants)] if constants else []))


def _constants(function: Function, symbol: str) -> dict[str, NDArray] | None:
    """Return the constants that `relay.ext.<target>.constant_updater` gives for the function's `__init_<symbol>`; None
    without such an updater."""
    compiler = function.attrs["Compiler"]
    hook = get_global_func(f"{_GENERATOR}{compiler}.constant_updater", allow_missing=True)
    if hook is None:
        return None
    found: Any = hook(function, symbol)
    if not isinstance(found, Mapping) or not all(
        isinstance(k, str) and hasattr(v, "__array__") for k, v in found.items()
    ):
        raise CompileError(
            f"the constant updater of '{compiler}', at {hook.where}, returned {type(found).__name__}; it must return "
            "arrays by name", function.span, code="TW0911")
    return {k: array(v) for k, v in found.items()}


def _is_external(function: Function) -> bool:
    return function.attrs.get("Compiler", "default") not in ("", "default")


def _symbol(name: str, function: Function) -> str:
    return str(function.attrs.get("global_symbol", name))


def _results(name: str, function: Function) -> tuple[TensorType, ...]:
    """Return the types of the results. Raises `CompileError` for results that external code cannot return."""
    found = function.ret_type
    types = found.fields if isinstance(found, TupleType) and len(found.fields) > 1 else (found,)
    if not all(isinstance(t, TensorType) and t.is_static for t in types):
        raise CompileError(
            f"the function @{name}, for '{function.attrs['Compiler']}', returns {found!r}; it must return a tensor of "
            "known shape, or a tuple of them", function.span, code="TW0904")
    return types  # type: ignore[return-value]


def _generated(name: str, function: Function) -> ModuleNode:
    """Return the module that the code generator of the target makes from a function."""
    compiler = function.attrs["Compiler"]
    generator = get_global_func(f"{_GENERATOR}{compiler}", allow_missing=True)
    if generator is None and (plugin := find_accelerator(str(compiler))) is not None:
        hasattr(plugin, "pattern_table")  # some packages import their compiler only now
        generator = get_global_func(f"{_GENERATOR}{compiler}", allow_missing=True)
    if generator is None:
        known = ", ".join(
            sorted(n.removeprefix(_GENERATOR) for n in FUNCTIONS if n.startswith(_GENERATOR) and n.count(".") == 2))
        raise CompileError(
            f"the function @{name} is for '{compiler}', which has no code generator; register a function that takes a "
            f"Relay function and returns a module: @tvm.register_func('{_GENERATOR}{compiler}'); registered are: "
            f"{known or 'none'}", function.span,
            code="TW0910")
    made: Any = generator(function)
    if not isinstance(made, ModuleNode):
        raise CompileError(
            f"the code generator of '{compiler}', at {generator.where}, returned a {type(made).__name__} for @{name}; "
            "it must return a tvm.runtime.ModuleNode", function.span, code="TW0911")
    return made
