"""What is shipped: every damaged bit is seen before anything is loaded, equal models are equal files, and the part
beside the model is small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright
from shipped_models import small_network
from small_models import cnn
from tilewright import relay
from tilewright.backends.cpu.link import has_zig
from tilewright.backends.cpu.llvm.c_entry import emit_c_entry
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.pool import pool_object
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError
from tilewright.compiler.model_library import export_model_library_format
from tilewright.driver.tvmc.package import TVMCPackage, write_package
from tilewright.runtime.artifact import load, load_executable
from tilewright.runtime.sealed_tar import SEAL, is_sealed
from tilewright.runtime.webassembly import LOADER

ROOT = Path(__file__).parent.parent
WASM = "llvm -mtriple=wasm32-unknown-unknown"
FLIPS = 100
SEES: dict[str, Callable[[Path], object]] = {
    "model.so": load, "model.tar": load, "model.wasm": load, "library.tar": TVMCPackage, "package.tar": TVMCPackage,
    "stages.tar": load_executable,
}
"""The files, and who reads them."""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network in every form that is loaded."""
    folder = tmp_path_factory.mktemp("shipped")
    model = tilewright.compile(small_network())
    for name in ("model.so", "model.tar"):
        model.save(folder / name)
    tilewright.compile(small_network(), target=WASM).save(folder / "model.wasm")
    write_package(model.artifact, folder / "package.tar")
    export_model_library_format(relay.build(small_network(), "llvm"), folder / "library.tar")
    x = relay.var("x", shape=(7,))
    staged = tilewright.compile(relay.Function((x,), relay.argwhere(relay.exp(x))))
    staged(np.zeros(7, np.float32))
    staged.save(folder / "stages.tar")
    return folder


@pytest.mark.parametrize("name", SEES)
def test_every_flipped_bit_is_seen(shipped: Path, name: str, tmp_path: Path) -> None:
    """Half of the bits anywhere, half near the ends, where headers, digests and padding are; the file as it is is
    read."""
    data = bytearray((shipped / name).read_bytes())
    path, random = tmp_path / name, np.random.default_rng(len(data))
    places = [
        *random.integers(0, len(data), FLIPS // 2),
        *(int(p) % len(data) for p in random.integers(-2500, 2500, FLIPS // 2))
    ]
    missed = []
    for place in map(int, places):
        bit = 1 << int(random.integers(8))
        data[place] ^= bit
        path.write_bytes(data)
        if not refused(SEES[name], path):
            missed.append((place, bit))
        data[place] ^= bit
    assert not missed
    if name != "model.wasm":
        SEES[name](shipped / name)


def refused(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except ArtifactError as error:
        return "does not run" not in str(error)  # what a whole WebAssembly module is refused with
    return False


FLIP = """
import { readFileSync } from "node:fs";
import { load } from "./tilewright.mjs";
const bytes = readFileSync("model.wasm");
await load(bytes);
let seen = 0, state = 12345;
const next = (most) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % most; };
for (let k = 0; k < 200; k++) {
  const place = k % 2 ? next(bytes.length) : bytes.length - 1 - next(80), bit = 1 << next(8);
  bytes[place] ^= bit;
  try { await load(bytes); } catch (error) { seen += /damaged|mark at its end/.test(error.message); }
  bytes[place] ^= bit;
}
console.log(seen);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_javascript_sees_every_flipped_bit(shipped: Path) -> None:
    (shipped / "flip.mjs").write_text(FLIP)
    done = subprocess.run(
        ["node", "flip.mjs"], cwd=shipped, capture_output=True, text=True, timeout=200, check=False,
        stdin=subprocess.DEVNULL
    )
    assert (done.stdout, done.stderr) == ("200\n", "")


def test_a_seal_is_the_last_member_and_of_all_before(shipped: Path, tmp_path: Path) -> None:
    data = (shipped / "model.tar").read_bytes()
    for name, changed in {
        "more.tar": data + bytes(10240), "less.tar": data[:-512],
        "none.tar": data.replace(SEAL.encode(), b"archive.sha255"), "empty.tar": b""
    }.items():
        (tmp_path / name).write_bytes(changed)
        assert not is_sealed(tmp_path / name)
    assert is_sealed(shipped / "model.tar")


BUILD = """
import sys
from pathlib import Path
import tilewright
from small_models import cnn
from tilewright import relay
from tilewright.compiler.model_library import export_model_library_format
out = Path.cwd()
(out / "model.onnx").write_bytes(cnn(2).SerializeToString())
model = tilewright.compile(out / "model.onnx", target="llvm -mcpu=x86-64-v3 -mtriple=x86_64-unknown-linux-gnu", threads=2)
for form in ("so", "a", "o", "tar", "c"):
    model.save(out / f"model.{form}")
tilewright.compile(out / "model.onnx", target="llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128").save(out / "model.wasm")
if "windows" in sys.argv:
    tilewright.compile(out / "model.onnx", target="llvm -mtriple=x86_64-pc-windows-gnu").save(out / "model.dll")
mod, params = relay.frontend.from_onnx(str(out / "model.onnx"))
export_model_library_format(relay.build(mod, "llvm -mtriple=aarch64-linux-gnu", params=params), out / "library.tar", [mod])
"""  # noqa: E501


def built(folder: Path, seed: str) -> dict[str, bytes]:
    """All forms of a model, made by a process of its own without a cache."""
    folder.mkdir(parents=True)
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests", ROOT / "benchmarks", ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed, "TILEWRIGHT_CACHE_DIR": "off"}
    extra = ["windows"] if has_zig() else []
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *extra], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.slow
def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    """In two folders, in two processes, whose sets and dictionaries are ordered in two ways."""
    one, other = built(tmp_path / "one", "1"), built(tmp_path / "another" / "folder", "4242")
    assert {"model.so", "model.a", "model.o", "model.tar", "model.wasm", "model.c", "library.tar"} <= {*one}
    assert [name for name in one if one[name] != other[name]] == []


def test_what_stands_beside_a_model_is_small(tmp_path: Path) -> None:
    """Threads, entry function and the functions of C: bytes of code and constants, by `size`."""
    tool = shutil.which("size")
    if tool is None:
        pytest.skip("size of binutils is not installed")
    target = Target("llvm")
    manifest = tilewright.compile(cnn(2)).artifact.manifest
    (tmp_path / "pool.o").write_bytes(pool_object(target))
    (tmp_path / "entry.o").write_bytes(compile_text(emit_c_entry(manifest), target))
    done = subprocess.run(
        [tool, "-A", "pool.o", "entry.o"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
        stdin=subprocess.DEVNULL
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith((".text", ".rodata", ".data"))]
    assert 1000 < sum(int(row[1]) for row in rows) < 60_000
    assert LOADER.stat().st_size < 12_000
