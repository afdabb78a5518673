"""Small programs with blocks for the cases of the schedule steps."""

from __future__ import annotations

from tilewright import tir
from tilewright.tir.script import tir as T
from tilewright.tir.stmt import PrimFunc

TEXTS = {
    "pair": """
        def pair(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6, 8), "float32")):
            B = T.alloc_buffer((6, 8), "float32")
            for i, j in T.grid(6, 8):
                with T.block("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[v, w] * 2.0
            for i, j in T.grid(6, 8):
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = B[v, w] + 1.0
    """,
    "two_inputs": """
        def two_inputs(A: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
            B = T.alloc_buffer((6,), "float32")
            D = T.alloc_buffer((6,), "float32")
            for i in T.serial(6):
                with T.block("B"):
                    v = T.axis.spatial(6, i)
                    B[v] = A[v] * 2.0
            for i in T.serial(6):
                with T.block("D"):
                    v = T.axis.spatial(6, i)
                    D[v] = A[v] * 3.0
            for i in T.serial(6):
                with T.block("C"):
                    v = T.axis.spatial(6, i)
                    C[v] = B[v] + D[v]
    """,
    "reshaped": """
        def reshaped(A: T.Buffer((6, 8), "float32"), C: T.Buffer((2, 3, 8), "float32")):
            B = T.alloc_buffer((6, 8), "float32")
            for i, j in T.grid(6, 8):
                with T.block("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[v, w] * 2.0
            for a, b, j in T.grid(2, 3, 8):
                with T.block("C"):
                    v, u, w = T.axis.remap("SSS", [a, b, j])
                    C[v, u, w] = B[v * 3 + u, w] + 1.0
    """,
    "in_order": """
        def in_order(A: T.Buffer((6, 8), "float32"), C: T.Buffer((6, 8), "float32")):
            for i, j in T.grid(6, 8):
                with T.block("C"):
                    v = T.axis.scan(6, i)
                    w = T.axis.opaque(8, j)
                    C[v, w] = A[v, w] + 1.0
    """,
    "passed_on": """
        def passed_on(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            B = T.alloc_buffer((8,), "float32")
            for i in T.serial(8):
                with T.block("B"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v] * 2.0
            for i in T.serial(8):
                with T.block("C"):
                    v = T.axis.spatial(8, i)
                    T.evaluate(B.access_ptr("r"))
                    C[v] = B[v]
    """,
    "rows": """
        def rows(A: T.Buffer((6, 8), "float32"), W: T.Buffer((8,), "float32"), B: T.Buffer((6,), "float32")):
            for i, k in T.grid(6, 8):
                with T.block("B"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[v] = 0.0
                    B[v] = B[v] + A[v, r] * W[r]
    """,
    "padded": """
        def padded(A: T.Buffer((8,), "float32"), C: T.Buffer((5,), "float32")):
            B = T.alloc_buffer((10,), "float32")
            for i in T.serial(10):
                with T.block("B"):
                    v = T.axis.spatial(10, i)
                    B[v] = T.if_then_else(v >= 1 and v < 9, A[v - 1], 0.0)
            for i in T.serial(5):
                with T.block("C"):
                    v = T.axis.spatial(5, i)
                    C[v] = B[v * 2]
    """,
    "window": """
        def window(A: T.Buffer((10, 8), "float32"), C: T.Buffer((8, 8), "float32")):
            B = T.alloc_buffer((10, 8), "float32")
            for i, j in T.grid(10, 8):
                with T.block("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = A[v, w] * 2.0
            for i, j in T.grid(8, 8):
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = B[v, w] + B[v + 1, w] + B[v + 2, w]
    """,
    "folded": """
        def folded(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.serial(8):
                with T.block("B"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v % 2 * 4 + v // 2]
    """,
    "largest": """
        def largest(A: T.Buffer((6, 8), "float32"), I: T.Buffer((6,), "int32"), M: T.Buffer((6,), "float32")):
            for i, k in T.grid(6, 8):
                with T.block("M"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        M[v] = T.min_value("float32")
                        I[v] = T.int32(-1)
                    at = T.Select(M[v] >= A[v, r], I[v], T.cast(r, "int32"))
                    most = T.Select(M[v] >= A[v, r], M[v], A[v, r])
                    M[v] = most
                    I[v] = at
    """,
    "two_sums": """
        def two_sums(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
            for i in T.serial(6):
                for k in T.serial(8):
                    with T.block("B"):
                        v, r = T.axis.remap("SR", [i, k])
                        with T.init():
                            B[v] = 0.0
                        B[v] = B[v] + A[v, r]
                for k in T.serial(8):
                    with T.block("C"):
                        v, r = T.axis.remap("SR", [i, k])
                        with T.init():
                            C[v] = 0.0
                        C[v] = C[v] + A[v, r] * B[v]
    """,
    "sums_together": """
        def sums_together(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
            for i, k in T.grid(6, 8):
                with T.block("B"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[v] = 0.0
                    B[v] = B[v] + A[v, r]
                with T.block("C"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[v] = 1.0
                    C[v] = C[v] * A[v, r]
    """,
    "row_by_row": """
        def row_by_row(A: T.Buffer((7, 8), "float32"), B: T.Buffer((6,), "float32")):
            for i in T.serial(6):
                for k in T.serial(8):
                    with T.block("B"):
                        v, r = T.axis.remap("SR", [i, k])
                        with T.init():
                            B[v] = 0.0
                        B[v] = B[v] + A[v, r]
                with T.block("A"):
                    v = T.axis.spatial(6, i)
                    A[v + 1, 0] = B[v]
    """,
    "spread": """
        def spread(A: T.Buffer((6, 4), "float32"), C: T.Buffer((6, 8), "float32")):
            for i, j in T.grid(6, 4):
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w * 2] = A[v, w] + 1.0
    """,
    "open_rows": """
        def open_rows(A: T.Buffer((6, n), "float32"), C: T.Buffer((6, n), "float32")):
            n = T.int64()
            for i, j in T.grid(6, n):
                with T.block("C"):
                    v, w = T.axis.remap("SS", [i, j])
                    C[v, w] = A[v, w] + 1.0
    """,
    "changed": """
        def changed(A: T.Buffer((8,), "float32")):
            for i in T.serial(8):
                with T.block("A"):
                    v = T.axis.spatial(8, i)
                    A[v] = A[v] + 1.0
    """,
}
PROGRAMS: dict[str, PrimFunc] = {name: tir.parse(text) for name, text in TEXTS.items()}


@T.prim_func
def add_one(b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")) -> None:
    for i in T.serial(4):
        with T.block("c"):
            v = T.axis.spatial(4, i)
            c[v] = b[v] + 1.0


@T.prim_func
def add_one_at_once(b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")) -> None:
    for i in T.vectorized(4):
        c[i] = 1.0 + b[i]


tir.TensorIntrin.register("test.add_one_4", add_one, add_one_at_once, override=True)
