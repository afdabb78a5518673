"""Passes between a host and its devices: before -> after, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.base.errors import CompileError, ParseError
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import AssertStmt, AttrStmt, Let, walk_stmt

tir: Any = tvm.tir
HOST = 'T.func_attr({"target": T.target("llvm")})'
CUDA = 'T.func_attr({"target": T.target("cuda")})'
BOTH = 'T.func_attr({"global_symbol": "main", "target": T.target("cuda", host="llvm")})'


def after(name: str, text: str, *args: object) -> Any:
    return getattr(tir.transform, name)(*args)(tir.parse_module(text))


def becomes(name: str, before: str, wanted: str, *args: object, free: bool = False) -> None:
    found, expected = after(name, before, *args), tir.parse_module(wanted)
    tvm.ir.assert_structural_equal(found, expected, map_free_vars=free)


# Functions of one module.
CALLER = f"""
class Mod:
    def main(A: T.Buffer((8,), "float32"), n: T.int32):
        {HOST}
        Mod.kernel(A.data, n)
"""


def test_calls_within_a_module() -> None:
    (func,) = [f for _, f in tir.parse_module(CALLER).items()]
    call = func.body.value
    assert (call.op.name_hint, call.op.name, call.dtype) == ("kernel", "kernel", "void")
    assert 'Module.kernel(T.address_of(A[0], 3, 8, dtype="handle"), n)' in str(func)
    tvm.ir.assert_structural_equal(tir.parse(str(func)), func)
    with pytest.raises(CompileError, match="the call of 'kernel', another function of the module, has no code"):
        tvm.build(func, target="llvm")


def test_calls_by_full_names() -> None:
    func = tir.parse('def f():\n    T.Call("int32", "tir.tvm_throw_last_error", [])')
    assert func.body.value.op.same_as(tvm.ir.Op.get("tir.tvm_throw_last_error"))
    assert not func.body.value.op.same_as(tvm.ir.Op.get("tir.exp"))
    assert func.body.value.dtype == "int32"
    with pytest.raises(ParseError, match=r"there is no intrinsic 'tir\.throw'"):
        tir.parse('def f():\n    T.Call("int32", "tir.throw", [])')
    with pytest.raises(ParseError, match="the arguments must be a list"):
        tir.parse('def f():\n    T.Call("int32", "tir.tvm_throw_last_error", 1)')


def test_parameters_are_in_the_order_of_the_call() -> None:
    func = tir.parse('def f(n: T.int32, A: T.Buffer((n,), "float32"), p: T.handle):\n    A[0] = 0.0')
    assert [p.name for p in func.params] == ["n", "A", "p"]
    assert ([p.name for p in func.buffers], [p.name for p in func.scalars]) == (["A"], ["n", "p"])


# Regions of a device.
def test_regions_become_functions() -> None:
    becomes("SplitHostDevice", f"""
class Mod:
    def main(n: T.int32, A: T.Buffer((8,), "float32")):
        {BOTH}
        with T.attr(T.target("cuda"), "target", 0):
            for i in T.thread_binding(n, thread="threadIdx.x"):
                A[i] = 1.0
        A[0] = 2.0
    def main_kernel():
        T.evaluate(0)
""", f"""
class Mod:
    def main(n: T.int32, A: T.Buffer((8,), "float32")):
        {BOTH}
        Mod.main_kernel_1(A.data, n)
        A[0] = 2.0
    def main_kernel():
        T.evaluate(0)
    def main_kernel_1(A: T.Buffer((8,), "float32"), n: T.int32):
        T.func_attr({{"target": T.target("cuda"), "tir.is_global_func": True}})
        for i in T.thread_binding(n, thread="threadIdx.x"):
            A[i] = 1.0
""")


def test_functions_of_regions_share_no_names() -> None:
    mod = after("SplitHostDevice", f"""
def main(n: T.int32, A: T.Buffer((n,), "float32")):
    {BOTH}
    B = T.allocate((n,), "float32", "global")
    with T.attr(T.target("cuda"), "target", 0):
        C = T.allocate((n,), "float32", "local")
        C[0] = A[n - 1]
        B[0] = C[0]
