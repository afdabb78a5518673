"""Passes over loop programs under TVM's names: before -> after, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.base.errors import CompileError, OptionError, ThreadError
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import For, walk_stmt
from tilewright.tir.transform import HoistedConditionals, HoistedLetBindings
from tilewright.tir.transform.tagged_memory import is_tagged

tir: Any = tvm.tir
PARAMS = 'A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), n: T.int32'
Config = dict[str, Any]


def parsed(text: str, params: str = PARAMS) -> Any:
    return tir.parse(f"def f({params}):\n    " + text.strip("\n").replace("\n", "\n    "))


def after(name: str, func: Any, config: Config | None = None, *args: object) -> Any:
    with tvm.transform.PassContext(config=config or {}):
        return getattr(tir.transform, name)(*args)(tvm.IRModule({"main": func}))["main"]


def becomes(
    name: str, before: str, wanted: str, config: Config | None = None, *args: object, params: str = PARAMS
) -> None:
    found, expected = after(name, parsed(before, params), config, *args), parsed(wanted, params)
    assert tvm.ir.structural_equal(found, expected), f"{found}\nis not\n{expected}"


def knowing(name: str, *fields: str) -> Config:
    return {f"tir.{name}": dict.fromkeys(fields, True)}


# Conditions and bindings out of loops.
NESTED = """
for i, j, k in T.grid(4, 4, 4):
    if j < 3 and i < 2:
        A[i + j] = 0
"""


@pytest.mark.parametrize(("kinds", "wanted"), [
    (HoistedConditionals.All, """
for i in T.serial(4):
    if i < 2:
        for j in T.serial(4):
            if j < 3:
                for k in T.serial(4):
                    A[i + j] = 0
"""),
    (HoistedConditionals.IfElseStmt, """
for i, j in T.grid(4, 4):
    if j < 3 and i < 2:
        for k in T.serial(4):
            A[i + j] = 0
"""),
    (HoistedConditionals.Never, NESTED),
])
def test_kinds_of_conditions_that_are_hoisted(kinds: HoistedConditionals, wanted: str) -> None:
    becomes("HoistExpression", NESTED, wanted, {"tir.HoistExpression": {"hoisted_conditionals": kinds.value}})


@pytest.mark.parametrize(("before", "wanted"), [
    ("for i, j in T.grid(4, 4):\n    if j < 3:\n        if i < 2:\n            A[j] = 0\n        else:\n"
     "            A[j] = 1\n"
     "    else:\n        if i < 1:\n            A[j] = 2\n        else:\n            A[j] = 3",
     """
for i in T.serial(4):
    if i < 2:
        if i < 1:
            for j in T.serial(4):
                if j < 3:
                    A[j] = 0
                else:
                    A[j] = 2
        else:
            for j in T.serial(4):
                if j < 3:
                    A[j] = 0
                else:
                    A[j] = 3
    else:
        for j in T.serial(4):
            if j < 3:
                A[j] = 1
            else:
                A[j] = 3
"""),
    ("for i, j in T.grid(4, 4):\n    A[j] = T.if_then_else(i < 2, 1, 2)",
     "for i in T.serial(4):\n    if i < 2:\n        for j in T.serial(4):\n            A[j] = 1\n    else:\n"
     "        for j in T.serial(4):\n            A[j] = 2"),
    ("for i, j in T.grid(4, 4):\n    small = i < 3\n    if small:\n        A[j] = 0",
     "for i in T.serial(4):\n    small = i < 3\n    if small:\n        for j in T.serial(4):\n            A[j] = 0"),
    ("for i in T.serial(16):\n    if i < n:\n        if B[n] > 0:\n            A[i] = 0",
     "for i in T.serial(16):\n    if i < n:\n        if B[n] > 0:\n            A[i] = 0"),
])
def test_conditions_and_bindings_leave_loops(before: str, wanted: str) -> None:
    becomes("HoistExpression", before, wanted)


def test_bindings_stay_in_loops() -> None:
    before = "for i, j in T.grid(4, 4):\n    small = i < 3\n    if small:\n        A[j] = 0"
    becomes("HoistExpression", before, before,
            {"tir.HoistExpression": {"hoisted_let_bindings": HoistedLetBindings.Never.value}})
    with pytest.raises(OptionError, match=r"tir.HoistExpression has no field 'lets'.*; the fields are hoisted_cond"):
        becomes("HoistExpression", before, before, {"tir.HoistExpression": {"lets": 1}})


def test_conditions_on_threads() -> None:
    before = """
