"""Saved models: libraries and tars, checks before loading, C programs, and life without the compiler."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small_programs as programs
import tilewright
from suites import unpack
from tilewright.backends.cpu import link
from tilewright.backends.cpu.link import Linker
from tilewright.base.errors import ArtifactError
from tilewright.runtime import artifact as artifacts
from tilewright.runtime import host, load
from tilewright.runtime.artifact import MAGIC, TRAILER, Artifact
from tilewright.runtime.manifest import Manifest

SOURCE = Path(__file__).parent.parent / "src"
X = np.arange(8, dtype="float32").reshape(2, 4) - 3
LINKERS = link.find_linkers(host.host_arch())


@pytest.fixture(scope="module")
def affine() -> Artifact:
    return programs.affine()


@pytest.fixture(scope="module")
def library(affine: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return affine.save(tmp_path_factory.mktemp("lib") / "affine.so")


@pytest.fixture(scope="module")
def archive(affine: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return affine.save(tmp_path_factory.mktemp("tar") / "affine.tar")


def resealed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the library whose manifest was changed, with a right checksum."""
    data = path.read_bytes()
    _, length, _ = TRAILER.unpack(data[-TRAILER.size :])
    code, text = data[: -TRAILER.size - length], data[-TRAILER.size - length : -TRAILER.size]
    content = json.loads(text)
    change(content)
    body = code + json.dumps(content).encode()
    out = path.with_name("changed.so")
    out.write_bytes(body + TRAILER.pack(hashlib.sha256(body).digest(), len(body) - len(code), MAGIC))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("linker", LINKERS, ids=[x.name for x in LINKERS])
def test_library_by_each_linker(affine: Artifact, tmp_path: Path, linker: Linker) -> None:
    path = affine.save(tmp_path / "m.so", linker)
    loaded = load(path)
    assert loaded.manifest.name == "affine" and loaded.manifest.hashes["constants"]
    np.testing.assert_array_equal(loaded.executable()(X), programs.affine_value(X))
    plain = ctypes.CDLL(str(path))
    out = np.empty((2, 4), "float32")
    inputs, outputs = (ctypes.c_void_p * 1)(X.ctypes.data), (ctypes.c_void_p * 1)(out.ctypes.data)
    assert plain.affine_run(inputs, outputs) == 0
    np.testing.assert_array_equal(out, programs.affine_value(X))
    plain.affine_close()


def test_both_forms_answer(library: Path, archive: Path) -> None:
    for path in (library, archive):
        loaded = load(path)
        np.testing.assert_array_equal(loaded.executable(2)(X), programs.affine_value(X))
        assert loaded.manifest.steps == load(library).manifest.steps
        assert str(loaded.manifest.inputs[0]) == "float32 x[2, 4]"


def test_parallel_loops_in_a_library(tmp_path: Path) -> None:
    path = programs.squares(threads=2).save(tmp_path / "squares.so")
    np.testing.assert_array_equal(load(path).executable()(), np.arange(100) ** 2)


def test_equal_models_are_equal_files(affine: Artifact, library: Path, archive: Path, tmp_path: Path) -> None:
    for path in (library, archive):
        again = programs.affine().save(tmp_path / f"another-name{path.suffix}")
        assert again.read_bytes() == path.read_bytes()


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_only_the_interface_is_visible(library: Path) -> None:
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in shown.splitlines()}
    assert names == {
        "tw_run", "tw_pool_create", "tw_pool_destroy", "tw_constants", "tw_manifest", "affine_run", "affine_close"
    }


def test_constants_are_aligned(library: Path, archive: Path) -> None:
    for path in (library, archive):
        assert load(path).constants.ctypes.data % 64 == 0