""")
    kernel = mod["main_kernel"]
    assert [p.name for p in kernel.params] == ["A", "B", "n"]
    assert not {*kernel.params} & {*mod["main"].params}
    n = kernel.params[2]
    assert [b.shape[0] for b in (*kernel.buffers, kernel.body.buffer)] == [n, n, n]


def test_kernels_are_launched() -> None:
    becomes("LowerDeviceKernelLaunch", f"""{CALLER}
    def kernel(A: T.Buffer((8,), "float32"), n: T.int32):
        {CUDA}
        for i in T.thread_binding(n, thread="blockIdx.x"):
            for j in T.thread_binding(4, thread="threadIdx.x"):
                S = T.allocate((16,), "float32", "shared.dyn")
                A[i * 4 + j] = 1.0
""", f"""
def main(A: T.Buffer((8,), "float32"), n: T.int32):
    {HOST}
    T.call_packed("kernel", A.data, n, n, 4, 64)
def kernel(A: T.Buffer((8,), "float32"), n: T.int32):
    T.func_attr({{"target": T.target("cuda"), "calling_conv": 2, "global_symbol": "kernel", "tir.is_global_func": True,
                 "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x", "tir.use_dyn_shared_memory"]}})
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for j in T.thread_binding(4, thread="threadIdx.x"):
            S = T.allocate((16,), "float32", "shared.dyn")
            A[i * 4 + j] = 1.0
""")


def test_functions_of_another_code_generator() -> None:
    becomes("LowerDeviceKernelLaunch", f"""{CALLER}
    def kernel(A: T.Buffer((8,), "float32"), n: T.int32):
        T.func_attr({{"target": T.target("c"), "global_symbol": "other"}})
        A[n] = 1.0
""", f"""
def main(A: T.Buffer((8,), "float32"), n: T.int32):
    {HOST}
    T.call_extern("void", "other", A.data, n)
def kernel(A: T.Buffer((8,), "float32"), n: T.int32):
    T.func_attr({{"target": T.target("c"), "global_symbol": "other", "tir.is_global_func": True}})
    A[n] = 1.0
""")


@pytest.mark.parametrize(("kernel", "message"), [
    ("A: T.Buffer((8,), \"float32\")):\n        {}\n        A[0] = 1.0",
     "'kernel' has 1 parameters, but a call passes 2; pass one for each"),
    ("A: T.Buffer((8,), \"float32\"), n: T.int32):\n        {}\n        k = T.cast(A[0], \"int32\")\n"
     "        for i in T.thread_binding(k, thread=\"threadIdx.x\"):\n            A[i] = 1.0",
     "threadIdx.x of kernel 'kernel' depends on 'k', which is no parameter, so the caller does not know it"),
    ("A: T.Buffer((8,), \"float32\"), n: T.int32):\n        {}\n        S = T.allocate((n,), \"int8\", "
     "\"shared.dyn\")\n        R = T.allocate((n,), \"int8\", \"shared.dyn\")\n        A[n] = 1.0",
     "kernel 'kernel' allocates 'S' and 'R' in shared.dyn, but a launch has one such memory; merge them"),
])
def test_kernels_that_no_host_launches(kernel: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        after("LowerDeviceKernelLaunch", f"{CALLER}    def kernel({kernel.format(CUDA)}\n")


# Calling conventions.
def test_functions_of_addresses() -> None:
    mod = after("MakeUnpackedAPI", f"""
class Mod:
    def main(A: T.Buffer((8,), "float32"), n: T.int32):
        {BOTH}
        A[n] = 1.0
        Mod.other(T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(8, dtype="handle"),
                                         T.reinterpret(T.uint64(0), dtype="handle"), T.uint32(1), T.float32(0), 0))
        Mod.own(A.data)
    def other(A: T.Buffer((8,), "float32")):
        T.func_attr({{"global_symbol": "other", "target": T.target("llvm")}})
        T.evaluate(A.data)
    def own(A: T.handle):
        T.evaluate(A)
