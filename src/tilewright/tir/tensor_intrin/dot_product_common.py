"""Descriptions of dot-product instructions, and their registration.

An instruction multiplies `depth` elements of A with each row of B and adds the sums to C, whose elements are int32.
"""

from __future__ import annotations

from typing import Final

from tilewright.tir.parser import parse
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.tensorize import TensorIntrin

DP4A_INTRIN: Final = "dp4a"
"""CUDA's `__dp4a`: four signed bytes of A times four of B, added to one element of C."""


def parameters(rows: int, depth: int, a: str, b: str, scopes: tuple[str, str] = ("global", "global")) -> str:
    """Return the parameters of an instruction in TVMScript; `a` and `b` are dtypes, `scopes` the memory of A and B, and
    of C. One row of B has no dimension of its own."""
    inputs, output = (f', scope="{s}"' for s in scopes)
    shape = f"({rows}, {depth})" if rows > 1 else f"({depth},)"
    return (
        f'A: T.Buffer(({depth},), "{a}"{inputs}), B: T.Buffer({shape}, "{b}"{inputs}), '
        f'C: T.Buffer(({rows},), "int32"{output})')


def description(taken: str, rows: int, depth: int) -> PrimFunc:
    """Return the computation of an instruction with these parameters: `C[i] += int32(A[k]) * int32(B[i, k])`."""
    loops = f"for i, k in T.grid({rows}, {depth}):" if rows > 1 else f"for k in T.serial({depth}):"
    axes = 'vi, vk = T.axis.remap("SR", [i, k])' if rows > 1 else "vk = T.axis.reduce(4, k)"
    to, of = ("vi", "vi, vk") if rows > 1 else ("0", "vk")
    return parse(f"""
@T.prim_func
def description({taken}) -> None:
    with T.block("root"):
        T.reads(A[0:{depth}], B[{f"0:{rows}, " if rows > 1 else ""}0:{depth}], C[0:{rows}])
        T.writes(C[0:{rows}])
        {loops}
            with T.block("update"):
                {axes}
                C[{to}] = C[{to}] + T.cast(A[vk], "int32") * T.cast(B[{of}], "int32")
""")


def implementation(taken: str, rows: int, depth: int, *statements: str) -> PrimFunc:
    """Return a block of these statements, lines of TVMScript, with the parameters of an instruction."""
    lines = "\n        ".join(statements)
    return parse(f"""
@T.prim_func
def implementation({taken}) -> None:
    with T.block("root"):
        T.reads(A[0:{depth}], B[{f"0:{rows}, " if rows > 1 else ""}0:{depth}], C[0:{rows}])
        T.writes(C[0:{rows}])
        {lines}
""")


def rows_of(depth: int, count: int) -> str:
    """Return the first `count` elements of B, whose rows have `depth` elements, as a vector."""
    return f"B[T.ramp(0, 1, {count}) // {depth}, T.ramp(0, 1, {count}) % {depth}]"


def register(
    name: str, rows: int, depth: int, dtypes: tuple[str, str], *statements: str,
    scopes: tuple[str, str] = ("global", "global"),
) -> PrimFunc:
    """Register an instruction as `name`, and return its description. `dtypes` are those of A and B."""
    taken = parameters(rows, depth, *dtypes, scopes)
    described = description(taken, rows, depth)
    TensorIntrin.register(name, described, implementation(taken, rows, depth, *statements), override=True)
    return described


dp4a_desc: Final = register(
    DP4A_INTRIN, 1, 4, ("int8", "int8"),
    'C[0] = C[0] + T.call_pure_extern("int32", "__dp4a", A.vload([0], "int8x4"), B.vload([0], "int8x4"), 0)',
    scopes=("shared", "local"))
