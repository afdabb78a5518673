"""Main functions of programs that are compiled ahead of time, as loop programs: TVM's `relay.backend.aot`.

    @main(%a) { let %b = @f(%a); @g(%b) }
      ->
    def __tvm_main__(a, output):
        sid_1 = T.allocate((140,), "int8", "global.workspace")
        T.tvm_call_cpacked("f", a.data, sid_1, …)
        T.tvm_call_cpacked("g", sid_1, output.data, …)

Such a program shows the calls and the memory between them, for analyses and for the planner `tir.usmp`. The compiler
itself makes machine code with one entry function, without this form (`compiler/program.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from typing import Any, Final, TypeGuard

from tilewright.base.containers import Map
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.ir.memory_pools import ConstantPoolInfo
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import post_order
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.addresses import address
from tilewright.scalar.expr import Buffer, PrimExpr
from tilewright.tir.analysis import bytes_of, calculate_constant_bytes, calculate_workspace_bytes
from tilewright.tir.packed_calls import packed_call
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    AllocateConst,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
    Store,
    seq,
)
from tilewright.tir.usmp.transform import ARGUMENTS, MAIN, POOLS, main_function

_HANDLE: Final = DataType("handle")
_WORKSPACE: Final = "global.workspace"


class CallType(IntEnum):
    """How a main function calls the others: by a table of functions (`Packed`), as C functions with arguments of TVM's
    type (`CPacked`), or as C functions (`Unpacked`)."""

    Packed = 0
    CPacked = 1
    Unpacked = 2


@dataclass(frozen=True)
class AOTLowerMain(ModulePass):
    """Replaces the Relay function `main` of a module, a sequence of calls of functions of the module, by the loop
    program `__tvm_main__`.

    `config` is the `CompilationConfig` of the program. The attribute `device_contexts` of the module names the devices
    of functions, whose contexts are parameters. Raises `CompileError` for operators, control flow, and values of
    unknown shapes.
    """

    mod_name: str
    config: Any
    call_type: CallType = CallType.CPacked

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = mod["main"]
        if not isinstance(main, Function):
            raise CompileError("'main' is not a Relay function; AOTLowerMain takes a network", code="TW0611")
        devices = {_name(k): str(v) for k, v in (mod.attrs.get("device_contexts") or {}).items()}
        made = _Lowering(self.call_type, devices).function(main, self.config.host_target, self.mod_name)
        new = IRModule(
            {n: f for n, f in mod.items() if n != "main"}, mod.type_definitions,
            {k: v for k, v in mod.attrs.items() if k != "device_contexts"})
        new[MAIN] = made
        return new


def _name(var: Any) -> str:
    return str(getattr(var, "name_hint", var))


def _tensors(t: Type | None, what: str) -> list[TensorType]:
    """Return the tensors of a value. Raises `CompileError` unless their sizes are known."""
    found = [x for f in t.fields for x in _tensors(f, what)] if isinstance(t, TupleType) else [t]
    for x in found:
        if not isinstance(x, TensorType) or not all(isinstance(d, int) for d in x.shape):
            raise CompileError(
                f"{what} has the type {t!r}; a main function passes tensors of known shapes", code="TW0611")
    return [x for x in found if isinstance(x, TensorType)]


class _Lowering:
    """The lowering of one main function."""

    def __init__(self, call_type: CallType, devices: Mapping[str, str]) -> None:
        self.call_type, self.devices = call_type, devices
        self.contexts = {d: E.Var(f"device_context_{d}", _HANDLE) for d in sorted(set(devices.values()))}
        self.bound: dict[Var, Expr] = {}
        self.memory: dict[tuple[Expr, int], Buffer] = {}
        """The memory of each result of a node, by its number."""
        self.workspace: list[Buffer] = []
        self.constants: list[tuple[Buffer, Any]] = []
        self.stmts: list[Stmt] = []

    def function(self, main: Function, target: Any, mod_name: str) -> PrimFunc:
        order = post_order(main.body, inside=False)
        self.bound = {e.var: e.value for e in order if isinstance(e, Let)}
        inputs = [self.input(p) for p in main.params]
        types = _tensors(main.body.checked_type, "the result")
        several = isinstance(main.body.checked_type, TupleType)
        names = [f"output{k}" if several else "output" for k in range(len(types))]
        outputs = [Buffer(f"{n}_buffer", t.shape, t.dtype) for n, t in zip(names, types, strict=True)]
        results = self.results(main.body)
        for (e, k), to in zip(results, outputs, strict=True):
            if isinstance(e, Call):
                self.memory.setdefault((e, k), to)
        for e in order:
            self.visit(e)
        self.stmts += [
            _copied(self.memory[result], to) for result, to in zip(results, outputs, strict=True)
            if self.memory[result] is not to]
        contexts = list(self.contexts.values())
        attrs: dict[str, Any] = {
            "global_symbol": f"{mod_name}_{MAIN}", "runner_function": True, "target": target,
            "input_vars": inputs, "output_vars": outputs, "devices": list(self.contexts),
            ARGUMENTS: (*(p.name_hint for p in main.params), *names, *(v.name for v in contexts))}
        return PrimFunc(f"{mod_name}_{MAIN}", (*inputs, *outputs, *contexts), self.body(), attrs, main.span)

    def input(self, p: Var) -> Buffer:
        kinds = _tensors(p.checked_type, f"%{p.name_hint}")
        if len(kinds) != 1:
            raise CompileError(
                f"%{p.name_hint} is a tuple; the inputs of a main function are tensors", p.span, code="TW0611")
        made = self.memory[p, 0] = Buffer(f"{p.name_hint}_buffer", kinds[0].shape, kinds[0].dtype)
        return made

    def results(self, e: Expr) -> list[tuple[Expr, int]]:
        """Return the tensors of a value: the node that computes each, and its number among the results of the node."""
        if isinstance(e, Let):
            return self.results(e.body)
        if isinstance(e, Var) and e in self.bound:
            return self.results(self.bound[e])
        if _is_mark(e):
            return self.results(e.args[0])
        if isinstance(e, Tuple):
            return [x for f in e.fields for x in self.results(f)]
        if isinstance(e, TupleGetItem):
            whole = e.tuple_value.checked_type
            assert isinstance(whole, TupleType)
            first = sum(len(_tensors(t, "a value")) for t in whole.fields[: e.index])
            return self.results(e.tuple_value)[first: first + len(_tensors(e.checked_type, "a value"))]
        return [(e, k) for k in range(len(_tensors(e.checked_type, "a value")))]

    def visit(self, e: Expr) -> None:
        """Lower a node after its operands."""
        if isinstance(e, Constant):
            data = e.data.numpy()
            made = Buffer(f"constant_{len(self.constants)}", data.shape, str(data.dtype))
            self.constants.append((made, data))
            self.memory[e, 0] = made
        elif isinstance(e, Call) and isinstance(e.op, GlobalVar):
            self.call(e, e.op.name_hint)
        elif not (isinstance(e, (Var, GlobalVar, Tuple, TupleGetItem, Let)) or _is_mark(e)):
            what = f"the operator '{e.op.name}'" if isinstance(e, Call) and hasattr(e.op, "name") else type(e).__name__
            raise CompileError(
                f"a main function only calls functions of its module, and has {what}; make it a function of the module",
                e.span, code="TW0611")

    def call(self, e: Call, name: str) -> None:
        for k, kind in enumerate(_tensors(e.checked_type, f"the result of @{name}")):
            if (e, k) not in self.memory:
                nbytes = prod(int(d) for d in kind.shape) * kind.dtype.itemsize
                made = Buffer(f"sid_{len(self.workspace) + 1}", (nbytes,), "int8", _WORKSPACE)
                self.workspace.append(made)
                self.memory[e, k] = made
        arguments = [r for a in e.args for r in self.results(a)]
        results = [r for r in self.memory if r[0] is e]
        passed = [address(self.memory[r]) for r in (*arguments, *sorted(results, key=lambda r: r[1]))]
        device = self.devices.get(name)
        made_call = self.called(name, passed, None if device is None else self.contexts[device])
        self.stmts += [*self.hooks(device, "Open"), Evaluate(made_call), *self.hooks(device, "Close")]

    def called(self, name: str, passed: Sequence[PrimExpr], context: PrimExpr | None) -> PrimExpr:
        """Return the call of a function in the chosen convention."""
        if self.call_type is CallType.CPacked:
            nothing = E.Call(_HANDLE, I.reinterpret, (E.const(0, "uint64"),))
            return I.call_opaque("tvm_call_cpacked", name, *passed, nothing if context is None else context)
        if self.call_type is CallType.Packed:
            return _checked(packed_call("int32", [name, *passed]))
        return _checked(I.call_extern("int32", name, *passed, *([] if context is None else [context])))

    def hooks(self, device: str | None, event: str) -> list[Stmt]:
        """Return the call of a function of the driver of a device: `TVMDeviceNameEvent`."""
        if device is None:
            return []
        camel = "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", device))
        return [Evaluate(_checked(I.call_extern("int32", f"TVMDevice{camel}{event}", self.contexts[device])))]

    def body(self) -> Stmt:
        inner = seq(*self.stmts) if self.stmts else Evaluate(E.const(0, "int64"))
        for buffer, data in reversed(self.constants):
            inner = AllocateConst(buffer, inner, None, data)
        for buffer in self.workspace:
            inner = Allocate(buffer, inner)
        before = [s for d in self.contexts for s in self.hooks(d, "Activate")]
        return seq(*before, inner, *(s for d in self.contexts for s in self.hooks(d, "Deactivate")))


def _is_mark(e: Expr) -> TypeGuard[Call]:
    """Whether a node is `on_device(x)`, which is `x`."""
    return isinstance(e, Call) and getattr(e.op, "name", None) == "on_device"


def _checked(call: PrimExpr) -> PrimExpr:
    """Return a call that ends the program if it fails: its result is not 0."""
    return I.call_opaque("tvm_check_return", E.const(0, "int64"), E.const(-1, "int64"), call)


def _copied(source: Buffer, to: Buffer) -> Stmt:
    """Return the loops that copy an array."""
    loops = [E.Var(f"i{k}", "int64") for k in range(len(to.shape))]
    s: Stmt = Store(to, E.Load(source, loops), tuple(loops))
    for v, n in zip(reversed(loops), reversed(to.shape), strict=True):
        s = For(v, E.const(0, "int64"), E.const(n, "int64"), SERIAL, s)
    return s


@dataclass(frozen=True)
class FunctionInfo:
    """Memory of a function in bytes, by target: workspace, arguments, and constants; and its programs by target."""

    workspace_sizes: Map
    io_sizes: Map
    constant_sizes: Map
    tir_primfuncs: Map
    relay_primfuncs: Map = field(default_factory=lambda: Map({}))


def CreateFunctionMetadata(mod: IRModule, workspace_byte_alignment: int, constant_byte_alignment: int) -> Map:
    """Return the memory of each loop program of a module by name (`FunctionInfo`).

    The pools that a plan allocated (attribute `pool_args` of the module) are memory of the main function.
    """
    pools = mod.attrs.get(POOLS) or ()
    found = {}
    for name, f in mod.items():
        if isinstance(f, PrimFunc):
            own = pools if name == MAIN else ()
            constant = [isinstance(p.pool_info, ConstantPoolInfo) for p in own]
            sizes = [sum(p.allocated_size for p, is_constant in zip(own, constant, strict=True) if is_constant is k)
                     for k in (False, True)]
            target = f.attrs.get("target")
            found[name] = FunctionInfo(*(Map({target: value}) for value in (
                sizes[0] + calculate_workspace_bytes(f, workspace_byte_alignment),
                sum(map(_nbytes, f.buffers)),
                sizes[1] + calculate_constant_bytes(f, constant_byte_alignment),
                f)))
    return Map(found)


def _nbytes(buffer: Buffer) -> int:
    """Return the size of a buffer. Raises `CompileError` if it is not known."""
    nbytes = bytes_of(buffer)
    if nbytes is None:
        raise CompileError(
            f"'{buffer.name}' has the shape {list(buffer.shape)}; the memory of a program needs numbers", code="TW0611")
    return nbytes


@dataclass(frozen=True)
class ExecutorCodegenMetadata:
    """The interface of a program: its inputs, outputs, pools and devices, with the options of its executor.

    `inputs` and `pools` are parameters of the main function, `outputs` are names. `pool_inputs` has the pool of each
    parameter for memory, and `io_pool_allocations` the places of inputs and outputs in pools.
    """

    inputs: Sequence[Buffer]
    input_tensor_types: Sequence[TensorType]
    outputs: Sequence[str]
    output_tensor_types: Sequence[TensorType]
    pools: Sequence[Buffer]
    devices: Sequence[str]
    executor: str
    mod_name: str
    interface_api: str
    unpacked_api: bool
    workspace_alignment: int
    constant_alignment: int
    pool_inputs: Mapping[Buffer, Any]
    io_pool_allocations: Mapping[str, Any]


def CreateExecutorMetadata(
    mod: IRModule, mod_name: str, executor: Any, workspace_byte_alignment: int, constant_byte_alignment: int
) -> ExecutorCodegenMetadata:
    """Return the interface of the program with the main function `__tvm_main__`. Raises `CompileError` if there is
    none."""
    main = main_function(mod)
    inputs, outputs = list(main.attrs.get("input_vars", ())), list(main.attrs.get("output_vars", ()))
    names = dict(zip(main.params, main.attrs.get(ARGUMENTS) or (), strict=False))
    options = {"interface-api": "packed", "unpacked-api": False, **executor.options}
    pools = {main.params[p.pool_var_idx]: p for p in main.attrs.get(POOLS) or () if p.pool_var_idx is not None}
    known = {*inputs, *outputs}
    return ExecutorCodegenMetadata(
        inputs, list(map(_type, inputs)), [names.get(b, b.name) for b in outputs], list(map(_type, outputs)),
        [b for b in main.buffers if b not in known], list(main.attrs.get("devices", ())), executor.name, mod_name,
        str(options["interface-api"]), bool(options["unpacked-api"]), workspace_byte_alignment,
        constant_byte_alignment, pools, dict(mod.attrs.get("io_tensor_pool_allocations") or {}))


def _type(buffer: Buffer) -> TensorType:
    return TensorType(buffer.shape, buffer.dtype)


__all__ = [
    "AOTLowerMain", "CallType", "CreateExecutorMetadata", "CreateFunctionMetadata", "ExecutorCodegenMetadata",
    "FunctionInfo",
]
