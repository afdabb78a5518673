"""Main functions of programs compiled ahead of time, as loop programs: `relay.backend.aot`."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, tir
from tilewright.base.errors import CompileError, ParseError
from tilewright.ir.memory_pools import AllocatedPoolInfo, ConstantPoolInfo, WorkspacePoolInfo
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.backend import Executor, aot
from tilewright.relay.backend.aot import AOTLowerMain, CallType

FUNCTIONS = """#[version = "0.0.5"]
def @f(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { %x }
def @g(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) -> (Tensor[(2, 3), float32], Tensor[(2,), int8]) {
  (%x, meta[relay.Constant][0])
}
"""
HEADER = """
@T.prim_func
def main(a: T.handle, {outputs}):
    T.func_attr({{"runner_function": True, "target": T.target("llvm"), "input_vars": [a], "output_vars": [{names}],
                 "devices": {devices}}})
    a_buffer = T.match_buffer(a, (2, 3), "float32")
"""


def lowered(body: str, call_type: CallType = CallType.CPacked, contexts: Any = None) -> Any:
    table = {"relay.Constant": [relay.const(np.arange(2, dtype="int8")), relay.const(np.ones((2, 3), "float32"))]}
    mod = tvm.relay.parse(f"{FUNCTIONS}def @main(%a: Tensor[(2, 3), float32]) {{ {body} }}", init_meta_table=table)
    mod = relay.transform.InferType()(mod)
    if contexts:
        mod = mod.with_attr("device_contexts", {mod.get_global_var(k): v for k, v in contexts.items()})
    config = tvm.target.make_compilation_config(tvm.transform.PassContext(), tvm.target.Target("llvm", "llvm"))
    return AOTLowerMain("net", config, call_type)(mod)


def check(found: Any, body: str, outputs: str, devices: str = "[]", context: str = "") -> None:
    names = [n.strip() for n in outputs.split(",")]
    text = HEADER.format(
        outputs=", ".join(f"{n}: T.handle" for n in [*names, *([context] if context else [])]),
        names=", ".join(names), devices=devices)
    lines = textwrap.indent(textwrap.dedent(body), "    ")
    assert_structural_equal(found["__tvm_main__"], tir.parse(text + lines))


def test_calls_pass_memory_between_them() -> None:
    mod = lowered("let %b = @f(%a); let %c = @f(%b); call_lowered(@f, (%c,))")
    assert sorted(mod) == ["__tvm_main__", "f", "g"]
    assert mod["__tvm_main__"].name == "net___tvm_main__"
    check(mod, """
        output_buffer = T.match_buffer(output, (2, 3), "float32")
        s2 = T.allocate((24,), "int8", "global.workspace")
        s1 = T.allocate((24,), "int8", "global.workspace")
        T.tvm_call_cpacked("f", a_buffer.data, s1, T.reinterpret(T.uint64(0), dtype="handle"), dtype="int32")
        T.tvm_call_cpacked("f", s1, s2, T.reinterpret(T.uint64(0), dtype="handle"), dtype="int32")
        T.tvm_call_cpacked("f", s2, output_buffer.data, T.reinterpret(T.uint64(0), dtype="handle"), dtype="int32")
    """, "output")


def test_the_conventions_of_calls() -> None:
    for kind, call in (
        (CallType.Packed, 'T.tvm_call_packed("f", a_buffer.data, output_buffer.data, dtype="int32")'),
        (CallType.Unpacked, 'T.call_extern("f", a_buffer.data, output_buffer.data, dtype="int32")')
    ):
        check(lowered("@f(%a)", kind), f"""
            output_buffer = T.match_buffer(output, (2, 3), "float32")
            T.evaluate(T.tvm_check_return(0, -1, {call}, dtype="int32"))
        """, "output")


def test_tuples_constants_and_copies() -> None:
    mod = lowered("let %t = @g(%a, meta[relay.Constant][1]); let %u = @f(%t.0); (%t.1, %u, %a, %t.1)")
    check(mod, """
        o0 = T.match_buffer(output0, (2,), "int8")
        o1 = T.match_buffer(output1, (2, 3), "float32")
        o2 = T.match_buffer(output2, (2, 3), "float32")
        o3 = T.match_buffer(output3, (2,), "int8")
        s1 = T.allocate((24,), "int8", "global.workspace")
        c = T.allocate_const([1, 1, 1, 1, 1, 1], "float32", (2, 3))
        T.tvm_call_cpacked(
            "g", a_buffer.data, c, s1, o0.data, T.reinterpret(T.uint64(0), dtype="handle"), dtype="int32")
        T.tvm_call_cpacked("f", s1, o1.data, T.reinterpret(T.uint64(0), dtype="handle"), dtype="int32")
        for i, j in T.grid(2, 3): o2[i, j] = a_buffer[i, j]
        for i in T.serial(2): o3[i] = o0[i]
    """, "output0, output1, output2, output3")


def test_contexts_of_devices_are_parameters() -> None:
    check(lowered("@f(@f(%a))", contexts={"f": "my_npu"}), """
        output_buffer = T.match_buffer(output, (2, 3), "float32")
        T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuActivate", context, dtype="int32")))
        with T.allocate((24,), "int8", "global.workspace") as s1:
            T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuOpen", context, dtype="int32")))
            T.tvm_call_cpacked("f", a_buffer.data, s1, context, dtype="int32")
            T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuClose", context, dtype="int32")))
            T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuOpen", context, dtype="int32")))
            T.tvm_call_cpacked("f", s1, output_buffer.data, context, dtype="int32")
            T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuClose", context, dtype="int32")))
        T.evaluate(T.tvm_check_return(0, -1, T.call_extern("TVMDeviceMyNpuDeactivate", context, dtype="int32")))
    """, "output", '["my_npu"]', "context")


def test_what_is_no_sequence_of_calls_is_refused() -> None:
    with pytest.raises(CompileError, match=r"only calls functions of its module, and has the operator 'nn\.relu'"):
        lowered("nn.relu(%a)")
    with pytest.raises(CompileError, match="only calls functions of its module, and has If"):
        lowered("if (True) { @f(%a) } else { %a }")
    with pytest.raises(ParseError, match=r"call_lowered takes a function and a tuple of arguments"):
        lowered("call_lowered(@f, %a)")


def test_memory_and_interface_of_a_main_function() -> None:
    mod = lowered("let %b = @f(%a); @g(%b, meta[relay.Constant][1])")
    main, target = mod["__tvm_main__"], tvm.target.Target("llvm")
    (key, info), = list(aot.CreateFunctionMetadata(mod, 16, 8).items())
    assert key == "__tvm_main__"
    sizes = [info.workspace_sizes, info.io_sizes, info.constant_sizes]
    assert [s.items()[0] for s in sizes] == [(target, 32), (target, 24 + 24 + 2), (target, 24)]
    assert info.tir_primfuncs[target] is main
    pools = [AllocatedPoolInfo(WorkspacePoolInfo("sram", [target]), 100, 1),
             AllocatedPoolInfo(ConstantPoolInfo("flash", [target]), 10)]
    info = aot.CreateFunctionMetadata(mod.with_attr("pool_args", pools), 16, 8)["__tvm_main__"]
    assert (info.workspace_sizes[target], info.constant_sizes[target]) == (132, 34)
    mod["__tvm_main__"] = main.with_attr("pool_args", pools)
    found = aot.CreateExecutorMetadata(mod, "net", Executor("aot", {"interface-api": "c"}), 16, 8)
    assert found.inputs == [main.params[0]]
    assert found.outputs == ["output0", "output1"]
    assert [str(t) for t in found.output_tensor_types] == ["Tensor[(2, 3), float32]", "Tensor[(2), int8]"]
    assert (found.interface_api, found.unpacked_api, found.executor) == ("c", False, "aot")
    assert found.pool_inputs == {main.params[1]: pools[0]}


def test_a_planned_main_function_has_its_pools() -> None:
    mod = lowered("let %b = @f(%a); let %c = @f(%b); @f(%c)")
    planner = tvm.get_global_func("tir.transform.UnifiedStaticMemoryPlanner")
    found = aot.CreateExecutorMetadata(planner()(mod), "net", Executor("aot"), 16, 16)
    (pool, place), = found.pool_inputs.items()
    assert found.pools == [pool]
    assert pool.shape == (56,), "24 bytes at 0, and 24 at the next multiple of 16"
    assert place.allocated_size == 56


def test_addresses_become_arrays() -> None:
    """T.tvm_call_cpacked("f", A, context) -> T.tvm_call_cpacked("f", T.tvm_stack_make_array(A, …), context)"""
    mod = tir.parse_module('''
@T.prim_func
def f(x: T.Buffer((2, 3), "int8"), context: T.Buffer((1,), "int8")):
    x[0, 0] = T.int8(1)

@T.prim_func
def main(A: T.handle, context: T.handle):
    T.tvm_call_cpacked("f", A, context, dtype="int32")
''')
    found = tir.transform.LegalizePackedCalls()(mod)
    wanted = tir.parse('''
@T.prim_func
def main(A: T.handle, context: T.handle):
    T.tvm_call_cpacked("f", T.tvm_stack_make_array(
        A, T.tvm_stack_make_shape(2, 3, dtype="handle"), T.reinterpret(T.uint64(0), dtype="handle"), T.uint32(2),
        T.Cast("int8", 0), 0, dtype="handle"), context, dtype="int32")
''')
    assert_structural_equal(found["main"], wanted)
    assert_structural_equal(tir.transform.LegalizePackedCalls()(found)["main"], wanted)
    short = tvm.IRModule({"f": mod["f"], "main": tir.parse('''
@T.prim_func
def main(A: T.handle):
    T.tvm_call_cpacked("f", dtype="int32")
''')})
    with pytest.raises(CompileError, match="'f' has 2 parameters, but a call passes 0; pass one for each"):
        tir.transform.LegalizePackedCalls()(short)


def test_targets_are_equal_with_given_and_implied_keys() -> None:
    given = tvm.target.Target({"kind": "llvm", "tag": "", "keys": ["cpu"]})
    assert given == tvm.target.Target("llvm")
    assert hash(given) == hash(tvm.target.Target("llvm"))
    assert given != tvm.target.Target("llvm -keys=arm_cpu,cpu")