for i in T.thread_binding(16, "threadIdx.x"):
    for j in T.serial(4):
        if i < 3:
            A[i] = j
"""
    hoisted = """
for i in T.thread_binding(16, "threadIdx.x"):
    if i < 3:
        for j in T.serial(4):
            A[i] = j
"""
    becomes("HoistIfThenElse", before, before)
    option = {"tir.HoistIfThenElse": {"support_block_scope_hosting": True}}
    becomes("HoistIfThenElse", before, hoisted, option)
    becomes("HoistIfThenElse", before, before, option, "basic")


# Known values of memory.
@pytest.mark.parametrize(("before", "wanted"), [
    ("if A[0] == n:\n    A[0] = A[0] + 1\n    if A[0] == n:\n        A[0] = 5\n    else:\n        A[0] = 10",
     "if A[0] == n:\n    A[0] = A[0] + 1\n    A[0] = 10"),
    ("for i in T.serial(16):\n    A[i] = i\nfor j in T.serial(16):\n    if A[j] == j:\n        B[j] = 42\n    else:\n"
     "        B[j] = 100",
     "for i in T.serial(16):\n    A[i] = i\nfor j in T.serial(16):\n    B[j] = 42"),
    ("for i in T.serial(16):\n    T.evaluate(T.assume(i < 14 or A[i] == 0))\nfor i in T.serial(16):\n    if 14 <= i:\n"
     "        if A[i] == 0:\n            A[i] = 42",
     "for i in T.serial(16):\n    T.evaluate(T.assume(i < 14 or A[i] == 0))\nfor i in T.serial(16):\n    if 14 <= i:\n"
     "        A[i] = 42"),
    ("for i in T.serial(8):\n    A[i] = 1\n    A[i + 1] = 2\nif A[4] == 2:\n    B[0] = 0",
     "for i in T.serial(8):\n    A[i] = 1\n    A[i + 1] = 2\nif A[4] == 2:\n    B[0] = 0"),
    ("B[0] = 0\nfor i in T.serial(16):\n    if B[0] < 10:\n        B[0] = A[i] + B[0]",
     "B[0] = 0\nfor i in T.serial(16):\n    if B[0] < 10:\n        B[0] = A[i] + B[0]"),
    ("for i in T.serial(16):\n    B[i] = 0\nfor i in T.serial(16):\n    if B[i] < 10:\n        B[i] = A[i]",
     "for i in T.serial(16):\n    B[i] = 0\nfor i in T.serial(16):\n    B[i] = A[i]"),
    ("A[T.ramp(0, 1, 4)] = T.ramp(11, 1, 4)\nif A[1] == 12:\n    A[1] = 60",
     "A[T.ramp(0, 1, 4)] = T.ramp(11, 1, 4)\nA[1] = 60"),
])
def test_conditions_on_known_values(before: str, wanted: str) -> None:
    becomes("Simplify", before, wanted, knowing("Simplify", "propagate_knowns_to_prove_conditional"))


def test_expressions_of_known_values() -> None:
    becomes("Simplify", "A[0] = 5\nA[0] = A[0] + 7", "A[0] = 5\nA[0] = 12",
            knowing("Simplify", "propagate_knowns_to_simplify_expressions"))


@pytest.mark.parametrize(("before", "wanted"), [
    ("for i in T.serial(16):\n    A[i] = 100\n    A[i] = 42", "for i in T.serial(16):\n    A[i] = 42"),
    ("for i in T.serial(4, 12):\n    A[i] = 100\nfor i in T.serial(16):\n    A[i] = 42",
     "for i in T.serial(16):\n    A[i] = 42"),
    ("for i in T.serial(16):\n    A[i] = 100\nfor i in T.serial(4, 12):\n    A[i] = 42",
     "for i in T.serial(16):\n    A[i] = 100\nfor i in T.serial(4, 12):\n    A[i] = 42"),
    ("for i in T.serial(16):\n    if i < 10:\n        A[i] = 100\nfor i in T.serial(16):\n    if i // 4 < 3:\n"
     "        A[i] = 42",
     "for i in T.serial(16):\n    if i // 4 < 3:\n        A[i] = 42"),
    ("for i in T.serial(16):\n    A[i] = 100\nB[0] = A[3]\nfor i in T.serial(16):\n    A[i] = 42",
     "for i in T.serial(16):\n    A[i] = 100\nB[0] = A[3]\nfor i in T.serial(16):\n    A[i] = 42"),
    ("for i in T.serial(16):\n    A[i] = i\nA[4] = 4", "for i in T.serial(16):\n    A[i] = i"),
    ("for i in T.serial(16):\n    A[i] = i\nA[4] = 5", "for i in T.serial(16):\n    A[i] = i\nA[4] = 5"),
    ("for i in T.serial(16):\n    A[i] = T.call_extern('int32', 'f')\n    A[i] = 42",
     "for i in T.serial(16):\n    T.evaluate(T.call_extern('int32', 'f'))\n    A[i] = 42"),
])
def test_redundant_stores_go(before: str, wanted: str) -> None:
    becomes("RemoveNoOp", before, wanted, knowing("RemoveNoOp", "use_dataflow_analysis"))


@pytest.mark.parametrize(("before", "wanted"), [
    ("for i in T.serial(16):\n    if i < 14:\n        A[i] = 1\n        T.evaluate(0)\n    else:\n        A[i] = 1",
     "for i in T.serial(16):\n    A[i] = 1\n    T.evaluate(0)"),
    ("for i in T.serial(16):\n    if i > 0:\n        A[0] = A[0] + i * i",
     "for i in T.serial(16):\n    A[0] = A[0] + i * i"),
    ("for i in T.serial(16):\n    if i < 14:\n        A[i] = 1\nfor i, j in T.grid(4, 4):\n    if i == 3 and j >= 2:\n"
     "        A[4 * i + j] = 2",
     "for i in T.serial(16):\n    A[i] = 1\nfor i, j in T.grid(4, 4):\n    if i == 3 and j >= 2:\n"
     "        A[4 * i + j] = 2"),
    ("for i in T.serial(16):\n    if i < 14:\n        A[i] = 1\nB[0] = A[15]",
     "for i in T.serial(16):\n    if i < 14:\n        A[i] = 1\nB[0] = A[15]"),
    ("for i in T.serial(17):\n    if i < 16:\n        A[i] = A[i] + T.if_then_else(i < 16, 0, 1)",
     "for i in T.serial(17):\n    if i < 16:\n        A[i] = A[i] + T.if_then_else(i < 16, 0, 1)"),
])
def test_conditions_go_where_too_much_may_be_computed(before: str, wanted: str) -> None:
    becomes("ReduceBranchingThroughOvercompute", before, wanted,
            knowing("ReduceBranchingThroughOvercompute", "use_dataflow_analysis"))


def test_a_field_of_the_option_of_overcompute() -> None:
    with pytest.raises(OptionError, match=r"tir.ReduceBranchingThroughOvercompute has no field 'flow'"):
        becomes("ReduceBranchingThroughOvercompute", "A[0] = 1", "A[0] = 1",
                knowing("ReduceBranchingThroughOvercompute", "flow"))


def test_programs_without_redundant_parts_compute_the_same() -> None:
    text = """
