"""Operators that a program registers: typed, printed and read, evaluated and compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tilewright import relay, topi
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.global_functions import remove_global_func
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.env_func import EnvFunc
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
    reset_op_attr(NAME, "TOpIsStateful")


@pytest.mark.usefixtures("registered")
def test_the_attributes_of_an_operator_are_an_empty_dictionary() -> None:
    made, seen = operator(), []

    def noted(arg_types: Sequence[Type], attrs: object) -> Type:
        seen.append(attrs)
        return arg_types[0]

    made.set_attrs_type_key("DictAttrs")
    made.add_type_rel("NotedAttributes", noted)
    assert Call(made, [var("x", shape=(2,))]).checked_type == TensorType((2,), "float32")
    assert seen == [{}]
    with pytest.raises(CompileError, match=r"the attributes of .* cannot be 'Conv2DAttrs'.*; give 'DictAttrs'"):
        made.set_attrs_type_key("Conv2DAttrs")


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
    with pytest.raises(CompileError, match=r"the type relation 'Unknown' of .* is only a name; give its function"):
        made.add_type_rel("Unknown")
    made.add_type_rel("Identity", lambda arg_types, attrs: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ShapeError, match="its type relation returned None; it must return a type"):
        Call(made, [x])
    made.add_type_rel("Identity", lambda arg_types, attrs: arg_types[0])
    with pytest.raises(CompileError, match=r"tests\.scaled_sum has no tensor expression"):
        evaluate(Function((x,), Call(made, [x])), np.zeros(5, "float32"))


@pytest.mark.usefixtures("registered")
def test_type_relations_by_name() -> None:
    made = operator()
    x, y = var("x", shape=(10, 4)), var("y", shape=(5, 10, 1))
    made.add_type_rel("Identity")
    assert Call(made, [x]).checked_type == x.checked_type
    made.add_type_rel("Broadcast")
    assert Call(made, [x, y]).checked_type == TensorType((5, 10, 4))
    with pytest.raises(ShapeError, match="broadcast"):
        Call(made, [x, var("z", shape=(3,))])
    assert EnvFunc.get("tvm.relay.type_relation.Identity") == EnvFunc("tvm.relay.type_relation.Identity")


@pytest.mark.usefixtures("registered")
def test_type_relations_have_global_names() -> None:
    name = "tvm.relay.type_relation.FirstOfTwo"
    operator().add_type_rel("FirstOfTwo", lambda arg_types, attrs: arg_types[0])
    try:
        operator().add_type_rel("FirstOfTwo")
        x = var("x", shape=(5,))
        assert Call(operator(), [x, x]).checked_type == x.checked_type
    finally:
        remove_global_func(name)


@pytest.mark.usefixtures("registered")
def test_calls_of_stateful_operators_are_not_merged() -> None:
    made = operator()
    made.add_type_rel("Identity")
    x = var("x", shape=(5,))
    mod = IRModule.from_expr(relay.add(Call(made, [x]), Call(made, [x])))
    merged = relay.transform.EliminateCommonSubexpr()(mod)["main"].body
    assert merged.args[0] is merged.args[1]
    relay.op.register_stateful(NAME, True)
    assert made.get_attr("TOpIsStateful") is True
    kept = relay.transform.EliminateCommonSubexpr()(mod)["main"].body
    assert kept.args[0] is not kept.args[1]