""")
    main = mod["main"]
    assert [(p.name, p.dtype) for p in main.params] == [("A", "handle"), ("n", "int32")]
    assert str(main.attrs["target"]) == "llvm"
    assert str(main).split("\n")[3:] == [
        '    T.func_attr({"global_symbol": "main", "target": T.target({"kind": "llvm"})})',
        '    T.attr("default", "device_id", 0)',
        '    T.attr("default", "device_type", 2)',
        "    A_1[n] = 1.0",
        "    Module.other(A)",
        "    Module.own(A)",
        "    T.ret(T.int32(0))",
    ]
    assert str(mod["own"]) == str(tir.parse("def own(A: T.handle):\n    T.evaluate(A)"))
    again = tir.transform.MakeUnpackedAPI()(mod)
    tvm.ir.assert_structural_equal(again, mod)


@pytest.mark.parametrize(("pass_name", "attrs", "message"), [
    ("MakeUnpackedAPI", '"global_symbol": "f"', "MakeUnpackedAPI required the function to be annotated with tvm::attr::"
     "kTarget: 'f' has no attribute 'target'; add it with BindTarget"),
    ("MakePackedAPI", '"global_symbol": "f"', "MakePackedAPI required the function to be annotated with tvm::attr::"),
    ("MakeUnpackedAPI", '"global_symbol": "f", "target": T.target("llvm")',
     "'m' in 'f' is no parameter, and an address does not determine it; add it to the parameters"),
])
def test_functions_without_a_convention(pass_name: str, attrs: str, message: str) -> None:
    text = f'def f(A: T.Buffer((m,), "float32")):\n    m = T.int64()\n    T.func_attr({{{attrs}}})\n    A[m - 1] = 0.0'
    with pytest.raises(CompileError, match=message):
        after(pass_name, text)


def packed(text: str) -> Any:
    return after("MakePackedAPI", text)["main"]


def test_packed_functions_check_their_arguments() -> None:
    func = packed("""
def main(A: T.Buffer((n, 8), "float16", strides=(s, 1)), k: T.int32, x: T.float64, device_api_context: T.handle):
    n = T.int32()
    s = T.int64()
    T.func_attr({"global_symbol": "main", "target": T.target("llvm")})
    A[n - 1, k] = T.cast(x, "float16")
    T.call_extern("int32", "f", A.data, device_api_context)
""")
    assert [(p.name, p.dtype) for p in func.params] == [
        ("args", "handle"), ("arg_type_ids", "handle"), ("num_args", "int32"), ("out_ret_value", "handle"),
        ("out_ret_tcode", "handle"), ("resource_handle", "handle")]
    assert func.attrs["calling_conv"] == 1
    checks = [s.message for s in walk_stmt(func.body) if isinstance(s, AssertStmt)]
    assert checks[0] == "main: takes 3 arguments"
    assert "main: argument 0 ('A') must be float16" in checks
    assert "main: argument 2 ('x') must be float64" in checks
    bound = [s.var.name for s in walk_stmt(func.body) if isinstance(s, Let)]
    assert bound == [
        "A_code", "A", "A_shape", "n", "A_strides", "s", "device_id", "A", "k_code", "k", "x_code", "x"]
    text = str(func)
    assert 'T.call_extern("int32", "f", A_1, resource_handle)' in text
    assert 'T.attr(0, "compute_scope", "main_compute_")' in text
    tvm.ir.assert_structural_equal(tir.transform.MakePackedAPI()(tvm.IRModule({"main": func}))["main"], func)


def test_sizes_that_later_arguments_determine() -> None:
    func = packed("""
def main(A: T.Buffer((n * 2,), "float32"), B: T.Buffer((n,), "float32")):
    n = T.int64()
    T.func_attr({"global_symbol": "main", "target": T.target("llvm")})
    A[n] = B[0]
