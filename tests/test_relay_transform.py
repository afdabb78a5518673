"""What every graph pass must do: keep values, keep modules well formed, be done after one run, take deep graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import random_graphs
from tilewright import relay
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.types import TensorType
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.analysis import calls, check_well_formed, post_order
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Tuple, const, var
from tilewright.relay.interpreter import apply_op, evaluate
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.transform import graph_passes, optimize, plan_memory
from tilewright.relay.transform.fuse_ops import is_view, kind_of
from tilewright.relay.transform.permutations import between, carried, compose, moves_nothing
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, MemorySpace
from tilewright.relay.visitor import rewrite
from tilewright.topi.shapes import inverse


def check_close(left: Any, right: Any) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("seed", range(60))
def test_every_pass_keeps_the_values_of_random_graphs(seed: int) -> None:
    mod = IRModule.from_expr(random_graphs.Graph(seed).function(25))
    expected = evaluate(mod, *random_graphs.inputs())
    for p in graph_passes().passes:
        after = p(mod)
        check_well_formed(after)
        check_close(evaluate(after, *random_graphs.inputs()), expected)
        assert_structural_equal(p(after), after)
        mod = after
    check_kernels(mod["main"])
    for limit in (None, 1):  # with one, steps are done in another order
        check_close(run_plan(plan_memory(mod["main"], limit), random_graphs.inputs()), expected)


def check_kernels(main: Function) -> None:
    """Every call is of a primitive function of tensors without constants, around at most one anchor."""
    for call in calls(main, inside=False):
        function = call.op
        assert isinstance(function, Function) and function.attrs["Primitive"] == 1
        assert all(isinstance(p.type_annotation, TensorType) for p in function.params)
        inside = post_order(function.body)
        assert not any(isinstance(e, Constant) for e in inside)
        members = [e for e in inside if isinstance(e, Call)]
        assert sum(kind_of(c) >= Fusion.REDUCE for c in members) <= 1
        assert bool(function.attrs.get("reshape_only")) == all(is_view(c) for c in members)


def run_plan(plan: MemoryPlan, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Run a plan in real memory, which starts as garbage, kernel by kernel."""
    workspace = np.full(plan.workspace_bytes, 0xA5, np.uint8)
    outputs = [np.full(t.shape, 7, t.dtype.numpy()) for t in plan.outputs]

    def at(place: Location) -> np.ndarray[Any, Any]:
        t = place.type
        if place.place is MemorySpace.WORKSPACE:
            return np.ndarray(t.shape, t.dtype.numpy(), workspace, place.index, place.strides)
        if place.place is MemorySpace.CONSTANT:
            return plan.constants[place.index].reshape(t.shape)
        source = (inputs if place.place is MemorySpace.INPUT else outputs)[place.index]
        return np.ndarray(t.shape, t.dtype.numpy(), source, place.skip, place.strides)

    for step in plan.steps:
        values = [at(place).copy() for place in step.inputs]
        results = values if step.call is None else evaluate(step.call.op, *values)
        for place, value in zip(
            step.outputs, results if isinstance(results, (tuple, list)) else [results], strict=True
        ):
            at(place)[...] = value
    return outputs


def deep_chain(length: int) -> IRModule:
    x = var("x", shape=(4, 4))
    e: Expr = x
    for k in range(length):
        e = relay.nn.relu(e) if k % 3 else relay.add(e, const(1.0))
    return IRModule.from_expr(Function((x,), e))


@pytest.mark.slow
def test_deep_chains_go_through_every_pass() -> None:
    mod = deep_chain(10_000)
    expected = evaluate(mod, np.ones((4, 4), "float32"))
    for p in graph_passes().passes:
        mod = p(mod)
    plan = plan_memory(mod["main"])
    np.testing.assert_allclose(run_plan(plan, [np.ones((4, 4), "float32")])[0], expected)
    assert plan.workspace_bytes == 128


def test_levels_of_optimisation_agree() -> None:
    mod = IRModule.from_expr(random_graphs.Graph(3).function(25))
    expected = evaluate(mod, *random_graphs.inputs())
    counts = []
    for level in (0, 1, 2, 3, 4):
        with PassContext(opt_level=level):
            after = optimize(mod)
        check_close(evaluate(after, *random_graphs.inputs()), expected)
        counts.append(len(calls(after["main"], inside=False)))
    assert counts[0] > counts[2] == counts[3]


def test_the_size_of_kernels_is_an_option() -> None:
    with PassContext(config={"relay.FuseOps.max_depth": 4}):
        after = optimize(deep_chain(40))
    assert all(len(calls(c.op)) <= 4 for c in calls(after["main"], inside=False) if isinstance(c.op, Function))


