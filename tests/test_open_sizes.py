"""Programs for sizes that are known when they are called: one compiled program, any batch, length, height and width."""

from __future__ import annotations

import itertools
import math
import operator
import random
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
import tilewright
from op_examples import EXAMPLES, Example
from small_models import onnxruntime_answers
from tilewright import relay, te
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.text import LESS
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InputError, OpenSizeWarning, OptionError
from tilewright.base.memory_placement import place_pieces
from tilewright.base.types import OpenSize, TensorType
from tilewright.compiler import kernel
from tilewright.compiler.cache import Cache
from tilewright.compiler.open_program import OpenSizeError, _same_versions, build_open
from tilewright.compiler.report import BuildReport
from tilewright.relay.expr import Expr, Function
from tilewright.relay.expr import Var as RelayVar
from tilewright.relay.transform.plan_memory import Piece
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.runtime import open_program
from tilewright.runtime.artifact import load_executable
from tilewright.runtime.executable import Executable
from tilewright.runtime.open_program import FEWEST_PLANS, OpenExecutable, Shapes
from tilewright.scalar.arith import Ranges, prove
from tilewright.scalar.arith.open_sizes import (
    greater,
    greatest,
    least_within,
    limit,
    may_be_zero,
    open_size,
    sample,
    samples,
    smaller,
    typical,
)
from tilewright.scalar.arith.size_equations import equation
from tilewright.scalar.expr import Buffer, IntImm, PrimExpr, Var, as_expr, const, floordiv, floormod, minimum
from tilewright.tir.stmt import UNROLLED, Block, For, redirect, walk_stmt
from tilewright.topi.shapes import slices

pytestmark = pytest.mark.slow

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Any], weights: dict[str, Any], kinds: dict[str, int] | None = None
) -> onnx.ModelProto:
    taken = [helper.make_tensor_value_info(n, (kinds or {}).get(n, FLOAT), s) for n, s in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", taken, [helper.make_tensor_value_info("y", FLOAT, None)], stored)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def real(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def plans_of(program: tilewright.Model) -> dict[Shapes, Executable]:
    """The plans that a program for open sizes keeps, by the shapes of its inputs."""
    assert isinstance(program.executable, OpenExecutable)
    return program.executable._plans


def perceptron() -> onnx.ModelProto:
    weights = {"w0": real(20, 70) / 4, "b0": real(70), "w1": real(70, 33) / 8, "b1": real(33)}
    nodes = [
        node("Gemm", ["x", "w0", "b0"], "h"), node("Relu", ["h"], "r"), node("Gemm", ["r", "w1", "b1"], "s"),
        node("Softmax", ["s"], "y", axis=-1)
    ]
    return model(nodes, {"x": ["batch", 20]}, weights)


def encoder() -> onnx.ModelProto:
    """One layer of a transformer with its embedding: two heads of 16, positions from a table of 40."""
    names = {
        "q": real(32, 32) / 6, "k": real(32, 32) / 6, "v": real(32, 32) / 6, "up": real(32, 96) / 6,
        "down": real(96, 32) / 10
    }
    weights: dict[str, Any] = {
        **names, "table": real(50, 32), "places": real(1, 40, 32), "one": np.array([1]), "zero": np.array([0]),
        "axis": np.array([1])
    }
    weights |= {
        "heads": np.array([0, 0, 2, 16]), "flat": np.array([0, 0, 32]), "scale": np.float32(0.25), "gamma": real(32),
        "beta": real(32)
    }
    nodes = [
        node("Shape", ["ids"], "shape"), node("Gather", ["shape", "one"], "length"),
        node("Slice", ["places", "zero", "length", "axis"], "positions"),
        node("Gather", ["table", "ids"], "words"), node("Add", ["words", "positions"], "x"),
    ]
    for n in "qkv":
        nodes += [node("MatMul", ["x", n], f"{n}0"), node("Reshape", [f"{n}0", "heads"], f"{n}1"),
                  node("Transpose", [f"{n}1"], f"{n}2", perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])]
    nodes += [
        node("MatMul", ["q2", "k2"], "scores0"), node("Mul", ["scores0", "scale"], "scores"),
        node("Softmax", ["scores"], "powers", axis=-1),
        node("MatMul", ["powers", "v2"], "context0"), node("Transpose", ["context0"], "context1", perm=[0, 2, 1, 3]),
        node("Reshape", ["context1", "flat"], "context"),
        node("Add", ["context", "x"], "z0"), node("LayerNormalization", ["z0", "gamma", "beta"], "z", axis=-1),
        node("MatMul", ["z", "up"], "u"), node("Relu", ["u"], "r"), node("MatMul", ["r", "down"], "d"),
        node("Add", ["d", "z"], "y"),
    ]
    return model(nodes, {"ids": ["batch", "length"]}, weights, {"ids": INT64})