""")
    last = [s for s in walk_stmt(func.body) if isinstance(s, AssertStmt)][-1]
    assert (last.message, str(last.condition)) == (
        "main: size 0 of argument 0 ('A') must be (n * 2)", "(A_shape[0] == (n * 2))")


def test_calls_of_packed_functions() -> None:
    mod = after("MakePackedAPI", """
class Mod:
    def main(A: T.handle):
        T.func_attr({"global_symbol": "main", "target": T.target("llvm")})
        Mod.f(A)
    def f(A: T.handle):
        T.func_attr({"global_symbol": "other", "target": T.target("llvm")})
        T.evaluate(A)
    def g(A: T.handle):
        T.evaluate(A)
""")
    assert 'T.tvm_call_cpacked("other", A, ' in str(mod["main"])
    assert str(mod["g"]) == str(tir.parse("def g(A: T.handle):\n    T.evaluate(A)"))


# The runtime's functions.
def test_calls_of_registered_functions() -> None:
    becomes("LowerTVMBuiltin", f"""
def main(A: T.Buffer((8, 4), "float32"), n: T.int32):
    {HOST}
    with T.attr("default", "device_id", 0):
        for i in T.parallel(n):
            T.call_packed("f", i, "text", 0.5)
""", f"""
def main(A: T.Buffer((8, 4), "float32"), n: T.int32):
    {HOST}
    for i in T.parallel(n):
        kinds = T.tvm_stack_alloca("arg_tcode", T.int32(4), dtype="handle")
        codes = T.Buffer((4,), "int32", data=kinds)
        values = T.tvm_stack_alloca("arg_value", T.int32(4), dtype="handle")
        T.tvm_struct_set(values, T.int32(0), T.int32(12), T.cast(i, "int64"))
        codes[0] = T.int32(0)
        T.tvm_struct_set(values, T.int32(1), T.int32(12), "text")
        codes[1] = T.int32(11)
        T.tvm_struct_set(values, T.int32(2), T.int32(12), T.float64(0.5))
        codes[2] = T.int32(2)
        T.tvm_call_packed_lowered("f", values, kinds, T.int32(0), T.int32(3))
""")


def test_arrays_are_on_the_stack() -> None:
    func = after("LowerTVMBuiltin", f"""
def main(A: T.Buffer((8, 4), "float32", strides=(s, 1)), B: T.Buffer((2,), "int8")):
    s = T.int64()
    {HOST}
    T.call_packed("f", A, B)
    T.call_packed("g", B)
""")["main"]
    bound: list[Any] = [s.value for s in walk_stmt(func.body) if isinstance(s, Let)]
    sizes = {e.op.texts[0][1]: int(e.args[0]) for e in bound}
    assert sizes == {"arg_tcode": 3, "arg_value": 3, "array": 2, "shape": 5}
    text = str(func)
    assert text.count("T.tvm_struct_set(stack_array, T.int32(0), T.int32(1), ") == 2
    assert text.index("[4] = 2") < text.index('"f"') < text.index('"g"')
    kept = after("LowerTVMBuiltin", f'def main():\n    {CUDA}\n    T.call_packed("f", 1)')["main"]
    assert "T.call_packed" in str(kept)


def allocating(device: int, size: object) -> str:
    return f"""
def main(n: T.int32):
    {HOST}
    T.attr("default", "device_type", {device})
    T.attr("default", "device_id", 0)
    A = T.allocate(({size},), "float16", "global")
    A[0] = T.float16(0)
"""


@pytest.mark.parametrize(("device", "size", "nbytes", "alignment"), [
    (2, "16", "T.uint64(32)", 32), (1, "512", "T.uint64(1024)", 64),
    (2, "n", 'T.cast(n, "uint64") * T.uint64(2)', 64),
])
def test_memory_of_a_device_is_allocated_by_the_runtime(device: int, size: str, nbytes: str, alignment: int) -> None:
    becomes("LowerTVMBuiltin", allocating(device, size), f"""
