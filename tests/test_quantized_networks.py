"""Ten networks, each quantized by PyTorch, TFLite and ONNX with the same scales: one program, the same parts for an
accelerator, the same integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.library_calls import stand_in
from tilewright.base.errors import OptionError
from tilewright.ir import assert_structural_equal
from tilewright.relay import transform
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.contrib import partition_for

pytest.importorskip("torch", reason="a third of the networks are modules of torch; install torch")
pytest.importorskip("onnx", reason="a third of the networks are ONNX models; install onnx")

from quantized_networks import NETWORKS, WIDTHS, Network
from quantized_writers import to_onnx, to_tflite, to_torch
from small_models import NO_VNNI, VNNI

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
),
              pytest.mark.filterwarnings("ignore::FutureWarning")]  # torch's own
OF_OPERATORS = ("ds_cnn", "resnet_8")
"""The networks whose ONNX models are of QLinearConv and its like."""
SMALL = ("ds_cnn", "resnet_8")
Unify = relay.qnn.transform.Unify


@cache
def described(name: str) -> Network:
    return NETWORKS[name]()


@cache
def imported(name: str) -> dict[str, tvm.IRModule]:
    return as_modules(described(name), name)


def as_modules(net: Network, name: str) -> dict[str, tvm.IRModule]:
    """A network as each framework has it."""
    return {
        "torch": relay.frontend.from_pytorch(to_torch(net), [("input", net.input.shape)], freeze_params=True)[0],
        "tflite": relay.frontend.from_tflite(to_tflite(net))[0],
        "onnx": relay.frontend.from_onnx(to_onnx(net, name in OF_OPERATORS))[0],
    }


def pattern_table() -> list[tuple[str, DFPattern]]:
    """An accelerator of convolutions, matrix products and sums."""
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    conv = is_op("qnn.conv2d")(data, *(is_constant() for _ in range(5)))
    dense = is_op("qnn.dense")(wildcard(), *(is_constant() for _ in range(5)))
    with_bias = [
        is_op("qnn.requantize")(is_op("nn.bias_add")(p, is_constant()), *(is_constant() for _ in range(4)))
        for p in (conv, dense)
    ]
    total = is_op("qnn.add")(wildcard(), wildcard(), *(is_constant() for _ in range(6)))
    return [("npu.conv2d", with_bias[0]), ("npu.dense", with_bias[1]), ("npu.add", total)]


def partitioned(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [
        transform.InferType(), transform.MergeComposite(pattern_table()), transform.AnnotateTarget("npu"),
        transform.MergeCompilerRegions(), transform.PartitionGraph()
    ]
    return tvm.transform.Sequential(passes)(mod)


def offload_map(mod: tvm.IRModule) -> dict[str, list[str]]:
    """The functions that the accelerator computes, and the patterns in each."""
    found: dict[str, list[str]] = {}
    for name, function in mod.items():
        if function.attrs.get("Compiler") == "npu":
            inside = [
                e.op.attrs["Composite"] for e in relay.visitor.calls(function.body, inside=False)
                if isinstance(e.op, relay.Function)
            ]
            found[str(name)] = inside
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_three_frameworks_give_one_program_and_one_map(name: str) -> None:
    one_program_and_one_map(imported(name), described(name))


@pytest.mark.parametrize("target", ["cmsis-nn", "ethos-u", "ethos-n", "arm_compute_lib"])
def test_partition_functions_take_the_same_parts_of_all_frameworks(target: str) -> None:
    modules = imported("ds_cnn")
    taken = {source: rows_of(partition_for(target, mod), target) for source, mod in modules.items()}
    assert any(row.endswith("conv2d") for row in taken["tflite"])
    assert taken["torch"] == taken["onnx"] == taken["tflite"]


def rows_of(mod: tvm.IRModule, target: str) -> list[str]:
    """The rows of the pattern table in the functions for a target, sorted."""
    return sorted(
        str(e.op.attrs["Composite"]) for _, f in mod.items() if f.attrs.get("Compiler") == target
        for e in relay.visitor.calls(f.body, inside=False) if isinstance(e.op, relay.Function))


def test_a_partitioned_network_of_pytorch_rounds_as_the_library() -> None:
    mod = imported("ds_cnn")["torch"]
    made = partition_for("cmsis-nn", mod)
    old, new = (relay.transform.InferType()(m)["main"] for m in (mod, made))
    assert str(old.checked_type) == str(new.checked_type)
    x = np.random.default_rng(0).standard_normal(described("ds_cnn").input.shape).astype("float32")
    with stand_in("cmsis-nn") as called:
        found = relay.build(made, "llvm").executable(x)
    assert called.count("cmsis_nn_qnn_conv2d") == 9
    whole = Unify("NHWC", "int8", "tflite", keep_signature=True)(mod)
    np.testing.assert_array_equal(found, relay.build(whole, "llvm").executable(x))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "width"), WIDTHS.items())
def test_networks_with_all_their_channels_are_one_program(name: str, width: int) -> None:
    net = NETWORKS[name](width)
    assert max(layer.output.shape[1] for layer in net.layers) == {
        "mobilenet_v1": 1024, "resnet_18": 512, "resnet_50": 2048
    }[name]
    one_program_and_one_map(as_modules(net, name), net)


def one_program_and_one_map(modules: dict[str, tvm.IRModule], net: Network) -> None:
    torch, tflite, onnx = (Unify()(modules[source]) for source in ("torch", "tflite", "onnx"))
    assert_structural_equal(tflite, torch)
    assert_structural_equal(onnx, torch)
    parts = [partitioned(m) for m in (torch, tflite, onnx)]
    maps = [offload_map(p) for p in parts]
    assert maps[0] == maps[1] == maps[2]
    kinds = [layer.kind for layer in net.layers]
    taken = [pattern for patterns in maps[0].values() for pattern in patterns]
    assert sorted(taken) == sorted(
        f"npu.{'conv2d' if k == 'conv' else k}" for k in kinds if k in ("conv", "dense", "add")
    )
    assert_structural_equal(parts[1], parts[0])
    assert_structural_equal(parts[2], parts[0])


@pytest.mark.parametrize("name", SMALL)
def test_before_it_they_are_three_and_an_accelerator_takes_only_some(name: str) -> None:
    modules = imported(name)
    assert not tvm.ir.structural_equal(
        modules["torch"], modules["tflite"]
    ) and not tvm.ir.structural_equal(modules["torch"], modules["onnx"])
    maps = {source: offload_map(partitioned(m)) for source, m in modules.items()}
    convolutions = {
        source: sum(p == "npu.conv2d" for ps in found.values() for p in ps) for source, found in maps.items()
    }
    assert convolutions["torch"] == 0 < convolutions["tflite"]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "vgg_11", "squeezenet"])
def test_the_program_is_one_in_every_layout_and_type(name: str, dtype: str, layout: str) -> None:
    modules = [Unify(layout, dtype, "tflite")(m) for m in imported(name).values()]
    text = modules[0].astext(show_meta_data=False)
    assert f'out_dtype="{"uint8" if dtype == "int8" else "int8"}"' not in text and ("HWIO" in text) == (
        layout == "NHWC"
    )
    for m in modules[1:]:
        assert_structural_equal(m, modules[0])
    again = Unify(layout, dtype, "tflite")(modules[0])
    assert_structural_equal(again, modules[0])


def picture(name: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).uniform(-2, 2.6, described(name).input.shape).astype(np.float32)


def integers(name: str, real: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The results in units of their scale."""
    return np.rint(real / described(name).output.scale).astype(np.int64)