for i in T.serial(16):
    if i < 12:
        A[i] = i
for i in T.serial(8):
    A[15 - i] = B[i] + 1
    B[i] = A[15 - i] - 1
for i in T.serial(16):
    if A[i] > 3:
        B[i] = A[i]
    B[i] = B[i] + A[15 - i]
"""
    func = parsed(text, 'A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")')
    values = np.random.default_rng(0).integers(-9, 9, (2, 16)).astype("int32")
    knowns = "propagate_knowns_to_prove_conditional", "propagate_knowns_to_simplify_expressions"
    follow = ("use_dataflow_analysis",)
    for name, fields in (
        ("Simplify", knowns), ("RemoveNoOp", follow), ("ReduceBranchingThroughOvercompute", follow)
    ):
        first, second = ([v.copy() for v in values] for _ in range(2))
        run(func, first)
        run(after(name, func, knowing(name, *fields)), second)
        np.testing.assert_array_equal(first, second)


# Conditions.
@pytest.mark.parametrize(("before", "wanted"), [
    ("A[0] > 0 or (B[0] > 1 and B[1] > 2)", "(0 < A[0] or 1 < B[0]) and (0 < A[0] or 2 < B[1])"),
    ("(n == 0 or A[0] == 10) and (n == 0 or A[0] != 30)", "n == 0 or A[0] == 10"),
    ("n == 20 or A[0] == 0 or n != 30", "A[0] == 0 or n != 30"),
])
def test_conditions_as_conjunctions(before: str, wanted: str) -> None:
    becomes("Simplify", f"if {before}:\n    A[0] = 0", f"if {wanted}:\n    A[0] = 0",
            knowing("Simplify", "convert_boolean_to_and_of_ors"))


@pytest.mark.parametrize(("known", "condition", "wanted"), [
    ("n <= 0", "0 <= n", "n == 0"), ("n <= 0", "n != 0", "n < 0"), ("n != 0", "n <= 0", "n < 0"),
])
def test_the_strongest_condition(known: str, condition: str, wanted: str) -> None:
    becomes("Simplify", f"if {known}:\n    if {condition}:\n        A[0] = 0",
            f"if {known}:\n    if {wanted}:\n        A[0] = 0")


# Common values.
@pytest.mark.parametrize(("before", "wanted", "equivalent"), [
    ("A[0] = (n + 1) * 2\nA[1] = (n + 1) * 2\nA[2] = n + 1",
     "cse_var_2 = n + 1\ncse_var_1 = cse_var_2 * 2\nA[0] = cse_var_1\nA[1] = cse_var_1\nA[2] = cse_var_2", False),
    ("if A[0] > 0:\n    A[0] = n * 3\n    A[1] = n * 3\nelse:\n    A[2] = n",
     "if A[0] > 0:\n    x = n * 3\n    A[0] = x\n    A[1] = x\nelse:\n    A[2] = n", False),
    ("if A[0] > 0:\n    A[0] = n * 3\nelse:\n    A[2] = n * 3\nA[1] = n",
     "x = n * 3\nif A[0] > 0:\n    A[0] = x\nelse:\n    A[2] = x\nA[1] = n", False),
    ("if n * 3 > 0:\n    A[0] = n * 3\nelse:\n    A[2] = n * 3",
     "x = n * 3\nif x > 0:\n    A[0] = x\nelse:\n    A[2] = x", False),
    ("A[0] = n * (n + 2)\nA[1] = n * n + n * 2", "x = n * n + n * 2\nA[0] = x\nA[1] = x", True),
    ("A[0] = n // A[0]\nA[1] = n // A[0]", "A[0] = n // A[0]\nA[1] = n // A[0]", False),
])
def test_common_values_get_names(before: str, wanted: str, equivalent: bool) -> None:
    becomes("CommonSubexprElimTIR", before, wanted, None, True, equivalent)
    becomes("CommonSubexprElimTIR", before, before, None, False)


# Assumptions and undefined values.
def test_assumptions_go() -> None:
    becomes("RemoveAssume", "for i in T.serial(16):\n    T.evaluate(T.assume(A[i] == 0))\nA[0] = 10", "A[0] = 10")
    becomes("RemoveAssume", "if n > 0:\n    T.evaluate(T.assume(A[0] == 0))\nelse:\n    A[0] = 1",
            "if n > 0:\n    T.evaluate(0)\nelse:\n    A[0] = 1")


def test_undefined_values_are_not_stored() -> None:
    becomes("RemoveStoreUndef", "A[0] = 1 + T.undef(dtype='int32')\nA[1] = 2", "A[1] = 2")
    becomes("RemoveStoreUndef", "x = T.undef(dtype='int32')\nA[0] = x", "T.evaluate(0)")
    with pytest.raises(CompileError, match=r"function 'f' has the undefined index x"):
        after("RemoveStoreUndef", parsed("x = T.undef(dtype='int32')\nA[x] = 5"))


# Loops and threads.
def test_parallel_loops_become_serial() -> None:
    becomes("ConvertForLoopsToSerial", "for i in T.parallel(16):\n    for j in T.vectorized(4):\n        A[i] = j",
            "for i in T.serial(16):\n    for j in T.vectorized(4):\n        A[i] = j")


THREADS = """
for b in T.thread_binding(4, "blockIdx.x"):
    for i in T.thread_binding(4, "threadIdx.x"):
        A[b * 4 + i] = 0
    for j in T.thread_binding({}, "threadIdx.x", annotations={{"own": 1}}):
        B[b * 4 + j] = 1
