"""Saving of compiled models: `.tar` without a linker, other forms with one. `runtime/artifact.py` and
`runtime/webassembly.py` describe the forms."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.elf import is_elf64, write_data_object
from tilewright.backends.cpu.link import Linker, user_linker
from tilewright.backends.cpu.llvm.wasm_memory import MEMORY
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError
from tilewright.base.memory_faults import RECORD
from tilewright.runtime import compiler_hooks
from tilewright.runtime.artifact import MAGIC, TRAILER, Artifact, debug_folder
from tilewright.runtime.callbacks import CALLBACK
from tilewright.runtime.files import copy_hashed, write_atomically
from tilewright.runtime.host import host_triple
from tilewright.runtime.kept_values import USERS
from tilewright.runtime.library import SharedLibrary
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.modules import saved_modules
from tilewright.runtime.sealed_tar import member, sealed_tar
from tilewright.runtime.webassembly import LOADER, sealed

_POOL: Final = ("tw_pool_create", "tw_pool_destroy")
_DATA: Final = ("tw_constants", "tw_manifest")


@compiler_hooks.named_linker.provide
def named_linker(compiler: str) -> Linker:
    """Return the linker of a compiler command. Raises `OptionError` if it is not found."""
    return user_linker(compiler)


@compiler_hooks.save.provide
def save(artifact: Artifact, path: Path, linker: Linker | None = None) -> Path:
    """Write `artifact` to `path` in the form of its extension. Raises `ArtifactError`, in which case `path` is
    unchanged."""
    write = _FORMS.get(path.suffix)
    if write is None:
        raise ArtifactError(
            f"{path}: a compiled model is saved as {', '.join(f'{form} ({said})' for form, said in FORMS.items())}, "
            f"not as '{path.suffix}'", code="TW0802")
    try:
        if artifact.library is not None and artifact.path is not None:
            _copy(artifact.path, path)
        else:
            _check_form(artifact, path)
            write(artifact, path, linker)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror or error}", code="TW0801") from error
    return path


def _check_form(artifact: Artifact, path: Path) -> None:
    """Raise `ArtifactError` if the machine has no files of this form, or they cannot hold the program."""
    manifest = artifact.manifest
    form = processors.object_format(manifest.triple)
    known = {".so": "elf", ".dll": "coff", ".wasm": "wasm"}.get(path.suffix, form)
    if known != form:
        forms = [
            suffix for suffix in FORMS if {".so": "elf", ".dll": "coff", ".wasm": "wasm"}.get(suffix, form) == form]
        raise ArtifactError(
            f"{path}: code for {manifest.triple} is not saved as {path.suffix}; save it as {', '.join(forms)}",
            code="TW0802")
    if path.suffix == ".wasm" and processors.pointer_bytes(manifest.triple) != 4:
        raise ArtifactError(
            f"{path}: modules of WebAssembly have addresses of 32 bits; compile for -mtriple=wasm32-unknown-unknown",
            code="TW0802")
    if path.suffix in (".o", ".a", ".dll", ".wasm") and (manifest.functions or not manifest.is_native):
        raise ArtifactError(
            f"{path}: a {path.suffix} file holds a model as C functions, and this program has parts of other "
            "compilers, or single functions; save it as .tar", code="TW0802")
    if path.suffix == ".wasm" and manifest.symbols:
        raise ArtifactError(
            f"{path}: the loader of .wasm files takes known sizes, and this program has dynamic shapes "
            f"({', '.join(s.name for s in manifest.symbols)}); give all sizes in shapes=, or save it as .a",
            code="TW0802")


@compiler_hooks.link_for_debuggers.provide
def link_for_debuggers(artifact: Artifact) -> SharedLibrary:
    """Link the code into a library file that debuggers and profilers can read. Raises `ArtifactError` without a linker.
    """
    folder = debug_folder()
    objects = []
    for k, image in enumerate(artifact.objects):
        objects.append(folder / f"code.{k}.o")
        objects[-1].write_bytes(image)
    library = folder / f"{artifact.manifest.c_name}.so"
    _link(artifact.manifest, objects, library, artifact.symbols(), None)
    with library.open("rb") as file:
        return SharedLibrary(file.fileno(), library, stays=True)


def _copy(source: Path, path: Path) -> None:
    if path.suffix != source.suffix:
        raise ArtifactError(
            f"{path}: a model loaded from {source.name} has no object files left; save it as {source.suffix}, or "
            "compile it again", code="TW0807")
    with source.open("rb") as file:
        write_atomically(path, lambda target: shutil.copyfileobj(file, target), 0o777)


def artifact_parts(artifact: Artifact) -> tuple[Manifest, dict[str, bytes], bytes]:
    """Return the manifest with the hashes of the parts, the object files by name, and the concatenated external
    modules."""
    artifact.manifest.to_json()  # refuses programs that need Python before any compilation
    images = {f"code.{i}.o": image for i, image in enumerate(artifact.objects)}
    if not artifact.manifest.functions and artifact.manifest.is_native:
        images["entry.o"] = Target(artifact.manifest.target).backend.host_code.c_entry(artifact.manifest)
    hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
    hashes["constants"] = hashlib.sha256(artifact.constants.data).hexdigest()
    blobs = saved_modules(artifact.modules)
    joined = b"".join(blobs)
    if blobs:
        hashes["modules"] = hashlib.sha256(joined).hexdigest()
    kinds = tuple((m.type_key, len(blob)) for m, blob in zip(artifact.modules, blobs, strict=True))
    return replace(artifact.manifest, hashes=hashes, modules=kinds), images, joined


def write_constants(file: BinaryIO, artifact: Artifact, manifest: Manifest, modules: bytes) -> None:
    """Write the object with the constants and the manifest. It includes `modules` if the program is one file; a `.tar`
    has them separately."""
    text = np.frombuffer(manifest.to_json().encode() + b"\0", np.uint8)
    contents = [
        ("tw_constants", artifact.constants), ("tw_manifest", text),
        *([("tw_modules", np.frombuffer(modules, np.uint8))] if modules else [])
    ]
    if is_elf64(artifact.objects[0]):
        write_data_object(file, artifact.objects[0], contents)
    else:
        target = Target(manifest.target)
        file.write(target.backend.host_code.data(target, contents))


@contextlib.contextmanager
def _object_files(artifact: Artifact) -> Iterator[tuple[Manifest, bytes, list[Path]]]:
    """Yield the manifest, the external modules, and the objects as files of a temporary folder."""
    manifest, images, modules = artifact_parts(artifact)
    with tempfile.TemporaryDirectory(prefix="tilewright-link-") as name:
        folder = Path(name)
        for file_name, image in images.items():
            (folder / file_name).write_bytes(image)
        with (folder / "constants.o").open("wb") as constants:
            write_constants(constants, artifact, manifest, modules)
        yield manifest, modules, [folder / file_name for file_name in (*images, "constants.o")]


def _link(
    manifest: Manifest, objects: Sequence[Path], out: Path, exports: Sequence[str], linker: Linker | None
) -> None:
    """Link the objects of a program into `out` with the back end that made them. Raises `ArtifactError` if the linker
    is missing or fails."""
    Target(manifest.target).backend.link(
        objects, out, exports, manifest.triple or host_triple(), linker, manifest.scratch.stack)


def _save_library(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    with _object_files(artifact) as (manifest, modules, objects):
        library = objects[0].with_name("linked.so")
        entries = manifest.functions or (*manifest.entries, *(manifest.c_functions if manifest.is_native else ()))
        data = (*_DATA, *(["tw_modules"] if modules else []), *([RECORD] if manifest.sites else []))
        called = (*([CALLBACK] if manifest.calls else []), *([USERS] if manifest.kept else []))
        _link(manifest, objects, library, (*_POOL, *data, *entries, *called), linker)
        write_atomically(path, lambda target: _finish_library(library, manifest, target), 0o777)


def _save_dll(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    with _object_files(artifact) as (manifest, _, objects):
        library = objects[0].with_name(path.name)
        _link(manifest, objects, library, (*_DATA, *manifest.c_functions), linker)
        write_atomically(path, lambda target: _finish_library(library, manifest, target), 0o777)
        _write_header(manifest, path)


def _save_objects(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    with _object_files(artifact) as (manifest, _, objects):
        joined = objects[0].with_name(f"joined{path.suffix}")
        _link(manifest, objects, joined, (), linker)
        write_atomically(path, lambda target: shutil.copyfileobj(io.BytesIO(joined.read_bytes()), target))
        _write_header(manifest, path)


def _save_wasm(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    target = Target(artifact.manifest.target)
    with _object_files(artifact) as (manifest, _, objects):
        folder, host = objects[0].parent, target.backend.host_code
        objects[-1].write_bytes(host.data(target, [("tw_constants", artifact.constants)]))
        objects.append(folder / "memory.o")
        objects[-1].write_bytes(host.compile(MEMORY, target))
        _link(manifest, objects, folder / "linked.wasm", (*manifest.c_functions, "aligned_alloc", "free"), linker)
        module = sealed((folder / "linked.wasm").read_bytes(), manifest)
        write_atomically(path, lambda file: _fill(module, file))
        write_atomically(path.with_name(LOADER.name), lambda file: _fill(LOADER.read_bytes(), file))


def _write_header(manifest: Manifest, path: Path) -> None:
    write_atomically(path.with_suffix(".h"), lambda file: _fill(manifest.header().encode(), file))


def _fill(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _finish_library(library: Path, manifest: Manifest, target: BinaryIO) -> None:
    text = manifest.to_json().encode()
    with library.open("rb") as file:
        digest = copy_hashed(file, target, text)
    target.write(TRAILER.pack(digest, len(text), MAGIC))


def _save_tar(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    manifest, images, modules = artifact_parts(artifact)
    text = manifest.to_json().encode()
    members = {
        **images,
        **({} if manifest.functions or not manifest.is_native else {"model.h": manifest.header().encode()}),
        **({"modules": modules} if manifest.modules else {}),
        "manifest.json": text,
        "manifest.sha256": hashlib.sha256(text).hexdigest().encode(),
    }

    def write(file: BinaryIO) -> None:
        with sealed_tar(file) as archive:
            for name, data in members.items():
                archive.addfile(member(name, len(data)), io.BytesIO(data))
            with tempfile.TemporaryFile(dir=path.parent) as constants:
                write_constants(constants, artifact, manifest, b"")
                size = constants.seek(0, io.SEEK_END)
                constants.seek(0)
                archive.addfile(member("constants.o", size), constants)

    write_atomically(path, write)


FORMS: Final = {
    ".so": "a shared library", ".tar": "its objects", ".a": "an archive of them", ".o": "one object",
    ".dll": "a library of Windows", ".wasm": "a module of WebAssembly",
}
"""The extensions of saved models, each with its description."""
_FORMS: Final[dict[str, Callable[[Artifact, Path, Linker | None], None]]] = {
    ".so": _save_library, ".tar": _save_tar, ".a": _save_objects, ".o": _save_objects, ".dll": _save_dll,
    ".wasm": _save_wasm,
}
