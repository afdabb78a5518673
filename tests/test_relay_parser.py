"""Relay's text read back: everything that the printer writes, what people write by hand, and what is said of wrong
texts."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from random_programs import random_module, with_every_operator
from tilewright import relay
from tilewright.base.errors import CompileError, ParseError
from tilewright.base.types import DataType, FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall
from tilewright.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, RefWrite, Tuple, TupleGetItem
from tilewright.relay.parser import fromtext, parse, parse_expr
from tilewright.relay.printer import astext, constants_of, text_of
from tilewright.relay.visitor import post_order
from tilewright.scalar.expr import UnknownDim

TEXTS = Path(__file__).parent / "text"
ERRORS, WRITTEN = TEXTS / "relay_parse_errors.md", TEXTS / "relay_text.md"
CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+```relay\n(?P<text>[^`]*(?:`[^`\n]+`[^`]*)*?)```\n+```text\n(?P<expected>.*?)```\n",
    re.M | re.S
)
BLOCK = 50


def reads_back(mod: IRModule) -> None:
    """The printed module, with the types that can be inferred, is read to an equal one, whose text is the same."""
    with contextlib.suppress(CompileError):
        mod = relay.transform.InferType()(mod)
    text = astext(mod, show_meta_data=True)
    assert astext(mod, show_meta_data=True) == text
    again = parse(text)
    assert_structural_equal(again, mod)
    assert astext(again, show_meta_data=True) == text


@pytest.mark.parametrize("block", range(20))
def test_programs_of_the_whole_language_are_read_back(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        reads_back(random_module(seed))


@pytest.mark.parametrize("block", range(20))
def test_programs_of_first_order_are_read_back(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        reads_back(random_module(seed, first_order=True, pure=True))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 25))
def test_long_programs_are_read_back(seed: int, length: int) -> None:
    reads_back(random_module(seed, length=length))


def test_random_programs_are_the_same_for_the_same_seed() -> None:
    assert astext(random_module(3), True) == astext(random_module(3), True)
    assert astext(random_module(3)) != astext(random_module(4))


def test_every_example_of_an_operator_is_read_back() -> None:
    for mod in with_every_operator():
        reads_back(mod)


def test_without_meta_data_the_constants_are_given_beside() -> None:
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    x = relay.var("x", shape=(1, 3))
    mod = IRModule.from_expr(relay.nn.dense(x, relay.const(weight)))
    text = astext(mod)
    for table in ([weight], [tvm.nd.array(weight)], [relay.const(weight)]):
        assert_structural_equal(parse(text, init_meta_table={"relay.Constant": table}), mod)
    assert_structural_equal(parse(text, init_meta_table={"relay.Constant": constants_of(mod)}), mod)
    with pytest.raises(ParseError, match=r"meta\[relay.Constant\]\[0\] is not in the meta data: it has none"):
        parse(text)


def test_meta_data_of_tvm_is_read() -> None:
    array = np.arange(6, dtype="int8").reshape(2, 3)
    raw = struct.pack("<QQiiiBBHqqq", 0xDD5E40F096B4A13F, 0, 1, 0, 2, 0, 8, 1, 2, 3, array.nbytes) + array.tobytes()
    nodes = [
        {"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
        {"type_key": "Array", "data": [3]},
        {"type_key": "relay.Constant", "attrs": {"_checked_type_": "0", "data": "0", "span": "0"}},
    ]
    section = json.dumps(
        {"root": 1, "nodes": nodes, "b64ndarrays": [base64.b64encode(raw).decode()], "attrs": {"tvm_version": "0.9.0"}}
    )
    read = parse_expr("meta[relay.Constant][0]\n#[metadata]\n" + section)
    assert isinstance(read, Constant)
    np.testing.assert_array_equal(read.value, array)


def test_damaged_meta_data_is_an_error() -> None:
    for section in (
        "{", '{"relay.Constant": [{"dtype": "float33", "shape": [], "data": ""}]}',
        '{"relay.Constant": [{"dtype": "float32", "shape": [9], "data": ""}]}'
    ):
        with pytest.raises(ParseError, match="metadata"):
            parse_expr("meta[relay.Constant][0]\n#[metadata]\n" + section)


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("1", "int32", 1), ("-3", "int32", -3), ("2f", "float32", 2), ("2.5", "float32", 2.5),
        ("1e-3f64", "float64", 1e-3), ("7i64", "int64", 7), ("-128i8", "int8", -128),
        ("255u8", "uint8", 255), ("0.1f16", "float16", 0.1), ("3h", "float16", 3), ("1.5bf16", "bfloat16", 1.5),
        ("True", "bool", True), ("-0f", "float32", -0.0),
        ("18446744073709551615u64", "uint64", 2**64 - 1), ("7i4", "int4", 7), ("2e3f", "float32", 2000),
    ],
)
def test_numbers(text: str, dtype: str, value: Any) -> None:
    read = parse_expr(text)
    assert isinstance(read, Constant)
    assert read.known_type() == TensorType((), dtype)
    assert read.value.tobytes() == np.asarray(value).astype(DataType(dtype).numpy()).tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "uint4", "bool", "float16", "uint16", "int64", "float64"])
def test_constants_of_every_dtype_are_read_back(dtype: str) -> None:
    kind = DataType(dtype).numpy()
    for value in (np.asarray([[0, 1], [1, 1]]).astype(kind), np.zeros((0, 3)).astype(kind), np.asarray(1).astype(kind)):
        read = parse_expr(astext(Tuple((relay.Constant(value),)), True))
        assert read.fields[0].value.tobytes() == value.tobytes()  # type: ignore[attr-defined]
        assert read.known_type() == TupleType([TensorType(value.shape, dtype)])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0, 1e-45])
def test_strange_floats_are_read_back(value: float) -> None:
    read = parse_expr(astext(relay.const(np.float32(value)), True))
    assert isinstance(read, Constant)
    assert read.value.tobytes() == np.float32(value).tobytes()
    clip = parse_expr(astext(relay.clip(relay.var("x", shape=(2,)), value, 1.0)))
    assert repr(clip.attrs.a_min) == repr(value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("float32", TensorType((), "float32")), ("Tensor[(), bool]", TensorType((), "bool")),
        ("Tensor[(3), int8]", TensorType((3,), "int8")), ("Tensor[(1, 2,), bfloat16]", TensorType((1, 2), "bfloat16")),
        ("(int32,)", TupleType([TensorType((), "int32")])), ("(int32)", TensorType((), "int32")), ("()", TupleType([])),
        ("ref(float32)", RefType(TensorType((), "float32"))),
        (
            "fn (int32, bool) -> int8",
            FuncType([TensorType((), "int32"), TensorType((), "bool")], TensorType((), "int8"))
        ),
    ],
)
def test_types(text: str, known: Any) -> None:
    read = parse_expr(f"free_var %x: {text};\n%x")
    assert read.known_type() == known


def test_sizes() -> None:
    read = parse_expr(
        "fn (%x: Tensor[(n, n * 2 + 1, ?), float32], %y: Tensor[(floordiv(n, 2), min(m: int32, 4)), float32]) { %x }"
    )
    x, y = read.params  # type: ignore[attr-defined]
    n = x.type_annotation.shape[0]
    assert x.type_annotation.shape[1] is n * 2 + 1
    assert isinstance(x.type_annotation.shape[2], UnknownDim)
    assert y.type_annotation.shape[0] is n // 2
    assert "Tensor[(n, (n * 2) + 1, ?), float32]" in text_of(read)
    assert_structural_equal(parse_expr(astext(read)), read)


def test_infix_operators_have_their_strengths() -> None:
    read = parse_expr("free_var %a: float32; free_var %b: float32;\n-%a + %b * 2f - %a / %b < %b")
    assert [e.op.name for e in post_order(read) if isinstance(e, Call)] == [
        "negative", "multiply", "add", "divide", "subtract", "less"
    ]
    assert read.known_type() == TensorType((), "bool")
    same = parse_expr("free_var %a: int32; %a - 1 - -2")
    assert [getattr(a, "value", None) for e in post_order(same) if isinstance(e, Call) for a in e.args[1:]] == [1, -2]


def test_what_people_write() -> None:
    text = """
    #[version = "0.0.5"]
    // comments of one line
    def @main(%x: Tensor[(2, 3), float32] /* and of /several */, Primitive=1, names=["a", ['b', 1, -2.5f, None, True]], table={"k": 1}) {
      %0 = nn.relu(%x);   // a name for a value
      let %y = { %1 = %0 + 1f; %1 * %1 };
      %2 = (%y,);
      %3 = (%y, %2.0, split(%x, indices_or_sections=[1, 2], axis=1).1);
      if (True) { %3.1 } else if (False) { %y } else { %0 }
    }
    """  # noqa: E501
    main = parse(text)["main"]
    assert main.known_type() == FuncType([TensorType((2, 3))], TensorType((2, 3)))
    assert main.attrs == {"Primitive": 1, "names": ("a", ("b", 1, -2.5, None, True)), "table": {"k": 1}}
    reads_back(parse(text))


def test_comments_may_have_comments_inside() -> None:
    assert_structural_equal(parse_expr("/* a /* b */ c /**/ */ 1 // 2\n + 3 /* 4 /* 5 */ */"), parse_expr("1 + 3"))
    with pytest.raises(ParseError, match=r"from_string:1:5: this comment is not closed; write \*/ at its end"):
        parse_expr("1 + /* a /* b */ 2")


def test_statements_may_stand_before_each_other() -> None:
    read = parse_expr("fn (%r: ref(float32)) { ref_write(%r, 1f); ref_write(%r, 2f); ref_read(%r) }")
    body = read.body  # type: ignore[attr-defined]
    assert isinstance(body, Let)
    assert isinstance(body.value, RefWrite)
    assert read.known_type().ret_type == TensorType((), "float32")  # type: ignore[union-attr]


def test_definitions_may_stand_in_any_order() -> None:
    mod = parse("def @a(%x: int32) { @b(%x) }\ndef @b(%x: int32) { @c(%x) + 1 }\ndef @c(%x: int32) -> int32 { %x }")
    assert [name for name, _ in mod.items()] == ["a", "b", "c"]
    assert mod["a"].ret_type == TensorType((), "int32")
    types = parse("def @f(%p: Pair[int32]) { match (%p) { Of(%a, _) => %a } }\ntype Pair[A] { Of(A, A) }")
    assert types["f"].ret_type == TensorType((), "int32")


def test_functions_call_themselves() -> None:
    mod = parse("def @down(%n: int32) -> int32 { if (%n < 1) { %n } else { @down(%n - 1) } }")
    reads_back(mod)
    local = parse_expr(
        "let %f: fn (int32) -> int32 = fn (%n: int32) -> int32 { if (%n < 1) { %n } else { %f(%n - 1) } }; %f(3)"
    )
    assert local.known_type() == TensorType((), "int32")
    outer = parse_expr("free_var %x: float32; let %x = %x + 1f; %x")
    assert isinstance(outer, Let)
    assert outer.value.args[0] is not outer.var  # type: ignore[attr-defined]


def test_types_flow_into_names_without_annotation() -> None:
    mod = parse("""
    type Option[A] { Some(A), None }
    def @main(%x: Tensor[(2), float32]) {
      let %y = Some((%x, 1));
      match (%y) { Some((%a, _)) => nn.relu(%a), None => %x }
    }""")
    assert mod["main"].ret_type == TensorType((2,), "float32")
    reads_back(mod)


def test_patterns_nest_and_matches_may_be_incomplete() -> None:
    mod = parse(
        "type L { C(int32, L), N, }\ndef @f(%l: L) -> int32 { match? (%l) { C(%a, C(%b: int32, _)) => { %a + %b }, "
        "C(_, N) => 1 } }"
    )
    match = mod["f"].body
    assert (match.complete, len(match.clauses)) == (False, 2)
    assert mod["f"].params[0].type_annotation == TypeCall(GlobalTypeVar("L"), [])
    reads_back(mod)


def test_constructors_are_told_apart_by_their_types() -> None:
    mod = parse("type A { X(int32), True }\ntype B { X(bool), add }\ndef @f() { (A.X(1), B.X(False), A.True, B.add) }")
    assert "A.X(1" in astext(mod)
    reads_back(mod)
    bare = parse("type A { X(int32), N }\ndef @f() { (X, constructor(N), N) }")
    reads_back(bare)


def test_odd_names_are_read_back() -> None:
    x, y = relay.var("a b/c", shape=(2,)), relay.var("1st", shape=(2,))
    mod = IRModule(
        {"main": Function((x,), relay.nn.relu(x), attrs={"an odd key": 1}), 'sub "graph"/1': Function((y,), y)},
        attrs={"a key": [1, "b"]}
    )
    reads_back(mod)
    assert [name for name, _ in parse(astext(mod)).items()] == ["main", 'sub "graph"/1']


def test_names_may_have_dots() -> None:
    """A number at the end is a field of a tuple, unless the whole is declared as a name."""
    mod = fromtext("""