"""


def test_loops_over_threads_are_unified() -> None:
    becomes("UnifyThreadBinding", THREADS.format(4), """
for b in T.thread_binding(4, "blockIdx.x"):
    for i in T.thread_binding(4, "threadIdx.x"):
        A[b * 4 + i] = 0
        for j in T.serial(1, annotations={"own": 1}):
            B[b * 4 + i] = 1
""")
    with pytest.raises(ThreadError, match=r"in 'f', one kernel has loops over 4 and over 2 threads 'threadIdx.x'"):
        after("UnifyThreadBinding", parsed(THREADS.format(2)))
    inner = """
for b in T.thread_binding(4, "blockIdx.x"):
    for k in T.serial(4):
        for i in T.thread_binding(k + 1, "threadIdx.x"):
            A[i] = 0
"""
    with pytest.raises(CompileError, match=r"the number of threads 'threadIdx.x', .*, depends on a loop of the kernel"):
        after("UnifyThreadBinding", parsed(inner))


def test_loops_are_measured() -> None:
    before = (
        "for i in T.serial(2):\n    for j, k in T.grid(2, 2):\n        A[k] = 1\n    for j, k in T.grid(2, 2):\n"
        "        B[k] = 1")
    beside = """
for i in T.serial(2):
    T.evaluate(T.start_profile_intrinsic(2, dtype="handle"))
    for j, k in T.grid(2, 2):
        A[k] = 1
    T.evaluate(T.end_profile_intrinsic(2, dtype="handle"))
    T.evaluate(T.start_profile_intrinsic(4, dtype="handle"))
    for j, k in T.grid(2, 2):
        B[k] = 1
    T.evaluate(T.end_profile_intrinsic(4, dtype="handle"))
