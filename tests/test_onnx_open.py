"""ONNX's conformance suite with every dimension of every input open: one program for a case, and none is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daily
import onnx_open
import tilewright
from onnx_open import NEEDS_NUMBER, Outcome, cluster, needed_number, opened, run
from onnx_suite import Case, cases
from tilewright.base.errors import InputError

pytestmark = pytest.mark.slow
PARTS = 48


@pytest.mark.parametrize("part", daily.sample(range(PARTS), 2, "open suite"))
def test_open_cases_are_right_but_for_those_that_need_a_number(part: int) -> None:
    outcomes = {c.name: run(c) for c in cases()[part::PARTS]}
    assert not {name: o.wrong for name, o in outcomes.items() if o.wrong}
    refused = {name: o.refused for name, o in outcomes.items() if o.refused}
    needed = {name for name, o in outcomes.items() if needed_number(name) and not o.closed}
    assert refused.keys() == needed, refused


def test_every_reason_for_a_refusal_has_cases() -> None:
    names = [c.name for c in cases()]
    assert {needed_number(name) for name in names} == {None, *NEEDS_NUMBER.values()}


def _model(nodes: list[onnx.NodeProto], inputs: Mapping[str, tuple[int, Sequence[int]]]) -> onnx.ModelProto:
    taken = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    return helper.make_model(
        helper.make_graph(nodes, "g", taken, made), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _slice() -> onnx.ModelProto:
    """Slice along axis 0, whose ends are sums of two inputs."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["end"]), helper.make_node("Slice", ["x", "start", "end"], ["y"]),
    ]
    kinds = {"x": (TensorProto.FLOAT, [4, 1, 3, 4])} | {n: (TensorProto.INT64, [1]) for n in ("start", "a", "b")}
    return _model(nodes, kinds)


def test_equal_sizes_are_one_symbol_and_values_that_decide_sizes_are_constants() -> None:
    one = np.ones(1, np.int64)
    of = opened(_slice(), [np.zeros((4, 1, 3, 4), np.float32), one * 0, one, one])
    assert of.shapes == {"x": ("d4", 1, "d3", "d4")} and of.sizes == {"d4": 4, "d3": 3}
    assert {t.name: numpy_helper.to_array(t).tolist() for t in of.model.graph.initializer} == {
        "start": [0], "a": [1], "b": [1]}
    assert [i.name for i in of.model.graph.input] == ["x"] == list(of.given)
    assert of.inputs({"d4": 8, "d3": 6})["x"].shape == (8, 1, 6, 8)


def test_a_case_is_called_at_its_sizes_and_at_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model([helper.make_node("Erf", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [2, 3])})
    case = Case("erf", lambda: (model, [([np.ones((2, 3), np.float32)], [np.full((2, 3), 0.8427008, np.float32)])]))
    assert run(case) == Outcome(sizes=3)
    called = onnx_open._called
    monkeypatch.setattr(onnx_open, "_called", lambda program, given: [y + (y.size > 6) for y in called(program, given)])
    assert "at {'d2': 4, 'd3': 6}: Not equal" in " ".join(run(case).wrong.split()).replace("\\n", "")


@pytest.mark.parametrize("name", [
    "gather_negative_indices", "gather_elements_negative_indices", "scatter_elements_with_negative_indices",
])
def test_negative_indices_count_from_the_end_of_an_open_dimension(name: str) -> None:
    outcome = run(next(c for c in cases() if c.name == f"node/test_{name}"))
    assert outcome.passed and outcome.sizes, outcome


def test_a_number_that_an_operator_requires_becomes_the_size() -> None:
    outcome = run(next(c for c in cases() if c.name == "node/test_onehot_with_axis"))
    assert outcome.passed, outcome


@pytest.mark.parametrize("name", [
    "attention_4d_attn_mask", "layer_normalization_2d_axis1_expanded_ver18", "cumsum_1d",
    "attention_3d_gqa", "gru_with_initial_bias", "lstm_defaults", "tensorscatter_circular",
    "attention_4d_diff_heads_mask4d_padded_kv_expanded", "center_crop_pad_crop_and_pad",
    "split_1d_uneven_split_opset18", "quantizelinear_blocked_asymmetric",
    "causal_conv_with_state_short_input_no_past_state", "causal_conv_with_state_b1_c1_degenerate",
    "rotary_embedding_interleaved",
    "dft_rfft", "eyelike_populate_off_main_diagonal", "resize_downsample_sizes_linear_pytorch_half_pixel",
    "resize_tf_crop_and_resize_extrapolation_value", "string_split_maxsplit", "tfidfvectorizer_tf_only_bigrams_skip0",
    "regex_full_match_basic", "reversesequence_batch", "unique_not_sorted_without_axis",
    "slice_neg", "wrap_pad", "gru_reverse", "scan_sum",
])
def test_shapes_from_conditions_and_remainders_of_sizes_are_known(name: str) -> None:
    outcome = run(next(c for c in cases() if c.name == f"node/test_{name}"))
    assert outcome.passed and outcome.sizes, outcome


