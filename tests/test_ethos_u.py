"""Ethos-U by way of Vela: parts as TFLite files, which give the same bits, and as command streams, which travel with
the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.library_calls import stand_in
from tilewright.backends.accelerators.library_calls.ethos_u import vela
from tilewright.backends.accelerators.library_calls.ethos_u.tflite_graph import tflite_bytes
from tilewright.backends.accelerators.library_calls.module import LibraryModule
from tilewright.base.errors import CompileError, InternalError
from tilewright.ir import IRModule
from tilewright.relay import transform
from tilewright.relay.frontend.tflite.model import read_model
from tilewright.relay.frontend.tflite.write import model_bytes
from tilewright.relay.op.contrib.ethosu import partition_for_ethosu
from tilewright.runtime import load_module
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]
SHARED = Path(__file__).parent.parent.parent / "shared" / "models"
NETWORKS = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
needs_vela = pytest.mark.skipif(not vela.is_installed(), reason="Vela is not installed; pip install ethos-u-vela")
needs_models = pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there")
Q = relay.qnn.op
rng = np.random.default_rng(0)


def f(value: float) -> relay.Constant:
    return relay.const(np.float32(value))


def n(value: int) -> relay.Constant:
    return relay.const(np.int32(value))


def image(name: str = "x", shape: tuple[int, ...] = (1, 8, 8, 4)) -> relay.Var:
    return relay.var(name, shape=shape, dtype="int8")


def conv(x: Any, kernel: tuple[int, ...], scales: Any = 0.02, bias: bool = True, **attrs: Any) -> Any:
    """From scale 0.5 around 7 to scale 0.75 around -3, with a scale for each output channel where `scales` is a
    list."""
    channels = attrs.get("groups", 1) if attrs.get("groups", 1) > 1 else kernel[3]
    w = relay.const(rng.integers(-90, 90, kernel).astype("int8"))
    per_channel = np.asarray(scales, np.float32)
    y = Q.conv2d(
        x, w, n(7), n(0), f(0.5), relay.const(per_channel), channels=channels, kernel_size=kernel[:2],
        data_layout="NHWC", kernel_layout="HWIO", **attrs
    )
    y = relay.nn.bias_add(y, relay.const(rng.integers(-999, 999, channels).astype("int32")), axis=3) if bias else y
    return Q.requantize(y, relay.const(np.float32(0.5) * per_channel), n(0), f(0.75), n(-3), axis=3, out_dtype="int8")


def two(name: str) -> Any:
    return getattr(Q, name)(image(), image("y"), f(0.5), n(1), f(0.25), n(2), f(0.75), n(3))


def dense(x: Any) -> Any:
    y = Q.dense(x, relay.const(rng.integers(-90, 90, (6, 16)).astype("int8")), n(7), n(0), f(0.5), f(0.02), units=6)
    return Q.requantize(
        relay.nn.bias_add(y, relay.const(np.arange(6, dtype="int32"))), f(0.01), n(0), f(0.75), n(-3), axis=1,
        out_dtype="int8"
    )


def padded(x: Any) -> Any:
    return relay.nn.pad(x, pad_width=((0, 0), (1, 0), (2, 1), (0, 0)), pad_value=7.0)


ROWS: dict[str, Any] = {
    "a convolution": lambda: conv(image(), (3, 3, 4, 6)),
    "one without a bias, a scale for each channel": lambda: conv(image(), (1, 1, 4, 3), [0.01, 0.02, 0.03], bias=False),
    "one that is padded, with strides and holes": lambda: conv(padded(image()), (3, 2, 4, 6), strides=(2, 1)),
    "one with padding of its own": lambda: conv(image(), (3, 3, 4, 6), padding=(1, 1, 1, 1), dilation=(2, 2)),
    "one for each channel": lambda: conv(padded(image()), (3, 3, 1, 4), [0.01, 0.02, 0.03, 0.04], groups=4),
    "a matrix product": lambda: dense(image(shape=(1, 16))),
    "a mean": lambda: Q.avg_pool2d(
        image(), f(0.5), n(7), f(0.5), n(7), pool_size=(2, 2), strides=(2, 2), padding=(0, 0, 0, 0), layout="NHWC"
    ),
    "a maximum": lambda: relay.nn.max_pool2d(image(), pool_size=(3, 3), strides=(2, 2), layout="NHWC"),
    "a sum": lambda: two("add"),
    "a product": lambda: two("mul"),
    "another shape": lambda: relay.reshape(image(), (1, 256)),
    "a softmax": lambda: Q.softmax(image(shape=(1, 16)), f(0.25), n(3), f(1 / 256), n(-128)),
    "several layers": lambda: dense(
        relay.reshape(relay.nn.max_pool2d(conv_to(image()), pool_size=(4, 4), strides=(4, 4), layout="NHWC"), (1, 16))
    ),
}


def conv_to(x: Any) -> Any:
    """To scale 0.5 around 7, as the next layer reads it."""
    y = Q.conv2d(
        x, relay.const(rng.integers(-90, 90, (1, 1, 4, 4)).astype("int8")), n(7), n(0), f(0.5), f(0.02), channels=4,
        kernel_size=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    )
    return Q.requantize(y, f(0.01), n(0), f(0.5), n(7), axis=3, out_dtype="int8")


def parts(mod: IRModule) -> list[Any]:
    return [g for name, g in mod.items() if name != "main"]


def with_rounding(body: Any) -> IRModule:
    mod = IRModule.from_expr(body)
    mod["main"] = mod["main"].with_attr("numerics", "tflite")
    return mod


@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_a_part_as_a_tflite_file_gives_the_same_bits(make: Any) -> None:
    mod = with_rounding(make())
    partitioned = partition_for_ethosu(mod)
    (part,) = parts(partitioned)
    again, params = relay.frontend.from_tflite(tflite_bytes(part))
    inputs = [rng.integers(-128, 127, p.checked_type.concrete_shape).astype("int8") for p in mod["main"].params]
    want = relay.build(mod, "llvm").executable(*inputs)
    order = [p.name_hint for p in part.params]
    call = next(e for e in [partitioned["main"].body] if isinstance(e, relay.Call))
    names = [v.name_hint for v in mod["main"].params]
    given = {
        o: inputs[names.index(a.name_hint)] for o, a in zip(order, call.args, strict=True) if isinstance(a, relay.Var)
    }
    np.testing.assert_array_equal(
        relay.build(again, "llvm", params=params).executable(*(given[o] for o in order)), want
    )


def network(name: str) -> tuple[IRModule, dict[str, Any]]:
    return relay.frontend.from_tflite((SHARED / f"{name}.tflite").read_bytes())


@needs_models
@needs_vela
@pytest.mark.models
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_as_a_command_stream(name: str, tmp_path: Path) -> None:
    """The whole network is one call; what Vela makes of our file is what it makes of the one that the network is from;
    bits of the stand-in are the CPU's."""
    mod, params = network(name)
    lib = relay.build(partition_for_ethosu(mod, params, accelerator_config="ethos-u55-128"), "llvm")
    (module,) = lib.imported_modules
    assert isinstance(module, LibraryModule)
    (step,) = module.steps
    assert (
        step.function, step.attributes["accelerator_config"], len(step.reads), len(step.writes)
    ) == ("ethos_u_invoke", "ethos-u55-128", 3, 1)
    original = vela.compile_model((SHARED / f"{name}.tflite").read_bytes(), "ethos-u55-128", name)
    assert step.attributes["scratch_size"] == original.memory["scratch_size"]
    assert [c.shape for c in module.constants] == [original.commands.shape, original.weights.shape]
    assert module.constants[0].tobytes().startswith(b"COP1"), "the header of a command stream"
    lib.export_library(tmp_path / "m.so")
    plain = relay.build(mod, "llvm", params=params).executable
    data = plain.example_inputs()
    given = list(data.values()) if isinstance(data, dict) else [data] if isinstance(data, np.ndarray) else list(data)
    with stand_in("ethos-u") as called:
        for program in (lib, load_module(tmp_path / "m.so")):
            assert isinstance(program, FactoryModule)
            np.testing.assert_array_equal(program.executable(*given), plain(*given))
    assert called == ["ethos_u_invoke"] * 2