"""
    becomes("InstrumentProfileIntrinsics", before, beside, {"tir.lwp_disable_func_prof": True})
    outer = f"""
T.evaluate(T.start_profile_intrinsic(0, dtype="handle"))
T.evaluate(T.start_profile_intrinsic(1, dtype="handle"))
{before}
T.evaluate(T.end_profile_intrinsic(1, dtype="handle"))
T.evaluate(T.end_profile_intrinsic(0, dtype="handle"))
"""
    becomes("InstrumentProfileIntrinsics", before, outer, {"tir.lwp_max_depth": 1, "tir.instr_siblings": False})


# Attributes.
def test_attributes_of_devices() -> None:
    scope = after("DecorateDeviceScope", parsed("A[0] = 1")).body
    assert (scope.node, scope.attr_key, int(scope.value)) == (0, "device_scope", 0)
    func = parsed("A[0] = 1\nfor i in T.thread_binding(4, \"threadIdx.x\"):\n    A[i] = 0")
    assert after("AnnotateDeviceRegions", func) is func
    marked = after("AnnotateDeviceRegions", func.with_attr("target", tvm.target.Target("cuda", host="llvm"))).body[1]
    assert (marked.attr_key, marked.node.kind.name, marked.node.host) == ("target", "cuda", None)


def test_attributes_move_outwards() -> None:
    before = """
for i in T.serial(2):
    for j in T.serial(2):
        A[j] = 1
    for j in T.serial(2):
        with T.attr("c", "scope", "x"):
            A[j] = 2
    with T.attr("c", "scope", "x"):
        A[i] = 3
"""
    becomes("LiftAttrScope", before, """
for i in T.serial(2):
    for j in T.serial(2):
        A[j] = 1
    with T.attr("c", "scope", "x"):
        for j in T.serial(2):
            A[j] = 2
        A[i] = 3
