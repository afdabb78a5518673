"""The types of scalar expressions, the range of constants, and folding: an expression of constants has the value that
the machine computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from tilewright import te, tir
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, FloatImm, IntImm, Load, PrimExpr, Var
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Stmt, Store, seq

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = (*INTEGERS, "bool", "float16", "float32", "float64", "bfloat16")
MEET = {
    ("bool", "int32"): "int32", ("int32", "float32"): "float32", ("int32", "int64"): "int64",
    ("uint32", "int8"): "uint32", ("uint32", "int32"): "uint32",
    ("uint8", "int8"): "uint8", ("uint8", "int32"): "int32", ("uint64", "int64"): "uint64",
    ("int64", "uint32"): "int64", ("int64", "float16"): "float16",
    ("float32", "float64"): "float64", ("float16", "float32"): "float32", ("bfloat16", "float32"): "float32",
    ("bool", "float32"): "float32", ("uint8", "bool"): "uint8",
}


@pytest.mark.parametrize("pair", MEET, ids="-".join)
def test_the_type_in_which_two_meet(pair: tuple[str, str]) -> None:
    """Floats before integers, then the wider, then unsigned before signed."""
    a, b = (Var("x", t) for t in pair)
    for e in (a + b, b + a, a * b, E.minimum(a, b), E.if_then_else(Var("c", "bool"), a, b)):
        assert e.dtype == MEET[pair]
    assert (a < b).dtype == "bool" and {x.dtype for x in (a < b).operands()} == {MEET[pair]}


def test_numbers_of_python() -> None:
    """They take the type of what they meet; a fraction makes float32 of an integer."""
    for t in INTEGERS:
        assert (Var("x", t) + 1).dtype == (1 + Var("x", t)).dtype == t
        assert (Var("x", t) * 0.5).dtype == "float32"
    assert (Var("x", "float16") + 1).dtype == (Var("x", "float16") * 0.5).dtype == "float16"
    assert (Var("x", "bool") + 1).dtype == "int64"


CONSTANTS: list[tuple[Any, str]] = [
    (1, "int32"), (256, "int32"), (-(2**31), "int32"), (2**31, "int64"), (True, "bool"), (1.5, "float32"),
    (1e300, "float64"), (np.int8(3), "int8"), (np.uint64(2**64 - 1), "uint64"), (np.float16(1.5), "float16"),
    (float("inf"), "float32"),
]


@pytest.mark.parametrize("value, dtype", CONSTANTS, ids=str)
def test_the_type_of_a_constant(value: Any, dtype: str) -> None:
    for made in (te.const(value), tir.const(value, None)):
        assert made.dtype == dtype and E.number_of(made) == value


LIMITS = {t: E.integer_range(DataType(t)) for t in (*INTEGERS, "int4", "uint4")}


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_range_of_a_constant(dtype: str) -> None:
    low, high = LIMITS[dtype]
    for value in (low, 0, high):
        assert int(tir.const(value, dtype)) == int(IntImm(dtype, value)) == value  # type: ignore[call-overload]
    for value in (low - 1, high + 1):
        for make in (tir.const, lambda v, t: IntImm(t, v), lambda v, t: tir.const(v, f"{t}x4")):
            with pytest.raises(CompileError, match=f"{value} is not a value of {dtype}, which holds {low} to {high}"):
                make(value, dtype)
    one = tir.const(1, dtype)
    assert E.number_of(tir.const(high, dtype) + one) == low
    assert E.number_of(tir.const(low, dtype) - one) == high


WRONG: list[tuple[Any, str, str]] = [
    (65520.0, "float16", "65520.0 is not a value of float16: it is too large"),
    (1e39, "float32", "1e.39 is not a value of float32"),
    (float("inf"), "int32", "inf is not a value of the integer type int32"),
    (float("nan"), "uint8", "nan is not a value of the integer type uint8"),
    ("3", "int32", "'3' .str. is not a constant of type int32"), (3, "handle", "3 .int. is not a constant of type"),
]


@pytest.mark.parametrize("value, dtype, message", WRONG, ids=str)
def test_no_constant(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        te.const(value, dtype)


def test_a_text_with_a_number_out_of_range() -> None:
    for number in ("T.int8(300)", "A[0] + 300"):
        with pytest.raises(CompileError, match=r"the text:2: 300 is not a value of int8, which holds -128 to 127"):
            tir.parse(f'def f(A: T.Buffer((4,), "int8")):\n    A[0] = {number}')


# Folding and run time.
Op = Callable[[PrimExpr, PrimExpr], PrimExpr]
ANY: dict[str, Op] = {
    "+": E.add, "-": E.sub, "*": E.mul, "min": E.minimum, "max": E.maximum, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, "==": lambda a, b: E.compare(E.EQ, a, b),
}
WHOLE: dict[str, Op] = {"//": E.floordiv, "%": E.floormod, "truncdiv": E.truncdiv, "truncmod": E.truncmod}
FLOATS: dict[str, Op] = {"/": E.div}


def values_of(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [False, True]
    if dtype in LIMITS:
        low, high = LIMITS[dtype]
        return sorted({low, low + 1, 0, 1, 3, 100, high // 2 + 1, high - 1, high, *([-1, -7] if low else [])})
    kind = DataType(dtype).numpy()
    return [float(np.asarray(v).astype(kind)) for v in (0.0, 1.0, -1.5, 0.1, 3.0, 1000.25, -7.0)]


def ops_of(a: str, b: str) -> dict[str, Op]:
    meet = (Var("x", a) + Var("y", b)).dtype
    return ANY | (FLOATS if meet.is_float else WHOLE) if meet != "bool" else {k: ANY[k] for k in ("==",)}


def cases_of(a: str, b: str) -> list[tuple[str, Op, list[tuple[Any, Any]]]]:
    """The operations with the pairs of values that have a result: no division by zero, and none whose quotient has no
    place.

    Half floats are computed in float32 and rounded at the end, so that operands of other types are those that they have
    too.
    """
    made = []
    for name, op in ops_of(a, b).items():
        meet = (Var("x", a) + Var("y", b)).dtype
        pairs = [(x, y) for x in values_of(a) for y in values_of(b)]
        if meet in ("float16", "bfloat16"):
            pairs = [
                (x, y) for x,
                y in pairs if all(E.number_of(E.cast(meet, E.const(v, t))) == v for v, t in ((x, a), (y, b)))
            ]
        if name in (*WHOLE, *FLOATS):
            low = LIMITS.get(str(meet), (None,))[0]
            pairs = [(x, y) for x, y in pairs if E.number_of(E.cast(meet, E.const(y, b))) != 0]
            pairs = [
                (x, y) for x,
                y in pairs if not (
                    low and E.number_of(E.cast(meet, E.const(x, a))) == low
                    and E.number_of(E.cast(meet, E.const(y, b))) == -1
                )
            ]
        made.append((name, op, pairs))
    return made


def program(
    name: str, a: str, b: str, cases: Sequence[tuple[str, Op, list[tuple[Any, Any]]]]
) -> tuple[PrimFunc, list[Any], list[Any]]:
    """A function that computes all cases, the arrays for it, and what folding makes of each case."""
    params, body, arrays, folded = list[Buffer](), list[Stmt](), list[Any](), list[Any]()
    for k, (_, op, pairs) in enumerate(cases):
        i = Var("i")
        x, y = Buffer(f"x{k}", (len(pairs),), a), Buffer(f"y{k}", (len(pairs),), b)
        value = op(Load(x, (i,)), Load(y, (i,)))
        z = Buffer(f"z{k}", (len(pairs),), value.dtype)
        body.append(For(i, E.const(0, "int64"), E.const(len(pairs), "int64"), SERIAL, Store(z, value, (i,))))
        params += [x, y, z]
        constants = [op(E.const(v, a), E.const(w, b)) for v, w in pairs]
        assert all(isinstance(c, (IntImm, FloatImm)) and c.dtype is value.dtype for c in constants), (name, constants)
        columns = [
            np.array([p[0] for p in pairs], DataType(a).numpy()), np.array([p[1] for p in pairs], DataType(b).numpy())
        ]
        arrays += [*columns, np.zeros(len(pairs), value.dtype.numpy())]
        folded.append(np.array([E.number_of(c) for c in constants], value.dtype.numpy()))
    return PrimFunc(name, tuple(params), seq(*body)), arrays, folded


def chosen() -> list[tuple[str, str]]:
    """All pairs of types with `TILEWRIGHT_TEST_ALL`, else some, others each day."""
    print(f"seed {daily.SEED}")
    return daily.sample([(a, b) for a in TYPES for b in TYPES], 16)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_folding_is_what_the_machine_computes(target: str) -> None:
    pairs = [(a, b) for a, b in chosen() if target == "llvm" or "bfloat16" not in (a, b)]
    made = {f"f{k}": (a, b, cases := cases_of(a, b), *program(f"f{k}", a, b, cases)) for k, (a, b) in enumerate(pairs)}
    module = tvm.build(tvm.IRModule({name: m[3] for name, m in made.items()}), target=target)
    for name, (a, b, cases, _, arrays, folded) in made.items():
        module[name](*arrays)
        for k, (op, _, values) in enumerate(cases):
            np.testing.assert_array_equal(folded[k], arrays[3 * k + 2], err_msg=f"{a} {op} {b}: {values}")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_casts_of_constants(target: str) -> None:
    """Of values that the other type has, rounded or cut, and of integers that wrap around."""
    params, body, arrays, folded = list[Buffer](), list[Stmt](), list[Any](), list[Any]()
    for a in TYPES:
        for b in TYPES:
            values = [
                v for v in values_of(a) if a in (*INTEGERS, "bool") or b not in INTEGERS
                or LIMITS[b][0] <= v <= LIMITS[b][1]
            ]
            if a == b or (target == "c" and "bfloat16" in (a, b)):
                continue
            k, i = len(folded), Var("i")
            x, z = Buffer(f"x{k}", (len(values),), a), Buffer(f"z{k}", (len(values),), b)
            body.append(
                For(
                    i, E.const(0, "int64"), E.const(len(values), "int64"), SERIAL,
                    Store(z, E.cast(b, Load(x, (i,))), (i,))
                )
            )
            params += [x, z]
            arrays += [np.array(values, DataType(a).numpy()), np.zeros(len(values), DataType(b).numpy())]
            folded.append(
                (
                    f"{a} -> {b}: {values}",
                    np.array([E.number_of(E.cast(b, E.const(v, a))) for v in values], DataType(b).numpy())
                )
            )
    tvm.build(PrimFunc("casts", tuple(params), seq(*body)), target=target)(*arrays)
    for k, (what, want) in enumerate(folded):
        np.testing.assert_array_equal(want, arrays[2 * k + 1], err_msg=what)