def test_saving_again_over_a_loaded_library(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    programs.affine().save(path)
    first = load(path).executable()
    programs.affine(rows=(1.0,) * 8).save(path)
    second = load(path).executable()
    np.testing.assert_array_equal(first(X), programs.affine_value(X))
    np.testing.assert_array_equal(second(X), 2 * (X + 1))


def test_saving_a_loaded_model(library: Path, archive: Path, tmp_path: Path) -> None:
    assert load(library).save(tmp_path / "copy.so").read_bytes() == library.read_bytes()
    assert load(archive).save(tmp_path / "copy.tar").read_bytes() == archive.read_bytes()
    load(archive).save(tmp_path / "linked.so")
    np.testing.assert_array_equal(load(tmp_path / "linked.so").executable()(X), programs.affine_value(X))
    with pytest.raises(ArtifactError, match=r"loaded from affine.so has no object files left; save it as .so"):
        load(library).save(tmp_path / "copy.tar")


def test_wrong_extension(affine: Artifact, tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError,
        match=r"saved as .so \(a shared library\), .tar \(its objects\), .* .wasm \(a module of WebAssembly\), not as "
        r"'.exe'"
    ):
        affine.save(tmp_path / "m.exe")


def test_unwritable_place(affine: Artifact, tmp_path: Path) -> None:
    for name in ("m.so", "m.tar"):
        with pytest.raises(ArtifactError, match="cannot be written: No such file or directory"):
            affine.save(tmp_path / "missing" / name)
    folder = tmp_path / "is_folder.so"
    folder.mkdir()
    with pytest.raises(ArtifactError, match="cannot be written: Is a directory"):
        affine.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["is_folder.so"]


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_host_steps_cannot_leave(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ArtifactError, match=r"no native kernel and run in Python: my.negate \(Neg 'n'\); replace them"):
        programs.with_host_step().save(tmp_path / f"m.{suffix}")
    assert not list(tmp_path.iterdir())


def test_no_linker(affine: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "find_linkers", lambda arch: [])
    with pytest.raises(ArtifactError, match=r"no linker for .* was found .*`pip install ziglang`, or save as .tar"):
        affine.save(tmp_path / "m.so")


def test_failing_linker(affine: Artifact, tmp_path: Path) -> None:
    broken = link.Linker("broken", (sys.executable, "-c", "import sys; sys.exit('no can do')"), True)
    with pytest.raises(
        ArtifactError, match=r"could not be linked; save as .tar, which needs no linker. broken: no can do"
    ):
        affine.save(tmp_path / "m.so", broken)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        load(tmp_path / "none.so")


@pytest.mark.parametrize("contents", [b"", b"hello", b"PK\x03\x04" * 100, b"\0" * 600])
def test_foreign_file(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(contents)
    with pytest.raises(ArtifactError, match="not a compiled model"):
        load(path)


def test_foreign_library(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    shutil.copy(sys.modules["numpy._core._multiarray_umath"].__file__ or "", path)
    with pytest.raises(ArtifactError, match="does not end in the mark of a compiled model"):
        load(path)


def test_every_truncation_is_refused(library: Path, archive: Path, tmp_path: Path) -> None:
    for source in (library, archive):
        data = source.read_bytes()
        for keep in (*range(0, 600, 37), *range(600, len(data), len(data) // 40), len(data) - 1):
            path = tmp_path / source.name
            path.write_bytes(data[:keep])
            if not any(data[keep:]):
                continue  # only padding is lost
            with pytest.raises(ArtifactError):
                load(path)


@pytest.mark.slow
def test_every_changed_byte_is_refused(library: Path, archive: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for source in (library, archive):
        data = bytearray(source.read_bytes())
        for at in random.integers(0, len(data), 150):
            data[at] ^= 0x41
            path = tmp_path / source.name
            path.write_bytes(data)
            if source == library:
                with pytest.raises(ArtifactError):
                    load(path)
            else:
                loads_equal_or_refuses(path, source)
            data[at] ^= 0x41


def loads_equal_or_refuses(path: Path, original: Path) -> None:
    """A tar has padding, owners and times, which carry nothing; everything else is covered by a hash."""
    try:
        changed = load(path)
    except ArtifactError:
        return
    expected = load(original)
    assert changed.objects == expected.objects and changed.manifest == expected.manifest
    np.testing.assert_array_equal(changed.constants, expected.constants)


def test_damage_is_named(library: Path, tmp_path: Path) -> None:
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "m.so").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"m.so: the file is damaged .*; copy it again, or compile the model again"):
        load(tmp_path / "m.so")


def test_another_format_version(library: Path) -> None:
    path = resealed(library, lambda content: content.update(format=99))
    with pytest.raises(ArtifactError, match="has format 99, this version reads format 1; compile the model again"):
        load(path)


def test_another_architecture(library: Path) -> None:
    path = resealed(library, lambda content: content.update(triple="sparc-unknown-linux"))
    with pytest.raises(ArtifactError, match=f"made for sparc, this machine is {host.host_arch()}"):
        load(path)


def test_missing_cpu_features(library: Path) -> None:
    path = resealed(library, lambda content: content.update(features=["avx9000"]))
    with pytest.raises(
        ArtifactError, match=r"made for a CPU with avx9000, this machine lacks it: compile with --target 'llvm -mcpu="
    ):
        load(path)


def test_missing_avx512_names_the_level_that_works(affine: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"sse2", "sse4.2", "avx2"}))
    manifest = replace(affine.manifest, triple="", features=("avx2", "avx512f"))
    with pytest.raises(ArtifactError, match=r"made for a CPU with avx512f, this machine lacks it: .*-mcpu=x86-64-v3'"):
        artifacts.check_host(manifest, "m.so")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nope", '{"format":1}', '{"format":1,"name":"x","inputs":[["x",[-1],"float32"]]}', "[" * 100000],
)
def test_damaged_manifest(text: str) -> None:
    with pytest.raises(ArtifactError, match=r"m.so: the (manifest is damaged|artifact has format None)"):
        Manifest.from_json(text, "m.so")


def test_manifest_with_unknown_steps(affine: Artifact) -> None:
    content = json.loads(affine.manifest.to_json())
    for step in (["jump", 3], ["call", "k", "", "register:0"], ["copy", "input:x", "output:0", 4]):
        with pytest.raises(ArtifactError, match=r"the manifest has an unknown (step|place)"):
            Manifest.from_json(json.dumps({**content, "steps": [step]}), "m.so")


def test_manifest_there_and_back(affine: Artifact) -> None:
    assert Manifest.from_json(affine.manifest.to_json(), "m") == affine.manifest


def test_tar_members_can_be_linked_by_hand(archive: Path, tmp_path: Path) -> None:
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("needs cc")
    unpack(archive, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} >= {"entry.o", "constants.o", "model.h", "manifest.json"}
    out = tmp_path / "by_hand.so"
    subprocess.run([cc, "-shared", "-o", out, *sorted(map(str, tmp_path.glob("*.o"))), "-lm", "-lpthread"], check=True)
    assert ctypes.CDLL(str(out)).affine_run


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("my-model.v1", "my_model_v1"), ("3d", "model_3d"), ("", "model_"), ("tw", "model_tw"), ("größe", "gr__e"),
        ("_x", "model__x")
    ],
)
def test_c_names(affine: Artifact, name: str, start: str) -> None:
    manifest = replace(affine.manifest, name=name)
    assert manifest.c_name == start
    assert f"int32_t {start}_run(const void* const* inputs, void* const* outputs);" in manifest.header()