#[version = "0.0.5"]
def @main(%features.0.0_weight: Tensor[(2), float32], %input.1: Tensor[(2), float32], %p.q: (int32, (int32, int32))) {
  let %a.b = %p.q.1.0;
  (add(%features.0.0_weight, %input.1), %a.b)
}
""")
    assert [p.name_hint for p in mod["main"].params] == ["features.0.0_weight", "input.1", "p.q"]
    body = mod["main"].body
    assert isinstance(body, Let) and isinstance(body.value, TupleGetItem) and body.value.index == 0
    with pytest.raises(ParseError, match=r"%input is not bound here"):
        fromtext('#[version = "0.0.5"]\ndef @main(%inputs: int32) { %input.1 }')


def test_loop_functions_are_in_modules() -> None:
    text = (
        '@T.prim_func\ndef kernel(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):\n    for i in '
        'T.serial(8):\n        B[i] = A[i] * 2.0\n'
    )
    x = relay.var("x", shape=(2,))
    mod = IRModule({"first": tvm.tir.parse(text), "main": Function((x,), x), "kernel": tvm.tir.parse(text)})
    again = parse(astext(mod))
    assert [name for name, _ in again.items()] == ["first", "kernel", "main"], "text has them by name"
    assert_structural_equal(again, mod)
    with pytest.raises(ParseError, match="net:4"):
        parse("def @main() { 1 }\n@T.prim_func\ndef kernel():\n    nonsense(\n", "net")


def test_module_attributes_and_init_module() -> None:
    mod = parse('attributes {\n  \'key\' = [1, "a"]\n}\ndef @f(%x: int32) -> int32 { %x }\ntype Box { Of(int32) }')
    assert mod.attrs == {"key": (1, "a")}
    more = parse("def @g() { match (Of(@f(1))) { Of(%a) => %a } }", init_module=mod)
    assert {name for name, _ in more.items()} == {"f", "g"}
    assert more["g"].ret_type == TensorType((), "int32")
    assert [name for name, _ in mod.items()] == ["f"]


def test_nodes_know_where_they_stand() -> None:
    read = parse("def @main(%x: float32) {\n  exp(%x)\n}", "net.relay")["main"].body
    assert str(read.span) == "exp '2:3' (net.relay:2)"
    assert "exp(%x) /* ty=float32 span=exp '2:3' (net.relay:2) */" in read.astext(show_spans=True)


def test_texts_are_annotated_by_the_user() -> None:
    x = relay.var("x", shape=(2,))
    text = astext(relay.nn.relu(relay.exp(x)), annotate=lambda e: f" /* {type(e).__name__} */")
    assert "%0 = exp(%x) /* Call */;\nnn.relu(%0) /* Call */" in text


@pytest.mark.slow
def test_long_and_deep_texts() -> None:
    e: Expr = relay.var("x", shape=(2,))
    for _ in range(10_000):
        e = relay.exp(e)
    assert structural_equal(parse_expr(astext(e)), e, map_free_vars=True)
    lines = ["fn (%v0: float32) {", *(f"let %v{i + 1} = exp(%v{i});" for i in range(2000)), "%v2000 }"]
    assert len(post_order(parse_expr("\n".join(lines)))) == 6002
    summed = parse_expr("free_var %x: float32; " + " + ".join(["%x"] * 10_000))
    assert summed.known_type() == TensorType((), "float32")


def test_scopes_within_each_other() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    e: Expr = relay.exp(x)
    for _ in range(500):
        e = If(c, relay.tanh(x), e)
    assert structural_equal(parse_expr(astext(e)), e, map_free_vars=True)
    chain = "free_var %c: bool; " + "if (%c) { 1 } else " * 3000 + "{ 2 }"
    assert len(post_order(parse_expr(chain))) == 6002
    calls = "\n".join(f"def @f{i}(%x: int32) {{ @f{i + 1}(%x) }}" for i in range(500))
    assert parse(calls + "\ndef @f500(%x: int32) { %x }")["f0"].ret_type == TensorType((), "int32")


def test_a_text_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_expr("(" * 20_000 + "1" + ")" * 20_000)


def test_shared_values_are_named_where_all_users_see_them() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    e: Expr = relay.exp(x)
    for _ in range(40):
        e = If(c, relay.nn.relu(e), relay.tanh(e))
    text = astext(e)
    assert text.count("exp(") == 1
    assert len(text) < 20_000
    assert structural_equal(parse_expr(text), e, map_free_vars=True)


def test_fields_of_calls() -> None:
    read = parse_expr("free_var %x: Tensor[(4), float32]; split(%x, indices_or_sections=2).1")
    assert isinstance(read, TupleGetItem)
    assert (read.index, read.known_type()) == (1, TensorType((2,)))


def test_the_names_of_the_field() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: float32) -> float32 { %x }\n'
    for read in (tvm.parser.parse, tvm.parser.fromtext, relay.fromtext, relay.parse, fromtext):
        assert_structural_equal(read(text), parse(text))
    assert isinstance(tvm.parser.parse_expr("fn (%x: float32) { %x }"), Function)
    assert tvm.parser.parse("1f")["main"].ret_type == TensorType((), "float32")
    with pytest.raises(ParseError, match="an expression is expected"):
        relay.parse_expr(text)


def test_the_prelude() -> None:
    p = relay.Prelude(IRModule())
    reads_back(p.mod)
    header, cons, nil = p.mod.get_type("List")
    t = TensorType((), "int32")
    numbers = relay.var("l", header(t))
    assert p.length(numbers).known_type() == t
    assert p.map(
        Function((x := relay.var("x", t),), relay.cast(x, "float32")), numbers
    ).known_type() == header(TensorType((), "float32"))
    assert p.zip(numbers, numbers).known_type() == header(TupleType([t, t]))
    assert cons(relay.const(1), numbers).known_type() == header(t)
    assert nil().known_type() is None
    assert {
        "hd", "tl", "nth", "update", "foldl", "foldr", "foldr1", "concat", "filter", "rev", "sum", "map_accumr",
        "unfoldl", "unfoldr", "size"
    } <= set(dir(p))
    assert relay.Prelude(p.mod).mod is p.mod
    with pytest.raises(AttributeError, match="the prelude has no function 'mpa'"):
        _ = p.mpa
    listed = r"the standard library has no 'prelude'; it has core\.rly, nat\.rly, prelude\.rly"
    with pytest.raises(CompileError, match=listed):
        IRModule().import_from_std("prelude")


MARKS = (
    "(", ")", "{", "}", "[", "]", "%", "@", "meta", "let", "fn", "match", "-", ".0", '"', "`", "=", "1e999",
    "99999999999999999999", "None", "_", "def", "/*", "int323"
)


@pytest.mark.parametrize("block", range(4))
def test_damaged_texts_are_parse_errors_and_nothing_else(block: int) -> None:
    """Words of printed programs are dropped, doubled, exchanged and replaced."""
    rng = random.Random(block)
    for seed in range(50):
        program, mark, section = astext(random_module(100 * block + seed), True).partition("#[metadata]")
        words = re.findall(r"\w+|[^\w\s]|\s+", re.sub(r"/\* ty=.*?\*/", "", program))
        for _ in range(rng.randrange(1, 4)):
            at, other = rng.randrange(len(words)), rng.randrange(len(words))
            change = rng.randrange(4)
            if change == 0:
                del words[at]
            elif change == 1:
                words.insert(at, words[other])
            elif change == 2:
                words[at], words[other] = words[other], words[at]
            else:
                words[at] = rng.choice(MARKS)
        try:
            _ = parse("".join(words) + mark + section)
        except ParseError as error:
            assert str(error).startswith("from_string:")


def cases(file: Path) -> list[Any]:
    return [pytest.param(m, id=m["name"]) for m in CASE.finditer(file.read_text())]


def compare(file: Path, case: re.Match[str], found: str) -> None:
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['expected']}```", f"```text\n{found.rstrip()}\n```")
        file.write_text(file.read_text().replace(case[0], updated))
        return
    assert found.rstrip() == case["expected"].rstrip()


@pytest.mark.parametrize("file", [ERRORS, WRITTEN], ids=["errors", "texts"])
def test_the_files_hold_cases_only(file: Path) -> None:
    assert file.read_text().count("\n## ") == len(cases(file)) >= 8


@pytest.mark.parametrize("case", cases(ERRORS))
def test_wrong_texts(case: re.Match[str]) -> None:
    with pytest.raises(ParseError) as error:
        parse(case["text"], "net.relay")
    compare(ERRORS, case, str(error.value))


@pytest.mark.parametrize("case", cases(WRITTEN))
def test_texts_as_they_are_printed(case: re.Match[str]) -> None:
    numbers = np.random.default_rng(0)
    shapes = re.findall(r"// meta (\w+) \(([\d, ]*)\)", case["text"])
    table = {
        "relay.Constant": [
            numbers.integers(0, 9, [int(n) for n in s.split(",") if n.strip()]).astype(d) for d, s in shapes
        ]
    }
    mod = parse(case["text"], init_meta_table=table)
    compare(WRITTEN, case, astext(mod))
    reads_back(mod)


@pytest.mark.parametrize(("text", "value", "dtype"), [
    ("--10", 10, "int32"), ("---10", -10, "int32"), ("-42i", -42, "int32"), ("7u", 7, "uint32"),
    ("2147483647", 2**31 - 1, "int32"), ("2147483648", 2**31, "int64"), ("9223372036854775807", 2**63 - 1, "int64"),
    ("3.4028235e38f", 3.4028235e38, "float32"), ("65504f16", 65504, "float16"),
])
def test_signs_and_types_of_numbers(text: str, value: float, dtype: str) -> None:
    read = parse_expr(text)
    assert read.known_type() == TensorType((), dtype)
    np.testing.assert_allclose(read.data.numpy(), value, rtol=1e-7)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "message"), [
    ("65505f16", "65505 does not fit float16; the limit is 65504"),
    ("-3.41e38f", "does not fit float32; the limit is -3.4"),
    ("9223372036854775808", "9223372036854775808 does not fit int64; the limit is 9223372036854775807"),
])
def test_numbers_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_expr(text)


def test_the_type_of_a_let_variable_follows_from_its_value() -> None:
    x = relay.Var("x")
    assert_structural_equal(parse_expr("let %x = 1; ()"), relay.Let(x, relay.const(1), relay.Tuple([])))
    assert structural_hash(parse_expr("let %x = 1; %x")) == structural_hash(relay.Let(x, relay.const(1), x))
    assert not structural_equal(parse_expr("let %x: int32 = 1; ()"), relay.Let(x, relay.const(1), relay.Tuple([])))


def test_a_constructor_with_the_name_of_a_keyword() -> None:
    mod = parse("type Box[T] { constructor(T) }\ndef @example() { %0 = (); (constructor(%0), constructor(0f)) }")
    assert str(mod["example"].body.checked_type) == "(Box[()], Box[float32])"
    assert_structural_equal(parse(mod.astext()), mod)
    (header, data), *_ = mod.type_definitions.items()
    items: Any = mod.type_definitions.items()
    assert items[0][0] is header and data.constructors[0].name_hint == "constructor"
    mod._add("more", mod["example"])
    with pytest.raises(CompileError, match="the module has 'more' already"):
        mod._add("more", mod["example"])