def test_channels_last_is_an_option() -> None:
    x = var("x", shape=(1, 4, 6, 6))
    mod = IRModule.from_expr(
        relay.nn.conv2d(x, const(np.ones((8, 4, 3, 3), "float32")), kernel_size=(3, 3), channels=8)
    )
    with PassContext(config={"relay.ConvertLayout.enabled": False}):
        assert transform.ConvertLayout()(mod) is mod
    assert transform.ConvertLayout()(mod) is not mod


def test_folding_has_a_limit() -> None:
    mod = IRModule.from_expr(Function((), relay.add(const(np.ones((4, 4), "float32")), const(1.0))))
    with PassContext(config={"relay.FoldConstant.max_bytes": 63}):
        assert transform.FoldConstant()(mod) is mod
    with PassContext(config={"relay.FoldConstant.max_bytes": 64}):
        assert isinstance(transform.FoldConstant()(mod)["main"].body, Constant)


def test_weights_are_not_copied_by_the_pipeline() -> None:
    weight = np.ones((8, 4, 3, 3), "float32")
    x = var("x", shape=(1, 4, 6, 6))
    mod = optimize(
        IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, Constant(weight), kernel_size=(3, 3), channels=8)))
    )
    (found,) = [c for c in plan_memory(mod["main"]).constants if c.size == weight.size]
    assert np.shares_memory(found, weight)


def test_biases_meet_when_the_scale_between_them_is_folded_away() -> None:
    random = np.random.default_rng(0)
    x, weight, bias = var(
        "x", shape=(1, 4, 6, 6)
    ), random.standard_normal((8, 4, 3, 3), "float32"), random.standard_normal((8, 1, 1), "float32")
    made = relay.add(relay.nn.conv2d(x, Constant(weight), kernel_size=(3, 3), channels=8), Constant(bias))
    mod = IRModule.from_expr(relay.add(relay.multiply(made, const(0.5)), const(0.25)))
    after = optimize(mod)
    assert str(after["main"]).count("add(") == 1
    assert "multiply(" not in str(after["main"])
    value = random.standard_normal((1, 4, 6, 6), "float32")
    np.testing.assert_allclose(evaluate(after, value), evaluate(mod, value), rtol=1e-5, atol=1e-5)


def test_external_functions_are_left_alone() -> None:
    x, p = var("x", shape=(2,)), var("p", shape=(2,))
    outside = Function((p,), relay.add(relay.exp(p), const(0.0)), attrs={"Compiler": "npu", "global_symbol": "npu_0"})
    mod = IRModule({"npu_0": outside})
    mod["main"] = Function((x,), relay.nn.relu(Call(mod.get_global_var("npu_0"), [relay.nn.relu(x)])))
    after = optimize(mod)
    assert len(calls(after["main"], inside=False)) == 3
    value = np.array([1.0, -2.0], "float32")
    np.testing.assert_allclose(evaluate(after, value), evaluate(mod, value))


def test_results_that_no_kernel_makes_are_copied() -> None:
    x = var("x", shape=(4,))
    y = relay.exp(x)
    mod = optimize(
        IRModule.from_expr(Function((x,), Tuple((x, const([1.0, 2.0]), y, y, relay.reshape(y, newshape=(2, 2))))))
    )
    plan = plan_memory(mod["main"])
    assert [s.call is None for s in plan.steps] == [False, True, True, True, True]
    value = np.arange(4, dtype="float32")
    check_close(
        run_plan(plan, [value]),
        [value, np.array([1, 2], "float32"), np.exp(value), np.exp(value), np.exp(value).reshape(2, 2)]
    )
    assert plan.workspace_bytes == 0
    assert "copy: input[0]: Tensor[(4), float32] -> output[0]: Tensor[(4), float32]" in repr(plan)


def test_equal_arrays_are_one_constant() -> None:
    x, array = var("x", shape=(4, 4)), np.ones((4, 4), "float32")
    body = relay.nn.dense(relay.nn.dense(x, Constant(array)), Constant(array))
    assert len(plan_memory(optimize(IRModule.from_expr(Function((x,), body)))["main"]).constants) == 1


def test_memory_is_reused() -> None:
    x = var("x", shape=(16, 16))
    e: Expr = x
    for _ in range(20):
        e = relay.nn.dense(e, const(np.ones((16, 16), "float32")))
    assert plan_memory(optimize(IRModule.from_expr(Function((x,), e)))["main"]).workspace_bytes == 2 * 16 * 16 * 4


