"""Structural equality and hashing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import relay, tir
from tilewright.base.errors import CompileError
from tilewright.base.interning import release
from tilewright.base.types import FuncType, RefType, TensorType, TupleType, TypeVar
from tilewright.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from tilewright.ir.structural import first_difference
from tilewright.relay.adt import Clause, Match, PatternVar
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from tilewright.relay.op.elementwise import Relu
from tilewright.scalar import expr as scalar
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Store


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
    with pytest.raises(CompileError, match="constants must be 'content' or 'type', not 'bytes'"):
        structural_hash(one, constants="bytes")


def test_nan_and_the_sign_of_zero() -> None:
    nan = Constant(np.array([np.nan], np.float32))
    assert structural_equal(nan, Constant(np.array([np.nan], np.float32)))
    assert structural_equal(scalar.const(0.0, "float32"), scalar.const(0.0, "float32"))
    assert structural_equal(scalar.const(0.0, "float32"), scalar.const(-0.0, "float32"))
    assert not structural_equal(scalar.const(0.0, "float32"), scalar.const(-0.0, "float32"), exact=True)


LOOPS = """
def {name}(A: T.Buffer((8,), "float32")):
    for {i} in range(8):
        A[{i}] = 1.0
    for {j} in range(8):
        for {k} in range(8):
            with T.block("{block}"):
                v = T.axis.spatial(8, {j})
                w = T.axis.reduce(8, {k})
                with T.init():
                    A[v] = 0.0
                A[v] = A[v] + A[w]
