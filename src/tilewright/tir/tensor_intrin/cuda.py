"""Products of matrices of NVIDIA's tensor cores: 16 x 16 tiles of C += A * B. They are scheduled, but not compiled.

Tiles are in fragments, memory of their own (`wmma`), or in the registers of a warp (`mma`)."""

from __future__ import annotations

from typing import Any, Final

from tilewright.tir.parser import parse
from tilewright.tir.tensorize import TensorIntrin

WMMA_SYNC_16x16x16_f16f16f32_INTRIN: Final = "wmma_sync_16x16x16_f16f16f32"
WMMA_SYNC_16x16x16_f16f16f32_TRANS_INTRIN: Final = "wmma_sync_16x16x16_f16f16f32_trans"
WMMA_SYNC_16x16x16_f16f16f16_INTRIN: Final = "wmma_sync_16x16x16_f16f16f16"
WMMA_SYNC_16x16x16_f16f16f16_TRANS_INTRIN: Final = "wmma_sync_16x16x16_f16f16f16_trans"


def _register(name: str, dtype: str, transposed: bool) -> None:
    """Register the product of tiles of float16 with sums of `dtype`; B is given transposed or not."""
    of = "vj, vk" if transposed else "vk, vj"
    head = f"""
@T.prim_func
def {name}(
    A: T.Buffer((16, 16), "float16", scope="wmma.matrix_a"), B: T.Buffer((16, 16), "float16", scope="wmma.matrix_b"),
    C: T.Buffer((16, 16), "{dtype}", scope="wmma.accumulator")
):
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])"""
    desc = parse(f"""{head}
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "{dtype}") * T.cast(B[{of}], "{dtype}")
""")
    words = ", ".join(f"{b}.data, {b}.elem_offset // 256" for b in "CABC")
    impl = parse(f"""{head}
        T.evaluate(T.tvm_mma_sync({words}, dtype="handle"))
""")
    TensorIntrin.register(name, desc, impl, override=True)


_register(WMMA_SYNC_16x16x16_f16f16f32_INTRIN, "float32", False)
_register(WMMA_SYNC_16x16x16_f16f16f32_TRANS_INTRIN, "float32", True)
_register(WMMA_SYNC_16x16x16_f16f16f16_INTRIN, "float16", False)
_register(WMMA_SYNC_16x16x16_f16f16f16_TRANS_INTRIN, "float16", True)


# Tiles in the registers of a warp: 32 threads with 8 elements each.
LDMATRIX_16x16_A_INTRIN: Final = "mma.ldmatrix_16x16_a"
LDMATRIX_16x16_B_INTRIN: Final = "mma.ldmatrix_16x16_b"
LDMATRIX_16x16_B_TRANS_INTRIN: Final = "mma.ldmatrix_16x16_b_trans"
LDMATRIX_16x16_A_DYN_INTRIN: Final = "mma.ldmatrix_16x16_a_dyn"
LDMATRIX_16x16_B_DYN_INTRIN: Final = "mma.ldmatrix_16x16_b_dyn"
MMA_f16f16f32_INTRIN: Final = "mma_f16f16f32"
MMA_f16f16f32_TRANS_INTRIN: Final = "mma_f16f16f32_trans"
MMA_f16f16f16_INTRIN: Final = "mma_f16f16f16"
MMA_f16f16f16_TRANS_INTRIN: Final = "mma_f16f16f16_trans"
MMA_fill_16x16_f32_INTRIN: Final = "mma_fill_16x16_f32"
MMA_fill_16x16_f16_INTRIN: Final = "mma_fill_16x16_f16"
MMA_store_16x16_f32_global_INTRIN: Final = "mma_store_16x16_f32_global"
MMA_store_16x16_f16_global_INTRIN: Final = "mma_store_16x16_f16_global"


def shared_16x16_to_ldmatrix_32x8_layout(i: Any, j: Any) -> tuple[Any, Any]:
    """Return the thread that holds an element of a tile of 16 x 16 halves or sums, and its place among the thread's
    elements: four quarters of 8 x 8, of which each thread has two neighbours (PTX ISA, `mma.m16n8k16`)."""
    return 4 * (i % 8) + j % 8 // 2, 4 * (j // 8) + i // 8 * 2 + j % 2


def _place(i: str, j: str) -> str:
    """Return `shared_16x16_to_ldmatrix_32x8_layout` of two variables as text."""
    return f"4 * ({i} % 8) + {j} % 8 // 2, 4 * ({j} // 8) + {i} // 8 * 2 + {j} % 2"


