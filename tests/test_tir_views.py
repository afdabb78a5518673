"""Views in TVMScript: other shapes of a buffer's memory, parts of it, and the addresses of both."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.base.errors import ParseError

WHOLE = """
@T.prim_func
def whole(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
    flat = T.Buffer((24,), "float32", data=A.data)
    other = T.decl_buffer([2, 12], "float32", data=B.data)
    same = T.Buffer((4, 6), data=A.data)
    for i, j in T.grid(2, 12):
        other[i, j] = flat[i * 12 + j] + same[i, 0]
"""
PART = """
@T.prim_func
def part(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 6))
    B = T.match_buffer(b, (8, 6))
    for i, j in T.grid(4, 6):
        with T.block("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            step = T.int32()
            first = T.int32()
            S = T.match_buffer(A[vi * 2 : vi * 2 + 2, vj], (2, 1), strides=[step, 1], elem_offset=first)
            D = T.match_buffer(B[vi * 2 : vi * 2 + 2, vj], (2, 1), offset_factor=1)
            for k in range(2):
                inner = T.match_buffer(S[k, 0], ())
                D[k, 0] = inner[()] + T.float32(step) + T.float32(first)
"""
VECTORS = """
@T.prim_func
def vectors(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32")):
    n = T.meta_var(5)
    C = T.decl_buffer((10,), "int32")
    for i in T.thread_binding(10, "vthread.x"):
        C[i] = T.ceildiv(A[i], 4)
    B[0:n] = C[0:5] + T.cast(A[0:5], dtype="int32x5")
    B[n:10] = C[5:10]
"""

BYTES = """
@T.prim_func
def composed(R: T.Buffer((10,), "float16"), S: T.Buffer((40,), "int8")):
    data = T.allocate([40], "int8")
    A = T.decl_buffer([40], "int8", data)
    B = T.decl_buffer([2, 5], "float16", data)
    C = T.decl_buffer([5], "int32", data, elem_offset=5)
    for i in range(40):
        A[i] = T.cast(i * 3, "int8")
    for i, j in T.grid(2, 5):
        B[i, j] = B[i, j] + T.float16(1)
    for i in range(5):
        C[i] = C[i] * 3 - 7
    for i, j in T.grid(2, 5):
        R[i * 5 + j] = B[i, j]
    for i in range(40):
        S[i] = A[i]
"""


def matrix(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).uniform(-9, 9, shape).astype("float32")


def test_other_shapes() -> None:
    a, b = matrix(4, 6), np.zeros((4, 6), "float32")
    tvm.build(tir.parse(WHOLE), target="llvm")(a, b)
    np.testing.assert_array_equal(b.reshape(2, 12), a.reshape(2, 12) + a[:2, :1])


def test_parts() -> None:
    a, b = matrix(8, 6), np.zeros((8, 6), "float32")
    function = tir.parse(PART)
    assert "match_buffer" not in function.script() and tir.parse(function.script()).script() == function.script()
    tvm.build(function, target="llvm")(a, b)
    first = np.arange(8)[:, None] // 2 * 12 + np.arange(6)
    np.testing.assert_allclose(b, a + 6 + first, rtol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_elements_of_another_type(target: str) -> None:
    halves, after = np.zeros(10, "float16"), np.zeros(40, "int8")
    function = tir.parse(BYTES)
    assert tir.parse(function.script()).script() == function.script()
    tvm.build(function, target=target)(halves, after)
    memory = (np.arange(40) * 3).astype("int8")
    memory[:20].view("float16")[:] += np.float16(1)
    memory[20:].view("int32")[:] = memory[20:].view("int32") * 3 - 7
    np.testing.assert_array_equal(after, memory)
    np.testing.assert_array_equal(halves.view("int16"), memory[:20].view("int16"))


def test_stored_parts_of_elements() -> None:
    function = tir.parse("""
@T.prim_func
def stores(A: T.Buffer((4,), "uint8")):
    B = T.Buffer((2,), "uint16", data=A.data)
    B[1] = 515
""")
    assert function.script().splitlines()[2:] == [
        "    B_bits = T.uint16(515)",
        "    A[2] = T.cast(B_bits, \"uint8\")",
        "    A[3] = T.cast(T.shift_right(B_bits, T.uint16(8)), \"uint8\")",
    ]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("[2, 5], \"float16\"", "[2, 11], \"float16\"", "'B' has 44 elements from element 0 on, but 'data' has only 40"),
    ("[2, 5], \"float16\"", "[2, 5], \"bool\"", "'B' is bool, but the memory of 'data' holds int8; the types must be"),
    ("data = T.allocate([40], \"int8\")", "data = T.allocate([10], \"int32\")",
     "'A' is int8, but the memory of 'data' holds int32, which is wider; declare the memory with the narrower type"),
    ("S[i] = A[i]", "S[i] = B[i]", "buffer 'B' has 2 dimensions, but was given 1 indices"),
    ("S[i] = A[i]", "S[0:4] = T.cast(B[0, 0:4], \"int8x4\")",
     "'B' is float16, but its memory holds int8; only single elements of it can be read and written"),
])  # fmt: skip
def test_refused_views_of_another_type(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        tir.parse(BYTES.replace(old, new))


def test_memory_of_a_parameter() -> None:
    function = tir.parse("""
@T.prim_func
def main(A: T.handle("float32")):
    for i in range(4):
        B = T.Buffer((4,), data=A)
        C = T.Buffer((2, 2), data=A)
        B[i] = C[i // 2, i % 2] + 1.0
""")
    assert [tuple(p.shape) for p in function.buffers] == [(4,)]
    values = np.zeros(4, "float32")
    tvm.build(function, target="llvm")(values)
    np.testing.assert_array_equal(values, 1)


def test_slices_and_numbers() -> None:
    a, b = np.arange(-5, 5, dtype="int32"), np.zeros(10, "int32")
    tvm.build(tir.parse(VECTORS), target="llvm")(a, b)
    np.testing.assert_array_equal(b, -(-a // 4) + np.where(np.arange(10) < 5, a, 0))


def test_part_of_memory_allocated_in_the_same_block() -> None:
    function = tir.parse("""
@T.prim_func
def inside(A: T.Buffer((8, 4), "int32")):
    for i in range(8):
        with T.block("x"):
            v = T.axis.S(8, i)
            M = T.alloc_buffer((8, 4), "int32")
            part = T.match_buffer(M[v, 0:4], (4,))
            part[0] = v
            A[v, 0] = part[0]
""")
    rows = np.zeros((8, 4), "int32")
    tvm.build(function, target="llvm")(rows)
    np.testing.assert_array_equal(rows[:, 0], np.arange(8))


def test_addresses() -> None:
    function = tir.parse("""
@T.prim_func
def addresses(A: T.Buffer((4, 6), "float32")):
    part = T.match_buffer(A[2, 0:6], (6,))
    T.evaluate(T.call_extern("f", A.data, part.access_ptr("w", offset=1), dtype="int32"))
""")
    text = function.script()
    assert "T.address_of(A[0, 0], 3, 4, 6, " in text and "T.address_of(A[2, 1], 2, 1, 6, " in text


@pytest.mark.parametrize(("line", "message"), [
    ('X = T.Buffer((25,), "float32", data=A.data)', "'X' has 25 elements from element 0 on, but 'A' has only 24"),
    ('X = T.Buffer((24,), "float32", data=A.data, elem_offset=1)', "'X' has 24 elements from element 1 on"),
    ('X = T.Buffer((24,), "bool", data=A.data)', "'X' is bool, but the memory of 'A' holds float32"),
    ("X = T.match_buffer(A[0:2, 1], (3, 1))", "'X' has the size 3 where the region of 'A' has 2"),
    ("X = T.match_buffer(A[0:2, 1], (2, 1, 1))", "'X' has 3 dimensions, but the region of 'A' has 2"),
    ("X = T.match_buffer(A[0:2], (2,))", "buffer 'A' has 2 dimensions, but was given 1 indices"),
    ("X = T.match_buffer(A[0:2, 1], (2, 1), strides=[5, 1])", "a stride of 'X' is 5, but its memory has 6"),
    ("A[0, 3:3] = A[0, 3:3]", "the length of a slice must be a number that is greater than 0"),
    ("A[0, :3] = A[0, :3]", "a slice of indices needs both ends"),
])
def test_views_that_do_not_fit(line: str, message: str) -> None:
    text = f'@T.prim_func\ndef f(A: T.Buffer((4, 6), "float32")):\n    {line}\n    A[0, 0] = T.float32(0)\n'
    with pytest.raises(ParseError) as error:
        tir.parse(text)
    assert message in str(error.value)


def test_data_of_a_part_is_the_address_of_its_memory() -> None:
    """A function that adds `elem_offset` to `data` finds the part; `access_ptr` is the sum."""
    function = tir.parse("""
@T.prim_func
def f(A: T.Buffer((8, 6), "float32")):
    with T.block("x"):
        S = T.match_buffer(A[2:4, 3:6], (2, 3), offset_factor=1)
        T.evaluate(T.call_extern("int32", "g", S.data, S.elem_offset, S.access_ptr("r")))
""")
    text = "T.address_of(A[0, 0], 3, 8, 6, dtype=\"handle\"), 15, T.address_of(A[2, 3], 1, 2, 3, dtype=\"handle\")"
    assert text in str(function)


FLAT = """
@T.prim_func
def flat(A: T.Buffer((4, 6), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
    a = T.Buffer((24,), data=A.data)
    b = T.Buffer((2, 4), data=B.data)
    for i, j in T.grid(4, 6):
        with T.block("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            with T.init():
                a[vi * 6 + vj] = 0.0
            a[vi * 6 + vj] = b[T.floordiv(vj, 4), vj % 4] + B[vj // 1 % 8]
    a[n] = b[0, T.cast(a[n], "int64") % 4]
"""


def test_indices_of_views() -> None:
    """The loops around an access simplify the indices of its view, and not those that the text itself has."""
    text = tir.parse(FLAT).script()
    assert "A[vi, vj] = 0.0" in text
    assert "A[vi, vj] = B[vj // 4 * 4 + vj % 4] + B[vj // 1 % 8]" in text
    assert "A[n // 6, n % 6] = B[T.cast(A[n // 6, n % 6], \"int64\") % 4]" in text


def test_origin_of_functions() -> None:
    """A function of TVM's te schedules differs from an equal one by an attribute that has no meaning here."""
    plain = tir.parse(WHOLE)
    tvm.ir.assert_structural_equal(plain, plain.with_attr("from_legacy_te_schedule", True))
