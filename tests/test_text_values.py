"""Strings: how they travel through types, text, files and programs whose other parts are native."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tvm
from small_models import stages_of
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError, InputError, OpenSizeWarning, ShapeError
from tilewright.base.string_tensors import pack_texts
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import get
from tilewright.relay.transform import NativeTexts
from tilewright.runtime.artifact import load_executable
from tilewright.runtime.program import HostStep, KernelCall


def _strings(*values: str) -> np.ndarray[Any, Any]:
    return np.array(values, object)


def _program() -> tvm.IRModule:
    """Strings go in, are compared, choose between native results, and go out."""
    s, x = relay.var("s", shape=(3,), dtype="string"), relay.var("x", shape=(3,))
    chosen = relay.where(
        relay.equal(s, relay.Constant(_strings("a", "b", "c"))), x * relay.const(2.0), x + relay.const(1.0)
    )
    joined = get("string_concat")()(relay.reshape(s, (1, 3)), relay.Constant(_strings("!")))
    return tvm.IRModule.from_expr(
        relay.Function([s, x], relay.Tuple([joined, chosen, s, relay.Constant(_strings("k"))]))
    )


def test_a_program_with_strings_computes_the_rest_natively() -> None:
    model = tvm.compile(_program())
    steps = model.artifact.manifest.steps
    assert [type(s) for s in steps] == [KernelCall, KernelCall, HostStep, HostStep, HostStep, HostStep]
    assert sorted(s.name for s in steps if isinstance(s, HostStep)) == ["copy", "copy", "reshape", "string_concat"]
    joined, chosen, same, constant = model(_strings("a", "x", "c"), np.array([1, 2, 3], np.float32))
    assert joined.tolist() == [["a!", "x!", "c!"]] and same.tolist() == ["a", "x", "c"] and constant.tolist() == ["k"]
    np.testing.assert_array_equal(chosen, np.array([2, 3, 6], np.float32))


@pytest.mark.parametrize(
    "given", [np.array(["a", "é", ""]), np.array(["a", "é", ""], np.dtypes.StringDType()), ["a", "é", ""]]
)
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


@pytest.mark.parametrize("truth", [True, False])
def test_branches_over_strings_are_chosen_while_the_program_runs(truth: bool) -> None:
    """By the one door and by the other, and what reads the text goes on with it."""
    c, s = relay.var("c", shape=(), dtype="bool"), relay.var("s", shape=(2,), dtype="string")
    join = get("string_concat")()
    program = tvm.IRModule.from_expr(
        relay.Function([c, s], join(relay.If(c, s, join(s, s)), relay.Constant(_strings("!"))))
    )
    wanted = ["a!", "b!"] if truth else ["aa!", "bb!"]
    assert tvm.compile(program)(np.array(truth), _strings("a", "b")).tolist() == wanted
    assert relay.create_executor("vm", program).evaluate()(
        np.array(truth), _strings("a", "b")
    ).numpy().tolist() == wanted


def _loop(
    body_of: Any, before: list[onnx.NodeProto], after: list[onnx.NodeProto], state: int, given: int
) -> onnx.ModelProto:
    """`x` -> before -> `s`, twice through a loop -> `p` -> after -> `y`."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), body_of], "body",
        [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, []), info("state", state, [2])],
        [info("goes", onnx.TensorProto.BOOL, []), info("next", state, [2])],
    )
    nodes = [*before, helper.make_node("Loop", ["n", "", "s"], ["p"], body=body), *after]
    graph = helper.make_graph(
        nodes, "g", [info("x", given, [2]), info("n", onnx.TensorProto.INT64, [])],
        [info("y", onnx.TensorProto.UNDEFINED, None)]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9
    )


