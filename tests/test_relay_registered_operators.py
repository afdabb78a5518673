"""Operators that a program registers: typed, printed and read, evaluated and compiled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright import relay, topi
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import TensorType, TupleType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.op_attributes import reset_op_attr
from tilewright.relay.expr import Call, Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registered import Registered
from tilewright.relay.op.registry import OPS, Fusion

NAME = "tests.scaled_sum"


def operator() -> type[Registered]:
    made = relay.op.get(NAME)
    assert issubclass(made, Registered)
    return made


@pytest.fixture
def registered() -> Iterator[None]:
    relay.op.register(NAME, "x + 2 y")
    yield
    OPS.pop(NAME)
    reset_op_attr(NAME, "FTVMCompute")
    reset_op_attr(NAME, "TOpPattern")


@pytest.mark.usefixtures("registered")
def test_an_operator_is_registered_and_used() -> None:
    made = operator()
    made.set_num_inputs(2)
    made.add_argument("x", "Tensor", "the first")
    made.set_support_level(1)
    made.set_attr("TOpPattern", relay.op.OpPattern.BROADCAST)
    made.add_type_rel("ScaledSum", lambda arg_types, attrs: arg_types[0])
    relay.op.register_compute(
        NAME, lambda attrs, inputs, out_type: [topi.add(inputs[0], topi.multiply(inputs[1], 2.0))]
    )
    x, y = var("x", shape=(3, 4)), var("y", shape=(3, 4))
    call = Call(made, [x, y])
    assert call.checked_type == TensorType((3, 4), "float32")
    assert made.kind is Fusion.BROADCAST
    mod = IRModule.from_expr(Function((x, y), relay.nn.relu(call)))
    assert f"{NAME}(%x, %y)" in mod.astext()
    assert_structural_equal(relay.parse(mod.astext()), mod)
    a, b = (np.random.default_rng(k).normal(size=(3, 4)).astype("float32") for k in (1, 2))
    wanted = np.maximum(a + 2 * b, 0)
    np.testing.assert_allclose(evaluate(mod["main"], a, b), wanted, rtol=1e-6)
    np.testing.assert_allclose(build_module(mod, Target("llvm")).executable(threads=1)(a, b), wanted, rtol=1e-6)
    with pytest.raises(ShapeError, match="it takes 2 arguments, and is given 1"):
        Call(made, [x])
    with pytest.raises(CompileError, match="declared twice"):
        relay.op.register(NAME)


@pytest.mark.usefixtures("registered")
def test_several_results() -> None:
    made = operator()
    made.add_type_rel("Both", lambda arg_types, attrs: TupleType((arg_types[0], arg_types[0])))

    @relay.op.register_compute(NAME)
    def both(attrs: object, inputs: list[object], out_type: object) -> list[object]:
        return [topi.exp(inputs[0]), topi.negative(inputs[0])]

    x = var("x", shape=(5,))
    a = np.linspace(-1, 1, 5).astype("float32")
    first, second = evaluate(Function((x,), Call(made, [x])), a)
    np.testing.assert_allclose(first, np.exp(a), rtol=1e-6)
    np.testing.assert_array_equal(second, -a)


@pytest.mark.usefixtures("registered")
def test_what_is_missing_is_said() -> None:
    made = operator()
    x = var("x", shape=(5,))
    with pytest.raises(ShapeError, match="its type relation is missing"):
        Call(made, [x])
    with pytest.raises(CompileError, match="is only a name; give its function"):
        made.add_type_rel("Identity")
    made.add_type_rel("Identity", lambda arg_types, attrs: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ShapeError, match="its type relation returned None; it must return a type"):
        Call(made, [x])
    made.add_type_rel("Identity", lambda arg_types, attrs: arg_types[0])
    with pytest.raises(CompileError, match=r"tests\.scaled_sum has no tensor expression"):
        evaluate(Function((x,), Call(made, [x])), np.zeros(5, "float32"))
