"""The instructions of `tir.tensor_intrin`: what they compute, and the instructions that processors then have."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ScheduleError
from tilewright.ir import IRModule
from tilewright.tir.tensor_intrin import arm_cpu, hexagon, rocm, x86
from tilewright.tir.tensor_intrin.dot_product_common import DP4A_INTRIN
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import lower_loops

SIZE = 32


def product(rows: int, name: str, dtypes: tuple[str, str], depth: int = 4) -> IRModule:
    """A matrix product whose inner loops are the instruction `name`: `rows` int32 sums of `depth` products."""
    x = te.placeholder((SIZE, SIZE), name="x", dtype=dtypes[0])
    w = te.placeholder((SIZE, SIZE), name="w", dtype=dtypes[1])
    k = te.reduce_axis((0, SIZE), name="k")
    y = te.compute((SIZE, SIZE), lambda i, j: te.sum(
        x[i, k].astype("int32") * w[j, k].astype("int32"), axis=k), name="y")
    sch = tir.Schedule(te.create_prim_func([x, w, y]))
    block = sch.get_block("y")
    if rows > 1:
        sch.transform_layout(block, ("read", 1), lambda j, k: [j // rows, k // depth, j % rows, k % depth])
    _, column, row = sch.get_loops(block)
    inner = sch.split(column, factors=[None, rows])[1]
    outer, deep = sch.split(row, factors=[None, depth])
    sch.reorder(outer, inner, deep)
    sch.decompose_reduction(block, outer)
    sch.tensorize(inner if rows > 1 else deep, name)
    return sch.mod


def check(mod: IRModule, rows: int, dtypes: tuple[str, str]) -> None:
    limits = [np.iinfo(t) for t in dtypes]
    x, w = (
        np.random.default_rng(7).integers(i.min, i.max, (SIZE, SIZE), endpoint=True).astype(i.dtype) for i in limits)
    y = np.zeros((SIZE, SIZE), "int32")
    tvm.build(mod, target="llvm")(
        x, np.ascontiguousarray(w.reshape(SIZE // rows, rows, SIZE // 4, 4).transpose(0, 2, 1, 3)), y)
    np.testing.assert_array_equal(y, x.astype("int32") @ w.T.astype("int32"))


@pytest.mark.parametrize("name", [x86.VNNI_DOT_16x4_INTRIN, x86.AVX512_DOT_16x4_INTRIN])
def test_sixteen_sums_of_x86(name: str) -> None:
    mod = product(16, name, ("uint8", "int8"))
    check(mod, 16, ("uint8", "int8"))
    assert "vpdpbusd" in tvm.build(mod, target="llvm -mcpu=cascadelake").get_source("asm")
    assert "vpmaddwd" in tvm.build(mod, target="llvm -mcpu=skylake-avx512").get_source("asm")


def test_four_sums_of_arm() -> None:
    plain = product(4, arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, ("int8", "int8"))
    check(plain, 4, ("int8", "int8"))
    dots = product(4, arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN, ("int8", "int8"))
    target = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod"
    assert "sdot\tv" in tvm.build(dots, target=target).get_source("asm")
    assert "sdot\tv" not in tvm.build(plain, target=target).get_source("asm")


@pytest.mark.parametrize(("name", "rows", "depth", "dtypes"), [
    (rocm.AMDGPU_SDOT4_INTRIN, 1, 4, ("int8", "int8")), (hexagon.VRMPY_u8u8i32_INTRIN, 32, 4, ("uint8", "uint8")),
    (hexagon.VRMPY_u8i8i32_INTRIN, 32, 4, ("uint8", "int8")),
    (hexagon.VDMPY_i16i16i32_INTRIN, 32, 2, ("int16", "int16")),
])
def test_llvm_knows_the_instructions_of_other_machines(
    name: str, rows: int, depth: int, dtypes: tuple[str, str]
) -> None:
    (func,) = product(rows, name, dtypes, depth).functions.values()
    flat = lower_loops(lower_blocks(func))
    module = llvm.parse_assembly(emit(flat, Target("llvm")))
    module.verify()
    assert any(f.is_declaration and f.name.startswith("llvm.") for f in module.functions)


def test_the_instruction_of_cuda_is_a_function_of_c() -> None:
    (func,) = product(1, DP4A_INTRIN, ("int8", "int8")).functions.values()
    assert 'T.call_pure_extern("int32", "__dp4a", x[' in func.script()


def test_names_and_what_is_not_registered() -> None:
    assert {DP4A_INTRIN, rocm.AMDGPU_SDOT4_INTRIN} <= tir.TensorIntrin.known.keys()
    assert tir.TensorIntrin.get("no such", allow_missing=True) is None
    with pytest.raises(ValueError, match="there is no intrinsic 'no such'"):
        tir.TensorIntrin.get("no such")
    with pytest.raises(ScheduleError, match="there is no intrinsic 'dot_16x4_vni'; did you mean 'dot_16x4_vnni'"):
        tir.TensorIntrin.get("dot_16x4_vni")