"""


def test_names_of_loops_blocks_and_functions_do_not_count() -> None:
    """One variable of two loops is as good as two variables."""
    one = tir.parse(LOOPS.format(name="f", block="a", i="i", j="i", k="k"))
    two = tir.parse(LOOPS.format(name="g", block="b", i="i", j="k", k="i"))
    crossed = tir.parse(LOOPS.format(name="g", block="b", i="i", j="k", k="i").replace("A[v] + A[w]", "A[w] + A[v]"))
    for a, b in ((one, two), (two, one)):
        assert structural_equal(a, b)
        assert not structural_equal(a, crossed)
    assert structural_hash(one) == structural_hash(two) != structural_hash(crossed)
    assert structural_equal(one, tir.Schedule(one).mod["main"])  # whose blocks name their reducers


def test_multiply_adds_and_names_as_attributes() -> None:
    """`fma(a, b, c)` is `c + a * b`; the name of a function may be an attribute. Where programs are exchanged,
    multiply-adds count, since their rounding may differ."""
    text = LOOPS.format(name="f", block="a", i="i", j="j", k="k")
    plain = tir.parse(text.replace("A[v] + A[w]", "A[v] + A[w] * A[w]"))
    fused = tir.parse(text.replace("A[v] + A[w]", "T.fma(A[w], A[w], A[v])"))
    noted = fused.with_attr("tir.noalias", True)
    assert structural_equal(plain, fused) and structural_equal(plain, noted)
    assert structural_hash(plain) == structural_hash(fused) == structural_hash(noted)
    assert not structural_equal(plain, fused, exact=True)
    assert not structural_equal(plain, tir.parse(text.replace("A[v] + A[w]", "T.fma(A[w], A[v], A[w])")))


def test_numbers_that_are_close() -> None:
    """Less than 1e-9 apart, in attributes and in expressions; never where programs are exchanged."""
    a, b, c = (relay.nn.leaky_relu(relay.var("x", shape=(2,)), v) for v in (1e-5, float(np.float32(1e-5)), 1.1e-5))
    assert structural_equal(a, b, map_free_vars=True)
    assert not structural_equal(a, c, map_free_vars=True)
    assert not structural_equal(a, b, map_free_vars=True, exact=True)
    assert structural_equal(scalar.const(2.5, "float64"), scalar.const(2.5 + 1e-12, "float64"))
    assert not structural_equal(scalar.const(2.5, "float64"), scalar.const(2.5 + 1e-8, "float64"))


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
    release()
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
    with pytest.raises(
        CompileError, match=r"the programs differ at params\[0\]\.type_annotation\.shape\[1\]:\n  left:  4\n  right: 5"
    ):
        assert_structural_equal(chain(1), chain(1, shape=(4, 5)))
    assert_structural_equal(chain(1), chain(1))


def test_origins_do_not_count() -> None:
    from tilewright.base.errors import Origin

    x = var("x", shape=(2,))
    assert structural_equal(
        Function((x,), Call(Relu(), (x,), span=Origin("a"))), Function((x,), Call(Relu(), (x,), span=Origin("b")))
    )


def test_deep_graphs() -> None:
    assert structural_equal(chain(10_000), chain(10_000))
    assert structural_hash(chain(10_000)) == structural_hash(chain(10_000))


@pytest.mark.slow
def test_the_hash_is_the_same_in_every_process() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\nimport test_ir_structural as t\nprint(t.structural_hash(t.chain(3)), "
        "t.structural_hash(t.copy_kernel('f', 8)))"
    )
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


def difference_of(left: object, right: object) -> list[str]:
    with pytest.raises(CompileError) as caught:
        assert_structural_equal(left, right)
    return str(caught.value).split("\n")


def test_a_difference_shows_the_lines_of_both_programs() -> None:
    x, w = var("x", shape=(1, 3, 8, 8)), var("w", shape=(4, 3, 3, 3))

    def conv(stride: int) -> IRModule:
        return IRModule.from_expr(Function((x, w), Relu()(relay.nn.conv2d(x, w, strides=(stride, stride)))))

    lines = difference_of(conv(1), conv(2))
    assert lines[:3] == ["the programs differ at main.body.args[0].attrs.strides[0]:", "  left:  1", "  right: 2"]
    assert lines[3].startswith("  in the left program: %0 = nn.conv2d(%x, %w, ") and "strides=[2, 2]" in lines[4]


def test_a_difference_of_loops_shows_the_statement() -> None:
    lines = difference_of(
        copy_kernel("f", 8), IRModule({"f": copy_kernel("f", 8)})["f"].with_body(copy_kernel("f", 9).body)
    )
    assert lines[0].startswith("the programs differ at ")
    assert any(line.startswith("  in the left program: ") for line in lines)


def test_functions_that_one_module_lacks_are_named() -> None:
    left, right = IRModule({"main": chain(1), "more": chain(2)}), IRModule({"main": chain(1)})
    lines = difference_of(left, right)
    assert lines[0] == "the programs differ at more:" and lines[1].startswith(
        "  left:  fn (%x"
    ) and lines[-1] == "  right: no definition of that name"
    assert difference_of(
        IRModule({"main": chain(1)}, attrs={"a": 1}), right.with_attr("a", 2)
    )[0].startswith("the programs differ at the attributes['a']")


@pytest.mark.slow
def test_a_difference_deep_in_a_graph() -> None:
    lines = difference_of(chain(10_000), chain(10_001))
    assert (
        lines[0] == f"the programs differ at body{'.args[0]' * 7}.args … 19969 steps … {'.args[0]' * 8}:"
        and lines[-1].startswith("  in the right program: %")
    )


def test_type_variables_and_sizes_are_compared_by_what_binds_them() -> None:
    def identity(swap: bool) -> Function:
        a, b = TypeVar("A"), TypeVar("B")
        x, y = Var("x", a), Var("y", b)
        return Function((x, y), Tuple((x, y)), TupleType([b, a]) if swap else TupleType([a, b]), (a, b))

    def sized(first: bool) -> Function:
        n, m = scalar.Var("n"), scalar.Var("m")
        x = var("x", shape=(n, m))
        return Function((x, var("y", shape=(n if first else m, relay.Any()))), Relu()(x))

    assert structural_equal(
        identity(False), identity(False)
    ) and structural_hash(identity(False)) == structural_hash(identity(False))
    assert structural_equal(sized(True), sized(True)) and not structural_equal(sized(True), sized(False))
    a, b = TypeVar("A"), TypeVar("B")
    assert structural_equal(FuncType([a], a, [a]), FuncType([b], b, [b])) and not structural_equal(
        FuncType([a], a, [a]), FuncType([b], RefType(b), [b])
    )


def test_references_and_matches() -> None:
    def program(last: float, complete: bool = True) -> Function:
        x = var("x", shape=())
        ref, v = Var("r"), Var("v", x.checked_type)
        body = Match(x, [Clause(PatternVar(v), relay.add(v, const(last)))], complete)
        return Function((x,), Let(ref, RefCreate(x), Let(Var("_"), RefWrite(ref, x), body)))

    assert structural_equal(program(1.0), program(1.0)) and not structural_equal(program(1.0), program(2.0))
    assert not structural_equal(program(1.0), program(1.0, False))
    assert structural_hash(program(1.0)) == structural_hash(program(1.0)) != structural_hash(program(1.0, False))


def test_operators_without_attributes_are_compared_by_name() -> None:
    assert structural_equal(relay.op.get("add"), relay.op.get("add"))
    assert not structural_equal(relay.op.get("add"), relay.op.get("take"))


def test_an_index_of_either_width_is_one_number() -> None:
    wide, narrow = tir.const(3, "int64"), tir.const(3, "int32")
    assert structural_equal(wide, narrow) and not structural_equal(wide, narrow, exact=True)
    assert not structural_equal(wide, tir.const(3, "int8")) and not structural_equal([wide], [narrow])
