"""The loop passes under the field's names, what can be asked about loop functions, and both on random programs."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from random_schedules import Program, arrays, scheduled
from tilewright import tir
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Var, as_expr, const
from tilewright.tir import analysis
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import Evaluate, For, Let, PrimFunc, Seq, Store
from tilewright.tir.transform.module_passes import PASSES
from tilewright.tir.transform.verify import verify_flat

ORDER = (
    "InjectDoubleBuffer", "LowerInitBlock", "Simplify", "ConvertSSA", "HoistIfThenElse", "RemoveNoOp",
    "TightenLoopBounds", "LoopPartition", "FlattenBuffer",
         "StorageRewrite", "VectorizeLoop", "LowerIntrin", "UnrollLoop", "ConvertSSA", "CommonSubexprElimTIR",
         "RemoveNoOp")


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_every_pass_keeps_the_result(first: int) -> None:
    assert set(ORDER) == set(PASSES)
    for seed in range(first, first + 10):
        func = Program(seed).func()
        given = arrays(func, seed)
        want = [a.copy() for a in given]
        run(func, want)
        mod = IRModule({"main": scheduled(func, seed).mod["main"]})
        for name in ORDER:
            mod = getattr(tvm.tir.transform, name)()(mod)
            assert analysis.verify_well_formed(mod["main"])
            assert analysis.verify_memory(mod["main"])
        verify_flat(mod["main"])
        got = [a.reshape(-1).copy() for a in given]
        run(mod["main"], got)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=f"seed {seed}")


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


def test_expressions_are_compared_with_their_variables() -> None:
    x, y = Var("x", "int32"), Var("x", "int32")
    assert analysis.expr_deep_equal(x * 2 + 1, x * 2 + 1) and analysis.expr_deep_equal(1, as_expr(1))
    assert not analysis.expr_deep_equal(x + 1, y + 1) and not analysis.expr_deep_equal(x + 1, x + 2)
    assert not analysis.expr_deep_equal(const(1.0, "float32"), const(1.0 + 1e-7, "float32"))
