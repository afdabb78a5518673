"""Accelerators from one file: what is partitioned, tiled, run, counted, saved and refused; with the virtual NPU and
with half32."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import half32 as half32_file
import tilewright as tvm
from shipped_models import MODELS_FOLDER
from tilewright import relay
from tilewright.backends.accelerators.declared import (
    Accelerator,
    Memory,
    Operand,
    Refused,
    arithmetic,
    conformance,
    cycle_reports,
    forms,
    page,
    share,
)
from tilewright.backends.accelerators.declared.__main__ import main
from tilewright.backends.accelerators.npu import npu
from tilewright.base.errors import CompileError, OptionError, TargetError
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.contrib import Refusal, get_pattern_table

Array = np.ndarray[Any, Any]
half32 = half32_file.half32
TRAINED = (
    "mobilenet_v1_0.25_224_quant", "vww_96_int8", "pretrainedResnet_quant", "kws_ref_model",
    "mobilenet_v2_1.0_224_quant"
)


class Layers:
    """A quantized network while it is built, in the form that importers leave."""

    def __init__(self, dtype: str, seed: int = 0) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.zero = int(np.iinfo(dtype).min)

    def const(self, value: Any, dtype: str) -> Any:
        return relay.Constant(np.asarray(value, dtype))

    def numbers(self, *values: float) -> list[Any]:
        """Scales and zero points in turn."""
        return [self.const(v, "float32" if k % 2 == 0 else "int32") for k, v in enumerate(values)]

    def finished(self, sums: Any, channels: int, size: int, axis: int) -> Any:
        biased = relay.nn.bias_add(sums, self.const(self.rng.integers(-999, 999, channels), "int32"), axis=axis)
        return relay.qnn.op.requantize(
            biased, *self.numbers(0.001, 0, 0.001 * 90 * size**0.5, self.zero), axis=axis, out_dtype=self.dtype
        )

    def conv(self, x: Any, channels: int, kernel: int = 3, stride: int = 1, depthwise: bool = False) -> Any:
        depth = int(x.checked_type.shape[3])
        weight = self.rng.integers(-127, 128, (kernel, kernel, 1 if depthwise else depth, channels))
        if kernel > 1:
            around = [kernel // 2, kernel // 2]
            x = relay.nn.pad(x, [[0, 0], around, around, [0, 0]], float(self.zero))
        sums = relay.qnn.op.conv2d(
            x, self.const(weight, "int8"), *self.numbers(0.05, self.zero, 0.02, 0)[1::2],
            *self.numbers(0.05, 0, 0.02, 0)[::2], kernel_size=(kernel, kernel),
            channels=channels, strides=(stride, stride), padding=(0, 0, 0, 0), groups=depth if depthwise else 1,
            data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32",
        )
        return self.finished(sums, channels, kernel * kernel * (1 if depthwise else depth), 3)

    def network(self) -> tvm.IRModule:
        """Two branches, each kind of operator, and a softmax that stays on the CPU."""
        x = relay.var("x", shape=(1, 24, 20, 3), dtype=self.dtype)
        a = self.conv(x, 24, stride=2)
        b = self.conv(self.conv(a, 24, depthwise=True), 24, 1)
        total = relay.op.clip(
            relay.qnn.op.add(a, b, *self.numbers(0.05, self.zero, 0.04, self.zero, 0.06, self.zero)), self.zero + 3,
            self.zero + 250
        )
        pooled = relay.nn.max_pool2d(total, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), layout="NHWC")
        joined = relay.op.concatenate(relay.Tuple((pooled, self.conv(total, 17, stride=2))), axis=3)
        mean = relay.qnn.op.avg_pool2d(
            joined, *self.numbers(0.06, self.zero, 0.06, self.zero), pool_size=(6, 5), strides=(6, 5),
            padding=(0, 0, 0, 0), dilation=(1, 1), ceil_mode=False, count_include_pad=False, layout="NHWC",
        )
        flat = relay.op.reshape(mean, (1, 41))
        weight = self.const(self.rng.integers(-127, 128, (10, 41)), "int8")
        sums = relay.qnn.op.dense(
            flat, weight, *self.numbers(0.05, self.zero, 0.02, 0)[1::2], *self.numbers(0.05, 0, 0.02, 0)[::2], units=10,
            out_dtype="int32"
        )
        logits = self.finished(sums, 10, 41, 1)
        return tvm.IRModule.from_expr(
            relay.Function(
                [x], relay.qnn.op.softmax(logits, *self.numbers(0.1, 3, 1 / 256, self.zero)),
                attrs={"numerics": "tflite"}
            )
        )

    def data(self) -> Array:
        info = np.iinfo(self.dtype)
        return self.rng.integers(info.min, info.max + 1, (1, 24, 20, 3)).astype(self.dtype)


def operators(mod: tvm.IRModule) -> list[str]:
    """The accelerator's operators in a module's functions, and what is left in `main`."""
    found = []
    for _, f in mod.items():
        if f.attrs.get("Compiler"):
            found += [
                c.op.attrs["Composite"] for c in relay.visitor.calls(f.body, inside=False)
                if isinstance(c.op, relay.Function)
            ]
    return sorted(found)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_network_goes_to_the_npu_and_no_bit_differs(dtype: str, tmp_path: Path) -> None:
    layers = Layers(dtype)
    mod, x = layers.network(), layers.data()
    part = npu.partition_for(mod)
    names = ["add2", "avg_pool2d", "concatenate", *["conv2d"] * 3, "dense", "depthwise_conv2d", "max_pool2d", "reshape"]
    assert operators(part) == [f"npu.{n}" for n in names]
    assert {
        c.op.name for c in relay.visitor.calls(part["main"].body, inside=False) if isinstance(c.op, relay.op.Op)
    } == {"qnn.softmax"}
    taken, every = share(part)
    assert taken == every == 12 * 10 * 24 * (27 + 9 + 24) + 6 * 5 * 17 * 9 * 24 + 410
    want = evaluate(mod, x)
    lib = relay.build(part, target="llvm")
    np.testing.assert_array_equal(lib.executable(x), want)
    assert len(np.unique(want)) > 1
    (cycles,) = cycle_reports(lib)
    assert cycles.macs == taken and 0 < cycles.near_peak <= npu.near.size and cycles.total >= taken / 256
    for path in (tmp_path / "m.so", tmp_path / "m.tar"):
        lib.export_library(str(path))
        again = tvm.load(path)
        np.testing.assert_array_equal(again(x), want)
        assert cycle_reports(again)[0].as_dict() == cycles.as_dict()


def test_a_target_names_the_npu_and_the_program_runs_without_the_compiler(tmp_path: Path) -> None:
    layers = Layers("int8", 3)
    mod, x = layers.network(), layers.data()
    model = tvm.compile(mod, target="npu, llvm")
    np.testing.assert_array_equal(model(x), evaluate(mod, x))
    assert [m.type_key for m in model.artifact.modules] == ["npu"]
    model.save(tmp_path / "m.so")
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np, tilewright; m = tilewright.load('m.so'); np.save('y.npy', m(np.load('x.npy')));"
        "assert not [n for n in sys.modules if n.startswith(('tilewright.relay', 'tilewright.compiler', "
        "'tilewright.tir', 'llvmlite'))]"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), evaluate(mod, x))


def test_a_network_partitioned_before_is_left_as_it_is() -> None:
    layers = Layers("int8", 4)
    mod, x = layers.network(), layers.data()
    np.testing.assert_array_equal(tvm.compile(npu.partition_for(mod), target="npu, llvm")(x), evaluate(mod, x))


@pytest.mark.parametrize(("target", "kind", "said"), [
    ("nup, llvm", OptionError, "there is no target 'nup' to partition for; did you mean 'npu'?"),
    ("npu -size=3, llvm", TargetError, "the accelerator npu does not take the options -size"),
])
def test_targets_that_no_accelerator_fits(target: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        tvm.compile(Layers("int8").network(), target=target)


def test_open_sizes_and_accelerators_do_not_go_together() -> None:
    with pytest.raises(
        OptionError,
        match="programs for accelerators need known sizes; give numbers in shapes, or remove npu from the target "
        "'npu, llvm'"
    ):
        tvm.compile("model.onnx", {"x": ("n", 3)}, target="npu, llvm")


def test_an_image_goes_in_and_comes_out_as_the_network_has_it() -> None:
    """Channels first outside, last within."""
    layers = Layers("int8", 5)
    x = relay.var("x", shape=(1, 8, 8, 8), dtype="int8")
    last = relay.Function([x], layers.conv(layers.conv(x, 8), 8, depthwise=True), attrs={"numerics": "tflite"})
    mod = relay.transform.InferType()(
        relay.qnn.transform.UnifyLayout("NCHW")(relay.transform.InferType()(tvm.IRModule.from_expr(last)))
    )
    assert 'data_layout="NHWC"' not in mod.astext(show_meta_data=False)
    value = layers.rng.integers(-128, 128, (1, 8, 8, 8)).astype("int8")
    part = npu.partition_for(mod)
    assert part["main"].checked_type == mod["main"].checked_type and operators(part) == [
        "npu.conv2d", "npu.depthwise_conv2d"
    ]
    np.testing.assert_array_equal(relay.build(part, "llvm").executable(value), evaluate(mod, value))


@pytest.mark.models
@pytest.mark.parametrize("name", TRAINED)
def test_trained_networks_are_the_npus(name: str) -> None:
    """All multiplications there, and the integers those of the CPU and of the interpreter's reference kernels."""
    path = MODELS_FOLDER / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"there is no model {path}; TILEWRIGHT_TFLITE_MODELS names the folder of the trained models")
    mod = relay.frontend.from_tflite(path)[0]
    part = npu.partition_for(mod)
    taken, every = share(part)
    assert taken >= 0.95 * every
    lib, cpu = relay.build(part, "llvm"), relay.build(mod, "llvm")
    given = mod["main"].params[0].checked_type
    info = np.iinfo(str(given.dtype))
    x = np.random.default_rng(0).integers(info.min, info.max + 1, given.shape).astype(str(given.dtype))
    found = lib.executable(x)
    np.testing.assert_array_equal(found, cpu.executable(x))
    (cycles,) = cycle_reports(lib)
    assert cycles.macs == taken and cycles.near_peak <= npu.near.size and all(
        layer.cycles > 0 for layer in cycles.layers
    )
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        return
    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    np.testing.assert_array_equal(found, interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


# What is refused


def refusal(operator: str, function: relay.Function) -> Refusal:
    """What the check of an operator says of a program."""
    (check,) = [row[2] for row in npu.pattern_table() if row[0] == f"npu.{operator}"]
    says = check(relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"].body)
    assert isinstance(says, Refusal), says
    return says


def test_a_stride_that_no_field_has_room_for() -> None:
    layers = Layers("int8")
    x = relay.var("x", shape=(1, 30, 30, 4), dtype="int8")
    says = refusal("conv2d", relay.Function([x], layers.conv(x, 8, stride=17)))
    assert (
        says.rule == "sh is 17, but conv takes 0 to 15" and says.edit == "change sh of the operator to 0 to 15"
    )


def test_tiles_that_do_not_fit() -> None:
    layers = Layers("int8")
    x = relay.var("x", shape=(1, 9, 9, 40000), dtype="int8")
    says = refusal("conv2d", relay.Function([x], layers.conv(x, 1)))
    assert (
        "the smallest tiles of conv take" in says.rule and "of sram, which has 262,144" in says.rule
        and "split the operator's channels" in says.edit
    )


@pytest.mark.slow
def test_one_place_for_each_tile_where_two_do_not_fit() -> None:
    """The near memory is just as large as the smallest tiles; transfers and computation take turns, and no bit
    differs."""
    x = relay.var("x", shape=(1, 12, 12, 32), dtype="int8")
    layers = Layers("int8")
    mod = tvm.IRModule.from_expr(relay.Function([x], layers.conv(x, 32), attrs={"numerics": "tflite"}))
    value = layers.rng.integers(-128, 128, (1, 12, 12, 32)).astype("int8")
    for size, together in ((640, False), (16 << 10, True)):
        small = replace(npu, name="small_npu", near=Memory("sram", size))
        small.instructions, small.operators = npu.instructions, npu.operators
        lib = relay.build(small.register(override=True).partition_for(mod), "llvm")
        np.testing.assert_array_equal(lib.executable(value), evaluate(mod, value))
        (layer,) = cycle_reports(lib)[0].layers
        assert layer.near <= size and (layer.cycles < layer.compute + layer.transfer) is together


def test_images_in_another_layout() -> None:
    x = relay.var("x", shape=(1, 4, 9, 9), dtype="int8")
    says = refusal("max_pool2d", relay.Function([x], relay.nn.max_pool2d(x, pool_size=(2, 2), layout="NCHW")))
    assert says.rule == "images must be NHWC, but this operator has NCHW" and "UnifyLayout" in says.edit


def test_open_sizes_are_refused() -> None:
    x = relay.var("x", shape=(relay.Any(), 9, 9, 4), dtype="int8")
    says = refusal("max_pool2d", relay.Function([x], relay.nn.max_pool2d(x, pool_size=(2, 2), layout="NHWC")))
    assert says.rule.startswith(
        "all sizes must be known, but this is Tensor[("
    ) and "give the network's inputs sizes" in says.edit


def test_groups_and_windows_over_the_edge() -> None:
    x = relay.var("x", shape=(1, 9, 9, 4), dtype="int8")
    says = refusal(
        "max_pool2d",
        relay.Function([x], relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2), layout="NHWC", ceil_mode=True))
    )
    assert "windows of pools must have no gaps" in says.rule and "ceil_mode=False" in says.edit
    says = refusal("pad", relay.Function([x], relay.nn.pad(x, [[0, 0], [1, 1], [0, 0], [0, 2]], 0.0)))
    assert says.rule == "only height and width can be padded"


