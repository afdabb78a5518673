"""Rewriting what patterns match.

Behaviours: a call replaced by another; a pattern inside itself, many times over; several callbacks, of which one makes
what another matches; `pre` and `post`; what `node_map` has; once, and until nothing changes; types that are needed;
algebra; batch normalisation from its parts, alone, in a chain, and with shared parts; batched products of operators
under a dominator; values used elsewhere; what functions, branches, lets and tuples contain; attributes and spans that
stay; functions of the module; deep graphs; a callback that never settles, two that undo each other, one that returns no
expression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import CompileError, Origin
from tilewright.ir import IRModule, assert_structural_equal, structural_equal
from tilewright.relay.dataflow_pattern import (
    DFPattern,
    DFPatternCallback,
    FunctionPattern,
    dominates,
    is_expr,
    is_op,
    is_tuple,
    rewrite,
    wildcard,
)
from tilewright.relay.dataflow_pattern.match import NodeMap
from tilewright.relay.interpreter import evaluate

x, y, z = (relay.var(n, shape=(4, 4)) for n in "xyz")


class Replaced(DFPatternCallback):
    """`make(post, node_map)` in place of `pattern`; counts its calls."""

    def __init__(self, pattern: DFPattern, make: Any, **options: bool) -> None:
        super().__init__(**options)
        self.pattern, self.make, self.calls = pattern, make, 0

    def callback(self, pre: relay.Expr, post: relay.Expr, node_map: NodeMap) -> relay.Expr:
        self.calls += 1
        found: relay.Expr = self.make(post, node_map)
        return found


def subtracted() -> Replaced:
    """add -> subtract."""
    return Replaced(is_op("add")(wildcard(), wildcard()), lambda post, _: relay.subtract(*post.args))


def test_a_call_becomes_another() -> None:
    assert_structural_equal(rewrite(subtracted(), x + y), x - y)
    assert_structural_equal(subtracted().rewrite(x + y), x - y)


def test_every_match_is_rewritten() -> None:
    assert_structural_equal(rewrite(subtracted(), (x + y) + (z + x)), (x - y) - (z - x))


def test_nothing_matches_and_nothing_changes() -> None:
    e = relay.nn.relu(x * y)
    assert rewrite(subtracted(), e) is e
    kept = Replaced(is_op("nn.relu")(None), lambda post, _: post)
    assert rewrite(kept, e) is e
    assert kept.calls == 1


def test_a_match_of_several_calls() -> None:
    a, b, c = wildcard(), wildcard(), wildcard()
    fused = Replaced(a * b + c, lambda _, found: relay.maximum(found[a][0], relay.maximum(found[b][0], found[c][0])))
    assert_structural_equal(rewrite(fused, relay.tanh(z + x * y)), relay.tanh(relay.maximum(x, relay.maximum(y, z))))


def test_pre_is_what_was_matched_and_post_is_over_new_operands() -> None:
    seen = []

    class Look(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__(rewrite_once=True)
            self.inner = wildcard()
            self.pattern = is_op("negative")(self.inner)

        def callback(self, pre: Any, post: Any, node_map: NodeMap) -> relay.Expr:
            seen.append((pre, post, node_map[self.inner][0], node_map[self.pattern][0]))
            return relay.tanh(post.args[0])

    e = relay.negative(relay.negative(x))
    assert_structural_equal(rewrite(Look(), e), relay.tanh(relay.tanh(x)))
    (pre, post, inner, whole), (outer_pre, outer_post, outer_inner, outer_whole) = seen
    assert pre is post is whole is e.args[0]
    assert inner is x
    assert outer_pre is e
    assert outer_post is outer_whole
    assert outer_inner is outer_post.args[0]
    assert outer_post.args[0].op.name == "tanh"


class SimplifyReshapes(DFPatternCallback):
    """reshape(reshape(x)) -> reshape(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.x = wildcard()
        self.pattern = is_op("reshape")(is_op("reshape")(self.x))

    def callback(self, pre: Any, post: Any, node_map: NodeMap) -> relay.Expr:
        return relay.reshape(node_map[self.x][0], newshape=post.attrs.newshape)


def test_rewriting_goes_on_until_nothing_changes() -> None:
    e = relay.reshape(relay.reshape(relay.reshape(relay.reshape(x, (16,)), (2, 8)), (8, 2)), (16, 1))
    assert_structural_equal(rewrite(SimplifyReshapes(), e), relay.reshape(x, (16, 1)))


def test_rewriting_once() -> None:
    wrapped = Replaced(is_op("add")(None), lambda post, _: relay.tanh(post), rewrite_once=True)
    assert_structural_equal(rewrite(wrapped, x + y), relay.tanh(x + y))
    assert wrapped.calls == 1
    # add(add(x, y), z): one match of two adds in a round, so the first round leaves another.
    inner, other = wildcard(), wildcard()
    dropped = Replaced(
        is_op("concatenate")(is_tuple([inner, other])), lambda _, found: found[inner][0], rewrite_once=True
    )
    assert_structural_equal(rewrite(dropped, relay.concatenate([x, y], axis=0)), x)


def test_several_callbacks_of_which_one_makes_what_the_other_matches() -> None:
    to_multiply = Replaced(is_op("add")(wildcard(), wildcard()), lambda post, _: relay.multiply(*post.args))
    to_maximum = Replaced(is_op("multiply")(wildcard(), wildcard()), lambda post, _: relay.maximum(*post.args))
    for order in ([to_multiply, to_maximum], [to_maximum, to_multiply]):
        assert_structural_equal(rewrite(order, (x + y) * z), relay.maximum(relay.maximum(x, y), z))


def test_algebra() -> None:
    value = wildcard()
    zero = is_expr(relay.const(0.0)) | is_expr(relay.const(np.zeros((4, 4), "float32")))
    one = is_expr(relay.const(1.0))
    rules = [
        Replaced(value + zero, lambda _, found: found[value][0]),
        Replaced(value * one, lambda _, found: found[value][0]),
        Replaced(value - value, lambda _, found: relay.const(np.zeros((4, 4), "float32"))),
        Replaced(value / one, lambda _, found: found[value][0]),
    ]
    e = (x + relay.const(0.0)) * relay.const(1.0) + (y - y) / relay.const(1.0)
    assert rewrite(rules, e) is x


def batch_norm_callback() -> DFPatternCallback:
    class BatchNorm(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.mean, self.var, self.beta, self.gamma, self.eps = (wildcard() for _ in range(6))
            self.pattern = self.gamma * (self.x - self.mean) / is_op("sqrt")(self.var + self.eps) + self.beta

        def callback(self, pre: Any, post: Any, node_map: NodeMap) -> relay.Expr:
            data, mean, var, beta, gamma, eps = (
                node_map[p][0] for p in (self.x, self.mean, self.var, self.beta, self.gamma, self.eps)
            )
            return relay.nn.batch_norm(data, gamma, beta, mean, var, epsilon=float(eps.data.numpy()))[0]

    return BatchNorm()


def parts(data: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, commuted: bool = False) -> relay.Expr:
    deviation = relay.sqrt(var + relay.const(1e-5))
    scaled = gamma * ((data - mean) / deviation) if commuted else gamma * (data - mean) / deviation
    result: relay.Expr = beta + scaled if commuted else scaled + beta
    return result


@pytest.mark.parametrize("commuted", [False, True])
def test_batch_normalisation_from_its_parts(commuted: bool) -> None:
    vectors = [relay.var(n, shape=(4,)) for n in ("gamma", "beta", "mean", "var")]
    found = rewrite(batch_norm_callback(), parts(x, *vectors, commuted=commuted))
    assert_structural_equal(found, relay.nn.batch_norm(x, *vectors, epsilon=float(np.float32(1e-5)))[0])


def test_batch_normalisations_in_a_chain() -> None:
    vectors = [relay.var(n, shape=(4,)) for n in ("gamma", "beta", "mean", "var")]
    found = rewrite(batch_norm_callback(), parts(parts(x, *vectors), *vectors))
    eps = float(np.float32(1e-5))
    expected = relay.nn.batch_norm(relay.nn.batch_norm(x, *vectors, epsilon=eps)[0], *vectors, epsilon=eps)[0]
    assert_structural_equal(found, expected)


def test_a_value_inside_a_match_that_is_used_elsewhere() -> None:
    relu_of_add = Replaced(is_op("nn.relu")(is_op("add")(wildcard(), wildcard())), lambda post, _: relay.tanh(post))
    s = x + y
    e = relay.Tuple([relay.nn.relu(s), s])
    assert rewrite(relu_of_add, e) is e
    only_root = Replaced(is_op("nn.relu")(wildcard()), lambda post, _: relay.tanh(post.args[0]))
    assert_structural_equal(rewrite(only_root, e), relay.Tuple([relay.tanh(s), s]))


def test_a_value_used_elsewhere_but_only_for_the_match() -> None:
    c = wildcard()
    pattern = is_op("multiply")(is_op("add")(wildcard(), wildcard()), c)
    s = x + y
    e = relay.nn.relu(s * relay.sigmoid(s))
    assert_structural_equal(
        rewrite(Replaced(pattern, lambda post, found: found[c][0]), e), relay.nn.relu(relay.sigmoid(s))
    )


def test_what_a_dominator_has_above_it() -> None:
    data, weight = relay.var("data", shape=(1, 8, 8, 8)), relay.var("weight", shape=(8, 8, 3, 3))
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    path = wildcard().has_attr({"TOpPattern": 0})(wildcard())
    pattern = dominates(conv, path, is_op("add")(wildcard(), wildcard()))
    gone = Replaced(pattern, lambda _, found: found[conv][0])

    def block(value: Any) -> Any:
        c = relay.nn.conv2d(value, weight, padding=1)
        return relay.nn.relu(c) + relay.nn.leaky_relu(c, alpha=0.1)

    found = rewrite(gone, block(block(block(block(data)))))
    expected: Any = data
    for _ in range(4):
        expected = relay.nn.conv2d(expected, weight, padding=1)
    assert_structural_equal(found, expected)


def test_inside_functions_branches_lets_and_tuples() -> None:
    v = relay.var("v", shape=(4, 4))
    cond = relay.var("cond", shape=(), dtype="bool")

    def whole(op: Any) -> relay.Function:
        inner = relay.Function([z], op(z, z))
        body = relay.Let(v, op(x, y), relay.Tuple([op(v, x), inner(y)]))
        return relay.Function([x, y, cond], relay.If(cond, body, relay.Tuple([op(x, x), y])))

    assert_structural_equal(rewrite(subtracted(), whole(relay.add)), whole(relay.subtract))


def test_functions_keep_their_attributes_and_calls_their_origin() -> None:
    origin = Origin("n", "Add")
    e = relay.Function([x, y], relay.nn.relu(relay.add(x, y), span=origin), attrs={"kept": 1})
    found: Any = rewrite(subtracted(), e)
    assert found.attrs == {"kept": 1}
    assert found.body.span == origin


def test_functions_of_a_partition_are_not_looked_into() -> None:
    e = (wildcard() + wildcard()).partition(x + y)
    assert rewrite(subtracted(), e) is e
    primitive = relay.Function([x, y], x + y, attrs={"Primitive": 1})(x, y)
    assert rewrite(subtracted(), primitive) is primitive


def test_functions_can_be_rewritten() -> None:
    body = wildcard()
    inlined = Replaced(FunctionPattern(None, body)(None), lambda _, found: found[body][0])
    f = relay.Function([], x + y)
    assert_structural_equal(rewrite(inlined, relay.nn.relu(f())), relay.nn.relu(x + y))


def test_types_that_a_callback_needs() -> None:
    needs = Replaced(
        is_op("add")(None).has_dtype("float32"), lambda post, _: relay.subtract(*post.args), require_type=True
    )
    assert_structural_equal(rewrite(needs, x + y), x - y)
    assert_structural_equal(rewrite(needs, relay.Function([x, y], x + y), IRModule()), relay.Function([x, y], x - y))


def test_types_that_cannot_be_known() -> None:
    unknown = relay.var("u")
    needs = Replaced(is_op("add")(None), lambda post, _: relay.subtract(*post.args), require_type=True)
    with pytest.raises(CompileError, match="type"):
        rewrite(needs, relay.Function([unknown], relay.nn.relu(unknown)))


def test_a_rewrite_may_change_types() -> None:
    wide = Replaced(is_op("cast")(is_op("nn.relu")(wildcard())), lambda post, _: post.args[0])
    found = rewrite(wide, relay.tanh(relay.cast(relay.nn.relu(x), "float16")))
    assert found.checked_type == relay.TensorType((4, 4), "float32")


def test_the_first_of_overlapping_matches_is_the_one_nearest_to_the_result() -> None:
    a = wildcard()
    pairs = Replaced(is_op("nn.relu")(is_op("nn.relu")(a)), lambda _, found: relay.tanh(found[a][0]), rewrite_once=True)
    e = relay.nn.relu(relay.nn.relu(relay.nn.relu(x)))
    assert_structural_equal(rewrite(pairs, e), relay.tanh(relay.nn.relu(x)))


def test_equal_results_are_no_change() -> None:
    again = Replaced(is_op("add")(wildcard(), wildcard()), lambda post, _: relay.add(*post.args))
    e = (x + y) + z
    assert_structural_equal(rewrite(again, e), e)
    assert again.calls == 4, "two rounds of two matches"


def test_a_callback_that_never_settles_is_named() -> None:
    class Grow(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__()
            self.pattern = is_op("add")(None)

        def callback(self, pre: Any, post: Any, node_map: NodeMap) -> relay.Expr:
            return relay.tanh(post)

    with pytest.raises(CompileError, match="after 100 rounds Grow still rewrites the graph"):
        rewrite(Grow(), x + y)


def test_callbacks_that_undo_each_other_are_named() -> None:
    class ToAdd(Replaced):
        pass

    class ToSubtract(Replaced):
        pass

    there = ToSubtract(is_op("add")(None), lambda post, _: relay.nn.relu(relay.subtract(*post.args)))
    back = ToAdd(is_op("subtract")(None), lambda post, _: relay.nn.relu(relay.add(*post.args)))
    with pytest.raises(CompileError, match="ToSubtract and ToAdd"):
        rewrite([there, back], x + y)


def test_a_callback_that_returns_no_expression() -> None:
    nothing = Replaced(is_op("add")(None), lambda post, _: None)
    with pytest.raises(
        CompileError, match=r"Replaced\.callback returned None, which is not an expression; return `post`"
    ):
        rewrite(nothing, x + y)


def test_a_callback_without_a_pattern() -> None:
    with pytest.raises(CompileError, match=r"DFPatternCallback has no pattern; set self\.pattern in __init__"):
        rewrite(DFPatternCallback(), relay.var("x"))
    assert not hasattr(DFPatternCallback(), "patern")


def test_a_callback_that_is_not_defined() -> None:
    plain = DFPatternCallback()
    plain.pattern = is_op("add")(None)
    with pytest.raises(NotImplementedError, match="DFPatternCallback has no callback"):
        rewrite(plain, x + y)


def test_a_deep_chain() -> None:
    e: Any = x
    for _ in range(10_000):
        e = relay.nn.relu(e)
    found: Any = rewrite(Replaced(is_op("nn.relu")(wildcard()), lambda post, _: relay.tanh(post.args[0])), e)
    count = 0
    while isinstance(found, relay.Call):
        assert found.op.name == "tanh"
        found, count = found.args[0], count + 1
    assert (found, count) == (x, 10_000)


def test_rewriting_keeps_the_meaning() -> None:
    value, other = wildcard(), wildcard()
    double = Replaced(value + value, lambda _, found: found[value][0] * relay.const(2.0))
    square = Replaced(
        value * value + other,
        lambda _, found: relay.add(found[other][0], relay.power(found[value][0], relay.const(2.0)))
    )
    e = relay.Function([x, y], relay.tanh((x + x) * (x + x) + (y + y)))
    found = rewrite([double, square], e)
    assert not structural_equal(found, e)
    inputs = [np.random.default_rng(k).standard_normal((4, 4)).astype("float32") for k in range(2)]
    np.testing.assert_allclose(
        evaluate(IRModule.from_expr(found), *inputs), evaluate(IRModule.from_expr(e), *inputs), rtol=1e-5, atol=1e-6
    )