""", None, "scope")


def test_functions_get_targets() -> None:
    func, target = parsed("A[0] = 1"), tvm.target.Target("cuda", host="llvm")
    assert after("BindTarget", func, None, target).attrs["target"].host is None
    exposed = parsed('T.func_attr({"global_symbol": "main"})\nA[0] = 1')
    assert after("BindTarget", exposed, None, target).attrs["target"].host is not None
    bound = after("BindTarget", exposed, None, tvm.target.Target("nvptx"))
    assert str(after("BindTarget", bound, None, target).attrs["target"].kind) == "nvptx"


def test_functions_of_a_module() -> None:
    mod = tvm.IRModule({"f": parsed("A[0] = 1"), "g": parsed("A[0] = 2").with_attr("kept", 1)})
    assert list(tir.transform.Filter(lambda f: "kept" in f.attrs)(mod)) == ["g"]
    with pytest.raises(CompileError, match=r"the module has 2 functions \(f, g\); mark the entry"):
        tir.transform.AnnotateEntryFunc()(mod)
    one = tvm.IRModule({"f": mod["f"]})
    marked = tir.transform.AnnotateEntryFunc()(one)
    assert marked["f"].attrs["tir.is_entry_func"] and tir.transform.AnnotateEntryFunc()(marked) is marked


# Blocks and intermediate values.
SUM = """
for i, j in T.grid(4, 4):
    with T.block("sum"):
        v, r = T.axis.remap("SR", [i, j])
        {}
        A[v] = A[v] + B[r]
"""


def test_initialization_becomes_a_condition() -> None:
    becomes("LowerInitBlock", SUM.format("with T.init():\n            A[v] = 0"),
            SUM.format("if r == 0:\n            A[v] = 0"))


ROWS = """
{temporary}
for i in T.serial(4):
    with T.block("row"):
        for j in T.serial(4):
            with T.block("fill"):
                C[{i}, j] = A[j] + i
        for j in T.serial(4):
            with T.block("use"):
                B[i * 4 + j] = C[{i}, j]
"""


def test_intermediate_values_get_smaller() -> None:
    whole = ROWS.format(temporary='C = T.alloc_buffer((4, 4), "int32")', i="i")
    part = ROWS.format(temporary='C = T.alloc_buffer((1, 4), "int32")', i="0")
    becomes("CompactBufferAllocation", whole, part)
    becomes("LowerOpaqueBlock", whole, """
for i in T.serial(4):
    C = T.allocate((4, 4), "int32")
    for j in T.serial(4):
        C[i, j] = A[j] + i
    for j in T.serial(4):
        B[i * 4 + j] = C[i, j]
""")
    func = after("CompactBufferAllocation", after("LowerOpaqueBlock", parsed(whole)))
    assert tvm.ir.structural_equal(func, after("LowerOpaqueBlock", parsed(part)))


def test_memory_that_threads_share_keeps_the_parts_of_all() -> None:
    text = """
C = T.alloc_buffer((16,), "int32", scope="{scope}")
for b in T.thread_binding(4, "blockIdx.x"):
    for i in T.thread_binding(4, "threadIdx.x"):
        with T.block("both"):
            with T.block("fill"):
                C[b * 4 + i] = A[b * 4 + i]
            with T.block("use"):
                B[b * 4 + i] = C[b * 4 + i]
"""
    for scope, size in (("global", 16), ("shared", 4), ("local", 1)):
        func = after("CompactBufferAllocation", parsed(text.format(scope=scope)))
        assert func.attrs["intermediates"][0].shape == (size,)


def test_conditions_limit_the_part_that_is_used() -> None:
    func = after("CompactBufferAllocation", parsed("""
C = T.alloc_buffer((16,), "int32")
for i in T.serial(12):
    with T.block("fill"):
        C[i] = A[i]
for i in T.serial(16):
    with T.block("use"):
        B[i] = T.if_then_else(2 <= i and i < 8, C[i - 2], 0)
"""))
    assert func.attrs["intermediates"][0].shape == (12,)


def test_values_get_a_block_around_their_uses() -> None:
    becomes("PlanAndUpdateBufferAllocationLocation", """
