"""A whole model as one C file: compiled without a warning, and equal to what the LLVM back end computes on known
values."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright
from shipped_models import MODELS_FOLDER
from tilewright import relay
from tilewright.backends.cpu.c.compile import EXACT, STANDARD, find_compilers
from tilewright.backends.cpu.c.helpers import prelude
from tilewright.base.errors import ArtifactError, CompileError, InputError, OptionError
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, If, const, var
from tilewright.runtime.host import host_arch

OTHERS = ("aarch64-linux-musl", "arm-linux-musleabihf", "riscv64-linux-musl")
ZIG = (sys.executable, "-m", "ziglang", "cc")
needs_compiler = pytest.mark.skipif(not find_compilers(host_arch()), reason="there is no C compiler")
random = np.random.default_rng(3)


def floats(*shape: int) -> Expr:
    return const(random.standard_normal(shape).astype(np.float32))


def network() -> Function:
    """A small float network, with what such networks have."""
    x = var("image", shape=(1, 8, 9, 9))
    y = nn.relu(relay.add(nn.conv2d(x, floats(12, 8, 3, 3), padding=(1, 1), strides=(2, 2)), floats(12, 1, 1)))
    y = relay.sigmoid(nn.conv2d(y, floats(12, 1, 3, 3), groups=12, padding=(1, 1)))
    y = nn.batch_flatten(nn.global_avg_pool2d(y))
    scores = relay.add(nn.dense(y, floats(10, 12)), floats(10))
    return Function((x,), relay.Tuple((nn.softmax(scores), relay.argmax(scores, axis=1))))


def of_integers() -> Function:
    """Bytes by bytes, sums of 32 bits, and back."""
    x = var("x", shape=(2, 6, 7, 5), dtype="uint8")
    weight = const(random.integers(-128, 128, (3, 3, 5, 11)).astype(np.int8))
    y = nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO", padding=(1, 1), out_dtype="int32")
    y = relay.qnn.op.requantize(
        y, const(np.float32(0.02)), const(np.int32(0)), const(np.float32(0.9)), const(np.int32(3)), out_dtype="int8"
    )
    return Function((x,), y)


def of_words() -> Function:
    """Bytes whose depth is in whole words, which are multiplied four at once, and more output channels than a vector
    has."""
    x = var("x", shape=(1, 5, 5, 8), dtype="uint8")
    weight = const(random.integers(-128, 128, (1, 1, 8, 20)).astype(np.int8))
    return Function((x,), nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32"))


def of_halves() -> Function:
    x, flags = var("x", shape=(4, 33), dtype="float16"), var("double", shape=(4, 1), dtype="bool")  # a keyword of C
    return Function((x, flags), relay.where(flags, relay.multiply(x, const(np.float16(1.7))), relay.tanh(x)))


NETWORKS = {"network": network, "of_integers": of_integers, "of_words": of_words, "of_halves": of_halves}


def build(folder: Path, command: Sequence[str], name: str, *options: str) -> Path:
    program = folder / f"{name}_test.run"
    arguments = [
        *command, *STANDARD, "-Werror", *EXACT[1:], *options, f"{name}.c", f"{name}_test.c", "-o", program.name, "-lm"
    ]
    done = subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[:3000]
    return program


def says(command: Sequence[str | Path]) -> str:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    ).stdout


@needs_compiler
@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_computes_what_llvm_code_computes(name: str, tmp_path: Path) -> None:
    tilewright.compile(NETWORKS[name]()).export_c(tmp_path)
    for compiler in filter(None, map(shutil.which, ("gcc", "clang"))):
        assert says([build(tmp_path, [compiler], "default_", "-O1")]) == "OK\n", compiler


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang")
@pytest.mark.parametrize("triple", OTHERS)
def test_other_processors_have_no_warnings_either(triple: str, tmp_path: Path) -> None:
    for name, make in NETWORKS.items():
        tilewright.compile(make()).export_c(tmp_path / name)
        for file in ("default_.c", "default__test.c", "main.c"):
            done = subprocess.run([
                *ZIG, "-target", triple, *STANDARD, "-Werror", "-O1", "-c", file, "-o", "out.o"
            ], cwd=tmp_path / name, capture_output=True,
                                  text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
            assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize("name", NETWORKS)
def test_another_processor_computes_the_same(name: str, tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-gcc and qemu-aarch64")
    tilewright.compile(NETWORKS[name]()).export_c(tmp_path)
    assert says([emulator, build(tmp_path, [compiler, "-static"], "default_", "-O1")]) == "OK\n"


def test_products_of_four_bytes_are_made_for_all_lanes_at_once(tmp_path: Path) -> None:
    text = tilewright.compile(of_words()).save(tmp_path / "words.c").read_text()
    assert "dot4_x8(conv" in text
    assert "UNROLL(" in text
    assert "dot4_x16(conv" in tilewright.compile(of_words()).save_c(
        tmp_path / "words.c", "c -vector-width=512"
    ).read_text()


PRODUCTS = """
int main(void) {
  int32_t w[16], found[16], wanted[16];
  uint32_t state = 1;
  for (int round = 0; round < 1000; ++round) {
    const uint32_t a = state = state * 1664525u + 1013904223u;
    for (int k = 0; k < 16; ++k) {
      w[k] = (int32_t)(state = state * 1664525u + 1013904223u);
      found[k] = wanted[k] = (int32_t)(state = state * 1664525u + 1013904223u);
      wanted[k] = dot4(a, w[k], wanted[k]);
    }
    if (round % 2) dot4_x16(found, a, w);
    else { dot4_x8(found, a, w); dot4_x8(found + 8, a, w + 8); }
    if (memcmp(found, wanted, sizeof found) != 0) return 1;
  }
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(
    "without",
    [
        "", "__AVX512VNNI__", "__AVX512VNNI__ __AVX512BW__", "__AVX512VNNI__ __AVX512BW__ __AVX2__",
        "__AVX512VNNI__ __AVX512BW__ __AVX2__ __SSE2__"
    ]
)
def test_products_of_four_bytes_by_every_instruction(without: str, tmp_path: Path) -> None:
    """A processor that has all of them takes each way in turn; another one takes those that it has."""
    (tmp_path / "products.c").write_text(
        "#include <stdint.h>\n#include <string.h>\n" + "\n".join(prelude({"dot4", "dot4_x8", "dot4_x16"})) + PRODUCTS
    )
    native = ["-march=native"] if host_arch() == "x86_64" else []
    command = [
        "gcc", *STANDARD, "-Werror", "-O1", *native, *(f"-U{name}" for name in without.split()), "products.c", "-o",
        "products"
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[:3000]
    assert subprocess.run([tmp_path / "products"], timeout=60, check=False, stdin=subprocess.DEVNULL).returncode == 0


def test_the_test_of_a_model_finds_what_is_wrong(tmp_path: Path) -> None:
    compilers = find_compilers(host_arch())
    if not compilers:
        pytest.skip("there is no C compiler")
    tilewright.compile(of_integers()).export_c(tmp_path)
    file = tmp_path / "default_.c"
    text = file.read_text()
    assert "static const int8_t " in text
    file.write_text(text.replace(" 255)", " 200)").replace(", 127)", ", 5)"))
    assert file.read_text() != text
    assert "FAILED" in says([build(tmp_path, compilers[0].command, "default_", "-O1")])


def test_the_text_is_for_readers(tmp_path: Path) -> None:
    path = tilewright.compile(network()).save(tmp_path / "small.c")
    source, header = path.read_text(), (tmp_path / "small.h").read_text()
    assert "void small_run(const float *image, float *output_0, int32_t *output_1);" in header
    assert "#define SMALL_IMAGE_SIZE 648" in header
    for word in ("malloc", "tw_context", "pthread", "printf"):
        assert word not in source


@pytest.mark.slow
def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    made = network()
    first = tilewright.compile(made).save(tmp_path / "small.c").read_text()
    assert tilewright.compile(made).save(tmp_path / "small.c").read_text() == first


@pytest.mark.slow
@needs_compiler
def test_a_program_of_this_process_whose_kernels_are_c(tmp_path: Path) -> None:
    made, x = network(), random.standard_normal((1, 8, 9, 9)).astype(np.float32)
    model, wanted = tilewright.compile(made, target="c"), tilewright.compile(made)(x)
    np.testing.assert_allclose(model(x)[0], wanted[0], rtol=1e-5)
    np.testing.assert_array_equal(model(x)[1], wanted[1])
    assert "expf(" in model.dump("c")
    with pytest.raises(OptionError, match="a program for 'c' has no stage 'asm'; it has c"):
        model.dump("asm")
    with pytest.raises(OptionError, match="a program for 'llvm' has no stage 'c'; it has ll and asm"):
        tilewright.compile(made).dump("c")
    model.save(tmp_path / "model.so")
    np.testing.assert_array_equal(tilewright.load(tmp_path / "model.so")(x)[0], model(x)[0])


@pytest.mark.slow
def test_what_cannot_be_one_file(tmp_path: Path) -> None:
    x = var("x", shape=(3,))
    branch = Function((x,), If(relay.less(relay.sum(x), const(1.0)), relay.tanh(x), x))
    with pytest.raises(CompileError, match="'x' cannot be one C file: it has control flow"):
        tilewright.compile(branch).save(tmp_path / "x.c")
    with pytest.raises(OptionError, match="a target of the kind c, such as 'c'"):
        tilewright.compile(network()).save_c(tmp_path / "x.c", "llvm")
    with pytest.raises(ArtifactError, match=r"the model is called 'a_b', and its file includes a_b\.h"):
        tilewright.compile(network()).save(tmp_path / "a b.c")
    with pytest.raises(ArtifactError, match="cannot be written"):
        tilewright.compile(network()).save(tmp_path / "missing" / "x.c")
    named = Function((x,), relay.take(const(np.asarray(["a", "b", "c"], object)), relay.cast(x, "int64")))
    with pytest.raises(CompileError, match=r"of type string|has no native kernel"):
        tilewright.compile(named).save(tmp_path / "x.c")
    y = var("y", shape=(relay.Any(), 4))
    with pytest.raises(InputError, match="one C file needs known sizes, and this program has dynamic shapes"):
        tilewright.compile(Function((y,), nn.softmax(y))).save(tmp_path / "x.c")
    with pytest.raises(InputError, match="the model has symbolic dimensions"):
        tilewright.compile(Function((y,), nn.softmax(y)), symbolic=False).save(tmp_path / "x.c")


@pytest.mark.models
@needs_compiler
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_224_quant", "vww_96_int8", "mobilenet_v1_0.25_224_1_default_1"])
def test_trained_models(name: str, tmp_path: Path) -> None:
    model = MODELS_FOLDER / f"{name}.tflite"
    if not model.is_file():
        pytest.skip(f"there is no model {model}; TILEWRIGHT_TFLITE_MODELS names the folder of the trained models")
    tilewright.compile(model).export_c(tmp_path)
    (source,) = (p.stem for p in tmp_path.glob("*.h"))
    command = find_compilers(host_arch())[0].command
    assert says([build(tmp_path, command, source, "-O1")]) == "OK\n"
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    objects = build_object(tmp_path, command, source)
    assert not {"malloc", "calloc", "free", "aligned_alloc", "pthread_create"} & objects


def build_object(folder: Path, command: Sequence[str], name: str) -> set[str]:
    """The names that the object file of a model asks others for."""
    subprocess.run(
        [*command, "-std=c99", "-O1", "-c", f"{name}.c"], cwd=folder, check=True, timeout=300, stdin=subprocess.DEVNULL
    )
    listed = subprocess.run(
        ["nm", "-u", f"{name}.o"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return {line.split()[-1] for line in listed.splitlines() if line.strip()}
