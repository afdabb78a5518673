"""Back ends that are libraries of C functions: the calls that are made, run by their meaning and by compiled C, saved,
loaded, refused."""

from __future__ import annotations

import ctypes
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.library_calls import GENERATORS, LibraryModule, register_generators, stand_in
from tilewright.backends.accelerators.library_calls.by_meaning import results_of
from tilewright.base.errors import ArtifactError, CompileError, RunError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.compiler.micro import export_model_library_format, read_model_library
from tilewright.ir import IRModule
from tilewright.relay import transform
from tilewright.relay.collage import CustomCostEstimator
from tilewright.relay.op.contrib import partition_for
from tilewright.runtime import load_module
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]
SHARED = Path(__file__).parent.parent.parent / "shared" / "models"
GCC = shutil.which("gcc")
rng = np.random.default_rng(0)


def f(value: float) -> relay.Constant:
    return relay.const(np.float32(value))


def n(value: int) -> relay.Constant:
    return relay.const(np.int32(value))


def constant(*shape: int) -> relay.Constant:
    return relay.const(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))


def network() -> IRModule:
    """For BNNS: convolutions, a pool, a product; between them what it has not."""
    x = relay.var("x", shape=(1, 4, 8, 8))
    y = relay.nn.relu(
        relay.nn.bias_add(
            relay.nn.conv2d(x, constant(8, 4, 3, 3), channels=8, kernel_size=(3, 3), padding=(1, 1)), constant(8)
        )
    )
    y = relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = relay.nn.batch_flatten(relay.exp(y * relay.const(0.1)))
    return IRModule.from_expr(relay.nn.bias_add(relay.nn.dense(y, constant(5, 128)), constant(5)))


X = rng.standard_normal((1, 4, 8, 8)).astype("float32")


def built(mod: IRModule) -> Any:
    return relay.build(mod, "llvm")


def test_calls_run_by_their_meaning() -> None:
    lib, plain = built(partition_for("bnns", network())), built(network())
    with stand_in("bnns") as called:
        np.testing.assert_allclose(lib.executable(X), plain.executable(X), rtol=1e-4, atol=1e-4)
    assert called == ["bnns_conv2d_bias_relu", "bnns_max_pool2d", "bnns_dense_bias"]
    first = lib.imported_modules[0]
    assert isinstance(first, LibraryModule)
    assert [t.kind for t in first.tensors] == ["input", "constant", "constant", "workspace", "output"]
    assert first.workspace == 4 * 8 * 64
    assert first.steps[0].attributes["nn.conv2d"]["padding"] == [1, 1, 1, 1]


def test_without_a_library_nothing_runs() -> None:
    lib = built(partition_for("bnns", network()))
    with pytest.raises(
        RunError,
        match=r"'tvmgen_default_bnns_main_0' calls functions of bnns, which are not available: register "
        r"'runtime\.library\.bnns', or, for answers without the library, use .*stand_in\('bnns'\)"
    ):
        lib.executable(X)
    seen: list[str] = []

    def zeros(module: Any, *arrays: Any) -> None:
        seen.append(module.symbol)
        for a in arrays[1:]:
            a.copyfrom(np.zeros(a.shape, "float32"))

    register_func("runtime.library.bnns", zeros)
    try:
        assert np.isfinite(lib.executable(X)).all()
        with stand_in("bnns"):
            lib.executable(X)
        assert len(seen) == 2, "what was registered is there again after the block"
        lib.executable(X)
        assert len(seen) == 4
    finally:
        remove_global_func("runtime.library.bnns")


def sources(lib: FactoryModule) -> list[str]:
    return [m.get_source() for m in lib.imported_modules if isinstance(m, LibraryModule)]


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_calls_travel_with_the_program(suffix: str, tmp_path: Path) -> None:
    lib = built(partition_for("bnns", network()))
    lib.export_library(tmp_path / f"m{suffix}")
    again = load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    with stand_in("bnns"):
        np.testing.assert_array_equal(again.executable(X), lib.executable(X))
    assert sources(again) == sources(lib)
    for blob in (b"", b"{}\n", b'{"library": 1'):
        with pytest.raises(ArtifactError, match="these are not calls of a library"):
            LibraryModule.load_from_binary(blob)


