"""The rules of partitions that graphs of their own show: what the field's passes do where rows, targets and regions
meet.

MergeComposite: what a check sees after earlier rows, composites that are not entered, rows that take what others left,
values that escape, tuples, order of parameters. AnnotateTarget: loops, branches with outer variables, function
literals, empty tuples, several targets one after the other. MergeCompilerRegions: diamonds with many ways out.
PartitionGraph: results that nobody uses, tuples with one and several results, what else a module holds, closed
functions. Three accelerators in one artifact. The plumbing of external functions. Random programs of the whole
language.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from random_programs import random_module
from test_relay_functional import assert_same, draws, value_of
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError, OptionError
from tilewright.base.global_functions import register_func, remove_global_func
from tilewright.ir import IRModule, assert_structural_equal, register_op_attr, reset_op_attr
from tilewright.ir.transform import Sequential
from tilewright.relay import analysis, transform
from tilewright.relay.dataflow_pattern import has_dtype, is_constant, is_op, is_tuple, wildcard
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from tilewright.relay.visitor import free_vars, post_order
from tilewright.runtime import ModuleNode, load_module, register_module
from tilewright.runtime.module import FactoryModule

x, y, z = (relay.var(n, shape=(4, 4)) for n in "xyz")
REGISTERED: list[tuple[str, str]] = []
ADD_RELU = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
VALUES = [np.random.default_rng(k).standard_normal((4, 4)).astype("float32") for k in range(3)]


def supports(target: str, *names: str) -> None:
    for name in names:
        register_op_attr(name, f"target.{target}", lambda call: True)
        REGISTERED.append((name, f"target.{target}"))


@pytest.fixture(autouse=True)
def no_operator_stays_registered() -> Iterator[None]:
    yield
    while REGISTERED:
        reset_op_attr(*REGISTERED.pop())


def module(body: Any) -> IRModule:
    return transform.InferType()(IRModule.from_expr(body))


def program(text: str) -> IRModule:
    return transform.InferType()(relay.parse('#[version = "0.0.5"]\n' + text))


def external(mod: IRModule) -> dict[str, Any]:
    return {n: f for n, f in mod.items() if isinstance(f, relay.Function) and "Compiler" in f.attrs}


def operators(e: relay.Expr) -> list[str]:
    return [c.op.name for c in post_order(e) if isinstance(c, relay.Call) and hasattr(c.op, "name")]


def composites(mod: IRModule) -> dict[str, relay.Function]:
    return {
        str(e.attrs["Composite"]): e for e in post_order(mod["main"]) if isinstance(e, relay.Function)
        and "Composite" in e.attrs
    }


def partitioned(mod: IRModule, *targets: str, **options: Any) -> IRModule:
    """Through all passes; closed functions, and the meaning that it had."""
    after = transform.InferType()(
        Sequential([AnnotateTarget(list(targets)), MergeCompilerRegions(), PartitionGraph(**options)])(mod)
    )
    analysis.check_well_formed(after)
    assert not [v for f in external(after).values() for v in free_vars(f)]
    inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
    assert_same(evaluate(after, *inputs), evaluate(mod, *inputs))
    return after


# MergeComposite.
def test_a_row_may_ask_for_types_after_an_earlier_row() -> None:
    """Values that an earlier row made have types, for patterns and for checks."""
    seen: list[Any] = []

    def accepted(e: Any) -> bool:
        seen.append((e.checked_type, e.args[0].checked_type))
        return True

    table = [
        ("npu.add_relu", ADD_RELU), ("npu.tanh", has_dtype("float32", is_op("tanh")(wildcard())), accepted),
        ("npu.mul", is_op("multiply")(has_dtype("float32"), has_dtype("float32"))),
    ]
    after = MergeComposite(table)(module(relay.tanh(relay.nn.relu(x + y)) * z))
    assert set(composites(after)) == {"npu.add_relu", "npu.tanh", "npu.mul"}
    assert seen == [(relay.TensorType((4, 4)), relay.TensorType((4, 4)))]


def test_composites_are_not_entered_and_not_nested() -> None:
    table = [
        ("npu.add_relu", ADD_RELU), ("npu.add", is_op("add")(wildcard(), wildcard())),
        ("npu.relu", is_op("nn.relu")(wildcard()))
    ]
    once = MergeComposite(table)(module(relay.nn.relu(x + y)))
    assert set(composites(once)) == {"npu.add_relu"}
    assert_structural_equal(MergeComposite(table)(once), once)
    both = MergeComposite([("other.mul", is_op("multiply")(ADD_RELU, wildcard()))])
    assert set(composites(both(once))) == {"npu.add_relu"}, "a later table does not see into them"


def test_a_row_takes_what_an_overlapping_match_left() -> None:
    """The first add goes into the nearer match; the second match that wants it, too, is none, and the smaller row takes
    its relu."""
    s = x + y
    table = [
        ("npu.add_relu", ADD_RELU), ("npu.relu", is_op("nn.relu")(wildcard())),
        ("npu.add", is_op("add")(wildcard(), wildcard()))
    ]
    after = MergeComposite(table)(module(relay.Tuple([relay.nn.relu(s), relay.nn.relu(s)])))
    assert set(composites(after)) == {"npu.relu", "npu.add"}, "the sum has two users, so no larger row takes it"
    chain = MergeComposite(
        [("npu.two", is_op("nn.relu")(is_op("nn.relu")(wildcard())))]
    )(module(relay.nn.relu(relay.nn.relu(relay.nn.relu(x)))))
    (two,) = composites(chain).values()
    assert operators(two) == ["nn.relu"] * 2
    assert operators(chain["main"]) == ["nn.relu"] * 3, "overlapping matches: the one nearer to the result"


def test_what_a_check_says_no_to_is_left_for_later_rows() -> None:
    table = [("npu.no", ADD_RELU, lambda e: False), ("npu.yes", ADD_RELU, lambda e: True)]
    assert set(composites(MergeComposite(table)(module(relay.nn.relu(x + y))))) == {"npu.yes"}


def test_parameters_of_a_composite() -> None:
    """In the order of the pattern's leaves, one for each value, constants that were asked for inside."""
    c = relay.const(np.ones((4, 4), "float32"))
    mod = module((x + c) * x)
    for second, count in ((is_constant(), 1), (wildcard(), 2)):
        pattern = is_op("multiply")(is_op("add")(wildcard(), second), wildcard())
        (f,) = composites(MergeComposite([("npu.f", pattern)])(mod)).values()
        assert len(f.params) == count
        assert any(isinstance(e, relay.Constant) for e in post_order(f.body)) is (count == 1)
    swapped = is_op("subtract")(is_op("tanh")(wildcard()), wildcard())
    after = MergeComposite([("npu.s", swapped)])(module(relay.Function([x, y], relay.tanh(y) - x)))
    call = after["main"].body
    assert [a.name_hint for a in call.args] == ["y", "x"]
    np.testing.assert_allclose(evaluate(after, *VALUES[:2]), np.tanh(VALUES[1]) - VALUES[0], rtol=1e-6)


