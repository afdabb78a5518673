"""Whose roundings quantised operators have: a network of one framework gives the integers of another one's runtime
where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily
import tilewright
from small_models import NO_VNNI, VNNI, onnxruntime_answers
from tilewright import relay
from tilewright.base.errors import OptionError
from tilewright.compat import transform
from tilewright.driver.main import main
from tilewright.ir.module import IRModule
from tilewright.relay.qnn.sources import window_sums

Array = np.ndarray[Any, Any]


def requantized(**how: Any) -> IRModule:
    """Sums in int32, requantized to bytes, by the rounding that is left open."""
    x = relay.var("x", shape=(1, 4, 3, 3), dtype="int32")
    scale, zero, to, out = (
        relay.const(np.asarray(v, t)) for v, t in ((0.01, "float32"), (0, "int32"), (0.02, "float32"), (3, "int32"))
    )
    y = relay.qnn.op.requantize(x, scale, zero, to, out, axis=1, out_dtype="uint8")
    return IRModule.from_expr(relay.Function([x], y, attrs=how))


SUMS = np.arange(-36, 36, 2).reshape(1, 4, 3, 3).astype(np.int32) + 1  # halves, all of them


@pytest.mark.parametrize("numerics", ["tflite", "onnx", "torch", "torch-qnnpack", "fast"])
def test_halves_go_where_the_runtime_has_them_go(numerics: str) -> None:
    """TFLite's fixed-point product with a half rounds upward."""
    whole = np.floor(SUMS / 2 + 0.5) if numerics == "tflite" else np.rint(SUMS / 2)
    np.testing.assert_array_equal(
        tilewright.compile(requantized(), numerics=numerics)(SUMS), np.clip(whole + 3, 0, 255)
    )


def test_what_main_says_is_replaced_by_the_option_and_else_holds() -> None:
    own = tilewright.compile(requantized(numerics="tflite"))
    other = tilewright.compile(requantized(numerics="tflite"), config={"relay.qnn.numerics": "onnx"})
    assert (own(SUMS) != other(SUMS)).any()
    np.testing.assert_array_equal(own(SUMS), tilewright.compile(requantized(), numerics="tflite")(SUMS))


def test_an_engine_of_torch_is_kept_where_torch_is_asked_for() -> None:
    mod = requantized(numerics="torch-qnnpack")
    with transform.PassContext(config={"relay.qnn.numerics": "torch"}):
        assert relay.qnn.transform.ChooseNumerics()(mod) is mod


@pytest.mark.parametrize("name", ["tensorflow", "torch-vulkan"])
def test_runtimes_that_are_not_known_are_refused(name: str) -> None:
    with pytest.raises(
        OptionError,
        match="configuration option 'relay.qnn.numerics' takes one of , tflite, onnx, torch, .*fast, not "
        f"'{name}'"
    ):
        tilewright.compile(requantized(), numerics=name)


def test_the_command_line_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    from test_onnx_quantized import network

    model, made = tmp_path / "network.onnx", tmp_path / "network.tar"
    model.write_bytes(network().SerializeToString())
    assert main(["compile", str(model), "--numerics", "tflite", "-o", str(made)]) == 0, capsys.readouterr().err
    assert made.exists()
    assert main(["compile", str(model), "--numerics", "caffe", "-o", str(made)]) == 2
    assert "--numerics: there is no 'caffe'; choose from tflite, onnx, torch" in " ".join(
        capsys.readouterr().err.split()
    )


# One network in three frameworks

CASES = [
    *(
        (name, numerics, source) for name in ("ds_cnn", "resnet_8")
        for numerics in ("onnx", "torch-onednn", "torch-qnnpack") for source in ("onnx", "tflite", "torch")
    ),
    *(("mobilenet_v2", "torch-onednn", source) for source in ("torch", "onnx")),
    *(("ds_cnn", "tflite", source) for source in ("onnx", "torch")),
]
"""Networks, runtimes, frameworks. TFLite's means round the bytes that are stored, so that those of int8 and of uint8
differ; FBGEMM's depthwise kernels hold sums of two products in 16 bits, which bytes of the full range exceed."""