C = T.alloc_buffer((4, 4), "int32")
for i in T.serial(4):
    for j in T.serial(4):
        with T.block("fill"):
            C[i, j] = A[j] + i
    for j in T.serial(4):
        with T.block("use"):
            B[i * 4 + j] = C[i, j]
""", """
C = T.alloc_buffer((4, 4), "int32")
for i in T.serial(4):
    with T.block(""):
        for j in T.serial(4):
            with T.block("fill"):
                C[i, j] = A[j] + i
        for j in T.serial(4):
            with T.block("use"):
                B[i * 4 + j] = C[i, j]
""")
    carried = """
C = T.alloc_buffer((4,), "int32")
for i in T.serial(4):
    for j in T.serial(4):
        with T.block("use"):
            B[i * 4 + j] = C[j]
    for j in T.serial(4):
        with T.block("fill"):
            C[j] = A[j] + i
"""
    becomes("PlanAndUpdateBufferAllocationLocation", carried, carried)


def test_pragmas_become_attributes() -> None:
    func = after("LowerOpaqueBlock", parsed("""
for i in T.serial(4, annotations={"pragma_a": "x", "own": 1}):
    for j in T.serial(1):
        with T.block("b"):
            T.block_attr({"pragma_b": 2})
            A[i + j] = 1
"""))
    outer = func.body
    assert (outer.attr_key, outer.value, outer.node) == ("pragma_a", "x", outer.body.loop_var)
    assert outer.body.annotations == {"own": 1}
    inner = outer.body.body
    assert inner.attr_key == "pragma_b" and inner.value.value == 2 and str(inner.body) == "A[i] = T.int32(1)"


def test_rewrites_of_constant_layouts_go() -> None:
    params = 'A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")'
    text = """
T.func_attr({{"layout_free_buffers": [0]}})
{}
for i, j in T.grid(4, 4):
    with T.block("rewrite"):
        T.block_attr({{"meta_schedule.layout_rewrite_preproc": True}})
        {}