def _both(name: str, head: str, computed: str, code: str) -> None:
    """Register what a warp computes, over `vi` and `vj` (and `vk`), and its code for the thread `tx`."""
    axes = "SSR" if "vk" in computed else "SS"
    loops, bound = ", ".join("ijk"[: len(axes)]), ", ".join(f"v{a}" for a in "ijk"[: len(axes)])
    start = f"@T.prim_func\ndef f({head}):\n    stride = T.int64()\n    with T.block(\"root\"):\n"
    desc = parse(f"""{start}        for {loops} in T.grid({', '.join(['16'] * len(axes))}):
            with T.block("tile"):
                {bound} = T.axis.remap("{axes}", [{loops}])
                {computed}
""")
    lines = "\n".join(f"            T.evaluate({line})" for line in code.split("\n"))
    impl = parse(f"{start}        for tx in T.thread_binding(32, thread=\"threadIdx.x\"):\n{lines}\n")
    TensorIntrin.register(name, desc, impl, override=True)


def _register_load(name: str, scope: str, *, swapped: bool = False, transposed: bool = False) -> None:
    """Register `ldmatrix` for A, for B (`swapped`: the instruction transposes each quarter), or for B of which the
    memory has the transposed tile. The quarters of B are in the order of the columns of the product."""
    row, column = ("tx % 8 + tx // 16 * 8", "tx % 16 // 8 * 8") if transposed else ("tx % 16", "tx // 16 * 8")
    _both(
        name, 'W: T.Buffer((32, 8), "float16", scope="warp"), '
        f'S: T.Buffer((16, 16), "float16", scope="{scope}", strides=(stride, 1))',
        f"W[{_place('vi', 'vj')}] = S[vi, vj]",
        f'T.ptx_ldmatrix("float16", {swapped}, 4, ".b16", W.data, W.elem_offset + 8 * tx, S.access_ptr("r"), '
        f"stride * ({row}) + {column})")


def _register_product(name: str, dtype: str, *, transposed: bool = False) -> None:
    """Register the product of two tiles, as two products of 16 x 8."""
    a, b = f"A[{_place('vi', 'vk')}]", f"B[{_place('vj', 'vk') if transposed else _place('vk', 'vj')}]"
    if dtype != "float16":
        a, b = f'T.cast({a}, "{dtype}")', f'T.cast({b}, "{dtype}")'
    c, kind = f"C[{_place('vi', 'vj')}]", {"float16": "fp16", "float32": "fp32"}[dtype]
    products = "\n".join(
        f'T.ptx_mma("{dtype}", "m16n8k16", "row", "col", "fp16", "fp16", "{kind}", A.data, A.elem_offset + 8 * tx, '
        f"B.data, B.elem_offset + 8 * tx + {n}, C.data, C.elem_offset + 8 * tx + {n}, False)" for n in (0, 4))
    _both(
        name, 'A: T.Buffer((32, 8), "float16", scope="warp"), B: T.Buffer((32, 8), "float16", scope="warp"), '
        f'C: T.Buffer((32, 8), "{dtype}", scope="warp")', f"{c} = {c} + {a} * {b}", products)


def _register_ends(fill: str, store: str, dtype: str) -> None:
    """Register the first values of a product, and the store of its results."""
    warp = f'W: T.Buffer((32, 8), "{dtype}", scope="warp")'
    _both(fill, warp, f"W[{_place('vi', 'vj')}] = T.{dtype}(0)", f'T.mma_fill("{dtype}", 8, W.data, W.elem_offset)')
    _both(
        store, f'{warp}, C: T.Buffer((16, 16), "{dtype}", scope="global", strides=(stride, 1))',
        f"C[vi, vj] = W[{_place('vi', 'vj')}]",
        f'T.mma_store("{dtype}", 16, 16, C.access_ptr("w"), W.data, W.elem_offset, stride)')


_register_load(LDMATRIX_16x16_A_INTRIN, "shared")
_register_load(LDMATRIX_16x16_B_INTRIN, "shared", swapped=True)
_register_load(LDMATRIX_16x16_B_TRANS_INTRIN, "shared", transposed=True)
_register_load(LDMATRIX_16x16_A_DYN_INTRIN, "shared.dyn")
_register_load(LDMATRIX_16x16_B_DYN_INTRIN, "shared.dyn", swapped=True)
_register_product(MMA_f16f16f32_INTRIN, "float32")
_register_product(MMA_f16f16f32_TRANS_INTRIN, "float32", transposed=True)
_register_product(MMA_f16f16f16_INTRIN, "float16")
_register_product(MMA_f16f16f16_TRANS_INTRIN, "float16", transposed=True)
_register_ends(MMA_fill_16x16_f32_INTRIN, MMA_store_16x16_f32_global_INTRIN, "float32")
_register_ends(MMA_fill_16x16_f16_INTRIN, MMA_store_16x16_f16_global_INTRIN, "float16")