C_PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"
static void* work(void* unused) {
  for (int round = 0; round < 2000; ++round) {
    float x[8], y[8];
    for (int i = 0; i < 8; ++i) x[i] = (float)(round + i);
    const void* inputs[MY_MODEL_NUM_INPUTS] = {x};
    void* outputs[MY_MODEL_NUM_OUTPUTS] = {y};
    if (my_model_run(inputs, outputs)) return "status";
    for (int i = 0; i < 8; ++i) if (y[i] != 2 * (x[i] + (float)i)) return "value";
  }
  return NULL;
}
int main(void) {
  pthread_t threads[4];
  void* wrong = NULL;
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 4; ++i) { void* r; pthread_join(threads[i], &r); if (r) wrong = r; }
  my_model_close();
  pid_t child = fork();
  if (child == 0) { void* r = work(NULL); my_model_close(); _exit(r != NULL); }
  int status = 1;
  waitpid(child, &status, 0);
  if (status || work(NULL)) wrong = (void*)"after close";
  child = fork();
  if (child == 0) _exit(work(NULL) != NULL);
  waitpid(child, &status, 0);
  if (status) wrong = (void*)"after fork";
  my_model_close();
  puts(wrong ? (char*)wrong : "right");
  return wrong != NULL;
}
"""


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("linker", LINKERS, ids=[x.name for x in LINKERS])
def test_c_program(tmp_path: Path, language: str, linker: Linker) -> None:
    cc = shutil.which("cc" if language == "c" else "c++")
    if cc is None:
        pytest.skip("needs a C compiler")
    model = programs.affine("my-model")
    library = model.save(tmp_path / "model.so", linker)
    (tmp_path / "model.h").write_text(model.header())
    source = tmp_path / "main.c"
    source.write_text(C_PROGRAM if language == "c" else C_PROGRAM.replace('return "', 'return (void*)"'))
    flags: list[str | Path] = [
        "-Wall", "-Werror", "-x", language, source, "-x", "none", library, "-lpthread", f"-Wl,-rpath,{tmp_path}"
    ]
    subprocess.run([cc, *flags, "-o", tmp_path / "main"], check=True)
    for threads in ("", "1", "3", "junk"):
        run = subprocess.run(
            [tmp_path / "main"], capture_output=True, text=True, timeout=60, check=False,
            env={"TILEWRIGHT_NUM_THREADS": threads}
        )
        assert run.stdout == "right\n" and run.returncode == 0


def test_a_library_loads_without_the_compiler(library: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        class Wall:
            def find_spec(self, name, path=None, target=None):
                rooms = ("relay", "te", "tir", "topi", "target", "build", "arith", "ir", "expr", "driver")
                if name.split(".")[0] in ("llvmlite", "onnx", "torch") or name.split(".")[:1] == ["tilewright"] and name.split(".")[1:2] and name.split(".")[1] in rooms:
                    raise ImportError(f"{name} must not be imported")
        sys.meta_path.insert(0, Wall())
        import numpy as np
        from tilewright import runtime
        from tilewright.contrib.graph_executor import GraphModule
        library = runtime.load_module(sys.argv[1])
        x = np.arange(8, dtype="float32").reshape(2, 4)
        module = GraphModule(library["default"](runtime.cpu(0)))
        module.run(x=x)
        assert (module.get_output(0).numpy() == 2 * (x + x)).all()
        assert library.executable.benchmark(repeat=1, number=1).mean > 0
        try:
            runtime.load(sys.argv[2]).executable()
        except runtime.artifact.ArtifactError as error:
            print(error)
        """  # noqa: E501
    )
    archive = programs.affine().save(tmp_path / "m.tar")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, "-c", script, library, archive], capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert re.search(
        "object files can only be loaded where the compiler is installed .*; save the model as .so", run.stdout
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """After a collection: a descriptor is closed with the object that holds it."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_loading_two_hundred_times_leaks_nothing(library: Path) -> None:
    def once() -> None:
        np.testing.assert_array_equal(load(library).executable(1)(X), programs.affine_value(X))

    for _ in range(20):
        once()
    before, files = resident_bytes(), open_files()
    for _ in range(200):
        once()
    assert resident_bytes() - before < 4 << 20
    assert open_files() <= files + 1


def test_a_big_library(tmp_path: Path) -> None:
    """Constants of many pages, and one that is not a multiple of the alignment."""
    small = programs.affine()
    data = np.concatenate([small.constants, np.arange((8 << 20) + 3).astype(np.uint8)])
    big = replace(small, constants=data, manifest=replace(small.manifest, constants_bytes=data.nbytes))
    for suffix in ("so", "tar"):
        loaded = load(big.save(tmp_path / f"m.{suffix}"))
        np.testing.assert_array_equal(loaded.constants, data)
        np.testing.assert_array_equal(loaded.executable()(X), programs.affine_value(X))


def test_cross_compiled_library(tmp_path: Path) -> None:
    other = "aarch64" if host.host_arch() == "x86_64" else "x86_64"
    linkers = link.find_linkers(other)
    if not linkers:
        pytest.skip("needs a linker for another architecture")
    model = programs.affine(target=f"llvm -mtriple={other}-linux-gnu", triple=f"{other}-linux-gnu")
    path = model.save(tmp_path / "m.so")
    assert path.read_bytes()[:4] == b"\x7fELF"
    with pytest.raises(ArtifactError, match=f"made for {other}, this machine is"):
        load(path)


_FAR_APART = """
import ctypes
import numpy as np
import tilewright
from tilewright import relay
from tilewright.backends.cpu.llvm import jit

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SIZE, PAGE = 64 << 30, 4096


def reserve(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, without swap space


link = jit.LoadedCode.__init__


def link_in_little_room(self, *args):
    # free memory above the reserved range is single pages only: larger sections are 64 GiB away from small ones
    at = reserve(SIZE)
    for step in (1 << 20, 64 << 10, 2 * PAGE, PAGE):
        while reserve(step) > at:
            pass
    for k in range(500):
        libc.munmap(at + SIZE - (k + 1) * 3 * PAGE, PAGE)
    link(self, *args)


jit.LoadedCode.__init__ = link_in_little_room
x = relay.var("x", shape=(1, 16, 20, 20))
weight = np.random.default_rng(0).random((32, 16, 3, 3), np.float32)
result = relay.erf(relay.nn.conv2d(x, relay.const(weight), padding=(1, 1)))
model = tilewright.compile(tilewright.IRModule.from_expr(relay.Function([x], result)))
print(model(np.ones((1, 16, 20, 20), np.float32)).shape)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux", reason="the test maps memory as on Linux")
def test_code_and_constants_that_cannot_be_near_each_other_are_linked(tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text(_FAR_APART)
    path = str(Path(tilewright.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "far.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": "off"},
        capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 32, 20, 20)\n", "")
