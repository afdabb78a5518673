"""Compiled code under the tools of others: perf, valgrind, callgrind, gcov."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.backends.cpu.elf import code_symbols, functions_of
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.perf import FOLDER
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.relay.expr import Function, const, var
from tilewright.runtime.artifact import PERF

SOURCE = Path(__file__).parent.parent / "src"
X = np.random.default_rng(0).standard_normal((1, 16, 28, 28), np.float32)
needs_x86 = pytest.mark.skipif(Target("llvm").family != "x86", reason="code for x86-64 is run")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
MAIN = """
#include <stdio.h>
#include "net.h"
static float x[16 * 28 * 28] __attribute__((aligned(64))), y[32 * 28 * 28] __attribute__((aligned(64)));
int main(void) {
  for (int k = 0; k < 16 * 28 * 28; ++k) x[k] = (float)(k % 7) - 3.0f;
  const void *inputs[] = {x};
  void *outputs[] = {y};
  double sum = 0;
  for (int turn = 0; turn < 3; ++turn) if (default_run(inputs, outputs)) return 1;
  for (int k = 0; k < 32 * 28 * 28; ++k) sum += y[k];
  default_close();
  printf("%.3f\\n", sum);
  return 0;
}
"""


def network() -> Function:
    """A convolution with what follows it, and a product."""
    weights = np.random.default_rng(1).standard_normal((32, 16, 3, 3), np.float32)
    x = var("x", shape=X.shape)
    y = relay.nn.relu(relay.nn.conv2d(x, const(weights), padding=(1, 1), channels=32, kernel_size=(3, 3)))
    return Function((x,), relay.nn.softmax(relay.reshape(y, (32 * 28, 28))))


def run(command: Sequence[str | Path | int], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=folder, env={
        **os.environ, **environment
    }, capture_output=True, text=True, timeout=600, check=False,
                          stdin=subprocess.DEVNULL)


# What perf is told.
def test_functions_of_an_object() -> None:
    text = (
        "define i32 @one() {\n  ret i32 1\n}\ndefine internal void @hidden() noinline {\n  call void @two()\n  ret "
        "void\n}\ndefine void @two() {\n  ret void\n}\n"
    )
    text += "define void @three() {\n  call void @hidden()\n  ret void\n}\n"
    image = compile_text(text, Target("llvm"))
    assert set(functions_of(image)) == {"one", "two", "three"}
    assert all(size > 0 for size in functions_of(image).values())
    symbols = {f.name: f for f in code_symbols(image)}
    assert {name for name, f in symbols.items() if not f.shown} == {"hidden"}
    assert len({f.offset for f in symbols.values()}) == 4


@pytest.fixture
def map_of_this_process() -> Iterator[Path]:
    file = Path(f"/tmp/perf-{os.getpid()}.map")
    file.unlink(missing_ok=True)
    yield file
    file.unlink(missing_ok=True)


def test_perf_knows_functions_by_name(monkeypatch: pytest.MonkeyPatch, map_of_this_process: Path) -> None:
    monkeypatch.setenv(PERF, "map")
    tilewright.compile(network(), threads=2)(X)
    rows = {
        name: (int(address, 16), int(size, 16)) for address, size,
        name in map(str.split, map_of_this_process.read_text().splitlines())
    }
    assert rows["tw_run"][1]
    # what threads share is a function of its own
    bodies = [name for name in rows if re.fullmatch(r"kernel_\d+_conv2d_relu\..*\.body", name)]
    assert bodies
    places = sorted(rows.values())
    assert all(begin + size <= after for (begin, size), (after, _) in itertools.pairwise(places))


def test_what_perf_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PERF, "all")
    with pytest.raises(OptionError, match="TILEWRIGHT_PERF is 'all'; set it to map or jitdump"):
        tilewright.compile(network())(X)


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_profilers import X, network
import tilewright
model = tilewright.compile(network(), threads=2)
for _ in range(int(sys.argv[2])):
    model(X)
"""


