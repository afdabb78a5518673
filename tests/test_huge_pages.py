"""Constants of saved programs are copied into huge pages, in Python and in C programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import relay
from tilewright.runtime import huge_pages
from tilewright.runtime.artifact import load

ROWS, COLUMNS = 1040, 1024
X = np.arange(COLUMNS, dtype=np.float32) % 7 - 3
WEIGHT = (np.arange(ROWS * COLUMNS, dtype=np.float32) % 11 - 5).reshape(ROWS, COLUMNS)
"""Whole numbers of 4.06 MiB, so that sums are exact."""


@pytest.fixture(name="allowed", autouse=True)
def _allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that allows huge pages."""
    system = tmp_path / "enabled"
    system.write_text("always [madvise] never\n")
    monkeypatch.setattr(huge_pages, "SYSTEM", str(system))
    monkeypatch.delenv(huge_pages.SETTING, raising=False)
    return system


@pytest.fixture(scope="module", name="library")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = relay.var("x", shape=(1, COLUMNS))
    program = tw.compile(
        relay.Function([x], relay.nn.dense(x, relay.const(WEIGHT))))
    return program.save(tmp_path_factory.mktemp("huge") / "dense.so")


def mapped(path: Path, nbytes: int) -> Any:
    file = path / "constants"
    file.write_bytes(bytes(range(256)) * (nbytes // 256))
    return np.memmap(file, np.uint8, "r")


def test_many_bytes_are_copied(tmp_path: Path) -> None:
    source = mapped(tmp_path, huge_pages.LEAST)
    copy = huge_pages.in_huge_pages(source)
    assert not np.shares_memory(copy, source) and not copy.flags.writeable
    assert copy.ctypes.data % 64 == 0 and copy.tobytes() == source.tobytes()


def test_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_PIECE", 3 << 20)
    source = mapped(tmp_path, 7 << 20)
    assert huge_pages.in_huge_pages(source).tobytes() == source.tobytes()


def test_few_bytes_stay(tmp_path: Path) -> None:
    source = mapped(tmp_path, huge_pages.LEAST - 256)
    assert huge_pages.in_huge_pages(source) is source


@pytest.mark.parametrize("reason", ["setting", "never", "other system"])
def test_bytes_stay_where_huge_pages_are_not_allowed(
    reason: str, allowed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match reason:
        case "setting":
            monkeypatch.setenv(huge_pages.SETTING, "0")
        case "never":
            allowed.write_text("always madvise [never]\n")
        case _:
            allowed.unlink()
    source = mapped(tmp_path, huge_pages.LEAST)
    assert huge_pages.in_huge_pages(source) is source


def test_a_loaded_library_has_its_constants_in_huge_pages(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = load(library)
    monkeypatch.setenv(huge_pages.SETTING, "0")
    shared = load(library)
    assert shared.library is not None and copied.library is not None
    places = [a.library.address("tw_constants") for a in (copied, shared)]  # type: ignore[union-attr]
    assert copied.constants.ctypes.data != places[0] and shared.constants.ctypes.data == places[1]
    for artifact in (copied, shared):
        np.testing.assert_array_equal(artifact.executable(1)(X.reshape(1, -1)), (WEIGHT @ X).reshape(1, -1))


_C_CALLS = """
import ctypes, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
x, y = np.load(sys.argv[2]), np.zeros(int(sys.argv[3]), np.float32)
def resident():
    found, total = False, 0
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            found = line.rstrip().endswith(sys.argv[1])
        elif found and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total
inputs, outputs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
for _ in range(2):
    for _ in range(2):
        y[:] = 0
        assert library.default_run(inputs, outputs) == 0
        sys.stdout.write(y.tobytes().hex() + "\\n")
    print(resident())
    library.default_close()
"""
"""Calls the functions for C programs twice, and again after closing; prints the answers, and the KiB of the file in
memory."""


@pytest.mark.parametrize("setting", ["", "0"])
def test_a_c_program_has_its_constants_in_huge_pages(library: Path, tmp_path: Path, setting: str) -> None:
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", _C_CALLS, library, tmp_path / "x.npy", str(ROWS)], capture_output=True, text=True,
        check=True, env={huge_pages.SETTING: setting})
    first, second, kept, third, fourth, kept_again = done.stdout.split()
    wanted = (WEIGHT @ X).tobytes().hex()
    assert [first, second, third, fourth] == [wanted] * 4
    system = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    copies = setting != "0" and system.exists() and huge_pages.NEVER not in system.read_text()
    for size in (kept, kept_again):
        assert (int(size) < 2048) == copies
