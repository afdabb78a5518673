"""Structural equality and hashing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import expr as scalar
from tilewright.errors import CompileError
from tilewright.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from tilewright.ir.structural import first_difference
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from tilewright.relay.op.elementwise import Relu
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Store
from tilewright.types import TensorType


def chain(length: int, name: str = "x", shape: tuple[int, ...] = (4, 4)) -> Function:
    x = var(name, shape=shape)
    e: Expr = x
    for _ in range(length):
        e = Relu()(e)
    return Function((x,), e)


def copy_kernel(name: str, extent: int, index: str = "i") -> PrimFunc:
    a, b = scalar.Buffer("A", (extent,)), scalar.Buffer("B", (extent,))
    i = scalar.Var(index)
    body = For(i, scalar.as_expr(0), scalar.as_expr(extent), SERIAL, Store(b, a[i] + 1.0, (i,)))
    return PrimFunc(name, (a, b), body)


def test_names_do_not_count() -> None:
    assert structural_equal(chain(3, "x"), chain(3, "y"))
    assert structural_hash(chain(3, "x")) == structural_hash(chain(3, "y"))


def test_types_count() -> None:
    assert not structural_equal(chain(3), chain(3, shape=(4, 5)))
    assert structural_hash(chain(3)) != structural_hash(chain(3, shape=(4, 5)))


def test_operators_and_their_number_count() -> None:
    assert not structural_equal(chain(3), chain(4))
    assert structural_hash(chain(3)) != structural_hash(chain(4))


def test_which_parameter_is_used_counts() -> None:
    def pick(k: int) -> Function:
        params = (var("a", shape=(2,)), var("b", shape=(2,)))
        return Function(params, Relu()(params[k]))

    assert structural_equal(pick(0), pick(0))
    assert not structural_equal(pick(0), pick(1))
    assert structural_hash(pick(0)) != structural_hash(pick(1))


def test_sharing_a_call_counts() -> None:
    x = var("x", shape=(2,))
    once = Relu()(x)
    shared, apart = Function((x,), Tuple((once, once))), Function((x,), Tuple((Relu()(x), Relu()(x))))
    assert not structural_equal(shared, apart)
    assert not structural_equal(apart, shared)
    assert structural_hash(shared) != structural_hash(apart)


def test_free_variables_are_equal_to_themselves_or_by_position() -> None:
    x, y = var("x", shape=(2,)), var("y", shape=(2,))
    assert structural_equal(Relu()(x), Relu()(x))
    assert not structural_equal(Relu()(x), Relu()(y))
    assert structural_equal(Relu()(x), Relu()(y), map_free_vars=True)
    assert structural_hash(Relu()(x)) == structural_hash(Relu()(y))
    assert structural_hash(Relu()(x), map_free_vars=False) != structural_hash(Relu()(y), map_free_vars=False)


def test_constants_count_by_content_or_by_type() -> None:
    one, two = Relu()(const([1.0, 2.0])), Relu()(const([1.0, 3.0]))
    assert structural_equal(one, Relu()(const([1.0, 2.0])))
    assert not structural_equal(one, two)
    assert structural_hash(one) != structural_hash(two)
    assert structural_hash(one, constants="type") == structural_hash(two, constants="type")
    assert structural_hash(one, constants="type") != structural_hash(Relu()(const([1.0])), constants="type")
    with pytest.raises(CompileError, match="constants is 'content' or 'type', and was given 'bytes'"):
        structural_hash(one, constants="bytes")


def test_nan_and_the_sign_of_zero() -> None:
    nan = Constant(np.array([np.nan], np.float32))
    assert structural_equal(nan, Constant(np.array([np.nan], np.float32)))
    assert structural_equal(scalar.const(0.0, "float32"), scalar.const(0.0, "float32"))
    assert not structural_equal(scalar.const(0.0, "float32"), scalar.const(-0.0, "float32"))


def test_control_flow_and_lets() -> None:
    def program(name: str, flip: bool) -> Function:
        x, c, v = var("x", shape=(2,)), var("c", TensorType((), "bool")), var(name, shape=(2,))
        branches = (v, x) if flip else (x, v)
        return Function((x, c), Let(v, Relu()(x), If(c, *branches)))

    assert structural_equal(program("v", True), program("w", True))
    assert not structural_equal(program("v", True), program("v", False))
    assert structural_hash(program("v", True)) != structural_hash(program("v", False))


def test_fields_of_tuples_count() -> None:
    x = var("x", shape=(2,))
    pair = Tuple((x, Relu()(x)))
    assert not structural_equal(Function((x,), TupleGetItem(pair, 0)), Function((x,), TupleGetItem(pair, 1)))


def test_loops() -> None:
    assert structural_equal(copy_kernel("f", 8), copy_kernel("f", 8, "j"))
    assert structural_hash(copy_kernel("f", 8)) == structural_hash(copy_kernel("f", 8, "j"))
    assert not structural_equal(copy_kernel("f", 8), copy_kernel("f", 9))
    assert structural_hash(copy_kernel("f", 8)) != structural_hash(copy_kernel("f", 9))


def test_scalars_are_values_also_after_the_table_was_emptied() -> None:
    before = copy_kernel("f", 8)
    digest = structural_hash(before)
    scalar.release()
    after = copy_kernel("f", 8)
    assert structural_equal(before, after)
    assert structural_hash(after) == digest


def test_modules() -> None:
    left, right = IRModule.from_expr(chain(2)), IRModule.from_expr(chain(2, "y"))
    assert structural_equal(left, right)
    right["other"] = chain(1)
    assert not structural_equal(left, right)


def test_the_first_difference_is_shown_with_its_path() -> None:
    x = var("x", shape=(2,))
    left, right = Function((x,), Relu()(Relu()(x))), Function((x,), Relu()(x))
    found = first_difference(left, right)
    assert found is not None and found[0] == "body.args[0]"
    with pytest.raises(CompileError, match=r"the programs differ at params\[0\]\.type_annotation\.shape\[1\]:\n  left:  4\n  right: 5"):
        assert_structural_equal(chain(1), chain(1, shape=(4, 5)))
    assert_structural_equal(chain(1), chain(1))


def test_origins_do_not_count() -> None:
    from tilewright.errors import Origin

    x = var("x", shape=(2,))
    assert structural_equal(Function((x,), Call(Relu(), (x,), span=Origin("a"))), Function((x,), Call(Relu(), (x,), span=Origin("b"))))


def test_deep_graphs() -> None:
    assert structural_equal(chain(10_000), chain(10_000))
    assert structural_hash(chain(10_000)) == structural_hash(chain(10_000))


def test_the_hash_is_the_same_in_every_process() -> None:
    script = "import sys; sys.path[:0] = sys.argv[1:]\nimport test_ir_structural as t\nprint(t.structural_hash(t.chain(3)), t.structural_hash(t.copy_kernel('f', 8)))"
    here = Path(__file__).parent
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, str(here), str(here.parent / "src")],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{structural_hash(chain(3))} {structural_hash(copy_kernel('f', 8))}\n"}


def test_unequal_kinds_of_node() -> None:
    assert not structural_equal(Var("x"), const(1.0))
    assert not structural_equal(chain(1), copy_kernel("f", 8))
