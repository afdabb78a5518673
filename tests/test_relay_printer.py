"""Relay as text."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem
from tilewright.relay.printer import VERSION, astext, attribute_text, text_of


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


X = relay.var("x", shape=(1, 3, 8, 8))
WEIGHT = relay.const(np.arange(108, dtype="float32").reshape(4, 3, 3, 3))


def test_a_function_as_the_field_writes_it() -> None:
    y = relay.nn.conv2d(X, WEIGHT, padding=1, channels=4, kernel_size=3)
    f = Function(
        (X,), relay.clip(relay.add(relay.nn.relu(y), relay.const(2.5)), 0, 6),
        attrs={"output_tensor_names": ["out"], "Primitive": 1}
    )
    t = "Tensor[(1, 4, 8, 8), float32]"
    assert lines(text_of(f)) == [
        "fn (%x: Tensor[(1, 3, 8, 8), float32] /* ty=Tensor[(1, 3, 8, 8), float32] */, output_tensor_names=[\"out\"], "
        f"Primitive=1) -> {t} {{",
        "  %0 = nn.conv2d(%x, meta[relay.Constant][0] /* ty=Tensor[(4, 3, 3, 3), float32] */, padding=[1, 1, 1, 1], "
        "channels=4, "
        f"kernel_size=[3, 3]) /* ty={t} */;",
        f"  %1 = nn.relu(%0) /* ty={t} */;",
        f"  %2 = add(%1, 2.5f /* ty=float32 */) /* ty={t} */;",
        f"  clip(%2, a_min=0f, a_max=6f) /* ty={t} */",
        "}",
    ]


def test_attributes_are_printed_where_they_differ_from_the_defaults() -> None:
    w = relay.var("w", shape=(3, 1, 3, 3))
    text = text_of(relay.nn.conv2d(relay.var("d", shape=(1, 3, 9, 9)), w, strides=2, padding=(0, 0, 1, 1), groups=3))
    assert "nn.conv2d(%d, %w, strides=[2, 2], padding=[0, 0, 1, 1], groups=3)" in text
    last = relay.nn.conv2d(
        relay.var("d", shape=(1, 9, 9, 3)), relay.var("w", shape=(3, 3, 3, 4)), data_layout="NHWC", kernel_layout="HWIO"
    )
    assert 'nn.conv2d(%d, %w, padding=[0, 0, 0, 0], data_layout="NHWC", kernel_layout="HWIO")' in text_of(last)


@pytest.mark.parametrize(
    ("value", "declared", "text"),
    [
        (1, "int", "1"), (1, "float", "1f"), (0.5, "float", "0.5f"), (1e-5, "float", "1e-05f"), (True, "bool", "True"),
        (None, "int | None", "None"),
        ("NCHW", "str", '"NCHW"'), (((0, 0), (1, 2)), "tuple", "[[0, 0], [1, 2]]"), ((), "tuple", "[]"),
        ([1.0], "tuple", "[1f]"), ('a"b', "str", '"a\\"b"'),
    ],
)
def test_attribute_values(value: object, declared: str, text: str) -> None:
    assert attribute_text(value, declared) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(2), "2f /* ty=float32 */"), (np.float32(0.1), "0.1f /* ty=float32 */"),
        (np.float64(-1.5), "-1.5f64 /* ty=float64 */"),
        (np.int32(7), "7 /* ty=int32 */"), (np.int64(-1), "-1i64 /* ty=int64 */"),
        (np.bool_(True), "True /* ty=bool */"), (np.float32(1e-20), "1e-20f /* ty=float32 */"),
    ],
)
def test_scalar_constants_are_inline(value: np.generic, text: str) -> None:
    assert text_of(relay.Constant(np.asarray(value))) == text


def test_other_constants_tell_what_they_hold() -> None:
    text = text_of(relay.const(np.asarray([1, -2], "int8")))
    assert text.startswith("meta[relay.Constant][0] /* ty=Tensor[(2), int8], from -2 to 1, sha256 ")
    assert "from inf to inf" in text_of(relay.const(np.float32(np.inf)))
    assert text_of(relay.const(np.zeros((0, 2), "float32"))).startswith(
        "meta[relay.Constant][0] /* ty=Tensor[(0, 2), float32], sha256 "
    )


def test_constants_are_numbered_by_first_use_and_shared() -> None:
    a, b = relay.const(np.ones(2, "float32")), relay.const(np.zeros(2, "float32"))
    x = relay.var("x", shape=(2,))
    text = text_of(relay.add(relay.add(relay.add(x, b), a), b))
    assert [line.split(", ")[1].split(" ")[0] for line in lines(text)[1:]] == [
        "meta[relay.Constant][0]", "meta[relay.Constant][1]", "meta[relay.Constant][0]"
    ]


def test_tuples_and_their_fields() -> None:
    s = relay.split(relay.var("x", shape=(4,)), 2)
    one = Tuple((TupleGetItem(s, 1),))
    t = "Tensor[(2), float32]"
    assert lines(text_of(one))[1:] == [
        f"%0 = split(%x, indices_or_sections=2) /* ty=({t}, {t}) */;",
        f"%1 = %0.1 /* ty={t} */;",
        f"(%1,) /* ty=({t},) */",
    ]
    assert lines(text_of(relay.concatenate([TupleGetItem(s, 0), TupleGetItem(s, 1)], axis=0)))[-2:] == [
        f"%3 = (%1, %2) /* ty=({t}, {t}) */;", "concatenate(%3) /* ty=Tensor[(4), float32] */"
    ]


def test_nested_functions_and_calls() -> None:
    p, q = relay.var("p0", shape=(2,)), relay.var("q", shape=(2,))
    t = "Tensor[(2), float32]"
    inner = Function((p,), relay.nn.relu(relay.exp(p)), attrs={"Primitive": 1})
    assert lines(text_of(Call(inner, [relay.log(q)]))) == [
        f"free_var %q: {t} /* ty={t} */;",
        f"%1 = fn (%p0: {t} /* ty={t} */, Primitive=1) -> {t} {{",
        f"  %0 = exp(%p0) /* ty={t} */;",
        f"  nn.relu(%0) /* ty={t} */",
        f"}} /* ty=fn ({t}) -> {t} */;",
        f"%2 = log(%q) /* ty={t} */;",
        f"%1(%2) /* ty={t} */",
    ]


def test_branches_are_scopes() -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,))
    shared = relay.exp(x)
    text = lines(text_of(If(c, relay.nn.relu(shared), relay.tanh(shared))))
    t = "Tensor[(2), float32]"
    assert text[2:] == [
        f"%0 = exp(%x) /* ty={t} */;", "if (%c) {", f"  nn.relu(%0) /* ty={t} */", "} else {",
        f"  tanh(%0) /* ty={t} */", f"}} /* ty={t} */",
    ]
    once = lines(text_of(relay.add(shared, If(c, relay.nn.relu(shared), shared))))
    assert sum("exp(" in line for line in once) == 1


def test_let() -> None:
    x, v = relay.var("x", shape=(2,)), relay.var("v", shape=(2,))
    t = "Tensor[(2), float32]"
    body = Let(v, relay.nn.relu(relay.exp(x)), relay.add(v, v))
    assert lines(text_of(body))[1:] == [
        f"%0 = exp(%x) /* ty={t} */;", f"let %v: {t} = nn.relu(%0) /* ty={t} */;", f"add(%v, %v) /* ty={t} */"
    ]
    assert lines(text_of(relay.negative(body)))[1:] == [
        "%1 = (", f"  %0 = exp(%x) /* ty={t} */;", f"  let %v: {t} = nn.relu(%0) /* ty={t} */;",
        f"  add(%v, %v) /* ty={t} */", f") /* ty={t} */;",
        f"negative(%1) /* ty={t} */",
    ]


def test_names_are_unique_and_plain() -> None:
    names = ["x", "x", "1a", "a/b:0", ""]
    parts = [relay.var(n, shape=(1,)) for n in names]
    text = text_of(relay.concatenate(parts, axis=0))
    assert [line.split(":")[0] for line in lines(text)[:5]] == [
        "free_var %x", "free_var %x1", "free_var %v1a", "free_var %a_b_0", "free_var %v"
    ]


def test_unknown_types_are_left_out() -> None:
    x = relay.var("x")
    assert text_of(relay.nn.relu(x)) == "free_var %x;\nnn.relu(%x)"


def test_modules() -> None:
    x, p = relay.var("x", shape=(2,)), relay.var("npu_0_i0", shape=(2,))
    outer = Function(
        (p,), relay.exp(p), attrs={"Inline": 1, "Compiler": "npu", "global_symbol": "npu_0", "Primitive": 1}
    )
    name = GlobalVar("npu_0", outer.known_type())  # type: ignore[arg-type]
    mod = IRModule({"main": Function((x,), Call(name, [x])), "npu_0": outer})
    t = "Tensor[(2), float32]"
    assert lines(astext(mod)) == [
        VERSION,
        f"def @main(%x: {t} /* ty={t} */) -> {t} {{", f"  @npu_0(%x) /* ty={t} */", "}", "",
        f'def @npu_0(%npu_0_i0: {t} /* ty={t} */, Inline=1, Compiler="npu", global_symbol="npu_0", Primitive=1) -> {t} {{',  # noqa: E501
        f"  exp(%npu_0_i0) /* ty={t} */", "}",
    ]


def test_metadata_holds_the_constants() -> None:
    text = astext(Function((X,), relay.nn.conv2d(X, WEIGHT)), show_meta_data=True)
    entry = json.loads(text.split("#[metadata]\n")[1])["relay.Constant"][0]
    assert (entry["dtype"], entry["shape"]) == ("float32", [4, 3, 3, 3])
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(entry["data"]), "float32").reshape(4, 3, 3, 3), WEIGHT.value
    )


def test_deep_graphs_print() -> None:
    e: Expr = relay.var("x", shape=(2,))
    for _ in range(10_000):
        e = relay.exp(e)
    text = lines(text_of(e))
    assert (len(text), text[-1]) == (10_001, "exp(%9998) /* ty=Tensor[(2), float32] */")


def test_repr_is_the_text() -> None:
    assert repr(relay.nn.relu(X)) == text_of(relay.nn.relu(X))


def test_a_span_that_a_program_gives_is_printed() -> None:
    x = relay.var("x", shape=(2,))
    call = relay.Call(relay.op.get("exp"), [x], span=relay.Span(relay.SourceName("Encoder"), 3, 3, 1, 5))
    assert "exp(%x) /* ty=Tensor[(2), float32] span='3:1' (Encoder:3) */" in relay.nn.relu(call).astext()
    assert "span" not in relay.exp(x).astext()
