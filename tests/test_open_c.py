"""Programs for dynamic sizes called from C: shapes as arguments, statuses of wrong sizes, plans in native code."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from small_models import onnxruntime_answers
from test_open_sizes import convolutions, encoder, model, node, perceptron, plans_of, real
from tilewright.base.errors import ArtifactError, InputError
from tilewright.base.memory_placement import place_pieces
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import FIRST_MESSAGE, Manifest, Piece

pytestmark = pytest.mark.slow

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


class Library:
    """The C functions of a saved program, called through ctypes."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.manifest, self._library = manifest, ctypes.CDLL(str(path))
        self.call("message").restype = ctypes.c_char_p

    def call(self, function: str) -> Any:
        return getattr(self._library, f"{self.manifest.c_name}_{function}")

    def shapes(self, shapes: Sequence[Sequence[int]]) -> Any:
        self._kept = [(ctypes.c_int64 * max(1, len(s)))(*s) for s in shapes]
        return (ctypes.c_void_p * len(shapes))(*map(ctypes.addressof, self._kept))

    def ask(self, function: str, shapes: Sequence[Sequence[int]], count: int = 1) -> list[int]:
        answer = (ctypes.c_int64 * count)()
        assert self.call(function)(self.shapes(shapes), answer) == 0
        return list(answer)

    def output_shapes(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        outputs = self.manifest.outputs
        found = [(ctypes.c_int64 * max(1, len(t.shape)))() for t in outputs]
        assert self.call("output_shapes")(
            self.shapes(shapes), (ctypes.c_void_p * len(outputs))(*map(ctypes.addressof, found))) == 0
        return [tuple(d)[:len(t.shape)] for d, t in zip(found, outputs, strict=True)]

    def status(self, shapes: Sequence[Sequence[int]]) -> tuple[int, str]:
        """The status of a call with these shapes, which must be refused: its arrays are null."""
        status = self.call("run")(self.shapes(shapes), *[(ctypes.c_void_p * 4)()] * 2)
        return status, self.call("message")(status).decode()

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        shapes, infos = [x.shape for x in inputs], self.manifest.outputs
        outputs = [np.empty(s, t.dtype.numpy()) for s, t in zip(self.output_shapes(shapes), infos, strict=True)]
        assert self.ask("output_bytes", shapes, len(outputs)) == [y.nbytes for y in outputs]
        pointers = [(ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays]) for arrays in (inputs, outputs)]
        assert self.call("run")(self.shapes(shapes), *pointers) == 0
        return outputs


def library_of(program: tilewright.Model, folder: Path) -> Library:
    return Library(program.save(folder / "model.so"), program.artifact.manifest)


def joined() -> onnx.ModelProto:
    """Two inputs that share a size, one of which is longer by three."""
    nodes = [
        node("Concat", ["x", "z"], "xz", axis=1), node("Relu", ["xz"], "r"), node("MatMul", ["r", "w"], "y")
    ]
    return model(nodes, {"x": ["n", 5], "z": ["n", 3]}, {"w": real(8, 4)})


def images() -> onnx.ModelProto:
    weights = {"w0": real(8, 3, 3, 3) / 5, "w1": real(16, 8, 1, 1) / 3}
    nodes = [
        node("Conv", ["x", "w0"], "c0", pads=[1, 1, 1, 1]), node("Relu", ["c0"], "r0"),
        node("MaxPool", ["r0"], "p0", kernel_shape=[2, 2], strides=[2, 2]), node("Conv", ["p0", "w1"], "y"),
    ]
    return model(nodes, {"x": ["b", 3, "h", "w"]}, weights)