@pytest.fixture(scope="module")
def sources() -> Any:
    """The files of a network by its name, each made once."""
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    from quantized_networks import NETWORKS as DESCRIBED
    from quantized_writers import to_onnx, to_tflite, to_torch

    made: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        if name not in made:
            net = DESCRIBED[name]()
            made[name] = {"net": net, "torch": to_torch(net), "tflite": to_tflite(net), "onnx": to_onnx(net)}
        return made[name]

    return of


def compiled(files: dict[str, Any], source: str, numerics: str) -> Any:
    if source == "torch":
        return tilewright.compile(
            files["torch"], shapes={"input": files["net"].input.shape}, threads=1, numerics=numerics
        )
    return tilewright.compile(files[source], threads=1, numerics=numerics)


def run(model: Any, source: str, x: Array) -> Array:
    """Real numbers (batch, features), whatever the order of the images."""
    given = x.transpose(0, 2, 3, 1).copy() if source == "tflite" else x
    return np.asarray(model(given))


def answers_of_runtime(files: dict[str, Any], numerics: str, x: Array) -> Array:
    if numerics == "onnx":
        return onnxruntime_answers(files["onnx"], {"input": x})[0]
    if numerics == "tflite":  # the bits of LiteRT's reference kernels: tests/test_tflite_suite.py
        return run(compiled(files, "tflite", ""), "tflite", x)
    import torch

    from quantized_writers import to_torch

    torch.backends.quantized.engine = numerics.removeprefix("torch-")
    module = to_torch(files["net"])
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x)).numpy())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("name", "numerics", "source"), daily.of_each(CASES, lambda c: c[1], 2, "numerics"))
def test_every_source_gives_the_integers_of_the_runtime_that_is_asked_for(
    name: str, numerics: str, source: str, sources: Any
) -> None:
    import torch

    if numerics in ("onnx", "torch-onednn") and not VNNI:
        pytest.skip(NO_VNNI)
    if (
        numerics.startswith("torch")
        and numerics.removeprefix("torch-") not in torch.backends.quantized.supported_engines
    ):
        pytest.skip(f"this torch has no {numerics.removeprefix('torch-')}")
    files, engine = sources(name), torch.backends.quantized.engine
    model = compiled(files, source, numerics)
    rng = np.random.default_rng(3)
    try:
        for _ in range(5):
            x = rng.uniform(-2, 2.6, files["net"].input.shape).astype(np.float32)
            np.testing.assert_array_equal(run(model, source, x).ravel(), answers_of_runtime(files, numerics, x).ravel())
    finally:
        torch.backends.quantized.engine = engine


def test_the_document_says_what_the_rules_say() -> None:
    from numerics_table import PAGE, table

    assert table() in PAGE.read_text(encoding="utf-8"), "python tests/numerics_table.py writes it"
    assert "|  |" not in table(), "a rule has no docstring"


def average(
    height: int, width: int, window: tuple[int, int], strides: tuple[int, int], padding: tuple[int, ...]
) -> relay.Call:
    x = relay.var("x", shape=(1, height, width, 1), dtype="uint8")
    scale, zero = relay.const(np.float32(0.5)), relay.const(np.int32(0))
    return relay.qnn.op.avg_pool2d(
        x, scale, zero, scale, zero, pool_size=window, strides=strides, padding=padding, layout="NHWC",
        count_include_pad=False
    )


@pytest.mark.parametrize(
    "case",
    [(6, 5, (2, 2), (1, 1), (0, 0, 0, 0)), (7, 5, (3, 2), (2, 3), (1, 0, 1, 1)), (4, 9, (4, 3), (3, 2), (2, 1, 3, 2))]
)
def test_how_many_elements_each_window_has(
    case: tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, ...]]
) -> None:
    height, width, window, strides, (top, left, bottom, right) = case
    ones = np.pad(np.ones((height, width), np.int32), ((top, bottom), (left, right)))
    wanted = np.lib.stride_tricks.sliding_window_view(ones, window)[:: strides[0], :: strides[1]].sum((2, 3))
    found = window_sums(average(*case))
    assert found is not None
    np.testing.assert_array_equal(found[1][0, :, :, 0], wanted)


def test_more_windows_than_a_table_has_are_not_counted() -> None:
    assert window_sums(average((1 << 31) + 3, 7, (2, 2), (1, 1), (1, 1, 1, 1))) is None
