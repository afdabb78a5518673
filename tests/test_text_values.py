"""Strings: how they travel through types, text, files and programs whose other parts are native."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tvm
from tilewright import relay
from tilewright.errors import ArtifactError, CompileError, InputError, ShapeError
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import get
from tilewright.runtime.program import HostStep, KernelCall


def _strings(*values: str) -> np.ndarray[Any, Any]:
    return np.array(values, object)


def _program() -> tvm.IRModule:
    """Strings go in, are compared, choose between native results, and go out."""
    s, x = relay.var("s", shape=(3,), dtype="string"), relay.var("x", shape=(3,))
    chosen = relay.where(relay.equal(s, relay.Constant(_strings("a", "b", "c"))), x * relay.const(2.0), x + relay.const(1.0))
    joined = get("string_concat")()(relay.reshape(s, (1, 3)), relay.Constant(_strings("!")))
    return tvm.IRModule.from_expr(relay.Function([s, x], relay.Tuple([joined, chosen, s, relay.Constant(_strings("k"))])))


def test_a_program_with_strings_computes_the_rest_natively() -> None:
    model = tvm.compile(_program())
    steps = model.artifact.manifest.steps
    assert [type(s) for s in steps].count(KernelCall) == 1
    assert {"equal", "string_concat", "reshape", "copy"} <= {s.name for s in steps if isinstance(s, HostStep)}
    joined, chosen, same, constant = model(_strings("a", "x", "c"), np.float32([1, 2, 3]))
    assert joined.tolist() == [["a!", "x!", "c!"]] and same.tolist() == ["a", "x", "c"] and constant.tolist() == ["k"]
    np.testing.assert_array_equal(chosen, np.float32([2, 3, 6]))


@pytest.mark.parametrize("given", [np.array(["a", "é", ""]), np.array(["a", "é", ""], np.dtypes.StringDType()), ["a", "é", ""]])
def test_any_of_numpys_strings_are_taken(given: Any) -> None:
    x = relay.var("x", shape=(3,), dtype="string")
    model = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], get("string_concat")()(x, x))))
    assert model(given).tolist() == ["aa", "éé", ""]
    out = np.empty(3, object)
    model(given, out=out)
    assert out.tolist() == ["aa", "éé", ""]


def test_what_is_no_string_is_refused_by_name() -> None:
    model = tvm.compile(_program())
    with pytest.raises(InputError, match=r"input 's' has elements of type int, expected string s\[3\]; pass strings"):
        model(np.array([1, 2, 3]), np.zeros(3, np.float32))
    with pytest.raises(InputError, match=r"input 's' has shape \[2\]"):
        model(_strings("a", "b"), np.zeros(3, np.float32))


def test_strings_do_not_leave_the_process_in_code() -> None:
    with pytest.raises(ArtifactError, match="run in Python: "):
        tvm.compile(_program()).artifact.manifest.to_json()


def test_branches_over_strings_are_refused() -> None:
    c, s = relay.var("c", shape=(), dtype="bool"), relay.var("s", shape=(2,), dtype="string")
    chosen = relay.If(c, s, get("string_concat")()(s, s))
    with pytest.raises(CompileError, match=r"'s' is of type .* keep strings out of the branches"):
        tvm.compile(tvm.IRModule.from_expr(relay.Function([c, s], chosen)))


def test_text_and_json_keep_strings() -> None:
    module = _program()
    assert tvm.ir.structural_equal(tvm.parser.parse(module.astext(show_meta_data=True)), module)
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)
    other = tvm.IRModule.from_expr(relay.Function([], relay.Constant(_strings("k"))))
    same = tvm.IRModule.from_expr(relay.Function([], relay.Constant(_strings("k"))))
    assert tvm.ir.structural_hash(other) == tvm.ir.structural_hash(same)


def test_objects_that_are_no_strings_have_no_text() -> None:
    constant = relay.Constant(np.array([{"a": 1}], object))
    with pytest.raises(CompileError, match="objects of type dict, which have no text"):
        tvm.IRModule.from_expr(relay.Function([], constant)).astext(show_meta_data=True)
    with pytest.raises(CompileError, match="strings have no place in the binary form of parameters"):
        relay.save_param_dict({"s": _strings("a")})


def test_strings_and_numbers() -> None:
    x = relay.var("x", shape=(4,), dtype="string")
    real = evaluate(relay.Function([x], relay.cast(x, "float32")), _strings("1.5", "-INF", "NaN", "1e3"))
    np.testing.assert_array_equal(real, np.float32([1.5, -np.inf, np.nan, 1000]))
    whole = evaluate(relay.Function([x], relay.cast(x, "int64")), _strings("9007199254740993", " -7 ", "100.5", "+2"))
    assert whole.tolist() == [9007199254740993, -7, 100, 2]
    n = relay.var("n", shape=(2,))
    assert evaluate(relay.Function([n], relay.cast(n, "string")), np.float32([0.1, 3])).tolist() == ["0.1", "3.0"]
    with pytest.raises(InputError, match="a string cannot be cast to float32: could not convert string to float: 'one'"):
        evaluate(relay.Function([x], relay.cast(x, "float32")), _strings("one", "2", "3", "4"))


def test_operators_of_strings() -> None:
    split = get("string_split")(delimiter=",", maxsplit=1)
    pieces, counts = split.reference(_strings("a,b,c", "d", ""))
    assert pieces.tolist() == [["a", "b,c"], ["d", ""], ["", ""]] and counts.tolist() == [2, 1, 1]
    assert get("string_split")().reference(_strings("", "  a  b "))[0].tolist() == [["", ""], ["a", "b"]]
    upper = get("string_normalize")(case_change_action="UPPER", stopwords=("monday",))
    assert upper.reference(_strings("Monday", "tuesday")).tolist() == ["TUESDAY"]
    assert upper.reference(_strings("monday")).tolist() == [""]
    assert get("regex_full_match")(pattern="a+").reference(_strings("aa", "ab")).tolist() == [True, False]


TOKENIZERS: list[dict[str, Any]] = [
    {"tokenexp": "[a-zA-Z0-9_]+"}, {"tokenexp": "a|ab|abc"}, {"tokenexp": "\\w+"}, {"tokenexp": "a?(ab)?b*"}, {"tokenexp": "[^ ]{2}"}, {"separators": [" "]},
    {"separators": [",", "[ -]+"]}, {"separators": [""], "mincharnum": 1}, {"separators": ["b|bc"]},
]


@pytest.mark.parametrize("attributes", TOKENIZERS)
@pytest.mark.parametrize("mark", [0, 1])
def test_tokens_are_those_of_onnx_runtime(attributes: dict[str, Any], mark: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the operator is ONNX Runtime's own")
    for x in (_strings("Hello, world free", "a-b  c", "", "éa bc_d 12"), _strings("aab b", "xyz", "", "ab").reshape(2, 2), _strings("", "")):
        proto = _tokenizer({"mincharnum": 2, "mark": mark, **attributes}, x.shape)
        (expected,) = onnxruntime.InferenceSession(proto).run(None, {"x": x})
        found = tvm.compile(proto)(x)
        assert found.shape == expected.shape and found.tolist() == expected.tolist()


def test_tokens_go_on_to_operators_of_known_sizes() -> None:
    """What a tokenizer gives has a size that only a run tells; the nodes behind it take strings of it all the same."""
    made = onnx.ModelProto.FromString(_tokenizer({"mincharnum": 1, "separators": [" "]}, (2,)))
    made.graph.node.append(helper.make_node("Flatten", ["y"], ["flat"]))
    made.graph.output[0].name = "flat"
    assert tvm.compile(made)(_strings("a b", "c")).tolist() == [["a", "b"], ["c", "#"]]


def _tokenizer(attributes: dict[str, Any], shape: tuple[int, ...]) -> bytes:
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **{"mark": 0, "pad_value": "#", **attributes})
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.STRING, s) for n, s in (("x", shape), ("y", None)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made: bytes = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=8).SerializeToString()
    return made


@pytest.mark.parametrize(("attributes", "shape", "message"), [
    ({"mincharnum": 2}, (2,), "mincharnum is 2; it must be at least 1, and 1 where tokens are single characters"),
    ({"mincharnum": 1, "separators": [","], "tokenexp": "a"}, (2,), "one of the attributes separators and tokenexp may be given, and here are both"),
    ({"mincharnum": 1, "tokenexp": "a"}, (1, 2, 1), "its input must be a vector or a matrix of strings, and it has 3 dimensions"),
    ({"mincharnum": 1, "tokenexp": "(a"}, (2,), r"the pattern '\(a' is no regular expression"),
    ({"mincharnum": 1, "tokenexp": r"\ba+"}, (2,), "asks what stands around a token, which is not supported; say what a token is made of"),
])
def test_tokenizers_that_are_refused(attributes: dict[str, Any], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        tvm.compile(_tokenizer(attributes, shape))


def test_operators_of_strings_refuse() -> None:
    number, text = relay.var("x", shape=(2,)), relay.var("s", shape=(2, 2), dtype="string")
    with pytest.raises(ShapeError, match="a tensor of strings was expected, and this one is float32"):
        get("string_concat")()(number, number)
    with pytest.raises(ShapeError, match="a string is no number, and this operator takes numbers alone"):
        relay.add(text, text)
    with pytest.raises(ShapeError, match="must be a vector, or a matrix of one row"):
        get("string_normalize")()(text)
    with pytest.raises(ShapeError, match="case_change_action is 'upper'"):
        get("string_normalize")(case_change_action="upper")(relay.var("s", shape=(2,), dtype="string"))
    with pytest.raises(ShapeError, match=r"the pattern '\(' is no regular expression"):
        get("regex_full_match")(pattern="(")(text)