@needs_vela
def test_what_vela_says_is_shown() -> None:
    body = relay.reshape(image(shape=(1, 4)), (1, 2, 2))
    (part,) = parts(transform.InferType()(partition_for_ethosu(with_rounding(body))))
    model = bytearray(tflite_bytes(part))
    model[4:8] = b"NOPE"
    with pytest.raises(CompileError, match="Vela did not compile @part for ethos-u55-128: "):
        vela.compile_model(bytes(model), "ethos-u55-128", "part")


def test_what_cannot_go_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="there is no Ethos-U 'ethos-u99'; Vela compiles for ethos-u55-32, "):
        vela.compile_model(b"", "ethos-u99", "part")
    monkeypatch.setattr(vela, "is_installed", lambda: False)
    mod = partition_for_ethosu(with_rounding(two("add")))
    with pytest.raises(
        CompileError,
        match="@tvmgen_default_ethos_u_main_0 is for Ethos-U, and its compiler Vela is not installed; pip install "
        "ethos-u-vela"
    ):
        relay.build(mod, "llvm")
    mod["main"] = mod["main"].with_attr("numerics", "onnx")
    with pytest.raises(
        CompileError,
        match=r'rounds as "onnx", but Ethos-U rounds as "tflite"; convert the network with '
        r'relay\.qnn\.transform\.Unify\("NHWC", "int8", "tflite"\)'
    ):
        relay.build(mod, "llvm")
    clash = Q.add(two("add"), image("z"), f(0.5), n(1), f(0.25), n(2), f(0.75), n(3))
    (part,) = parts(transform.InferType()(partition_for_ethosu(with_rounding(clash))))
    with pytest.raises(
        CompileError,
        match=r"one layer gives a tensor the scale \(0\.75, 3\), but ADD reads it as \(0\.5, 1\); requantize between "
        r"them"
    ):
        tflite_bytes(part)
    x = image()
    with pytest.raises(
        CompileError, match=r"Ethos-U was given abs, which is not in its table; partition with partition_for_ethosu"
    ):
        tflite_bytes(transform.InferType()(IRModule.from_expr(relay.Function([x], relay.abs(x))))["main"])