def main(n: T.int32):
    {HOST}
    p = T.handle("float16", "global")
    T.attr(p, "storage_alignment", {alignment})
    with T.LetStmt(T.TVMBackendAllocWorkspace({device}, 0, {nbytes}, 2, 16), var=p):
        if T.isnullptr(p):
            T.Call("int32", "tir.tvm_throw_last_error", [])
        A = T.Buffer(({size},), "float16", data=p)
        A[0] = T.float16(0)
    if T.TVMBackendFreeWorkspace({device}, 0, p) != 0:
        T.Call("int32", "tir.tvm_throw_last_error", [])
""", free=True)


def test_memory_on_the_stack_stays() -> None:
    becomes("LowerTVMBuiltin", allocating(1, 16), f"""
def main(n: T.int32):
    {HOST}
    A = T.allocate((16,), "float16", "global")
    A[0] = T.float16(0)
""")


@pytest.mark.parametrize(("key", "missing"), [("device_type", "device_id"), ("device_id", "device_type")])
def test_memory_on_an_unknown_device(key: str, missing: str) -> None:
    lines = [line for line in allocating(2, 16).split("\n") if f'"{missing}"' not in line]
    assert key in "".join(lines)
    with pytest.raises(CompileError, match=f"the device of 'A' in 'main' is unknown; put the attribute {missing}"):
        after("LowerTVMBuiltin", "\n".join(lines))


def test_calls_in_conditions_of_while_loops() -> None:
    with pytest.raises(CompileError, match="the condition of a while loop in 'main' calls a function; store"):
        after("LowerTVMBuiltin", f'def main():\n    {HOST}\n    while T.call_packed("f") > 0:\n        T.evaluate(0)')


def context(device: str) -> str:
    return f'T.tvm_thread_context(T.call_extern("handle", "context", kind, {device}))'


def test_contexts_are_computed_once() -> None:
    text = f"""
def main(kind: T.int32, n: T.int32):
    {HOST}
    for i in T.serial(n):
        T.call_extern("int32", "f", {context("0")}, {context("i")})
        for j in T.parallel(4):
            T.call_extern("int32", "f", {context("0")})
        T.call_extern("int32", "f", {context("1")}, {context("0")})
"""
    becomes("CombineContextCall", text, f"""
def main(kind: T.int32, n: T.int32):
    {HOST}
    a = T.call_extern("handle", "context", kind, 0)
    b = T.call_extern("handle", "context", kind, 1)
    for i in T.serial(n):
        c = T.call_extern("handle", "context", kind, i)
        T.call_extern("int32", "f", a, c)
        for j in T.parallel(4):
            d = T.call_extern("handle", "context", kind, 0)
            T.call_extern("int32", "f", d)
        T.call_extern("int32", "f", b, a)
""")
    becomes("CombineContextCall", text.replace(HOST, CUDA), text.replace(HOST, CUDA))


# Special memory.
def described(scope: str, head: object) -> None:
    tvm.register_func(f"tvm.info.mem.{scope}", lambda: tvm.ir.make_node(
        "MemoryInfo", unit_bits=8, max_simd_bits=32, max_num_bits=128, head_address=head), override=True)


SPECIAL = 'def f(B: T.Buffer((4,), "int8")):\n    A = T.allocate((4,), "int8", "global.{}")\n    {}'


def test_special_memory_has_an_address() -> None:
    described("global.seen", tir.call_extern("handle", "place"))
    described("global.unseen", None)
    becomes("LowerDeviceStorageAccessInfo", SPECIAL.format("seen", "B[0] = A[1]"), """
def f(B: T.Buffer((4,), "int8")):
    p = T.call_extern("handle", "place")
    A = T.Buffer((4,), "int8", data=p, scope="global.seen")
    B[0] = A[1]
