"""Hostile archives, cache folders and names; and that `SECURITY.md` names tests that exist."""

from __future__ import annotations

import io
import os
import re
import tarfile
import warnings
from pathlib import Path

import pytest

from tilewright.backends.cpu.llvm.perf import _write_map
from tilewright.base.errors import ArtifactError, CacheWarning, InputError
from tilewright.compiler.cache import _cache_in
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.runtime.rpc.files import file


def test_sparse_members_are_refused_before_they_are_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("mod.so")
    info.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "mod.so",
        "GNU.sparse.realsize": str(3 << 30)
    }
    content = b"0\n".ljust(512, b"\0")
    info.size = len(content)
    with tarfile.open(tmp_path / "m.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
    with pytest.raises(ArtifactError, match="is not a plain file; sparse files"):
        TVMCPackage(tmp_path / "m.tar")


def test_links_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("mod.so")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.addfile(info)
    with pytest.raises(ArtifactError, match="is not a plain file"):
        TVMCPackage(tmp_path / "m.tar")


def test_a_cache_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    tmp_path.joinpath("c").mkdir()
    tmp_path.joinpath("c").chmod(0o777)
    with pytest.warns(CacheWarning, match="native code is loaded from it"):
        assert _cache_in(tmp_path / "c").folder is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _cache_in(tmp_path / "own").folder == tmp_path / "own"
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("c").mkdir(mode=0o700)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert _cache_in(tmp_path / "c").folder is None


def test_the_map_of_perf_follows_no_link(tmp_path: Path) -> None:
    place = Path(f"/tmp/perf-{os.getpid()}.map")
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / "victim")
    try:
        with pytest.raises(OSError, match="symbolic links"):
            _write_map({"f": (1, 2)})
    finally:
        place.unlink()
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "../x", ""])
def test_names_of_uploads_are_plain(name: str) -> None:
    with pytest.raises(InputError, match="is not a valid file name in a session"):
        file(name)


def test_the_tests_that_the_security_page_names_exist() -> None:
    root = Path(__file__).resolve().parent.parent
    named = re.findall(r"`(tests/\w+\.py)::(test_\w+)`", (root / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 10
    for path, name in named:
        assert re.search(
            rf"^def {name}\b", (root / path).read_text(encoding="utf-8"), re.MULTILINE
        ), f"{path} has no {name}"
