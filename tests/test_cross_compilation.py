"""Models for other machines: code that is run under emulation with the host's bits, and objects of systems that are not
here, whose headers are read."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from shipped_models import small_network
from small_models import cnn
from tilewright.backends.cpu import link
from tilewright.backends.cpu.link import has_zig, user_linker
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError
from tilewright.runtime.artifact import load
from tilewright.runtime.host import host_arch, host_features

MAIN = Path(__file__).with_name("cross_main.c")
ZIG = [sys.executable, "-m", "ziglang", "cc"]
EMULATED = {
    "aarch64-linux-gnu": ("qemu-aarch64", ["aarch64-linux-gnu-gcc"]),
    "armv7-linux-gnueabihf": ("qemu-arm", [*ZIG, "-target", "arm-linux-musleabihf"]),
    "riscv64-linux-gnu": ("qemu-riscv64", [*ZIG, "-target", "riscv64-linux-musl"]),
}
"""Triple -> the emulator, and the compiler of the program around the model."""
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
needs_zig = pytest.mark.skipif(not has_zig(), reason="needs the Python package ziglang")
Array = np.ndarray[Any, Any]


def answers(model: tilewright.Model, library: Path, x: Array, command: Sequence[str], emulator: str = "") -> bytes:
    """The output of a C program that is linked with `library`."""
    manifest, folder = model.artifact.manifest, library.parent
    (nbytes,) = (t.nbytes for t in manifest.outputs)
    defined = {
        "HEADER": f'"{library.with_suffix(".h").name}"', "INPUT_BYTES": x.nbytes, "OUTPUT_BYTES": nbytes,
        "RUN": f"{manifest.c_name}_run", "CLOSE": f"{manifest.c_name}_close"
    }
    arguments = [
        *command, "-static", "-O1", "-Wall", "-Werror", *(f"-DMODEL_{k}={v}" for k, v in defined.items()), "-I.",
        str(MAIN), library.name, "-lm", "-o", "main"
    ]
    built = subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return subprocess.run(
        [*filter(None, [emulator]), "./main"], cwd=folder, input=x.tobytes(), capture_output=True, timeout=120,
        check=True
    ).stdout


def pixels() -> Array:
    return np.random.default_rng(5).integers(0, 256, (2, 9, 9, 8)).astype(np.uint8)


@pytest.mark.parametrize(
    "triple", [pytest.param(t, marks=[] if t.startswith("aarch64") else pytest.mark.slow) for t in EMULATED]
)
def test_other_processors_compute_the_same(triple: str, tmp_path: Path) -> None:
    emulator, command = EMULATED[triple]
    if shutil.which(emulator) is None or (
        shutil.which(command[0]) is None or (command[0] == sys.executable and not has_zig())
    ):
        pytest.skip(f"needs {emulator} and {' '.join(command)}")
    model = tilewright.compile(small_network(), target=f"llvm -mtriple={triple}")
    expected = tilewright.compile(small_network())(pixels()).tobytes()
    for form in ("a", "o"):
        assert answers(model, model.save(tmp_path / f"model.{form}"), pixels(), command, emulator) == expected
    floats, x = tilewright.compile(
        cnn(2), target=f"llvm -mtriple={triple}"
    ), np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    found = answers(floats, floats.save(tmp_path / "floats.a"), x, command, emulator)
    np.testing.assert_allclose(
        np.frombuffer(found, np.float32).reshape(2, 10), tilewright.compile(cnn(2))(x), rtol=1e-4, atol=1e-6
    )


@needs_zig
@pytest.mark.parametrize("triple", EMULATED)
def test_libraries_for_other_processors(triple: str, tmp_path: Path) -> None:
    """Linked without their compilers: ELF of the right class and machine."""
    model = tilewright.compile(small_network(), target=f"llvm -mtriple={triple}")
    data = model.save(
        tmp_path / "m.so", link.Linker("ziglang", (sys.executable, "-m", "ziglang", "ld.lld"), False)
    ).read_bytes()
    bits, machine = {"aarch64": (2, 183), "armv7": (1, 40), "riscv64": (2, 243)}[triple.split("-", maxsplit=1)[0]]
    assert (data[:4], data[4]) == (b"\x7fELF", bits)
    assert struct.unpack_from("<HH", data, 16) == (3, machine)
    with pytest.raises(ArtifactError, match=f"made for {triple.split(chr(45), maxsplit=1)[0]}, this machine is"):
        load(tmp_path / "m.so")


@pytest.mark.slow
@pytest.mark.skipif(host_arch() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", LEVELS)
def test_levels_of_x86(level: str, tmp_path: Path) -> None:
    target = Target(f"llvm -mcpu={level}")
    path = tilewright.compile(small_network(), target=target).save(tmp_path / "m.so")
    if not target.features <= host_features():
        with pytest.raises(ArtifactError, match="made for a CPU with"):
            load(path)
        return
    np.testing.assert_array_equal(tilewright.load(path)(pixels()), tilewright.compile(small_network())(pixels()))


@pytest.mark.skipif(not link.find_linkers(host_arch()), reason="there is no linker")
@pytest.mark.parametrize("form", ["a", "o"])
def test_one_object_and_an_archive_for_this_machine(form: str, tmp_path: Path) -> None:
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("needs a C compiler")
    model = tilewright.compile(small_network())
    library = model.save(tmp_path / f"model.{form}", user_linker("cc", "-O2"))
    assert answers(model, library, pixels(), [cc]) == model(pixels()).tobytes()


@pytest.mark.slow
@needs_zig
def test_windows(tmp_path: Path) -> None:
    model = tilewright.compile(cnn(2), target="llvm -mtriple=x86_64-pc-windows-msvc")
    data = model.save(tmp_path / "model.dll").read_bytes()
    header = struct.unpack_from("<I", data, 0x3C)[0]
    assert (data[:2], data[header : header + 4]) == (b"MZ", b"PE\0\0")
    machine, _, time = struct.unpack_from("<HHI", data, header + 4)
    assert (machine, time) == (0x8664, 0)
    assert b"model_run\0" in data and b"_aligned_malloc\0" in data and b"aligned_alloc\0" not in data.replace(
        b"_aligned_malloc", b""
    )
    model.save(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive:
        objects = {
            m.name: content.read(2) for m in archive.getmembers()
            if m.name.endswith(".o") and (content := archive.extractfile(m)) is not None
        }
    assert {*objects.values()} == {b"\x64\x86"} and {"entry.o", "constants.o"} < {*objects}
    with pytest.raises(ArtifactError, match=r"made for Windows, this machine runs|made for x86_64, this machine is"):
        load(tmp_path / "model.tar")
    with pytest.raises(ArtifactError, match=r"object files of Windows cannot be joined into one; save as .a"):
        model.save(tmp_path / "model.o")
    with pytest.raises(ArtifactError, match=r"is not saved as .so; save it as .tar, .a, .o, .dll"):
        model.save(tmp_path / "model.so")
    assert model.save(tmp_path / "model.a").read_bytes()[:8] == b"!<arch>\n"
    assert "int32_t model_run(" in (tmp_path / "model.h").read_text()


@needs_zig
@pytest.mark.parametrize(
    ("triple", "processor"), [("arm64-apple-macosx11.0.0", 0x0100000C), ("x86_64-apple-macosx11.0.0", 0x01000007)]
)
def test_macos(triple: str, processor: int, tmp_path: Path) -> None:
    model = tilewright.compile(cnn(2), target=f"llvm -mtriple={triple}")
    data = model.save(tmp_path / "model.o").read_bytes()
    assert struct.unpack_from("<IIII", data)[::3] == (0xFEEDFACF, 1)  # of 64 bits, an object
    assert struct.unpack_from("<I", data, 4) == (processor,)
    assert b"_model_run\0" in data and b"_aligned_alloc\0" in data
    assert model.save(tmp_path / "model.a").read_bytes()[:8] == b"!<arch>\n"


def test_what_is_not_one_function_of_c(tmp_path: Path) -> None:
    made = tilewright.compile(cnn(2)).artifact
    functions = replace(made, manifest=replace(made.manifest, functions={"f": ()}))
    with pytest.raises(
        ArtifactError,
        match=r"a .a file holds a model as C functions, and this program has .* single functions; save it as .tar"
    ):
        functions.save(tmp_path / "m.a")


def test_without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.backends.cpu.combine.has_zig", lambda: False)
    monkeypatch.setattr("tilewright.backends.cpu.combine.find_linkers", lambda arch: [])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    model = tilewright.compile(cnn(2))
    with pytest.raises(
        ArtifactError,
        match=r"no archiver for .* was found \(llvm-ar, ar, the Python package ziglang\); `pip install ziglang`"
    ):
        model.save(tmp_path / "m.a")
    with pytest.raises(ArtifactError, match=r"no linker for .* was found .*; `pip install ziglang`, or save as .tar"):
        model.save(tmp_path / "m.o")
    broken = link.Linker("broken", (sys.executable, "-c", "import sys; sys.exit('no can do')"), False)
    with pytest.raises(
        ArtifactError, match=r"joined.o could not be made; save as .tar, which needs no linker. broken: no can do"
    ):
        model.save(tmp_path / "m.o", broken)
    assert not list(tmp_path.iterdir())


def test_linkers_that_fail_or_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = link.Linker("broken", (sys.executable, "-c", "import sys; sys.exit('no can do')"), True)
    for form, triple, said in (
        ("dll", "x86_64-pc-windows-gnu", "the library"), ("wasm", "wasm32-unknown-unknown", "the WebAssembly module")
    ):
        with pytest.raises(ArtifactError, match=f"{said} could not be linked.* broken: no can do"):
            tilewright.compile(cnn(2), target=f"llvm -mtriple={triple}").save(tmp_path / f"m.{form}", broken)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        ArtifactError,
        match=r"no linker for x86_64-pc-windows-gnu was found \(x86_64-w64-mingw32-gcc, the Python package ziglang\)"
    ):
        tilewright.compile(cnn(2), target="llvm -mtriple=x86_64-pc-windows-gnu").save(tmp_path / "m.dll")
    with pytest.raises(ArtifactError, match=r"libraries for sparc cannot be linked here; save as .tar"):
        link.emulation("sparc")
    assert not list(tmp_path.iterdir())
