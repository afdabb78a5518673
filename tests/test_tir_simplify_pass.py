"""The public passes `Simplify` and `RemoveNoOp`, which keep the form of statements, and their options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import CompileError, OptionError, ParseError

tir: Any = tvm.tir
T: Any = tvm.script.tir


def after(name: str, func: Any, **fields: object) -> Any:
    config = {f"tir.{name}": fields} if fields else {}
    with tvm.transform.PassContext(config=config):
        return getattr(tvm.tir.transform, name)()(tvm.IRModule({"main": func}))["main"]


def same(name: str, before: str, wanted: str, **fields: object) -> None:
    header = 'def f(A: T.Buffer((16,), "int32"), n: T.int32, m: T.int32):\n    '
    first, second = (tir.parse(header + text.replace("\n", "\n    ")) for text in (before, wanted))
    tvm.ir.assert_structural_equal(after(name, first, **fields), second)


@pytest.mark.parametrize(("before", "wanted"), [
    ("for i in T.serial(16):\n    if i == n:\n        if i != n:\n            A[i] = 0\n        else:\n"
     "            A[i] = 1",
     "for i in T.serial(16):\n    if i == n:\n        A[i] = 1"),
    ("A[0] = A[0] + (5 - 5)", "T.evaluate(0)"),
    ("for i in T.serial(16):\n    if i == 5:\n        if i < 7:\n            A[i] = 0",
     "for i in T.serial(16):\n    if i == 5:\n        A[i] = 0"),
    ("for i in T.serial(16):\n    x = i < 3\n    if x or i >= 3:\n        A[i] = T.cast(x, 'int32')",
     "for i in T.serial(16):\n    x = i < 3\n    A[i] = T.cast(x, 'int32')"),
    ("if A[0] == n:\n    A[0] = A[0] + 1\n    if A[0] == n:\n        A[0] = 0",
     "if A[0] == n:\n    A[0] = A[0] + 1\n    if A[0] == n:\n        A[0] = 0"),
    ("if n < 5 or m < 5:\n    A[0] = 0\nelse:\n    if n < 5:\n        A[1] = 1\n    else:\n        A[1] = 2",
     "if n < 5 or m < 5:\n    A[0] = 0\nelse:\n    A[1] = 2"),
    ("A[0] = T.cast(T.ceil(T.log2(T.cast(14, 'float64'))), 'int32')", "A[0] = 4"),
    ("for i in T.serial(16):\n    x = T.cast(T.ceil(T.log2(T.cast(i + 1025, 'float64'))), 'int32')\n"
     "    if x == 11:\n        A[i] = 0",
     "for i in T.serial(16):\n    A[i] = 0"),
])
def test_simplify(before: str, wanted: str) -> None:
    same("Simplify", before, wanted)


def test_names_of_the_sizes_of_memory_stay() -> None:
    func = tir.parse('''def f(p: T.handle("int32"), n: T.int32):
    m = n
    q = p
    A = T.Buffer((m,), "int32", data=q)
    k = n
    A[0] = k
''')
    assert [line.strip() for line in str(after("Simplify", func)).split("\n")[2:]] == [
        "m = n", "q = p", 'A = T.Buffer((m,), "int32", data=q)', "A[0] = n"]


def test_options_of_simplify() -> None:
    before = "if n < m and m < A[3]:\n    A[0] = T.cast(n <= m + 1, 'int32')"
    same("Simplify", before, before.replace("n <= m + 1", "n <= m + T.int32(1)"))
    same("Simplify", before, "if n < m and m < A[3]:\n    A[0] = 1", transitively_prove_inequalities=True)
    with pytest.raises(OptionError, match=r"tir.Simplify has no field 'prove'.*; the fields are"):
        same("Simplify", "A[0] = 1", "A[0] = 1", prove=True)


@pytest.mark.parametrize(("before", "wanted"), [
    ("for i in T.serial(0):\n    A[i] = 42", "T.evaluate(0)"),
    ("for i in T.serial(16):\n    for j in T.serial(i - 20):\n        A[i] = 1", "T.evaluate(0)"),
    ("for i in T.serial(16):\n    if i < 8:\n        T.evaluate(0)\n    else:\n        A[i] = 42",
     "for i in T.serial(16):\n    if not (i < 8):\n        A[i] = 42"),
    ("x = T.call_extern('int32', 'f')\nT.evaluate(0)", "T.evaluate(T.call_extern('int32', 'f'))"),
    ("x = 5\nA[0] = 1", "A[0] = 1"),
])
def test_remove_no_op(before: str, wanted: str) -> None:
    same("RemoveNoOp", before, wanted)


def test_options_of_remove_no_op() -> None:
    same("RemoveNoOp", "A[0] = 1\nA[0] = 2", "A[0] = 1\nA[0] = 2")
    same("RemoveNoOp", "A[0] = 1\nA[0] = 2", "A[0] = 2", use_dataflow_analysis=True)
    with pytest.raises(OptionError, match=r"tir.RemoveNoOp has no field 'steps'"):
        same("RemoveNoOp", "A[0] = 1", "A[0] = 1", steps=1)


def test_scalar_parameters_are_bound_names() -> None:
    text = 'def f(A: T.Buffer((8,), "int32"), {0}: T.int32):\n    A[0] = {0}'
    a, b = (tir.parse(text.format(name)) for name in "nm")
    assert tvm.ir.structural_equal(a, b) and tvm.ir.structural_hash(a) == tvm.ir.structural_hash(b)
    assert tvm.ir.structural_equal(tir.IntImm("int64", 3), 3) and not tvm.ir.structural_equal(tir.Var("n", "int32"), 3)


def test_functions_of_other_devices_are_read_but_not_compiled() -> None:
    func = tir.parse("""
    def func(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        T.evaluate(T.assume(B[0] > 0.0))
        T.evaluate(T.tvm_load_matrix_sync(A.data, 16, T.tvm_access_ptr(
            T.type_annotation(dtype="float32"), B.data, B.elem_offset, A.strides[0], 1, dtype="handle"), "row_major",
            dtype="handle"))
        B[0] = B[1]
    """)
    assert '"row_major"' in func.script() and tvm.ir.structural_equal(tir.parse(func.script(show_meta=True)), func)
    for target in ("llvm", "c"):
        with pytest.raises(CompileError, match=r"'T.tvm_load_matrix_sync' has no meaning on this device"):
            tvm.build(func, target=target)
    buffer = tir.decl_buffer((8,), "float32")
    call = tir.tvm_fill_fragment(buffer.data, 16, 16, 16, buffer.elem_offset, 0)
    assert call.op.name == "tir.tvm_fill_fragment" and call.dtype == "handle"
    assert tir.mma_fill("int32", 8, buffer.data, 0).dtype == "int32"
    assert tir.assume(cond=tir.Var("x", "int32")).op.name == "tir.assume"


def twice(x: Any) -> Any:
    return x * 2


def text(x: Any) -> str:
    return "x"


def calls(A: T.Buffer((8,), "int32")) -> None:  # type: ignore[valid-type]
    m, n = T.int32(), T.int32()
    for i in range(8):
        A[i] = twice(A[i]) + A[A.shape[0] - 1] + m - n


def wrong(A: T.Buffer((8,), "int32")) -> None:  # type: ignore[valid-type]
    A[0] = text(A[0])


def test_functions_of_the_python_code_around() -> None:
    assert "A[i] * T.int32(2) + A[T.int64(8) - 1]" in str(T.prim_func(calls))
    with pytest.raises(ParseError, match="'text' returned a str; in TVMScript it must return"):
        T.prim_func(wrong)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_scopes_of_other_devices_are_plain_memory(target: str) -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((64,), lambda i: b[i] + 1.0, name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 8)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], outer)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    out = tvm.nd.array(y)
    tvm.build(s, [a, c], target)(tvm.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x * 2 + 1)