def convolutions() -> onnx.ModelProto:
    weights = {"w0": real(8, 3, 3, 3) / 5, "w1": real(16, 8, 1, 1) / 3, "w2": real(5, 16) / 4, "b2": real(5)}
    nodes = [
        node("Conv", ["x", "w0"], "c0", pads=[1, 1, 1, 1]), node("Relu", ["c0"], "r0"),
        node("MaxPool", ["r0"], "p0", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1"], "c1"), node("GlobalAveragePool", ["c1"], "g"), node("Flatten", ["g"], "f"),
        node("Gemm", ["f", "w2", "b2"], "y", transB=1),
    ]
    return model(nodes, {"x": ["batch", 3, 12, 12]}, weights)


def check(program: Any, of: onnx.ModelProto, inputs: Sequence[dict[str, Any]]) -> None:
    for given in inputs:
        (wanted,) = onnxruntime_answers(of, given)
        np.testing.assert_allclose(program(**given), wanted, rtol=2e-4, atol=2e-5)


# Sizes that know what they stand for.


def test_sizes_are_reckoned_with_as_numbers_and_stay_what_they_say() -> None:
    n, m = Var("n"), Var("m")
    a, b = sample(n, 61), sample(m, 127)
    said = {
        "(n * 6)": a * 384 // 64, "((n + 7) // 8)": -(-a // 8), "12": a * 12 // a, "0": (a * 12) % a,
        "5": (8 * b + 5) % 8, "((m * n) * 3)": 3 * a * b,
        "(n + 1)": 2 + a - 1, "((m * n) + n)": a * (b + 1), "2": (2 * a + 2) // (a + 1), "((n * -1) + 10)": 10 - a,
        "((m // 4) + n)": (4 * a + b) // 4, "(n * 4)": (a * b * 32 + a * a * 32) // (8 * b + 8 * a),
        "(m - n)": (b * b - a * a) // (a + b), "3": 3 % (a + 3), "1": (a + 3) // (a + 3),
        "(((m * n) + 1) // (m + n))": (a * b + 1) // (a + b),
    }
    assert {text: str(size) for text, size in said.items()} == {text: text for text in said}
    assert not isinstance(a * 12 // a, OpenSize)


def test_a_size_is_what_its_expression_comes_to() -> None:
    rng, variables = random.Random(1), {Var("n"): 61, Var("m"): 127}
    with samples(variables):
        for _ in range(300):
            size: Any = rng.choice([sample(v, k) for v, k in variables.items()])
            for _ in range(4):
                other = rng.choice([rng.randint(1, 9), sample(*rng.choice(list(variables.items())))])
                compute = rng.choice([operator.add, operator.mul, operator.floordiv, lambda a, b: -(-a // b), operator.mod])  # noqa: E501
                size = compute(size, other)
                if not isinstance(size, OpenSize):
                    break
            assert open_size(as_expr(size)) == size


def test_what_is_taken_for_granted_of_a_size_limits_it() -> None:
    n = Var("n")
    with samples({n: 61}) as found:
        end: Any = n
        ((_, size, _),) = slices((512,), (0,), (end,), None, None, "end")
        assert size is n
        limit(sample(n, 61) - 2, 3)
        assert found.limits == {n: (5, 512)}
        with pytest.raises(CompileError, match=r"the size .* must be at least 4, but is smaller for all inputs"):
            limit(sample(n, 61) // 2 - sample(n, 61), 4)
        limit(sample(n, 61) // 2, 4)
        assert found.limits == {n: (8, 512)}


def test_limits_of_several_sizes_are_requirements_of_each_call() -> None:
    n, m = Var("n"), Var("m")
    a, b = sample(n, 127), sample(m, 61)
    with samples({n: 127, m: 61}) as found:
        limit(a - b + 2, 0)
        assert [f"{e} >= {least}" for e, least in found.requirements()] == ["((n - m) + 2) >= 0"] and not found.limits
        limit(a - b + 4, 0)  # follows
        limit(a * 3 - b * 3 + 7, 1)  # follows
        assert len(found.requirements()) == 1 and a + 3 > b and a * 2 + 5 > b * 2
        found.equations([(n * m, const(24, "int64"))])
        assert a * b == 24 and a * b * 2 != 24 and a * b * 2 == 48


def test_quotients_have_bounds() -> None:
    n = Var("n")
    a = sample(n, 61)
    with samples({n: 61}) as found:
        limit(-(-a // 4) * 4 - a, 0)
        limit(a - a // 4 * 4, 0)
        assert a // 2 * 2 + 1 >= a and not found.limits and not found.requirements()
    assert str((1 - a) // 2) == "(0 - (n // 2))" or str((1 - a) // 2) == "((n // 2) * -1)"


def test_open_sizes_are_compared_only_where_the_answer_holds_for_all() -> None:
    a, b = sample(Var("n"), 61), sample(Var("m"), 127)
    assert a < a + 1 and a * b >= b and max(a, 3) is a and (a + b) * a >= a + b
    with pytest.raises(CompileError, match="the sizes n and m cannot be compared at compile time: the order depends"):
        assert a < b
    with pytest.raises(
        CompileError, match="the size n is known only at run time, but a number is needed at compile time"
    ):
        float(a)
    assert typical(a * 3) == 192


def test_sizes_that_may_be_zero_are_compared_with_care() -> None:
    a, b = sample(Var("n"), 61), sample(Var("m"), 127)
    assert a * b >= b and not may_be_zero(a * b)
    with samples({}, least={"n": 0}):
        assert a + b >= b and may_be_zero(a * b) and not may_be_zero(a + b)
        with pytest.raises(CompileError, match=r"the sizes .* and m cannot be compared"):
            assert a * b >= b


def test_clamped_sizes() -> None:
    """The minimum of a count and a number: its bounds, in sums of many of them."""
    with samples({}, range(61, 1000, 2), least={f"n{k}": 0 for k in range(30)},
                 most={f"n{k}": 1000 for k in range(30)}, clamps=True):
        symbols = [Var(f"n{k}") for k in range(30)]
        counts: list[Any] = [open_size(v) for v in symbols]
        few: list[Any] = [open_size(minimum(v, 300)) for v in symbols]
        whole, total = sum(counts), sum(few)
        assert str(few[0]) == "min(n0, 300)" and greatest(few[0]) == 300
        assert greatest(total) == 9000 and greatest(whole) == 30000 and may_be_zero(total)
        assert whole >= total and not total > whole and total >= few[3]
        limit(whole - total, 0)
        limit(few[0], 0)
        with pytest.raises(CompileError, match="cannot be compared"):
            assert few[0] >= few[1]
        assert open_size(minimum(400, few[0].expr)) == few[0]
        assert open_size(minimum(minimum(200, few[0].expr), 250)) == open_size(minimum(counts[0].expr, 200))
    with samples({}, [61]) as found:  # without clamps, the end of a dimension limits the size
        n = Var("n")
        size = open_size(n)
        assert size is not None and least_within(size, 300) == size and found.limits == {n: (0, 300)}


def test_minima_and_maxima_are_compared_by_their_operands() -> None:
    a, b = Var("n"), Var("m")
    n, m = sample(a, 61), sample(b, 127)
    with samples({a: 61, b: 127}):
        room, missing = greater(n - m, 0), greater(m - n, 0)
        assert missing - room == m - n and n + missing >= n >= room
        third = -(-n // 3)
        ends = [smaller(third * k, n) for k in range(1, 4)]
        assert all(a <= b for a, b in itertools.pairwise(ends)) and ends[-1] <= n
        with pytest.raises(CompileError, match="cannot be compared"):
            assert smaller(n, m) >= third


def test_sizes_are_equal_if_their_expressions_are() -> None:
    a = sample(Var("n"), 61)
    odd = a // 2 * 2 + 1
    assert int(odd) == int(a) == 61
    assert a not in (odd, 61) and odd - a and a % 2  # sizes other than 61 are even
    assert a + a == 2 * a and (a * 4) // 2 - a == a and not a - a
    with pytest.raises(CompileError, match=r"compares with 0 depends on a remainder"):
        assert odd - a > 0


def test_dimensions_that_must_be_equal_are_determined_by_one_another() -> None:
    n, m, k = Var("n"), Var("m"), Var("k")
    assert str(equation(n, m)) == "{m: n}" and str(equation(n + m, k)) == "{k: (m + n)}"
    assert str(equation(n * 2, m * 2 + 2)) == "{n: (m + 1)}" and str(equation(minimum(n, m + 1), n)) == "{n: (m + 1)}"
    assert str(equation(n * 4, const(12, "int64"))) == "{n: 3}" and str(equation(n * m * k, k * m * 7)) == "{n: 7}"
    halves = floordiv(n, 2) * floordiv(m, 2) * 4
    assert str(equation(halves, n * m)) == "{m: (m_by_2 * 2), n: (n_by_2 * 2)}"
    assert equation(n * m, const(24, "int64")) is None and equation(floordiv(n * m, 4) * 4, n * m) is None
    assert str(equation(floordiv(n + 15, 16), floordiv(n + 31, 32) * 2)) == "{n: (n_by_32 * 32)}"
    assert equation(floordiv(n, 2), floordiv(m, 2)) is None


def test_conditions_are_proven_by_open_ends() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    blocks = floordiv(n + 63, 64)
    ranges = Ranges(facts={n: (8, None)}).bind_loop(i, const(0, "int64"), blocks).bind(j, 0, 63)
    assert prove(i * 64 + j < blocks * 64, ranges) is True
    assert prove(floormod(i, blocks) * 64 + j < blocks * 64, ranges) is True
    assert prove(minimum(i * 8, n - 8) + 7 < n, ranges) is True
    assert prove(minimum(i * 8, n - 8) >= 0, ranges) is True
    assert prove(i * 64 + j < n, ranges) is None
    m = Var("m")
    rows = n * (m * 2) * 2
    ranges = Ranges(facts={m: (1, None), n: (1, None)}).bind_loop(i, const(0, "int64"), n * (m * 4)).bind(j, 0, 2)
    assert prove(minimum(i * 3, n * (m * 4) - 3) + j < rows, ranges) is True
    assert prove(i < m * n * 4, ranges) is True
    assert prove(i < m * n * 3, ranges) is None


# Kernels.


def dense_layer() -> tilewright.IRModule:
    x = relay.Var("x", TensorType([Var("n"), 40]))
    weight = relay.const(np.ones((24, 40), np.float32))
    return tilewright.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight))))


def test_computations_that_do_not_depend_on_the_height_of_tiles_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel._Computed, "again", None)
    program = tilewright.compile(dense_layer(), shapes={"x": ("n", 40)}, threads=1)
    (lowered,) = program.report.kernels.values()
    assert len(lowered.versions) >= 4  # as many as a tile has rows
    np.testing.assert_allclose(program(np.ones((5, 40), np.float32)), np.full((5, 24), 40.0))


def test_kernels_of_symbolic_sizes_unroll_only_steps_of_few_products() -> None:
    program = tilewright.compile(dense_layer(), shapes={"x": ("n", 40)}, target="llvm -mcpu=icelake-server", threads=1)
    (lowered,) = program.report.kernels.values()
    found = []
    for _, version in lowered.versions:
        unrolled = [
            s.extent.value for s in walk_stmt(version.body) if isinstance(s, For) and s.kind == UNROLLED
            and isinstance(s.extent, IntImm) and any(isinstance(b, Block) and b.init is not None for b in walk_stmt(s))]
        found.append(unrolled)
    assert [math.prod(extents) for extents in found] == [8, 16, 12, 16, 20, 12, 14, 16][: len(found)]


def wide_layer(columns: int, rows: Any) -> tilewright.IRModule:
    weight = np.random.default_rng(columns).standard_normal((columns, 96)).astype(np.float32)
    x = relay.var("x", shape=(rows, 96))
    return tilewright.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(weight))))


def test_tiles_of_few_rows_take_neighbouring_panels_together() -> None:
    target = "llvm -mcpu=icelake-server"
    program = tilewright.compile(wide_layer(128, relay.Any()), shapes={"x": ("n", 96)}, target=target)
    sums = [int(n) for n in re.findall(r"dense(?:_\d+)? = T.allocate\(\((\d+),\)", program.dump("tir"))]
    assert sums[:3] == [64, 128, 192]  # one, two and three rows of two panels of 32 columns


@pytest.mark.parametrize("columns", daily.sample([32, 64, 96, 128, 160, 256, 100], 3, "few rows"))
def test_products_of_few_rows_are_those_of_the_program_for_these_rows(columns: int) -> None:
    program = tilewright.compile(wide_layer(columns, relay.Any()), shapes={"x": ("n", 96)}, threads=1)
    for rows in (1, 2, 3, 4, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 96)).astype(np.float32)
        alone = tilewright.compile(wide_layer(columns, rows), threads=1)
        np.testing.assert_allclose(program(x), alone(x), rtol=1e-5, atol=1e-5)


def test_kernels_with_versions_are_compiled_at_the_first_level_of_llvm() -> None:
    target = Target("llvm -mcpu=skylake-avx512")
    program, known = (tilewright.compile(dense_layer(), shapes={"x": (n, 40)}, target=target) for n in ("n", 6))
    (text,), (alone,) = program.report.llvm.values(), known.report.llvm.values()
    assert text.count(LESS) == 1 and LESS not in alone
    assert compile_text(text, target) == compile_text(text, target, level=1)
    assert compile_text(alone, target) == compile_text(alone, target, level=2)


def test_versions_of_kernels_are_equal_if_their_loops_conditions_and_buffers_are() -> None:
    a = te.placeholder((8, 8), name="a")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="b")
    func, again = (te.create_prim_func([a, te.compute((8, 8), lambda i, j: b[i, j] + 1.0)]) for _ in range(2))
    n = Var("n")
    assert _same_versions([(n < 4, func)], [(n < 4, again)])
    assert not _same_versions([(n < 4, func)], [(n < 5, again)])
    assert not _same_versions([(None, func)], [(n < 4, again)])
    assert not _same_versions([(None, func)], [(None, func), (None, func)])
    (inner,) = func.attrs["intermediates"]
    other = Buffer(inner.name, (9, 8), inner.dtype)
    changed = replace(func, attrs={**func.attrs, "intermediates": (other,)}, body=redirect(func.body, inner, other))
    assert not _same_versions([(None, func)], [(None, changed)])


# Memory.


def test_pieces_that_live_at_the_same_time_do_not_overlap() -> None:
    rng = random.Random(3)
    for _ in range(50):
        births = [rng.randrange(20) for _ in range(15)]
        pieces = [Piece(rng.randrange(1, 1000), b, b + rng.randrange(5)) for b in births]
        offsets, total = place_pieces(pieces)
        for k, p in enumerate(pieces):
            assert offsets[k] % 64 == 0 and offsets[k] + p.nbytes <= total
            for n, q in enumerate(pieces[:k]):
                if p.birth <= q.death and q.birth <= p.death:
                    assert offsets[k] + p.nbytes <= offsets[n] or offsets[n] + q.nbytes <= offsets[k]


# Programs.


def test_one_program_for_any_batch_of_a_perceptron() -> None:
    of = perceptron()
    program = tilewright.compile(of, shapes={"x": ("1..64", 20)}, threads=1)
    check(program, of, [{"x": real(n, 20)} for n in (1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64)])
    assert [str(t) for t in (*program.inputs, *program.outputs)] == ["float32 x[batch, 20]", "float32 y[batch, 33]"]
    assert len(plans_of(program)) == 14


def test_one_program_for_any_batch_and_length_of_an_encoder() -> None:
    of = encoder()
    program = tilewright.compile(of, shapes={"ids": ("b", "t=1..")}, threads=2)
    rng = np.random.default_rng(0)
    check(
        program, of,
        [
            {"ids": rng.integers(0, 50, s)}
            for s in ((1, 1), (1, 2), (3, 5), (1, 7), (2, 8), (1, 9), (2, 16), (5, 17), (1, 33), (4, 40))
        ]
    )
    assert [str(s) for s in program.artifact.manifest.symbols] == ["b from 1", "t from 1 to 40"]
    with pytest.raises(
        InputError,
        match="dimension 1 of input 'ids' is 41, but the program was compiled for t from 1 to 40; compile it with a "
        "wider range in shapes="
    ):
        program(np.zeros((1, 41), np.int64))


def test_one_program_for_any_batch_of_images() -> None:
    of = convolutions()
    for config, parts in (({}, 1), ({"relay.SplitBatch.images": 1}, "n")):
        program = tilewright.compile(of, shapes={"x": ("n", 3, 12, 12)}, threads=1, config=config)
        check(program, of, [{"x": real(n, 3, 12, 12)} for n in (1, 2, 5, 8)])
        assert program.artifact.manifest.parts == parts


def test_a_size_may_be_zero_if_its_range_begins_there() -> None:
    program = tilewright.compile(perceptron(), shapes={"x": ("0..64", 20)}, threads=1)
    assert program(real(0, 20)).shape == (0, 33)
    check(program, perceptron(), [{"x": real(n, 20)} for n in (1, 7, 64)])
    with pytest.raises(InputError, match="dimension 0 of input 'x' is 0, but the program was compiled for batch"):
        tilewright.compile(perceptron(), shapes={"x": ("batch", 20)}, threads=1)(real(0, 20))
    lengths = tilewright.compile(encoder(), shapes={"ids": ("b=0..", "t=0..")}, threads=2)
    assert [lengths(np.zeros(s, np.int64)).shape for s in ((0, 3), (2, 0), (0, 0))] == [(0, 3, 32), (2, 0, 32), (0, 0, 32)]  # noqa: E501
    check(lengths, encoder(), [{"ids": np.arange(s[0] * s[1]).reshape(s)} for s in ((1, 1), (2, 7), (1, 40))])
    images = tilewright.compile(convolutions(), shapes={"x": ("n=0..", 3, 12, 12)}, threads=1)
    assert images(real(0, 3, 12, 12)).shape == (0, 5)


def test_a_dimension_may_be_a_sum_of_others() -> None:
    nodes = [node("Concat", ["a", "b"], "ab", axis=0), node("Mul", ["ab", "c"], "y")]
    of = model(nodes, {"a": ["past", 3], "b": ["n", 3], "c": ["past + n", 3]}, {})
    inputs = [{"a": real(p, 3), "b": real(n, 3), "c": real(p + n, 3)} for p, n in ((1, 1), (5, 1), (40, 7), (3, 32))]
    for shapes in (
        {"a": ("past", 3), "b": ("n", 3)}, {"a": ("p", 3), "b": ("n", 3), "c": ("p + n", 3)},
        {"a": ("p", 3), "b": ("n", 3), "c": ("past + n", 3)}, {"a": ("p", 3), "b": ("n", 3), "c": ("k", 3)},
    ):
        program = tilewright.compile(of, shapes=shapes, threads=1)
        check(program, of, inputs)
        with pytest.raises(InputError, match=r"dimension 0 of input 'c' is 3, and must be \(.* \+ .*\) = 2, where"):
            program(real(1, 3), real(1, 3), real(3, 3))
    with pytest.raises(InputError, match=r"a dimension of input 'c' is 'p \+ k', but no dimension is named 'k'"):
        tilewright.compile(of, shapes={"a": ("p", 3), "b": ("n", 3), "c": ("p + k", 3)})


def test_ranges_and_slices_begin_at_sizes() -> None:
    nodes = [
        node("Shape", ["a"], "sa"), node("Gather", ["sa", "zero"], "first"), node("Shape", ["b"], "sb"),
        node("Gather", ["sb", "zero"], "second"), node("Add", ["first", "second"], "last"),
        node("Range", ["first", "last", "step"], "places"), node("Cast", ["places"], "floats", to=FLOAT),
        node("Concat", ["a", "b"], "ab", axis=0), node("Unsqueeze", ["first", "axis"], "begin"),
        node("Unsqueeze", ["last", "axis"], "end"), node("Slice", ["ab", "begin", "end", "axis"], "cut"),
        node("Slice", ["ab", "end", "most", "axis"], "none"), node("Concat", ["cut", "none"], "whole", axis=0),
        node("Mul", ["whole", "floats"], "y"),
    ]
    weights = {"zero": np.int64(0), "step": np.int64(1), "axis": np.array([0]), "most": np.array([2**63 - 1])}
    of = model(nodes, {"a": ["p"], "b": ["n"]}, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        program = tilewright.compile(of, shapes={"a": ("p=0..",), "b": ("n",)}, threads=1)
    check(program, of, [{"a": real(p), "b": real(n)} for p, n in ((0, 1), (1, 1), (9, 4), (3, 40))])


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    of = encoder()
    program = tilewright.compile(of, shapes={"ids": ("b", "t")}, threads=1)
    for name in ("encoder.so", "encoder.tar"):
        loaded = load_executable(program.save(tmp_path / name))
        check(loaded, of, [{"ids": np.random.default_rng(0).integers(0, 50, s)} for s in ((1, 3), (2, 20))])
        with pytest.raises(InputError, match=r"input 'ids' has shape \[2, 2, 2\], expected int64 ids\[b, t\]"):
            loaded(np.zeros((2, 2, 2), np.int64))
        assert loaded.benchmark(np.zeros((2, 5), np.int64), repeat=1, number=1).mean > 0


def test_plans_are_kept_for_the_sizes_that_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_program, "_BYTES_OF_PLANS", 0)
    program = tilewright.compile(perceptron(), shapes={"x": ("n", 20)}, threads=1)
    for n in range(1, FEWEST_PLANS + 3):
        program(real(n, 20))
    assert len(plans_of(program)) == FEWEST_PLANS
    assert program(real(2, 20)).shape == (2, 33)


def test_it_is_found_in_the_cache(tmp_path: Path) -> None:
    of, cache = perceptron(), Cache(tmp_path)
    first = tilewright.compile(of, shapes={"x": ("n=2..9", 20)}, cache=cache)
    second = tilewright.compile(of, shapes={"x": ("n=2..9", 20)}, cache=cache)
    assert first.report.kernels and not second.report.kernels
    np.testing.assert_array_equal(first(real(4, 20)), second(real(4, 20)))
    with pytest.raises(InputError, match="compiled for n from 2 to 9"):
        second(real(1, 20))


def test_sizes_that_are_called_often_get_a_program_of_their_own() -> None:
    of = perceptron()
    program = tilewright.compile(of, shapes={"x": ("n", 20)}, threads=1, specialise_after=3)
    for _ in range(3):
        program(real(7, 20))
    plans = plans_of(program)
    deadline = time.monotonic() + 60
    while plans[((7, 20),)]._table is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert plans[((7, 20),)]._table is None
    check(program, of, [{"x": real(7, 20)}, {"x": real(8, 20)}])


def test_a_model_that_has_no_such_program_is_compiled_for_each_shape_and_says_so() -> None:
    of = model([node("Det", ["x"], "y")], {"x": ["n", "n"]}, {})
    with pytest.warns(OpenSizeWarning, match="'model' is compiled for each combination of its sizes: Det .* size n"):
        program = tilewright.compile(of, shapes={"x": ("n", "n")})
    np.testing.assert_allclose(program(2 * np.eye(3, dtype=np.float32)), 8, rtol=1e-6)
    np.testing.assert_allclose(program(2 * np.eye(2, dtype=np.float32)), 4, rtol=1e-6)


def test_a_model_whose_stages_have_no_symbolic_form_says_so_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.compiler.symbolic_stages.symbolic_stage", lambda *of: None)
    of = model([node("NonZero", ["x"], "places"), node("Cast", ["places"], "y", to=FLOAT)], {"x": ["n", 3]}, {})
    program = tilewright.compile(of, shapes={"x": ("n", 3)})
    with pytest.warns(OpenSizeWarning, match="'model' is compiled for each combination of its sizes: the size of the"):
        assert program(np.eye(4, 3, dtype=np.float32)).shape == (2, 3)
    assert program(np.eye(2, 3, dtype=np.float32)).shape == (2, 2)


@pytest.mark.parametrize(("shape", "message"), [
    (("1..64", 21), "dimension 1 of input 'x' is 20 in the model, but 21 is given; give 20"),
    (("n", "m"), "dimension 1 of input 'x' is 20 in the model, but 'm' is given; give 20"),
    (("1-64", 20), "dimension 0 of input 'x' is '1-64'; write a number, a name"),
    (("9..2", 20), "dimension 0 of input 'x' is '9..2', an empty range; write the smaller number first"),
    (("n", 20, 1), r"input 'x' has 2 dimensions \(batch, 20\), but 3 are given"),
])
def test_shapes_that_do_not_fit_the_model_are_refused(shape: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(perceptron(), shapes={"x": shape})


def test_contradictory_names_and_ranges_are_refused() -> None:
    of = model([node("Add", ["a", "b"], "y")], {"a": ["n", 3], "b": ["n", 3]}, {})
    with pytest.raises(
        InputError,
        match="dimension 'n' of the model is given as 'i' and as 'j'; the shapes of the inputs contradict each other"
    ):
        tilewright.compile(of, shapes={"a": ("i", 3), "b": ("j", 3)})
    with pytest.raises(InputError, match=r"dimension 'i' has two ranges; dimension 0 of input 'b' has 'i=1..5'"):
        tilewright.compile(of, shapes={"a": ("i=1..4", 3), "b": ("i=1..5", 3)})
    program = tilewright.compile(of, shapes={"a": ("n", 3)})
    with pytest.raises(
        InputError, match=r"dimension 0 of input 'b' is 3, and must be 2, like dimension 0 of input 'a' \(n\)"
    ):
        program(real(2, 3), real(3, 3))
    with pytest.raises(
        InputError,
        match="dimension 'length' is given as 50 to 60, but the model takes only 40; give another range"
    ):
        tilewright.compile(encoder(), shapes={"ids": ("b", "length=50..60")})


def test_open_shapes_on_the_command_line() -> None:
    from tilewright.driver.options import input_shapes

    assert input_shapes("x:[1..64,3,h,w=32..] y:[2]") == {"x": ("1..64", 3, "h", "w=32.."), "y": (2,)}
    assert input_shapes("x:[Size.0,Size.1=32..:32]") == {"x": ("Size.0", "Size.1=32..:32")}
    with pytest.raises(
        OptionError,
        match=r"'1-4' in the shape of 'x' is not a size; sizes are whole numbers from 0, or dynamic: n, 1..64, "
        r"n=1..64"
    ):
        input_shapes("x:[1-4]")


# Operators: with a dimension that is open each of them is right, or refused.


def opened(example: Example, axis: int) -> tuple[Function, int]:
    """The call of an example whose inputs have an open size along an axis, and what that is in the example."""
    params, call = example.call()
    size = max(a.shape[axis] for a in example.inputs if a.ndim > axis)
    n = Var("n")
    new: dict[Expr, Expr] = {}
    for p, a in zip(params, example.inputs, strict=True):
        shape = [n if d == size and k == axis else d for k, d in enumerate(a.shape)]
        new[p] = RelayVar(p.name_hint, TensorType(shape, p.tensor_type.dtype))
    for e in post_order(call):
        if e not in new:
            new[e] = with_operands(e, [new[o] for o in operands(e)]) if operands(e) else e
    return Function([new[p] for p in params], new[call]), size  # type: ignore[misc]


def _same(function: Function, replaced: Mapping[Var, PrimExpr]) -> Function:
    return function


def check_operator(example: Example) -> int:
    """How many of the first axes the operator took as open; wrong results fail."""
    done = 0
    for axis in range(3):
        if max((a.shape[axis] for a in example.inputs if a.ndim > axis), default=1) < 2:
            continue
        try:
            function, size = opened(example, axis)
            artifact = build_open(partial(_same, function), {}, Target("llvm"), "m", BuildReport(), Cache(None))
        except CompileError:
            continue
        if any(not s.least <= size or (s.most is not None and size > s.most) for s in artifact.manifest.symbols):
            continue
        try:
            found, wanted = artifact.executable(1)(*example.inputs), example.expected()
        except InputError:  # the operator requires sizes that the opening of one axis contradicts
            continue
        for f, w in zip(
            found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, (tuple, list)) else (wanted,),
            strict=True
        ):
            np.testing.assert_allclose(np.asarray(f, np.float64), np.asarray(w, np.float64), rtol=1e-3, atol=1e-4)
        done += 1
    return done


def _plain(example: Example) -> bool:
    return all(a.dtype.kind in "fiub" for a in example.inputs) and bool(example.inputs)


def test_some_operators_with_open_sizes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(check_operator(e) for e in [e for e in EXAMPLES if _plain(e)][::29]) > 15


@pytest.mark.slow
@pytest.mark.parametrize("part", daily.sample(range(16), 3, "open sizes"))
def test_operators_with_open_sizes(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(check_operator(e) for e in [e for e in EXAMPLES if _plain(e)][part::16]) > 10


def test_windows_whose_results_stand_in_another_layout_are_refused() -> None:
    examples = [
        e for e in EXAMPLES if e.op.name in ("nn.max_pool2d", "nn.avg_pool2d")
        and e.op.attributes()["layout"] == "NHWC" and e.op.attributes()["out_layout"] == "NCHW"
    ]
    assert examples
    for example in examples:
        function, _ = opened(example, 2)
        with pytest.raises(
            OpenSizeError,
            match="has a dynamic height or width, but stores its result in another layout than it is computed in"
        ):
            build_open(partial(_same, function), {}, Target("llvm"), "m", BuildReport(), Cache(None))


def test_sizes_with_an_order_get_samples_that_satisfy_it() -> None:
    """The first of ten inputs has to be at least as long as the last one."""
    names = "abcdefghij"
    nodes = [
        helper.make_node("Shape", ["j"], ["length"]), helper.make_node("Slice", ["a", "zero", "length"], ["first"]),
        helper.make_node("Concat", ["first", *names], ["joined"], axis=0), helper.make_node("Relu", ["joined"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"d_{n}"]) for n in names]
    graph = helper.make_graph(
        nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array([0]), "zero")])
    compiled = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    feed = {n: np.arange(k, k + 12 - k, dtype=np.float32) for k, n in enumerate(names)}
    np.testing.assert_array_equal(compiled(feed), np.concatenate([feed["a"][:3], *feed.values()]))
    assert [str(r) for r in compiled.executable.manifest.requirements]