@pytest.mark.parametrize("name", NETWORKS)
def test_tflite_keeps_its_bits_where_type_and_layout_stay(name: str) -> None:
    mod, x = imported(name)["tflite"], np.ascontiguousarray(picture(name).transpose(0, 2, 3, 1))
    expected = evaluate(mod, x)
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(evaluate(Unify("NHWC", "int8", "tflite")(mod), x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_source_keeps_its_values(name: str) -> None:
    """What a network gives under the numerics of its framework, and after it was brought into the one shape: roundings
    apart."""
    x = picture(name)
    for source, mod in imported(name).items():
        given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if source == "tflite" else x
        one = evaluate(Unify(numerics=source)(mod), x)
        assert np.abs(integers(name, one) - integers(name, evaluate(mod, given))).max() <= 3, source


def compiled_results(name: str, numerics: str | None) -> list[np.ndarray[Any, Any]]:
    x = picture(name)
    return [tvm.compile(Unify(numerics=numerics)(mod))(x) for mod in imported(name).values()]


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["tflite", "torch", "onnx", None])
@pytest.mark.parametrize("name", SMALL)
def test_the_three_compiled_programs_give_the_same_integers(name: str, numerics: str | None) -> None:
    first, *others = compiled_results(name, numerics)
    for found in others:
        np.testing.assert_array_equal(found, first)
    np.testing.assert_array_equal(
        integers(name, first),
        integers(name, evaluate(Unify(numerics=numerics)(imported(name)["torch"]), picture(name)))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", daily.sample([n for n in NETWORKS if n not in SMALL], 2, "larger"))
def test_the_three_compiled_programs_of_larger_networks_give_the_same_integers(name: str) -> None:
    first, *others = compiled_results(name, "tflite")
    for found in others:
        np.testing.assert_array_equal(found, first)
    np.testing.assert_array_equal(
        integers(name, first),
        integers(name, evaluate(Unify(numerics="tflite")(imported(name)["torch"]), picture(name)))
    )


def of_torch(name: str, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], tvm.IRModule]:
    """By oneDNN: FBGEMM, which the engine x86 takes for depthwise convolutions of many channels, loses bits
    (docs/numerics.md)."""
    import torch

    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    try:
        torch.backends.quantized.engine = "onednn"
        torch.set_num_threads(1)
        module = to_torch(described(name))
        with torch.no_grad():
            return module(torch.from_numpy(x)).numpy(), relay.frontend.from_pytorch(
                module, [("input", x.shape)], freeze_params=True
            )[0]
    finally:
        torch.backends.quantized.engine = engine
        torch.set_num_threads(threads)


def of_onnx(name: str, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], tvm.IRModule]:
    runtime = pytest.importorskip("onnxruntime", reason="its integers are compared; install onnxruntime")
    session = runtime.InferenceSession(
        to_onnx(described(name), name in OF_OPERATORS), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: x})[0], imported(name)["onnx"]


