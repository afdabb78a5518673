"""Saving a compiled model: `.so` through a linker, `.tar` without one. The forms are described in `runtime/artifact.py`."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from tilewright.errors import ArtifactError
from tilewright.faults import RECORD
from tilewright.runtime.artifact import MAGIC, TRAILER, Artifact, debug_folder
from tilewright.runtime.callbacks import CALLBACK
from tilewright.runtime.files import copy_hashed, write_atomically
from tilewright.runtime.library import SharedLibrary
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.modules import saved_modules
from tilewright.runtime.program import entry_symbols
from tilewright.target.elf import write_data_object
from tilewright.target.link import Linker, link_shared
from tilewright.target.llvm.compile import compile_text
from tilewright.target.llvm.entry import emit_c_entry
from tilewright.target.target import Target

_POOL: Final = ("tw_pool_create", "tw_pool_destroy")
_DATA: Final = ("tw_constants", "tw_manifest")


def save(artifact: Artifact, path: Path, linker: Linker | None = None) -> Path:
    """Write `artifact` to `path`; the extension says how. Raises `ArtifactError`, and then `path` is as it was."""
    if path.suffix not in (".so", ".tar"):
        raise ArtifactError(f"{path}: a compiled model is saved as .so (one shared library) or .tar (its objects), not as '{path.suffix}'", code="TW0802")
    try:
        if artifact.library is not None and artifact.path is not None:
            _copy(artifact.path, path)
        elif path.suffix == ".so":
            _save_library(artifact, path, linker)
        else:
            _save_tar(artifact, path)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror or error}", code="TW0801") from error
    return path


def link_for_debuggers(artifact: Artifact) -> SharedLibrary:
    """The code as a library in a file, which debuggers and profilers see as they see any other. Raises `ArtifactError` without a linker."""
    folder = debug_folder()
    objects = []
    for k, image in enumerate(artifact.objects):
        objects.append(folder / f"code.{k}.o")
        objects[-1].write_bytes(image)
    library = folder / f"{artifact.manifest.c_name}.so"
    link_shared(objects, library, artifact.symbols(), artifact.manifest.triple.split("-")[0])
    with library.open("rb") as file:
        return SharedLibrary(file.fileno(), library, stays=True)


def _copy(source: Path, path: Path) -> None:
    if path.suffix != source.suffix:
        raise ArtifactError(f"{path}: a model loaded from {source.name} has no object files left; save it as {source.suffix}, or compile it again", code="TW0807")
    with source.open("rb") as file:
        write_atomically(path, lambda target: shutil.copyfileobj(file, target), 0o777)


def artifact_parts(artifact: Artifact) -> tuple[Manifest, dict[str, bytes], bytes]:
    """The manifest with the hashes of the parts, the object files by name, and what other compilers made, one behind the other."""
    artifact.manifest.to_json()  # refuses a program that needs Python before anything is compiled
    images = {f"code.{i}.o": image for i, image in enumerate(artifact.objects)}
    if not artifact.manifest.functions and artifact.manifest.is_native:
        images["entry.o"] = compile_text(emit_c_entry(artifact.manifest), Target(artifact.manifest.target))
    hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
    hashes["constants"] = hashlib.sha256(artifact.constants.data).hexdigest()
    blobs = saved_modules(artifact.modules)
    joined = b"".join(blobs)
    if blobs:
        hashes["modules"] = hashlib.sha256(joined).hexdigest()
    kinds = tuple((m.type_key, len(blob)) for m, blob in zip(artifact.modules, blobs, strict=True))
    return replace(artifact.manifest, hashes=hashes, modules=kinds), images, joined


def write_constants(file: BinaryIO, artifact: Artifact, manifest: Manifest, modules: bytes) -> None:
    """`modules` are in it where a program is one file: a `.tar` has them beside it."""
    text = np.frombuffer(manifest.to_json().encode() + b"\0", np.uint8)
    contents = [("tw_constants", artifact.constants), ("tw_manifest", text), *([("tw_modules", np.frombuffer(modules, np.uint8))] if modules else [])]
    write_data_object(file, artifact.objects[0], contents)


def _save_library(artifact: Artifact, path: Path, linker: Linker | None) -> None:
    manifest, images, modules = artifact_parts(artifact)
    with tempfile.TemporaryDirectory(prefix="tilewright-link-") as name:
        folder = Path(name)
        for file_name, image in images.items():
            (folder / file_name).write_bytes(image)
        with (folder / "constants.o").open("wb") as constants:
            write_constants(constants, artifact, manifest, modules)
        objects = [folder / file_name for file_name in (*images, "constants.o")]
        library = folder / "linked.so"
        callable_from_c = (f"{manifest.c_name}_run", f"{manifest.c_name}_close") if manifest.is_native else ()
        entries = manifest.functions or (*entry_symbols(manifest.steps), *callable_from_c)
        data = (*_DATA, *(["tw_modules"] if modules else []), *([RECORD] if manifest.sites else []))
        link_shared(objects, library, (*_POOL, *data, *entries, *([CALLBACK] if manifest.calls else [])), manifest.triple.split("-")[0], linker)
        write_atomically(path, lambda target: _finish_library(library, manifest, target), 0o777)


def _finish_library(library: Path, manifest: Manifest, target: BinaryIO) -> None:
    text = manifest.to_json().encode()
    with library.open("rb") as file:
        digest = copy_hashed(file, target, text)
    target.write(TRAILER.pack(digest, len(text), MAGIC))


def _save_tar(artifact: Artifact, path: Path) -> None:
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
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in members.items():
                archive.addfile(member(name, len(data)), io.BytesIO(data))
            with tempfile.TemporaryFile(dir=path.parent) as constants:
                write_constants(constants, artifact, manifest, b"")
                size = constants.seek(0, io.SEEK_END)
                constants.seek(0)
                archive.addfile(member("constants.o", size), constants)

    write_atomically(path, write)


def member(name: str, size: int) -> tarfile.TarInfo:
    """A header without time or owner, so that equal models are equal files."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info
