"""Products of matrices of NVIDIA's tensor cores: 16 x 16 tiles of C += A * B. They are scheduled, but not compiled."""

from __future__ import annotations

from typing import Final

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
