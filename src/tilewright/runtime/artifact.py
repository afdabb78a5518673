"""A compiled model in memory and as a file.

    model.so    ELF library · manifest (JSON) · sha256 of all before · length of the manifest · magic
    model.tar   code.N.o · entry.o · model.h · modules · manifest.json · manifest.sha256 · constants.o · archive.sha256

The checksum of a library is verified before the system's loader reads it. Writing a `.tar` needs no linker; the
compiler loads its objects, or the user unpacks and links them. Loading a `.so` needs only numpy.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import struct
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.memory_faults import RECORD
from tilewright.base.nd import under_sanitizer
from tilewright.runtime import compiler_hooks, host, webassembly
from tilewright.runtime.callbacks import CALLBACK
from tilewright.runtime.elf_sections import manifests
from tilewright.runtime.executable import Executable
from tilewright.runtime.files import temporary_folder
from tilewright.runtime.huge_pages import in_huge_pages
from tilewright.runtime.kept_values import USERS
from tilewright.runtime.library import SharedLibrary
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.modules import ModuleNode, load_modules
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.program import Code
from tilewright.runtime.records import RecordExecutable
from tilewright.runtime.scratch import most
from tilewright.runtime.sealed_tar import is_sealed, plain_members

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker

MAGIC: Final = b"TILEWRIGHT-LIB-1"
TRAILER: Final = struct.Struct("<32sQ16s")
STAGES_MEMBER: Final = "stages.json"
"""The first member of a `.tar` of a program in stages."""
CONSTANTS_OFFSET: Final = 64
"""Offset of the constants in `constants.o`: after the ELF header."""
_POOL: Final = ("tw_pool_create", "tw_pool_destroy")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Manifest, object files and constants (uint8, read-only); `library` and `path` if it was loaded from a `.so`."""

    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: np.ndarray[Any, Any]
    library: SharedLibrary | None = None
    path: Path | None = None
    modules: tuple[ModuleNode, ...] = ()
    """Modules of other compilers, called by external steps."""

    def executable(self, threads: int | None = None) -> Executable:
        """Return the program, loaded into this process; `threads` overrides the number in the manifest.

        Raises `ArtifactError` if the code is for another machine.
        """
        if self.manifest.functions:
            raise ArtifactError(
                f"{self.path}: a library of functions ({', '.join(self.manifest.functions)}), not a model; read it "
                "with runtime.load_module",
                code="TW0809")
        entry = self.manifest.entry
        if entry is not None and (entry.is_boxed or entry.records):
            return RecordExecutable(self.manifest, self.code(), self.constants, threads, modules=self.modules)
        if self.manifest.symbols:
            return OpenExecutable(self.manifest, self.code(), self.constants, threads)
        return Executable(self.manifest, self.code(), self.constants, threads, modules=self.modules)

    def code(self) -> Code:
        """Return the code, loaded into this process. Raises `ArtifactError` if it is for another machine."""
        check_host(self.manifest, self.path or f"model '{self.manifest.name}'")
        return self.library or self._link_in_process()

    def header(self) -> str:
        """Return the C header of `<name>_run`."""
        return self.manifest.header()

    def save(self, path: str | os.PathLike[str], linker: Linker | None = None) -> Path:
        """Write a `.so` or `.tar` atomically; raises `ArtifactError`. Needs the compiler."""
        return compiler_hooks.save(self, Path(path), linker)

    def _link_in_process(self) -> Code:
        try:
            if self.manifest.debug:
                return compiler_hooks.link_for_debuggers(self)
            return compiler_hooks.load_objects(self.objects, self.symbols())
        except ImportError as error:
            raise ArtifactError(
                f"object files can only be loaded where the compiler is installed ({error}); save the model as .so",
                code="TW0807"
            ) from error

    def symbols(self) -> tuple[str, ...]:
        """Return the symbols of the code that the runtime looks up."""
        entries = self.manifest.functions or self.manifest.entries
        return (
            *entries, *_POOL, *([CALLBACK] if self.manifest.calls else []),
            *([RECORD] if self.manifest.sites else []), *([USERS] if self.manifest.kept else [])
        )


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read a `.so`, a `.tar`, or a Model Library of one program. Raises `ArtifactError` for a file that is damaged, not
    an artifact, or made for another machine, such as a `.wasm`."""
    file = Path(path)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read: {error.strerror}", code="TW0803") from error
    try:
        start = os.pread(descriptor, 512, 0)
        if start[:4] == b"\x7fELF":
            manifest = _checked_library(descriptor, file)
        elif start[:8] == webassembly.MAGIC:
            manifest = webassembly.read_manifest(file.read_bytes(), str(file))
            raise ArtifactError(
                f"{file}: '{manifest.name}' is a WebAssembly module, which Python cannot run; load it in Node.js or a "
                f"browser with {webassembly.LOADER.name} in the same folder",
                code="TW0805")
        elif start[257:262] == b"ustar":
            if _is_staged(start):
                raise ArtifactError(
                    f"{file}: a program in stages, not a single artifact; load it with tilewright.load",
                    code="TW0809")
            return load_tar(file)
        else:
            raise ArtifactError(
                f"{file}: not a compiled model (neither a library nor a tar); expected what save() or export_library() "
                "wrote",
                code="TW0803")
        library = _loaded(descriptor, file, manifest)
    finally:
        os.close(descriptor)
    if manifest.functions and not manifest.constants_bytes:
        return Artifact(manifest, (), np.empty(0, np.uint8), library, file)
    try:
        constants = in_huge_pages(library.bytes_at("tw_constants", manifest.constants_bytes))
        blobs = (
            bytes(library.bytes_at("tw_modules", sum(size for _, size in manifest.modules))) if manifest.modules
            else b""
        )
    except KeyError as error:
        raise ArtifactError(
            f"{file}: the library has no symbol {error}; compile the model again", code="TW0803"
        ) from error
    return Artifact(manifest, (), constants, library, file, _modules(manifest, blobs, file))


def _loaded(descriptor: int, file: Path, manifest: Manifest) -> SharedLibrary:
    """Load the library into this process; if external tools read its code, under its file name."""
    if manifest.sanitizer:
        if "address" in manifest.sanitizer.split(",") and not under_sanitizer():
            raise ArtifactError(
                f"{file}: made for AddressSanitizer, which must be loaded when the process starts: tilewright debug "
                "asan SCRIPT", code="TW0811")
        return SharedLibrary(descriptor, file.resolve(), stays=True)
    return _for_debuggers(descriptor, file) if manifest.debug else SharedLibrary(descriptor, file)


def _for_debuggers(descriptor: int, file: Path) -> SharedLibrary:
    """Load a uniquely named copy of the library that exists until the process ends."""
    path = debug_folder() / file.name
    with path.open("wb") as copy:
        os.sendfile(copy.fileno(), descriptor, 0, os.fstat(descriptor).st_size)
    return SharedLibrary(descriptor, path, stays=True)


PERF: Final = "TILEWRIGHT_PERF"
"""The environment variable that enables output for perf (`backends/cpu/llvm/perf.py`); if it is set, code for debuggers
is kept after the process ends."""


def debug_folder() -> Path:
    """Return a new folder for code that debuggers read. It is removed when the process ends, unless perf needs it."""
    prefix = "tilewright-debug-"
    return Path(tempfile.mkdtemp(prefix=prefix)) if os.environ.get(PERF) else temporary_folder(prefix)


def check_host(manifest: Manifest, where: object) -> None:
    """Raise `ArtifactError` if this machine cannot run the code of `manifest`."""
    arch = manifest.triple.split("-")[0]
    if arch and arch != host.host_arch():
        raise ArtifactError(
            f"{where}: made for {arch}, this machine is {host.host_arch()}; compile it here, or with -mtriple of this "
            "machine",
            code="TW0805")
    system, ours = host.system_of(manifest.triple), host.system_of(host.host_triple())
    if system not in ("", ours):
        raise ArtifactError(
            f"{where}: made for {system}, this machine runs {ours}; compile it here, or with -mtriple of this machine",
            code="TW0805")
    present = host.host_features()
    missing = sorted(set(manifest.features) - present)
    if missing:
        level = next((name for name, base in _LEVELS.items() if base in present), "generic")
        raise ArtifactError(
            f"{where}: made for a CPU with {', '.join(missing)}, this machine lacks "
            f"{'it' if len(missing) == 1 else 'them'}: compile with --target 'llvm -mcpu={level}'", code="TW0805")


def runs_here(manifest: Manifest) -> bool:
    """Whether this machine can run the code of `manifest`."""
    if host.system_of(manifest.triple) not in ("", host.system_of(host.host_triple())):
        return False
    return manifest.triple.split("-")[0] in ("", host.host_arch()) and set(manifest.features) <= host.host_features()


_LEVELS: Final = {"x86-64-v4": "avx512vl", "x86-64-v3": "avx2", "x86-64-v2": "sse4.2", "x86-64": "sse2"}


def _checked_library(descriptor: int, file: Path) -> Manifest:
    size = os.fstat(descriptor).st_size
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as view:
        tail = view[max(0, size - TRAILER.size) :]
        if len(tail) < TRAILER.size or not tail.endswith(MAGIC):
            return _manifest_of_objects(view, file)
        digest, length, _ = TRAILER.unpack(tail)
        end = size - TRAILER.size
        with memoryview(view) as whole, whole[:end] as checked:
            if length > end or hashlib.sha256(checked).digest() != digest:
                raise _damaged(file)
        manifest = Manifest.from_json(view[end - length : end], str(file))
    check_host(manifest, file)
    return manifest


def _manifest_of_objects(image: bytes | mmap.mmap, file: Path) -> Manifest:
    """Return the manifest of a library that a compiler linked from object files of functions."""
    found = [Manifest.from_json(text.encode(), str(file)) for text in manifests(bytes(image))]
    if not found:
        raise ArtifactError(
            f"{file}: the library does not end in the mark of a compiled model: it is truncated, stripped, or not made "
            "by tilewright",
            code="TW0804")
    functions = {name: params for m in found for name, params in m.functions.items()}
    for manifest in found:
        check_host(manifest, file)
    return replace(found[0], functions=functions, scratch=most(m.scratch for m in found))


def load_tar(file: Path, offset: int = 0, is_whole: bool = True) -> Artifact:
    """Read a `.tar`, or a Model Library of one program. If `is_whole` is false, it begins at `offset` in a file that is
    itself sealed. Raises `ArtifactError` if the file is damaged."""
    if is_whole and not is_sealed(file):
        raise _damaged(file)
    try:
        with file.open("rb") as stream, tarfile.open(fileobj=_from(stream, offset), mode="r:") as archive:
            members = {member.name: [member] for member in plain_members(archive, file.stat().st_size)}
            if _METADATA in members:
                members = _of_model_library(members, file)
            text = _member(archive, members, "manifest.json", file)
            digest = hashlib.sha256(text).hexdigest().encode()
            if "manifest.sha256" in members and digest != _member(archive, members, "manifest.sha256", file):
                raise _damaged(file)
            manifest = Manifest.from_json(text, str(file))
            check_host(manifest, file)
            objects = {name: _member(archive, members, name, file) for name in manifest.hashes if name != "constants"}
            if any(hashlib.sha256(image).hexdigest() != manifest.hashes[name] for name, image in objects.items()):
                raise _damaged(file)
            (last,) = members["constants.o"]
            offset = last.offset_data + CONSTANTS_OFFSET
            if last.offset_data + last.size > file.stat().st_size:
                raise _damaged(file)
    except (tarfile.TarError, KeyError, EOFError, ValueError) as error:
        raise _damaged(file) from error
    constants = map_constants(file, offset, manifest.constants_bytes)
    if hashlib.sha256(constants.data).hexdigest() != manifest.hashes.get("constants"):
        raise _damaged(file)
    code = tuple(image for name, image in objects.items() if name.startswith("code."))
    return Artifact(manifest, code, constants, None, file, _modules(manifest, objects.get("modules", b""), file))


_METADATA: Final = "./metadata.json"
"""The member that a Model Library begins with."""
_OBJECTS, _MANIFESTS, _EXTERNAL = "./codegen/host/lib/", "./executor-config/aot/", "./external/"
"""Folders of a Model Library with the objects, the manifest, and the modules of other compilers, in order of
numbers."""


def _of_model_library(
    members: dict[str, list[tarfile.TarInfo]], file: Path
) -> dict[str, list[tarfile.TarInfo]]:
    """Return the members of the program in a Model Library under the names of a `.tar`. The archive is sealed, so that
    the manifest needs no digest. Raises `ArtifactError` for a library of several programs, and for a model in C."""
    manifests = [n for n in members if n.startswith(_MANIFESTS) and n.endswith(".json")]
    if not manifests and any(n.startswith("./codegen/host/src/") for n in members):
        raise ArtifactError(
            f"'{file}' is a model in C, which a project compiles; make one: tvmc micro create-project DIR {file.name} "
            "host, or compile for the target llvm", code="TW0809")
    if len(manifests) != 1:
        raise ArtifactError(
            f"{file}: this model library has {len(manifests)} programs; only a library of one can be run",
            code="TW0809")
    external = sorted(
        (n for n in members if n.startswith(_EXTERNAL)),
        key=lambda n: int(n.removeprefix(_EXTERNAL).partition(".")[0]))
    return {
        **{n.removeprefix(_OBJECTS): m for n, m in members.items() if n.startswith(_OBJECTS)},
        "manifest.json": members[manifests[0]], "modules": [m for n in external for m in members[n]]}


def _modules(manifest: Manifest, blobs: bytes, file: Path) -> tuple[ModuleNode, ...]:
    """Load the modules from their concatenated bytes."""
    ends = [*itertools.accumulate(size for _, size in manifest.modules)]
    if len(blobs) != (ends[-1] if ends else 0):
        raise _damaged(file)
    parts = [(kind, blobs[end - size : end]) for (kind, size), end in zip(manifest.modules, ends, strict=True)]
    return load_modules(parts, file)


def map_constants(file: Path, offset: int, count: int) -> np.ndarray[Any, Any]:
    """Return `count` bytes of a file as a read-only array: many in huge pages, few by mapping the pages of the file."""
    if offset + count > file.stat().st_size:
        raise _damaged(file)
    if not count:
        return np.empty(0, np.uint8)
    return in_huge_pages(np.memmap(file, np.uint8, "r", offset, (count,)))


def _member(archive: tarfile.TarFile, members: dict[str, list[tarfile.TarInfo]], name: str, file: Path) -> bytes:
    """Return the bytes of a member, which are joined where it has several parts."""
    found = []
    for part in members[name]:
        stream = archive.extractfile(part)
        if stream is None or part.size > file.stat().st_size:
            raise _damaged(file)
        with stream:
            found.append(stream.read())
    return b"".join(found)


def _damaged(file: Path) -> ArtifactError:
    return ArtifactError(
        f"{file}: the file is damaged (its contents do not match its checksum); copy it again, or compile the model "
        "again",
        code="TW0804")


def _from(stream: BinaryIO, offset: int) -> BinaryIO:
    stream.seek(offset)
    return stream


def _is_staged(start: bytes) -> bool:
    """Whether the first bytes of a tar are those of a program in stages (`compiler/saved_stages.py`)."""
    return start[:100].rstrip(b"\0") == STAGES_MEMBER.encode()


def is_staged(path: str | os.PathLike[str]) -> bool:
    """Whether a file exists and contains a program in stages."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return _is_staged(stream.read(100))


@no_garbage_collection()
def load_executable(path: str | os.PathLike[str], threads: int | None = None) -> Executable | Any:
    """Load a saved model. A program in stages needs the compiler, because it may compile more stages.

    Raises `ArtifactError` if it is damaged or made for another machine.
    """
    if is_staged(path):
        return compiler_hooks.load_stages(Path(path), threads)
    return load(path).executable(threads)
