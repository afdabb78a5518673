"""The loop passes under the field's names, what can be asked about loop functions, and both on random programs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tvm
from random_schedules import Program, arrays, scheduled
from tilewright import tir
from tilewright.base.errors import CompileError, ScheduleError, ThreadError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Var, as_expr, const
from tilewright.tir import analysis
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import Evaluate, For, Let, PrimFunc, Seq, Store
from tilewright.tir.transform.flatten_buffers import flatten_buffers
from tilewright.tir.transform.module_passes import PASSES
from tilewright.tir.transform.verify import verify_flat

ORDER = (
    "RemoveWeightLayoutRewriteBlock", "InjectDoubleBuffer", "InjectRollingBuffer", "LowerCrossThreadReduction",
    "InjectSoftwarePipeline", "LowerInitBlock", "ManifestSharedMemoryLocalStage",
    "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "LowerMatchBuffer", "CompactBufferAllocation",
    "UnifyThreadBinding", "LowerOpaqueBlock", "VerifyMemory", "InjectVirtualThread", "RenormalizeSplitPattern",
    "Simplify", "ConvertSSA", "HoistIfThenElse", "HoistExpression", "RemoveNoOp", "ReduceBranchingThroughOvercompute",
    "RemoveAssume", "RemoveStoreUndef", "TightenLoopBounds", "LoopPartition", "FlattenBuffer", "StorageRewrite",
    "LowerThreadAllreduce", "LowerWarpMemory", "MergeDynamicSharedMemoryAllocations", "VectorizeLoop", "LowerIntrin",
    "UnrollLoop", "ConvertSSA", "CommonSubexprElimTIR", "ConvertForLoopsToSerial", "RemoveNoOp", "LegalizePackedCalls",
    "SkipAssert", "CombineContextCall", "BF16ComputeLegalize", "BF16StorageLegalize", "FP8ComputeLegalize",
    "FP8StorageLegalize", "SplitHostDevice", "MakeUnpackedAPI", "MakePackedAPI", "LowerDeviceKernelLaunch",
    "LowerTVMBuiltin", "LowerDeviceStorageAccessInfo", "ExtractPrimFuncConstants", "NarrowDataType")
ARGUMENTS = {"NarrowDataType": (32,)}
NOT_RUN = {
    "AnnotateDeviceRegions", "AnnotateEntryFunc", "BindTarget", "DecorateDeviceScope", "Filter", "InjectCopyIntrin",
    "InstrumentBoundCheckers", "InstrumentProfileIntrinsics", "LiftAttrScope", "StorageFlatten", "ThreadSync"}
"""Passes that only mark or check, or that take options without a default."""
CONFIG = {
    "tir.RemoveNoOp": {"use_dataflow_analysis": True},
    "tir.ReduceBranchingThroughOvercompute": {"use_dataflow_analysis": True},
    "tir.Simplify": {
        "propagate_knowns_to_prove_conditional": True, "propagate_knowns_to_simplify_expressions": True,
        "convert_boolean_to_and_of_ors": True, "apply_constraints_to_boolean_branches": True,
        "transitively_prove_inequalities": True}}


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_every_pass_keeps_the_result(first: int) -> None:
    assert {*ORDER} == {*PASSES} - NOT_RUN
    uneven = 0
    for seed in range(first, first + 10):
        func = Program(seed).func()
        given = arrays(func, seed)
        want = [a.copy() for a in given]
        run(func, want)
        mod = IRModule({"main": scheduled(func, seed).mod["main"]})
        try:
            tvm.tir.transform.UnifyThreadBinding()(mod)
        except ThreadError:
            uneven += 1  # a schedule that binds loops of different length to the threads of one kernel
            continue
        for name in ORDER:
            with tvm.transform.PassContext(config=CONFIG if seed % 2 else {}):
                mod = getattr(tvm.tir.transform, name)(*ARGUMENTS.get(name, ()))(mod)
            assert analysis.verify_well_formed(mod["main"])
            assert analysis.verify_memory(mod["main"])
        flat = flatten_buffers(mod["main"])  # the pass FlattenBuffer keeps the shapes of parameters
        verify_flat(flat)
        got = [a.reshape(-1).copy() for a in given]
        run(flat, got)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=f"seed {seed}")
    assert uneven <= 2


def test_names_of_passes() -> None:
    assert tir.transform.Simplify().name == "Simplify"
    with pytest.raises(AttributeError, match=r"module 'tilewright.tir.transform' has no attribute 'Simplfy'"):
        _ = tir.transform.Simplfy


def test_programs_that_are_not_well_formed() -> None:
    a, b, i = Buffer("a", (8,)), Buffer("b", (8,)), Var("i")
    loop = For(i, as_expr(0), as_expr(8), "serial", Store(a, as_expr(1.0), (i,)))
    assert analysis.verify_ssa(PrimFunc("f", (a,), loop))
    assert not analysis.verify_ssa(PrimFunc("f", (a,), Seq((loop, loop))))
    x = Var("x", "int32")
    assert not analysis.verify_ssa(PrimFunc([x], Let(x, const(1, "int32"), Evaluate(x)))), "a parameter is bound, too"
    assert not analysis.verify_memory(PrimFunc("f", (b,), loop))
    assert not analysis.verify_well_formed(PrimFunc("f", (a,), loop.body), assert_mode=False)
    with pytest.raises(
        CompileError, match="function 'f' is not well formed: variable 'i' is used where it is not defined"
    ):
        analysis.verify_well_formed(PrimFunc("f", (a,), loop.body))
    with pytest.raises(CompileError, match="buffer 'a' is written where it does not exist"):
        analysis.verify_well_formed(PrimFunc("f", (), loop))
    with pytest.raises(CompileError, match="buffer 'b' is read where it does not exist"):
        analysis.verify_well_formed(PrimFunc("f", (a,), Store(a, b[0], (as_expr(0),))))


def test_a_block_knows_the_loops_around_it_by_its_axes() -> None:
    """One without axes says nothing about loops, and uses their variables."""
    text = """
        def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), n: T.int64):
            for i, j in T.grid(8, 8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.where(i < n)
                    B[vi, vj] = A[{row}, vj]
            for i in range(8):
                with T.block("opaque"):
                    B[i, 0] = A[i, 0]
    """
    assert analysis.verify_well_formed(tir.parse(text.format(row="vi")))
    assert not analysis.verify_well_formed(tir.parse(text.format(row="i")), assert_mode=False)
    with pytest.raises(CompileError, match="variable 'i' is used where it is not defined"):
        analysis.verify_well_formed(tir.parse(text.format(row="i")))
    with pytest.raises(ScheduleError, match="block 'B' uses the loop variable 'i' directly; bind an axis to it"):
        tir.Schedule(tir.parse(text.format(row="i")))


def parsed(body: str, params: str = 'A: T.Buffer((2, 3), "float32"), B: T.Buffer((3, 2), "float32")') -> IRModule:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return IRModule({"main": tir.parse(f"def main({params}):\n{lines}\n")})


def test_accesses_outside_of_buffers() -> None:
    check = analysis.OOBChecker()
    kept = parsed("for i in range(3):\n    B[i, 0] = T.if_then_else(i > 0, A[0, i - 1], 0.0)\n"
                  "for i in range(5):\n    if i < 3:\n        B[i, 1] = 1.0")
    assert check(kept)["main"].same_as(kept["main"])
    check(parsed("B[0, n] = A[1, 0]", 'A: T.Buffer((2, 3), "float32"), B: T.Buffer((3, 2), "float32"), n: T.int32'))
    for body, message in (
        ("B[0, 0] = A[2, 2]", r"index 0 of A\[2, 2\] goes from 2 to 2, but dimension 0 of buffer A has 2 elements"),
        ("for i in range(3):\n    B[0, i] = A[1, i]", r"index 1 of B\[0, i\] goes from 0 to 2, but dimension 1 of"),
        ("for i in range(3):\n    B[i, 0] = A[0, i - 1]", r"index 1 of A\[0, .*\] goes from -1 to 1"),
    ):
        with pytest.raises(ScheduleError, match=message):
            check(parsed(body))


def test_operations_are_counted() -> None:
    mod = parsed("for i in range(3):\n    if i % 2 == 0:\n        B[i, 0] = A[0, i] * 2.0 + 1.0\n"
                 "    else:\n        B[i + 0, 1] = T.fma(A[0, i], A[1, i], 1.0)")
    assert analysis.estimate_tir_flops(mod) == analysis.estimate_tir_flops(mod["main"]) == 6
    assert analysis.estimate_tir_flops(mod["main"].with_attr("estimated_flops", 32)) == 32
    open_loop = parsed("for i in range(n):\n    B[0, 0] = B[0, 0] + 1.0", 'B: T.Buffer((3, 2), "float32"), n: T.int32')
    with pytest.raises(CompileError, match="the operations of 'main' cannot be counted: loop 'i' has n iterations"):
        analysis.estimate_tir_flops(open_loop)


def test_allocated_memory_is_counted() -> None:
    mod = parsed('T_ = T.allocate((4, 3), "int8", "local")\nU = T.allocate((5,), "float32", "global")\nB[0, 0] = U[0]')
    assert analysis.calculate_allocated_bytes(mod) == {"main": {"local": 12, "global": 20}}
    assert analysis.calculate_allocated_bytes(mod["main"]) == {"main": {"local": 12, "global": 20}}


def test_memory_that_is_allocated_at_one_time() -> None:
    func = parsed("""
K = T.allocate_const([1, 2, 3], "int8", [3])
L = T.allocate_const([1, 2], "int8", [2])
U = T.allocate((5,), "float32", "global")
V = T.allocate((50,), "float32", "local")
with T.allocate((9,), "int8") as W:
    W[0] = K[0]
with T.allocate((4,), "int8") as X:
    X[0] = L[0]
B[0, 0] = U[0]
""")["main"]
    assert [analysis.calculate_constant_bytes(func, n) for n in (1, 4)] == [5, 8]
    assert [analysis.calculate_workspace_bytes(func, n) for n in (1, 4, 16)] == [29, 32, 48]


def test_the_block_with_the_most_operations_of_a_sum() -> None:
    def product(name: str, extent: int) -> str:
        return (f"for i, k in T.grid(2, {extent}):\n    with T.block(\"{name}\"):\n"
                f"        v, r = T.axis.remap(\"SR\", [i, k])\n        with T.init():\n            B[v, 0] = 0.0\n"
                "        B[v, 0] = B[v, 0] + A[v, r]\n")

    for first, second, chosen in ((2, 3, "y"), (3, 2, "x")):
        found = analysis.find_anchor_block(parsed(product("x", first) + product("y", second)))
        assert found is not None and found.name == chosen
    single = analysis.find_anchor_block(parsed(product("x", 2) + "B[0, 1] = A[0, 0]"))
    assert single is not None and single.name == "x"
    assert analysis.find_anchor_block(parsed("B[0, 0] = A[0, 0] * 2.0")) is None


def test_where_buffers_are_used() -> None:
    func = parsed("for i in range(2):\n    for j in range(3):\n        B[j, i] = A[i, j]\n    B[0, i] = 1.0\n")["main"]
    a, b = func.params
    found = analysis.detect_buffer_access_lca(func)
    assert (found[b], found[a]) == (func.body, func.body.body[0])
    grid = parsed('for i in T.thread_binding(2, thread="blockIdx.x"):\n    for j in range(3):\n        B[j, i] = 1.0')
    assert analysis.detect_buffer_access_lca(grid["main"])[grid["main"].params[1]] is grid["main"].body
    single = parsed("B[0, 0] = 1.0")["main"]
    assert analysis.detect_buffer_access_lca(single) == {single.params[1]: None}


def test_memory_of_a_gpu_is_used_in_threads() -> None:
    plain = parsed("for i in range(2):\n    B[0, i] = 1.0")
    bound = parsed('for i in T.thread_binding(2, thread="threadIdx.x"):\n    B[0, i] = 1.0')
    verify = tir.transform.VerifyMemory()
    verify(plain)
    verify(IRModule({"main": bound["main"].with_attr("target", tvm.target.Target("cuda"))}))
    with pytest.raises(CompileError, match="uses memory out of its scope, or on a GPU outside of loops"):
        verify(IRModule({"main": plain["main"].with_attr("target", tvm.target.Target("cuda"))}))


BLOCKS = """\
for i in range(3):
    with T.block("B"):
        v = T.axis.spatial(3, i)
        T.where(i < 2)
        B[v, 0] = A[0, v]"""


def test_blocks_lose_their_axes() -> None:
    opaque = tir.transform.ConvertBlocksToOpaque()(parsed(BLOCKS))
    assert str(opaque["main"].body) == """\
for i in T.serial(3):
    with T.block("B"):
        T.where(i < 2)
        B[i, 0] = A[0, i]"""
    assert str(tir.transform.LowerOpaqueBlock()(opaque)["main"].body) == """\
for i in T.serial(3):
    if i < 2:
        B[i, 0] = A[0, i]"""
    with pytest.raises(CompileError, match="block 'B' has axes; apply ConvertBlocksToOpaque before LowerOpaqueBlock"):
        tir.transform.LowerOpaqueBlock()(parsed(BLOCKS))
    with pytest.raises(CompileError, match="the condition of block 'B' uses its axis 'v'; write it with the loops"):
        tir.transform.ConvertBlocksToOpaque()(parsed(BLOCKS.replace("i < 2", "v < 2")))
    reduction = """
for i in range(3):
    with T.block("B"):
        v = T.axis.reduce(3, i)
        with T.init():
            B[0, 0] = 0.0
        B[0, 0] = B[0, 0] + A[0, v]"""
    with pytest.raises(CompileError, match="block 'B' initializes a reduction, so it needs its axes"):
        tir.transform.ConvertBlocksToOpaque()(parsed(reduction))


def test_expressions_are_compared_with_their_variables() -> None:
    x, y = Var("x", "int32"), Var("x", "int32")
    assert analysis.expr_deep_equal(x * 2 + 1, x * 2 + 1) and analysis.expr_deep_equal(1, as_expr(1))
    assert not analysis.expr_deep_equal(x + 1, y + 1) and not analysis.expr_deep_equal(x + 1, x + 2)
    assert not analysis.expr_deep_equal(const(1.0, "float32"), const(1.0 + 1e-7, "float32"))


@pytest.mark.parametrize(("loops", "wanted"), [
    ("for i in T.serial(64):\n        B[i // 8, i % 8] = A[i]", ["A[0 : 64] B[0 : 8, 0 : 8]"]),
    ("for i, j in T.grid(8, 8):\n        B[i, j] = A[j + i * 8]",
     ["A[0 : 64] B[0 : 8, 0 : 8]", "A[(i * 8) : ((i * 8) + 8)] B[i : (i + 1), 0 : 8]"]),
    ("for i, j in T.grid(8, 8):\n        B[j, i] = A[i * 8 + j]",
     ["have different source iterators", r"Mismatch between loop iterations \(8\) and number of dst indices touched"]),
    ("for i in T.serial(32):\n        B[0, i // 4] = A[i * 2]", ["number of src indices touched"]),
    ("for i in T.serial(8):\n        B[0, i] = A[i] + T.float32(1)", ["value to be BufferLoad, but it is"]),
    ("for i in T.serial(8):\n        if i < 4:\n            B[0, i] = A[i]", ["loop to have BufferStore body"]),
    ("for i, j in T.grid(8, 8):\n        B[0, j] = A[i * 8 + j]",
     ["does not form a bijective transform", "A[(i * 8) : ((i * 8) + 8)] B[0 : 1, 0 : 8]"]),
    ("for i in T.serial(n):\n        B[0, i] = A[i]", ["'B' are not a known box of its dimensions"]),
    ("for i in T.serial(n):\n        A[i + 1] = A[i]", ["A[0 : n] A[1 : (n + 1)]"]),
    ("for i in T.serial(2):\n        A[T.ramp(i * 4, 1, 4)] = A[T.ramp(i * 4, 1, 4)]", ["'A' are vectors"]),
])
def test_loops_that_copy_memory(loops: str, wanted: list[str]) -> None:
    func = tir.parse(f'def f(A: T.Buffer((64,), "float32"), B: T.Buffer((8, 8), "float32"), n: T.int64):\n    {loops}')
    found = tir.analysis._ffi_api._identify_memcpy(func.body)
    for one, text in zip(found, wanted, strict=True):
        if isinstance(one, tuple):
            assert " ".join(map(str, one)) == text
        else:
            assert re.search(text, one.value)


def test_slices_of_a_buffer_are_a_region() -> None:
    buffer, i = tir.decl_buffer((8, 4)), tir.Var("i", "int64")
    found = buffer[i : i + 2, :]
    assert isinstance(found, tir.BufferRegion) and str(found) == "buffer[i : (i + 2), 0 : 4]"
    assert isinstance(buffer[i, 0], tir.BufferLoad)
    with pytest.raises(CompileError, match="a slice of 'buffer' has a step"):
        buffer[0, 0:4:2]
    with pytest.raises(CompileError, match="'buffer' has 2 dimensions, but was given 1 indices"):
        buffer[0:4]