def test_a_composite_with_a_tuple_inside() -> None:
    pattern = is_op("nn.relu")(is_op("concatenate")(is_tuple([wildcard(), wildcard()])))
    after = MergeComposite([("npu.cat", pattern)])(module(relay.nn.relu(relay.concatenate([x, y], axis=1))))
    (f,) = composites(after).values()
    assert [operators(f), len(f.params)] == [["concatenate", "nn.relu"], 2]
    assert f.attrs["PartitionedFromPattern"] == "Tuple_concatenate_nn.relu_"


# AnnotateTarget.
LOOP = """
def @main(%n: int32, %x: Tensor[(4, 4), float32]) {
  let %loop = fn (%i: int32, %sum: Tensor[(4, 4), float32]) -> Tensor[(4, 4), float32] {
    if (less(%i, %n)) { %0 = add(%sum, %x); %loop(add(%i, 1), nn.relu(%0)) } else { tanh(%sum) }
  };
  nn.relu(%loop(0, %x))
}
"""


def test_loops_and_branches() -> None:
    supports("npu", "add", "nn.relu", "tanh", "less")
    after = partitioned(program(LOOP), "npu")
    assert sorted(map(operators, external(after).values())) == [
        ["add"], ["add", "nn.relu"], ["less"], ["nn.relu"], ["tanh"]
    ]
    outer = program(
        "def @main(%c: bool, %x: Tensor[(4, 4), float32]) { %0 = add(%x, %x); if (%c) { add(%0, %x) } else { "
        "nn.relu(%0) } }"
    )
    after = partitioned(outer, "npu")
    assert sorted(
        map(operators, external(after).values())
    ) == [["add"], ["add"], ["nn.relu"]], "a branch reads what is outside of it"


