"""Matching patterns: what each kind matches and what it does not.

Behaviours: expressions, variables with and without a name, constants, operators and alternatives of operators; calls,
with any arguments, in either order where the operator commutes and not where it does not, with division and
multiplication in either order of evaluation; functions with parameters, without, with an optional body; tuples and
their fields, by index or any; `if` and `let`; options and alternatives; types, dtypes and shapes; attributes of
operators, calls and functions; one wildcard, one expression; dominators over branches of any depth, nested, typed, and
what is none: two parents, another operator on the way, a way past the parent, a use outside; patterns that contain
themselves; the text of each kind; every message.
"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.relay.dataflow_pattern import (
    CallPattern,
    DFPattern,
    DominatorPattern,
    FunctionPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from tilewright.relay.dataflow_pattern.match import Matcher, root_keys

ELEMWISE, BROADCAST, OUT_FUSABLE = 0, 1, 4


def var(name: str, *shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape or (4, 4), dtype=dtype)


x, y, z = var("x"), var("y"), var("z")
image, weight = var("image", 1, 8, 16, 16), var("weight", 8, 8, 3, 3)


def conv(data: Any = image, **attrs: Any) -> relay.Call:
    return relay.nn.conv2d(data, weight, padding=1, channels=8, kernel_size=(3, 3), **attrs)


def conv_pattern() -> CallPattern:
    return is_op("nn.conv2d")(wildcard(), wildcard())


def unary() -> CallPattern:
    return wildcard().has_attr({"TOpPattern": ELEMWISE})(wildcard())


# Leaves.
def test_expressions() -> None:
    assert is_expr(x).match(x)
    assert not is_expr(x).match(y)
    assert is_expr(relay.add(x, y)).match(relay.add(x, y))
    assert is_expr(relay.const(2.0)).match(relay.const(2.0))
    assert not is_expr(relay.const(2.0)).match(relay.const(3.0))


def test_variables() -> None:
    assert is_var().match(x)
    assert is_var("x").match(x)
    assert not is_var("y").match(x)
    assert not is_var().match(relay.const(1))


def test_constants() -> None:
    assert is_constant().match(relay.const(1))
    assert not is_constant().match(x)


def test_a_wildcard_is_anything() -> None:
    for e in (x, relay.const(1), x + y, relay.Tuple([x]), relay.Function([x], x)):
        assert wildcard().match(e)


# Operators and calls.
def test_operators() -> None:
    assert is_op("add")(None).match(x + y)
    assert not is_op("subtract")(None).match(x + y)
    either = is_op("add") | is_op("subtract")
    assert either(is_var(), is_var()).match(x - y)
    assert not either(is_var(), is_var()).match(x * y)
    assert is_expr(relay.op.get("add"))(None).match(x + y)  # type: ignore[arg-type]
    assert is_expr(relay.nn.softmax(x, axis=1).op)(None).match(relay.nn.softmax(y, axis=1))
    assert not is_expr(relay.nn.softmax(x, axis=0).op)(None).match(relay.nn.softmax(y, axis=1))


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(CompileError, match=r"there is no operator 'nn\.conv2'; did you mean nn\.conv2d"):
        is_op("nn.conv2")


def test_commutative_operators_match_either_order() -> None:
    for name in ("add", "multiply"):
        assert is_op(name)(is_var("x"), is_var("y")).match(relay.op.get(name)()(x, y))
        assert is_op(name)(is_var("y"), is_var("x")).match(relay.op.get(name)()(x, y))
    for name in ("subtract", "divide"):
        assert is_op(name)(is_var("x"), is_var("y")).match(relay.op.get(name)()(x, y))
        assert not is_op(name)(is_var("y"), is_var("x")).match(relay.op.get(name)()(x, y))


def test_commutative_operators_inside_each_other() -> None:
    pattern = is_op("add")(is_op("multiply")(is_var("x"), is_var("y")), is_var("z"))
    assert pattern.match(z + y * x)
    assert not is_op("subtract")(is_op("multiply")(is_var("x"), is_var("y")), is_var("z")).match(z - y * x)


def test_python_operators_are_patterns_of_calls() -> None:
    a, b = is_var("x"), is_var("y")
    for pattern, e in ((a + b, y + x), (a - b, x - y), (a * b, y * x), (a / b, x / y)):
        assert pattern.match(e)
    assert not (a - b).match(y - x)
    assert not (a / b).match(y / x)


def test_division_and_multiplication_in_either_order_of_evaluation() -> None:
    a, b, c = is_var("x"), is_var("y"), is_var("z")
    for e in (x * y / z, y * x / z, x * (y / z), y * (x / z), (x / z) * y):
        assert (a * b / c).match(e)
    for e in (x / y * z, z * (x / y), (x * z) / y, (z * x) / y):
        assert (a / b * c).match(e)
    assert not (a * b / c).match(x / y * z)
    assert not (a / b * c).match(x * y / z)


def test_the_number_of_arguments_counts() -> None:
    assert not is_op("nn.relu")(wildcard(), wildcard()).match(relay.nn.relu(x))
    assert is_op("nn.relu")(None).match(relay.nn.relu(x))
    assert CallPattern(is_op("nn.relu"), None).match(relay.nn.relu(x))
    assert not CallPattern(is_op("nn.relu"), []).match(relay.nn.relu(x))


def test_calls_of_functions_and_of_global_functions() -> None:
    a, b = var("a"), var("b")
    f = relay.Function([a, b], a + b)
    pattern = FunctionPattern([wildcard(), wildcard()], wildcard() + wildcard())
    assert pattern(is_var("x"), wildcard()).match(f(x, y))
    assert wildcard()(None).match(f(x, y))
    assert not is_op("add")(None).match(f(x, y))
    name = relay.GlobalVar(
        "f", relay.FuncType([x.tensor_type], x.tensor_type)
    )
    assert is_expr(name)(wildcard()).match(name(x))


# Functions, tuples, branches, lets.
def test_functions() -> None:
    f = relay.Function([x, y], x + y)
    assert FunctionPattern([is_var("x"), is_var("y")], wildcard()).match(f)
    assert FunctionPattern(None, wildcard() + wildcard()).match(f)
    assert not FunctionPattern([wildcard()], wildcard()).match(f)
    assert not FunctionPattern(None, wildcard() - wildcard()).match(f)
    a, b = wildcard(), wildcard()
    assert FunctionPattern([a, b], a + b).match(f)
    assert not FunctionPattern([a, b], a + b).match(x + y)


def test_a_function_with_an_optional_body() -> None:
    pattern = FunctionPattern(None, conv_pattern().optional(is_op("nn.relu")))
    assert pattern.match(relay.Function([image, weight], conv()))
    assert pattern.match(relay.Function([image, weight], relay.nn.relu(conv())))
    assert not pattern.match(relay.Function([image, weight], relay.tanh(conv())))


def test_tuples() -> None:
    e = relay.Tuple([x, y, x + y])
    assert is_tuple([is_var("x"), wildcard(), is_op("add")(None)]).match(e)
    assert is_tuple(None).match(e)
    assert not is_tuple([is_var("x"), wildcard()]).match(e)
    assert not is_tuple([is_var("x"), wildcard(), is_op("subtract")(None)]).match(e)
    assert not is_tuple(None).match(x)


def test_fields_of_tuples() -> None:
    pair = relay.Tuple([x, y])
    first = relay.TupleGetItem(pair, 0)
    inside = is_tuple([is_var("x"), is_var("y")])
    assert is_tuple_get_item(inside, 0).match(first)
    assert is_tuple_get_item(inside).match(first)
    assert not is_tuple_get_item(inside, 1).match(first)
    assert not is_tuple_get_item(is_var()).match(first)


def test_a_field_of_any_tuple_of_concatenated_parts() -> None:
    pattern = is_op("concatenate")(is_tuple(None))
    assert pattern.match(relay.concatenate([x, y, z], axis=0))
    assert pattern.match(relay.concatenate([x], axis=0))
    assert not is_op("concatenate")(is_tuple([wildcard()])).match(relay.concatenate([x, y], axis=0))


def test_branches() -> None:
    cond = relay.less(relay.var("a", shape=()), relay.var("b", shape=()))
    e = relay.If(cond, x + y, x - y)
    assert is_if(is_op("less")(is_var("a"), is_var("b")), is_op("add")(None), is_var("x") - is_var("y")).match(e)
    assert not is_if(is_op("greater")(None), wildcard(), wildcard()).match(e)
    assert not is_if(wildcard(), is_op("subtract")(None), wildcard()).match(e)
    assert not is_if(wildcard(), wildcard(), wildcard()).match(x)


def test_lets() -> None:
    v = var("v")
    e = relay.Let(v, x + y, v * z)
    assert is_let(is_var("v"), is_op("add")(is_var("x"), is_var("y")), is_op("multiply")(None)).match(e)
    assert not is_let(is_var("w"), wildcard(), wildcard()).match(e)
    assert not is_let(wildcard(), is_op("subtract")(None), wildcard()).match(e)
    bound = is_var()
    assert is_let(bound, wildcard(), bound * wildcard()).match(e)


# Options and alternatives.
def test_alternatives() -> None:
    pattern = is_op("add")(None) | is_op("nn.relu")(None) | is_var()
    assert [pattern.match(e) for e in (x + y, relay.nn.relu(x), x, x - y)] == [True, True, True, False]


def test_an_alternative_that_does_not_fit_leaves_nothing_behind() -> None:
    shared = wildcard()
    pattern = is_op("add")(is_op("nn.relu")(shared) | is_op("tanh")(wildcard()), shared)
    assert pattern.match(relay.tanh(x) + y)
    assert pattern.match(relay.nn.relu(x) + x)
    assert not pattern.match(relay.nn.relu(x) + y)


def test_options() -> None:
    pattern = is_op("nn.relu")(conv_pattern().optional(lambda c: is_op("nn.bias_add")(c, wildcard())))
    bias = var("bias", 8)
    assert pattern.match(relay.nn.relu(conv()))
    assert pattern.match(relay.nn.relu(relay.nn.bias_add(conv(), bias)))
    assert not pattern.match(relay.nn.relu(relay.add(conv(), conv())))
    assert not pattern.match(relay.nn.bias_add(conv(), bias))


def test_options_of_options() -> None:
    relu = conv_pattern().optional(is_op("nn.relu"))
    pattern = relu.optional(is_op("tanh"))
    for e in (conv(), relay.nn.relu(conv()), relay.tanh(conv()), relay.tanh(relay.nn.relu(conv()))):
        assert pattern.match(e)
    assert not pattern.match(relay.nn.relu(relay.tanh(conv())))


def test_one_wildcard_is_one_expression() -> None:
    a, b = wildcard(), wildcard()
    assert (a + a).match(x + x)
    assert not (a + a).match(x + y)
    assert (a + b).match(x + x)
    square = a * a
    assert is_op("add")(square, a).match(x * x + x)
    assert not is_op("add")(square, a).match(x * x + y)


def test_a_part_used_twice_must_be_one_value() -> None:
    c = conv_pattern()
    pattern = is_op("multiply")(c, is_op("clip")(c))
    e = conv()
    assert pattern.match(relay.multiply(e, relay.clip(e, 0.0, 6.0)))
    assert not pattern.match(relay.multiply(e, relay.clip(relay.add(e, relay.const(1.0)), 0.0, 6.0)))
    assert not pattern.match(relay.multiply(conv(), relay.clip(conv(), 0.0, 6.0)))


def test_one_operator_pattern_may_be_several_operators_with_other_attributes() -> None:
    softmax = is_op("nn.softmax")
    assert softmax(softmax(wildcard())).match(relay.nn.softmax(relay.nn.softmax(x, axis=0), axis=1))


# Types.
def test_types() -> None:
    assert has_type(relay.TensorType((4, 4), "float32")).match(x)
    assert not has_type(relay.TensorType((4, 5), "float32")).match(x)
    assert is_op("add")(None).has_type(relay.TensorType((4, 4))).match(x + y)
    assert is_tuple(None).has_type(relay.TupleType([x.checked_type, y.checked_type])).match(relay.Tuple([x, y]))
    assert not has_type(relay.TensorType((4, 4))).match(relay.var("unknown"))


def test_dtypes() -> None:
    assert has_dtype("float32").match(x)
    assert not has_dtype("int8").match(x)
    assert is_var("x").has_dtype("float32").match(x)
    assert not has_dtype("float32").match(relay.Tuple([x]))
    assert has_dtype("float32", is_op("add")(None)).match(x + y)
    assert not has_dtype("float32", is_op("add")(None)).match(x - y)


def test_shapes() -> None:
    assert has_shape((4, 4)).match(x)
    assert not has_shape((4,)).match(x)
    assert is_op("add")(has_shape([4, 4]), wildcard()).match(x + y)
    assert not has_shape((4, 4)).match(relay.Tuple([x]))
    assert has_shape((relay.Any(), 4)).match(relay.var("a", shape=(relay.Any(), 4)))


# Attributes.
def test_attributes_of_operators() -> None:
    assert is_op("add").has_attr({"TOpPattern": BROADCAST})(None).match(x + y)
    assert not is_op("nn.dense").has_attr({"TOpPattern": ELEMWISE})(None).match(relay.nn.dense(x, y))
    assert wildcard().has_attr({"TOpPattern": OUT_FUSABLE})(None).match(relay.nn.dense(x, y))
    assert not is_op("add").has_attr({"no such attribute": 1})(None).match(x + y)


def test_registered_attributes_of_operators() -> None:
    from tilewright.ir import register_op_attr, reset_op_attr

    register_op_attr("tanh", "kind of the test", "smooth")
    assert wildcard().has_attr({"kind of the test": "smooth"})(None).match(relay.tanh(x))
    assert not wildcard().has_attr({"kind of the test": "rough"})(None).match(relay.tanh(x))
    assert not wildcard().has_attr({"kind of the test": "smooth"})(None).match(relay.nn.relu(x))
    reset_op_attr("tanh", "kind of the test")
    assert not wildcard().has_attr({"kind of the test": "smooth"})(None).match(relay.tanh(x))


def test_attributes_of_operators_that_stand_alone() -> None:
    assert is_op("add").has_attr({"TOpPattern": 1}).match(
        relay.op.get("add")
    ) and is_op("add").match(relay.op.get("add"))
    assert not is_op("add").has_attr({"TOpPattern": 0}).match(relay.op.get("add"))


def test_attributes_of_calls() -> None:
    c = is_op("nn.conv2d")(None)
    e = conv()
    for attrs in (
        {"channels": 8}, {"kernel_size": [3, 3]}, {"data_layout": "NCHW"}, {"groups": 1, "channels": 8},
        {"padding": (1, 1, 1, 1)}
    ):
        assert c.has_attr(attrs).match(e)
    for wrong in (
        {"channels": 9}, {"kernel_size": [3, 1]}, {"data_layout": "NHWC"}, {"groups": 1, "channels": 9}, {"no such": 1}
    ):
        assert not c.has_attr(wrong).match(e)
    assert has_attr({"channels": 8}).match(e)
    assert not has_attr({"channels": 8}).match(relay.nn.relu(e))


def test_attributes_of_functions() -> None:
    f = relay.Function([x, y], x + y).with_attr("Composite", "add")
    pattern = FunctionPattern(None, wildcard())
    assert pattern.has_attr({"Composite": "add"}).match(f)
    assert not pattern.has_attr({"Composite": "nothing"}).match(f)
    assert not pattern.has_attr({"RandomTest": "add"}).match(f)
    assert pattern.has_attr({"Composite": "add"})(None).match(f(x, y))
    assert not has_attr({"Composite": "add"}).match(relay.Function([x, y], x + y))


# Dominators.
def diamond(path: DFPattern | None = None) -> DominatorPattern:
    return dominates(conv_pattern(), unary() if path is None else path, is_op("add")(wildcard(), wildcard()))


def leaky(e: Any) -> relay.Call:
    return relay.nn.leaky_relu(e, alpha=0.5)


def test_dominators() -> None:
    c = conv()
    assert diamond().match(relay.nn.relu(c) + leaky(c))
    assert diamond().match(relay.nn.relu(relay.nn.relu(c)) + leaky(c))
    relu = relay.nn.relu(relay.nn.relu(c))
    assert diamond().match(relu + relay.tanh(relu))
    assert is_op("add")(None).dominates(conv_pattern(), unary()).match(relay.nn.relu(c) + leaky(c))
    assert is_op("add")(None).dominates(conv_pattern()).match(relay.nn.relu(c) + leaky(c))


def test_dominators_with_diamonds_on_the_path() -> None:
    relu = relay.nn.relu(conv())
    c = conv()
    pattern = diamond(unary() | is_op("add")(wildcard(), wildcard()))
    assert pattern.match(relay.tanh(relay.add(relay.nn.relu(c), relay.nn.relu(c))) + leaky(c))
    assert not diamond().match(relay.tanh(relu + relu) + leaky(relu))


def test_what_is_no_dominator() -> None:
    c = conv()
    assert not diamond().match(relay.nn.relu(conv()) + leaky(conv())), "two parents"
    assert not diamond().match(relay.nn.relu(c) + relay.add(c, c)), "the path has another operator"
    assert not diamond().match(relay.nn.relu(c) + leaky(image)), "one way goes past the parent"
    assert not diamond().match(relay.nn.relu(image) + leaky(image)), "there is no parent"


def test_a_value_between_that_is_used_elsewhere() -> None:
    c = conv()
    relu = relay.nn.relu(c)
    whole = relu + leaky(c)
    assert Matcher(whole).match(diamond(), whole) is not None
    assert Matcher(relay.Tuple([whole, c])).match(diamond(), whole) is None
    assert Matcher(relay.Tuple([whole, relu])).match(diamond(), whole) is None


def test_a_value_beside_the_parent() -> None:
    c = conv()
    path = unary() | is_op("multiply")(wildcard(), wildcard())
    scale = var("scale", 1, 8, 16, 16)
    assert diamond(path).match(relay.multiply(c, scale) + leaky(c))
    assert not diamond(path).match(
        relay.multiply(c, relay.nn.softmax(c)) + leaky(c)
    ), "a way from the parent that is not the path"


def test_typed_dominators() -> None:
    c = conv()
    typed = has_shape((1, 8, 16, 16), conv_pattern())
    path = unary().has_dtype("float32")
    assert dominates(typed, path, is_op("add")(None)).match(relay.nn.relu(c) + leaky(c))
    assert not dominates(
        conv_pattern().has_shape((1, 8, 8, 8)), path, is_op("add")(None)
    ).match(relay.nn.relu(c) + leaky(c))
    assert not dominates(typed, unary().has_dtype("int8"), is_op("add")(None)).match(relay.nn.relu(c) + leaky(c))


def test_what_a_path_matched_is_listed() -> None:
    c = conv()
    a, b = relay.nn.relu(c), leaky(c)
    pattern = diamond()
    e = a + b
    found = Matcher(e).match(pattern, e)
    assert found is not None
    assert set(found[pattern.path]) == {a, b}
    assert found[pattern.parent] == [c]
    assert found[pattern] == [e]


# Patterns that contain themselves, and the rest.
def test_a_pattern_that_contains_itself() -> None:
    inner = wildcard()
    chain = is_op("nn.relu")(is_var() | inner)
    inner.redirect_to(is_op("tanh")(is_var()))
    assert chain.match(relay.nn.relu(relay.tanh(x)))
    assert not chain.match(relay.nn.relu(relay.exp(x)))
    assert "tanh" in repr(chain)


@pytest.mark.slow
def test_deep_graphs() -> None:
    e: Any = x
    for _ in range(10_000):
        e = relay.nn.relu(e)
    assert is_op("nn.relu")(is_op("nn.relu")(wildcard())).match(e)
    assert dominates(is_expr(x), is_op("nn.relu")(wildcard()), is_op("tanh")(wildcard())).match(relay.tanh(e))


def test_the_nodes_that_a_pattern_may_match() -> None:
    add, relu = relay.op.get("add"), relay.op.get("nn.relu")
    assert root_keys(is_op("add")(None) | is_op("nn.relu")(None).has_dtype("int8")) == {add, relu}
    assert root_keys(wildcard()) is None
    assert root_keys(wildcard()(None)) is None
    assert root_keys(is_op("divide")(None)) == {relay.op.get("divide"), relay.op.get("multiply")}
    assert root_keys(is_tuple(None)) == {relay.Tuple}
    assert root_keys(FunctionPattern(None, wildcard())(None)) == {relay.Call}
    assert root_keys(diamond()) == {add}


TEXTS = (
    "is_var()", "is_var('x')", "is_constant()", "wildcard()", 'is_op("add")(wildcard(), is_constant())',
    'is_op("add")(None)',
    'wildcard() | is_op("nn.relu")(wildcard())', "(is_var() | is_constant())(None)", "is_tuple(None)",
    "is_tuple([is_var()])",
    "is_tuple_get_item(wildcard(), 1)", "is_tuple_get_item(wildcard())", "is_if(is_var(), wildcard(), wildcard())",
    "is_let(is_var('v'), wildcard(), wildcard())", 'wildcard().has_dtype("int8")', "wildcard().has_shape((1, 2))",
    "wildcard().has_attr({'groups': 1})", "FunctionPattern(None, wildcard())",
    "FunctionPattern([is_var()], wildcard())",
    'dominates(is_var(), wildcard(), is_op("add")(None))',
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_pattern_prints_as_the_text_that_builds_it(text: str) -> None:
    assert repr(eval(text)) == text


def test_a_type_prints_in_the_text_of_a_pattern() -> None:
    assert repr(has_type(relay.TensorType((2,), "int8"))) == "wildcard().has_type(Tensor[(2), int8])"
    assert repr(is_expr(x)).startswith("is_expr(")


def test_arguments_that_are_no_patterns() -> None:
    with pytest.raises(CompileError, match="the args of a CallPattern must be patterns"):
        is_op("add")(x, wildcard())
    with pytest.raises(CompileError, match="the fields of a TuplePattern must be patterns"):
        is_tuple([x])  # type: ignore[list-item]
