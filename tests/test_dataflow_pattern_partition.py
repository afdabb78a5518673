"""Putting what patterns match into functions.

Behaviours: one call and several; the name of a function and its attributes; matches in each other and beside each
other; arguments used twice are one; constants that were asked for stay inside, others go in; fields of tuples, tuples
of any fields, calls with any arguments; variadic operators; functions, options of functions; dominators, alone and in a
chain; batch normalisation from its parts; overlapping pieces; values used elsewhere, and used elsewhere only for the
piece; checks of types and attributes; parallel branches of one input; `if` and `let`; the meaning stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relay.dataflow_pattern import (
    CallPattern,
    DFPattern,
    FunctionPattern,
    dominates,
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
from tilewright.relay.interpreter import evaluate
from tilewright.relay.visitor import post_order

x, y, z = (relay.var(n, shape=(4, 4)) for n in "xyz")
image, weight, bias = relay.var("image", shape=(1, 8, 8, 8)), relay.var(
    "weight", shape=(8, 8, 3, 3)
), relay.var("bias", shape=(8,))


def fn(params: Any, body: Any, name: str, **attrs: Any) -> relay.Function:
    """What a partition makes."""
    return relay.Function(params, body, attrs={"PartitionedFromPattern": name, **attrs})


def like(*values: Any) -> list[relay.Var]:
    return [relay.Var(f"p{i}", v.checked_type) for i, v in enumerate(values)]


def pieces(e: relay.Expr) -> list[relay.Function]:
    return [f for f in post_order(e) if isinstance(f, relay.Function) and "PartitionedFromPattern" in f.attrs]


def conv(data: Any = image) -> relay.Call:
    return relay.nn.conv2d(data, weight, padding=1)


def conv_pattern() -> CallPattern:
    return is_op("nn.conv2d")(wildcard(), wildcard())


def test_one_call() -> None:
    a, b = like(x, y)
    assert_structural_equal((wildcard() + wildcard()).partition(x + y), fn([a, b], a + b, "add_")(x, y))


def test_nothing_to_take() -> None:
    e = x * y
    assert (wildcard() + wildcard()).partition(e) is e


def test_several_calls_and_the_attributes() -> None:
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(conv_pattern(), wildcard()))
    i, w, b = like(image, weight, bias)
    expected = fn(
        [i, w, b], relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(i, w, padding=1), b)),
        "nn.conv2d_nn.bias_add_nn.relu_", Composite="npu.conv"
    )
    found = pattern.partition(relay.nn.relu(relay.nn.bias_add(conv(), bias)), {"Composite": "npu.conv"})
    assert_structural_equal(found, expected(image, weight, bias))
    assert list(pieces(found)[0].attrs) == ["PartitionedFromPattern", "Composite"]


def test_matches_one_after_the_other() -> None:
    pattern = is_op("nn.relu")(conv_pattern())
    i, w = like(image, weight)
    f = fn([i, w], relay.nn.relu(relay.nn.conv2d(i, w, padding=1)), "nn.conv2d_nn.relu_")
    found = pattern.partition(relay.nn.relu(conv(relay.nn.relu(conv()))))
    j, v = like(image, weight)
    g = fn([j, v], relay.nn.relu(relay.nn.conv2d(j, v, padding=1)), "nn.conv2d_nn.relu_")
    assert_structural_equal(found, f(g(image, weight), weight))


def test_partitions_of_partitions() -> None:
    once = conv_pattern().partition(relay.nn.relu(conv()))
    twice: Any = is_op("nn.relu")(wildcard()).partition(once)
    outer, inner = twice.op, twice.args[0].op
    assert outer.attrs.PartitionedFromPattern == "nn.relu_"
    assert inner.attrs.PartitionedFromPattern == "nn.conv2d_"
    assert conv_pattern().partition(twice) is twice, "the insides of pieces are done"


def test_an_argument_used_twice_is_one() -> None:
    (a,) = like(x)
    b, c = wildcard(), wildcard()
    assert_structural_equal((b + c).partition(x + x), fn([a], a + a, "add_")(x))
    branches = is_op("add")(is_op("nn.relu")(wildcard()), is_op("tanh")(wildcard()))
    assert_structural_equal(
        branches.partition(relay.nn.relu(x) + relay.tanh(x)),
        fn([a], relay.nn.relu(a) + relay.tanh(a), "nn.relu_tanh_add_")(x)
    )


def test_parameters_have_the_names_and_types_of_the_field() -> None:
    found: Any = (wildcard() + wildcard()).partition(relay.nn.relu(x + y) + z)
    assert [p.name_hint for p in found.op.params] == ["FunctionVar_0_0", "FunctionVar_0_1"]
    assert found.op.params[0].type_annotation == x.type_annotation
    assert found.args[0].args[0].op.params[1].name_hint == "FunctionVar_1_1"
    assert found.checked_type == x.checked_type


# Constants.
def test_constants_that_were_asked_for_stay_inside() -> None:
    c = relay.const(np.ones((4, 4), "float32"))
    (a,) = like(x)
    inside = fn([a], a + c, "add_")(x)
    for pattern in (
        wildcard() + is_constant(), wildcard() + is_expr(relay.const(np.ones((4, 4), "float32"))),
        is_var() + (is_var() | is_constant())
    ):
        assert_structural_equal(pattern.partition(x + c), inside)
    a, b = like(x, c)
    for pattern in (wildcard() + wildcard(), is_var() + (wildcard() | is_constant())):
        assert_structural_equal(pattern.partition(x + c), fn([a, b], a + b, "add_")(x, c))


def test_a_variable_where_a_constant_may_be() -> None:
    a, b = like(x, y)
    assert_structural_equal((is_var() + (is_var() | is_constant())).partition(x + y), fn([a, b], a + b, "add_")(x, y))


# Tuples and any arguments.
def test_a_field_of_a_tuple() -> None:
    pattern = is_tuple_get_item(is_op("nn.batch_norm")(wildcard(), wildcard(), wildcard(), wildcard(), wildcard()), 0)
    vectors = [relay.var(n, shape=(8,)) for n in "gbmv"]
    found: Any = pattern.partition(relay.nn.batch_norm(image, *vectors)[0])
    assert found.op.attrs.PartitionedFromPattern == "nn.batch_norm_TupleGetItem0_"
    assert list(found.args) == [image, *vectors]


def test_a_tuple_of_any_fields() -> None:
    pattern = is_op("concatenate")(is_tuple(None))
    for fields in ([x], [x, y], [x, y, z]):
        params = like(*fields)
        assert_structural_equal(
            pattern.partition(relay.concatenate(fields, axis=1)),
            fn(params, relay.concatenate(params, axis=1), "Tuple_concatenate_")(*fields)
        )


def test_a_call_with_any_arguments() -> None:
    a, b = like(x, y)
    assert_structural_equal(is_op("add")(None).partition(x + y), fn([a, b], a + b, "add_")(x, y))
    i, w = like(image, weight)
    pattern = is_op("nn.relu")(is_op("nn.conv2d")(None))
    assert_structural_equal(
        pattern.partition(relay.nn.relu(conv())),
        fn([i, w], relay.nn.relu(relay.nn.conv2d(i, w, padding=1)), "nn.conv2d_nn.relu_")(image, weight)
    )


# Functions.
def test_a_call_of_a_function() -> None:
    a, b = like(image, weight)
    inner = relay.Function([a, b], relay.nn.conv2d(a, b, padding=1))
    p, q = wildcard(), wildcard()
    pattern = FunctionPattern([p, q], is_op("nn.conv2d")(p, q))(wildcard(), wildcard()) + wildcard()
    other = relay.var("other", shape=(1, 8, 8, 8))
    i, w, o = like(image, weight, other)
    expected = fn([i, w, o], inner(i, w) + o, "nn.conv2d_FunctionCall_add_")
    assert_structural_equal(pattern.partition(inner(image, weight) + other), expected(image, weight, other))


def test_an_option_of_a_function() -> None:
    a, b = like(image, image)
    relu, sigmoid = relay.Function([a], relay.nn.relu(a)), relay.Function([b], relay.sigmoid(b))
    p = wildcard()
    bias_pattern = is_op("nn.bias_add")(conv_pattern(), wildcard())
    pattern = FunctionPattern([p], is_op("sigmoid")(p))(bias_pattern).optional(
        lambda e: FunctionPattern([r := wildcard()], is_op("nn.relu")(r))(e)
    )
    biased = relay.nn.bias_add(conv(), bias)
    i, w, v = like(image, weight, bias)
    inside = sigmoid(relay.nn.bias_add(relay.nn.conv2d(i, w, padding=1), v))
    name = "sigmoid_Functionnn.conv2d_nn.bias_add_Call_"
    assert_structural_equal(pattern.partition(sigmoid(biased)), fn([i, w, v], inside, name)(image, weight, bias))
    assert_structural_equal(
        pattern.partition(relu(sigmoid(biased))),
        fn([i, w, v], relu(inside), f"nn.relu_Function{name}Call_")(image, weight, bias)
    )


def test_options() -> None:
    pattern = is_op("nn.relu")(conv_pattern().optional(lambda c: is_op("nn.bias_add")(c, wildcard())))
    i, w, b = like(image, weight, bias)
    expected = fn(
        [i, w, b], relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(i, w, padding=1), b)),
        "nn.conv2d_nn.bias_add_nn.relu_"
    )
    assert_structural_equal(
        pattern.partition(relay.nn.relu(relay.nn.bias_add(conv(), bias))), expected(image, weight, bias)
    )
    assert pieces(pattern.partition(relay.nn.relu(conv())))[0].attrs.PartitionedFromPattern == "nn.conv2d_nn.relu_"


# Dominators.
def block(data: Any, w: Any) -> Any:
    c = relay.nn.conv2d(data, w, padding=1)
    return relay.nn.relu(relay.nn.relu(c)) + relay.nn.leaky_relu(c, alpha=0.5)


def test_what_a_dominator_dominates() -> None:
    unary = wildcard().has_attr({"TOpPattern": 0})(wildcard())
    pattern = dominates(conv_pattern(), unary, is_op("add")(wildcard(), wildcard()))
    i, w = like(image, weight)
    name = "nn.conv2d_nn.relu_nn.relu_nn.leaky_relu_add_"
    assert_structural_equal(pattern.partition(block(image, weight)), fn([i, w], block(i, w), name)(image, weight))


def test_dominators_one_after_the_other() -> None:
    unary = wildcard().has_attr({"TOpPattern": 0})(wildcard())
    pattern = dominates(conv_pattern(), unary, is_op("add")(wildcard(), wildcard()))
    e = image
    for _ in range(4):
        e = block(e, weight)
    found: Any = pattern.partition(e)
    assert len(pieces(found)) == 4
    for _ in range(4):
        i, w = like(image, weight)
        assert_structural_equal(found.op, fn([i, w], block(i, w), "nn.conv2d_nn.relu_nn.relu_nn.leaky_relu_add_"))
        found = found.args[0]
    assert found is image


def test_a_value_beside_the_parent_goes_in() -> None:
    path = is_op("multiply")(wildcard(), wildcard())
    pattern = dominates(conv_pattern(), path, is_op("add")(wildcard(), wildcard()))
    c, scale = conv(), relay.var("scale", shape=(1, 8, 8, 8))
    found: Any = pattern.partition(relay.multiply(c, scale) + relay.multiply(c, relay.tanh(scale)))
    assert found.op.attrs.PartitionedFromPattern == "nn.conv2d_multiply_multiply_add_"
    assert {type(a) for a in found.args} == {relay.Var, relay.Call}
    assert len(found.args) == 4


# What may be taken.
def test_batch_normalisation_from_its_parts() -> None:
    g, b, m, v = (relay.var(n, shape=(4,)) for n in "gbmv")
    eps = relay.const(1e-5)

    def parts(data: Any, g: Any, b: Any, m: Any, v: Any, eps: Any) -> Any:
        return g * (data - m) / relay.sqrt(v + eps) + b

    data, pg, pb, pm, pv = (wildcard() for _ in range(5))
    pattern = pg * (data - pm) / is_op("sqrt")(pv + is_constant()) + pb
    found: Any = pattern.partition(parts(parts(x, g, b, m, v, eps), g, b, m, v, eps))
    assert len(pieces(found)) == 2
    assert found.op.attrs.PartitionedFromPattern == "subtract_multiply_add_sqrt_divide_add_"
    assert len(found.op.params) == 5, "the constant stays inside"
    inputs = [np.random.default_rng(k).random((4, 4) if k == 0 else (4,)).astype("float32") for k in range(5)]
    whole = relay.Function([x, g, b, m, v], found)
    plain = relay.Function([x, g, b, m, v], parts(parts(x, g, b, m, v, eps), g, b, m, v, eps))
    np.testing.assert_allclose(
        evaluate(IRModule.from_expr(whole), *inputs), evaluate(IRModule.from_expr(plain), *inputs), rtol=1e-5
    )


def test_a_value_used_outside_keeps_a_piece_from_being_taken() -> None:
    pattern = is_op("nn.relu")(conv_pattern())
    c = conv()
    e = relay.Tuple([relay.nn.relu(c), relay.tanh(c)])
    assert pattern.partition(e) is e
    assert pattern.partition(relay.Tuple([relay.nn.relu(c), c])) is not None
    assert pieces(pattern.partition(relay.Tuple([relay.nn.relu(c), c]))) == []
    assert len(pieces(pattern.partition(relay.Tuple([relay.nn.relu(c), relay.nn.relu(conv())])))) == 2


def test_a_value_used_outside_but_only_for_the_piece_is_computed_twice() -> None:
    pattern = is_op("multiply")(is_op("add")(conv_pattern(), wildcard()), wildcard())
    s = conv() + bias_image
    e = relay.nn.relu(s * relay.sigmoid(s))
    found: Any = pattern.partition(e)
    i, w, b, g = like(image, weight, bias_image, s)
    inside = fn([i, w, b, g], (relay.nn.conv2d(i, w, padding=1) + b) * g, "nn.conv2d_add_multiply_")
    assert_structural_equal(found, relay.nn.relu(inside(image, weight, bias_image, relay.sigmoid(s))))


bias_image = relay.var("bias_image", shape=(1, 8, 8, 8))


def test_overlapping_pieces_the_one_nearest_to_the_result_is_taken() -> None:
    pattern = wildcard() + (wildcard() + wildcard())
    found: Any = pattern.partition(x + (y + (z + x)))
    (piece,) = pieces(found)
    assert piece is found.op
    assert_structural_equal(found.args[2], z + x)


def test_parallel_branches_of_one_input() -> None:
    pattern = is_op("nn.relu")(conv_pattern())
    i, w = like(image, weight)
    f = fn([i, w], relay.nn.relu(relay.nn.conv2d(i, w, padding=1)), "nn.conv2d_nn.relu_")
    found = pattern.partition(relay.nn.relu(conv()) + relay.nn.relu(conv()))
    assert len(pieces(found)) == 2
    assert_structural_equal(pieces(found)[0], f)
    assert_structural_equal(pieces(found)[1], f)
    both = is_op("add")(is_op("nn.relu")(wildcard()), is_op("nn.relu")(wildcard()))
    (a,) = like(x)
    assert_structural_equal(
        both.partition(relay.nn.relu(x) + relay.nn.relu(x)),
        fn([a], relay.nn.relu(a) + relay.nn.relu(a), "nn.relu_nn.relu_add_")(x)
    )


# Checks.
def test_checks() -> None:
    pattern = is_op("nn.relu")(conv_pattern())

    def check(e: Any) -> bool:
        layout: str = e.args[0].attrs.data_layout
        return layout == "NCHW"

    assert len(pieces(pattern.partition(relay.nn.relu(conv()), check=check))) == 1
    e = relay.nn.relu(
        relay.nn.conv2d(
            relay.var("i", shape=(1, 8, 8, 8)), relay.var("w", shape=(3, 3, 8, 8)), data_layout="NHWC",
            kernel_layout="HWIO"
        )
    )
    assert pattern.partition(e, check=check) is e


def test_checks_of_types() -> None:
    pattern = wildcard() + wildcard()
    seen: list[Any] = []

    def check(e: Any) -> bool:
        seen.append(e)
        return bool(e.checked_type.dtype == "float32")

    half = relay.var("h", shape=(4,), dtype="float16")
    assert len(pieces(pattern.partition(x + y, check=check))) == 1
    e = half + half
    assert pattern.partition(e, check=check) is e
    assert seen[-1] is e


@pytest.mark.parametrize("kind", ["if", "let"])
def test_branches_and_lets(kind: str) -> None:
    v, cond = relay.var("v", shape=(4, 4)), relay.var("cond", shape=(), dtype="bool")

    def e(c: Any, a: Any, b: Any) -> Any:
        return relay.If(c, a + b, a - b) if kind == "if" else relay.Let(v, a + b, v * b)

    pattern: DFPattern = is_if(wildcard(), wildcard() + wildcard(), wildcard() - wildcard())
    if kind == "let":
        bound = is_var("v")
        pattern = is_let(bound, wildcard() + wildcard(), bound * wildcard())
    found: Any = pattern.partition(e(cond, x, y))
    assert found.op.attrs.PartitionedFromPattern == ("add_subtract_If_" if kind == "if" else "add_multiply_Let_")
    assert set(found.args) == ({cond, x, y} if kind == "if" else {x, y})
    whole = IRModule.from_expr(relay.Function([cond, x, y], found))
    left, right = (np.full((4, 4), k, "float32") for k in (2, 3))
    np.testing.assert_array_equal(
        evaluate(whole, np.array(True), left, right), left + right if kind == "if" else (left + right) * right
    )


def test_inside_functions() -> None:
    found: Any = (wildcard() + wildcard()).partition(relay.Function([x, y], relay.nn.relu(x + y)))
    assert isinstance(found, relay.Function)
    assert len(pieces(found)) == 1