def of_tflite(name: str, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], tvm.IRModule]:
    runtime = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="its integers are compared; install ai-edge-litert"
    )
    kernels = runtime.OpResolverType.BUILTIN_REF
    reference = runtime.Interpreter(
        model_content=to_tflite(described(name)), experimental_op_resolver_type=kernels, num_threads=1
    )
    reference.allocate_tensors()
    reference.set_tensor(reference.get_input_details()[0]["index"], x)
    reference.invoke()
    return reference.get_tensor(reference.get_output_details()[0]["index"]), imported(name)["tflite"]


RUNTIMES: dict[
    str, Callable[[str, np.ndarray[Any, Any]], tuple[np.ndarray[Any, Any], tvm.IRModule]]
] = {"torch": of_torch, "onnx": of_onnx, "tflite": of_tflite}


@pytest.mark.skipif(not VNNI, reason=NO_VNNI)
@pytest.mark.parametrize("source", RUNTIMES)
@pytest.mark.parametrize(
    "name", [
        *SMALL, *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in daily.sample([n for n in NETWORKS if n not in SMALL], 2, "integers")
        )
    ]
)
def test_the_compiled_integers_are_those_of_the_runtime(name: str, source: str) -> None:
    expected, mod = RUNTIMES[source](name, given_to(source, picture(name)))
    compiled = tvm.compile(mod, threads=1)
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(integers(name, compiled(given_to(source, picture(name)))), integers(name, expected))


