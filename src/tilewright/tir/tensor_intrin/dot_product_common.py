"""Dot products of several integers per lane, and `dp4a`, a product of two vectors of four int8."""

from __future__ import annotations

from typing import Final

from tilewright.tir.parser import parse
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.tensorize import TensorIntrin


def dot_product_desc(lanes: int, depth: int, left: str, right: str) -> PrimFunc:
    """Return the nest `C[i] += A[k] * B[i, k]` over `lanes` and `depth`, for integers of the dtypes `left` and `right`
    and int32 sums. With one lane, `C` has one element, and `B` the shape of `A`."""
    if lanes == 1:
        return parse(f"""
            @T.prim_func
            def dot_product_{depth}_desc(
                A: T.Buffer(({depth},), "{left}"), B: T.Buffer(({depth},), "{right}"), C: T.Buffer((1,), "int32")
            ):
                for i in range(0, {depth}):
                    with T.block("update"):
                        v = T.axis.R({depth}, i)
                        C[0] = C[0] + T.cast(A[v], "int32") * T.cast(B[v], "int32")
            """)
    return parse(f"""
        @T.prim_func
        def dot_product_{lanes}x{depth}_desc(
            A: T.Buffer(({depth},), "{left}"), B: T.Buffer(({lanes}, {depth}), "{right}"),
            C: T.Buffer(({lanes},), "int32")
        ):
            for i, k in T.grid({lanes}, {depth}):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
        """)


def dot_product_of_words(lanes: int) -> PrimFunc:
    """Return the dot products of four uint8 and `lanes` times four int8, whose four bytes are a 32-bit word each."""
    return parse(f"""
        @T.prim_func
        def dot_product_{lanes}x4_of_words(
            A: T.Buffer((4,), "uint8"), B: T.Buffer(({lanes}, 4), "int8"), C: T.Buffer(({lanes},), "int32")
        ):
            for i in range({lanes}):
                C[i] = T.dot4(
                    T.reinterpret(A[T.ramp(0, 1, 4)], dtype="uint32"),
                    T.reinterpret(B[i, T.ramp(0, 1, 4)], dtype="int32"), C[i], dtype="int32")
        """)


def register_loops(name: str, desc: PrimFunc) -> str:
    """Register an intrinsic with its loops as its implementation, and return its name."""
    return TensorIntrin.register(name, desc, desc).name


dp4a_desc: Final = dot_product_desc(1, 4, "int8", "int8")
DP4A_INTRIN: Final = register_loops("dp4a", dp4a_desc)

__all__ = ["DP4A_INTRIN", "dp4a_desc"]
