"""The cache on disk: named blobs and whole artifacts, under keys that the caller derives from content.

    <folder>/blobs/<last two of key>/<key>    sha256 of the key and the contents, then the contents
    <folder>/artifacts/<key>/                 manifest.json (with the hashes), code.N.o, constants.bin

Entries are written to temporary files and renamed, so several processes can share a folder, and readers never see a
partial entry. A damaged entry counts as absent and is removed. Above the size limit, the least recently used entries
are removed. Constants are mapped, not copied, so processes share their memory. A thread writes a large artifact while
its program already runs. Readers in this process wait for it, and so does the exit of the process.

The checks detect accidental damage, such as a full disk, a lost block or a mistaken edit. They do not protect against
other writers of the folder, who could replace the code as well. Constants, which are most of an entry, have a checksum
over page sums, computed at memory speed; sha256 takes half a second per gigabyte. Code and manifest are small, and have
a sha256.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError, CacheWarning, InternalError
from tilewright.base.forks import new_lock
from tilewright.runtime.artifact import Artifact, map_constants
from tilewright.runtime.files import write_atomically
from tilewright.runtime.manifest import Manifest

VARIABLE: Final = "TILEWRIGHT_CACHE_DIR"
DEFAULT_LIMIT: Final = 4 << 30
_KEY: Final = re.compile(r"[A-Za-z0-9][\w.-]{7,127}", re.ASCII)
_DIGEST_BYTES: Final = 32
_PAGE: Final = 4096
_KEPT_AFTER_EVICTION: Final = 0.8
_WRITTEN_AT_ONCE: Final = 1 << 20
"""Largest size of constants, in bytes, for which `put_artifact` writes the artifact before it returns."""
_WRITING: Final[dict[Path, threading.Thread]] = {}
"""The entries that threads of this process are writing."""


class Cache:
    """A folder of entries. Without a folder, the cache is disabled and stores nothing."""

    def __init__(self, folder: str | os.PathLike[str] | None, limit: int = DEFAULT_LIMIT) -> None:
        """`folder` is a path, created if it is missing; `limit` is in bytes."""
        self.folder = None if folder is None else Path(folder)
        self.limit = limit
        self._size: int | None = None
        self._lock = new_lock()
        self._warned = False

    @staticmethod
    def default() -> Cache:
        """Return the cache in `$TILEWRIGHT_CACHE_DIR` (`off`: disabled), else in `tilewright` of `$XDG_CACHE_HOME` or
        `~/.cache`. There is one object for each folder."""
        named = os.environ.get(VARIABLE, "")
        if named == "off":
            return Cache(None)
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return _cache_in(Path(named).expanduser() if named else Path(base) / "tilewright")

    @staticmethod
    def key(kind: str, *parts: str) -> str:
        """Return a key for a result that is derived from `parts`, arbitrary texts."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode())
        return f"{kind}-{digest.hexdigest()}"

    def get(self, key: str) -> bytes | None:
        """Return the blob stored under `key`, or None."""
        if self.folder is None:
            return None
        path = self._blob(key)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        contents = stored[_DIGEST_BYTES:]
        if _digest(key, contents) != stored[:_DIGEST_BYTES]:
            path.unlink(missing_ok=True)
            return None
        _touch(path)
        return contents

    def put(self, key: str, contents: bytes) -> None:
        """Store a blob. A folder that is not writable causes one warning."""
        if self.folder is None:
            return
        path = self._blob(key)
        digest = _digest(key, contents)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda file: file.writelines((digest, contents)))
            self._grown(_DIGEST_BYTES + len(contents))
        except OSError as error:
            self._give_up(error)

    def get_artifact(self, key: str) -> Artifact | None:
        """Return the artifact stored under `key`, its constants mapped from the file, or None."""
        if self.folder is None:
            return None
        entry = self._artifact(key)
        _written(entry)
        try:
            text = (entry / "manifest.json").read_bytes()
            artifact = _read_entry(entry, text)
        except FileNotFoundError:
            if entry.exists():
                self._remove(entry)
            return None
        except ArtifactError:
            self._remove(entry)
            return None
        except OSError as error:
            self._give_up(error)
            return None
        _touch(entry)
        return artifact

    def put_artifact(self, key: str, artifact: Artifact) -> None:
        """Store a native artifact that was compiled in this process; ignore others. A large artifact is written by a
        thread."""
        if self.folder is None or not artifact.manifest.is_native or not artifact.objects:
            return
        entry = self._artifact(key)
        temporary = entry.with_name(f".{entry.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            temporary.mkdir(parents=True)
        except OSError as error:
            self._give_up(error)
            return
        if artifact.constants.nbytes <= _WRITTEN_AT_ONCE:
            self._write(artifact, temporary, entry)
            return
        _written(entry)
        thread = _WRITING[entry] = threading.Thread(
            target=self._write, args=(artifact, temporary, entry), name="tilewright-cache"
        )
        thread.start()

    def _write(self, artifact: Artifact, temporary: Path, entry: Path) -> None:
        try:
            size = _write_entry(temporary, entry.name, artifact)
            _put_in_place(temporary, entry)
            self._grown(size)
        except OSError as error:
            self._give_up(error)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if _WRITING.get(entry) is threading.current_thread():
                del _WRITING[entry]

    def clear(self) -> None:
        """Remove all entries, and the sources for debuggers."""
        self.wait()
        for _, _, path in self._entries():
            self._remove(path)
        for path in self._texts():
            self._remove(path)
        self._size = None

    def contents(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of kernels, programs and sources for debuggers, and the bytes of each kind."""
        self.wait()
        found = {"kernels": [0, 0], "programs": [0, 0], "texts": [0, 0]}
        for _, nbytes, path in self._entries():
            row = found["programs" if path.parent.name == "artifacts" else "kernels"]
            row[0] += 1
            row[1] += nbytes
        for path in self._texts():
            found["texts"][0] += 1
            found["texts"][1] += sum(f.stat().st_size for f in path.iterdir())
        return {kind: (count, nbytes) for kind, (count, nbytes) in found.items()}

    def size(self) -> int:
        """Return the bytes of all entries."""
        self.wait()
        return self._measured()

    def _measured(self) -> int:
        return sum(size for _, size, _ in self._entries())

    def wait(self) -> None:
        """Wait until this process has written all its entries in the folder."""
        for entry in [e for e in list(_WRITING) if self.folder is not None and e.is_relative_to(self.folder)]:
            _written(entry)

    def _blob(self, key: str) -> Path:
        return self._place(key) / "blobs" / key[-2:] / key

    def _artifact(self, key: str) -> Path:
        return self._place(key) / "artifacts" / key

    def _place(self, key: str) -> Path:
        if self.folder is None or not _KEY.fullmatch(key):
            raise InternalError(f"'{key}' is not a key of the cache")
        return self.folder

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield time of last use, bytes, and path of each entry; entries that vanish meanwhile are skipped."""
        if self.folder is None:
            return
        for path in (*self.folder.glob("blobs/*/*"), *self.folder.glob("artifacts/*")):
            try:
                used = path.stat()
                size = sum(f.stat().st_size for f in path.iterdir()) if path.is_dir() else used.st_size
            except FileNotFoundError:
                continue
            yield used.st_mtime, size, path

    def _texts(self) -> list[Path]:
        """Return the folders of sources for debuggers (`compiler/debug_texts.py`)."""
        return [] if self.folder is None else [path for path in self.folder.glob("sources/*") if path.is_dir()]

    def _grown(self, by: int) -> None:
        """Add to the size, and evict above the limit. The folder is measured once, and again at each eviction."""
        with self._lock:
            self._size = self._measured() if self._size is None else self._size + by
            if self._size <= self.limit:
                return
            entries = sorted(self._entries(), key=lambda entry: entry[0])
            total = sum(size for _, size, _ in entries)
            for _, size, path in entries if total > self.limit else ():
                if total <= _KEPT_AFTER_EVICTION * self.limit:
                    break
                self._remove(path)
                total -= size
            self._size = total

    def _remove(self, path: Path) -> None:
        """Remove an entry; it is renamed first, so that no reader sees half of it."""
        doomed = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            path.rename(doomed)
        except FileNotFoundError:
            return
        except OSError as error:
            self._give_up(error)
            return
        if doomed.is_dir():
            shutil.rmtree(doomed, ignore_errors=True)
        else:
            doomed.unlink(missing_ok=True)

    def _give_up(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the cache in {self.folder} cannot be used ({error}); models are compiled each time. "
                f"Set {VARIABLE} to a folder that can be written, or to 'off'",
                CacheWarning, stacklevel=3,
            )


@functools.lru_cache(maxsize=8)
def _cache_in(folder: Path) -> Cache:
    """Return the cache in a folder. If other users can write there, warn and disable it, because native code is loaded
    from it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return Cache(folder)  # the first use reports the error
    if found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return Cache(folder)
    warnings.warn(
        f"the cache in {folder} is not used: it belongs to another user, or other users may write into it, and native "
        f"code is loaded from it. Run chmod 700 {folder}, or set {VARIABLE} to a folder of your own, or to 'off'",
        CacheWarning, stacklevel=3,
    )
    return Cache(None)


def page_sums(data: np.ndarray[Any, Any]) -> str:
    """Return a checksum of a uint8 array: sha256 over the 64-bit sum of each page of 4096 bytes, and the bytes after
    the last whole page."""
    whole = data.size // _PAGE * _PAGE
    sums = data[:whole].view(np.uint64).reshape(-1, _PAGE // 8).sum(axis=1, dtype=np.uint64)
    return hashlib.sha256(sums.tobytes() + data[whole:].tobytes()).hexdigest()


def _written(entry: Path) -> None:
    """Wait for the thread that writes `entry`, if there is one."""
    thread = _WRITING.get(entry)
    if thread is not None and thread is not threading.current_thread():
        thread.join()


def _put_in_place(temporary: Path, entry: Path) -> None:
    """Rename `temporary`, unless another process has meanwhile written an equal entry."""
    try:
        temporary.rename(entry)
    except OSError:
        if not entry.is_dir():
            raise


def _touch(path: Path) -> None:
    """Record the use of an entry. Evicted entries and read-only caches are ignored."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.utime(path)


def _digest(key: str, contents: bytes) -> bytes:
    """Return the checksum of an entry; it covers the key, so an entry moved to another key counts as damaged."""
    return hashlib.sha256(key.encode() + b"\n" + contents).digest()


def _write_entry(folder: Path, key: str, artifact: Artifact) -> int:
    images = {f"code.{i}.o": image for i, image in enumerate(artifact.objects)}
    hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
    hashes["constants"] = page_sums(artifact.constants)
    text = artifact.manifest.with_hashes(hashes).to_json().encode()
    for name, image in images.items():
        (folder / name).write_bytes(image)
    artifact.constants.tofile(folder / "constants.bin")
    (folder / "manifest.json").write_bytes(_digest(key, text).hex().encode() + b"\n" + text)
    return sum(map(len, images.values())) + artifact.constants.nbytes + len(text)


def _read_entry(entry: Path, stored: bytes) -> Artifact:
    digest, _, text = stored.partition(b"\n")
    if _digest(entry.name, text).hex().encode() != digest:
        raise ArtifactError(f"{entry}: damaged", code="TW0804")
    manifest = Manifest.from_json(text, str(entry))
    images = [(entry / name).read_bytes() for name in manifest.hashes if name != "constants"]
    wanted = [digest for name, digest in manifest.hashes.items() if name != "constants"]
    constants = map_constants(entry / "constants.bin", 0, manifest.constants_bytes)
    if [hashlib.sha256(image).hexdigest() for image in images] != wanted:
        raise ArtifactError(f"{entry}: damaged", code="TW0804")
    if page_sums(constants) != manifest.hashes.get("constants"):
        raise ArtifactError(f"{entry}: damaged", code="TW0804")
    return Artifact(manifest, tuple(images), constants)