def test_files_of_the_writer_are_read_back() -> None:
    """Every kind of field: numbers of all widths, texts, vectors, tables, a union; alignment does not depend on what
    stands before."""
    for pad in range(9):
        values = np.arange(12, dtype=np.int64).reshape(3, 4) + pad
        data = model_bytes({
            "version": 3, "description": "d" * pad,
            "operator_codes": [{"builtin_code": 9, "deprecated_builtin_code": 9, "version": 2}],
            "buffers": [{}, {"data": values.tobytes()}],
            "subgraphs": [{
                "name": "g" * pad, "inputs": [0], "outputs": [1],
                "tensors": [
                    {"name": "x", "shape": [1, 4], "type": 0},
                    {"name": "y", "shape": [3, 4], "type": 4, "buffer": 1, "is_variable": True,
                     "quantization": {"scale": [0.5, 0.25, 2.0], "zero_point": [1, -2, 3], "quantized_dimension": 0}},
                ],
                "operators": [
                    {
                        "opcode_index": 0, "inputs": [0, -1], "outputs": [1],
                        "builtin_options": (
                            "FullyConnectedOptions", {"keep_num_dims": True, "fused_activation_function": 1}
                        )
                    }
                ],
            }],
        })
        model = read_model(data)
        (graph,) = model.graphs
        assert (model.description, graph.name, graph.inputs, graph.outputs) == ("d" * pad, "g" * pad, (0,), (1,))
        np.testing.assert_array_equal(graph.tensors[1].value(), values)
        assert (graph.tensors[0].name, graph.tensors[0].shape, graph.tensors[0].is_stored) == ("x", (1, 4), False)
        assert graph.tensors[1].quantization is not None
        assert graph.tensors[1].quantization.zero_points == (1, -2, 3)
        (operator,) = graph.operators
        assert (
            operator.kind, operator.version, operator.inputs, operator.options["keep_num_dims"]
        ) == ("FULLY_CONNECTED", 2, (0, -1), True)
        at = data.index(values.tobytes())
        assert at % 16 == 0
    with pytest.raises(InternalError, match="the table Model of TFLite's schema has no field colour"):
        model_bytes({"colour": 1})


def test_files_of_the_writer_are_read_by_the_package_of_the_format() -> None:
    tflite = pytest.importorskip("tflite", reason="tflite, the schema of TFLite files, is not installed")
    (part,) = parts(
        transform.InferType()(partition_for_ethosu(with_rounding(ROWS["one that is padded, with strides and holes"]())))
    )
    model = tflite.Model.GetRootAsModel(tflite_bytes(part), 0)
    graph = model.Subgraphs(0)
    assert [
        model.OperatorCodes(k).BuiltinCode() for k in range(model.OperatorCodesLength())
    ] == [tflite.BuiltinOperator.PAD, tflite.BuiltinOperator.CONV_2D]
    assert graph.Tensors(int(graph.Outputs(0))).Quantization().Scale(0) == pytest.approx(0.75)
    assert tvm.IRModule is IRModule
