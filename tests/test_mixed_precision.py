"""16-bit floats in compiled programs: products in pairs, operators that follow, whole graphs, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import daily
import tilewright
from codegen_native import TARGETS
from op_examples import EXAMPLES, Example
from small_models import cnn, mlp
from tilewright import relay
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import assembly, compile_text
from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.driver import options
from tilewright.driver.main import main
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, Tuple, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import nn
from tilewright.relay.op.registry import Precision
from tilewright.relay.transform import ToMixedPrecision
from tilewright.tir import PrimFunc

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
BFLOAT16 = ml_dtypes.bfloat16
ULP = 2.0**-8
"""The distance of neighbouring bfloat16 values, relative."""


def random(*shape: int, seed: int = 0, dtype: Any = BFLOAT16) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def compiled(build: Any, *arrays: Array, target: Target = TARGETS[0]) -> Array:
    params = tuple(var(f"x{k}", shape=a.shape, dtype=DataType(a.dtype)) for k, a in enumerate(arrays))
    artifact = build_module(IRModule.from_expr(Function(params, build(*params))), target)
    result: Array = artifact.executable(threads=1)(*arrays)
    return result


# Products.


def emulated(a: Array, b: Array) -> Array:
    """Rows of `a` by rows of `b`: products of bfloat16 are exact in float64."""
    return np.asarray(a.astype("float64") @ b.astype("float64").swapaxes(-1, -2))


def close_to(found: Array, a: Array, b: Array) -> None:
    """Within what summing in float32, in any order, may lose."""
    bound = emulated(np.abs(a.astype("float64")), np.abs(b.astype("float64"))) * (a.shape[-1] + 2) * 2.0**-24
    assert (np.abs(found.astype("float64") - emulated(a, b)) <= bound).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 2, 1), (5, 31, 7), (33, 64, 48), (17, 770, 100)])
def test_dense_sums_in_float32(m: int, k: int, n: int, target: Target) -> None:
    a, b = random(m, k), random(n, k, seed=1)
    close_to(compiled(lambda x: relay.nn.dense(x, const(b), out_dtype="float32"), a, target=target), a, b)
    close_to(compiled(lambda x, w: relay.nn.dense(x, w, out_dtype="float32"), a, b, target=target), a, b)
    rounded = compiled(lambda x: relay.nn.dense(x, const(b)), a, target=target)
    assert rounded.dtype == BFLOAT16
    np.testing.assert_allclose(rounded.astype("float64"), emulated(a, b), rtol=ULP, atol=k * 2.0**-20)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("transpose_b", [True, False])
def test_batch_matmul_packs_pairs_at_run_time(transpose_b: bool, target: Target) -> None:
    a, b = random(3, 20, 36), random(3, 24, 36, seed=1)
    given = b if transpose_b else np.ascontiguousarray(b.swapaxes(1, 2))
    close_to(
        compiled(
            lambda x, y: relay.nn.batch_matmul(x, y, transpose_b=transpose_b, out_dtype="float32"), a, given,
            target=target
        ), a, b
    )


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((1, 16, 9, 11), (24, 16, 3, 3), {"padding": 1}),
    "strided": ((2, 8, 9, 11), (16, 8, 3, 3), {"padding": 1, "strides": 2}),
    "1x1": ((1, 32, 7, 7), (40, 32, 1, 1), {}),
    "dilated": ((1, 6, 12, 12), (8, 6, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((1, 16, 8, 8), (32, 4, 3, 3), {"groups": 4, "padding": 1}),
    "odd depth": ((1, 3, 12, 12), (16, 3, 3, 3), {"strides": 2}),
    "planes": ((2, 3, 29, 37), (40, 3, 7, 7), {"strides": 2, "padding": 3}),
    "patches": ((1, 1, 16, 24), (24, 1, 4, 4), {"strides": 4}),
    "odd padding": ((1, 5, 11, 13), (9, 5, 3, 5), {"padding": (2, 1, 0, 3), "dilation": (2, 1)}),
    "winograd": ((1, 24, 30, 34), (32, 24, 3, 3), {"padding": 1}),
    "depthwise": ((1, 24, 9, 9), (24, 1, 3, 3), {"groups": 24, "padding": 1}),
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_sum_in_float32(name: str, target: Target) -> None:
    shape, kernel, attributes = CONVOLUTIONS[name]
    x, w = random(*shape), random(*kernel, seed=1)

    def build(data: Expr) -> Call:
        return relay.nn.conv2d(data, const(w), out_dtype="float32", **attributes)

    data = var("x", shape=shape, dtype="bfloat16")
    wanted = evaluate(IRModule.from_expr(Function((data,), build(data))), x)
    np.testing.assert_allclose(compiled(build, x, target=target), wanted, rtol=1e-5, atol=1e-4)


def products(mcpu: str) -> str:
    """The assembly of a product of pairs."""
    from tilewright.compiler.kernel import lower
    from tilewright.relay.transform.pipeline import optimize

    target = Target(f"llvm {mcpu}")
    x = var("x", shape=(64, 64), dtype="bfloat16")
    mod = optimize(
        IRModule.from_expr(Function((x,), relay.nn.dense(x, const(random(64, 64)), out_dtype="float32"))), target
    )
    call = mod["main"].body
    kernel = lower(call.op, [False, True], target.machine, "products")
    return str(assembly(emit(kernel.func, target), target))


@pytest.mark.parametrize(
    ("mcpu", "instruction"),
    [
        ("-mcpu=znver5", "vdpbf16ps"), ("-mcpu=cooperlake", "vdpbf16ps"), ("-mcpu=haswell", "vfmadd"),
        ("-mcpu=x86-64", "mulps"),
        ("-mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "bfdot"),
        ("-mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "fmla"),
    ],
)
def test_the_instruction_of_the_target(mcpu: str, instruction: str) -> None:
    assert instruction in products(mcpu)


# Operators.


def halved(example: Example, dtype: Any) -> Example:
    return Example(example.op, tuple(a.astype(dtype) if a.dtype == np.float32 else a for a in example.inputs))


FOLLOWING = [
    e for e in EXAMPLES if e.op.precision not in (None, Precision.NEVER)
    and any(a.dtype == np.float32 for a in e.inputs)
]


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("example", daily.of_each(FOLLOWING, lambda e: e.op.name, 1, "16 bits"), ids=lambda e: e.id)
@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
def test_operators_in_16_bits(example: Example, dtype: Any) -> None:
    """The compiled operator against its numpy meaning in float32 of the same 16-bit inputs."""
    halves = halved(example, dtype)
    params, call = halves.call()
    found = build_module(
        IRModule.from_expr(Function(tuple(params), call)), TARGETS[0]
    ).executable(threads=1)(*halves.inputs)
    wide = halved(halves, np.float32) if dtype is np.float32 else Example(example.op, tuple(
        a.astype(np.float32) if a.dtype == dtype else a for a in halves.inputs))
    wanted = wide.expected()
    for a, b in zip(
        found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        ulp = ULP if dtype is BFLOAT16 else 2.0**-11
        scale = float(np.abs(b.astype("float64")).max(initial=0))
        inside = ulp if isinstance(example.op, nn.Attention) else 2.0**-12  # weights of attention are rounded as well
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=2 * ulp, atol=scale * inside)


def test_a_chain_is_rounded_once() -> None:
    """exp(x) - 1 of small x, which bfloat16 in between would lose."""
    x = (np.linspace(1, 2, 64) * 1e-3).astype(BFLOAT16)
    found = compiled(lambda v: relay.subtract(relay.exp(v), const(1.0, "bfloat16")), x)
    np.testing.assert_allclose(found.astype("float64"), np.expm1(x.astype("float64")), rtol=ULP)


def test_sums_across_lanes_of_widened_values() -> None:
    x = random(1, 40, 120)
    found = compiled(lambda v: relay.mean(relay.cast(v, "float32"), axis=-1, keepdims=True), x)
    np.testing.assert_allclose(found, x.astype("float32").mean(-1, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize(("queries", "keys", "size"), [(13, 29, 20), (70, 197, 64), (16, 24, 7)])
def test_attention_in_pairs_with_a_mask_of_float32(queries: int, keys: int, size: int, target: Target) -> None:
    """Odd numbers of keys, an odd size, and the least float32, which bfloat16 does not have: a hidden row is not
    NaN."""
    op = nn.Attention(heads=2, size=size, width=size)
    q, k, v = random(1, queries, 2 * size), random(1, keys, 2 * size, seed=1), random(1, keys, 2 * size, seed=2)
    mask = np.where(
        np.random.default_rng(3).integers(0, 2, (1, 1, keys, queries)) > 0, 0, np.finfo("float32").min
    ).astype("float32")
    mask[..., 3] = np.finfo("float32").min
    found = compiled(lambda *x: Call(op, x), q, k, v, mask, target=target)
    assert found.dtype == BFLOAT16
    wide = [x.astype("float32") for x in (q, k, v, mask)]
    assert error_of(found, op.reference(*wide)) < ULP


# Graphs.


def error_of(found: Any, wanted: Any) -> float:
    return float(
        np.linalg.norm(found.astype("float64") - wanted.astype("float64")) / np.linalg.norm(wanted.astype("float64"))
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_keeps_its_inputs_and_outputs(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    plain, mixed = tilewright.compile(path, threads=1), tilewright.compile(path, threads=1, mixed_precision=dtype)
    assert [
        (t.name, t.shape, t.dtype) for t in (*mixed.inputs, *mixed.outputs)
    ] == [(t.name, t.shape, t.dtype) for t in (*plain.inputs, *plain.outputs)]
    x = np.random.default_rng(0).standard_normal(plain.inputs[0].shape).astype("float32")
    assert 0 < error_of(mixed(x), plain(x)) < (2e-2 if dtype == "bfloat16" else 3e-3)


def test_weights_take_half_the_memory(tmp_path: Path) -> None:
    x = var("x", shape=(4, 512))
    mod = IRModule.from_expr(Function((x,), relay.nn.dense(relay.nn.relu(
        relay.nn.dense(x, const(random(512, 512, dtype="float32")))
    ),
                                                           const(random(512, 512, dtype="float32")))))
    with tilewright.transform.PassContext(opt_level=3, config={"relay.ToMixedPrecision.type": "bfloat16"}):
        mixed = build_module(mod, TARGETS[0])
    assert mixed.manifest.constants_bytes == 2 * 512 * 512 * 2
    assert mixed.manifest.outputs[0].dtype == "float32"


def test_results_change_their_type_unless_they_are_to_keep_it() -> None:
    x = var("x", shape=(2, 16))
    mod = IRModule.from_expr(Function((x,), relay.nn.dense(x, const(random(8, 16, dtype="float32")))))
    assert ToMixedPrecision()(mod)["main"].ret_type.dtype == "float16"
    with tilewright.transform.PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        assert ToMixedPrecision("bfloat16")(mod)["main"].ret_type.dtype == "float32"


def test_a_value_in_both_types() -> None:
    x, w = var("x", shape=(2, 16)), const(random(16, 16, dtype="float32"))
    y = relay.nn.dense(x, w)
    mod = IRModule.from_expr(Function((x,), Tuple((relay.sum(y, axis=1), relay.nn.dense(y, w), y))))
    mixed = ToMixedPrecision("bfloat16")(mod)
    given = random(2, 16, dtype="float32")
    for found, wanted in zip(evaluate(mixed, given), evaluate(mod, given), strict=True):
        assert error_of(found, wanted) < 2e-2


# What is refused.


def test_messages() -> None:
    with pytest.raises(OptionError, match="mixed precision supports float16, bfloat16, float64, not 'int8'"):
        ToMixedPrecision("int8")
    with pytest.raises(OptionError, match="products of bfloat16 can be summed in bfloat16 or in float32, not in"):
        ToMixedPrecision("bfloat16", acc_dtype="float16")
    with pytest.raises(OptionError, match="--mixed-precision: 'int8' is neither bfloat16 nor float16"):
        options.mixed_precision("int8", "float32")
    with pytest.raises(
        OptionError,
        match="--mixed-precision-acc-type: products of bfloat16 are summed in float32 or in bfloat16, not in 'int32'"
    ):
        options.mixed_precision("bfloat16", "int32")
    with pytest.raises(
        OptionError, match=r"'relay\.ToMixedPrecision\.type' takes one of , float16, bfloat16, not 'tf32'"
    ):
        tilewright.compile("absent.onnx", mixed_precision="tf32")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "mlp.onnx", tmp_path / "mlp.tar"
    path.write_bytes(mlp().SerializeToString())
    assert main(["compile", str(path), "-o", str(out), "--mixed-precision", "bfloat16", "--dump-code", "relay"]) == 0
    assert "bfloat16" in (tmp_path / "mlp.tar.relay").read_text()
    assert main(["compile", str(path), "-o", str(out), "--mixed-precision", "fp8"]) == 2
    assert "neither bfloat16 nor float16" in capsys.readouterr().err
    assert isinstance(tilewright.load(out).outputs[0].dtype, DataType)


def test_an_intrinsic_of_pairs_in_a_loop_program() -> None:
    from tilewright.scalar.expr import Buffer, Var
    from tilewright.scalar.expr import const as number
    from tilewright.scalar.intrinsics import dot2, pair
    from tilewright.tir.interpreter import run
    from tilewright.tir.stmt import For, Store

    a, b, c, i = Buffer("a", (8,), "bfloat16"), Buffer("b", (8,), "bfloat16"), Buffer("c", (4,), "float32"), Var("i")
    two = [pair(x[i * 2], x[i * 2 + 1], dtype="uint32") for x in (a, b)]
    body = Store(c, dot2(*two, c[i], dtype="float32"), (i,))
    func = PrimFunc("f", (a, b, c), For(i, number(0, "int64"), number(4, "int64"), "serial", body))
    x, y, z = random(8), random(8, seed=1), np.ones(4, "float32")
    run(func, [x, y, z])
    np.testing.assert_allclose(z, 1 + (x.astype("f") * y.astype("f")).reshape(4, 2).sum(1), rtol=1e-6)
    assert compile_text(emit(func, Target("llvm -mcpu=x86-64")), Target("llvm -mcpu=x86-64"))


def test_the_mode_for_missing_operators_is_one_of_three() -> None:
    with pytest.raises(OptionError, match="missing_op_mode must be 0, 1 or 2, not 3"):
        ToMixedPrecision("float16", missing_op_mode=3)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("sums", ["float32", "half"])
def test_products_of_integers_stay_as_they_are(half: str, sums: str) -> None:
    rng = np.random.default_rng(0)
    weight = const(rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8))
    scale, zero, qnn = const(np.float32(0.1)), const(np.int32(3)), relay.qnn.op
    x, data = var("x", shape=(1, 4, 6, 6)), var("data", shape=(1, 4, 6, 6), dtype="int8")
    plain = nn.conv2d(data, weight, padding=(1, 1), out_dtype="int32")
    quantized = qnn.conv2d(
        qnn.quantize(x, scale, zero, out_dtype="int8"), weight, zero, const(0), scale, scale, kernel_size=(3, 3),
        channels=8
    )
    back = qnn.dequantize(
        qnn.requantize(quantized, scale, zero, const(np.float32(0.7)), zero, out_dtype="int8"), scale, zero
    )
    for program in (Function((data,), plain), Function((x,), back)):
        mod = IRModule.from_expr(program)
        given = rng.integers(-128, 128, (1, 4, 6, 6)).astype(mod["main"].params[0].checked_type.dtype.numpy())
        after = ToMixedPrecision(half, missing_op_mode=2, acc_dtype=half if sums == "half" else sums)(mod)
        np.testing.assert_array_equal(evaluate(after, given), evaluate(mod, given))
        assert half not in str(after)