def test_the_plan_refuses_what_it_cannot_do() -> None:
    from tilewright.scalar.expr import Var as Size

    n = Size("n")
    x, c = var("x", TensorType((n, 4))), var("c", TensorType((), "bool"))
    with pytest.raises(
        CompileError,
        match=r"the shape of Tensor\[\(n, 4\), float32\] is symbolic; fix the input shapes before compiling"
    ):
        plan_memory(Function((x,), relay.nn.relu(x)))
    y = var("y", shape=(2,))
    with pytest.raises(
        CompileError,
        match="an expression of the kind If cannot be compiled to straight-line code; only calls and tuples can"
    ):
        plan_memory(Function((c, y), If(c, y, relay.nn.relu(y))))
    with pytest.raises(CompileError, match="the variable 'x' is bound by a let; convert to graph form first"):
        plan_memory(Function((), relay.nn.relu(var("x", shape=(2,)))))
    pair = var("pair", Tuple((y, y)).known_type())
    with pytest.raises(CompileError, match="input 'pair' is a tuple; pass its tensors as separate inputs"):
        plan_memory(Function((pair,), pair))


def test_a_rule_that_changes_a_type_is_a_fault() -> None:
    x = var("x", shape=(2,))

    def wrong(e: Expr) -> Expr | None:
        return const([1.0, 2.0, 3.0]) if isinstance(e, Call) else None

    with pytest.raises(
        InternalError,
        match=r"the rule .*wrong replaced a value of type Tensor\[\(2\), float32\] by one of type Tensor\[\(3\), "
        r"float32\]"
    ):
        rewrite(relay.nn.relu(x), wrong)


def test_permutations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(int(d) for d in rng.integers(1, 4, 4))
        p, q = (tuple(int(i) for i in rng.permutation(4)) for _ in range(2))
        x = rng.standard_normal(shape)
        stored = x.transpose(p)
        np.testing.assert_array_equal(stored.transpose(inverse(p)), x)
        np.testing.assert_array_equal(stored.transpose(q), x.transpose(compose(p, q)))
        np.testing.assert_array_equal(stored.transpose(between(p, q, 4)), x.transpose(q))
        if moves_nothing(p, shape):
            np.testing.assert_array_equal(x.reshape(stored.shape), stored)


def test_a_reshape_of_a_permuted_value() -> None:
    rng = np.random.default_rng(1)
    kept = 0
    for _ in range(500):
        shape = tuple(int(d) for d in rng.choice([1, 2, 3, 4], 4))
        perm = tuple(int(i) for i in rng.permutation(4))
        x = rng.standard_normal(shape)
        after = shape[:1] + (shape[1] * shape[2],) + shape[3:] if rng.random() < 0.5 else (*shape[:2], 1, *shape[2:])
        order = carried(perm, shape, after)
        if order is not None:
            kept += 1
            wanted = x.reshape(after).transpose(order)
            np.testing.assert_array_equal(x.transpose(perm).reshape(wanted.shape), wanted)
    assert kept > 100


@pytest.mark.parametrize(
    ("asked", "runs"),
    [({}, False), ({"opt_level": 3}, False), ({"opt_level": 4}, True), ({"required_pass": ["FastMath"]}, True)]
)
def test_passes_of_the_highest_level_run_where_they_are_asked_for(asked: dict[str, Any], runs: bool) -> None:
    x = var("x", shape=(4, 8))
    image = relay.reshape(relay.exp(x), (1, 8, 2, 2))
    branches = [relay.nn.conv2d(image, const(np.full((16, 8, 1, 1), k, "float32"))) for k in range(3)]
    with PassContext(**asked):
        after = str(optimize(IRModule.from_expr(Function((x,), Tuple(branches)))))
    assert ("fast_exp" in after) == runs
    assert after.count("nn.conv2d") == (1 if asked.get("opt_level") == 4 else 3)


def test_passes_change_nothing_where_nothing_is_to_do() -> None:
    x = var("x", shape=(4, 4))
    mod = IRModule.from_expr(Function((x,), relay.tanh(relay.nn.relu(x))))
    for p in graph_passes().passes[:-1]:
        assert p(mod) is mod or p.info.opt_level == 4, p.name


def test_the_interpreter_runs_the_branch_that_is_taken_and_names_wrong_inputs() -> None:
    c, x = var("c", TensorType((), "bool")), var("x", shape=(2,))
    program = Function((c, x), If(c, relay.nn.relu(x), relay.negative(x)))
    value = np.array([-1.0, 2.0], "float32")
    np.testing.assert_array_equal(evaluate(program, np.array(True), value), [0, 2])
    np.testing.assert_array_equal(evaluate(program, np.array(False), value), [1, -2])
    from tilewright.base.errors import InputError

    with pytest.raises(InputError, match="1 inputs were given, but the function has 2: c, x"):
        evaluate(program, value)
    with pytest.raises(
        InputError, match=r"input 'x' has type Tensor\[\(2\), float32\], but was given float64 of shape \(2,\)"
    ):
        evaluate(program, np.array(True), value.astype("float64"))


def test_every_operator_of_a_kernel_is_an_operator() -> None:
    x = var("x", shape=(2,))
    call = relay.nn.relu(x)
    assert isinstance(call.op, Op)
    np.testing.assert_array_equal(apply_op(call, [np.array([-1.0, 1.0], "float32")]), [0, 1])