def test_weights_that_large_winograd_tiles_keep(tmp_path: Path) -> None:
    """C programs compute them at the first call that needs them, and free them with the threads."""
    weights = {"w": real(64, 64, 3, 3) / 24}
    of = model([node("Conv", ["x", "w"], "y", pads=[1, 1, 1, 1])], {"x": [1, 64, "h", "w"]}, weights)
    program = tilewright.compile(of.SerializeToString(), {"x": (1, 64, "h=3..", "w=3..")})
    library = library_of(program, tmp_path)
    assert len(library.manifest.kept) == 1
    for _ in range(2):
        for h, w in [(6, 7), (60, 70), (60, 70)]:
            x = real(1, 64, h, w)
            (found,) = library.run([x])
            assert found.tobytes() == program(x).tobytes()
            np.testing.assert_allclose(found, onnxruntime_answers(of, {"x": x})[0], rtol=1e-3, atol=1e-5)
        library.call("close")()


def loop() -> onnx.ModelProto:
    """A loop over the rows of a tensor, which gathers as many."""
    step = [node("Gather", ["x", "i"], "row"), node("Add", ["s", "row"], "a"), node("Tanh", ["a"], "t"),
            node("Identity", ["t"], "e")]
    values = {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, [5]), "t": (FLOAT, [5]), "e": (FLOAT, [5])}
    ins, outs = ([onnx.helper.make_tensor_value_info(n, *values[n]) for n in names] for names in ("ics", "cte"))
    dims, count = onnx.helper.make_node("Shape", ["x"], ["dims"], end=1), node("Squeeze", ["dims"], "count")
    rows = onnx.helper.make_node(
        "Loop", ["count", "", "start"], ["last", "y"], body=onnx.helper.make_graph(step, "b", ins, outs))
    return model([dims, count, rows], {"x": ["n", 5]}, {"start": real(5)})


OPEN: dict[str, tuple[Any, dict[str, Any], list[tuple[tuple[int, ...], ...]]]] = {
    "perceptron": (perceptron, {"x": ("1..64", 20)}, [((1, 20),), ((33, 20),), ((2, 20),), ((64, 20),)]),
    "encoder": (encoder, {"ids": ("b", "t=1..40")}, [((1, 1),), ((3, 7),), ((2, 40),), ((5, 3),)]),
    "convolutions": (convolutions, {"x": ("b", 3, 12, 12)}, [((1, 3, 12, 12),), ((7, 3, 12, 12),)]),
    "images": (images, {"x": ("b", 3, "h=4..:2", "w=4..64:4")},
               [((1, 3, 8, 4),), ((2, 3, 30, 32),), ((1, 3, 4, 64),)]),
    "joined": (joined, {"x": ("n", 5), "z": ("n", 3)}, [((1, 5), (1, 3)), ((9, 5), (9, 3))]),
    "loop": (loop, {"x": ("n", 5)}, [((1, 5),), ((7, 5),), ((300, 5),), ((2, 5),)]),
}


@pytest.mark.parametrize("name", OPEN)
def test_c_computes_what_python_does_at_all_sizes(name: str, tmp_path: Path) -> None:
    make, shapes, calls = OPEN[name]
    program = tilewright.compile(make().SerializeToString(), shapes)
    library = library_of(program, tmp_path)
    for given in [*calls, *calls[::-1], *calls[:1] * 2]:
        kinds = [t.dtype.numpy() for t in program.inputs]
        inputs = [(np.random.default_rng(0).random(s) * 9).astype(d) for s, d in zip(given, kinds, strict=True)]
        (found,) = library.run(inputs)
        assert found.tobytes() == program(*inputs).tobytes()
        planned = plans_of(program)[given].manifest
        assert library.ask("workspace_bytes", given) == [planned.workspace_bytes]
    library.call("close")()
    (found,) = library.run(inputs)
    assert found.tobytes() == program(*inputs).tobytes()


