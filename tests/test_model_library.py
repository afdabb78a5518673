"""Model Library Format: metadata of version 7 with the memory that the program has, objects that link, modules beside
them."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from suites import unpack
from tilewright import relay
from tilewright.base.errors import ArtifactError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.compiler.micro import export_model_library_format
from tilewright.runtime import ModuleNode, load_module, register_module
from tilewright.runtime.graph_json import graph_json
from tilewright.runtime.program import ExternalStep, KernelCall

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
HEAD = '#[version = "0.0.5"]\n'
NETWORK = """def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 4), float32]) {
  (tanh(nn.dense(%x, ones(shape=[4, 3], dtype="float32"))), exp(%y))
}"""


def network(name: str = "small") -> tvm.runtime.FactoryModule:
    return relay.build(tvm.parser.parse(HEAD + NETWORK), "llvm", mod_name=name)


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {
            m.name.removeprefix("./"): content.read() for m in archive.getmembers()
            if (content := archive.extractfile(m)) is not None
        }


def test_metadata_says_what_the_program_has(tmp_path: Path) -> None:
    lib, mod = network(), tvm.parser.parse(HEAD + NETWORK)
    files = contents(export_model_library_format(lib, tmp_path / "small.tar", [mod], NOW))
    found = json.loads(files["metadata.json"])
    assert found["version"] == 7
    assert list(found["modules"]) == ["small"]
    model = found["modules"]["small"]
    assert (
        model["model_name"], model["style"], model["executors"], model["target"]
    ) == ("small", "full-model", ["graph"], ["llvm"])
    assert json.loads(files["executor-config/graph/small.graph"]) == json.loads(graph_json(lib.artifact.manifest))
    assert (model["export_datetime"], model["external_dependencies"]) == ("2026-01-02 03:04:05Z", [])
    manifest = lib.artifact.manifest
    (main,) = model["memory"]["functions"]["main"]
    assert (
        main["device"], main["workspace_size_bytes"], main["constants_size_bytes"]
    ) == (1, manifest.workspace_bytes, manifest.constants_bytes)
    assert main["inputs"] == {
        "x": {"dtype": "float32", "shape": [2, 3], "size": 24}, "y": {"dtype": "float32", "shape": [2, 4], "size": 32}
    }
    assert [v["size"] for v in main["outputs"].values()] == [32, 32]
    assert main["io_size_bytes"] == 24 + 3 * 32
    assert {
        f["function_name"] for f in model["memory"]["functions"]["operator_functions"]
    } == {s.symbol for s in manifest.steps if isinstance(s, (KernelCall, ExternalStep))}
    assert tvm.parser.parse(files["src/small.relay"].decode())["main"].ret_type is not None
    assert tvm.params.load_param_dict(files["parameters/small.params"]) == {}
    assert export_model_library_format(
        lib, tmp_path / "again.tar", [mod], NOW
    ).read_bytes() == (tmp_path / "small.tar").read_bytes()


C_PROGRAM = """
#include <stdio.h>
#include "tvmgen_small.h"
static float x[6] __attribute__((aligned(16))), y[8] __attribute__((aligned(16))), a[8] __attribute__((aligned(16))), b[8] __attribute__((aligned(16)));
int main(void) {
  if (fread(x, sizeof x, 1, stdin) != 1 || fread(y, sizeof y, 1, stdin) != 1) return 2;
  const void* inputs[SMALL_NUM_INPUTS] = {x, y};
  void* outputs[SMALL_NUM_OUTPUTS] = {a, b};
  int status = small_run(inputs, outputs);
  small_close();
  return status || fwrite(a, sizeof a, 1, stdout) != 1 || fwrite(b, sizeof b, 1, stdout) != 1;
}
"""  # noqa: E501


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_its_objects_link_and_run(tmp_path: Path) -> None:
    lib = network()
    unpack(Path(export_model_library_format(lib, tmp_path / "small.tar")), tmp_path)
    (tmp_path / "main.c").write_text(C_PROGRAM)
    host = tmp_path / "codegen" / "host"
    objects = sorted((host / "lib").glob("*.o"))
    subprocess.run(
        [
            "cc", "-Wall", "-Werror", f"-I{host / 'include'}", tmp_path / "main.c", *objects, "-lm", "-lpthread", "-o",
            tmp_path / "main"
        ], check=True
    )
    x, y = np.random.default_rng(0).random((2, 3), np.float32), np.random.default_rng(1).random((2, 4), np.float32)
    done = subprocess.run(
        [tmp_path / "main"], input=x.tobytes() + y.tobytes(), capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"".join(a.tobytes() for a in lib.executable(x, y))


class Opaque(ModuleNode):
    type_key = "opaque-for-files"

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return None if name.startswith("__") else lambda x, out: out.copyfrom(x)

    def save_to_binary(self) -> bytes:
        return b"some bytes"

    @classmethod
    def load_from_binary(cls, blob: bytes) -> Opaque:
        return cls()


@pytest.fixture
def opaque() -> Iterator[tvm.runtime.FactoryModule]:
    before = dict(FUNCTIONS)
    register_module(Opaque)
    register_func("relay.ext.opaque", lambda f: Opaque())
    text = (
        'def @main(%x: Tensor[(2), float32]) { exp(@f(%x)) }\ndef @f(%p: Tensor[(2), float32], Compiler="opaque", '
        'global_symbol="f") { negative(%p) }\n'
    )
    yield relay.build(relay.transform.InferType()(tvm.parser.parse(HEAD + text)), "llvm", mod_name="off-loaded")
    for name in [n for n in FUNCTIONS if n not in before]:
        remove_global_func(name)


def test_modules_of_other_compilers_go_along(opaque: tvm.runtime.FactoryModule, tmp_path: Path) -> None:
    files = contents(export_model_library_format(opaque, tmp_path / "m.tar"))
    listed = json.loads(files["metadata.json"])["modules"]["off-loaded"]["external_dependencies"]
    assert listed == [{"kind": "opaque-for-files", "file": "external/0.opaque-for-files.bin", "size_bytes": 10}]
    assert files["external/0.opaque-for-files.bin"] == b"some bytes"
    assert not any(name.endswith(".h") for name in files)


def test_a_library_of_one_program_is_loaded(opaque: tvm.runtime.FactoryModule, tmp_path: Path) -> None:
    lib = network()
    x, y = np.random.default_rng(0).random((2, 3), np.float32), np.random.default_rng(1).random((2, 4), np.float32)
    again = load_module(export_model_library_format(lib, tmp_path / "small.tar"))
    for a, b in zip(again.executable(x, y), lib.executable(x, y), strict=True):  # type: ignore[union-attr]
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    other = load_module(export_model_library_format(opaque, tmp_path / "m.tar"))
    assert [m.type_key for m in other.artifact.modules] == ["opaque-for-files"]
    whole = (tmp_path / "small.tar").read_bytes()
    (tmp_path / "small.tar").write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(ArtifactError, match="the file is damaged"):
        load_module(tmp_path / "small.tar")
    with pytest.raises(ArtifactError, match="this model library has 2 programs; only a library of one can be run"):
        load_module(export_model_library_format([network("one"), network("two")], tmp_path / "both.tar"))


def test_several_models_in_one_file(tmp_path: Path) -> None:
    files = contents(export_model_library_format([network("one"), network("two")], tmp_path / "both.tar"))
    assert set(json.loads(files["metadata.json"])["modules"]) == {"one", "two"}
    assert {
        "codegen/host/lib/one.entry.o", "codegen/host/lib/two.entry.o", "codegen/host/include/tvmgen_one.h"
    } <= set(files)


def test_what_cannot_be_exported_says_so(opaque: tvm.runtime.FactoryModule, tmp_path: Path) -> None:
    lib = network()
    with pytest.raises(ArtifactError, match=r"m.zip: a model library is a .tar"):
        export_model_library_format(lib, tmp_path / "m.zip")
    with pytest.raises(
        ArtifactError, match=r"two models are called 'small'; give relay.build another mod_name for each"
    ):
        export_model_library_format([lib, lib], tmp_path / "m.tar")
    t = tvm.te.placeholder((2,), name="t")
    twice = tvm.te.compute((2,), lambda i: t[i] + t[i], "twice")
    functions = tvm.build(tvm.te.create_schedule(twice.op), [t, twice])
    with pytest.raises(ArtifactError, match=r"and not functions of tvm\.build; save those with export_library"):
        export_model_library_format([functions, functions], tmp_path / "m.tar")
    lib.export_library(tmp_path / "m.so")
    with pytest.raises(ArtifactError, match="was loaded from a library, which has no object files left"):
        export_model_library_format(load_module(tmp_path / "m.so"), tmp_path / "m.tar")
    with pytest.raises(
        ArtifactError, match="'off-loaded' has parts that are not native code, so it cannot be exported with other"
    ):
        export_model_library_format([lib, opaque], tmp_path / "m.tar")
    assert not (tmp_path / "m.tar").exists()
