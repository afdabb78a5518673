"""Relay as a functional language: types found, programs run, analyses, and passes that keep what random programs
compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from random_programs import random_module
from tilewright import relay
from tilewright.base import nd
from tilewright.base.errors import CompileError, InputError, OptionError
from tilewright.base.types import FuncType, TensorType, TupleType, Type
from tilewright.ir import IRModule, assert_structural_equal, load_json, make_node, save_json, structural_equal
from tilewright.relay import analysis, transform
from tilewright.relay.dataflow_pattern import wildcard
from tilewright.relay.expr import GlobalVar
from tilewright.relay.interpreter import ConstructorValue, RefValue, evaluate

VERSION = '#[version = "0.0.5"]\n'
LIST = """
type List[A] { Cons(A, List[A]), Nil, }
def @make(%n: int32, %all: List[int32]) -> List[int32] { if (equal(%n, 0)) { %all } else { @make(subtract(%n, 1), Cons(%n, %all)) } }
def @sum(%l: List[int32]) { match (%l) { Cons(%h, %t) => add(%h, @sum(%t)), Nil => 0 } }
def @map[A, B](%f: fn(A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil() } }
"""  # noqa: E501


def program(text: str) -> IRModule:
    return transform.InferType()(relay.parse(VERSION + text))


def value_of(kind: Type, rng: np.random.Generator) -> Any:
    if isinstance(kind, TupleType):
        return tuple(value_of(f, rng) for f in kind.fields)
    assert isinstance(kind, TensorType)
    if kind.dtype.is_float:
        return rng.standard_normal(kind.concrete_shape).astype(kind.dtype.numpy())
    return rng.integers(0, 4, kind.concrete_shape).astype(kind.dtype.numpy())


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, ConstructorValue):
        assert a.tag == b.tag
        assert_same(a.fields, b.fields)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        kind = np.float64 if a.dtype != bool else bool
        np.testing.assert_allclose(a.astype(kind), b.astype(kind), rtol=1e-3, atol=1e-4)
    else:
        assert type(a) is type(b)


def draws(mod: IRModule) -> bool:
    """Whether a module has random numbers in it."""
    return any(
        not getattr(getattr(e, "op", None), "pure", True) for f in mod.functions.values()
        if isinstance(f, relay.Function) for e in analysis.post_order(f)
    )


PASSES = [
    transform.ToANormalForm(), transform.ToBasicBlockNormalForm(), transform.ToGraphNormalForm(),
    transform.DeadCodeElimination(),
    transform.DeadCodeElimination(inline_once=True), transform.EliminateCommonSubexpr(), transform.LambdaLift(),
    transform.DeDup(),
    transform.EtaExpand(True, True), transform.RemoveUnusedFunctions(), transform.PartialEvaluate(),
    transform.Defunctionalize(),
    transform.Sequential([transform.ToANormalForm(), transform.ManifestLifetimes()]),
]


@pytest.mark.parametrize("graph_pass", PASSES, ids=repr)
def test_passes_keep_what_random_programs_compute(graph_pass: Any) -> None:
    changed = 0
    for seed in range(200):
        mod = transform.InferType()(
            random_module(seed, static=True, vary=False).map_functions(
                lambda f: f.without_attr("Compiler"), relay.Function
            )
        )
        after = transform.InferType()(graph_pass(mod))
        analysis.check_well_formed(after)
        changed += after is not mod
        if isinstance(graph_pass, transform.Defunctionalize):
            assert_first_order(after)
        if isinstance(graph_pass, transform.PartialEvaluate):
            assert_structural_equal(graph_pass(after), after)
        if not draws(mod):
            inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
            assert_same(evaluate(after, *inputs), evaluate(mod, *inputs))
    assert changed > 20 or isinstance(graph_pass, (transform.DeDup, transform.EtaExpand))


GENERIC = {
    "one that sees a variable, used with two types": "let %pair = fn [A](%y: A) { (%y, %x) }; (%pair(%x), %pair(1), "
    "%pair(2))",
    "one that is called in place": "(fn [A](%y: A) { (%y, %x) })(1)",
    "one that calls itself": "let %f = fn [A](%n: int32, %y: A) -> A { if (less(%n, 1)) { %y } else { %f(subtract(%n, "
    "1), %y) } }; (%f(3, %x), %f(2, 1))",
    "one inside another": "let %f = fn [A](%y: A) { let %g = fn [B](%z: B) { (%y, %z, %x) }; (%g(%y), %g(1)) }; "
    "(%f(%x), %f((1, %x)))",
    "one that uses another": "let %f = fn [A](%y: A) { (%y, %x) }; let %g = fn [B](%z: B) { %f((%z, %x)) }; (%g(1), "
    "%g(%x), %f(2))",
    "one with another name": "let %f = fn [A](%y: A) { (%y, %x) }; let %h = %f; let %i = %h; (%i(1), %f(2), %h(%x))",
    "one that is given to functions": "let %f = fn [A](%y: A) { let %u = add(%x, 1f); %y }; (@twice(%f, %x), "
    "@twice(%f, 1), %f(%f)(%x))",
    "one that a closure sees": "let %f = fn [A](%y: A) { (%y, %x) }; let %g = fn (%n: int32) { %f(%n) }; if (less(%x, "
    "0f)) { %g(1) } else { %f(2) }",
    "one that is a constructor's": "let %f = fn [A](%y: A) { let %u = add(%x, 1f); %y }; @sum(@map(%f, Cons(1, Cons(2, "
    "Nil()))))",
    "a value that it shares": "%0 = exp(%x); let %f = fn [A](%y: A) { (%y, %0) }; (%f(1), %f(%0), %0)",
    "one that nothing uses": "let %f = fn [A](%y: A) { (%y, %x) }; exp(%x)",
}


@pytest.mark.parametrize("body", GENERIC.values(), ids=GENERIC)
def test_generic_functions_that_see_variables_are_copied(body: str) -> None:
    mod = program(
        f"{LIST}def @twice[A](%f: fn(A) -> A, %y: A) -> A {{ %f(%f(%y)) }}\ndef @main(%x: float32) {{ {body} }}"
    )
    after = transform.Defunctionalize()(mod)
    analysis.check_well_formed(after)
    assert_first_order(after)
    assert_same(evaluate(after, np.float32(0.5)), evaluate(mod, np.float32(0.5)))


def test_generic_functions_that_have_no_plain_form() -> None:
    """Each message says which function, where, and what to do."""
    faults = {
        "let %f = fn [A](%y: A) { (%y, %x) }; (%f, %f(1)).1": r"%f has the generic type fn \[A\].* and is used as a "
        r"value in \(%f, %f\(…\)\); call it by name",
        "fn [A](%y: A) { (%y, %x) }": "it must not have type parameters, nor take or return functions",
        "let %f = fn [A](%n: int32, %y: A) -> int32 { if (less(%n, 1)) { %n } else { %f(subtract(%n, 1), (%y, %x)) } "
        "}; %f(3, %x)":
            r"%f calls itself with other types in %f\(.*\), so it would need an unlimited number of copies; "
            r"give it fixed types",
        "let %f = fn [A, B](%y: A) { (%y, %x) }; %f(1)": r"the type B of fn \(%y\) .* cannot be inferred from the "
        r"arguments and the result of %f\(1\)",
        "let %f = if (less(%x, 0f)) { fn [A](%y: A) { (%y, %x) } } else { fn [A](%z: A) { (%z, %x) } }; %f(1)":
            r"fn \(%y\) .* has the generic type .* and is used as a value in if \(less\(…\)\); call it by name, or "
            r"wrap it in a function without type parameters",
    }
    for body, message in faults.items():
        with pytest.raises(CompileError, match=message):
            transform.Defunctionalize()(program(f"def @main(%x: float32) {{ {body} }}"))
    faults = {
        "type Box[A] { Box(fn(A) -> A), }\ndef @main(%x: float32) { match (Box(fn (%y: float32) { add(%x, %y) })) { "
        "Box(%f) => %f(%x) } }":
            r"Box of the data type Box holds fn \(A\) -> A, which depends on its type parameters; write out the types "
            r"in its definition",
        "def @grow[A](%n: int32, %y: A) -> int32 { if (less(%n, 1)) { %n } else { @grow(subtract(%n, 1), (%y, %y)) } "
        "}\ndef @main(%x: float32) { @grow(3, %x) }":
            "@grow is used with an unlimited number of types, for example because it calls itself with a tuple of "
            "its argument; give it fixed types",
        "def @grow[A](%n: int32, %y: A) -> int32 { if (less(%n, 1)) { %n } else { @grow(subtract(%n, 1), (%y,)) } "
        "}\ndef @main(%x: float32) { @grow(3, %x) }":
            "@grow is used with an unlimited number of types",
        "def @f[A, B](%y: A) -> A { %y }\ndef @main(%x: float32) { @f(%x) }":
            "from_string:3.*the type B of @f cannot be inferred from its arguments and its result at this use; "
            "annotate the types of the function there",
        "def @id[A](%x: A) { %x }\ndef @main(%x: float32) { (@id, 1).1 }": r"from_string:3.*a value of the generic "
        r"type fn \[A\]\(A\) -> A is used; call it by name",
    }
    for text, message in faults.items():
        with pytest.raises(CompileError, match=message):
            transform.Defunctionalize()(program(text))


def test_functions_for_another_compiler_stay_where_they_stand_alone() -> None:
    mod = program("""