def test_the_text_in_c() -> None:
    text = built(partition_for("bnns", network())).imported_modules[0].get_source()
    assert text.startswith(
        "/* Calls of bnns for tvmgen_default_bnns_main_0: 2 constants, 2048 bytes of workspace. */\n#include "
        "<stdint.h>\n"
    )
    assert re.findall(r"failed = (\w+)\((.*?), (\d), (.*?), (\d), ", text) == [
        ("bnns_conv2d_bias_relu", "in_0", "3", "out_0", "1"), ("bnns_max_pool2d", "in_1", "1", "out_1", "1")
    ]
    assert "const tw_tensor v4 = {args[1].data, shape_4, 4, \"float32\"};" in text


LIBRARY = """
#include <stdint.h>
typedef struct { void* data; const int64_t* shape; int32_t ndim; const char* dtype; } tw_tensor;
int32_t bnns_dense_bias(const tw_tensor* in, int32_t inputs, tw_tensor* out, int32_t outputs, const char* attributes) {
  const float *x = in[0].data, *w = in[1].data, *b = in[2].data;
  int64_t rows = in[0].shape[0], depth = in[0].shape[1], columns = in[1].shape[0];
  if (inputs != 3 || outputs != 1) return 7;
  if (x[0] > 1000) return 9;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < columns; ++n) {
      float sum = b[n];
      for (int64_t k = 0; k < depth; ++k) sum += x[m * depth + k] * w[n * depth + k];
      ((float *)out[0].data)[m * columns + n] = sum;
    }
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(GCC is None, reason="a C compiler is needed; install gcc")
def test_a_model_in_c_calls_a_library(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 6))
    y = relay.nn.bias_add(relay.nn.dense(relay.exp(x), constant(4, 6)), constant(4))
    y = relay.nn.bias_add(relay.nn.dense(y, constant(3, 4)), constant(3))
    plain = IRModule.from_expr(relay.tanh(y))
    lib = relay.build(partition_for("bnns", plain), "c")
    assert [type(m) for m in lib.imported_modules] == [LibraryModule]
    library = read_model_library(export_model_library_format(lib, tmp_path / "model.tar"))
    texts = {"default_.c": "source", "default_.h": "header", "test.c": "test"}
    for name, kind in texts.items():
        (tmp_path / name).write_text(library.files[kind])
    (tmp_path / "library.c").write_text(LIBRARY)
    command = [str(GCC), "-std=c99", "-Wall", "-Werror", "default_.c", "library.c", "-lm"]
    subprocess.run([*command, "test.c", "-o", "test"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=True).stdout == "OK\n"
    subprocess.run([*command, "-shared", "-fPIC", "-o", "model.so"], cwd=tmp_path, check=True)
    run = ctypes.CDLL(str(tmp_path / "model.so")).default__run
    given, out = np.random.default_rng(1).standard_normal((2, 6)).astype("float32"), np.zeros((2, 3), "float32")
    assert run(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(out.ctypes.data)) == 0
    np.testing.assert_allclose(out, relay.build(plain, "llvm").executable(given), rtol=1e-5)
    given[0, 0] = 8.0
    assert run(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(out.ctypes.data)) == 9


def quantized(name: str) -> tuple[IRModule, dict[str, Any]]:
    return relay.frontend.from_tflite((SHARED / f"{name}.tflite").read_bytes())


@pytest.mark.models
@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there")
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("ethos-n", "pretrainedResnet_quant"), ("cmsis-nn", "kws_ref_model"), ("ethos-n", "vww_96_int8"),
        ("ethos-n", "mobilenet_v1_0.25_224_quant")
    ]
)
def test_networks_of_bytes_give_the_same_bits(target: str, name: str) -> None:
    mod, params = quantized(name)
    lib, plain = built(partition_for(target, mod, params)), relay.build(mod, "llvm", params=params)
    (data,) = plain.executable.example_inputs().values() if isinstance(
        plain.executable.example_inputs(), dict
    ) else [plain.executable.example_inputs()]
    with stand_in(target) as called:
        np.testing.assert_array_equal(lib.executable(data), plain.executable(data))
    assert len(called) > 10


@pytest.mark.models
@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there")
def test_a_network_between_two_libraries_by_cost() -> None:
    """Random costs scatter the layers over three targets; the bits stay."""
    mod, params = quantized("pretrainedResnet_quant")
    bound = IRModule({"main": relay.build_module.bind_params_by_name(mod["main"], params)})
    draw = random.Random(3)
    costs: dict[tuple[str, str], float] = {}

    def cost(function: relay.Function, target: str) -> float:
        key = (target, tvm.ir.structural_hash(function, constants="type"))
        return costs.setdefault(key, draw.random() * {"default": 3, "ethos-n": 1, "cmsis-nn": 1}[target])

    scattered = transform.CollagePartition(
        ["ethos-n", "cmsis-nn"], CustomCostEstimator(cost, lambda nbytes, source, destination: 0.05)
    )(bound)
    plain = relay.build(mod, "llvm", params=params).executable
    data = np.random.default_rng(1).integers(-128, 127, plain.inputs[0].shape).astype("int8")
    with stand_in("ethos-n") as first, stand_in("cmsis-nn") as second:
        np.testing.assert_array_equal(built(scattered).executable(data), plain(data))
    assert first
    assert second


DISPATCH = """
typedef int32_t (*tw_callback)(const char* name, const tw_tensor* in, int32_t inputs, tw_tensor* out, int32_t outputs, const char* attributes);
tw_callback tw_dispatch;
"""  # noqa: E501


class CTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_char_p)
    ]


def viewed(t: CTensor) -> Array:
    shape, dtype = tuple(t.shape[: t.ndim]), np.dtype(t.dtype.decode())
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(t.data), dtype).reshape(shape)


@pytest.mark.skipif(GCC is None, reason="a C compiler is needed; install gcc")
@pytest.mark.parametrize("library", ["bnns", "ethos-n"])
def test_the_c_runs_against_a_library_of_stand_ins(library: str, tmp_path: Path) -> None:
    """The text, compiled, calls functions that hand each call to Python; what they are given is what a driver would
    see."""
    if library == "bnns":
        module, inputs = built(partition_for("bnns", network())).imported_modules[0], [X]
    else:
        x, q = relay.var("x", shape=(1, 8, 8, 4), dtype="uint8"), relay.qnn.op
        w = relay.const(rng.integers(-9, 9, (3, 3, 4, 8)).astype("int8"))
        y = q.conv2d(
            x, w, n(7), n(0), f(0.5), f(0.25), channels=8, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"
        )
        y = q.requantize(
            relay.nn.bias_add(y, relay.const(np.arange(8, dtype="int32")), axis=3), f(0.125), n(0), f(9.0), n(3),
            axis=3, out_dtype="uint8"
        )
        halves = relay.split(y, 2, axis=3)
        mod = IRModule.from_expr(relay.concatenate([halves[1], halves[0]], axis=3))
        module, inputs = built(partition_for("ethos-n", mod)).imported_modules[0], [
            rng.integers(0, 255, (1, 8, 8, 4)).astype("uint8")
        ]
    text = module.get_source()
    shims = [
        f'int32_t {name}(const tw_tensor* in, int32_t inputs, tw_tensor* out, int32_t outputs, const char* attributes) '
        f'{{ return tw_dispatch("{name}", in, inputs, out, outputs, attributes); }}\n'
        for name in dict.fromkeys(s.function for s in module.steps)
    ]
    (tmp_path / "part.c").write_text(text + DISPATCH + "".join(shims))
    subprocess.run(
        [str(GCC), "-Wall", "-Werror", "-shared", "-fPIC", "part.c", "-o", "part.so"], cwd=tmp_path, check=True
    )
    part = ctypes.CDLL(str(tmp_path / "part.so"))
    steps = iter(module.steps)

    def call(name: bytes, given: Any, inputs: int, out: Any, outputs: int, attributes: bytes) -> int:
        step = next(steps)
        assert (name.decode(), inputs, outputs) == (step.function, len(step.reads), len(step.writes))
        assert json.loads(attributes) == json.loads(json.dumps(step.attributes))
        for k, value in enumerate(results_of(step, [viewed(given[k]) for k in range(inputs)])):
            viewed_out = np.ctypeslib.as_array((ctypes.c_byte * value.nbytes).from_address(out[k].data))
            viewed_out[:] = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.int8)
        return 0

    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(CTensor), ctypes.c_int32, ctypes.POINTER(CTensor),
        ctypes.c_int32, ctypes.c_char_p
    )
    callback = kind(call)
    ctypes.c_void_p.in_dll(part, "tw_dispatch").value = ctypes.cast(callback, ctypes.c_void_p).value
    outs = [t for t in module.tensors if t.kind == "output"]
    results = [np.empty(t.shape, t.dtype) for t in outs]
    held = [np.ascontiguousarray(c) for c in module.constants]
    args = (CTensor * (len(inputs) + len(outs)))(
        *[CTensor(a.ctypes.data, None, a.ndim, b"") for a in (*inputs, *results)]
    )
    constants = (ctypes.c_void_p * len(held))(*[c.ctypes.data for c in held])
    scratch = np.empty(module.workspace + 64, np.uint8)
    assert getattr(part, re.sub(r"\W", "_", module.symbol))(args, constants, ctypes.c_void_p(scratch.ctypes.data)) == 0
    assert next(steps, None) is None
    wanted = [tvm.nd.array(np.empty(t.shape, t.dtype)) for t in outs]
    with stand_in(library):
        run: Callable[..., Any] = module[module.symbol]
        run(*map(tvm.nd.array, inputs), *wanted)
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got, want.numpy())


def test_what_is_no_call_is_refused() -> None:
    x = relay.var("x", shape=(4,))

    def part(body: Any) -> IRModule:
        f = relay.Function([x], body, attrs={"Compiler": "bnns", "global_symbol": "f"})
        mod = IRModule({"f": f})
        mod["main"] = relay.Function([z := relay.var("z", shape=(4,))], relay.Call(mod.get_global_var("f"), [z]))
        return mod

    with pytest.raises(
        CompileError,
        match=r"bnns was given exp outside of a composite function; give it rows of its pattern table only "
        r"\(MergeComposite\)"
    ):
        built(part(relay.exp(x)))
    with pytest.raises(CompileError, match="@f returns its input 0 unchanged, which no call of bnns writes"):
        built(part(x))


def test_a_code_generator_of_ones_own_stays() -> None:
    own = FUNCTIONS["relay.ext.bnns"]
    try:
        register_func("relay.ext.bnns", lambda f: None, override=True)
        mine = FUNCTIONS["relay.ext.bnns"]
        register_generators()
        assert FUNCTIONS["relay.ext.bnns"] is mine
    finally:
        FUNCTIONS["relay.ext.bnns"] = own
    assert {f"relay.ext.{n}" for n in GENERATORS} <= set(FUNCTIONS)


def test_two_libraries_in_one_program(tmp_path: Path) -> None:
    """BNNS takes the convolutions of real numbers, Ethos-N those of bytes; one artifact holds both, and the answers are
    the CPU's."""
    x, q = relay.var("x", shape=(1, 4, 8, 8)), relay.qnn.op
    y = relay.nn.relu(relay.nn.conv2d(x, constant(8, 4, 3, 3), channels=8, kernel_size=(3, 3), padding=(1, 1)))
    y = q.quantize(relay.transpose(y, (0, 2, 3, 1)), f(0.1), n(10), out_dtype="uint8")
    w = relay.const(rng.integers(-9, 9, (3, 3, 8, 8)).astype("int8"))
    y = q.conv2d(
        y, w, n(10), n(0), f(0.1), f(0.05), channels=8, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"
    )
    y = q.requantize(
        relay.nn.bias_add(y, relay.const(np.arange(8, dtype="int32")), axis=3), f(0.005), n(0), f(0.2), n(100), axis=3,
        out_dtype="uint8"
    )
    before = IRModule.from_expr(relay.exp(q.dequantize(y, f(0.2), n(100))))
    after = partition_for("bnns", partition_for("ethos-n", before), mod_name="net")
    assert sorted(f.attrs["Compiler"] for g, f in after.items() if g != "main") == ["bnns", "ethos-n"]
    transform.InferType()(after)
    lib = built(after)
    lib.export_library(tmp_path / "m.so")
    with stand_in("bnns") as first, stand_in("ethos-n") as second:
        again = load_module(tmp_path / "m.so")
        assert isinstance(again, FactoryModule)
        np.testing.assert_allclose(again.executable(X), built(before).executable(X), rtol=1e-5, atol=1e-5)
    assert (first, second) == (["bnns_conv2d_relu"], ["ethos_n_qnn_conv2d"])


RUN_ALONE = """
import sys
from importlib.abc import MetaPathFinder
class NoCompiler(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] in (["tilewright", r] for r in ("relay", "compiler", "tir", "te", "topi", "target")):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, NoCompiler())
import numpy as np
from tilewright import runtime
from tilewright.base.global_functions import register_func
seen = []
def run(module, given, *outs):
    seen.extend(s.function for s in module.steps)
    for out in outs:
        out.copyfrom(np.zeros(out.shape, "float32"))
register_func("runtime.library.bnns", run)
program = runtime.load_module(sys.argv[1]).executable
print(program(np.zeros((1, 4, 8, 8), "float32")).shape, seen)
"""


def test_a_program_with_parts_runs_without_the_compiler(tmp_path: Path) -> None:
    built(partition_for("bnns", network())).export_library(tmp_path / "m.so")
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ALONE, str(tmp_path / "m.so")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("(1, 5) ['bnns_conv2d_bias_relu', 'bnns_max_pool2d', 'bnns_dense_bias']")