def test_loops_run_between_operators_on_texts() -> None:
    """Texts become numbers, a loop of native code runs over them, and its numbers become texts."""
    words = {"domain": "ai.onnx.ml"}
    before = [helper.make_node("LabelEncoder", ["x"], ["s"], keys_strings=["a", "b"], values_int64s=[3, 5], **words)]
    after = [helper.make_node("LabelEncoder", ["p"], ["y"], keys_int64s=[12, 20], values_strings=["q", "r"], **words)]
    proto = _loop(
        helper.make_node("Add", ["state", "state"], ["next"]), before, after, onnx.TensorProto.INT64,
        onnx.TensorProto.STRING
    )
    model = tvm.compile(proto)
    given = {"x": _strings("a", "b"), "n": np.array(2)}
    assert model(given).tolist() == ["q", "r"]
    programs = [e.program.artifact.manifest for e in stages_of(model).edges() if e.program is not None]
    assert [bool(m.steps) for m in programs] == [True, False, True], "the middle one is the loop"
    module, _ = relay.frontend.from_onnx(proto)
    assert relay.create_executor("debug", module).evaluate()(**given).numpy().tolist() == ["q", "r"]


def test_dictionaries_are_made_of_what_a_loop_made(tmp_path: Path) -> None:
    after = [
        helper.make_node("Reshape", ["p", "row"], ["r"]),
        helper.make_node("ZipMap", ["r"], ["y"], domain="ai.onnx.ml", classlabels_strings=["k", "l"])
    ]
    before = [helper.make_node("Neg", ["x"], ["s"]), helper.make_node("Constant", [], ["row"], value_ints=[1, 2])]
    proto = _loop(
        helper.make_node("Add", ["state", "state"], ["next"]), before, after, onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT
    )
    model = tvm.compile(proto)
    given = np.array([1, 2], np.float32), np.array(3)
    assert model(*given).tolist() == [{"k": -8.0, "l": -16.0}]
    model.save(tmp_path / "m.tar")
    assert tvm.load(tmp_path / "m.tar")(*given).tolist() == [{"k": -8.0, "l": -16.0}]


def test_texts_in_loops_are_refused() -> None:
    proto = _loop(
        helper.make_node("StringConcat", ["state", "state"], ["next"]), [helper.make_node("Identity", ["x"], ["s"])],
        [helper.make_node("Identity", ["p"], ["y"])], onnx.TensorProto.STRING, onnx.TensorProto.STRING
    )
    with pytest.raises(CompileError, match=r"'x' is of type .* keep strings out of the branches"):
        tvm.compile(proto)


def test_text_and_json_keep_strings() -> None:
    module = _program()
    assert tvm.ir.structural_equal(tvm.parser.parse(module.astext(show_meta_data=True)), module)
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)
    other = tvm.IRModule.from_expr(relay.Function([], relay.Constant(_strings("k"))))
    same = tvm.IRModule.from_expr(relay.Function([], relay.Constant(_strings("k"))))
    assert tvm.ir.structural_hash(other) == tvm.ir.structural_hash(same)


def test_objects_that_are_no_strings_have_no_text() -> None:
    constant = relay.Constant(np.array([{"a": 1}], object))
    with pytest.raises(CompileError, match="objects of type dict, which cannot be written as text"):
        tvm.IRModule.from_expr(relay.Function([], constant)).astext(show_meta_data=True)
    with pytest.raises(CompileError, match="the binary form of parameters cannot hold strings"):
        relay.save_param_dict({"s": _strings("a")})


def test_strings_and_numbers() -> None:
    x = relay.var("x", shape=(4,), dtype="string")
    real = evaluate(relay.Function([x], relay.cast(x, "float32")), _strings("1.5", "-INF", "NaN", "1e3"))
    np.testing.assert_array_equal(real, np.array([1.5, -np.inf, np.nan, 1000], np.float32))
    whole = evaluate(relay.Function([x], relay.cast(x, "int64")), _strings("9007199254740993", " -7 ", "100.5", "+2"))
    assert whole.tolist() == [9007199254740993, -7, 100, 2]
    n = relay.var("n", shape=(2,))
    written = evaluate(relay.Function([n], relay.cast(n, "string")), np.array([0.1, 3], np.float32))
    assert written.tolist() == ["0.1", "3.0"]
    with pytest.raises(
        InputError, match="a string cannot be cast to float32: could not convert string to float: 'one'"
    ):
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
    {"tokenexp": "[a-zA-Z0-9_]+"}, {"tokenexp": "a|ab|abc"}, {"tokenexp": "\\w+"}, {"tokenexp": "a?(ab)?b*"},
    {"tokenexp": "[^ ]{2}"}, {"separators": [" "]},
    {"separators": [",", "[ -]+"]}, {"separators": [""], "mincharnum": 1}, {"separators": ["b|bc"]},
]