""")
    becomes("LowerDeviceStorageAccessInfo", SPECIAL.format("unseen", "B[0] = T.int8(1)"),
            'def f(B: T.Buffer((4,), "int8")):\n    B[0] = T.int8(1)')
    with pytest.raises(CompileError, match=r"'f' uses 'A' in 'global.unseen', which the CPU does not see; lower its"):
        after("LowerDeviceStorageAccessInfo", SPECIAL.format("unseen", "B[0] = A[0]"))
    with pytest.raises(CompileError, match=r"'f' allocates memory of scope 'global.unknown', which is not described"):
        after("LowerDeviceStorageAccessInfo", SPECIAL.format("unknown", "B[0] = A[0]"))


# Assertions, bounds and constants.
def test_assertions_go() -> None:
    becomes("SkipAssert", 'def f(A: T.Buffer((4,), "int8"), n: T.int32):\n    assert n > 0, "n"\n    A[0] = T.int8(1)',
            'def f(A: T.Buffer((4,), "int8"), n: T.int32):\n    A[0] = T.int8(1)')


def test_indices_are_checked() -> None:
    text = 'def f(A: T.Buffer((4,), "int8"), B: T.Buffer((8,), "int8"), n: T.int32):\n    A[n] = B[n + 1]'
    mod = after("InstrumentBoundCheckers", text)
    bounds: list[Any] = [s for s in walk_stmt(mod["f"].body) if isinstance(s, AttrStmt)]
    assert [(s.node.name, int(s.value.args[0])) for s in bounds] == [("A", 4), ("B", 8)]
    func = tir.transform.Simplify()(mod)["f"]
    a, b = np.zeros(4, "int8"), np.arange(8, dtype="int8")
    for n in (3, 4, -1):
        inside = tir.stmt_functor.ir_transform(func.body, None, lambda s: s.body, ["tir.AttrStmt"])
        if n != 3:
            with pytest.raises(CompileError, match="an index is outside of 'A', 'B'"):
                run(func.with_body(inside), [a, b], {func.params[2]: n})
        else:
            run(func.with_body(inside), [a, b], {func.params[2]: n})
    assert a.tolist() == [0, 0, 0, 4]
    becomes("InstrumentBoundCheckers", 'def f(A: T.Buffer((4,), "int8")):\n    A[1] = A[2]',
            'def f(A: T.Buffer((4,), "int8")):\n    A[1] = A[2]')


def test_constants_are_listed_once() -> None:
    text = """
def f(A: T.Buffer((2,), "int8")):
    K = T.allocate_const([1, 2], "int8", [2])
    A[0] = K[1]
def g(A: T.Buffer((2,), "int8")):
    K = T.allocate_const([1, 2], "int8", [2])
    L = T.allocate_const([1, 2], "uint8", [2])
    A[0] = K[1] + T.cast(L[0], "int8")
"""
    mod = after("ExtractPrimFuncConstants", text)
    assert [(str(a.dtype), a.numpy().tolist()) for a in mod.attrs["constants"]] == [("int8", [1, 2]), ("uint8", [1, 2])]
    found = [s for _, f in mod.items() for s in walk_stmt(f.body) if isinstance(s, tir.AllocateConst)]
    assert [s.irmod_storage_idx for s in found] == [0, 0, 1]
    again = tir.transform.ExtractPrimFuncConstants()(mod)
    assert len(again.attrs["constants"]) == 2
    plain = tir.parse_module('def f(A: T.Buffer((2,), "int8")):\n    A[0] = A[1]')
    assert "constants" not in tir.transform.ExtractPrimFuncConstants()(plain).attrs


def test_blocks_have_no_buffers_of_parts() -> None:
    mod = tir.parse_module(SPECIAL.format("x", "B[0] = A[0]"))
    assert tir.transform.LowerMatchBuffer()(mod)["f"] is mod["f"]


# Narrow floats.
NARROW = """
def f(A: T.Buffer((64,), "{0}"), B: T.Buffer((64,), "{0}"), D: T.Buffer((64,), "{0}"), E: T.Buffer((64,), "{0}")):
    C = T.allocate((64,), "{0}", "global")
    for i in T.serial(64):
        C[i] = A[i] * B[i] + T.{0}(0.5)
        x = C[i]
        D[i] = T.if_then_else(x > T.{0}(0), T.exp(x), A[i])
        E[i] = A[63 - i]