@pytest.mark.slow
def test_jitdump_has_the_code(tmp_path: Path) -> None:
    done = run(
        [sys.executable, "-c", SCRIPT, Path(__file__).parent, 1], tmp_path,
        **{PERF: "jitdump", FOLDER: str(tmp_path), "PYTHONPATH": str(SOURCE)}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = tmp_path.glob("jit-*.dump")
    data = file.read_bytes()
    magic, version, at, machine, _, process, _, flags = struct.unpack_from("<IIIIIIQQ", data)
    assert (magic, version, machine, flags) == (
        0x4A695444, 1,
        struct.unpack_from("<H", compile_text("define void @f() {\n  ret void\n}", Target("llvm")), 18)[0], 0
    )
    found: dict[str, bytes] = {}
    while at < len(data):
        kind, size, _ = struct.unpack_from("<IIQ", data, at)
        owner, _, address, where, nbytes, number = struct.unpack_from("<IIQQQQ", data, at + 16)
        assert (kind, owner, address, number) == (0, process, where, len(found))
        name, _, code = data[at + 56 : at + size].partition(b"\0")
        assert len(code) == nbytes
        found[name.decode()] = code
        at += size
    assert at == len(data)
    assert {"tw_run", "tw_worker"} <= set(found)
    assert len(found["tw_run"]) > 16


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf")
def test_perf_report_lists_operators(tmp_path: Path) -> None:
    environment = {PERF: "jitdump", FOLDER: str(tmp_path), "PYTHONPATH": str(SOURCE)}
    recorded = run(
        [
            "perf", "record", "-k", "CLOCK_MONOTONIC", "-o", "raw.data", sys.executable, "-c", SCRIPT,
            Path(__file__).parent, 2000
        ], tmp_path, **environment
    )
    if not (tmp_path / "raw.data").exists() or "Permission" in recorded.stderr:
        pytest.skip(f"perf cannot record here: {recorded.stderr.strip()[:200]}")
    assert recorded.returncode == 0, recorded.stderr[-3000:]
    injected = run(["perf", "inject", "--jit", "-i", "raw.data", "-o", "perf.data"], tmp_path)
    assert injected.returncode == 0, injected.stderr
    report = run(["perf", "report", "-i", "perf.data", "--stdio", "--sort", "symbol"], tmp_path).stdout
    shares = {name: float(share) for share, name in re.findall(r"^\s*([\d.]+)%\s+\[\.\] (\S+)", report, re.MULTILINE)}
    assert any(re.match(r"kernel_\d+_conv2d_relu", name) for name in shares), report[:3000]
    assert any(re.match(r"kernel_\d+_softmax", name) for name in shares), report[:3000]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf")
def test_perf_report_lists_lines(tmp_path: Path) -> None:
    script = SCRIPT.replace("threads=2", "threads=1, config={'tir.debug_info': 'tir'}")
    environment = {
        PERF: "map", "TMPDIR": str(tmp_path), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(SOURCE)
    }
    recorded = run(
        ["perf", "record", "-o", "perf.data", sys.executable, "-c", script, Path(__file__).parent, 300], tmp_path,
        **environment
    )
    if not (tmp_path / "perf.data").exists() or "Permission" in recorded.stderr:
        pytest.skip(f"perf cannot record here: {recorded.stderr.strip()[:200]}")
    assert recorded.returncode == 0, recorded.stderr[-3000:]
    (library,) = tmp_path.glob("tilewright-debug-*/*.so")
    report = run(
        ["perf", "report", "-i", "perf.data", "--stdio", "--dsos", library.name, "--sort", "symbol,srcline"], tmp_path
    ).stdout
    assert re.search(r"kernel_\d+_conv2d_relu\S* +kernel_\d+_conv2d_relu\.tir\.py:\d+", report), report[:3000]


# Code of an artifact, called from C.
@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of C and a model, of instructions that valgrind knows."""
    folder = tmp_path_factory.mktemp("program")
    tilewright.compile(network(), target="llvm -mcpu=x86-64-v2", threads=2).save(folder / "net.a")
    (folder / "main.c").write_text(MAIN)
    made = run(["gcc", "-g", "-O1", "main.c", "net.a", "-o", "main", "-lm", "-lpthread"], folder)
    assert made.returncode == 0, made.stderr
    return folder / "main"


@pytest.mark.slow
@needs_x86
@needs_gcc
@needs_valgrind
def test_valgrind_finds_nothing(program: Path) -> None:
    plain = run([program], program.parent)
    done = run(
        [
            "valgrind", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all",
            "--errors-for-leak-kinds=all", program
        ], program.parent
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "ERROR SUMMARY: 0 errors" in done.stderr
    assert done.stdout == plain.stdout == f"{32 * 28:.3f}\n"  # rows of a softmax


@needs_x86
@needs_gcc
@needs_valgrind
@pytest.mark.skipif(shutil.which("callgrind_annotate") is None, reason="needs callgrind_annotate")
def test_callgrind_counts_operators(program: Path) -> None:
    done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=calls", program], program.parent)
    assert done.returncode == 0, done.stderr[-4000:]
    said = run(["callgrind_annotate", "--threshold=99.9", "calls"], program.parent).stdout
    counts = {
        name: int(count.replace(",", "")) for count,
        name in re.findall(r"^\s*([\d,]+) \([ \d.]+%\)\s+\S*?:(\S+)", said, re.MULTILINE)
    }
    convolution = sum(n for name, n in counts.items() if "conv2d" in name)
    products = 3 * 28 * 28 * 32 * 16 * 9 // 4  # of vectors of four, in three calls
    assert products < convolution < 4 * products, said[:3000]
    assert any("softmax" in name for name in counts), said[:3000]


@pytest.mark.slow
@needs_gcc
@pytest.mark.skipif(shutil.which("gcov") is None, reason="needs gcov")
def test_gcov_sees_every_line_of_a_model_in_c(tmp_path: Path) -> None:
    tilewright.compile(network()).export_c(tmp_path)
    made = run(
        ["gcc", "-O0", "--coverage", "-ffp-contract=off", "default_.c", "default__test.c", "-o", "test", "-lm"],
        tmp_path
    )
    assert made.returncode == 0, made.stderr
    assert run(["./test"], tmp_path).stdout == "OK\n"
    notes = next(tmp_path.glob("*default_.gcno"))
    assert run(["gcov", "--json-format", notes.name], tmp_path).returncode == 0
    zipped = next(tmp_path.glob("*default_.*gcov.json.gz"))
    files = json.loads(run(["gzip", "-dc", zipped], tmp_path).stdout)["files"]
    (lines,) = [f["lines"] for f in files if f["file"].endswith("default_.c")]
    counts = [line["count"] for line in lines]
    assert len(counts) > 50
    assert sum(n > 0 for n in counts) >= 0.95 * len(counts), [
        line["line_number"] for line in lines if not line["count"]
    ]
    assert max(counts) >= 28 * 28 * 32 * 16 * 9 // 16  # the products, at most sixteen in one statement