def test_functions_as_values_and_references() -> None:
    supports("npu", "add", "tanh")
    closure = program(
        "def @main(%x: Tensor[(4, 4), float32]) { let %f = fn (%y: Tensor[(4, 4), float32]) { add(tanh(%y), %x) }; "
        "%f(%f(%x)) }"
    )
    assert sorted(map(operators, external(partitioned(closure, "npu")).values())) == [["tanh", "add"]]
    reference = program(
        "def @main(%x: Tensor[(4, 4), float32]) { let %r = ref(add(%x, %x)); ref_write(%r, tanh(ref_read(%r))); "
        "add(ref_read(%r), %x) }"
    )
    assert sorted(map(operators, external(partitioned(reference, "npu")).values())) == [["add"], ["add"], ["tanh"]]


def test_empty_tuples_and_tuples_of_inputs() -> None:
    supports("npu", "add", "concatenate")
    empty = relay.Tuple([relay.add(x, y), relay.Tuple([])])
    after = partitioned(module(empty), "npu")
    assert len(external(after)) == 1
    inputs_only = relay.concatenate(relay.Tuple([x, y]), axis=0)
    (f,) = external(partitioned(module(inputs_only), "npu")).values()
    assert operators(f) == ["concatenate"]


def test_targets_one_after_the_other() -> None:
    """Each run gives to its target what no earlier run gave away."""
    supports("a", "add")
    supports("b", "add", "tanh")
    supports("c", "tanh", "nn.relu")
    mod = module(relay.nn.relu(relay.tanh(x + y)))
    stepwise = AnnotateTarget("c")(AnnotateTarget("b")(AnnotateTarget("a")(mod)))
    assert_structural_equal(stepwise, AnnotateTarget(["a", "b", "c"])(mod))
    owners = {operators(f)[0]: f.attrs["Compiler"] for f in external(PartitionGraph()(stepwise)).values()}
    assert owners == {"add": "a", "tanh": "b", "nn.relu": "c"}


def test_composites_of_another_target_stay_here() -> None:
    merged = MergeComposite(
        [("a.add_relu", ADD_RELU), ("b.tanh", is_op("tanh")(wildcard()))]
    )(module(relay.tanh(relay.nn.relu(x + y))))
    after = Sequential([AnnotateTarget("b"), MergeCompilerRegions(), PartitionGraph()])(merged)
    assert [f.attrs["Compiler"] for f in external(after).values()] == ["b"]
    assert set(composites(after)) == {"a.add_relu"}


# MergeCompilerRegions.
@pytest.mark.parametrize(("between", "count"), [("nn.relu", 1), ("exp", 2)])
def test_a_diamond_whose_arms_fan_out(between: str, count: int) -> None:
    """Arms of the target make one region; an arm that goes through another keeps what is below it apart."""
    supports("npu", "add", "nn.relu", "tanh", "multiply")
    s = x + y
    left, right = relay.op.get(between)()(s), relay.tanh(s)
    after = partitioned(module(relay.Tuple([left * right, right + s])), "npu")
    assert len(external(after)) == count