def test_other_roundings_are_refused_with_what_to_do() -> None:
    layers = Layers("int8")
    mod = layers.network()
    named = mod["main"]
    other = tvm.IRModule.from_expr(relay.Function(named.params, named.body, attrs={"numerics": "onnx"}))
    part = npu.partition_for(other)
    assert part["main"].attrs["numerics"] == "tflite", "the CPU rounds as the accelerator does"
    x = layers.data()
    np.testing.assert_array_equal(relay.build(part, "llvm").executable(x), evaluate(mod, x))
    passes = [
        relay.transform.InferType(), relay.transform.MergeComposite(npu.pattern_table()),
        relay.transform.AnnotateTarget("npu"), relay.transform.MergeCompilerRegions()
    ]
    by_hand = tvm.transform.Sequential([*passes, relay.transform.PartitionGraph()])(other)
    with pytest.raises(
        CompileError,
        match=r'the network has the numerics "onnx", and npu rounds as "tflite"; partition with '
        r'npu.partition_for\(mod\)'
    ):
        relay.build(by_hand, "llvm")


def test_the_table_is_found_by_name() -> None:
    table = get_pattern_table("npu")
    assert table is not None and [row[0] for row in table] == [f"npu.{o}" for o in npu.operators]


# Declarations that contradict themselves