"""


@pytest.mark.parametrize(("family", "dtype", "bits", "args"), [
    ("BF16", "bfloat16", "uint16", ()), ("FP8", "float8_e5m2", "uint8", ("float16",)),
    ("FP8", "float8_e5m2", "uint8", ("float32",)), ("FP8", "float8_e4m3fn", "uint8", ("float32",)),
])
def test_narrow_floats_are_computed_in_wide_ones(family: str, dtype: str, bits: str, args: tuple[str, ...]) -> None:
    mod = tir.parse_module(NARROW.format(dtype))
    computed = getattr(tir.transform, f"{family}ComputeLegalize")(*args)(mod)
    again = getattr(tir.transform, f"{family}ComputeLegalize")(*args)(computed)
    tvm.ir.assert_structural_equal(again, computed)
    stored = getattr(tir.transform, f"{family}StorageLegalize")()(computed)
    kind = tvm.DataType(dtype).numpy()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(64).astype(kind) for _ in "ab")
    a[:4] = [0.0, -0.0, np.inf if dtype != "float8_e4m3fn" else 1.0, 2.0 ** -9]
    wide = args[0] if args else "float32"
    c = a.astype(wide) * b.astype(wide) + np.asarray(0.5, wide)
    wanted = np.where(c > 0, np.exp(c), a.astype(wide)).astype(kind)
    for func, cast in ((computed["f"], kind), (stored["f"], np.dtype(bits))):
        assert {str(p.dtype) for p in func.params} == {dtype if cast is kind else bits}
        given = [x.copy().view(cast) for x in (a, b, a, a)]
        run(func, given)
        np.testing.assert_array_equal(given[2].view(bits), wanted.view(bits))
        np.testing.assert_array_equal(given[3].view(bits), a[::-1].view(bits))


def test_rounding_of_bfloat16() -> None:
    before = """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "bfloat16")):
    for i in T.serial(8):
        B[i] = T.cast(A[i], "bfloat16")
"""
    (func,) = [f for _, f in after("BF16ComputeLegalize", before).items()]
    assert "T.reinterpret(" in str(func) and "T.shift_right(" in str(func)
    a = np.asarray([1.00390625, 1.01171875, -1.005, np.inf, np.nan, 3e38, 1e-40, 0.0], "float32")
    found = np.zeros(8, tvm.DataType("bfloat16").numpy())
    run(func, [a, found])
    np.testing.assert_array_equal(found.view("uint16"), a.astype(found.dtype).view("uint16"))


def test_storage_of_narrow_floats() -> None:
    becomes("BF16StorageLegalize", """
def f(A: T.Buffer((2,), "bfloat16"), x: T.bfloat16):
    K = T.allocate_const([1.0, 2.0], "bfloat16", [2])
    A[0] = x
    A[1] = T.if_then_else(T.reinterpret(A[0], dtype="uint16") > T.uint16(3), K[1], T.bfloat16(1))
    T.call_extern("int32", "g", A.data)
""", """
def f(A: T.Buffer((2,), "uint16"), x: T.uint16):
    K = T.allocate_const([16256, 16384], "uint16", [2])
    A[0] = x
    A[1] = T.if_then_else(A[0] > T.uint16(3), K[1], T.uint16(16256))
    T.call_extern("int32", "g", A.data)
""")
    with pytest.raises(CompileError, match=r"'f' computes with BF16 in .*; run BF16ComputeLegalize first"):
        after("BF16StorageLegalize", 'def f(A: T.Buffer((2,), "bfloat16")):\n    A[0] = A[1] + A[1]')
    with pytest.raises(CompileError, match="8-bit floats are computed in float16 or float32, not in float64"):
        after("FP8ComputeLegalize", 'def f(A: T.Buffer((2,), "float8_e5m2")):\n    A[0] = A[1] + A[1]', "float64")
    assert tvm.DataType("e4m3_float8x2") == "float8_e4m3fnx2" and tvm.DataType("e5m2_float8") == "float8_e5m2"