def test_a_target_may_be_kept_apart_by_one_region_and_joined_by_another() -> None:
    supports("a", "add", "multiply")
    supports("b", "tanh", "nn.relu")
    s = x + y
    t = relay.tanh(s)
    after = partitioned(module(relay.Tuple([s * z, t * s, relay.nn.relu(t)])), "a", "b")
    kinds = sorted((str(f.attrs["Compiler"]), tuple(operators(f))) for f in external(after).values())
    assert kinds == [("a", ("add", "multiply")), ("a", ("multiply",)), ("b", ("tanh", "nn.relu"))]


# PartitionGraph.
def test_results_that_nobody_uses() -> None:
    supports("npu", "nn.batch_norm", "nn.relu")
    image, vectors = relay.var("i", shape=(1, 4, 2, 2)), [relay.const(np.full(4, k + 1.0, "float32")) for k in range(4)]
    after = partitioned(module(relay.tanh(relay.nn.batch_norm(relay.nn.relu(image), *vectors)[0])), "npu")
    (f,) = external(after).values()
    assert f.ret_type == relay.TensorType((1, 4, 2, 2)), "the means and variances stay inside"
    assert len(f.params) == 1


def test_one_and_several_results_side_by_side() -> None:
    supports("npu", "split", "add", "nn.relu")
    parts = relay.split(x + y, 2, axis=0)
    after = partitioned(
        module(relay.Tuple([relay.tanh(parts[0]), relay.nn.relu(relay.exp(parts[1])), relay.exp(parts[1])])), "npu"
    )
    kinds = {tuple(operators(f)): f.ret_type for f in external(after).values()}
    assert kinds[("add", "split")] == relay.TupleType([relay.TensorType((2, 4))] * 2)
    assert kinds[("nn.relu",)] == relay.TensorType((2, 4))


def test_what_else_a_module_holds_stays() -> None:
    supports("npu", "add")
    mod = program("""
    attributes { 'key' = 3 }
    type Box { Of(float32), }
    def @twice(%a: float32) -> float32 { add(%a, %a) }
    def @main(%x: float32, note="n") { match (Of(add(%x, 1f))) { Of(%a) => @twice(%a) } }
    """)
    after = partitioned(mod, "npu", mod_name="net-1")
    assert (
        after.attrs["key"], after["main"].attrs["note"], [t.name_hint for t in after.type_definitions]
    ) == (3, "n", ["Box"])
    assert sorted(external(after)) == ["tvmgen_net_1_npu_main_0", "tvmgen_net_1_npu_twice_0"]


def test_regions_are_numbered_within_their_function_and_run_once() -> None:
    supports("npu", "add")
    mod = module(relay.tanh(x + y) + relay.exp(y + z))
    after = partitioned(mod, "npu")
    assert sorted(external(after)) == [
        "tvmgen_default_npu_main_0", "tvmgen_default_npu_main_2", "tvmgen_default_npu_main_3"
    ]
    again = partitioned(mod, "npu")
    assert_structural_equal(again, after)
    assert_structural_equal(Sequential([AnnotateTarget("npu"), MergeCompilerRegions(), PartitionGraph()])(after), after)


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_programs_of_the_whole_language(first: int) -> None:
    count = 0
    for seed in range(first, first + 15):
        rng = random.Random(seed)
        mod = transform.InferType()(
            random_module(seed, static=True, vary=False).map_functions(
                lambda f: f.without_attr("Compiler"), relay.Function
            )
        )
        names = sorted(
            {
                n for f in mod.functions.values() if isinstance(f, relay.Function) for n in operators(f)
                if not n.startswith("annotation.")
            }
        )
        for target in "ab":
            supports(target, *[n for n in names if rng.random() < 0.5])
        passes = [
            AnnotateTarget(["a", "b"], rng.random() < 0.7), *([MergeCompilerRegions()] if rng.random() < 0.8 else []),
            PartitionGraph(bind_constants=rng.random() < 0.7)
        ]
        marked = passes[0](mod)
        assert_structural_equal(passes[0](marked), marked)
        after = transform.InferType()(Sequential(passes)(mod))
        analysis.check_well_formed(after)
        assert not [v for f in external(after).values() for v in free_vars(f)]
        count += len(external(after))
        if not draws(mod):
            inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
            assert_same(evaluate(after, *inputs), evaluate(mod, *inputs))
        while REGISTERED:
            reset_op_attr(*REGISTERED.pop())
    assert count > 30