def given_to(source: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if source == "tflite" else x


def test_the_text_of_tflite_is_the_one_of_the_field() -> None:
    """The first block of a network, as TVM printed it for TFLite's file in channels first."""
    from tflite_models import Op, T, model

    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-127, 128, (32, 3, 3, 3)), rng.integers(-4000, 4000, 32)
    tensors = [
        T("input", (1, 224, 224, 3)), T("q", (1, 224, 224, 3), "uint8", None, 0.0186579, 114),
        T("p", (1, 226, 226, 3), "uint8", None, 0.0186579, 114),
        T("widths", (4, 2), "int32", [[0, 0], [1, 1], [1, 1], [0, 0]]),
        T("w", (32, 3, 3, 3), "int8", weight, 0.00288958),
        T("b", (32,), "int32", bias, 5.39136e-05), T("y", (1, 112, 112, 32), "uint8", None, 0.0150183, 0),
    ]
    operators = [
        Op("QUANTIZE", [0], [1]), Op("PAD", [1, 3], [2]),
        Op("CONV_2D", [2, 4, 5], [6], "Conv2DOptions", {"Padding": 1, "StrideH": 2, "StrideW": 2}),
    ]
    mod, _ = relay.frontend.from_tflite(model(tensors, operators, [0], [6]))
    text = relay.qnn.transform.UnifyLayout("NCHW")(mod).astext(show_meta_data=False)
    expected = FIELD.strip("\n").replace("5.39136e-05f", "5.3913496e-05f").split("\n")
    found = [line for line in text.split("\n") if line.startswith("  ")]
    assert [line.removeprefix("  ") for line in found] == [
        *expected[:-1], expected[-1].removeprefix("%4 = ").removesuffix(";")
    ]
    assert mod["main"].attrs["numerics"] == "tflite"


FIELD = """
%0 = qnn.quantize(%input, 0.0186579f /* ty=float32 */, 114 /* ty=int32 */, out_dtype="uint8", axis=1) /* ty=Tensor[(1, 3, 224, 224), uint8] */;
%1 = nn.pad(%0, 114f /* ty=float32 */, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]) /* ty=Tensor[(1, 3, 226, 226), uint8] */;
%2 = qnn.conv2d(%1, meta[relay.Constant][0] /* ty=Tensor[(32, 3, 3, 3), int8] */, 114 /* ty=int32 */, 0 /* ty=int32 */, 0.0186579f /* ty=float32 */, \
0.00288958f /* ty=float32 */, strides=[2, 2], padding=[0, 0, 0, 0], channels=32, kernel_size=[3, 3], out_dtype="int32") /* ty=Tensor[(1, 32, 112, 112), int32] */;
%3 = nn.bias_add(%2, meta[relay.Constant][1] /* ty=Tensor[(32), int32] */) /* ty=Tensor[(1, 32, 112, 112), int32] */;
%4 = qnn.requantize(%3, 5.39136e-05f /* ty=float32 */, 0 /* ty=int32 */, 0.0150183f /* ty=float32 */, 0 /* ty=int32 */, axis=1, out_dtype="uint8") \
/* ty=Tensor[(1, 32, 112, 112), uint8] */;
"""  # noqa: E501


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Unify(numerics="tensorrt"), 'numerics="tensorrt" is not supported; it must be one of tflite, onnx'),
    (
        lambda: Unify(layout="NCHW4c")(imported("ds_cnn")["torch"]),
        "layout NCHW4c is not supported for a quantized network; it must be NCHW or NHWC"
    ),
    (lambda: relay.qnn.transform.UnifyType("int16"), "dtype int16 is not supported for quantized data"),
    (lambda: relay.qnn.transform.SettleNumerics()(
        tvm.IRModule.from_expr(relay.Function([], relay.const(1), attrs={"numerics": "mine"}))
    ),
     'numerics="mine" is not supported; it must be one of tflite, onnx'),
])
def test_options_that_are_not_known(make: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said.replace("(", r"\(")):
        make()


def test_a_module_without_quantized_layers_stays_what_it_is() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32")))))
    )
    assert_structural_equal(Unify("NHWC")(mod), mod)
