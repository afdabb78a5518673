"""The cache on disk: what goes in comes out, damage counts as absent, several processes, eviction."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small_programs as programs
from tilewright.base.errors import InternalError
from tilewright.compiler import cache as cache_module
from tilewright.compiler.cache import VARIABLE, Cache, page_sums
from tilewright.compiler.debug_texts import write_source
from tilewright.driver.main import main
from tilewright.runtime import huge_pages
from tilewright.runtime.artifact import Artifact

X = np.arange(8, dtype="float32").reshape(2, 4) - 3
KEY = "0123456789abcdef"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def folder_of(cache: Cache) -> Path:
    assert cache.folder is not None
    return cache.folder


def stored(cache: Cache) -> Artifact:
    found = cache.get_artifact(KEY)
    assert found is not None
    return found


def test_blobs(cache: Cache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, b"one")
    cache.put(KEY, b"two")
    assert cache.get(KEY) == b"two" and Cache(cache.folder).get(KEY) == b"two" and Cache(
        str(cache.folder)
    ).get(KEY) == b"two"
    cache.put("empty-blob", b"")
    assert cache.get("empty-blob") == b""


def test_artifacts(cache: Cache) -> None:
    assert cache.get_artifact(KEY) is None
    cache.put_artifact(KEY, programs.affine())
    cache.put_artifact(KEY, programs.affine())
    found = stored(cache)
    assert isinstance(found.constants, np.memmap)
    np.testing.assert_array_equal(found.executable()(X), programs.affine_value(X))
    assert len(list((folder_of(cache) / "artifacts").iterdir())) == 1


@pytest.mark.parametrize(("setting", "alignment"), [("0", 4096), ("1", 64)])
def test_constants_are_mapped_or_in_huge_pages_and_aligned(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, setting: str, alignment: int
) -> None:
    monkeypatch.setenv(huge_pages.SETTING, setting)
    cache.put_artifact(KEY, _with_constants(32 << 20))
    found = stored(cache)
    assert isinstance(found.constants, np.memmap) == (not huge_pages.has_huge_pages(32 << 20))
    executable = found.executable()
    assert executable._constants is found.constants and found.constants.ctypes.data % alignment == 0
    np.testing.assert_array_equal(executable(X), programs.affine_value(X))


def test_a_saved_model_from_the_cache(cache: Cache, tmp_path: Path) -> None:
    cache.put_artifact(KEY, programs.affine())
    direct, cached = programs.affine().save(tmp_path / "a.so"), stored(cache).save(tmp_path / "b.so")
    assert direct.read_bytes() == cached.read_bytes()


def test_host_steps_are_not_stored(cache: Cache) -> None:
    cache.put_artifact(KEY, programs.with_host_step())
    assert cache.get_artifact(KEY) is None


def test_keys_tell_parts_apart() -> None:
    keys = {Cache.key(*parts) for parts in (("a", "bc"), ("ab", "c"), ("abc",), ("a", "bc", ""), ("größe", "bc"))}
    assert len(keys) == 5 and Cache.key("a", "bc") in keys


def test_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    cache = Cache.default()
    cache.put(KEY, b"x")
    cache.put_artifact(KEY, programs.affine())
    assert cache.folder is None and cache.get(KEY) is None and cache.get_artifact(KEY) is None and cache.size() == 0
    cache.clear()


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert Cache.default().folder == tmp_path
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.default().folder == tmp_path / "tilewright"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert Cache.default().folder == Path.home() / ".cache" / "tilewright"


def test_damaged_blob_is_removed(cache: Cache) -> None:
    cache.put(KEY, b"contents")
    path = next(folder_of(cache).glob("blobs/*/*"))
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get(KEY) is None and not path.exists()


@pytest.mark.parametrize("name", ["manifest.json", "code.0.o", "constants.bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_damaged_artifact_is_removed(cache: Cache, name: str, damage: str) -> None:
    cache.put_artifact(KEY, programs.affine())
    entry = folder_of(cache) / "artifacts" / KEY
    data = bytearray((entry / name).read_bytes())
    if damage == "remove":
        (entry / name).unlink()
    else:
        data[len(data) // 2] ^= 1
        (entry / name).write_bytes(data if damage == "flip" else data[:-1] if damage == "cut" else b"")
    assert cache.get_artifact(KEY) is None and not entry.exists()
    cache.put_artifact(KEY, programs.affine())
    assert cache.get_artifact(KEY) is not None


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    for i in range(9):
        cache.put(f"blob-number-{i}", bytes(1000))
        os.utime(cache._blob(f"blob-number-{i}"), (i, i))
    cache.get("blob-number-0")
    cache.put("one-too-many", bytes(1000))
    assert cache.size() <= 8_000
    assert cache.get("blob-number-0") is not None and cache.get("one-too-many") is not None
    assert cache.get("blob-number-1") is None and cache.get("blob-number-8") is not None


def test_artifacts_are_evicted_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1)
    cache.put_artifact(KEY, programs.affine())
    assert cache.get_artifact(KEY) is None and not list((tmp_path / "artifacts").iterdir())


def _with_constants(nbytes: int) -> Artifact:
    """The program with more constants than it needs."""
    small = programs.affine()
    data = np.zeros(nbytes, np.uint8)
    data[: small.constants.nbytes] = small.constants
    return replace(small, constants=data, manifest=replace(small.manifest, constants_bytes=data.nbytes))


def test_an_entry_that_was_moved_to_another_key_is_damaged(cache: Cache) -> None:
    cache.put(KEY, b"one")
    cache.put_artifact(KEY, programs.affine())
    other = KEY[::-1]
    moved = folder_of(cache) / "blobs" / other[-2:] / other
    moved.parent.mkdir(parents=True)
    (folder_of(cache) / "blobs" / KEY[-2:] / KEY).rename(moved)
    (folder_of(cache) / "artifacts" / KEY).rename(folder_of(cache) / "artifacts" / other)
    assert cache.get(other) is None and cache.get_artifact(other) is None
    assert not moved.exists() and not (folder_of(cache) / "artifacts" / other).exists()


def test_a_large_artifact_is_written_meanwhile(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    started, let_go = threading.Event(), threading.Event()
    real = cache_module._write_entry

    def slow(*args: Any) -> Any:
        started.set()
        assert let_go.wait(60)
        return real(*args)

    monkeypatch.setattr(cache_module, "_write_entry", slow)
    cache.put_artifact(KEY, _with_constants(2 << 20))
    assert started.wait(60)
    assert not (folder_of(cache) / "artifacts" / KEY).exists()
    let_go.set()
    assert cache.get_artifact(KEY) is not None  # waited for it
    assert cache_module._WRITING == {}
    assert cache.size() > 2 << 20


@pytest.mark.slow
def test_the_end_of_a_process_waits_for_its_artifacts(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import test_artifact_cache as t; from tilewright.compiler.cache import Cache; from pathlib import Path\n"
        "Cache(Path(sys.argv[1])).put_artifact(t.KEY, t._with_constants(32 << 20))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "cache"), str(Path(__file__).parent)], check=True)
    assert Cache(tmp_path / "cache").get_artifact(KEY) is not None
    assert [p.name for p in (tmp_path / "cache" / "artifacts").iterdir()] == [KEY]


def test_clear(cache: Cache) -> None:
    cache.put(KEY, b"x")
    cache.put_artifact(KEY, programs.affine())
    assert cache.size() > 0
    cache.clear()
    assert cache.size() == 0 and cache.get(KEY) is None


def test_the_command_says_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    monkeypatch.setenv(VARIABLE, str(folder))
    Cache.default().put(KEY, b"x" * 68)
    Cache.default().put_artifact(KEY, programs.affine())
    write_source("loops.txt", "text\n")
    assert main(["cache"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{folder}: 0.0 MB, of at most 4,295.0 MB") and [
        line.split()[:2] for line in said.splitlines()[1:]
    ] == [["kernels", "1"], ["programs", "1"], ["texts", "1"]]
    assert Cache.default().contents()["kernels"] == (1, 100) and Cache.default().contents()["texts"] == (1, 5)
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"Removed 0.0 MB from {folder}.\n"
    assert Cache.default().contents() == {"kernels": (0, 0), "programs": (0, 0), "texts": (0, 0)}
    monkeypatch.setenv(VARIABLE, "off")
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == "The cache is off: TILEWRIGHT_CACHE_DIR is 'off'.\n"


def test_unwritable_folder_warns_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = Cache(blocked / "cache")
    with pytest.warns(UserWarning, match="cannot be used .*; models are compiled each time. Set TILEWRIGHT_CACHE_DIR"):
        cache.put(KEY, b"x")
    cache.put(KEY, b"x")
    cache.put_artifact(KEY, programs.affine())
    assert cache.get(KEY) is None and cache.get_artifact(KEY) is None


@pytest.mark.parametrize("key", ["../../etc/passwd", "short", "a/b-long-enough", ""])
def test_keys_are_checked(cache: Cache, key: str) -> None:
    with pytest.raises(InternalError, match="is not a key of the cache"):
        cache.put(key, b"x")


def _work(folder: str, number: int) -> None:
    cache = Cache(Path(folder), limit=60_000)
    for round_ in range(60):
        key = f"shared-{(number + round_) % 7}"
        cache.put(key, key.encode() * 1000)
        found = cache.get(key)
        if found is not None and found != key.encode() * 1000:
            raise SystemExit(1)


@pytest.mark.slow
def test_several_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(str(tmp_path), i)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


def test_page_sums_notice_accidents() -> None:
    random = np.random.default_rng(0)
    data = random.integers(0, 256, 5 * 4096 + 100).astype(np.uint8)
    known = {page_sums(data), page_sums(data[:-1]), page_sums(np.append(data, np.uint8(0)))}
    for at in (0, 4095, 4096, 12345, data.size - 1):
        changed = data.copy()
        changed[at] ^= 8
        known.add(page_sums(changed))
    swapped, zeroed = data.copy(), data.copy()
    swapped[:4096], swapped[4096:8192] = data[4096:8192], data[:4096]
    zeroed[8192:12288] = 0
    assert len(known | {page_sums(swapped), page_sums(zeroed)}) == 10
    assert page_sums(data) == page_sums(data.copy())
    assert page_sums(data[:0]) == page_sums(np.empty(0, np.uint8))