def test_wrong_sizes_have_statuses_and_messages(tmp_path: Path) -> None:
    program = tilewright.compile(images().SerializeToString(), OPEN["images"][1])
    library, header = library_of(program, tmp_path), program.artifact.header()
    cases = {
        (0, 3, 8, 8): "dimension 0 of input 'x' must be at least 1",
        (1, 4, 8, 8): "dimension 1 of input 'x' must be 3",
        (1, 3, 9, 8): "dimension 2 of input 'x' must be a multiple of 2, at least 4",
        (1, 3, 2, 8): "dimension 2 of input 'x' must be a multiple of 2, at least 4",
        (1, 3, -8, 8): "dimension 2 of input 'x' must be a multiple of 2, at least 4",
        (1, 3, 8, 68): "dimension 3 of input 'x' must be a multiple of 4, from 4 to 64",
    }
    for shape, message in cases.items():
        status, said = library.status([shape])
        assert said == message and f" * {status}: {message}\n" in header and status >= FIRST_MESSAGE
        with pytest.raises(InputError):
            program(np.zeros([max(d, 0) for d in shape], np.float32))
    assert library.status([(1, 3, 2**50, 64)]) == (1, "out of memory")
    assert library.status([(2, 3, 2**62, 64)]) == (1, "out of memory")
    assert [library.call("message")(k).decode() for k in (0, -1, 99)] == ["done", "out of memory", "an unknown status"]


def test_inputs_that_share_a_size_must_agree(tmp_path: Path) -> None:
    library = library_of(tilewright.compile(joined().SerializeToString(), OPEN["joined"][1]), tmp_path)
    assert library.status([(3, 5), (4, 3)])[1] == "dimension 0 of input 'z' must be equal to n"


def test_requirements_of_several_sizes_are_checked_by_each_call(tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "rows"], "r"), node("MatMul", ["r", "w"], "y")]
    weights = {"rows": np.array([-1, 6]), "w": real(6, 4)}
    program = tilewright.compile(model(nodes, {"x": ["n", "m", "k"]}, weights), {"x": ("n", "m", "k")})
    library = library_of(program, tmp_path)
    x = real(4, 3, 5)
    assert library.run([x])[0].tobytes() == program(x).tobytes() == (program(x.reshape(2, 2, 15))).tobytes()
    said = "the sizes must satisfy (((k * m) * n) // 6) * 6 == (k * m) * n"
    status, message = library.status([(4, 4, 5)])
    assert message == said and f" * {status}: {message}\n" in program.artifact.header()
    loaded = tilewright.load(program.save(tmp_path / "model.tar"))
    for of in (program, loaded):
        with pytest.raises(InputError, match=r"the sizes must satisfy .*, as the model requires, but n = 4, m = 4"):
            of(real(4, 4, 5))


def test_the_native_plan_is_that_of_python(tmp_path: Path) -> None:
    """Random pieces, whose sizes are expressions: the offsets are those of `place_pieces`."""
    base = tilewright.compile(perceptron().SerializeToString(), OPEN["perceptron"][1]).artifact
    random = np.random.default_rng(7)
    for case in range(3):
        begins = random.integers(0, 30, 60)
        pieces = tuple(
            Piece(f"({random.integers(1, 400)} * batch + {random.integers(0, 900)}) // {random.integers(1, 5)}"
                  if k % 3 else int(random.integers(0, 4000)), int(b), int(b + random.integers(0, 12)))
            for k, b in enumerate(begins))
        steps_pieces = (*base.manifest.pieces, *pieces)
        changed = Artifact(replace(base.manifest, pieces=steps_pieces), base.objects, base.constants)
        folder = tmp_path / str(case)
        folder.mkdir()
        library = Library(changed.save(folder / "model.so"), changed.manifest)
        for n in (1, 2, 13, 64):
            known = [p if isinstance(p.nbytes, int) else replace(p, nbytes=eval(p.nbytes, {"batch": n}))
                     for p in steps_pieces]
            assert library.ask("workspace_bytes", [(n, 20)]) == [place_pieces(known)[1]]


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"