SMALL: dict[str, Any] = {"far": Memory("far", 1 << 20), "near": Memory("near", 1 << 10), "dtypes": ("int8",)}


def declare(**changes: Any) -> Any:
    """An instruction with something changed."""
    given = {
        "opcode": 0x10, "x": "n h*s+k c", "y": "n h c", "dtypes": {"x": "int8", "y": "int8"},
        "fields": {"s": 2, "k": 3}, "cycles": lambda **_: 1, **changes
    }

    def meaning(x: Array, *, s: int, k: int) -> Array:
        return x

    return Accelerator("small", **SMALL).instruction(given.pop("opcode"), **given)(meaning)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: declare(opcode=3), "has the opcode 0x3; opcodes are 0x10 to 0xff"),
    (lambda: declare(x="n h*+k c"), r"'h\*\+k' is not a dimension; write a size, or a sum of axes"),
    (lambda: declare(x="n h*q+k c"), "multiplies an axis by q, which is not one of its fields"),
    (lambda: declare(y="n h*2 c"), "writes y; each of its dimensions must be an axis or a size, not 'n h"),
    (lambda: declare(dtypes={"x": "int8"}), "gives dtypes of x, but its operands are x, y"),
    (lambda: declare(blocks={"q": 4}), "has blocks along q, which is not one of its axes"),
    (lambda: Memory("m", 100, align=16), "align must be a power of two that divides the size"),
    (lambda: Memory("m", 0), "the memory m has size=0; it must be above zero"),
    (
        lambda: Accelerator("a-b", **SMALL),
        "an accelerator's name must consist of letters, digits and underscores, not 'a-b'"
    ),
    (lambda: declare()(x=np.zeros((1, 4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1), "was called without k"),
    (
        lambda: declare()(x=np.zeros((1, 4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1, k=1, z=1),
        "was called with z, which it does not have"
    ),
    (
        lambda: declare()(x=np.zeros((1, 4, 3), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1, k=1),
        "y is 2 along c, where 3 is wanted"
    ),
    (
        lambda: declare()(x=np.zeros((4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1, k=1),
        "x has 2 dimensions, and 3 are declared"
    ),
    (
        lambda: declare()(x=np.zeros((1, 4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1, k=2),
        "would read x up to 5, but it ends at 4"
    ),
    (lambda: declare(fields={"s": 2}), "no operand or field determines the extent of k"),
    (
        lambda: Operand(0, (2, 3), "int8").part(0, 1, 1).reshape(3),
        r"a whole tensor of \(2, 3\) cannot be reshaped to \(3,\) here"
    ),
])
def test_declarations_that_contradict_themselves(make: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        made = make()
        made(x=np.zeros((1, 4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1)


def test_two_instructions_have_two_opcodes_and_two_operators_two_names() -> None:
    small = Accelerator("small", **SMALL)

    def one(x: Any) -> Any:
        return x

    def two(x: Any) -> Any:
        return x

    given: dict[str, Any] = {"x": "n", "y": "n", "dtypes": {"x": "int8", "y": "int8"}, "cycles": lambda **_: 1}
    small.instruction(0x10, **given)(one)
    with pytest.raises(OptionError, match="the instruction two has the opcode 0x10, but one has this opcode or name"):
        small.instruction(0x10, **given)(two)
    small.operator(forms.reshape())(one)
    with pytest.raises(OptionError, match="small has an operator one already"):
        small.operator(forms.reshape())(one)


def test_what_does_not_fit_is_refused_by_the_instruction() -> None:
    made = declare(blocks={"c": 4})
    with pytest.raises(Refused, match="c of meaning must be a multiple of 4, but is 2"):
        made(x=np.zeros((1, 4, 2), "int8"), y=np.zeros((1, 4, 2), "int8"), s=1, k=1)
    with pytest.raises(Refused, match="x of meaning is int16, but must be int8"):
        declare()(x=np.zeros((1, 4, 2), "int16"), y=np.zeros((1, 4, 2), "int8"), s=1, k=1)


def test_an_operator_returns_instructions() -> None:
    small = Accelerator("small", **SMALL)
    small.operator(forms.reshape())(lambda f: 3)  # type: ignore[arg-type, return-value]
    assert "the operator <lambda> returned 3; it returns an instruction that it called" in str(
        conformance(small, samples=1)
    )


# Streams and programs


def perceptron() -> tvm.IRModule:
    rng = np.random.default_rng(0)

    def const(*shape: int) -> Any:
        return relay.Constant((rng.standard_normal(shape) / 8).astype("float32"))

    x = relay.var("x", shape=(1, 32, 12, 12), dtype="float32")
    y = relay.nn.relu(
        relay.nn.bias_add(relay.nn.conv2d(x, const(64, 32, 3, 3), kernel_size=(3, 3), channels=64), const(64))
    )
    z = relay.nn.bias_add(relay.nn.conv2d(y, const(64, 64, 1, 1), kernel_size=(1, 1), channels=64), const(64))
    odd = relay.nn.bias_add(
        relay.nn.conv2d(relay.op.add(y, z), const(10, 64, 3, 3), kernel_size=(3, 3), channels=10), const(10)
    )
    return tvm.IRModule.from_expr(relay.Function([x], odd))


def test_an_accelerator_of_other_rules() -> None:
    """Half precision, no padding, channels in blocks of 32: what breaks a rule stays on the CPU."""
    assert conformance(half32, samples=8), str(conformance(half32, samples=8))
    mod = perceptron()
    part = half32.partition_for(mod)
    assert operators(part) == ["half32.add2", "half32.conv2d", "half32.conv2d"]
    assert part["main"].checked_type == mod["main"].checked_type
    x = np.random.default_rng(1).standard_normal((1, 32, 12, 12)).astype("float32")
    lib = relay.build(part, "llvm")
    np.testing.assert_allclose(lib.executable(x), evaluate(mod, x), atol=0.02)
    assert [layer.operator for layer in cycle_reports(lib)[0].layers] == ["conv2d", "conv2d", "add2"]


def halves(padding: int = 0, channels: int = 64, layout: str = "NCHW") -> tvm.IRModule:
    """A network that is in half precision before it comes: a convolution without a bias, a pool, a mean, a product."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 32, 12, 12), dtype="float16")
    weights = [
        relay.Constant((rng.standard_normal(s) / 16).astype("float16")) for s in ((channels, 32, 3, 3), (32, channels))
    ]
    y = relay.nn.relu(relay.nn.conv2d(x, weights[0], kernel_size=(3, 3), channels=channels, padding=(padding, padding)))
    y = relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = relay.reshape(relay.nn.global_avg_pool2d(y), (1, channels))
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.bias_add(relay.nn.dense(y, weights[1]), relay.const(np.ones(32, "float16"))))
    )


def test_a_network_in_half_precision() -> None:
    """Products without a bias, and those whose sums are brought to half precision before it."""
    mod = halves()
    x = np.random.default_rng(1).standard_normal((1, 32, 12, 12)).astype("float16")
    made = tvm.compile(mod, target="half32, llvm")
    (found,) = cycle_reports(made)
    assert [layer.operator for layer in found.layers] == ["conv2d", "max_pool2d", "global_mean", "dense"]
    np.testing.assert_allclose(made(x), evaluate(mod, x), atol=2e-3)


def test_forms_without_an_activation() -> None:
    """For instructions that have none: a ReLU is another operator, or stays on the CPU."""
    plain = Accelerator(
        "plain", far=half32.far, near=half32.near, dtypes=("float16",), tolerance=half32.tolerance,
        prepare=half32.prepare
    )
    plain.instructions = half32.instructions
    for name, form in (
        ("conv2d", forms.float_conv2d(relu=False)), ("dense", forms.float_dense(relu=False)),
        ("add2", forms.float_add(relu=False))
    ):
        plain.operator(form)(half32.operators[name].lower)
    assert (found := conformance(plain, samples=6)), str(found)
    assert operators(plain.partition_for(halves())) == ["plain.conv2d", "plain.dense"]
    assert any(
        c.op.name == "nn.relu" for c in relay.visitor.calls(plain.partition_for(halves())["main"].body)
        if isinstance(c.op, relay.op.Op)
    )


def test_what_another_accelerator_leaves_says_its_own_rules() -> None:
    for mod, rule, edit in (
        (
            halves(padding=1), "convolutions have no padding, and this has (1, 1, 1, 1)",
            "set the padding to 0, or pad before it"
        ),
        (halves(channels=24), "the array has 32 lanes, and the output channels are 24", "make the output channels 32"),
    ):
        report = str(relay.analysis.explain_offload(mod, "half32"))
        assert rule in report and f"edit: {edit}" in report


def real_scaling(error: float = 1.0) -> Accelerator:
    """An accelerator that brings sums to bytes in float32; the factors of its products are wrong by `error`."""
    made = Accelerator(
        "real", far=Memory("dram", 64 << 20), near=Memory("sram", 64 << 10), dtypes=("int8",), numerics="onnx"
    )

    def product(x: Array, w: Array, q: Array, *, in_zero: int, out_zero: int, low: int, high: int) -> Array:
        sums = np.tensordot(
            x.astype(np.int64) - in_zero, w.astype(np.int64) - q[:, 2].astype(np.int64), 1
        ) + q[:, 0].astype(np.int64)
        return arithmetic.saturated(arithmetic.scaled(sums, q[:, 1] * np.float32(error)) + out_zero, low, high, x.dtype)

    multiply = made.instruction(
        0x10, x="n k", w="k c", q="c 3", y="n c", dtypes={"x": "int8", "w": "int8", "q": "float32", "y": "int8"},
        cycles=lambda n, k, c, **_: n * k * c, fields={"in_zero": -8, "out_zero": -8, "low": -8, "high": -8},
    )(product)

    def change(x: Array, *, in_zero: int, out_zero: int, factor: int) -> Array:
        return arithmetic.saturated(
            arithmetic.scaled(x.astype(np.int64) - in_zero, np.uint32(factor).view(np.float32)) + out_zero, -128, 127,
            x.dtype
        )

    rescale = made.instruction(
        0x11, x="n h w c", y="n h w c", dtypes={"x": "int8", "y": "int8"}, cycles=lambda n, h, w, c, **_: n * h * w * c,
        fields={"in_zero": -8, "out_zero": -8, "factor": 32},
    )(change)

    @made.operator(forms.dense(real=True))
    def dense(f: Any) -> Any:
        f.require(f.bias.max() < 1 << 24, "biases have 24 bits", "scale the layer's bias down")
        q = np.stack([f.bias, f.factor, f.weight_zero], 1).astype(np.float32)
        return multiply(x=f.x, w=f.weight, q=q, y=f.y, in_zero=f.in_zero, out_zero=f.out_zero, low=f.low, high=f.high)

    @made.operator(forms.requantize(real=True))
    def requantize(f: Any) -> Any:
        return rescale(
            x=f.x, y=f.y, in_zero=f.in_zero, out_zero=f.out_zero, factor=int(np.float32(f.factor).view(np.uint32))
        )

    return made


def test_an_accelerator_that_scales_in_real_numbers() -> None:
    found = conformance(real_scaling())
    assert found and found.ran == {"dense": 12, "requantize": 12}, str(found)
    assert not conformance(real_scaling(1.001))
    fixed = replace(real_scaling(), numerics="tflite")
    fixed.operators = real_scaling().operators
    assert "sums must be scaled in float32, halves to the even number, but these are rounded" in str(
        conformance(fixed, samples=1)
    )
    other = replace(npu, numerics="onnx")
    other.operators = {"dense": npu.operators["dense"]}
    assert "sums must be scaled in fixed point, but these are rounded TOEVEN in float32" in str(
        conformance(other, samples=1)
    )


def test_both_files_are_short() -> None:
    from tilewright.backends.accelerators import npu as npu_file

    for module, most in ((npu_file, 200), (half32_file, 150)):
        assert len(Path(module.__file__ or "").read_text(encoding="utf-8").splitlines()) <= most


def test_the_page_of_an_accelerator() -> None:
    text = page(npu, {"conv2d": {"sh is 17, but conv takes 0 to 15": 2}})
    for line in (
        "# npu, version 1", "| sram | 262,144 | 16 | | |", "### 0x10 conv",
        "| x | `n h*sh+kh*dh w*sw+kw*dw ci` | int8 or uint8 |", "| in_zero | 14 to 22 | -256 | 255 |",
                 "### depthwise_conv2d", "- refused: sh is 17, but conv takes 0 to 15"):
        assert line in text.splitlines(), line
    assert "Whole blocks only: ci of 32, co of 32." in page(half32)


def test_the_page_in_the_documents_is_that_of_the_declaration() -> None:
    """Written by `python -m tilewright.contrib.accelerator npu > docs/npu.md`."""
    assert (
        Path(__file__).parent.parent / "docs" / "npu.md"
    ).read_text(encoding="utf-8") == page(npu, conformance(npu, samples=4).refused)


def test_commands_of_the_module(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["npu", "--test", "1"]) == 0
    assert "npu: 10 programs of 10 operators, 0 failures" in capsys.readouterr().out
    assert main(["npu"]) == 0
    assert capsys.readouterr().out.startswith("# npu, version 1\n")
    assert main([f"{half32_file.__file__}:half32", "--test", "1"]) == 0
    assert "half32: 6 programs" in capsys.readouterr().out
    assert main(["nup"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "Error: 'nup' is not an accelerator; the accelerators are: "
    ) and {"dnnl", "half32", "npu"} <= set(said.split("are: ")[1].split("; or")[0].split(", "))
    assert main([str(tmp_path / "none.py:a")]) == 1
    assert "there is no file" in capsys.readouterr().err


def branching(seed: int) -> tuple[tvm.IRModule, Array]:
    """A network of random layers, each of which reads any of those before it of its size."""
    layers = Layers("int8", seed)
    rng = layers.rng
    x = relay.var("x", shape=(1, 12, 10, 8), dtype="int8")
    values: list[Any] = [x]
    for _ in range(int(rng.integers(4, 10))):
        a = values[int(rng.integers(max(0, len(values) - 3), len(values)))]
        shape = tuple(int(n) for n in a.checked_type.shape)
        alike = [v for v in values if tuple(int(n) for n in v.checked_type.shape) == shape]
        match int(rng.integers(0, 5)):
            case 0:
                made = layers.conv(a, int(rng.choice([8, 16])), int(rng.choice([1, 3])), int(rng.choice([1, 1, 2])))
            case 1:
                made = layers.conv(a, shape[3], depthwise=True)
            case 2:
                made = relay.qnn.op.add(
                    a, alike[int(rng.integers(0, len(alike)))], *layers.numbers(0.05, -128, 0.04, -5, 0.06, -128)
                )
            case 3:
                made = relay.nn.max_pool2d(a, pool_size=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1), layout="NHWC")
            case _:
                made = relay.op.concatenate(relay.Tuple((a, alike[0])), axis=3)
        values.append(made)
    body = relay.Tuple((values[-1], values[len(values) // 2]))
    return tvm.IRModule.from_expr(
        relay.Function([x], body, attrs={"numerics": "tflite"})
    ), rng.integers(-128, 128, (1, 12, 10, 8)).astype("int8")


@pytest.mark.parametrize("size", [1 << 10, 4 << 10, 256 << 10])
@pytest.mark.parametrize("seed", range(8))
def test_branching_networks_in_memories_of_all_sizes(seed: int, size: int) -> None:
    """What is loaded early, what makes room, and what two read: the simulator watches, and no bit differs."""
    mod, x = branching(seed)
    small = replace(npu, name="small_npu", near=Memory("sram", size))
    small.instructions, small.operators = npu.instructions, npu.operators
    lib = relay.build(small.register(override=True).partition_for(mod), "llvm")
    for found, want in zip(lib.executable(x), evaluate(mod, x), strict=True):
        np.testing.assert_array_equal(found, want)
    assert all(c.near_peak <= size for c in cycle_reports(lib))
