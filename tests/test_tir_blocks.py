"""The root block of a function, the parts of buffers that blocks access, and the places where buffers are used."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tilewright import tir
from tilewright.ir import assert_structural_equal
from tilewright.scalar.expr import const
from tilewright.tir.stmt import Evaluate, For, root_block

SCALED = """
@T.prim_func
def scaled(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    with T.block("root"):
        T.block_attr({"pragma": 1})
        B = T.alloc_buffer((16,), "float32")
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] * 2.0
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                for j in range(4):
                    C[v * 4 + j] = B[v * 4 + j]
"""
OPAQUE = """
@T.prim_func
def opaque(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    with T.block("copy"):
        T.call_extern("int32", "copy", A.access_ptr("r"), B.access_ptr("w"))
        C[0:4] = 0.0
""".replace("C[0:4] = 0.0", "for i in range(4):\n            C[i] = A[i]")


def parsed(text: str) -> Any:
    return tir.parse(text)


def test_the_root_block_has_the_buffers_and_annotations_of_the_function() -> None:
    func = parsed(SCALED)
    root = func.body.block
    assert root.name_hint == "root"
    assert [b.name for b in root.alloc_buffers] == ["B"]
    assert root.annotations == {"pragma": 1}
    assert root.body is func.body
    assert root is func.body.block
    assert root.body[0].body.block.alloc_buffers == root.body[0].body.block.match_buffers == []
    assert [str(r) for r in root.reads] == ["A[0 : 16]", "B[0 : 16]"]


def test_the_root_block_outlives_its_function() -> None:
    root = parsed(SCALED).with_attr("x", 1).body.block
    gc.collect()
    assert [b.name for b in root.alloc_buffers] == ["B"]


def test_functions_with_one_body_have_equal_root_blocks() -> None:
    func = parsed(SCALED)
    first = func.with_attr("x", 1)
    del func
    gc.collect()
    assert [b.name for b in first.body.block.alloc_buffers] == ["B"]


def test_a_block_that_is_all_of_a_function() -> None:
    assert parsed(OPAQUE).body.block.name_hint == "copy"  # it needs no root block
    text = OPAQUE.replace('    with T.block("copy"):', '    D = T.alloc_buffer((1,))\n    with T.block("copy"):')
    root = parsed(text).body.block
    assert root.name_hint == "root"
    assert root.body.block.name_hint == "copy"
    assert [b.name for b in root.alloc_buffers] == ["D"]
    assert_structural_equal(root.body, parsed(OPAQUE).body, map_free_vars=True)


def test_a_root_block_without_a_name() -> None:
    named, unnamed = parsed(SCALED), parsed(SCALED.replace('T.block("root")', "T.block()"))
    assert unnamed.script() == named.script()


def test_a_replaced_root_block_has_no_buffers() -> None:
    state = tir.ScheduleState(parsed(SCALED))
    root = state.mod["main"].body.block
    assert [b.name for b in root.alloc_buffers] == ["B"]
    new = tir.Block([], [], [], "new", root.body[1])
    state.replace(state.get_sref(root), new)
    assert state.mod["main"].body.block is new
    assert new.alloc_buffers == []


def test_accessed_parts() -> None:
    func = parsed(SCALED)
    block = func.body.block.body[1].body
    names = {b.data: b for b in (*func.buffers, *func.body.block.alloc_buffers)}
    reads, writes, opaque = tir.analysis.get_block_access_region(block, names)
    assert [str(r) for r in (*reads, *writes)] == ["B[(v * 4) : ((v * 4) + 4)]", "C[(v * 4) : ((v * 4) + 4)]"]
    assert opaque == []
    a = func.buffers[0]
    assert tir.analysis.get_block_read_write_region(block, {a.data: a}) == ([], [])


def test_parts_whose_address_is_passed_on() -> None:
    func = parsed(OPAQUE)
    a, b, c = func.buffers
    block, names = func.body.block, {x.data: x for x in (a, b, c)}
    reads, writes = tir.analysis.get_block_read_write_region(block, names)
    assert [r.buffer for r in reads] == [a]
    assert [r.buffer for r in writes] == [b, c]
    assert list(block.reads) == reads
    reads, writes, opaque = tir.analysis.get_block_access_region(block, names)
    assert reads == []
    assert [r.buffer for r in writes] == [c]
    assert [str(r) for r in opaque] == ["A[0 : 16]", "B[0 : 16]"]


@pytest.mark.parametrize("text", [SCALED, SCALED.replace('    with T.block("C"):', '    with T.block("D"):')])
def test_where_buffers_are_used(text: str) -> None:
    func = parsed(text)
    a, c = func.buffers
    (b,) = func.body.block.alloc_buffers
    found = tir.analysis.detect_buffer_access_lca(func)
    root = root_block(func)
    assert found[b] is root
    body: Any = root.body
    assert found[a] is body[0].body.block
    assert isinstance(found[c], For)


def test_where_buffers_are_used_without_blocks() -> None:
    func = parsed("@T.prim_func\ndef f(A: T.Buffer((1,), \"float32\")):\n    A[0] = 1.0\n")
    assert tir.analysis.detect_buffer_access_lca(func) == {func.buffers[0]: None}


def test_statements_of_no_function() -> None:
    assert Evaluate(const(0, "int32")).block.alloc_buffers == []