# Three accelerators in one program, each with its own compiler and kind of module.
class Listing(ModuleNode):
    """Elementwise functions as a list of their names: a stack machine in one line."""

    type_key = "listing"
    ran: list[str] = []  # noqa: RUF012

    def __init__(self, symbol: str, names: list[str]) -> None:
        self.symbol, self.names = symbol, names

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.run if name == self.symbol else None

    def run(self, given: Any, out: Any) -> None:
        Listing.ran.append(f"{self.type_key} {' '.join(self.names)}")
        value = given.numpy()
        for name in self.names:
            value = np.maximum(value, 0) if name == "nn.relu" else getattr(np, name)(value)
        out.copyfrom(value)

    def save_to_binary(self) -> bytes:
        return " ".join([self.symbol, *self.names]).encode()

    @classmethod
    def load_from_binary(cls, blob: bytes) -> Listing:
        symbol, *names = blob.decode().split()
        return cls(symbol, names)


class Second(Listing):
    type_key = "listing2"


class Sums(Listing):
    """Adds two."""

    type_key = "sums"

    def run(self, a: Any, b: Any, out: Any) -> None:  # type: ignore[override]
        Listing.ran.append("sums")
        out.copyfrom(a.numpy() + b.numpy())


def test_three_accelerators_in_one_artifact(tmp_path: Path) -> None:
    supports("one", "tanh", "nn.relu")
    supports("two", "exp", "nn.relu")
    supports("three", "add")
    kinds: dict[str, type[Listing]] = {"one": Listing, "two": Second, "three": Sums}
    for target, kind in kinds.items():
        register_module(kind)
        register_func(f"relay.ext.{target}", lambda f, kind=kind: kind(str(f.attrs["global_symbol"]), operators(f)))
    try:
        mod = module(relay.sqrt(relay.exp(relay.nn.relu(relay.tanh(x))) + relay.exp(y)))
        after = partitioned(mod, "one", "two", "three")
        lib = relay.build(after, "llvm")
        lib.export_library(tmp_path / "m.so")
        want = relay.build(mod, "llvm").executable(*VALUES[:2])
        loaded = load_module(tmp_path / "m.so")
        assert isinstance(loaded, FactoryModule)
        for program in (lib.executable, loaded.executable):
            Listing.ran.clear()
            np.testing.assert_allclose(program(*VALUES[:2]), want, rtol=1e-5)
            assert sorted(Listing.ran) == ["listing tanh nn.relu", "listing2 exp", "listing2 exp", "sums"]
        assert Listing.ran.index("sums") == 3
        data = bytearray((tmp_path / "m.so").read_bytes())
        data[data.index(b"tanh nn.relu") + 2] ^= 1
        (tmp_path / "bad.so").write_bytes(data)
        with pytest.raises(ArtifactError, match="the file is damaged"):
            load_module(tmp_path / "bad.so")
    finally:
        for target, kind in kinds.items():
            remove_global_func(f"relay.ext.{target}")
            remove_global_func(f"runtime.module.loadbinary_{kind.type_key}")


# The plumbing of external functions.
def called_in_place(symbol: str, body: Any, argument: Any) -> relay.Call:
    p = relay.var("p", shape=(4, 4))
    return relay.Call(relay.Function([p], body(p), attrs={"Compiler": "npu", "global_symbol": symbol}), [argument])


def test_outline_equal_functions_once() -> None:
    first = called_in_place("f", relay.nn.relu, x)
    mod = module(called_in_place("f", relay.nn.relu, first) + called_in_place("g", relay.tanh, y))
    out = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols("npu")(mod)
    assert sorted(out) == ["f", "g", "main"]
    assert sum(isinstance(e, relay.Call) and isinstance(e.op, relay.GlobalVar) for e in post_order(out["main"])) == 3
    np.testing.assert_array_equal(evaluate(out, *VALUES[:2]), evaluate(mod, *VALUES[:2]))
    again = out.copy()
    again["main"] = relay.Function([x], called_in_place("f", relay.nn.relu, x))
    assert sorted(
        transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(again)
    ) == ["f", "g", "main"], "one of the module that is equal is used"
    again["main"] = relay.Function([x], called_in_place("f", relay.exp, x))
    with pytest.raises(CompileError, match="two functions have the global symbol 'f'; give each a unique one"):
        transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(again)


