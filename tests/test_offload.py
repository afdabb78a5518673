"""The report on what accelerators leave to the CPU: each message in full, shares, JSON, the picture, edits of the model
and of the table, several targets.

`test_offload_mutations.py` asks whether the cause is the right one; here is what is said, and how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from offload_mutations import call
from tilewright import relay
from tilewright.base.errors import CompileError, OptionError
from tilewright.compat.registry import register_func, remove_global_func
from tilewright.ir import IRModule, assert_structural_equal, register_op_attr, reset_op_attr
from tilewright.ir.transform import Sequential
from tilewright.relay.analysis import explain_offload
from tilewright.relay.dataflow_pattern import (
    FunctionPattern,
    is_constant,
    is_expr,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from tilewright.relay.dataflow_pattern.pattern import WildcardPattern
from tilewright.relay.interpreter import evaluate
from tilewright.relay.offload import Kind, Offload, OffloadError, Record
from tilewright.relay.op.contrib import _PARTITIONERS, _TABLES, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.transform import (
    AnnotateTarget,
    FoldConstant,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
)

x, y = (relay.var(n, shape=(1, 4, 6, 6)) for n in "xy")
REGISTERED: list[tuple[str, str]] = []


def supports(target: str, name: str, says: Callable[[Any], Any]) -> None:
    register_op_attr(name, f"target.{target}", says)
    REGISTERED.append((name, f"target.{target}"))


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    yield
    while REGISTERED:
        reset_op_attr(*REGISTERED.pop())
    for name in ("own", "other"):
        _TABLES.pop(name, None)
        _PARTITIONERS.pop(name, None)


def constant(*shape: int, dtype: str = "float32") -> relay.Constant:
    return relay.Constant(np.ones(shape, dtype))


def explained(body: Any, *rows: tuple[Any, ...]) -> Offload:
    return explain_offload(IRModule.from_expr(body), "npu", tables={"npu": list(rows)})


def said(report: Offload, node: str) -> str:
    (record,) = [r for r in report if r.node == node]
    return str(record)


def conv(data: Any, weight: Any, **attrs: Any) -> relay.Call:
    made: relay.Call = call(
        "nn.conv2d", data, weight, origin="conv", **{"padding": (1, 1), "channels": 4, "kernel_size": (3, 3), **attrs}
    )
    return made


WEIGHT = constant(4, 4, 3, 3)
CONV = is_op("nn.conv2d")(wildcard(), is_constant())
BIASED = is_op("nn.bias_add")(CONV, is_constant())
SIZE = "conv (nn.conv2d, 5.18 kMAC): "

MESSAGES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "attribute": (
        conv(x, WEIGHT, dilation=(2, 2), padding=(2, 2)), ("npu.c", CONV.has_attr({"dilation": (1, 1)})),
        "row 'npu.c' needs dilation = (1, 1) of nn.conv2d(…) at nn.conv2d, but found dilation = (2, 2)\n  edit: set "
        "dilation = (1, 1) (it is (2, 2)) of nn.conv2d (changes the results)",
    ),
    "no such attribute": (
        conv(x, WEIGHT), ("npu.c", CONV.has_attr({"colour": "red"})),
        "row 'npu.c' needs colour = 'red' of nn.conv2d(…) at nn.conv2d, but found no colour",
    ),
    "an attribute of the operator": (
        conv(x, WEIGHT), ("npu.c", is_op("nn.conv2d").has_attr({"TOpPattern": 0})(wildcard(), is_constant())),
        "row 'npu.c' needs TOpPattern = 0 of nn.conv2d(…) at nn.conv2d, but found TOpPattern = 4",
    ),
    "layout": (
        conv(x, WEIGHT), ("npu.c", CONV.has_attr({"data_layout": "NHWC", "kernel_layout": "HWIO"})),
        "row 'npu.c' needs data_layout = 'NHWC' of nn.conv2d(…) at nn.conv2d, but found data_layout = 'NCHW'\n"
        "  and it needs kernel_layout = 'HWIO' of nn.conv2d(…) at nn.conv2d, but found kernel_layout = 'OIHW'\n"
        "  edit: change the layout: relay.transform.ConvertLayout({'nn.conv2d': ['NHWC', 'HWIO']}, "
        "keep_bias=True), then FoldConstant() (keeps the results)",
    ),
    "variable": (
        conv(x, relay.var("w", shape=(4, 4, 3, 3))), ("npu.c", CONV),
        "row 'npu.c' needs a constant at nn.conv2d[1], but found %w, a variable\n"
        "  edit: bind %w to its value: relay.build_module.bind_params_by_name, or the params of relay.build (keeps the "
        "results)",
    ),
    "computed": (
        conv(x, relay.tanh(WEIGHT)), ("npu.c", CONV),
        "row 'npu.c' needs a constant at nn.conv2d[1], but found tanh(…), computed from constants\n"
        "  edit: fold tanh(…), computed from constants: relay.transform.FoldConstant(fold_qnn=True) (keeps the results)",  # noqa: E501
    ),
    "computed at run time": (
        conv(x, relay.tanh(relay.var("w", shape=(4, 4, 3, 3)))), ("npu.c", CONV),
        "row 'npu.c' needs a constant at nn.conv2d[1], but found tanh(…), computed at run time",
    ),
    "missing": (
        conv(x, WEIGHT), ("npu.c", BIASED),
        "row 'npu.c' needs nn.bias_add at nn.bias_add, but found none\n  edit: put a nn.bias_add that changes "
        "nothing after nn.conv2d(%x, a constant) (keeps the results)",
    ),
    "missing with attributes": (
        conv(x, WEIGHT), ("npu.c", is_op("clip")(CONV).has_attr({"a_max": 6.0})),
        "row 'npu.c' needs clip at clip, but found none\n  edit: put a clip(a_max=6.0) after nn.conv2d(%x, a "
        "constant) (changes the results)",
    ),
    "extra": (
        call("nn.bias_add", call("negative", conv(x, WEIGHT)), constant(4)), ("npu.c", BIASED),
        "row 'npu.c' needs nn.conv2d directly at nn.bias_add[0].nn.conv2d, but found negative between\n  edit: "
        "remove negative (changes the results)",
    ),
    "extra that changes nothing": (
        call("nn.bias_add", call("nn.dropout", conv(x, WEIGHT))[0], constant(4)), ("npu.c", BIASED),
        "row 'npu.c' needs nn.conv2d directly at nn.bias_add[0].nn.conv2d, but found nn.dropout between\n"
        "  edit: remove nn.dropout, which changes nothing (keeps the results)",
    ),
    "another operator": (
        call("tanh", conv(x, WEIGHT)), ("npu.c", is_op("nn.relu")(CONV)),
        "row 'npu.c' needs nn.relu at nn.relu, but found tanh\n  edit: compute it with nn.relu, not tanh (changes "
        "the results)",
    ),
    "something else": (
        call("nn.bias_add", call("nn.softmax", conv(x, WEIGHT)), constant(4)),
        ("npu.c", is_op("nn.bias_add")(is_op("nn.max_pool2d")(CONV), is_constant())),
        "row 'npu.c' needs nn.max_pool2d at nn.bias_add[0].nn.max_pool2d, but found nn.softmax\n  edit: compute it "
        "with nn.max_pool2d, not nn.softmax (changes the results)",
    ),
    "dtype": (
        conv(relay.var("h", shape=(1, 4, 6, 6), dtype="float16"), constant(4, 4, 3, 3, dtype="float16")),
        ("npu.c", is_op("nn.conv2d")(wildcard().has_dtype("float32"), is_constant().has_dtype("float32"))),
        "row 'npu.c' needs float32 at nn.conv2d[0], but found float16\n  and it needs float32 at nn.conv2d[1], "
        "but found float16\n"
        "  edit: cast %h to float32 (it is float16); make the constant float32 (it is float16) (changes the results)",
    ),
    "dtype of a result": (
        conv(relay.var("h", shape=(1, 4, 6, 6), dtype="int8"), constant(4, 4, 3, 3, dtype="int8"), out_dtype="int32"),
        ("npu.c", CONV.has_dtype("int16")),
        "row 'npu.c' needs int16 at nn.conv2d, but found int32\n  edit: set out_dtype = 'int16' of nn.conv2d (it "
        "gives int32) (changes the results)",
    ),
    "shape": (
        conv(x, WEIGHT), ("npu.c", is_op("nn.conv2d")(wildcard().has_shape((2, 4, 6, 6)), is_constant())),
        "row 'npu.c' needs (2, 4, 6, 6) at nn.conv2d[0], but found (1, 4, 6, 6)\n"
        "  edit: make the input %x a Tensor[(2, 4, 6, 6), float32] (it is a Tensor[(1, 4, 6, 6), float32]) (changes "
        "the results)",
    ),
    "shape of a result": (
        conv(x, WEIGHT), ("npu.c", CONV.has_shape((1, 8, 6, 6))),
        "row 'npu.c' needs (1, 8, 6, 6) at nn.conv2d, but found (1, 4, 6, 6)",
    ),
    "type": (
        conv(x, WEIGHT),
        ("npu.c", is_op("nn.conv2d")(wildcard().has_type(relay.TensorType((2, 4, 6, 6), "float32")), is_constant())),
        "row 'npu.c' needs Tensor[(2, 4, 6, 6), float32] at nn.conv2d[0], but found Tensor[(1, 4, 6, 6), float32]\n"
        "  edit: make the input %x a Tensor[(2, 4, 6, 6), float32] (it is a Tensor[(1, 4, 6, 6), float32]) (changes "
        "the results)",
    ),
    "value": (
        call("multiply", x, relay.const(np.float32(3)), origin="conv"),
        ("npu.c", is_op("multiply")(wildcard(), is_expr(relay.const(np.float32(2))))),
        "row 'npu.c' needs 2.0 at multiply[1], but found 3.0\n  edit: make it 2.0 (it is 3.0) (changes the results)",
    ),
    "no variable": (
        call("maximum", x, constant(1), origin="conv"), ("npu.c", is_op("maximum")(wildcard(), is_var("mask"))),
        "row 'npu.c' needs the variable %mask at maximum[1], but found a constant\n  edit: make the constant an "
        "input, %mask (changes the results)",
    ),
    "field": (
        call("tanh", call("split", x, indices_or_sections=2, axis=1)[1], origin="conv"),
        ("npu.c", is_op("tanh")(is_tuple_get_item(is_op("split")(wildcard()), 0))),
        "row 'npu.c' needs field 0 at tanh[0], but found field 1\n  edit: take field 0 (it is field 1) (changes "
        "the results)",
    ),
    "unknown": (
        call("nn.softmax", x, origin="conv"), ("npu.c", CONV),
        "no row of npu has nn.softmax, and it has no attribute for the target"
    ),
    "quantized": (
        conv(x, WEIGHT), ("npu.q", is_op("qnn.conv2d")(*(wildcard() for _ in range(6)))),
        "no row of npu has nn.conv2d; row 'npu.q' has qnn.conv2d, of quantized numbers\n  edit: quantize the network: "
        "tilewright.quantize(model, data)",
    ),
    "name": (
        conv(x, WEIGHT), ("dsp.c", CONV),
        "row 'dsp.c' fits, but npu takes only rows whose names begin with 'npu.'\n  edit: call the row 'npu.c'",
    ),
    "arguments": (
        call("concatenate", relay.Tuple((x, y)), axis=1, origin="conv"),
        ("npu.c", is_op("concatenate")(is_tuple([wildcard(), wildcard(), wildcard()]))),
        "row 'npu.c' needs is_tuple([wildcard(), wildcard(), wildcard()]) at concatenate[0], but found …",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    body, row, expected = MESSAGES[name]
    (record,) = [r for r in explained(body, row) if r.node == "conv"]
    assert record.reason == expected


def test_a_check_that_says_no() -> None:
    def small(e: Any) -> bool:
        return bool(e.args[0].checked_type.shape[1] < 4)

    def strict(e: Any) -> bool | Refusal:
        return e.op.groups == 1 or Refusal("groups are 1", "make groups 1", lambda e: conv(e.args[0], WEIGHT))

    message = said(explained(conv(x, WEIGHT), ("npu.c", CONV, small)), "conv")
    assert message.startswith(
        f"{SIZE}row 'npu.c' fits, but its check, small (test_offload.py:"
    ) and message.endswith("), rejects it")
    grouped = conv(x, constant(4, 1, 3, 3), groups=4)
    report = explained(grouped, ("npu.c", CONV, strict))
    assert "), rejects it: groups are 1\n  edit: make groups 1 (changes the results)" in str(report[0])
    assert report[0].kind is Kind.CHECK
    after = explain_offload(report[0].apply(), "npu", tables={"npu": [("npu.c", CONV, strict)]})
    assert [t.node for t in after.taken] == ["conv"]


def test_a_check_that_cannot_say_of_a_value_that_is_missing() -> None:
    def picky(e: Any) -> bool:
        return bool({4.0: True}[float(e.args[1].data.numpy()[0, 0, 0, 0])])

    report = explained(conv(x, relay.var("w", shape=(4, 4, 3, 3))), ("npu.c", CONV, picky))
    assert report[0].edit is not None and report[0].edit.needs == ("w",) and not report[0].proven


def test_what_a_silent_check_wants_is_found() -> None:
    """By asking it of the match with another attribute, another batch, another type."""
    two = relay.var("two", shape=(2, 4, 6, 6))
    pool = is_op("nn.max_pool2d")(wildcard())
    cases: list[tuple[Any, Any, str]] = [
        (x, lambda e: e.op.ceil_mode, "set ceil_mode = True of nn.max_pool2d (it is False)"),
        (two, lambda e: e.args[0].checked_type.shape[0] == 1, "give %two a batch of 1 (it is 2)"),
        (
            x, lambda e: e.checked_type.dtype == "int8",
            "compute it in int8 (it is float32): cast what goes in, and the result back"
        ),
    ]
    for data, check, expected in cases:
        row = ("npu.p", pool, check)
        report = explained(call("tanh", call("nn.max_pool2d", data, pool_size=(2, 2), origin="pool")), row)
        record = next(r for r in report if r.node == "pool")
        assert record.edit is not None and record.edit.text == expected
        after = explain_offload(record.apply(), "npu", tables={"npu": [row]})
        assert [t.node for t in after.taken] == ["pool"] and after[0].operator in ("tanh", "cast")
    never = explained(call("nn.max_pool2d", x, pool_size=(2, 2)), ("npu.p", pool, lambda e: False))
    assert never[0].edit is None


def test_a_check_is_asked_of_the_edited_match_too() -> None:
    def refuses(e: Any) -> Refusal:
        return Refusal("never", "buy another")

    report = explained(conv(x, WEIGHT, dilation=(2, 2)), ("npu.c", CONV.has_attr({"dilation": (1, 1)}), refuses))
    assert report[0].more == ("after that, its check rejects it: never",)
    assert report[0].edit is not None and not report[0].edit.can_apply and report[0].edit.text.endswith(
        "of nn.conv2d; buy another"
    )
    with pytest.raises(OptionError, match="this edit cannot be applied automatically: set dilation"):
        report[0].apply()
    silent = explained(
        conv(x, WEIGHT, dilation=(2, 2)), ("npu.c", CONV.has_attr({"dilation": (1, 1)}), lambda e: False)
    )
    assert silent[0].more == ("after that, its check rejects it",)


def test_what_an_attribute_of_an_operator_says() -> None:
    supports("npu", "nn.softmax", lambda e: e.op.axis == 1)
    supports("npu", "tanh", lambda e: Refusal("no tanh of images", "reshape it"))
    report = explained(call("tanh", call("nn.softmax", x, axis=-1)))
    first, second = (said(report, n) for n in ("nn.softmax@", "tanh@"))
    assert (
        "the attribute 'target.npu' of nn.softmax, " in first
        and "rejects it\n  edit: set axis = 1 of nn.softmax (it is -1) (changes the results)" in first
    )
    assert second.endswith("rejects it: no tanh of images\n  edit: reshape it")
    record = next(r for r in report if r.operator == "nn.softmax")
    assert record.kind is Kind.SUPPORT
    assert [t.operator for t in explain_offload(record.apply(), "npu").taken] == ["nn.softmax"]


def test_a_piece_that_is_computed_in_another_type() -> None:
    """What goes in is cast, and what comes out, so that the rest of the program has its types."""
    body = call("add", call("nn.relu", call("tanh", x), origin="relu"), x)
    row = ("npu.r", is_op("nn.relu")(is_op("tanh")(wildcard())).has_dtype("float16"))
    report = explained(body, row)
    assert said(report, "relu") == (
        "relu (nn.relu): row 'npu.r' needs float16 at nn.relu, but found float32\n"
        "  edit: compute nn.relu(…) in float16 (it is float32): cast what goes in, and the result back (changes the "
        "results)"
    )
    mod = report[0].apply()
    assert operators(mod) == ["cast", "tanh", "nn.relu", "cast", "add"]
    assert [t.operator for t in explain_offload(mod, "npu", tables={"npu": [row]}).taken] == ["tanh", "nn.relu"]
    biased = explained(body, ("npu.r", is_op("nn.bias_add")(row[1], is_constant())))
    assert operators(biased[0].apply()) == ["cast", "tanh", "nn.relu", "nn.bias_add", "cast", "add"]


def operators(mod: IRModule) -> list[str]:
    return [c.op.name for c in relay.visitor.calls(mod["main"]) if not isinstance(c.op, relay.Expr)]


def test_a_value_that_is_used_outside() -> None:
    c = conv(x, WEIGHT)
    body = relay.Tuple((call("nn.bias_add", c, constant(4), origin="bias"), call("tanh", c, origin="beside")))
    report = explained(body, ("npu.c", BIASED))
    assert said(report, "conv") == (
        f"{SIZE}row 'npu.c' fits, but nn.conv2d(%x, a constant) inside the match is also used outside it, by 'beside'\n"
        "  edit: compute nn.conv2d(%x, a constant) once more for those outside (keeps the results)"
    )
    record = next(r for r in report if r.node == "conv")
    assert record.edit is not None
    mod = record.apply()
    value = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype("float32")
    for a, b in zip(evaluate(mod, value), evaluate(report.mod, value), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [
        t.operator for t in explain_offload(mod, "npu", tables={"npu": [("npu.c", BIASED)]}).taken
    ] == ["nn.conv2d", "nn.bias_add"]


def test_rows_that_take_parts_of_others() -> None:
    rows = [("npu.c", CONV), ("npu.cr", is_op("nn.relu")(CONV))]
    report = explained(call("nn.relu", conv(x, WEIGHT), origin="relu"), *rows)
    assert said(report, "relu") == (
        "relu (nn.relu): row 'npu.cr' fits, but row 'npu.c', which is tried before it, took nn.conv2d(%x, a "
        "constant)\n  edit: put row 'npu.cr' before row 'npu.c'"
    )
    assert [r[0] for r in report[0].table(rows)] == ["npu.cr", "npu.c"]
    with pytest.raises(OptionError, match=r"this edit cannot be applied automatically: put row 'npu\.cr' before"):
        report[0].apply()
    chain = explained(
        call("add", call("add", call("add", x, y), y), y, origin="last"),
        ("npu.two", is_op("add")(is_op("add")(wildcard(), wildcard()), wildcard()))
    )
    assert len(chain.taken) == 2 and chain[0].kind is Kind.MISSING


def test_the_edit_of_a_name_is_one_of_the_table() -> None:
    rows = [("dsp.c", CONV)]
    report = explained(conv(x, WEIGHT), *rows)
    renamed = report[0].table(rows)
    assert [t.row for t in explain_offload(report.mod, "npu", tables={"npu": renamed}).taken] == ["npu.c"]
    other = explained(conv(x, relay.tanh(WEIGHT)), ("npu.c", CONV))
    with pytest.raises(OptionError, match="the edit for 'conv' cannot be made automatically: fold tanh"):
        other[0].table(rows)


def test_values_that_are_missing_for_an_edit() -> None:
    report = explained(conv(x, relay.var("w", shape=(4, 4, 3, 3))), ("npu.c", CONV))
    with pytest.raises(
        OptionError, match=r"the values of %w are not in the model; pass them: apply\(params=\{'w': array\}\)"
    ):
        report[0].apply()
    mod = report[0].apply(params={"w": WEIGHT.value})
    assert [p.name_hint for p in mod["main"].params] == ["x"]
    assert explain_offload(mod, "npu", tables={"npu": [("npu.c", CONV)]}).share_of_macs == 1


def test_an_edit_after_which_the_rest_has_no_type() -> None:
    body = call(
        "nn.dense", call("nn.batch_flatten", call("nn.max_pool2d", x, pool_size=(3, 3), strides=(2, 2), origin="pool")),
        constant(2, 16)
    )
    report = explained(body, ("npu.p", is_op("nn.max_pool2d")(wildcard()).has_attr({"strides": (1, 1)})))
    record = next(r for r in report if r.node == "pool")
    with pytest.raises(
        CompileError,
        match=r"the program fails type inference after the edit 'set strides = \(1, 1\) \(it is \(2, 2\)\) of "
        r"nn.max_pool2d'"
    ):
        record.apply()
    grouped = explained(conv(x, constant(4, 1, 3, 3), groups=4), ("npu.c", CONV.has_attr({"groups": 1})))
    assert grouped[0].edit is None and grouped[0].more == (
        "with the required edit, the program fails type inference: channels of data (4) and weight (1) differ",
    )
    with pytest.raises(
        OptionError, match=r"no small edit off-loads 'conv' to npu: row 'npu\.c' needs groups = 1"
    ):
        grouped[0].apply()


def test_what_is_folded_counts_for_nothing() -> None:
    report = explained(conv(x, call("tanh", WEIGHT)), ("npu.c", is_op("nn.conv2d")(wildcard(), wildcard())))
    assert report.share_of_macs == 1 and report.share_of_operators == 1
    assert [str(r).partition("\n")[0] for r in report] == [
        "tanh@ (tanh): all its inputs are constant, so it is computed at compile time"
    ]
    assert report.left == ()
    assert_structural_equal(report[0].apply(), FoldConstant()(report.mod))


def test_shares_and_what_is_required() -> None:
    two = conv(call("tanh", conv(x, WEIGHT)), relay.tanh(WEIGHT))
    report = explained(two, ("npu.c", CONV))
    assert (report.macs, report.macs_taken, report.share_of_macs) == (2 * 5184, 5184, 0.5)
    assert report.summary() == "npu: 1 of 3 operators (33.3 %), 5.18 kMAC of 10.37 kMAC (50.0 %)"
    report.require(0.5)
    with pytest.raises(
        OffloadError,
        match=r"^npu: 50\.0 % of the multiply-accumulates are off-loaded, and 95\.0 % are required; left on the "
        r"CPU:\nconv \(nn\.conv2d, 5\.18 kMAC\): row"
    ):
        report.require(0.95)
    nothing = explained(x)
    assert nothing.share_of_macs == 1 == nothing.share_of_operators and not nothing
    nothing.require(1.0)


def test_more_than_eight_are_not_all_named() -> None:
    body: Any = x
    for _ in range(11):
        body = conv(body, relay.tanh(WEIGHT))
    with pytest.raises(OffloadError, match=r"and 3 more operators$"):
        explained(body, ("npu.c", CONV)).require(0.01)


def test_the_text_tells_a_reason_once() -> None:
    body: Any = x
    for _ in range(9):
        body = call("tanh", body)
    text = explained(body).text()
    assert text.count("no row of npu has tanh") == 1 and "and 5 more:" in text
    assert str(explained(body)) == text


def test_json() -> None:
    report = explained(conv(x, relay.tanh(WEIGHT)), ("npu.c", CONV))
    found = json.loads(report.to_json())
    assert found["targets"] == ["npu"] and found["macs"] == {"offloaded": 0, "left": 5184, "share": 0.0}
    first = found["left"][0]
    assert first | {"edit": None} == {
        "node": "conv", "operator": "nn.conv2d", "origin": {"name": "conv", "kind": "", "file": "", "line": 0},
        "function": "main", "macs": 5184, "target": "npu", "kind": "constant",
        "row": "npu.c", "path": "nn.conv2d[1]", "expected": "a constant", "found": "tanh(…), computed from constants",
        "why": "row 'npu.c' needs a constant at nn.conv2d[1], but found tanh(…), computed from constants",
        "more": [], "edit": None,
    }
    assert first["edit"] == {
        "text": "fold tanh(…), computed from constants: relay.transform.FoldConstant(fold_qnn=True)", "of": "model",
        "keeps_meaning": True, "needs": [], "proven": True,
    }
    assert found["left"][1]["origin"] is None and found["left"][1]["node"] == "tanh_0"


def test_all_edits_at_once() -> None:
    body: Any = x
    for _ in range(3):
        body = conv(body, relay.tanh(WEIGHT))
    body = conv(call("negative", body), WEIGHT, dilation=(2, 2), padding=(2, 2))
    row = ("npu.c", CONV.has_attr({"dilation": (1, 1)}))
    report = explained(body, row)
    kept = report.applied()
    assert explain_offload(kept, "npu", tables={"npu": [row]}).macs_taken == 3 * 5184
    value = np.ones((1, 4, 6, 6), "float32")
    np.testing.assert_array_equal(evaluate(kept, value), evaluate(report.mod, value))
    assert explain_offload(report.applied(change_results=True), "npu", tables={"npu": [row]}).share_of_macs == 1


def test_targets_one_before_another() -> None:
    rows = {
        "npu": [("npu.c", CONV)],
        "dsp": [("dsp.c", CONV), ("dsp.r", is_op("nn.relu")(CONV)), ("dsp.t", is_op("tanh")(wildcard()))]
    }
    body = call("tanh", call("nn.relu", conv(x, WEIGHT), origin="relu"))
    report = explain_offload(IRModule.from_expr(body), ["npu", "dsp"], tables=rows)
    assert [(t.operator, t.target, t.row) for t in report.taken] == [
        ("nn.conv2d", "npu", "npu.c"), ("tanh", "dsp", "dsp.t")
    ]
    assert said(
        report, "relu"
    ) == "relu (nn.relu): row 'dsp.r' of dsp fits, but npu took nn.conv2d(%x, a constant)\n  edit: name dsp before npu"
    turned = explain_offload(IRModule.from_expr(body), ["dsp", "npu"], tables={**rows, "dsp": rows["dsp"][1:]})
    assert turned.share_of_operators == 1


def test_branches_lets_and_functions() -> None:
    cond, v = relay.var("c", shape=(), dtype="bool"), relay.var("v", shape=(1, 4, 6, 6))
    tanh = is_op("tanh")(is_constant())
    body = relay.Function(
        [cond, x], relay.If(cond, call("tanh", x, origin="branch"), relay.Let(v, call("tanh", x, origin="let"), v))
    )
    mod = IRModule.from_expr(body)
    mod["other_one"] = relay.Function([y], call("tanh", y, origin="elsewhere"))
    report = explain_offload(mod, "npu", tables={"npu": [("npu.t", tanh)]})
    assert {(r.function, r.node, r.kind) for r in report} == {
        ("main", "branch", Kind.CONSTANT), ("main", "let", Kind.CONSTANT), ("other_one", "elsewhere", Kind.CONSTANT)
    }


def test_patterns_of_every_kind_are_compared() -> None:
    cond = relay.var("c", shape=(), dtype="bool")
    branch = is_if(is_var(), is_op("tanh")(wildcard()), wildcard())
    report = explained(
        relay.Function([cond, x], call("exp", relay.If(cond, x, x), origin="exp")), ("npu.if", is_op("exp")(branch))
    )
    assert "row 'npu.if' needs is_if(" in said(report, "exp")
    function = FunctionPattern(None, is_op("tanh")(wildcard()))
    report = explained(
        call("exp", relay.Function([y], call("sin", y))(x), origin="exp"), ("npu.f", is_op("exp")(function(wildcard())))
    )
    assert "FunctionPattern" in said(report, "exp")
    again: WildcardPattern = wildcard()
    again.redirect_to(is_op("add")(again, is_constant()) | is_var())
    report = explained(
        call("add", call("add", x, constant(1)), relay.var("z", shape=(1,)), origin="sum"), ("npu.sum", again)
    )
    assert "needs a constant at add[1], but found %z, a variable" in said(report, "sum")


def test_dominators() -> None:
    path = (is_op("tanh") | is_op("exp"))(wildcard())
    whole = is_op("add")(wildcard(), wildcard()).dominates(is_op("nn.conv2d")(None), path)
    c = conv(x, WEIGHT)
    assert explained(
        call("add", call("tanh", c), call("exp", c), origin="sum"), ("npu.d", whole)
    ).share_of_operators == 1
    report = explained(call("add", call("tanh", c), call("sin", c), origin="sum"), ("npu.d", whole))
    assert "but found sin between" in said(report, "sum") and next(
        r for r in report if r.node == "sum"
    ).kind is Kind.EXTRA
    leaves = explained(relay.Tuple((call("add", call("tanh", c), call("exp", c), origin="sum"), c)), ("npu.d", whole))
    assert "several ways up, or a way down that leaves" in said(leaves, "sum")


def test_a_match_that_the_matcher_does_not_find() -> None:
    inner = is_op("tanh")(wildcard())
    either = wildcard() | is_op("nn.relu")(inner)
    report = explained(
        call("add", call("nn.relu", call("tanh", x)), call("tanh", x), origin="sum"),
        ("npu.s", is_op("add")(either, inner))
    )
    assert {r.node for r in report} | {t.node for t in report.taken} == {"nn.relu@", "tanh@", "sum"}


def test_a_partition_of_the_targets_own() -> None:
    """It folds constants first, and gives back what has no convolution."""
    rows = [("own.c", CONV), ("own.t", is_op("tanh")(wildcard()))]

    def partition(mod: IRModule, params: Any = None, **options: Any) -> IRModule:
        passes = [FoldConstant(), MergeComposite(rows), AnnotateTarget("own"), MergeCompilerRegions(), PartitionGraph()]
        found = Sequential(passes, name="partition_for_own")(mod)
        light = [n for n, f in found.items() if f.attrs.get("Compiler") == "own" and "conv2d" not in str(f)]
        return relay.transform.InlineCompilerFunctionsBoundTo(light)(found).map_functions(opened, relay.Function)

    def opened(f: relay.Function) -> relay.Function:
        if "Compiler" in f.attrs:
            return f

        def rule(e: relay.Expr) -> relay.Expr | None:
            if not (isinstance(e, relay.Call) and isinstance(e.op, relay.Function)):
                return None
            return relay.visitor.substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))

        return relay.visitor.rewrite(f, rule)  # type: ignore[return-value]

    register_pattern_table("own", lambda: rows)
    register_partitioner("own", partition)
    body = call("tanh", call("nn.softmax", conv(x, relay.tanh(WEIGHT))), origin="light")
    report = explain_offload(IRModule.from_expr(body), "own")
    assert [t.node for t in report.taken] == ["conv"], "the weight is folded before"
    assert said(report, "light") == "light (tanh): row 'own.t' fits, but the partitioner for own rejected the region"
    assert next(r for r in report if r.node == "light").kind is Kind.REGION

    register_pattern_table(
        "other", lambda: [("other.s", is_op("nn.softmax")(wildcard())), ("other.t", is_op("tanh")(wildcard()))]
    )
    register_partitioner("other", lambda mod, params=None: relay.offload.partition(mod, ["other"]))
    both = explain_offload(IRModule.from_expr(body), ["own", "other"])
    assert [(t.operator, t.target) for t in both.taken] == [
        ("nn.conv2d", "own"), ("nn.softmax", "other"), ("tanh", "other")
    ]


def test_a_hook_that_rewrites_what_its_target_took() -> None:
    def rewritten(mod: IRModule) -> IRModule:
        return IRModule({n: relay.Function(f.params, relay.exp(f.params[0]), attrs=f.attrs) for n, f in mod.items()})

    register_func("relay.ext.hooked.optimize", rewritten)
    try:
        report = explain_offload(
            IRModule.from_expr(call("tanh", x)), "hooked", tables={"hooked": [("hooked.t", is_op("tanh")(wildcard()))]}
        )
    finally:
        remove_global_func("relay.ext.hooked.optimize")
    assert [(t.operator, t.target) for t in report.taken] == [("tanh", "hooked")]


def test_a_target_that_nothing_is_known_of() -> None:
    supports("known_npu", "tanh", lambda e: True)
    expected = (
        r"there is no accelerator 'known_mpu'; did you mean 'known_npu'\?; it has no pattern table "
        r"\(relay\.op\.contrib\.register_pattern_table\), and no operator has an attribute 'target\.known_mpu'; "
        r".*known_npu"
    )
    with pytest.raises(OptionError, match=expected):
        explain_offload(IRModule.from_expr(relay.tanh(x)), "known_mpu")


def test_a_bias_of_zeros_has_the_channels_of_the_layout() -> None:
    image = relay.var("image", shape=(1, 9, 9, 4))
    net = relay.nn.conv2d(
        image, relay.const(np.ones((3, 3, 4, 8), "float32")), kernel_size=(3, 3), channels=8, data_layout="NHWC",
        kernel_layout="HWIO"
    )
    row = (
        "last.conv", is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), is_constant()), is_constant()),
        lambda root: root.args[1].value.shape == (8,)
    )
    (record,) = explain_offload(IRModule.from_expr(net), "last", tables={"last": [row]})
    assert record.edit is not None and record.proven and record.edit.keeps_meaning
    assert record.apply()["main"].body.op.axis == 3


def test_the_module_is_left_as_it_is() -> None:
    mod = IRModule.from_expr(call("nn.relu", conv(x, WEIGHT), origin="relu"))
    before = mod.astext(show_meta_data=False)
    report = explained(mod["main"], ("npu.c", is_op("nn.relu")(CONV)))
    assert mod.astext(show_meta_data=False) == before
    (function,) = [f for _, f in report.partitioned.items() if f.attrs.get("Compiler") == "npu"]
    assert {
        c.span.name for c in relay.visitor.calls(function) if c.span is not None
    } == {"conv", "relu"}, "origins are the model's again"


def test_the_picture() -> None:
    shared = call("tanh", conv(x, WEIGHT), origin="a<b")
    body = call("add", call("nn.softmax", shared, origin="middle"), shared)
    rows = {"npu": [("npu.c", is_op("tanh")(CONV))], "dsp": [("dsp.add", is_op("add")(wildcard(), wildcard()))]}
    report = explain_offload(IRModule.from_expr(body), ["npu", "dsp"], tables=rows)
    svg = ElementTree.fromstring(report.to_svg())
    texts = ["".join(t.itertext()) for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == report.summary()
    assert [
        t for t in texts if t.startswith(("npu.c", "nn.softmax", "dsp.add"))
    ] == ["npu.c  a<b", "nn.softmax  middle", "dsp.add  add@"]
    assert any("no row of npu, dsp has nn.softmax" in t for t in texts)
    assert any("tvmgen_default_npu_main" in t and "5.18 kMAC" in t for t in texts)
    colours = {r.get("fill") for r in svg.iter("{http://www.w3.org/2000/svg}rect")}
    assert len(colours) == 4, "two targets, the CPU, and the paper"
    assert any(
        "C" in (p.get("d") or "") for p in svg.iter("{http://www.w3.org/2000/svg}path")
    ), "the value that skips a row is an arc"
    page = report.to_html()
    assert page.startswith("<!doctype html>") and "<svg" in page and "http" not in page.replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert ElementTree.fromstring(explained(x).to_svg()) is not None


def test_a_record_is_what_it_says() -> None:
    report = explained(conv(x, WEIGHT), ("npu.c", BIASED))
    assert isinstance(report[0], Record) and list(report) == list(report[:]) and len(report) == 1
    assert (
        report[0].kind, report[0].row, report[0].path, report[0].expected, report[0].found, report[0].proven
    ) == (Kind.MISSING, "npu.c", "nn.bias_add", "nn.bias_add", "nothing", True)
