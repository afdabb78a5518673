"""`relay.quantize` under the field's options, and post-training quantization: small networks end to end, and what is
refused."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import cnn, mlp
from tilewright import relay
from tilewright.base.errors import CompileError, InputError, OptionError, UnknownOptionWarning
from tilewright.driver.main import main
from tilewright.ir import IRModule
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.annotation import SimulatedQuantize
from tilewright.relay.quantize import PostTraining, post_training, qconfig, quantize
from tilewright.relay.visitor import calls

RANDOM = np.random.default_rng(3)
DATA = RANDOM.standard_normal((6, 4, 12, 12)).astype(np.float32)


def weight(*shape: int, random: np.random.Generator = RANDOM) -> Expr:
    return relay.const(random.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:]))))


def network(tail: str = "dense") -> IRModule:
    """A residual block, a pool, a concatenation, a depthwise convolution, an average, a product: `x` (1, 4, 12, 12) ->
    (1, 10)."""
    weight = functools.partial(globals()["weight"], random=np.random.default_rng(5))
    x = relay.var("x", shape=(1, 4, 12, 12))
    stem = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, weight(8, 4, 3, 3), padding=(1, 1)), weight(8)))
    branch = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(stem, weight(8, 8, 3, 3), padding=(1, 1)), weight(8)))
    total = relay.nn.relu(relay.add(relay.nn.conv2d(branch, weight(8, 8, 1, 1)), stem))
    pooled = relay.nn.max_pool2d(total, pool_size=(2, 2), strides=(2, 2))
    left, right = relay.nn.conv2d(pooled, weight(4, 8, 1, 1)), relay.nn.conv2d(
        pooled, weight(4, 8, 1, 1) * relay.const(np.float32(5))
    )
    joined = relay.nn.relu(
        relay.nn.conv2d(relay.concatenate((left, right), axis=1), weight(8, 1, 3, 3), groups=8, padding=(1, 1))
    )
    flat = relay.reshape(relay.nn.global_avg_pool2d(joined), (1, 8))
    return IRModule.from_expr(
        relay.Function([x], relay.nn.dense(flat, weight(10, 8)) if tail == "dense" else relay.nn.softmax(flat))
    )


def relative(y: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(y - wanted) / np.linalg.norm(wanted))


def operators(mod: IRModule) -> Counter[str]:
    return Counter(e.op.name for e in calls(mod["main"]))


def dataset() -> list[dict[str, np.ndarray]]:
    return [{"x": x[None]} for x in DATA]


def all_layers(**options: Any) -> Any:
    return qconfig(**{"skip_conv_layers": [], "skip_dense_layer": False, "weight_scale": "max", **options})


# --- the field's options
# -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence", "percentile"])
@pytest.mark.parametrize("scale", ["max", "power2"])
def test_each_calibration_gives_a_network_of_integers(mode: str, scale: str) -> None:
    mod = network()
    with all_layers(calibrate_mode=mode, weight_scale=scale, global_scale=6.0):
        made = quantize(mod, dataset=dataset())
    found = operators(made)
    assert (found["qnn.conv2d"], found["qnn.dense"], found["nn.conv2d"], found["nn.dense"]) == (6, 1, 0, 0)
    assert found["qnn.quantize"] <= 2, "only the input and the average are quantized as such"
    compiled, plain = tvm.compile(made), tvm.compile(mod)
    for x in DATA[:2]:
        assert relative(compiled(x[None]), plain(x[None])) < 0.25
        np.testing.assert_allclose(compiled(x[None]), evaluate(made, x[None]), rtol=1e-5, atol=1e-5)


def test_the_scale_of_all_values_is_that_of_the_options() -> None:
    with all_layers(do_simulation=True, global_scale=4.0, nbit_input=4, weight_scale="power2"):
        made = quantize(network())
    values = [e for e in calls(made["main"]) if isinstance(e.op, SimulatedQuantize) and e.op.kind_of_value == 1]
    assert values
    for e in values:
        assert [float(p.value) for p in e.args[1:] if isinstance(p, Constant)] == [0.5, -7, 7]
    for e in calls(made["main"]):
        if isinstance(e.op, SimulatedQuantize) and e.op.kind_of_value == 2:
            value, unit = e.args[:2]
            assert isinstance(value, Constant) and isinstance(unit, Constant)
            most, scale = np.abs(value.value).max(), float(unit.value)
            assert most <= scale * 128 < 2 * most
            assert np.log2(scale) == round(np.log2(scale))


@pytest.mark.slow
def test_simulation_says_what_integers_compute() -> None:
    mod, x = network(), DATA[:1]
    with all_layers(calibrate_mode="percentile"):
        whole = tvm.compile(quantize(mod, dataset=dataset()))(x)
        with all_layers(calibrate_mode="percentile", do_simulation=True):
            simulated = quantize(mod, dataset=dataset())
    assert "qnn.conv2d" not in operators(simulated)
    assert relative(tvm.compile(simulated)(x), whole) < 0.02


def test_fewer_bits_are_held_in_bytes() -> None:
    """A range of four bits, which values leave on both sides."""
    mod = network()
    with all_layers(nbit_input=4, global_scale=1.0, rounding="TONEAREST"):
        made = quantize(mod)
        with all_layers(nbit_input=4, global_scale=1.0, do_simulation=True):
            simulated = quantize(mod)
    assert relative(evaluate(made, DATA[:1] * 3), evaluate(simulated, DATA[:1] * 3)) < 1e-5
    np.testing.assert_allclose(tvm.compile(made)(DATA[:1] * 3), evaluate(made, DATA[:1] * 3), rtol=1e-5, atol=1e-5)


def test_layers_are_skipped_by_number_and_kind() -> None:
    mod = network()
    assert operators(quantize(mod))["qnn.conv2d"] == 5
    assert operators(quantize(mod))["nn.dense"] == 1
    with qconfig(skip_conv_layers=[1, 5], skip_dense_layer=False):
        found = operators(quantize(mod))
    assert (found["qnn.conv2d"], found["nn.conv2d"], found["qnn.dense"]) == (4, 2, 1)
    with all_layers(debug_enabled_ops=["nn.dense"]):
        found = operators(quantize(mod))
    assert (found["qnn.conv2d"], found["qnn.dense"]) == (0, 1)


@pytest.mark.slow
def test_values_are_calibrated_a_few_at_a_time() -> None:
    mod = network()
    with all_layers(calibrate_mode="percentile"):
        wanted = quantize(mod, dataset=dataset())
    with all_layers(calibrate_mode="percentile", calibrate_chunk_by=2):
        tvm.ir.assert_structural_equal(quantize(mod, dataset=dataset()), wanted)


def test_passes_one_by_one_are_the_whole() -> None:
    mod = relay.quantize.prerequisite_optimize(network())
    with all_layers():
        marked = relay.quantize.partition()(mod)
        assert operators(marked)["annotation.cast_hint"] > 4
        annotated = relay.quantize.annotate()(marked)
        with pytest.raises(
            CompileError, match=r"has no scale yet; run quantize\.calibrate\(\) before quantize\.realize\(\)"
        ):
            relay.quantize.realize()(annotated)
        made = relay.quantize.realize()(relay.quantize.calibrate()(annotated, None))
        tvm.ir.assert_structural_equal(relay.transform.FoldConstant()(made), quantize(mod))


def test_rounding_of_requantizations() -> None:
    for rounding in ("UPWARD", "TONEAREST", "TOEVEN"):
        with all_layers(rounding=rounding):
            made = quantize(network())
        assert {
            e.op.rounding for e in calls(made["main"]) if e.op.name == "qnn.requantize"
        } == {rounding}


@pytest.mark.slow
def test_conversions_are_functions_of_their_own() -> None:
    mod = network()
    with all_layers(partition_conversions="enabled"):
        made = quantize(mod)
    with all_layers():
        plain = quantize(mod)
    assert {v.name_hint for v in made.get_global_vars()} == {
        "main", "quantize_inputs", "quantized_main", "dequantize_outputs"
    }
    np.testing.assert_array_equal(tvm.compile(made)(DATA[:1]), tvm.compile(plain)(DATA[:1]))
    assert [p.checked_type.dtype for p in made["quantized_main"].params] == ["int8"]
    x = relay.var("x", shape=(1, 4, 12, 12))
    middle = relay.nn.conv2d(relay.sigmoid(relay.nn.conv2d(x, weight(4, 4, 1, 1))), weight(4, 4, 1, 1))
    with all_layers(partition_conversions="fully_integral"), pytest.raises(
        CompileError, match="sigmoid computes with floats, which a fully integral network does not; remove it"
    ):
        quantize(IRModule.from_expr(relay.Function([x], middle)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"calibrate_mode": "kl_divergance"},
            "calibrate_mode is 'kl_divergance'; it must be one of global_scale, kl_divergence, percentile; "
            "did you mean 'kl_divergence'"
        ),
        ({"weight_scale": "power3"}, "weight_scale is 'power3'; it must be one of power2, max"),
        (
            {"nbit_input": 16},
            "nbit_input is 16; it must be an integer from 2 to 8, because kernels multiply 8-bit numbers"
        ),
        ({"dtype_activation": "int16"}, "dtype_activation is 'int16'; it must be one of int32"),
        ({"global_scale": 0}, "global_scale is 0; it must be above zero, the largest magnitude of a value"),
        (
            {"calibrate_chunk_by": 0},
            "calibrate_chunk_by is 0; it must be the number of values to calibrate at a time, or -1 for all"
        ),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        qconfig(**options)


def test_an_unknown_option_is_ignored_with_a_warning() -> None:
    with pytest.warns(UnknownOptionWarning, match="no option 'global_skale', which is ignored; did you mean 'global_s"):
        assert qconfig(global_skale=1) == qconfig()


def test_a_mode_that_needs_data_says_so() -> None:
    with all_layers(calibrate_mode="kl_divergence"), pytest.raises(
        OptionError, match="calibrate_mode 'kl_divergence' needs calibration data; give quantize"
    ):
        quantize(network())


def test_options_end_with_their_block() -> None:
    with qconfig(global_scale=2.0):
        with qconfig(nbit_input=4):
            assert (
                relay.quantize.current_qconfig().global_scale, relay.quantize.current_qconfig().nbit_input
            ) == (8.0, 4)
        assert relay.quantize.current_qconfig().global_scale == 2.0
    assert relay.quantize.current_qconfig() == relay.quantize.QConfig()
    assert relay.quantize.QConfig().get_nbit_by_kind(relay.quantize.QAnnotateKind.WEIGHT) == 8
    assert relay.quantize.QConfig().get_dtype_by_kind(relay.quantize.QAnnotateKind.ACTIVATION) == "int32"


# --- post-training
# ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {}, {"calibration": "percentile"}, {"calibration": "mse"}, {"calibration": "kl"}, {"symmetric": True},
        {"per_channel": False}, {"dtype": "int8"}, {"bias_correction": True}
    ], ids=str
)
def test_a_network_keeps_its_answers(options: dict[str, Any]) -> None:
    mod = network()
    found = post_training(mod, dataset=DATA, config=PostTraining(**options))
    assert found.report.error < 0.1
    assert [e.quantized for e in found.report.layers] == [True] * 7
    assert all(0 < e.own < 0.1 and 0 < e.error < 0.2 for e in found.report.layers)
    assert found.report.bytes_after < 0.6 * found.report.bytes_before
    assert operators(found.module)["qnn.conv2d"] == 6
    compiled, plain = tvm.compile(found.module), tvm.compile(mod)
    errors = [compiled(x[None]) - plain(x[None]) for x in DATA]
    assert relative(
        np.stack(errors) + np.stack([plain(x[None]) for x in DATA]), np.stack([plain(x[None]) for x in DATA])
    ) == pytest.approx(found.report.error, rel=1e-3)
    np.testing.assert_allclose(compiled(DATA[:1]), evaluate(found.module, DATA[:1]), rtol=1e-5, atol=1e-5)


def test_a_layer_in_bounds_by_construction() -> None:
    """One product: its error is at most half a step of its data and of its weights at each element."""
    x, w = relay.var("x", shape=(3, 16)), RANDOM.uniform(-1, 1, (5, 16)).astype(np.float32)
    data = RANDOM.uniform(-1, 2, (12, 16)).astype(np.float32)
    found = post_training(IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(w)))), dataset=data)
    y = tvm.compile(found.module)(data[:3])
    step, steps = (data.max() - data.min()) / 255, np.abs(w).max(axis=1) / 127
    bound = 0.51 * (
        step * np.abs(w).sum(axis=1) + steps * np.abs(data[:3]).sum(axis=1, keepdims=True) + step * steps * 16
    )
    assert np.all(np.abs(y - data[:3] @ w.T) <= bound)


@pytest.mark.slow
def test_parts_of_a_concatenation_have_one_scale() -> None:
    found = post_training(network(), dataset=DATA)
    joined = next(e for e in calls(found.module["main"]) if e.op.name == "concatenate")
    assert joined.tensor_type.dtype == "uint8"


def test_weights_of_channels_of_different_size_want_scales_of_their_own() -> None:
    x, w = relay.var("x", shape=(1, 4, 12, 12)), RANDOM.standard_normal((8, 4, 3, 3)).astype(np.float32)
    w *= np.float32(10.0) ** -np.arange(8, dtype=np.float32).reshape(8, 1, 1, 1)
    y = relay.nn.conv2d(x, relay.const(w)) * relay.const(
        (np.float32(10.0) ** np.arange(8, dtype=np.float32)).reshape(8, 1, 1)
    )
    mod = IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(y))))
    with_own, with_one = (
        post_training(mod, dataset=DATA, config=PostTraining(per_channel=p)).report.error for p in (True, False)
    )
    assert with_own <= with_one


@pytest.mark.slow
def test_the_worst_layers_stay_in_float_until_the_error_is_small_enough() -> None:
    mod = network()
    free = post_training(mod, dataset=DATA)
    for part in (0.9, 0.5, 0.0):
        found = post_training(mod, dataset=DATA, config=PostTraining(max_error=part * free.report.error + 1e-7))
        assert found.report.error <= part * free.report.error + 1e-6
        kept = [e for e in found.report.layers if not e.quantized]
        assert kept
        assert operators(found.module)["qnn.conv2d"] + operators(found.module)["qnn.dense"] == 7 - len(kept)
        assert min(e.own for e in kept) >= max((e.own for e in found.report.layers if e.quantized), default=0.0)


@pytest.mark.slow
def test_layers_are_named_after_the_model_and_skipped_by_name() -> None:
    images = RANDOM.standard_normal((3, 3, 16, 16)).astype(np.float32)
    whole = tvm.quantize(cnn().SerializeToString(), images)
    names = [e.name for e in whole.report.layers]
    assert len(names) == len(set(names)) >= 3
    found = tvm.quantize(cnn().SerializeToString(), images, skip=[names[0]])
    assert [e.quantized for e in found.report.layers] == [False] + [True] * (len(names) - 1)
    with pytest.raises(OptionError, match=f"skip: the network has no layer '{names[0]}x'; did you mean '{names[0]}'"):
        tvm.quantize(cnn().SerializeToString(), images, skip=[names[0] + "x"])


@pytest.mark.slow
def test_bias_correction_takes_the_shift_out_of_the_mean() -> None:
    x, w = relay.var("x", shape=(4, 32)), np.full(
        (6, 32), 0.3, np.float32
    ) + RANDOM.uniform(0, 0.0014, (6, 32)).astype(np.float32)
    w[:, 0] = 1.0
    data = RANDOM.uniform(0, 1, (64, 32)).astype(np.float32)
    mod = IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(w))))
    shift = []
    for correct in (False, True):
        m = tvm.compile(post_training(mod, dataset=data, config=PostTraining(bias_correction=correct)).module)
        shift.append(abs(float(np.mean(np.concatenate([m(data[k : k + 4]) for k in range(0, 64, 4)]) - data @ w.T))))
    assert shift[1] < 0.2 * shift[0]


# --- data, and the short door
# -------------------------------------------------------------------------------------------


def two_inputs() -> IRModule:
    a, b = relay.var("a", shape=(2, 8)), relay.var("b", shape=(2, 8))
    return IRModule.from_expr(relay.Function([a, b], relay.nn.dense(a + b, weight(4, 8))))


@pytest.mark.slow
def test_data_come_as_arrays_mappings_and_batches() -> None:
    rows = RANDOM.standard_normal((6, 8)).astype(np.float32)
    forms = (
        {"a": rows, "b": rows}, [{"a": rows[:2], "b": rows[:2]}, {"a": rows[2:], "b": rows[2:]}],
        iter([{"a": tvm.nd.array(rows), "b": rows}]),
    )
    found = [post_training(two_inputs(), dataset=f).report for f in forms]
    assert [r.samples for r in found] == [3, 3, 3]
    assert found[0].outputs.keys() == {"output0"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the calibration data are empty; give at least one input"),
        ({"a": np.zeros((2, 8), np.float32)}, "calibration data: 'b' is not given; the inputs are: a, b"),
        (
            {"a": np.zeros((2, 8), np.float32), "b": np.zeros((2, 8), np.float32), "c": np.zeros(1)},
            "calibration data: 'c' is no input of the network"
        ),
        (
            np.zeros((2, 8), np.float32),
            "the network takes 2 inputs: a, b; give each sample as a dictionary of arrays by these names"
        ),
        (
            {"a": np.zeros((2, 7), np.float32), "b": np.zeros((2, 8), np.float32)},
            r"calibration data for 'a' are float32\[2, 7\], but the network takes Tensor\[\(2, 8\), float32\]"
        ),
        ({"a": np.zeros((2, 8), int), "b": np.zeros((2, 8), "f")}, r"calibration data for 'a' are int64\[2, 8\]"),
        (
            {"a": np.zeros((4, 8), np.float32), "b": np.zeros((2, 8), np.float32)},
            "calibration data have different numbers of samples: 1, 2; give the same number for each input"
        ),
    ],
)
def test_data_that_do_not_fit(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        post_training(two_inputs(), dataset=data)


def test_networks_and_options_that_cannot_be() -> None:
    x = relay.var("x", shape=(2, 8))
    with pytest.raises(
        CompileError,
        match="there is nothing to quantize: the network has no 2-D convolution or matrix product"
    ):
        post_training(IRModule.from_expr(relay.Function([x], relay.exp(x))), dataset=np.zeros((2, 8), np.float32))
    with pytest.raises(
        OptionError, match="post-training quantization needs calibration data; give inputs of the network"
    ):
        post_training(two_inputs())
    with pytest.raises(OptionError, match="calibration is 'min'; it must be one of minmax, percentile, kl, mse"):
        PostTraining(calibration="min")
    with pytest.raises(OptionError, match="percentile is 0; it must be above 0 and at most 1"):
        PostTraining(percentile=0)
    with pytest.raises(OptionError, match="max_error is -1; it must be a relative error"):
        PostTraining(max_error=-1)
    with pytest.raises(OptionError, match="measured is 0; it must be at least 1 sample"):
        PostTraining(measured=0)
    with pytest.raises(OptionError, match="there is no option 'callibration'; did you mean 'calibration'"):
        tvm.quantize(mlp(), np.zeros((2, 16), np.float32), callibration="kl")
    with pytest.raises(InputError, match=r"cannot read calibration data from 'nowhere\.npz'"):
        tvm.quantize(mlp(), "nowhere.npz")
    with pytest.raises(InputError, match="not a int"):
        tvm.quantize(mlp(), 3)


@pytest.mark.slow
def test_sizes_that_a_model_leaves_open_are_those_of_the_data() -> None:
    images = RANDOM.standard_normal((3, 3, 16, 16)).astype(np.float32)
    found = tvm.quantize(cnn("batch"), {"x": images})
    assert found.report.samples == 3
    assert found.compile()(images[:1]).shape == (1, 10)
    assert tvm.quantize(cnn("batch"), [{"x": images}]).compile()(images).shape == (3, 10)


# --- the command
# --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_a_program_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = RANDOM.standard_normal((3, 3, 16, 16)).astype(np.float32)
    (tmp_path / "cnn.onnx").write_bytes(cnn().SerializeToString())
    np.savez(tmp_path / "data.npz", x=images)
    out, report = tmp_path / "int8.tar", tmp_path / "report.json"
    arguments = [
        "quantize", str(tmp_path / "cnn.onnx"), "--data", str(tmp_path / "data.npz"), "-o", str(out), "--report",
        str(report), "--calibration", "mse"
    ]
    assert main(arguments) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "own error" in shown
    assert "output y: relative error" in shown
    assert f"Wrote {out}" in shown
    found = json.loads(report.read_text())
    assert found["calibration"] == "mse"
    assert found["outputs"]["y"]["snr_db"] == pytest.approx(-20 * np.log10(found["outputs"]["y"]["error"]))
    assert all({"name", "operator", "own", "error", "snr_db", "quantized"} <= row.keys() for row in found["layers"])
    plain = tvm.compile(cnn().SerializeToString())
    assert relative(tvm.load(out)(images[:1]), plain(images[:1])) < 0.1


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cnn.onnx").write_bytes(cnn().SerializeToString())
    np.savez(tmp_path / "data.npz", z=np.zeros((1, 3, 16, 16), np.float32))
    start = ["quantize", str(tmp_path / "cnn.onnx"), "--data", str(tmp_path / "data.npz")]
    assert main([*start, "-o", "x.exe"]) == 2
    assert "has none of the supported extensions: .so, .tar" in capsys.readouterr().err
    assert main(start) == 1
    assert "is no input of the network" in (error := capsys.readouterr().err) or "is not given" in error
    assert main([*start, "--calibration", "best"]) == 2
    assert "calibration is 'best'; it must be one of minmax, percentile, kl, mse" in capsys.readouterr().err


def test_a_model_that_is_quantized_already_has_nothing_left_to_quantize() -> None:
    images = RANDOM.standard_normal((3, 3, 16, 16)).astype(np.float32)
    made = tvm.quantize(cnn(), images)
    with pytest.raises(CompileError, match="there is nothing to quantize"):
        tvm.quantize(made.module, images)


def test_products_between_other_operators() -> None:
    """A softmax stays in float, and what stands behind a layer is part of its kernel."""
    data = RANDOM.standard_normal((4, 16)).astype(np.float32)
    found = tvm.quantize(mlp(), data)
    assert isinstance(found.module["main"].body, Call)
    assert found.report.outputs["y"] < 0.05
