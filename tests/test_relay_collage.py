"""Parts of a graph for several targets by cost: the choice is the cheapest there is, against trying all; and what the
pass makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.offload_kinds import register_offload_kind
from tilewright.backends.targets.compilation_config import make_compilation_config
from tilewright.base.errors import CompileError, OptionError
from tilewright.compat.registry import register_func, remove_global_func
from tilewright.ir import IRModule, register_op_attr, reset_op_attr
from tilewright.relay.analysis import check_well_formed
from tilewright.relay.collage import (
    Candidate,
    CostEstimator,
    CustomCostEstimator,
    CycleCostEstimator,
    MeasureCostEstimator,
    MockCostEstimator,
    Plan,
    candidates_of,
    cheapest_plan,
)
from tilewright.relay.collage.largest import largest
from tilewright.relay.dataflow_pattern import is_constant, is_op, is_tuple_get_item, wildcard
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.contrib import register_pattern_table
from tilewright.relay.transform import CollagePartition, InferType
from tilewright.relay.visitor import operands, post_order

x, y, z = (relay.var(n, shape=(4, 4)) for n in "xyz")
ADD_RELU = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
MUL_ADD = is_op("add")(is_op("multiply")(wildcard(), wildcard()), wildcard())
REGISTERED: list[tuple[str, str]] = []


def supports(target: str, *names: str) -> None:
    for name in names:
        register_op_attr(name, f"target.{target}", lambda call: True)
        REGISTERED.append((name, f"target.{target}"))


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    yield
    while REGISTERED:
        reset_op_attr(*REGISTERED.pop())
    for target in ("one", "two"):
        register_pattern_table(target, list)


def typed(body: Any) -> relay.Function:
    function: relay.Function = InferType()(IRModule.from_expr(body))["main"]
    return function


def calls(function: relay.Function) -> list[Any]:
    return [e for e in post_order(function) if isinstance(e, relay.Call)]


# Trying all: every way of covering the calls, its cost counted anew from the graph.
def every_choice(left: frozenset[Any], parts: list[Candidate]) -> Iterator[list[Candidate]]:
    if not left:
        yield []
        return
    first = next(e for part in parts for e in part.calls if e in left)
    for part in parts:
        if first in part.calls and part.calls <= left:
            for rest in every_choice(left - part.calls, parts):
                yield [part, *rest]


def through_tuples(e: Any) -> list[Any]:
    if isinstance(e, (relay.Tuple, relay.TupleGetItem)):
        return [v for o in operands(e) for v in through_tuples(o)]
    return [e]


def cost_of(choice: list[Candidate], function: relay.Function, estimator: CostEstimator) -> float:
    home = {e: part.target for part in choice for e in part.calls}
    inside = {e: part for part in choice for e in part.calls}
    handed = set()
    for e in [*calls(function), None]:
        for v in (v for o in ((function.body,) if e is None else e.args) for v in through_tuples(o)):
            here, there = home.get(v, "default"), "default" if e is None else home[e]
            if not isinstance(v, relay.Constant) and here != there and (e is None or inside.get(v) is not inside[e]):
                handed.add((v, here, there))
    sizes = {
        v: sum(t.nbytes for t in (v.checked_type.fields if hasattr(v.checked_type, "fields") else [v.checked_type]))
        for v, _, _ in handed
    }
    return sum(
        estimator.estimate(p.function, p.target) for p in choice
    ) + sum(estimator.transfer(sizes[v], a, b) for v, a, b in handed)


def check_cheapest(function: relay.Function, parts: list[Candidate], estimator: CostEstimator) -> Plan:
    plan = cheapest_plan(function, parts, estimator)
    every = list(every_choice(frozenset(calls(function)), parts))
    assert plan.cost == pytest.approx(min(cost_of(c, function, estimator) for c in every))
    assert plan.cost == pytest.approx(cost_of(list(plan.parts), function, estimator))
    assert sorted(map(id, itertools.chain(*(p.calls for p in plan.parts)))) == sorted(map(id, calls(function)))
    return plan


def random_function(rng: np.random.Generator, length: int) -> relay.Function:
    unary, binary = ("nn.relu", "tanh", "negative"), ("add", "multiply", "maximum")
    values: list[Any] = [x, y]
    for _ in range(length):
        name = str(rng.choice([*unary, *binary, "split"]))
        a, b = (values[int(i)] for i in rng.integers(max(0, len(values) - 4), len(values), 2))
        if name == "split":
            halves = relay.split(a, 2, axis=0)
            values.append(relay.concatenate([halves[1], halves[0]], axis=0))
        else:
            values.append(relay.op.get(name)()(*(a, b)[: 1 if name in unary else 2]))
    return typed(relay.Function([x, y], relay.Tuple(values[-2:])))


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_choice_against_all(seed: int) -> None:
    """Random graphs, costs and targets, with and without a price for handing over."""
    rng = np.random.default_rng(seed)
    register_pattern_table(
        "one",
        lambda: [
            ("one.add_relu", ADD_RELU), ("one.add", is_op("add")(wildcard(), wildcard())), ("one.mul_add", MUL_ADD)
        ]
    )
    register_pattern_table(
        "two", lambda: [("two.mul_add", MUL_ADD), ("two.tanh_neg", is_op("negative")(is_op("tanh")(wildcard())))]
    )
    supports("two", *[str(n) for n in rng.choice(["add", "nn.relu", "tanh", "maximum"], 2, replace=False)])
    prices: dict[Any, float] = {}

    def price(function: relay.Function, target: str) -> float:
        key = (target, tuple(e.op.name for e in calls(function) if hasattr(e.op, "name")))
        return prices.setdefault(key, float(rng.integers(1, 12)))

    latency = float(rng.integers(0, 4))
    estimator = CustomCostEstimator(
        price, lambda nbytes, source, destination: latency + nbytes / 64 * (source != "default") if seed % 3 else 0.0
    )
    function = random_function(rng, 6)
    check_cheapest(function, candidates_of(function, ["one", "two"], host_depth=3), estimator)


def test_what_could_be_taken() -> None:
    register_pattern_table(
        "one", lambda: [("one.add_relu", ADD_RELU), ("one.small", is_op("tanh")(wildcard()), lambda e: False)]
    )
    supports("two", "add")
    s = x + y
    function = typed(relay.tanh(relay.nn.relu(s)))
    found = sorted(map(repr, candidates_of(function, ["one", "two"])))
    assert found == [
        "<default: add+nn.relu+tanh>", "<default: add+nn.relu>", "<default: add>", "<default: nn.relu+tanh>",
        "<default: nn.relu>", "<default: tanh>", "<one: one.add_relu>", "<two: add>"
    ]
    (composite,) = [c for c in candidates_of(function, ["one"]) if c.target == "one"]
    assert composite.function.attrs["Compiler"] == "one"
    called = composite.function.body
    assert isinstance(called, relay.Call) and called.op.attrs["Composite"] == "one.add_relu"
    escaping = typed(relay.Tuple([relay.nn.relu(s), relay.tanh(s)]))
    assert not [c for c in candidates_of(escaping, ["one"]) if c.name == "one.add_relu"]
    c = relay.var("c", shape=(), dtype="bool")
    branch = typed(relay.Function([c, x, y], relay.If(c, relay.nn.relu(s), s)))
    assert not [
        p for p in candidates_of(branch, ["one"]) if len({e.op.name for e in p.calls if isinstance(e, relay.Call)}) > 1
    ], "no part reaches into a branch"


def test_a_large_part_against_small_ones_that_are_cheaper_together() -> None:
    """The rows in order would take the first; the costs decide."""
    register_pattern_table("one", lambda: [("one.add_relu", ADD_RELU)])
    supports("two", "nn.relu")
    function = typed(relay.nn.relu(x + y))

    def choose(one: float, two: float) -> list[str]:
        costs = {"one": one, "two": two, "default": 4.0}
        plan = check_cheapest(
            function, candidates_of(function, ["one", "two"]), CustomCostEstimator(lambda f, target: costs[target])
        )
        return [repr(p) for p in plan.parts]

    assert choose(1.0, 1.0) == ["<one: one.add_relu>"]
    assert choose(9.0, 9.0) == ["<default: add+nn.relu>"]
    assert choose(9.0, -1.0) == ["<default: add>", "<two: nn.relu>"]


def test_handing_over_keeps_neighbours_together() -> None:
    supports("one", "tanh", "nn.relu", "negative")
    function = typed(relay.negative(relay.nn.relu(relay.tanh(x))))
    per_op = {"nn.relu": 3.0}

    def price(f: relay.Function, target: str) -> float:
        (name,) = [e.op.name for e in calls(f)]
        return per_op.get(name, 0.5) if target == "one" else 1.0

    def homes(latency: float) -> list[str]:
        parts = candidates_of(function, ["one"], host_depth=1)
        return [
            p.target for p in check_cheapest(function, parts, CustomCostEstimator(price, lambda n, a, b: latency)).parts
        ]

    assert homes(0.0) == ["one", "default", "one"]
    assert homes(0.2) == ["one", "default", "one"], "2.8 against 3.0"
    assert homes(5.0) == ["default", "default", "default"]


def test_a_value_is_handed_over_once() -> None:
    supports("one", "tanh", "negative")
    r = relay.nn.relu(x)
    function = typed(relay.Tuple([relay.tanh(r), relay.negative(r)]))
    estimator = CustomCostEstimator(
        lambda f, t: 0.0 if t == "one" else 100.0 if len(calls(f)) > 1 or calls(f)[0].op.name != "nn.relu" else 1.0,
        lambda n, a, b: 1.0
    )
    plan = check_cheapest(function, candidates_of(function, ["one"], host_depth=1), estimator)
    assert plan.cost == 1.0 + 1.0 + 2.0, "relu; its value once for two; two results"


def test_the_pass_makes_functions_of_the_cheapest() -> None:
    register_pattern_table("one", lambda: [("one.add_relu", ADD_RELU)])
    supports("two", "tanh", "multiply")
    costs = MockCostEstimator({"one": 1.0, "two": 1.0, "default": 5.0})
    mod = IRModule.from_expr(relay.exp(relay.tanh(relay.nn.relu(x + y)) * relay.nn.relu(x + z)))
    after = CollagePartition(["one", "two"], costs)(mod)
    check_well_formed(after)
    made = {n: f for n, f in after.items() if n != "main"}
    assert sorted(f.attrs.Compiler for f in made.values()) == ["one", "one", "two"]
    assert sorted(len(calls(f)) for f in made.values()) == [2, 3, 3]
    (two,) = (f for f in made.values() if f.attrs.Compiler == "two")
    assert [e.op.name for e in calls(two)] == ["tanh", "multiply"], "neighbours of one target are one function"
    values = [np.random.default_rng(k).standard_normal((4, 4)).astype("float32") for k in range(3)]
    np.testing.assert_array_equal(evaluate(after, *values), evaluate(mod, *values))
    everything_here = CollagePartition(["one", "two"], MockCostEstimator({"one": 9.0, "two": 9.0, "default": 1.0}))(mod)
    assert list(everything_here) == ["main"]


def test_fields_of_tuples_constants_and_a_pattern_that_ends_in_a_field() -> None:
    image, vectors = relay.var("i", shape=(1, 4, 2, 2)), [relay.const(np.full(4, k + 1.0, "float32")) for k in range(4)]
    pattern = is_tuple_get_item(is_op("nn.batch_norm")(wildcard(), *[is_constant() for _ in range(4)]), 0)
    register_pattern_table("one", lambda: [("one.norm", pattern)])
    mod = IRModule.from_expr(relay.nn.relu(relay.nn.batch_norm(image, *vectors)[0]))
    after = CollagePartition("one", MockCostEstimator({"one": 1.0, "default": 5.0}))(mod)
    check_well_formed(after)
    assert [f.attrs.Compiler for n, f in after.items() if n != "main"] == ["one"]
    value = np.random.default_rng(0).standard_normal((1, 4, 2, 2)).astype("float32")
    np.testing.assert_allclose(evaluate(after, value), evaluate(mod, value), rtol=1e-6)


def test_measured_and_modelled_costs() -> None:
    """A target that registers its own model is asked; what has none is compiled and timed."""
    supports("one", "tanh")
    register_func("relay.ext.one.cost", lambda function: 1e-12 * len(calls(function)))
    try:
        estimator = MeasureCostEstimator(repeat=1, number=1)
        function = typed(relay.tanh(x))
        parts = candidates_of(function, ["one"])
        measured = {p.target: estimator.estimate(p.function, p.target) for p in parts}
        assert measured["one"] == 1e-12
        assert measured["default"] > 1e-9
        after = CollagePartition(["one"], estimator)(IRModule.from_expr(relay.tanh(x)))
        assert [f.attrs.Compiler for n, f in after.items() if n != "main"] == ["one"]
    finally:
        remove_global_func("relay.ext.one.cost")


class Counted:
    """A program of as many cycles as it has calls."""

    def __init__(self, function: relay.Function) -> None:
        self.total = 10 * len(calls(function))
        self.numerics = function.attrs.get("numerics")

    def cycles(self) -> Counted:
        seen.append(self.numerics)
        return self


seen: list[Any] = []


def test_costs_by_the_cycles_of_programs() -> None:
    """How fast the clock of a target is decides, and what it costs to get there; the rounding of a network goes with
    its parts."""
    supports("one", "tanh")
    register_func("relay.ext.one", Counted)
    register_func("relay.ext.two", lambda function: object())
    try:
        mod = IRModule({"main": relay.Function([x], relay.tanh(x), attrs={"numerics": "tflite"})})
        slow = CustomCostEstimator(lambda f, target: 1e-6)
        for hertz, latency, count in ((1e9, 0.0, 1), (1e3, 0.0, 0), (1e9, 1e-6, 0)):
            estimator = CycleCostEstimator({"one": hertz}, slow, latency)
            assert len(CollagePartition("one", estimator)(mod)) == 1 + count
        assert seen == ["tflite"] * 3
        assert CycleCostEstimator({}, slow, 1.0, 100.0).transfer(50, "default", "one") == 1.5
        with pytest.raises(
            OptionError,
            match=r"the programs for 'two' have no cycle counts: object has no method cycles\(\); register "
            r"relay\.ext\.two\.cost"
        ):
            CycleCostEstimator({"two": 1.0}).estimate(mod["main"], "two")
        with pytest.raises(
            OptionError, match=r"the programs for 'three' have no cycle counts: relay\.ext\.three is not registered"
        ):
            CycleCostEstimator({"three": 1.0}).estimate(mod["main"], "three")
    finally:
        remove_global_func("relay.ext.one")
        remove_global_func("relay.ext.two")


def test_what_no_one_can_compute() -> None:
    supports("one", "tanh")
    estimator = CustomCostEstimator(
        lambda f, target: float("inf") if any(e.op.name == "nn.relu" for e in calls(f)) else 1.0
    )
    with pytest.raises(
        CompileError, match=r"no target can compute nn\.relu: every part that contains it has infinite cost"
    ):
        CollagePartition("one", estimator)(IRModule.from_expr(relay.nn.relu(relay.tanh(x))))
    function = typed(relay.nn.relu(relay.tanh(relay.exp(x))))
    pair = [c for c in candidates_of(function, [], host_depth=2) if len(c.calls) == 2]
    with pytest.raises(
        CompileError, match="no combination of parts computes every call, because the parts overlap"
    ):
        cheapest_plan(function, pair, MockCostEstimator({"default": 1.0}))
    with pytest.raises(OptionError, match=r"CostEstimator has no method estimate\(function, target\)"):
        CostEstimator().estimate(function, "one")


def test_deep_and_wide_graphs() -> None:
    supports("one", "nn.relu", "add")
    e: Any = x
    for i in range(300):
        e = relay.nn.relu(e) + e if i % 3 else relay.tanh(e)
    estimator = CustomCostEstimator(lambda f, target: 1.0 if target == "one" else 2.0, lambda n, a, b: 0.25)
    plan = cheapest_plan(function := typed(e), candidates_of(function, ["one"], host_depth=2), estimator)
    assert len(plan.parts) >= 300
    assert tvm.ir.structural_equal(function, typed(e))


# Parts given by their nodes.
def by_index(function: relay.Function, indexes: dict[str, list[int]], exits: int = 1, taps: bool = False) -> Any:
    pairs = [(k, label) for label, own in indexes.items() for k in own]
    outline = tvm.get_global_func("relay.collage.PartitionForTesting")(
        exits, taps, "foo", [k for k, _ in pairs], [label for _, label in pairs])
    return InferType()(outline(IRModule({"main": function})))["main"]


def same_values(function: relay.Function, found: relay.Function) -> None:
    data = [np.random.default_rng(k).normal(size=(4, 4)).astype("float32") for k in range(len(function.params))]
    np.testing.assert_allclose(
        np.asarray(evaluate(found, *data)), np.asarray(evaluate(function, *data)), rtol=1e-6)


def test_a_part_with_several_results_returns_a_tuple() -> None:
    """add(relu(x + y), x + y) -> %0 = fn (p, q) { (p + q, relu(p + q)) }(x, y); add(%0.1, %0.0)"""
    total = x + y
    function = typed(relay.add(relay.nn.relu(total), total))
    indexes = {"": [4, 5]}  # x, y and the operators have 0 to 3
    found = by_index(function, indexes, exits=2, taps=True)
    outer = [e for e in calls(found) if isinstance(e.op, relay.Function)]
    assert len(outer) == 1
    assert outer[0].op.attrs["Compiler"] == "foo"
    assert isinstance(outer[0].op.body, relay.Tuple)
    same_values(function, found)
    for kept in (by_index(function, indexes, exits=2), by_index(function, indexes, exits=1, taps=True)):
        assert not any(isinstance(e.op, relay.Function) for e in calls(kept)), "a tap, and too many results"
    with pytest.raises(OptionError, match="no value of the function has the index 99; the values have 0, 1, "):
        by_index(function, {"": [99]})


def test_labels_are_composite_functions_inside_and_parts_make_no_cycles() -> None:
    first = relay.nn.relu(x)
    second = relay.nn.relu(first)
    function = typed(relay.nn.relu(second + first))
    found = by_index(function, {"": [3, 6], "inner": [4, 5]})  # x and the operators have 0 to 2
    (outer,) = [e for e in calls(found) if isinstance(e.op, relay.Function) and "Compiler" in e.op.attrs]
    (inner,) = [e for e in calls(outer.op) if isinstance(e.op, relay.Function)]
    assert inner.op.attrs["Composite"] == "inner"
    same_values(function, found)
    cycle = by_index(function, {"": [3, 5]}, exits=2, taps=True)
    assert not any(isinstance(e.op, relay.Function) for e in calls(cycle))


# Targets as a configuration, with TVM's options and names.
LINE = 'def @main(%x: Tensor[(4, 4), float32]) { %0 = nn.relu(%x); %1 = nn.relu(%0); nn.relu(%1) }'


def configured(text: str, host: float, one: float, host_depth: int = 1, depth: int = 1, most: int = 0) -> IRModule:
    register_offload_kind("one", {})
    register_pattern_table("one", lambda: [
        ("relu", is_op("nn.relu")(wildcard())), ("add", is_op("add")(wildcard(), wildcard()))])
    options = {"relay.collage.tvm_max_depth": host_depth, "relay.collage.byoc_max_depth": depth}
    with tvm.transform.PassContext(config=options) as context:
        config = make_compilation_config(context, [tvm.target.Target("llvm"), tvm.target.Target("one")])
        mod = relay.fromtext('#[version = "0.0.5"]\n' + text)
        found: IRModule = CollagePartition(config, MockCostEstimator({"llvm": host, "one": one}, most))(mod)
    check_well_formed(found)
    data = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    np.testing.assert_array_equal(evaluate(found, data), evaluate(mod, data))
    return found


@pytest.mark.parametrize(("host", "one", "host_depth", "depth", "names"), [
    (100, 99, 1, 1, ["main", "collage_one"]),
    (100, 99, 2, 1, ["main", "collage_one_nn_relu"]),
    (100, 99, 3, 1, ["main"]),
    (99, 100, 1, 1, ["main"]),
    (99, 100, 1, 2, ["main", "collage_one_nn_relu_nn_relu"]),
    (99, 100, 1, 3, ["main", "collage_one_nn_relu_nn_relu_nn_relu"])])
def test_the_depths_of_parts(host: float, one: float, host_depth: int, depth: int, names: list[str]) -> None:
    assert sorted(configured(LINE, host, one, host_depth, depth)) == sorted(names)


def test_parts_that_read_each_other_share_a_function_unless_a_value_leads_around() -> None:
    """abs is computed by the host between relu and the sums of both."""
    text = ("def @main(%x: Tensor[(4, 4), float32]) "
            "{ %0 = nn.relu(%x); %1 = abs(%0); %2 = add(%0, %1); add(%1, %2) }")
    found = configured(text, 2, 1)
    assert sorted(found) == ["collage_one", "collage_one_nn_relu", "main"]
    sums = found["collage_one"]
    assert dict(sums.attrs) == {"Primitive": 1, "Compiler": "one", "global_symbol": "collage_one"}
    assert [e.op.attrs["Composite"] for e in calls(sums) if isinstance(e.op, relay.Function)] == ["add", "add"]
    several = configured(
        "def @main(%x: Tensor[(4, 4), float32]) { %0 = nn.relu(%x); %1 = nn.relu(%0); (%0, %1, abs(%1)) }", 2, 1, 2, 2)
    assert isinstance(several["collage_one"].body, relay.Tuple)


def test_only_the_largest_parts_are_estimated() -> None:
    text = ("def @main(%x: Tensor[(4, 4), float32]) "
            "{ %0 = nn.relu(%x); %1 = nn.relu(%0); %2 = add(%0, %1); add(%1, %2) }")
    assert "collage_one_nn_relu_nn_relu_add_add" in configured(text, 2, 1, 4, 4, most=2)
    with pytest.raises(OptionError, match="more than max_estimates=1 parts are estimated"):
        configured(text, 2, 1, 4, 4, most=1)
    function = relay.fromtext('#[version = "0.0.5"]\n' + LINE)["main"]
    function = typed(function)
    found = largest(candidates_of(function, [], host_depth=2))
    assert sorted(len(c.calls) for c in found) == [1, 1, 2, 2], "two pairs overlap, so that a call is left of each"