def @alone(%x: float32, Compiler="npu") { let %f = fn (%y: float32) { add(%x, %y) }; %f(%x) }
def @calls(%x: float32, Compiler="npu") { @id(@twice(@id, %x)) }
def @id[A](%x: A) { %x }
def @twice(%f: fn(float32) -> float32, %x: float32) { %f(%f(%x)) }
def @main(%x: float32) { @calls(@alone(%x)) }""")
    after = transform.Defunctionalize()(mod)
    assert after["alone"] is mod["alone"] and after["calls"].attrs["Compiler"] == "npu"
    assert not any(f.type_params for f in after.functions.values()) and "apply_0" in after
    assert evaluate(after, np.float32(3)) == 6


def assert_first_order(mod: IRModule) -> None:
    """Functions are called where they are named and are no values, and none is generic. Functions of another compiler
    are its own matter."""
    functions = [f for f in mod.functions.values() if isinstance(f, relay.Function) and "Compiler" not in f.attrs]
    nodes = [e for f in functions for e in analysis.post_order(f)]
    called = {e.op for e in nodes if isinstance(e, relay.Call)}
    assert not any(f.type_params for f in functions)
    assert all(e in called or e in functions for e in nodes if isinstance(e.known_type(), FuncType))


ALIASES = {
    "a closure writes": "let %r = ref(%x); let %f = fn () { ref_write(%r, 5f) }; let %g = if (%c) { %f } else { fn () "
    "{ () } }; let %u = %g(); ref_read(%r)",
    "a branch chooses": "let %r = ref(%x); let %s = ref(1f); let %t = if (%c) { %r } else { %s }; let %u = "
    "ref_write(%t, 7f); (ref_read(%r), ref_read(%s))",
    "a reference holds one": "let %r = ref(%x); let %o = ref(%r); let %p = if (%c) { %o } else { ref(%r) }; let %u = "
    "ref_write(ref_read(%p), 7f); ref_read(%r)",
    "a parameter is one": "let %r = ref(%x); let %f = fn (%p: ref(float32)) { let %a = ref_write(%r, 2f); let %b = "
    "ref_write(%p, 3f); ref_read(%r) };"
    " let %g = if (%c) { %f } else { fn (%p: ref(float32)) { 0f } }; %g(%r)",
    "a tuple holds one": "let %r = ref(%x); let %t = if (%c) { (%r, 1f) } else { (ref(0f), 2f) }; let %u = "
    "ref_write(%t.0, 9f); ref_read(%r)",
    "a recursion writes": "let %r = ref(%x); let %f = fn (%n: int32) -> () { if (equal(%n, 0)) { () } else { let %u = "
    "ref_write(%r, add(ref_read(%r), 1f)); %f(subtract(%n, 1)) } };"
    " let %v = %f(3); ref_read(%r)",
    "branches write in turn": "let %r = ref(%x); let %u = if (%c) { ref_write(%r, 1f) } else { () }; let %v = "
    "ref_read(%r); let %w = ref_write(%r, 4f); (%v, ref_read(%r))",
}
"""Programs of `%x` and `%c` that write to a reference under another name than the one it is read by."""


@pytest.mark.parametrize("body", ALIASES.values(), ids=list(ALIASES))
def test_references_of_several_names(body: str) -> None:
    mod = transform.InferType()(relay.parse(f'#[version = "0.0.5"]\ndef @main(%x: float32, %c: bool) {{ {body} }}'))
    after = transform.InferType()(transform.PartialEvaluate()(mod))
    assert_structural_equal(transform.PartialEvaluate()(after), after)
    for c in (True, False):
        inputs = (np.float32(3), np.asarray(c))
        assert_same(evaluate(after, *inputs), evaluate(mod, *inputs))


@pytest.mark.slow
def test_calls_are_put_in_place_as_deep_as_the_fuel_says() -> None:
    rounds = "def @f(%n: int32) -> int32 { if (equal(%n, 0)) { 7 } else { @f(subtract(%n, 1)) } }"
    mod = transform.InferType()(relay.parse(f'#[version = "0.0.5"]\ndef @main() {{ @f(5) }}\n{rounds}'))
    for fuel, left in ((6, 0), (5, 1), (0, 1)):
        after = transform.PartialEvaluate(fuel)(mod)
        assert len([c for c in analysis.calls(after["main"]) if isinstance(c.op, GlobalVar)]) == left
        assert_structural_equal(transform.PartialEvaluate(fuel)(after), after)
    twice = "\n".join(f"def @g{k}(%x: float32) -> float32 {{ add(@g{k + 1}(%x), @g{k + 1}(%x)) }}" for k in range(16))
    grown = transform.PartialEvaluate()(
        transform.InferType()(
            relay.parse(f'#[version = "0.0.5"]\n{twice}\ndef @g16(%x: float32) -> float32 {{ exp(%x) }}')
        )
    )
    assert max(len(analysis.calls(grown[n])) for n in grown) < 10_000


def test_programs_without_function_values_compute_the_same() -> None:
    changed = refused = 0
    for seed in range(60):
        mod = transform.InferType()(random_module(seed, static=True, vary=False))
        try:
            after = transform.Defunctionalize()(mod)
        except CompileError as error:
            assert "generic type" in str(error)
            refused += 1
            continue
        analysis.check_well_formed(after)
        changed += after is not mod
        if after is not mod:
            called = {
                e.op for f in after.functions.values() for e in analysis.post_order(f) if isinstance(e, relay.Call)
            }
            functions = [
                e for f in after.functions.values() for e in analysis.post_order(f) if e is not f
                and isinstance(e.known_type(), FuncType)
            ]
            assert all(e in called for e in functions)
        if not draws(mod):
            inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
            assert_same(evaluate(after, *inputs), evaluate(mod, *inputs))
    assert changed > 15 and refused < 3


def test_first_order_programs_have_a_first_order_main() -> None:
    with pytest.raises(CompileError, match="it must not have type parameters, nor take or return functions"):
        transform.Defunctionalize()(program("def @main(%f: fn(int32) -> int32) { %f(1) }"))
    mod = program(
        LIST + "def @main(%k: int32) { let %f = fn (%y: int32) { add(%y, %k) }; @sum(@map(%f, Cons(%k, Nil()))) }"
    )
    main = transform.Defunctionalization(mod["main"], mod)
    mod["main"] = main
    assert evaluate(mod, np.int32(4)) == 8 and "apply_0" in mod and mod.get_type("Func_0")[1].name_hint == "Func_0_0"


@pytest.mark.slow
def test_continuation_passing_style_keeps_what_random_programs_compute() -> None:
    for seed in range(200):
        mod = transform.InferType()(random_module(seed, static=True, vary=False))
        if mod["main"].attrs.get("Primitive") or draws(mod):
            continue
        after = transform.InferType()(transform.ToCPS()(mod))
        analysis.check_well_formed(after)
        assert len(after["main"].params) == len(mod["main"].params) + 1
        plain = after.copy()
        plain["main"] = transform.un_cps(after["main"])
        inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
        assert_same(evaluate(plain, *inputs), evaluate(mod, *inputs))


def test_to_cps_adds_the_functions_that_are_called() -> None:
    mod = program(
        "def @main(%x: int32) { add(@f(%x), 1) }\ndef @f(%n: int32) -> int32 { if (less(%n, 1)) { %n } else { "
        "@f(subtract(%n, 2)) } }"
    )
    made = transform.to_cps(mod["main"], mod)
    assert set(mod) == {"main", "f", "f_cps"}
    assert evaluate(transform.un_cps(made), np.int32(7), functions=dict(mod.items())) == 0


# Types.
def test_types_are_found_and_recorded_in_the_nodes() -> None:
    mod = program(LIST + "def @main(%k: int32) { let %f = fn (%y) { add(%y, %k) }; @sum(@map(%f, Cons(%k, Nil()))) }")
    main = mod["main"]
    assert main.checked_type == FuncType([TensorType((), "int32")], TensorType((), "int32"))
    assert main.body.value.params[0].checked_type == TensorType((), "int32")
    assert mod.get_global_var("sum").checked_type == mod["sum"].checked_type
    assert all(e.known_type() is not None for f in mod.functions.values() for e in analysis.post_order(f))


def test_types_of_long_chains_without_annotation() -> None:
    x = relay.var("x")
    e: relay.Expr = x
    for _ in range(10_000):
        e = relay.nn.relu(e)
    y = relay.var("y", shape=(2,))
    f = relay.Function([y], relay.Call(relay.Function([x], e), [y]))
    assert transform.InferType()(IRModule.from_expr(f))["main"].ret_type == TensorType((2,), "float32")


def _image(*shape: int, dtype: str = "float32") -> relay.Expr:
    return relay.var("x", shape=shape, dtype=dtype)


@pytest.mark.parametrize(("make", "wanted"), [
    (lambda w: relay.nn.conv1d(_image(1, 4, 8), w[0], channels=6, kernel_size=3), [(6, 4, 3)]),
    (lambda w: relay.nn.conv2d(_image(1, 4, 8, 8), w[0], channels=6, kernel_size=(3, 5), groups=2), [(6, 2, 3, 5)]),
    (lambda w: relay.nn.conv2d(_image(1, 8, 8, 4), w[0], channels=6, kernel_size=3, data_layout="NHWC",
                               kernel_layout="HWIO"), [(3, 3, 4, 6)]),
    (lambda w: relay.nn.conv2d(_image(1, 2, 8, 8, 4), w[0], channels=16, kernel_size=3, data_layout="NCHW4c",
                               kernel_layout="OIHW4i16o"), [(1, 2, 3, 3, 4, 16)]),
    (lambda w: relay.nn.conv3d(_image(1, 3, 8, 8, 8), w[0], channels=6, kernel_size=3), [(6, 3, 3, 3, 3)]),
    (lambda w: relay.nn.conv2d_transpose(_image(1, 4, 8, 8), w[0], channels=6, kernel_size=3, groups=2),
     [(4, 3, 3, 3)]),
    (lambda w: relay.nn.deformable_conv2d(
        _image(1, 4, 8, 8), relay.var("offset", shape=(1, 18, 6, 6)), w[0], channels=6, kernel_size=(3, 3), groups=2),
     [(6, 2, 3, 3)]),
    (lambda w: relay.nn.dense(_image(2, 3, 4), w[0], units=5), [(5, 4)]),
    (lambda w: relay.nn.matmul(_image(3, 4), w[0], units=5, transpose_a=True), [(3, 5)]),
    (lambda w: relay.nn.bias_add(_image(1, 4, 8, 8), w[0], axis=-3), [(4,)]),
    (lambda w: relay.nn.batch_norm(_image(1, 4, 8, 8), *w[:4])[0], [(4,)] * 4),
    (lambda w: relay.nn.layer_norm(_image(2, 4, 8), *w[:2]), [(8,)] * 2),
    (lambda w: relay.nn.group_norm(_image(2, 4, 8), *w[:2], num_groups=2), [(4,)] * 2),
    (lambda w: relay.nn.prelu(_image(2, 4, 8), w[0]), [(4,)]),
])
def test_types_of_parameters_follow_from_the_data(make: Any, wanted: list[tuple[int, ...]]) -> None:
    params = [relay.var(f"p{k}") for k in range(len(wanted))]
    body = make(params)
    transform.InferType()(IRModule.from_expr(body))
    assert [p.checked_type for p in params] == [TensorType(shape, "float32") for shape in wanted]
    annotated = [relay.var(f"p{k}", shape=shape) for k, shape in enumerate(wanted)]
    assert body.checked_type == make(annotated).checked_type


def test_parameters_have_the_dtype_of_the_data_and_meet_it_only_once_it_is_known() -> None:
    w, b, y = relay.var("w"), relay.var("b"), relay.var("y")
    inner = relay.Function([y], relay.nn.bias_add(relay.nn.dense(y, w, units=5), b))
    transform.InferType()(IRModule.from_expr(relay.Call(inner, [_image(2, 3, dtype="float16")])))
    assert w.checked_type == TensorType((5, 3), "float16") and b.checked_type == TensorType((5,), "float16")
    with pytest.raises(CompileError, match=r"the type of %p is not known where nn.dense\(%x, %p\) needs it"):
        transform.InferType()(IRModule.from_expr(relay.nn.dense(_image(2, 3), relay.var("p"))))


def test_a_function_of_another_type_under_the_same_name() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    mod = program("def @main(%x: Tensor[(2), float32]) { @f(%x) }\ndef @f(%x: Tensor[(2), float32]) { exp(%x) }")
    mod["f"] = relay.Function([y], relay.cast(y, "int8"))
    assert transform.InferType()(mod)["main"].ret_type == TensorType((2,), "int8")
    assert transform.InferTypeLocal(relay.add(x, x)) == TensorType((2,), "float32")


def test_unknown_sizes_of_branches_join() -> None:
    c, a, b = relay.var(
        "c", shape=(), dtype="bool"
    ), relay.var("a", shape=(relay.Any(), 3)), relay.var("b", shape=(2, 3))
    assert relay.If(c, a, b).checked_type == TensorType((relay.Any(), 3), "float32")
    with pytest.raises(CompileError, match="differ"):
        relay.If(c, relay.var("d", shape=(4, 3)), b)


@pytest.mark.parametrize(("make", "shape"), [
    (lambda x: relay.reshape(x, (-1,)), ("?",)), (lambda x: relay.concatenate([x, x], axis=0), ("?", 3)),
    (lambda x: relay.nn.dense(x, relay.ones((4, 3), "float32")), ("?", 4)),
    (lambda x: x + relay.ones((1, 3), "float32"), ("?", 3)),
    (lambda x: relay.strided_slice(x, [1, 0], [5, 2]), ("?", 2)),
    (lambda x: relay.nn.pad(x, ((1, 1), (0, 1))), ("?", 4)),
])  # fmt: skip
def test_operators_over_unknown_sizes(make: Any, shape: tuple[Any, ...]) -> None:
    found = make(relay.var("x", shape=(relay.Any(), 3))).checked_type
    assert found == TensorType([relay.Any() if d == "?" else d for d in shape], "float32")


# The interpreter.
@pytest.mark.slow
def test_recursion_is_as_deep_as_the_data() -> None:
    mod = program(LIST + "def @main(%k: int32) { @sum(@map(fn (%y) { add(%y, %k) }, @make(5000, Nil()))) }")
    assert evaluate(mod, np.int32(1)) == 5000 * 5001 // 2 + 5000


def test_references_are_shared_by_closures() -> None:
    mod = program("""def @main(%x: int32) {
        let %r = ref(%x); let %next = fn () { let %u = ref_write(%r, add(ref_read(%r), 1)); ref_read(%r) };
        let %a = %next(); let %b = %next(); (%a, %b, %r) }""")
    a, b, r = evaluate(mod, np.int32(3))
    assert (a, b) == (4, 5)
    assert isinstance(r, RefValue) and r.value == 5


def test_values_that_a_closure_shares_with_its_own_branches_are_its_own() -> None:
    mod = program("""def @main(%x: float32) {
        %2 = fn (%y: float32) { %0 = exp(%y); let %z = if (less(%0, 1f)) { negative(%0) } else { %0 }; add(%z, %0) };
        let %a = exp(%x); if (less(%x, 0f)) { %2(%a) } else { add(%a, %2(%x)) } }""")
    for x in (-1.0, 0.5):
        y = np.exp(x) if x < 0 else x
        np.testing.assert_allclose(evaluate(mod, np.float32(x)), 2 * np.exp(y) + (0 if x < 0 else np.exp(x)), rtol=1e-5)


@pytest.mark.parametrize("seed", [126, 220, 468])
def test_random_programs_whose_closures_share_values(seed: int) -> None:
    mod = transform.InferType()(random_module(seed, static=True, vary=False))
    inputs = [value_of(p.checked_type, np.random.default_rng(k)) for k, p in enumerate(mod["main"].params)]
    assert evaluate(mod, *inputs) is not None


def test_values_of_data_types() -> None:
    found = evaluate(program(LIST + "def @main(%k: int32) { Cons(%k, Nil()) }"), np.int32(7))
    assert found.constructor.name_hint == "Cons" and found.tag == 0 and found.fields[0] == 7
    assert repr(found) == "Cons(array(7, dtype=int32), Nil())"


def test_a_match_that_nothing_fits() -> None:
    with pytest.raises(CompileError, match="no clause of the match fits the value Nil"):
        evaluate(program(LIST + "def @main(%k: int32) { match? (@make(0, Nil())) { Cons(%h, _) => %h } }"), np.int32(7))


def test_executors() -> None:
    x = relay.var("x", shape=(3,))
    mod = IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    for kind in ("debug", "graph"):
        run = relay.create_executor(kind, mod, target="llvm").evaluate()
        np.testing.assert_array_equal(run(x=np.ones(3, "float32")).numpy(), np.full(3, 2, "float32"))
    executor = relay.create_executor("debug", mod)
    assert executor.evaluate(relay.add(relay.const(1), relay.const(2))).numpy() == 3
    y = relay.var("y", shape=(), dtype="int32")
    assert executor.evaluate(relay.add(y, y), {y: relay.const(4)}).numpy() == 8
    with pytest.raises(OptionError, match="there is no executor 'debgu'"):
        relay.create_executor("debgu")
    with pytest.raises(InputError, match="missing: x"):
        executor.evaluate()()
    with pytest.raises(InputError, match="'z' is not a parameter"):
        executor.evaluate()(z=1)


# Analyses.
def test_variables() -> None:
    mod = program(LIST + "def @main(%k: int32) { let %f = fn (%y: int32) { add(%y, %k) }; %f(%k) }")
    body = mod["main"].body
    assert [v.name_hint for v in analysis.free_vars(body)] == ["k"]
    assert {v.name_hint for v in analysis.bound_vars(body)} == {"f", "y"}
    assert {v.name_hint for v in analysis.all_vars(body)} == {"f", "y", "k"}
    assert [v.name_hint for v in analysis.bound_type_vars(mod["map"])] == ["A", "B"]
    assert not analysis.free_type_vars(mod["map"]) and len(analysis.free_type_vars(mod["map"].body)) <= 2
    seen: list[str] = []
    analysis.post_order_visit(mod["main"], lambda e: seen.append(type(e).__name__))
    assert seen[-1] == "Function" and seen.count("Function") == 2


def test_unmatched_cases() -> None:
    mod = program(LIST + "def @main(%k: int32) { match? (@make(%k, Nil())) { Cons(%h, Cons(_, _)) => %h } }")
    match = mod["main"].body
    found = analysis.unmatched_cases(match, mod)
    cons, nil = found
    assert isinstance(cons, relay.PatternConstructor) and isinstance(nil, relay.PatternConstructor)
    assert (cons.constructor.name_hint, nil.constructor.name_hint) == ("Cons", "Nil")
    tail = cons.patterns[1]
    assert isinstance(tail, relay.PatternConstructor) and tail.constructor.name_hint == "Nil"
    assert not analysis.unmatched_cases(mod["sum"].body, mod)


def test_call_graph_purity_and_features() -> None:
    mod = program(
        LIST + "def @set(%r: ref(int32)) { ref_write(%r, 1) }\ndef @main(%k: int32) { let %r = ref(%k); let %u = "
        "@set(%r); @sum(@make(%k, Nil())) }"
    )
    graph = analysis.CallGraph(mod)
    assert set(graph["main"]) == {"set", "make", "sum"} and graph.is_recursive("sum") and not graph.is_recursive("main")
    assert graph.topological_order().index("sum") < graph.topological_order().index("main")
    assert (graph.global_call_count("main"), graph.ref_count("sum"), graph.ref_count("main")) == (3, 2, 0)
    assert "@main #refs = 0\n  calls @" in str(graph)
    assert not analysis.is_pure(mod["main"].body, mod) and analysis.is_pure(mod["sum"].body, mod)
    features = analysis.detect_feature(mod)
    assert {
        analysis.Feature.fMatch, analysis.Feature.fRefWrite, analysis.Feature.fLet
    } <= features and analysis.Feature.fTuple not in features


def test_multiplications_are_counted() -> None:
    x, w = relay.var("x", shape=(1, 8, 10, 10)), relay.var("w", shape=(16, 8, 3, 3))
    conv = relay.nn.conv2d(x, w, padding=(1, 1), channels=16, kernel_size=(3, 3))
    assert analysis.get_total_mac_number(conv) == 16 * 10 * 10 * 8 * 9
    assert analysis.get_total_mac_number(
        relay.nn.dense(relay.var("a", shape=(2, 5)), relay.var("b", shape=(7, 5)))
    ) == 2 * 5 * 7


def test_a_data_type_that_is_not_there() -> None:
    mod = program(LIST + "def @main(%k: int32) { Cons(%k, Nil()) }")
    alone = IRModule({"main": mod["main"]})
    with pytest.raises(CompileError, match="'main' uses Cons of the data type List, which is not in the module"):
        analysis.check_well_formed(alone)
    assert analysis.well_formed(mod) and analysis.check_basic_block_normal_form(mod["main"])


# Building programs.
def test_scope_builder_and_bind() -> None:
    sb, x, c = relay.ScopeBuilder(), relay.var("x", shape=()), relay.var("c", shape=(), dtype="bool")
    y = sb.let("y", relay.add(x, x))
    with sb.if_scope(c):
        sb.ret(y)
    with sb.else_scope():
        z = sb.let(("z", TensorType((), "float32")), relay.negative(y))
        sb.ret(z)
    f = relay.Function([x, c], sb.get())
    assert evaluate(f, np.float32(2), np.bool_(False)) == -4 and evaluate(f, np.float32(2), np.bool_(True)) == 4
    bound = relay.bind(f, {x: relay.const(3.0)})
    assert isinstance(bound, relay.Function) and bound.params == (c,) and evaluate(bound, np.bool_(True)) == 6
    with pytest.raises(
        CompileError, match="else_scope needs an if_scope right before it"
    ), relay.ScopeBuilder().else_scope():
        pass
    with pytest.raises(CompileError, match="has no value; call ret"):
        relay.ScopeBuilder().get()


def test_a_call_of_a_function_has_attributes_of_its_own() -> None:
    """They are printed, parsed, stored, compared, kept by rewriting, and matched by patterns."""
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.nn.relu(x))

    def called(**attrs: Any) -> IRModule:
        y = relay.var("y", shape=(2,))
        call = relay.Call(function, [y], make_node("attrs.Own", **attrs))
        return IRModule.from_expr(relay.Function([y], call))

    mod = called(note="first", padding=(3, 4))
    call = mod["main"].body
    assert call.attrs.note == "first" and call.attrs.padding == (3, 4) and call.attrs.attrs_type_key == "attrs.Own"
    assert '%0(%y, note="first", padding=[3, 4], attrs_type_key="attrs.Own")' in mod.astext()
    for same in (relay.parse(mod.astext()), load_json(save_json(mod)), relay.transform.InferType()(mod)):
        assert structural_equal(same, mod)
    assert not structural_equal(called(note="other", padding=(3, 4)), mod)
    pattern = wildcard()(wildcard())
    assert pattern.has_attr({"note": "first"}).match(call) and not pattern.has_attr({"note": "other"}).match(call)
    assert relay.Call(function, [x]).attrs is None
    with pytest.raises(CompileError, match="a call of a function takes a mapping as its attributes, not 3"):
        relay.Call(function, [x], 3)


def test_operators_tell_their_number_of_arguments() -> None:
    assert [relay.op.get(n).num_inputs for n in ("log", "add", "nn.batch_norm", "concatenate")] == [1, 2, 5, 1]


def test_a_constant_takes_the_dtype_of_a_tensor_type() -> None:
    assert relay.const(0, relay.scalar_type("int64")).checked_type == relay.TensorType((), "int64")


def test_constants_of_arrays_have_32_bits_as_in_tvm() -> None:
    given = [np.zeros(2), np.arange(3), np.float64(0.5), np.zeros(2, "float16"), nd.array(np.zeros(2))]
    assert [relay.const(v).value.dtype.name for v in given] == ["float32", "int32", "float32", "float16", "float64"]
    assert relay.const(np.arange(3), "int64").value.dtype == relay.Constant(np.arange(3)).value.dtype == np.int64
    assert relay.add(relay.var("x", shape=(2,), dtype="float64"), np.zeros(2)).tensor_type.dtype == "float64"
    with pytest.raises(CompileError, match=r"do not fit into int32; give const\(…, dtype='int64'\)"):
        relay.const(np.asarray([1 << 40]))


def test_a_generic_function_is_passed_for_a_plain_one() -> None:
    mod = relay.parse("""
def @apply[A, B](%f: fn (A) -> B, %x: A) -> B { %f(%x) }
def @main(%y: Tensor[(5), float32]) { @apply(fn [C](%z: C) -> C { %z }, %y) }
""")
    assert mod["main"].body.checked_type == relay.TensorType((5,), "float32")
    with pytest.raises(CompileError, match="argument 0 has type"):
        relay.parse("""
def @apply[A, B](%f: fn (A) -> B, %x: A) -> B { %f(%x) }
def @main(%y: int32) { @apply(fn [C](%z: C, %w: C) -> C { %z }, %y) }
""")


def test_parsing_infers_the_types_that_a_text_omits() -> None:
    mod = relay.parse("def @f(%r) -> int32 { ref_read(%r) } def @main() -> int32 { @f(ref(1)) }")
    assert isinstance(mod["f"].params[0].checked_type, relay.RefType)
    assert relay.parse("def @main(%x) { %x }")["main"].params[0].type_annotation is None


def test_a_span_may_have_no_source() -> None:
    span = relay.Span(None, 1, 2, 3, 4)
    assert span.source_name is None and span.same_as(span)
