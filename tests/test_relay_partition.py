"""The passes that give parts of a graph to targets: what the text cases of `relay_partition.md` do not show.

Behaviours. MergeComposite: parallel branches, a call used twice, tables with checks, options and their order, several
inputs, fields of tuples, a diamond that is none, types, rows that are no rows. AnnotateTarget: one and several targets
by priority, what an attribute's function sees, composite functions and their insides, tuples with and without
`include_non_call_ops`, calls without arguments, branches, lets, references, functions, a second run, its own results
and those of another target. MergeCompilerRegions: chains, fans, circles through other targets and through nothing,
branches, what `default` has. PartitionGraph: single calls, several results, equal results and inputs, constants and
tuples of constants, tuples that come out or go in, default regions, names, several functions, functions that are
external already, marks that fit nothing. Random graphs: the meaning stays, whatever the targets support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import CompileError, OptionError
from tilewright.compat.registry import register_func, remove_global_func
from tilewright.ir import IRModule, assert_structural_equal, register_op_attr, reset_op_attr
from tilewright.ir.transform import Sequential
from tilewright.relay.analysis import check_well_formed
from tilewright.relay.dataflow_pattern import is_op, is_tuple_get_item, wildcard
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.contrib import get_pattern_table, register_pattern_table
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from tilewright.relay.visitor import post_order

x, y, z = (relay.var(n, shape=(4, 4)) for n in "xyz")
REGISTERED: list[tuple[str, str]] = []
PARTITION = (MergeCompilerRegions(), PartitionGraph())


def supports(target: str, *names: str, when: Callable[[Any], bool] = lambda call: True) -> None:
    for name in names:
        register_op_attr(name, f"target.{target}", when)
        REGISTERED.append((name, f"target.{target}"))


@pytest.fixture(autouse=True)
def no_operator_stays_registered() -> Iterator[None]:
    yield
    while REGISTERED:
        reset_op_attr(*REGISTERED.pop())


def module(body: Any) -> IRModule:
    return IRModule.from_expr(body)


def marks(mod: IRModule) -> list[tuple[str, str, str]]:
    """`(mark, target, what it marks)` in order."""
    found = []
    for e in post_order(mod["main"]):
        if isinstance(e, relay.Call) and getattr(e.op, "name", "").startswith("annotation."):
            of: Any = e.args[0]
            kind = of.name_hint if isinstance(of, relay.Var) else getattr(
                getattr(of, "op", None), "name", type(of).__name__
            )
            found.append((e.op.name.removeprefix("annotation.compiler_"), e.op.compiler, kind))
    return found


def external(mod: IRModule) -> dict[str, Any]:
    return {n: f for n, f in mod.items() if isinstance(f, relay.Function) and "Compiler" in f.attrs}


def operators(e: relay.Expr) -> list[str]:
    return [c.op.name for c in post_order(e) if isinstance(c, relay.Call) and hasattr(c.op, "name")]


def composites(mod: IRModule) -> list[str]:
    return [
        e.attrs.Composite for e in post_order(mod["main"]) if isinstance(e, relay.Function) and "Composite" in e.attrs
    ]


def partitioned(body: Any, *targets: str, **options: Any) -> IRModule:
    """Through all passes, checked against the meaning before."""
    before = module(body)
    after = Sequential([AnnotateTarget(list(targets)), MergeCompilerRegions(), PartitionGraph(**options)])(before)
    check_well_formed(after)
    assert "annotation." not in after.astext()
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(d) for d in p.checked_type.shape]).astype(p.checked_type.dtype)
        for p in before["main"].params
    ]
    flat = np.testing.assert_array_equal
    left, right = evaluate(before, *inputs), evaluate(after, *inputs)
    for a, b in zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]:
        flat(a, b)
    return after


# MergeComposite.
ADD_RELU = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))


def test_composites_of_parallel_branches_and_of_a_call_used_twice() -> None:
    f = MergeComposite([("npu.add_relu", ADD_RELU)])
    assert composites(f(module(relay.nn.relu(x + y) * relay.nn.relu(y + z)))) == ["npu.add_relu"] * 2
    r = relay.nn.relu(x + y)
    after = f(module(r * r))
    assert composites(after) == ["npu.add_relu"]
    assert_structural_equal(f(after), after)


def test_rows_with_checks_options_and_order() -> None:
    small = ("npu.small", ADD_RELU, lambda e: e.checked_type.shape[0] < 4)
    large = ("npu.large", ADD_RELU, lambda e: e.checked_type.shape[0] >= 4)
    assert composites(MergeComposite([small, large])(module(relay.nn.relu(x + y)))) == ["npu.large"]
    option = is_op("add")(wildcard(), wildcard()).optional(is_op("nn.relu"))
    for body, count in ((relay.nn.relu(x + y), 2), (x + y, 1), (relay.tanh(x + y), 1)):
        after = MergeComposite([("npu.a", option)])(module(body))
        (found,) = [e for e in post_order(after["main"]) if isinstance(e, relay.Function) and "Composite" in e.attrs]
        assert len(operators(found)) == count
    alone = ("npu.add", is_op("add")(wildcard(), wildcard()))
    both = ("npu.add_relu", ADD_RELU)
    assert composites(MergeComposite([alone, both])(module(relay.nn.relu(x + y)))) == ["npu.add"]
    assert composites(MergeComposite([both, alone])(module(relay.nn.relu(x + y)))) == ["npu.add_relu"]


def test_a_composite_of_a_field_and_of_several_inputs() -> None:
    image, vectors = relay.var("i", shape=(1, 4, 2, 2)), [relay.var(n, shape=(4,)) for n in "abcd"]
    pattern = is_tuple_get_item(is_op("nn.batch_norm")(*[wildcard() for _ in range(5)]), 0)
    after = MergeComposite([("npu.bn", pattern)])(module(relay.nn.relu(relay.nn.batch_norm(image, *vectors)[0])))
    assert composites(after) == ["npu.bn"]
    assert 'PartitionedFromPattern="nn.batch_norm_TupleGetItem0_"' in after.astext()


def test_a_diamond_that_is_none() -> None:
    relu = ADD_RELU
    pattern = is_op("multiply")(relu, is_op("clip")(relu))
    r = relay.nn.relu(x + y)
    assert composites(MergeComposite([("npu.d", pattern)])(module(r * relay.clip(r, 0.0, 6.0)))) == ["npu.d"]
    assert composites(MergeComposite([("npu.d", pattern)])(module(r * relay.clip(r + z, 0.0, 6.0)))) == []


def test_rows_that_are_no_rows() -> None:
    for row in (("npu.a",), ("npu.a", "add"), (1, ADD_RELU), ("npu.a", ADD_RELU, 3)):
        with pytest.raises(
            OptionError, match=r"a row of a pattern table must be \(name, pattern\) or \(name, pattern, check\)"
        ):
            MergeComposite([row])(module(x + y))


def test_pattern_tables_by_name() -> None:
    @register_pattern_table("test_npu")
    def table() -> list[Any]:
        return [("test_npu.add_relu", ADD_RELU)]

    assert get_pattern_table("test_npu") == table()
    assert get_pattern_table("no_such_npu") is None
    assert relay.op.contrib.get_pattern_table is get_pattern_table
    register_pattern_table("test_npu", list)
    assert get_pattern_table("test_npu") == []


def test_attributes_are_registered_once_for_a_level() -> None:
    supports("npu", "tanh")
    with pytest.raises(
        OptionError,
        match=r"the attribute 'target\.npu' of tanh is already registered with level 10; give a higher level"
    ):
        supports("npu", "tanh")
    register_op_attr("tanh", "target.npu", lambda call: False, level=11)
    assert external(partitioned(relay.tanh(x), "npu")) == {}


# AnnotateTarget.
def test_what_the_function_of_an_attribute_sees() -> None:
    seen: list[Any] = []

    def has_four_rows(call: Any) -> bool:
        seen.append(call)
        return bool(call.checked_type.shape[0] == 4)

    supports("npu", "add", when=has_four_rows)
    e = relay.tanh(x + y) + z
    AnnotateTarget("npu")(module(e))
    assert [c.op.name for c in seen] == ["add", "add"]
    assert seen[1] is e


def test_the_first_target_that_supports_a_call() -> None:
    supports("a", "add", "tanh")
    supports("b", "tanh", "nn.relu")
    e = relay.nn.relu(relay.tanh(x + y))
    ends = [(t, of) for kind, t, of in marks(AnnotateTarget(["b", "a"])(module(e))) if kind == "end"]
    assert ends == [("a", "add"), ("b", "tanh"), ("b", "nn.relu")]
    ends = [(t, of) for kind, t, of in marks(AnnotateTarget(["a", "b"])(module(e))) if kind == "end"]
    assert ends == [("a", "add"), ("a", "tanh"), ("b", "nn.relu")]


def test_composite_functions_are_not_entered() -> None:
    supports("npu", "add", "nn.relu")
    after = AnnotateTarget("other")(MergeComposite([("npu.add_relu", ADD_RELU)])(module(relay.nn.relu(x + y))))
    assert {t for _, t, _ in marks(after)} == {"default"}
    assert len(marks(after)) == 3
    named = relay.Function([x, y], x + y, attrs={"Composite": "npu"})
    assert {
        t for _, t, _ in marks(AnnotateTarget("npu")(module(named(x, z))))
    } == {"default"}, "a name without a dot is of no target"


def test_tuples_with_and_without() -> None:
    supports("npu", "add", "concatenate", "split")
    e = relay.concatenate([x + y, y + x], axis=0)
    with_tuples = marks(AnnotateTarget("npu")(module(e)))
    without = marks(AnnotateTarget("npu", include_non_call_ops=False)(module(e)))
    assert ("end", "npu", "Tuple") in with_tuples
    assert ("begin", "npu", "Tuple") in without
    assert ("end", "npu", "Tuple") not in without
    mixed = marks(AnnotateTarget("npu")(module(relay.Tuple([x + y, relay.tanh(x)]))))
    assert ("end", "default", "Tuple") in mixed
    field = relay.tanh(relay.split(x, 2, axis=0)[0])
    assert ("end", "npu", "TupleGetItem") in marks(AnnotateTarget("npu")(module(field)))
    assert ("begin", "default", "TupleGetItem") in marks(AnnotateTarget("npu", False)(module(field)))
    for include in (True, False):
        seq = Sequential([AnnotateTarget("npu", include), *PARTITION])
        assert len(external(seq(module(relay.tanh(e))))) == (1 if include else 3)


def test_calls_without_arguments_are_inputs() -> None:
    supports("npu", "add", "zeros")
    zeros = relay.zeros((4, 4), "float32")
    after = AnnotateTarget("npu")(module(x + zeros))
    assert marks(after) == [("begin", "npu", "x"), ("begin", "npu", "zeros"), ("end", "npu", "add")]
    (f,) = external(partitioned(x + zeros, "npu")).values()
    assert len(f.params) == 2


def test_branches_lets_references_and_functions() -> None:
    supports("npu", "add")
    cond, v = relay.var("c", shape=(), dtype="bool"), relay.var("v", shape=(4, 4))
    branch = module(relay.Function([cond, x, y], relay.If(cond, x + y, relay.tanh(x))))
    assert [
        m for m in marks(AnnotateTarget("npu")(branch)) if m[0] == "end"
    ] == [("end", "npu", "add"), ("end", "default", "tanh")]
    let = module(relay.Let(v, x + y, v + v))
    assert [m for m in marks(AnnotateTarget("npu")(let)) if m[0] == "end"] == [("end", "npu", "add")] * 2
    ref = module(relay.RefRead(relay.RefCreate(x + y)))
    assert [m for m in marks(AnnotateTarget("npu", include_non_call_ops=False)(ref)) if m[0] == "end"] == [
        ("end", "npu", "add")]
    assert [m for m in marks(AnnotateTarget("npu")(ref)) if m[0] == "end"] == [
        ("end", "npu", "add"), ("end", "default", "RefCreate"), ("end", "default", "RefRead")]
    used_twice = module((x + y) - relay.tanh(x + y))
    assert_structural_equal(AnnotateTarget("npu")(used_twice), AnnotateTarget("npu")(AnnotateTarget("npu")(used_twice)))
    shared = x + y
    ends = [m for m in marks(AnnotateTarget("npu")(module(relay.tanh(shared) - relay.exp(shared)))) if m[0] == "end"]
    assert ends.count(("end", "npu", "add")) == 2, "each use has a mark of its own"
    closure = module(relay.Function([y], y + y)(x + x))
    assert [m[1] for m in marks(AnnotateTarget("npu")(closure)) if m[0] == "end"] == ["npu", "npu", "default"]


def test_a_second_run_keeps_what_is_given() -> None:
    supports("npu", "add")
    supports("dsp", "add", "tanh")
    once = AnnotateTarget("npu")(module(relay.tanh(x + y)))
    assert_structural_equal(AnnotateTarget("npu")(once), once)
    twice = AnnotateTarget("dsp")(once)
    assert [m for m in marks(twice) if m[0] == "end"] == [("end", "npu", "add"), ("end", "dsp", "tanh")]
    merged = MergeCompilerRegions()(AnnotateTarget("dsp")(module(relay.tanh(x + y))))
    assert_structural_equal(MergeCompilerRegions()(AnnotateTarget("npu")(merged)), merged)


# MergeCompilerRegions.
def test_a_fan_is_one_region() -> None:
    supports("npu", "add", "nn.relu", "tanh")
    s = x + y
    after = partitioned(relay.nn.relu(s) + relay.tanh(s), "npu")
    (f,) = external(after).values()
    assert operators(f) == ["add", "nn.relu", "tanh", "add"]


def test_a_circle_through_two_targets() -> None:
    supports("a", "add", "tanh")
    supports("b", "nn.relu", "exp")
    s = x + y
    r = relay.nn.relu(s)
    after = partitioned(relay.tanh(s) + relay.exp(r) + relay.tanh(r), "a", "b")
    assert sorted(f.attrs.Compiler for f in external(after).values()) == ["a", "a", "b"]


def test_a_circle_of_merged_regions() -> None:
    """R takes A in, and then reads from C too; T may not take in both B, which reads from A, and C."""
    supports("a", "add", "multiply")
    supports("b", "tanh", "exp", "maximum")
    first = x + y
    b, c = relay.tanh(first), relay.exp(z)
    second = relay.multiply(first, c)
    after = partitioned(relay.Tuple([second, relay.maximum(b, c)]), "a", "b")
    assert len(external(after)) == 3


def test_a_circle_through_what_is_not_marked() -> None:
    supports("npu", "add", "split")
    parts = relay.split(x, 2, axis=0)
    joined = relay.concatenate([parts[0], parts[1]], axis=0)
    seq = Sequential([AnnotateTarget("npu", include_non_call_ops=False), *PARTITION])
    after = seq(module(x + joined))
    check_well_formed(after)
    value = np.arange(16, dtype="float32").reshape(4, 4)
    np.testing.assert_array_equal(evaluate(after, value), value + value)


def test_regions_stay_in_their_branch() -> None:
    supports("npu", "add", "nn.relu", "multiply")
    cond = relay.var("c", shape=(), dtype="bool")
    s = x + y
    f = relay.Function([cond, x, y], relay.If(cond, relay.nn.relu(s), s * y) + s)
    after = Sequential([AnnotateTarget("npu"), *PARTITION])(module(f))
    check_well_formed(after)
    assert sorted(map(operators, external(after).values())) == [["add"], ["add"], ["multiply"], ["nn.relu"]]
    v = relay.var("v", shape=(4, 4))
    let = Sequential([AnnotateTarget("npu"), *PARTITION])(module(relay.Let(v, relay.tanh(s), v + s)))
    check_well_formed(let)
    assert len(external(let)) == 2, "what follows the let depends on its value"


def test_default_regions_stay_and_keep_no_one_apart() -> None:
    supports("npu", "add", "nn.relu", "multiply")
    r = relay.nn.relu(x)
    first, second = relay.tanh(r), relay.exp(relay.multiply(y, y))
    after = partitioned(relay.Tuple([r + y, first * relay.const(2.0), second]), "npu")
    assert len(external(after)) == 3
    assert [n for n in operators(after["main"]) if n in ("tanh", "exp")] == ["tanh", "exp"]


# PartitionGraph.
def test_the_form_of_an_external_function() -> None:
    supports("npu", "nn.bias_add")
    b = relay.const(np.arange(4, dtype="float32"))
    after = partitioned(relay.nn.relu(relay.nn.bias_add(x, b)), "npu")
    f = after["tvmgen_default_npu_main_0"]
    assert dict(f.attrs) == {
        "Inline": 1, "Compiler": "npu", "global_symbol": "tvmgen_default_npu_main_0", "Primitive": 1
    }
    assert [p.name_hint for p in f.params] == ["npu_0_i0"]
    assert isinstance(f.body.args[1], relay.Constant)
    call = after["main"].body.args[0]
    assert call.op is after.get_global_var("tvmgen_default_npu_main_0")
    assert call.checked_type == relay.TensorType((4, 4))


def test_equal_inputs_and_equal_results_are_one() -> None:
    supports("npu", "add", "multiply")
    s = x + x
    after = partitioned(relay.tanh(relay.multiply(s, x)), "npu")
    (f,) = external(after).values()
    assert len(f.params) == 1
    after = partitioned(relay.Tuple([relay.tanh(s), relay.exp(s)]), "npu")
    (f,) = external(after).values()
    assert f.ret_type == relay.TensorType((4, 4)), "one result, used twice, is no tuple"


def test_several_results() -> None:
    supports("npu", "add", "nn.relu")
    s = x + y
    r = relay.nn.relu(s)
    after = partitioned(relay.Tuple([relay.tanh(s), relay.tanh(r), r]), "npu")
    (f,) = external(after).values()
    assert isinstance(f.body, relay.Tuple)
    assert len(f.body.fields) == 2


def test_constants_and_tuples_of_constants() -> None:
    supports("npu", "concatenate", "add")
    c = relay.const(np.ones((4, 4), "float32"))
    e = relay.concatenate([c, c], axis=0) + relay.concatenate([x, c], axis=0)
    for bind in (True, False):
        after = partitioned(relay.tanh(e), "npu", bind_constants=bind)
        calls = [
            a for f in post_order(after["main"]) if isinstance(f, relay.Call) and isinstance(f.op, relay.GlobalVar)
            for a in f.args
        ]
        assert any(
            isinstance(a, relay.Constant) or (isinstance(a, relay.Tuple) and c in a.fields[:1]) for a in calls
        ) is not bind


def test_tuples_come_out_and_go_in() -> None:
    supports("npu", "split", "concatenate")
    for include in (True, False):
        parts = relay.split(x, 2, axis=0)
        e = relay.concatenate([relay.tanh(parts[0]), parts[1]], axis=0)
        seq = Sequential([AnnotateTarget("npu", include), *PARTITION])
        after = seq(module(e))
        check_well_formed(after)
        value = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
        np.testing.assert_array_equal(evaluate(after, value), evaluate(module(e), value))
        assert len(external(after)) == 2


def test_without_merging_every_call_is_a_function() -> None:
    supports("npu", "add", "nn.relu")
    mod = Sequential([AnnotateTarget("npu"), PartitionGraph()])(module(relay.Tuple([relay.nn.relu(x + y), x + x])))
    assert len(external(mod)) == 3
    assert all(operators(f) for f in external(mod).values()), "no function that only passes its input on"


def test_names_have_the_function_and_the_module() -> None:
    supports("ethos-n", "add")
    mod = IRModule({"main": relay.Function([x, y], x + y), "other": relay.Function([x, y], relay.tanh(x + y))})
    after = Sequential([AnnotateTarget("ethos-n"), *PARTITION[:1], PartitionGraph("m.v1")])(mod)
    assert set(external(after)) == {"tvmgen_m_v1_ethos_n_main_0", "tvmgen_m_v1_ethos_n_other_0"}
    assert {f.attrs.Compiler for f in external(after).values()} == {"ethos-n"}
    again = Sequential([AnnotateTarget("ethos-n"), *PARTITION])(after)
    assert_structural_equal(again, after)


def test_a_name_that_is_taken() -> None:
    supports("npu", "add")
    supports("npu", "tanh")
    mod = partitioned(relay.nn.relu(x + y), "npu")
    mod["main"] = relay.Function([x, y], relay.tanh(mod["main"](x, y)))
    with pytest.raises(
        CompileError,
        match="the module already has a function @tvmgen_default_npu_main_0; give PartitionGraph a mod_name"
    ):
        Sequential([AnnotateTarget("npu"), *PARTITION])(mod)


def test_composites_inside_an_external_function() -> None:
    after = Sequential(
        [MergeComposite([("npu.add_relu", ADD_RELU)]), AnnotateTarget("npu"), *PARTITION]
    )(module(relay.nn.relu(relay.nn.relu(x + y) + z)))
    (f,) = external(after).values()
    assert [
        e.attrs.Composite for e in post_order(f) if isinstance(e, relay.Function) and e is not f
    ] == ["npu.add_relu"] * 2
    assert len(f.params) == 3


def test_marks_that_fit_nothing() -> None:
    begin, end = relay.annotation.compiler_begin, relay.annotation.compiler_end
    with pytest.raises(
        CompileError, match="a compiler_end of 'npu' has no matching compiler_begin: no region is open"
    ):
        PartitionGraph()(module(end(relay.tanh(x), "npu")))
    with pytest.raises(
        CompileError,
        match="a compiler_end of 'npu' has no matching compiler_begin: the open region is for 'dsp'"
    ):
        PartitionGraph()(module(end(relay.tanh(begin(x, "dsp")), "npu")))
    with pytest.raises(CompileError, match="this Call uses values from inside regions of 'npu' and 'dsp'; add"):
        PartitionGraph()(module(end(relay.add(begin(x, "npu"), begin(y, "dsp")), "npu")))
    with pytest.raises(CompileError, match="in a region of 'npu' a Call uses a value without a compiler_begin"):
        PartitionGraph()(module(end(relay.add(begin(x, "npu"), relay.tanh(y)), "npu")))


def test_marks_with_a_circle() -> None:
    begin, end = relay.annotation.compiler_begin, relay.annotation.compiler_end
    inner = relay.tanh(begin(x, "npu"))
    back = begin(relay.exp(end(inner, "npu")), "npu")
    with pytest.raises(CompileError, match="a region reads a value that depends on its own results"):
        PartitionGraph()(module(end(relay.add(inner, back), "npu")))


def test_marks_written_by_hand() -> None:
    begin, end = relay.annotation.compiler_begin, relay.annotation.compiler_end
    e = end(relay.add(begin(x, compiler="npu"), relay.const(np.ones((4, 4), "float32"))), compiler="npu")
    (f,) = external(PartitionGraph()(module(relay.tanh(e)))).values()
    assert operators(f) == ["add"]
    value = np.ones((4, 4), "float32")
    np.testing.assert_array_equal(evaluate(module(e), value), value + 1)


@pytest.mark.slow
def test_deep_graphs() -> None:
    supports("npu", "nn.relu")
    e: Any = x
    for i in range(3_000):
        e = relay.nn.relu(e) if i % 3 else relay.tanh(e)
    after = Sequential([AnnotateTarget("npu"), *PARTITION])(module(e))
    assert len(external(after)) == 1_000


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    unary, binary = ("nn.relu", "tanh", "negative", "abs"), ("add", "multiply", "maximum", "subtract")
    values: list[Any] = [x, y, z]
    for _ in range(40):
        name = str(rng.choice([*unary, *binary]))
        picked = [values[int(i)] for i in rng.integers(max(0, len(values) - 8), len(values), 2)]
        values.append(relay.op.get(name)()(*picked[: 1 if name in unary else 2]))
    for target in ("a", "b"):
        supports(target, *[str(n) for n in rng.choice([*unary, *binary], 3, replace=False)])
    after = partitioned(relay.Function([x, y, z], relay.Tuple(values[-4:])), "a", "b")
    assert external(after)


def test_every_step_reads_back() -> None:
    supports("npu", "add")
    composite = MergeComposite([("npu.add_relu", ADD_RELU)])(module(relay.tanh(relay.nn.relu(x + y) + z)))
    marked = AnnotateTarget("npu")(composite)
    for mod in (composite, marked, PartitionGraph()(marked)):
        assert_structural_equal(relay.fromtext(mod.astext()), mod)


def test_the_hook_of_a_target_sees_its_functions_and_may_change_them() -> None:
    seen: list[list[str]] = []

    def optimize(mod: IRModule) -> IRModule:
        seen.append(list(mod))
        return IRModule({name: f.with_attr("seen", 1) for name, f in mod.items()})

    supports("npu", "nn.relu")
    register_func("relay.ext.npu.optimize", optimize, override=True)
    try:
        x = relay.var("x", shape=(2,))
        mod = Sequential([AnnotateTarget("npu"), PartitionGraph()])(module(relay.tanh(relay.nn.relu(x))))
        (name,) = (n for n in mod if n != "main")
        assert seen == [[name]] and mod[name].attrs["seen"] == 1 and "seen" not in mod["main"].attrs
        register_func("relay.ext.npu.optimize", lambda mod: None, override=True)
        with pytest.raises(
            CompileError, match=r"hook relay\.ext\.npu\.optimize returned NoneType; it must return a module"
        ):
            Sequential([AnnotateTarget("npu"), PartitionGraph()])(module(relay.tanh(relay.nn.relu(x))))
    finally:
        remove_global_func("relay.ext.npu.optimize")


def test_a_refusal_is_no() -> None:
    from tilewright.relay.op.contrib import Refusal

    assert not Refusal("the strides are (3, 3); at most 2", "use strides of (2, 2)")
