"""The parts of a program that runs on values: what they are for the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from small_models import onnxruntime_answers, stages_of
from test_dynamic_interpreter import detector, floats, picture
from tilewright import relay
from tilewright.base.errors import Origin, RunError
from tilewright.base.types import TensorType
from tilewright.relay import dynamic_interpreter
from tilewright.relay.dynamic_interpreter import Conversions, DynamicProgram
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.deferred import Deferred
from tilewright.relay.value_specialization import content_of, decided, deciding_of, outlined
from tilewright.relay.visitor import calls

Array = np.ndarray[Any, Any]


def part(x: Expr, n: Expr, scale: float = 2.0) -> Expr:
    """The first n rows, turned, scaled, turned back."""
    rows = Call(relay.op.get("dyn.strided_slice")(), [x, relay.const(np.array([0])), n, relay.const(np.array([1]))])
    return relay.transpose(relay.multiply(relay.transpose(rows, (1, 0)), relay.const(np.float32(scale))), (1, 0))


def two_counts() -> Function:
    """Rows of x up to n and up to m, one behind the other."""
    x, n, m = Var("x", TensorType((6, 4))), Var("n", TensorType((1,), "int64")), Var("m", TensorType((1,), "int64"))
    return Function([x, n, m], relay.concatenate(Tuple((part(x, n), part(x, m, 3.0))), axis=0))


def parts_of(function: Function) -> list[Call]:
    return [c for c in calls(function.body, inside=False) if isinstance(c.op, Function)]


def wanted(x: Array, n: int, m: int) -> Array:
    return np.concatenate([x[:n] * np.float32(2), x[:m] * np.float32(3)])


def test_parts_are_functions_of_what_decides_them() -> None:
    function = two_counts()
    made = outlined(function)
    first, second = parts_of(made)
    assert [c.op.name for c in calls(made.body, inside=False) if not isinstance(c.op, Function)] == ["concatenate"]
    assert [c.op.name for c in calls(first.op.body)] == ["dyn.strided_slice", "transpose", "multiply", "transpose"]
    assert [a for a in first.args if isinstance(a, Var)] == [function.params[0], function.params[1]]
    assert content_of(first.op) == content_of(second.op)  # the scales are parameters
    assert [
        first.args[k] is function.params[1] or not isinstance(first.args[k], Var) for k in deciding_of(first.op)
    ] == [True, True, True]


def test_a_program_that_one_value_decides_has_no_parts() -> None:
    x, n = Var("x", TensorType((6, 4))), Var("n", TensorType((1,), "int64"))
    function = Function([x, n], part(x, n))
    assert outlined(function) is function


def test_what_has_sizes_that_are_not_known_is_in_no_part() -> None:
    n = Var("n", TensorType((1,), "int64"))
    x, y = (Var(name, relay.TensorType((relay.Any(), 4))) for name in "xy")
    function = Function([x, y, n], relay.concatenate(Tuple((part(x, n), part(y, n))), axis=0))
    assert outlined(function) is function


def test_a_part_for_known_numbers() -> None:
    (first, _) = parts_of(outlined(two_counts()))
    x = floats(6, 4)
    for n in (0, 2):
        given = [
            x if a.tensor_type.shape == (6, 4) else a.value if isinstance(a, Constant) else np.array([n])
            for a in first.args
        ]
        found, asked = decided(first.op, given)
        assert found is not None
        assert asked == deciding_of(first.op)
        np.testing.assert_array_equal(evaluate(found, *given), x[:n] * np.float32(2))
        assert len(calls(found.body)) == (0 if n == 0 else 4)


def test_parts_are_known_for_numbers_that_come_often(slow_clock: int) -> None:
    conversions = Conversions(1 << 20)
    run, x = DynamicProgram(two_counts(), conversions), floats(6, 4)
    random = np.random.default_rng(0)
    for _ in range(3 * slow_clock):
        n, m = random.integers(0, 3, 2)
        (found,), _ = run([x, np.array([n]), np.array([m])])
        np.testing.assert_array_equal(found, wanted(x, n, m))
    (both,) = conversions._parts.values()
    assert {np.frombuffer(key[-1], np.int64)[0] for key in both.known} == {0, 1, 2}
    assert all(key[0] == 0 for key in both.known)  # the constants that decide are those of both


def test_most_numbers_that_are_kept(monkeypatch: pytest.MonkeyPatch, slow_clock: int) -> None:
    monkeypatch.setattr(dynamic_interpreter, "MOST_SIZES", 2)
    monkeypatch.setattr("tilewright.base.jit_policy.RESOLVING.of", lambda operators: 0.0)
    conversions = Conversions(1 << 20)
    run, x = DynamicProgram(two_counts(), conversions), floats(6, 4)
    for n in range(7):
        (found,), _ = run([x, np.array([n]), np.array([6 - n])])
        np.testing.assert_array_equal(found, wanted(x, n, 6 - n))
        assert all(len(p.known) <= 2 and len(p.met) <= 2 for p in conversions._parts.values())


def test_an_error_names_the_node_of_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of one content: what goes wrong in the second is not said of the first."""

    def refusing(self: Any, x: Array) -> Array:
        if np.isnan(x).any():
            raise ValueError("not a number")
        return np.exp(x)

    monkeypatch.setattr("tilewright.base.jit_policy.RESOLVING.of", lambda operators: 0.0)
    monkeypatch.setattr(type(relay.op.get("exp")()), "reference", refusing)
    x, n, m = Var("x", TensorType((6, 4))), Var("n", TensorType((1,), "int64")), Var("m", TensorType((1,), "int64"))
    first, second = (
        relay.transpose(Call(relay.op.get("exp")(), [part(x, c)], span=Origin(name, "Exp")), (1, 0)) for c,
        name in ((n, "first"), (m, "second"))
    )
    run = DynamicProgram(Function([x, n, m], relay.concatenate(Tuple((first, second)), axis=1)), Conversions(1 << 20))
    value = floats(6, 4)
    value[5] = np.nan
    for n_rows in (2, 6, 6):
        with pytest.raises(RunError, match="Exp 'second'"):
            run([value, np.array([n_rows - n_rows // 2]), np.array([6])])
    with pytest.raises(RunError, match="Exp 'first'"):
        run([value, np.array([6]), np.array([2])])


def test_the_classes_of_a_detector_are_parts_of_one_content() -> None:
    compiled = tilewright.compile(detector())
    compiled(picture(2, 0, 5))
    (first,) = stages_of(compiled).root.edges.values()
    assert first.next is not None
    assert first.next.function is not None
    classes = parts_of(outlined(first.next.function))
    assert len(classes) == 3
    assert len({content_of(c.op) for c in classes}) == 1


def test_a_detector_whose_parts_are_all_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.base.jit_policy.RESOLVING.of", lambda operators: 0.0)
    proto = detector()
    compiled = tilewright.compile(proto)
    compiled(picture(1, 1, 1))
    for counts in ((2, 0, 5), (0, 0, 0), (0, 2, 5), (24, 5, 2), (5, 24, 0), (12, 12, 0), (2, 2, 2)):
        for _ in range(2):
            feed = picture(*counts)
            for got, wanted_ in zip(compiled(feed), onnxruntime_answers(proto, feed), strict=True):
                assert got.dtype == wanted_.dtype
                np.testing.assert_allclose(got, wanted_, rtol=1e-5, atol=1e-6)
    conversions = stages_of(compiled)._conversions
    assert conversions is not None
    (known,) = conversions._parts.values()
    assert len(known.known) == 5  # 0, 2, 5, 12 and 24


def test_shapes_that_are_filled_wait_as_values_that_are_spread() -> None:
    waiting = [c for c in calls(from_onnx(detector())[0]["main"].body) if isinstance(c.op, Deferred)]
    assert "ConstantOfShape" not in {c.op.op_type for c in waiting}
    filled = [c for c in waiting if c.op.op_type == "Expand"]
    values = [c.args[0] for c in filled]
    assert [int(v.value) for v in values if isinstance(v, Constant)] == [0, 1, 2]
    assert len({c.op.content() for c in filled}) == 1
    assert not any(isinstance(c, TupleGetItem) for c in filled)