@pytest.mark.parametrize("attributes", TOKENIZERS)
@pytest.mark.parametrize("mark", [0, 1])
def test_tokens_are_those_of_onnx_runtime(attributes: dict[str, Any], mark: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the operator is ONNX Runtime's own")
    for x in (
        _strings("Hello, world free", "a-b  c", "", "éa bc_d 12"), _strings("aab b", "xyz", "", "ab").reshape(2, 2),
        _strings("", "")
    ):
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
    node = helper.make_node(
        "Tokenizer", ["x"], ["y"], domain="com.microsoft", **{"mark": 0, "pad_value": "#", **attributes}
    )
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.STRING, s) for n, s in (("x", shape), ("y", None)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made: bytes = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return made


@pytest.mark.parametrize(("attributes", "shape", "message"), [
    ({"mincharnum": 2}, (2,), "mincharnum is 2; it must be at least 1, and exactly 1 if tokens are single characters"),
    (
        {"mincharnum": 1, "separators": [","], "tokenexp": "a"}, (2,),
        "separators and tokenexp are both given; give only one"
    ),
    (
        {"mincharnum": 1, "tokenexp": "a"}, (1, 2, 1),
        "its input must be a vector or a matrix of strings, but it has 3 dimensions"
    ),
    ({"mincharnum": 1, "tokenexp": "(a"}, (2,), r"the pattern '\(a' is not a regular expression"),
    (
        {"mincharnum": 1, "tokenexp": r"\ba+"}, (2,),
        "matches positions, which is not supported; write one that matches the characters of a token"
    ),
])
def test_tokenizers_that_are_refused(attributes: dict[str, Any], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        tvm.compile(_tokenizer(attributes, shape))


def test_operators_of_strings_refuse() -> None:
    number, text = relay.var("x", shape=(2,)), relay.var("s", shape=(2, 2), dtype="string")
    with pytest.raises(ShapeError, match="a tensor of strings was expected, and this one is float32"):
        get("string_concat")()(number, number)
    with pytest.raises(ShapeError, match="this operator accepts numeric tensors only; got string"):
        relay.add(text, text)
    with pytest.raises(ShapeError, match="must be a vector, or a matrix of one row"):
        get("string_normalize")()(text)
    with pytest.raises(ShapeError, match="case_change_action is 'upper'"):
        get("string_normalize")(case_change_action="upper")(relay.var("s", shape=(2,), dtype="string"))
    with pytest.raises(ShapeError, match=r"the pattern '\(' is not a regular expression"):
        get("regex_full_match")(pattern="(")(text)


ALPHABET = ["a", "B", "é", "É", "\0", " ", "ß", "İ", "K", "Σ", "\ud800", "9", "_", ",", "\x80", "😀", "ab"]
"""With characters whose case changes their number, makes ASCII of them, or depends on what is around, and with half of
a pair."""


def _drawn(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    letters = ALPHABET if seed % 2 else ["a", "B", "ab", " ", "_", ",", "9"]
    texts = np.array(
        ["".join(random.choice(letters, random.integers(0, 7))) for _ in range(int(np.prod(shape)))], object
    )
    return texts.reshape(shape)


@pytest.mark.parametrize("seed", range(4))
def test_texts_of_inputs_are_looked_up_natively(seed: int) -> None:
    keys = np.unique(_drawn(seed, 40))
    x = relay.var("x", shape=(30, 2), dtype="string")
    column = get("string_normalize")(["NONE", "LOWER", "UPPER"][seed % 3])(relay.take(x, relay.const(1), axis=-1))
    found = relay.Tuple(
        [
            get("string_index")()(relay.reshape(x, (60,)), relay.Constant(keys)),
            relay.equal(relay.expand_dims(column, axis=-1), relay.Constant(keys[::3]))
        ]
    )
    program = relay.Function([x], found)
    model = tvm.compile(tvm.IRModule.from_expr(program))
    assert not model.in_python
    for texts in (_drawn(seed, 30, 2), _drawn(seed + 10, 30, 2), np.full((30, 2), "", object)):
        for result, wanted in zip(model(texts), evaluate(program, texts), strict=True):
            np.testing.assert_array_equal(result, wanted)


COUNTED: list[tuple[dict[str, Any], bool]] = [
    ({"expression": "[a-zA-Z0-9_]+"}, True), ({"expression": r"\w+", "fewest": 2}, True),
    ({"expression": "[^ ,]+"}, True), ({"expression": r"\W*"}, True),
    ({"expression": r"[\w,]+", "pad": "ab"}, False), ({"expression": "[a-b]"}, False), ({"expression": "a|b"}, False),
    ({"expression": "[é]+"}, False),
    ({"expression": r"[^\x00]+"}, False), ({"expression": r"[\s\S]+"}, True), ({"separators": (" ", ",")}, True),
    ({"separators": (r"[\s,]+", "_")}, True), ({"separators": ("a ",)}, False), ({}, False),
]


@pytest.mark.parametrize(("tokens", "is_native"), COUNTED, ids=str)
@pytest.mark.parametrize("case", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tokens_that_are_counted_need_no_sizes(tokens: dict[str, Any], is_native: bool, case: str, mode: str) -> None:
    pool = ("ab", "AB", "a", "B", "9", "é", "ß", "k", "_", " ", "ab", "a9", "SS", "É")
    columns, weights = tuple(range(len(pool)))[::-1], tuple(k / 2 - 1 for k in range(len(pool)))
    count = get("tokens_tfidf")(
        pool, (0,), columns, 1, 0, 1, mode, weights, **{"pad": "#", **tokens}, case_change_action=case
    )
    x = relay.var("x", shape=(2, 20), dtype="string")
    program = relay.Function([x], count(relay.reshape(x, (20, 2))))
    model = tvm.compile(tvm.IRModule.from_expr(program))
    assert not model.in_python if is_native else "tokens_tfidf" in model.in_python
    for seed in (0, 1):
        texts = _drawn(seed, 2, 20)
        np.testing.assert_array_equal(model(texts), evaluate(program, texts))


@pytest.mark.parametrize(("least", "most", "skips"), [(1, 2, 0), (2, 2, 0), (1, 3, 2), (2, 3, 1), (1, 1, 1)])
@pytest.mark.parametrize("case", ["NONE", "LOWER"])
def test_pairs_of_words_are_counted_natively(least: int, most: int, skips: int, case: str) -> None:
    words = ["a", "b", "c", "d"]
    grams = [
        (), [(w,) for w in words[:3]], [(v, w) for v in words for w in words[1:]],
        [("a", "b", "a"), ("b", "b", "b"), ("a", "c", "d"), ("a", "b", "a")]
    ]
    pool = tuple(w for of_length in grams for g in of_length for w in g)
    columns = tuple(np.random.default_rng(0).permutation(3 + 12 + 4).tolist())
    count = get("tokens_tfidf")(
        pool, (0, 3, 27), columns, most, skips, least, "TF", expression="[a-z]+", pad="#", case_change_action=case
    )
    x = relay.var("x", shape=(40,), dtype="string")
    program = relay.Function([x], count(x))
    model = tvm.compile(tvm.IRModule.from_expr(program))
    assert not model.in_python
    random = np.random.default_rng(1)
    texts = _strings(
        *(" ".join(random.choice([*words, "a", "A", "b", "other", "é"], random.integers(0, 12))) for _ in range(40))
    )
    found = model(texts)
    np.testing.assert_array_equal(found, evaluate(program, texts))
    native = NativeTexts()(tvm.IRModule.from_expr(program))
    np.testing.assert_array_equal(found, evaluate(native, texts))


def _classifier(rows: Any, columns: int | None) -> onnx.ModelProto:
    """As scikit-learn's text classifiers are exported: texts in lower case, words, counts."""
    nodes = [
        helper.make_node("StringNormalizer", ["flat"], ["lower"], case_change_action="LOWER", locale="C"),
        helper.make_node(
            "Tokenizer", ["lower"], ["tokens"], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#",
            tokenexp="[a-z]+"
        ),
        helper.make_node("Flatten", ["tokens"], ["rows"]),
        helper.make_node(
            "TfIdfVectorizer", ["rows"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
            ngram_counts=[0],
                         ngram_indexes=[2, 0, 1], pool_strings=["cat", "dog", "the"], weights=[1.0, 2.0, 0.5]),
    ]
    nodes.insert(0, helper.make_node("Reshape", ["x", "all"], ["flat"]))
    x = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [rows] if columns is None else [rows, columns])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [helper.make_tensor("all", onnx.TensorProto.INT64, [1], [-1])])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8
    )


@pytest.mark.parametrize("columns", [None, 1])
def test_a_text_classifier_is_one_native_program_for_texts_of_any_length(columns: int | None) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the operator is ONNX Runtime's own")
    proto = _classifier("n", columns)
    ours, theirs = tvm.InferenceSession(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    first = _strings("the") if columns is None else _strings("the").reshape(-1, 1)
    with pytest.warns(OpenSizeWarning, match="the size of the result of string_tokenize depends on values"):
        ours.run(None, {"x": first})
    for texts in (["The cat, the dog!"], ["a b c d e f g"], ["", "CAT cat", "x" * 300]):
        x = _strings(*texts) if columns is None else _strings(*texts).reshape(-1, 1)
        np.testing.assert_array_equal(ours.run(None, {"x": x})[0], theirs.run(None, {"x": x})[0])
    assert not ours.model.in_python
    assert len(list(stages_of(ours.model).edges())) == 2  # one row, three rows


def test_programs_that_read_texts_leave_the_process(tmp_path: Path) -> None:
    model = tvm.compile(_classifier(2, None))
    loaded = load_executable(model.save(tmp_path / "texts.tar"))
    x = _strings("the dog", "İ the")
    np.testing.assert_array_equal(loaded(x), model(x))
    with pytest.raises(InputError, match=r"input 'x' has elements of type int, expected string x\[2\]; pass strings"):
        loaded(np.array([1, "a"], object))


def test_results_made_in_python_go_where_the_caller_wants_them() -> None:
    x, names = relay.var("x", shape=(2, 2)), relay.Constant(_strings("no", "yes"))
    label = relay.take(names, relay.argmax(x, axis=1))
    model = tvm.compile(
        tvm.IRModule.from_expr(
            relay.Function([x], relay.Tuple([label, relay.exp(x), get("zip_map")()(x, names), label]))
        )
    )
    given = np.array([[1, 2], [4, 3]], np.float32)
    first = model(given)
    assert first[0].tolist() == first[3].tolist() == ["yes", "no"] and first[0] is not first[3]
    assert first[2].tolist() == [{"no": 1.0, "yes": 2.0}, {"no": 4.0, "yes": 3.0}]
    out = [np.empty(2, object), np.empty((2, 2), np.float32), np.empty(2, object), np.empty(2, object)]
    model(given, out=out)
    assert [o.tolist() for o in out] == [f.tolist() for f in first]
    assert [type(s) for s in model.artifact.manifest.steps][-2:] == [HostStep, HostStep]  # behind all that is native
    assert model(given)[0] is not first[0]


def test_the_bytes_of_texts() -> None:
    block = pack_texts(["ab", "", "C"])
    assert struct.unpack_from("<6q", block) == (48, 54) * 3 and block[48:] == b"ab\0\0C\0"
    block = pack_texts(["É\0", "K"])
    begins = struct.unpack_from("<6q", block)
    assert [block[a:b] for a, b in zip(begins[::2], begins[1::2], strict=True)] == [
        "É".encode() + b"\xc0\x80\0K\0", "é".encode() + b"\xc0\x80\0k\0", "É".encode() + b"\xc0\x80\0K\0"]
    assert pack_texts([]) == struct.pack("<6q", *(48,) * 6)
    with pytest.raises(TypeError):
        pack_texts(["a", 1])  # type: ignore[list-item]
