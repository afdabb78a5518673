"""Narrower integers for loops and indices: before -> after."""

from __future__ import annotations

import pytest

from test_tir_public_passes import after, becomes, parsed
from tilewright.tir.stmt import For, walk_stmt

PARAMS = 'A: T.Buffer((8192,), "float32"), B: T.Buffer((8192,), "int64"), n: T.int64'


def narrowed(before: str, wanted: str, bits: int = 32) -> None:
    becomes("NarrowDataType", before, wanted, None, bits, params=PARAMS)


def types(text: str, bits: int) -> list[str]:
    found = after("NarrowDataType", parsed(text, PARAMS), None, bits)
    return [str(s.var.dtype) for s in walk_stmt(found.body) if isinstance(s, For)]


def test_loops_and_indices_become_narrow() -> None:
    narrowed("""
for i, j in T.grid(T.int64(16), T.int64(8)):
    if i * T.int64(8) + j >= T.int64(3):
        A[i * T.int64(8) + j] = T.float32(0)
""", """
for i, j in T.grid(T.int32(16), T.int32(8)):
    if i * T.int32(8) + j >= T.int32(3):
        A[i * T.int32(8) + j] = T.float32(0)
""")


def test_values_keep_their_types() -> None:
    narrowed("for i in range(T.int64(16)):\n    B[i] = i * T.int64(3)", """
for i in range(T.int32(16)):
    B[i] = T.cast(i * T.int32(3), "int64")
""")


def test_variables_of_the_caller_keep_their_types() -> None:
    narrowed("for i in range(T.int64(16)):\n    if i < n:\n        A[i] = T.float32(0)", """
for i in range(T.int32(16)):
    if T.cast(i, "int64") < n:
        A[i] = T.float32(0)
""")


def test_axes_of_blocks_become_narrow() -> None:
    narrowed("""
for i in range(T.int64(16)):
    with T.block("a"):
        v = T.axis.spatial(T.int64(32), i * T.int64(2))
        A[v] = T.float32(1)
""", """
for i in range(T.int32(16)):
    with T.block("a"):
        v = T.axis.spatial(T.int32(32), i * T.int32(2))
        A[v] = T.float32(1)
""")


@pytest.mark.parametrize(("text", "bits", "wanted"), [
    ("for i, j in T.grid(T.int64(65536), T.int64(32768)):\n    A[(i * T.int64(32768) + j) % T.int64(7)] = 0.0", 32,
     ["int32", "int32"]),
    ("for i, j in T.grid(T.int64(65536), T.int64(65536)):\n    A[(i * T.int64(65536) + j) % T.int64(7)] = 0.0", 32,
     ["int64", "int64"]),
    ("for i in range(n):\n    A[i] = 0.0", 32, ["int64"]),
    ("for i in range(T.int64(100)):\n    A[i] = 0.0", 16, ["int16"]),
    ("for i in range(T.int64(100)):\n    A[i * T.int64(400) % T.int64(3)] = 0.0", 16, ["int64"]),
    ("for i in range(T.int64(2147483647)):\n    A[i % T.int64(3)] = 0.0", 32, ["int32"]),
    ("for i in range(T.int64(2147483648)):\n    A[i % T.int64(3)] = 0.0", 32, ["int64"]),
])
def test_every_value_must_fit(text: str, bits: int, wanted: list[str]) -> None:
    assert types(text, bits) == wanted
