"""Reports about networks of other hands: what was changed is named, and its edit brings the operator back
(`offload_blind.py`)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import daily
import offload_blind as blind
import tilewright as tvm
from offload_blind import Case, Cause
from tilewright import relay
from tilewright.relay.offload import table_of

ALL = 252
"""Some families are there twice, with other sizes."""
QUICK = 7
"""One case of so many is in the core."""


def stands(case: Case) -> None:
    whole = blind.explain(case, blind.module(case.base))
    assert not whole.left, f"{case.family}: what is not changed is not off-loaded\n{whole}"
    found = blind.judge(case)
    assert found.named, f"{case.family}: not {case.cause}\n{found.told}"
    assert found.edited is not False, f"{case.family}: the edit does not bring it back\n{found.told}"


@pytest.mark.parametrize("case", list(blind.cases(ALL))[::QUICK], ids=lambda c: c.family)
def test_the_cause_is_named_and_its_edit_off_loads(case: Case) -> None:
    stands(case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", daily.sample(range(3), 1, "causes"))
def test_all_causes_are_named_and_their_edits_off_load(seed: int) -> None:
    for case in blind.cases(ALL, seed):
        stands(case)


def test_a_wrong_cause_is_seen() -> None:
    case = blind.FAMILIES["edge: dilation"](np.random.default_rng(0))
    other = Case(
        case.family, case.target, case.base, case.changed, Cause("nn.conv2d", ("attribute",), "strides"), case.tables
    )
    with pytest.raises(AssertionError, match="edge: dilation: not Cause"):
        stands(other)


def quantized_conv(axis: int) -> tvm.IRModule:
    block = blind.Quantized(np.random.default_rng(0), size=10, cout=8)
    x = block.image()
    return blind.module(
        block.conv(
            x, after_conv=lambda y: relay.nn.bias_add(y, relay.const(np.ones(8, "int32")), axis=axis), bias=False
        )
    )


def test_a_bias_along_rows_is_refused_and_not_an_error() -> None:
    tables = {"npu": table_of("npu")}
    assert not relay.analysis.explain_offload(quantized_conv(3), "npu", tables=tables).left
    report = relay.analysis.explain_offload(quantized_conv(1), "npu", tables=tables)
    record = next(r for r in report.left if r.operator == "qnn.conv2d")
    assert "a bias must have one number for each output channel, along axis 3, but this is along axis 1" in record.why
    assert record.edit is not None and "add it along axis 3" in record.edit.text


def test_a_pool_of_another_size_is_told_by_its_size() -> None:
    pool = relay.nn.max_pool2d(
        relay.var("x", shape=(1, 9, 9, 4), dtype="int8"), pool_size=(5, 5), strides=(3, 3), layout="NHWC"
    )
    record = relay.analysis.explain_offload(blind.module(pool), "ethos-n")[0]
    assert "pool_size of nn.max_pool2d is (5, 5); it must be (2, 2), (3, 3) or (1, 1)" in record.why
    assert record.edit is not None and record.edit.text == "make pool_size (3, 3); make strides (2, 2)"
    assert not relay.analysis.explain_offload(record.apply(), "ethos-n").left


def softmax(scale: float, zero: int, axis: int) -> tvm.IRModule:
    given = [
        relay.const(np.float32(0.1)), relay.const(np.int32(0)), relay.const(np.float32(scale)),
        relay.const(np.int32(zero))
    ]
    return blind.module(relay.qnn.op.softmax(relay.var("x", shape=(4, 6), dtype="int8"), *given, axis=axis))


@pytest.mark.parametrize(("scale", "zero", "axis", "told"), [
    (1 / 256, -128, 0, "axis of qnn.softmax is 0; it must be the last"),
    (1 / 128, -128, 1, "softmax gives a scale of 0.0078125 from -128; it must be 1/256 from -128"),
    (1 / 256, 0, -1, "softmax gives a scale of 0.00390625 from 0; it must be 1/256 from -128"),
])  # fmt: skip
def test_softmax_of_cmsis_nn(scale: float, zero: int, axis: int, told: str) -> None:
    record = relay.analysis.explain_offload(softmax(scale, zero, axis), "cmsis-nn")[0]
    assert told in record.why and record.proven
    assert not relay.analysis.explain_offload(record.apply(), "cmsis-nn").left


def test_softmax_of_ethos_u_is_over_the_last_axis() -> None:
    given = [
        relay.const(np.float32(0.1)), relay.const(np.int32(0)), relay.const(np.float32(1 / 256)),
        relay.const(np.int32(-128))
    ]
    mods = [
        blind.module(relay.qnn.op.softmax(relay.var("x", shape=(1, 4, 6), dtype="int8"), *given, axis=axis))
        for axis in (2, 1)
    ]
    tables = {"ethos-u": table_of("ethos-u")}
    last, other = (relay.analysis.explain_offload(m, "ethos-u", tables=tables) for m in mods)
    assert not last.left and "axis of qnn.softmax is 1; it must be the last" in other[0].why
    assert not relay.analysis.explain_offload(other[0].apply(), "ethos-u", tables=tables).left


def test_several_refusals_of_one_match_are_mended_together() -> None:
    record = relay.analysis.explain_offload(softmax(1 / 128, 0, 0), "cmsis-nn")[0]
    assert (
        record.edit is not None
        and record.edit.text == "make axis -1; quantize the result of softmax by 1/256 from -128"
    )
    assert not relay.analysis.explain_offload(record.apply(), "cmsis-nn").left


def test_a_weight_around_another_zero_point_keeps_its_meaning() -> None:
    block = blind.Quantized(np.random.default_rng(0), size=8, cin=4, cout=8)
    x, zeros = block.image(), relay.const(np.arange(8, dtype="int32"))
    mod = blind.module(block.conv(x, weight_zero=zeros))
    record = relay.analysis.explain_offload(mod, "cmsis-nn")[0]
    assert re.search(r"the zero point of the weight of qnn.conv2d is \[0 1 2 3 4 5 6 7\]; it must be 0", record.why)
    edited = record.apply()
    assert not relay.analysis.explain_offload(edited, "cmsis-nn").left
    data = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 4)).astype("int8")
    before, after = (relay.build(m, target="llvm").executable(data) for m in (mod, edited))
    np.testing.assert_array_equal(np.asarray(before), np.asarray(after))


def test_an_edit_that_the_check_refuses_again_is_for_a_human_being() -> None:
    from tilewright.relay.dataflow_pattern import is_op, wildcard
    from tilewright.relay.op.contrib import Refusal

    rows = [("t.relu", is_op("nn.relu")(wildcard()), lambda root: Refusal("never", "give up", lambda e: e))]
    record = relay.analysis.explain_offload(
        blind.module(relay.nn.relu(relay.var("x", shape=(2, 3)))), "t", tables={"t": rows}
    )[0]
    assert not record.proven and record.edit is not None and record.edit.text == "give up" and not record.edit.can_apply