static int run(int64_t batch, int64_t length) {
  int64_t ids_shape[2] = {batch, length}, y_shape[3], bytes[MODEL_NUM_OUTPUTS];
  const int64_t* shapes[MODEL_NUM_INPUTS] = {ids_shape};
  int64_t* output_shapes[MODEL_NUM_OUTPUTS] = {y_shape};
  int status = model_output_shapes(shapes, output_shapes);
  if (status) { fprintf(stderr, "%s\\n", model_message(status)); return status; }
  if (model_output_bytes(shapes, bytes)) return 100;
  int64_t* ids = aligned_alloc(64, (size_t)(batch * length * 8 + 63) / 64 * 64);
  float* y = aligned_alloc(64, (size_t)(bytes[0] + 63) / 64 * 64);
  for (int64_t k = 0; k < batch * length; k++) ids[k] = k % 50;
  const void* inputs[MODEL_NUM_INPUTS] = {ids};
  void* outputs[MODEL_NUM_OUTPUTS] = {y};
  status = model_run(shapes, inputs, outputs);
  printf("%lld %lld %lld\\n", (long long)y_shape[0], (long long)y_shape[1], (long long)y_shape[2]);
  for (int64_t k = 0; k < bytes[0] / 4; k++) printf("%.9g\\n", (double)y[k]);
  free(ids);
  free(y);
  return status;
}

int main(void) {
  if (run(1, 1) || run(3, 7) || run(2, 40)) return 1;
  int status = run(2, 41);
  model_close();
  return status == MODEL_WRONG ? 0 : 2;
}
"""


@pytest.mark.parametrize("form", [".so", ".a", ".o", ".tar"])
def test_a_c_program_of_any_size(form: str, tmp_path: Path) -> None:
    cc = shutil.which("gcc") or shutil.which("cc")
    if cc is None:
        pytest.skip("needs a C compiler")
    program = tilewright.compile(encoder().SerializeToString(), OPEN["encoder"][1])
    file, manifest = program.save(tmp_path / f"model{form}"), program.artifact.manifest
    (tmp_path / "model.h").write_text(program.artifact.header())
    (tmp_path / "main.c").write_text(C_PROGRAM)
    linked: list[Path | str] = [file]
    if form == ".tar":
        subprocess.run(["tar", "xf", file], cwd=tmp_path, check=True)
        linked = sorted(tmp_path.glob("*.o"))
    wrong = FIRST_MESSAGE + len(manifest.failures) + 1  # the second dimension
    subprocess.run(
        [cc, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-DMODEL_WRONG={wrong}", "main.c", *linked, "-lm", "-lpthread",
         "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "dimension 1 of input 'ids' must be from 1 to 40\n"
    lines = iter(done.stdout.splitlines())
    for batch, length in ((1, 1), (3, 7), (2, 40)):
        ids = (np.arange(batch * length, dtype=np.int64) % 50).reshape(batch, length)
        assert next(lines) == f"{batch} {length} 32"
        found = np.array([float(next(lines)) for _ in range(batch * length * 32)], np.float32)
        assert found.tobytes() == program(ids).tobytes()
        (wanted,) = onnxruntime_answers(encoder(), {"ids": ids})
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=2e-4, atol=2e-5)


def test_a_module_of_web_assembly_takes_known_sizes(tmp_path: Path) -> None:
    program = tilewright.compile(
        perceptron().SerializeToString(), OPEN["perceptron"][1], "llvm -mtriple=wasm32-unknown-unknown")
    with pytest.raises(ArtifactError, match=r"has dynamic shapes \(batch\); give all sizes in shapes="):
        program.save(tmp_path / "model.wasm")


def test_one_c_file_takes_known_sizes(tmp_path: Path) -> None:
    program = tilewright.compile(perceptron().SerializeToString(), OPEN["perceptron"][1])
    with pytest.raises(InputError, match=r"has dynamic shapes \(x: \(batch, 20\)\); give numbers in shapes="):
        program.save(tmp_path / "model.c")