for i in T.serial(4):
    with T.block("use"):
        B[i] = {}[i // 2, i % 2, 0, 1]
"""
    before = text.format('C = T.alloc_buffer((2, 2, 2, 2), "int32")', "C[i // 2, i % 2, j // 2, j % 2] = A[i, j]", "C")
    found = after("RemoveWeightLayoutRewriteBlock", parsed(before, params))
    wanted = parsed(text.format("", "T.evaluate(0)", "A"), params.replace("(4, 4)", "(2, 2, 2, 2)"))
    assert tvm.ir.structural_equal(found, wanted)


def test_arguments_in_another_layout() -> None:
    a = tvm.te.placeholder((2, 6), "int32", name="a")
    b = tvm.te.compute((2, 6), lambda i, j: a[i, j] + 1, name="b")
    s = tvm.te.create_schedule(b.op)
    made = s[a].transform_layout(lambda *outer, j: (j // 3, *outer, j % 3))
    assert [str(v.extent) for v in made] == ["2", "2", "3"]
    s[b].transform_layout(lambda i, j: (j, i))
    func = tvm.build(s, [a, b])
    given, found = np.arange(12, dtype="int32").reshape(2, 6), np.zeros((6, 2), "int32")
    func(given.reshape(2, 2, 3).transpose(1, 0, 2).copy(), found)
    np.testing.assert_array_equal(found, given.T + 1)


def test_values_share_memory_in_place() -> None:
    becomes("StorageRewrite", """
C = T.allocate((16,), "int32")
D = T.allocate((16,), "int32")
for i in T.serial(16):
    C[i] = A[i]
for i in T.serial(16):
    D[i] = C[i] * 2
for i in T.serial(16):
    B[i] = D[15 - i]
""", """
C = T.allocate((16,), "int32")
for i in T.serial(16):
    C[i] = A[i]
for i in T.serial(16):
    C[i] = C[i] * 2
for i in T.serial(16):
    B[i] = C[15 - i]
""")
    apart = """
C = T.allocate((16,), "int32")
D = T.allocate((16,), "int32")
for i in T.serial(16):
    C[i] = A[i]
for i in T.serial(16):
    D[i] = C[15 - i] * 2
for i in T.serial(16):
    B[i] = D[i]
"""
    becomes("StorageRewrite", apart, apart)


def test_values_in_special_memory_share_an_allocation() -> None:
    """Each value begins at 32 bits; another type, and plain memory, are apart. Single elements share in place."""
    becomes("StorageRewrite", """
C = T.allocate((5,), "int16", "local.L0A")
D = T.allocate((3,), "int16", "local.L0A")
E = T.allocate((8,), "int32", "local.L0A")
F = T.allocate((8,), "int32", "global")
for i in T.serial(3):
    C[i] = T.cast(A[i], "int16")
    D[i] = C[2 - i]
    E[i] = A[i]
    F[i] = E[i + 1]
    B[i] = T.cast(D[i], "int32") + F[i]
for j in T.serial(4):
    with T.allocate((8,), "int32", "local.L0A") as G:
        with T.allocate((8,), "int32", "local.L0A") as H:
            G[j] = A[j]
            H[j] = G[j] + 1
            B[j + 4] = H[j]
""", """
C = T.allocate((9,), "int16", "local.L0A")
E = T.allocate((8,), "int32", "local.L0A")
F = T.allocate((8,), "int32", "global")
for i in T.serial(3):
    C[i] = T.cast(A[i], "int16")
    C[i + 6] = C[2 - i]
    E[i] = A[i]
    F[i] = E[i + 1]
    B[i] = T.cast(C[i + 6], "int32") + F[i]
for j in T.serial(4):
    E[j] = A[j]
    E[j] = E[j] + 1
    B[j + 4] = E[j]
""")


@pytest.mark.parametrize("scope, special", [
    ("global", False), ("local", False), ("shared.dyn", False), ("global.vtcm", False),
    ("global.texture-weight", False), ("wmma.matrix_a", False), ("global:tag", True), ("local_TB2", True),
    ("warp.x", True)])
def test_scopes_of_special_memory(scope: str, special: bool) -> None:
    assert is_tagged(scope) is special


def test_allocations_in_loops_share_memory() -> None:
    becomes("StorageRewrite", """
for k in T.serial(4):
    with T.allocate((16,), "int32") as C:
        for i in T.serial(16):
            C[i] = A[i] + k
        B[k] = C[k]
    with T.allocate((12,), "int32") as D:
        for i in T.serial(12):
            D[i] = A[i] * k
        B[k + 4] = D[k]
""", """
C = T.allocate((16,), "int32")
for k in T.serial(4):
    for i in T.serial(16):
        C[i] = A[i] + k
    B[k] = C[k]
    for i in T.serial(12):
        C[i] = A[i] * k
    B[k + 4] = C[k]
""")


STEPS = "for i in T.serial(n, n + 2):\n    for j in T.unroll(8):\n        A[j + 1] = A[i] + 1"


@pytest.mark.parametrize(("options", "kinds"), [
    ({"auto_max_step": 16}, []), ({"auto_max_step": 15}, ["serial"]),
    ({"auto_max_step": 16, "explicit_unroll": False}, ["unrolled", "unrolled"]),
])
def test_loops_are_unrolled_or_marked(options: Config, kinds: list[str]) -> None:
    func = after("UnrollLoop", parsed(STEPS), {"tir.UnrollLoop": options})
    assert [s.kind for s in walk_stmt(func.body) if isinstance(s, For)] == kinds


def test_hints_and_registers_unroll_loops() -> None:
    hinted = parsed('T.attr(0, "pragma_auto_unroll_max_step", T.int32(4))\nfor i in T.serial(4):\n    A[i] = 1')
    assert len(after("UnrollLoop", hinted).body) == 4
    local = parsed('C = T.allocate((4,), "int32", "local")\nfor i in T.serial(4):\n    C[i] = 1\n'
                   "for i in T.serial(4):\n    A[i] = 1")
    found = after("UnrollLoop", local, {"tir.UnrollLoop": {"unroll_local_access": True}})
    assert [type(s).__name__ for s in found.body.body] == ["Store"] * 4 + ["For"]
    plain = parsed("for i in T.serial(4):\n    A[i] = 1")
    assert after("UnrollLoop", plain) is plain
    choice = tir.call_intrin("int32", "tir.if_then_else", tir.Var("c", "bool"), 1, 2)
    assert isinstance(choice, tir.Select) and choice.dtype == "int32"
