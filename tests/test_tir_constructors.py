"""Nodes made from the arguments of TVM's constructors, and replaced blocks and loops of a schedule's state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tilewright import tir
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.ir import structural_equal
from tilewright.scalar.expr import as_expr
from tilewright.scalar.range import Range
from tilewright.tir.stmt import Block, BlockRealize, IterVar

NEST = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + 1.0
    for j in T.serial(8):
        with T.block("C"):
            vj = T.axis.spatial(8, j)
            B[vj] = B[vj] * 2.0
"""

ZERO = tir.Evaluate(as_expr(0))


def test_a_block_and_its_bindings() -> None:
    i, axis = tir.Var("i", "int32"), IterVar((0, 8), "vi", iter_type=IterVar.DataPar)
    assert (axis.var.dtype, axis.kind, axis.extent.dtype) == ("int32", "spatial", "int32")
    assert IterVar(Range(0, 4), tir.Var("k", "int64"), IterVar.CommReduce).kind == "reduce"
    block = Block(iter_vars=[axis], reads=[], writes=[], name_hint="b", body=ZERO, annotations={"key": "value"})
    assert (block.name, block.bindings, block.annotations) == ("b", (), {"key": "value"})
    assert "vi = T.axis.spatial(T.int32(8))\n" in str(block)
    assert block.script().startswith('with T.block("b", no_realize=True):\n    vi = T.axis.spatial(8)\n')
    bound = BlockRealize([i], i > 2, block)
    assert isinstance(bound, BlockRealize)
    assert bound.block is bound
    wanted = Block("b", (axis,), (i,), i > 2, None, block.body, {"key": "value"})
    assert structural_equal(bound, wanted, map_free_vars=True)
    assert structural_equal(BlockRealize(iter_values=[3], predicate=True, block=block), BlockRealize([3], 1, block))
    again = BlockRealize([i], True, block)
    again.__setstate__(again.__getstate__())  # type: ignore[arg-type]
    assert again.name == "b"


@pytest.mark.parametrize(("make", "message"), [
    (lambda: IterVar((0, 8), "t", IterVar.ThreadIndex, "threadIdx.x"), "an axis of kind 1 of threadIdx.x cannot be an"),
    (lambda: IterVar((1, 8), "i", IterVar.DataPar), "the axis of a block begins at 0, but this one begins at 1"),
    (lambda: BlockRealize([1], True, Block([], [], [], "b", ZERO)), "block 'b' has 0 axes, but was given 1"),
    (lambda: Block([], [], [], "b", ZERO, alloc_buffers=[tir.decl_buffer((4,))]), "block 'b' has buffers of its"),
])  # fmt: skip
def test_refused_arguments(make: Any, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)):
        make()


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="IterVar takes the arguments var, extent, kind; wrong are extent"):
        IterVar(tir.Var("i", "int32"))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="wrong are color"):
        Block("b", (), (), True, None, ZERO, color=1)  # type: ignore[call-overload]


def test_a_loop_is_replaced() -> None:
    s = tir.ScheduleState(tir.parse(NEST))
    before, (first, second) = s.mod["main"], s.root("main").body.stmts  # type: ignore[attr-defined]
    root, at, inner, other = map(s.get_sref, (s.root("main"), first, first.body, second))
    new = BlockRealize([], True, Block([], [], [], "new", body=second))
    s.replace(at, new)
    assert s.root("main").body.stmts[0] is new  # type: ignore[attr-defined]
    assert before.body.body.stmts[0] is first
    assert (at.stmt, inner.stmt, other.stmt) == (None, None, second)
    assert root.stmt is s.root("main")
    assert s.get_sref(new).parent is root
    with pytest.raises(ScheduleError, match="this block or loop is not in the program"):
        s.replace(at, new)


def test_references_of_replaced_blocks_are_kept() -> None:
    s = tir.ScheduleState(tir.parse(NEST))
    loop = s.root("main").body.stmts[0]  # type: ignore[attr-defined]
    block = loop.body
    at, of_loop = s.get_sref(block), s.get_sref(loop)
    new = Block("D", block.iters, block.bindings, block.predicate, None, block.body)
    s.replace(at, new, {block: new})
    assert s.get_sref(new) is at
    assert at.stmt is new
    assert of_loop.stmt.body is new
    changed = tir.For(loop.var, loop.min, loop.extent, "parallel", new)
    s.replace(of_loop, changed)
    assert of_loop.stmt is changed
