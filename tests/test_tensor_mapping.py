"""How the axes of blocks fit to those of instructions, and layouts in which loops visit a buffer in order."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.scalar.expr import as_expr, floordiv, floormod
from tilewright.tir.schedule import analysis
from tilewright.tir.tensor_intrin import cuda

MMA = tir.TensorIntrin.get(cuda.WMMA_SYNC_16x16x16_f16f16f32_INTRIN).desc
PRODUCT = """
def main(A: T.Buffer(({b}, {m}, {k}), "float16"), B: T.Buffer(({b}, {k}, {n}), "float16"),
         C: T.Buffer(({b}, {m}, {n}), "float32")):
    for b, i, j, k in T.grid({b}, {m}, {n}, {k}):
        with T.block("C"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                C[vb, vi, vj] = 0.0
            C[vb, vi, vj] = C[vb, vi, vj] + T.cast(A[vb, vi, vk], "float32") * T.cast(B[vb, vk, vj], "float32")
"""


def product(m: int, n: int, k: int, b: int = 1) -> tuple[tir.Schedule, tir.schedule.BlockRV]:
    s = tir.Schedule(tir.parse(PRODUCT.format(b=b, m=m, n=n, k=k)))
    return s, s.get_block("C")


def test_loops_of_an_instruction() -> None:
    assert MMA is not None
    s, block = product(32, 48, 64)
    info = analysis.get_tensorize_loop_mapping(s, block, MMA)
    assert info is not None
    assert info.block_iter_paddings is None
    names = {ours.stmt.var.name: theirs.var.name for ours, theirs in info.loop_map.items()}
    assert all(s.get(ours) is ours.stmt for ours in info.loop_map)
    assert names == {"i": "i", "j": "j", "k": "k"}
    assert sorted(info.desc_loop_indexer.values()) == [0, 1, 2]


def test_loops_are_padded_if_that_is_allowed() -> None:
    assert MMA is not None
    s, block = product(31, 32, 20)
    assert analysis.get_tensorize_loop_mapping(s, block, MMA) is None
    info = analysis.get_tensorize_loop_mapping(s, block, MMA, allow_padding=True)
    assert info is not None
    assert [int(n) for n in info.block_iter_paddings or ()] == [1, 16, 1, 16]


def test_an_axis_must_be_a_loop() -> None:
    assert MMA is not None
    s, block = product(32, 32, 32)
    s.split(s.get_loops(block)[-1], [2, None])
    assert analysis.get_tensorize_loop_mapping(s, block, MMA) is None


def test_groups_of_axes() -> None:
    assert MMA is not None
    s, block = product(32, 48, 64, b=4)
    info = analysis.get_auto_tensorize_mapping_info(s, block, MMA)
    assert info is not None
    assert info.mappings[0].is_equivalent_to(tir.IndexMap.from_func(lambda b, i, j, k: (b, i, j, k)))
    text = """
def main(A: T.Buffer((2, 10, 8), "float16"), B: T.Buffer((3, 8, 16), "float16"), C: T.Buffer((2, 8, 16), "float32")):
    for n, x, c, r, k in T.grid(2, 8, 16, 3, 8):
        with T.block("C"):
            vn, vx, vc, vr, vk = T.axis.remap("SSSRR", [n, x, c, r, k])
            C[vn, vx, vc] = C[vn, vx, vc] + T.cast(A[vn, vx + vr, vk], "float32") * T.cast(B[vr, vk, vc], "float32")
"""
    s = tir.Schedule(tir.parse(text))
    info = analysis.get_auto_tensorize_mapping_info(s, s.get_block("C"), MMA)
    assert info is not None
    assert info.mappings[0].is_equivalent_to(tir.IndexMap.from_func(lambda n, x, c, r, k: (n * 8 + x, c, r * 8 + k)))
    assert ([a.var.name for a in info.lhs_iters], len(info.rhs_iters)) == (["vn", "vx", "vc", "vr", "vk"], 3)


def test_blocks_without_the_operands_of_an_instruction() -> None:
    assert MMA is not None
    text = 'def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):\n    for i in range(16):\n'
    copy = '        with T.block("B"):\n            vi = T.axis.spatial(16, i)\n            B[vi] = A[vi]\n'
    s = tir.Schedule(tir.parse(text + copy))
    assert analysis.get_auto_tensorize_mapping_info(s, s.get_block("B"), MMA) is None
    assert analysis.get_tensorize_loop_mapping(s, s.get_block("B"), MMA) is None


def test_layouts_in_the_order_of_loops() -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    loops = [tir.For(v, as_expr(0), as_expr(n), "serial", tir.Evaluate(i)) for v, n in ((i, 32), (j, 64))]
    tiles = [floordiv(i, 16) * 4 + floordiv(j, 16), floormod(i, 16) * 16 + floormod(j, 16)]
    found = analysis.suggest_index_map(tir.decl_buffer((8, 256)), tiles, loops)
    assert found is not None
    assert found.is_equivalent_to(tir.IndexMap.from_func(lambda x, y: (x // 4, y // 16, x % 4, y % 16)))


@pytest.mark.parametrize("case", ["a part is missing", "a constant", "a product", "a symbolic size"])
def test_no_layout(case: str) -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    loops = [tir.For(v, as_expr(0), as_expr(8), "serial", tir.Evaluate(i)) for v in (i, j)]
    index = {"a part is missing": i, "a constant": i * 8 + j + 1, "a product": i * j}.get(case, i)
    size = tvm.te.var("n") if case == "a symbolic size" else 64
    assert analysis.suggest_index_map(tir.decl_buffer((size,)), [index], loops) is None


def test_products_of_tensor_cores() -> None:
    half = tir.TensorIntrin.get(cuda.WMMA_SYNC_16x16x16_f16f16f16_TRANS_INTRIN)
    assert half.desc is not None
    assert [str(b.dtype) for b in half.desc.params] == ["float16"] * 3
    assert "B[vj, vk]" in str(half.desc)
    assert "T.tvm_mma_sync(T.address_of(C[0, 0], 3, 16, 16" in str(half.impl)