Dims = Mapping[str, tuple[int | str, ...]]
DFT = {"op": "DFT", "opset": 20}
CAUSAL = {"op": "CausalConvWithState", "opset": 27}


@pytest.mark.parametrize(("shapes", "attributes", "sizes"), [
    ({"x": (2, "n", 1)}, DFT, [{"n": n} for n in (1, 2, 5, 16)]),
    ({"x": ("b", "n", 2)}, DFT | {"inverse": 1}, [{"n": 7, "b": 1}, {"n": 8, "b": 3}]),
    ({"x": (1, "n", 2)}, DFT | {"inverse": 1, "onesided": 1}, [{"n": n} for n in (2, 3, 9)]),
    ({"x": (1, "c", "n"), "w": ("c", 1, "p + 1"), "b": ("c",), "before": (1, "c", "p")},
     CAUSAL | {"activation": "silu"}, [{"c": 2, "n": 9, "p": 3}, {"c": 5, "n": 1, "p": 2}, {"c": 1, "n": 2, "p": 5}]),
    ({"x": ("n", "m", "k")}, {"op": "Split", "opset": 18, "axis": 1, "num_outputs": 3},
     [{"n": 2, "m": m, "k": 3} for m in (1, 2, 5, 9)]),
    ({"x": ("n", "m")}, {"op": "EyeLike", "opset": 9, "k": 1}, [{"n": 1, "m": 4}, {"n": 5, "m": 2}]),
])
def test_open_programs_agree_with_those_of_known_sizes(
    shapes: Dims, attributes: Mapping[str, Any], sizes: Sequence[Mapping[str, int]]
) -> None:
    given = dict(attributes)
    op, opset = given.pop("op"), given.pop("opset")
    outputs = [f"y{k}" for k in range(given.get("num_outputs", 2 if op == "CausalConvWithState" else 1))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * len(dims)) for n, dims in shapes.items()]
    graph = helper.make_graph(
        [helper.make_node(op, [*shapes], outputs, **given)], "g", inputs,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    program = tilewright.compile(model, shapes=shapes, symbolic=True)
    rng = np.random.default_rng(0)
    for known in sizes:
        arrays = {n: rng.standard_normal([eval(str(d), None, {**known}) for d in dims], np.float32)
                  for n, dims in shapes.items()}
        alone = tilewright.compile(model, shapes={n: x.shape for n, x in arrays.items()})
        for y, wanted in zip(onnx_open._called(program, arrays), onnx_open._called(alone, arrays), strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [
    "gathernd_example_int32",
])
def test_cases_that_need_a_number_are_refused(name: str) -> None:
    outcome = run(next(c for c in cases() if c.name == f"node/test_{name}"))
    assert outcome.refused and not outcome.wrong, outcome


@pytest.mark.parametrize(("name", "sizes"), [
    ("split_variable_parts_2d_opset18", {"d2": 2, "d6": 6}), ("reshape_reordered_all_dims", {}),
])
def test_sizes_that_the_model_determines_are_checked_by_each_call(name: str, sizes: Mapping[str, int]) -> None:
    case = next(c for c in cases() if c.name == f"node/test_{name}")
    assert run(case).passed
    model, (data, *_) = case.load()
    of = opened(model, data[0])
    program = tilewright.compile(of.model, shapes=of.shapes, threads=1)
    said = r"has shape \[4, 7\]|must satisfy .*d2 \* d3\) \* d4 == 24, .* d2 = 4, d3 = 6, d4 = 8"
    with pytest.raises(InputError, match=said):
        program(**of.inputs({d: 7 if d == "d6" else 2 * n for d, n in of.sizes.items()}))


def test_refusals_and_cases_without_open_dimensions_are_told_apart() -> None:
    model = _model([helper.make_node("Det", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [3, 3])})
    refused = run(Case("det", lambda: (model, [([np.eye(3, dtype=np.float32)], [np.ones((), np.float32)])])))
    assert refused.refused and not refused.passed and not refused.wrong
    closed = _model([helper.make_node("Erf", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [1, 1])})
    assert run(Case("erf", lambda: (closed, [([np.ones((1, 1), np.float32)], [])]))).closed


def test_refusals_are_grouped_without_the_names_of_nodes_and_sizes() -> None:
    said = "'model' is compiled for each combination of its sizes: Pad 'Pad_0' at m.onnx:3: the size (d4 + 2) is known"
    assert cluster(said) == "Pad: the size (d + 2) is known"