def test_outline_functions_that_are_bound_by_lets() -> None:
    call = called_in_place("f", relay.nn.relu, x)
    f = relay.var("f")
    body = relay.Let(f, call.op, relay.Call(f, [x]) + relay.Call(f, [y]))
    out = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols("npu")(module(body))
    assert sorted(out) == ["f", "main"] and not any(isinstance(e, relay.Let) for e in post_order(out["main"]))
    np.testing.assert_array_equal(evaluate(out, *VALUES[:2]), evaluate(module(body), *VALUES[:2]))
    kept = module(relay.Let(f, call.op, relay.TupleGetItem(relay.Tuple([relay.Call(f, [x]), f]), 0)))
    assert transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(kept) is kept, "the function is also a value"


def test_composite_functions_are_inlined_too() -> None:
    p = relay.var("p", shape=(4, 4))
    composite = relay.Function([p], relay.nn.relu(p), attrs={"Composite": "npu.relu"})
    mod = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(
        module(called_in_place("f", lambda q: relay.Call(composite, [q]), x)))
    inlined = transform.InlineCompilerFunctionsBoundTo(["f"])(mod)
    assert_structural_equal(inlined["main"].body, relay.nn.relu(x), map_free_vars=True)


def test_outline_refuses_what_is_not_closed() -> None:
    inner = relay.Function([y], y + x, attrs={"Compiler": "npu", "global_symbol": "f"})
    with pytest.raises(
        CompileError, match="the function 'f' reads %x, which is bound outside the function; make it a parameter"
    ):
        transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(
            module(relay.Function([x], relay.Call(inner, [x])))
        )


def test_mark_and_inline_those_that_are_named() -> None:
    mod = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(
        module(called_in_place("f", lambda p: p * p, x) + called_in_place("g", relay.tanh, x))
    )
    inlined = transform.InlineCompilerFunctionsBoundTo(["f", "no_such"])(mod)
    assert sorted(inlined) == ["g", "main"]
    assert operators(inlined["main"]) == ["multiply", "add"]
    assert transform.InlineCompilerFunctionsBoundTo(["main"])(mod) is mod, "main is of no other compiler"
    marked = transform.MarkCompilerFunctionsAsExtern()(mod)
    assert [dict(marked[n].attrs) for n in "fg"] == [{"Extern": 1}] * 2
    assert transform.MarkCompilerFunctionsAsExtern("dsp")(mod) is mod
    np.testing.assert_array_equal(evaluate(inlined, VALUES[0]), evaluate(mod, VALUES[0]))


def test_functions_that_nothing_reaches() -> None:
    mod = program("""
    def @main(%x: float32) -> float32 { @used(%x) }
    def @used(%x: float32) -> float32 { if (less(%x, 0f)) { @used(negative(%x)) } else { %x } }
    def @one(%x: float32) -> float32 { @two(%x) }
    def @two(%x: float32) -> float32 { @one(%x) }
    """)
    assert sorted(transform.RemoveUnusedFunctions()(mod)) == ["main", "used"], "two that only call each other go"
    assert sorted(transform.RemoveUnusedFunctions(["two"])(mod)) == ["one", "two"]
    assert transform.RemoveUnusedFunctions(["main", "one"])(mod) is mod
    with pytest.raises(OptionError, match="the entry function 'no_such' is not in the module"):
        transform.RemoveUnusedFunctions(["no_such"])(mod)
    supports("npu", "nn.relu")
    parts = partitioned(module(relay.tanh(relay.nn.relu(x))), "npu")
    assert transform.RemoveUnusedFunctions()(parts) is parts, "what main calls stays"
    assert tvm.IRModule is IRModule
