"""Reader of Model Library Format archives with models in C.

    metadata.json                        the name, inputs, outputs, bytes of memory
    codegen/host/src/<name>.c            the model, with its constants
    codegen/host/include/<name>.h
    codegen/host/test/<name>_test.c      compares it with known answers
    codegen/host/test/main.c             runs it on files
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.backends.cpu.c.text import identifier
from tilewright.base.errors import ArtifactError, CompileError
from tilewright.base.json_reading import read_json
from tilewright.base.types import DataType
from tilewright.compiler.model_library import c_paths
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.sealed_tar import plain_members

_LARGEST: Final = 1 << 30
"""Largest size of a file in a library, in bytes."""


@dataclass(frozen=True)
class ModelLibrary:
    """A model in C: its files by their names in a project, its inputs and outputs."""

    name: str
    files: Mapping[str, str]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def read_model_library(path: str | os.PathLike[str]) -> ModelLibrary:
    """Read the model of a library. Raises `ArtifactError` for a file that is not a library, has several models, or has
    a model that is not C text."""
    content = _members(Path(path))
    try:
        modules = read_json(content["metadata.json"])["modules"]
        if len(modules) != 1:
            raise ArtifactError(
                f"{path}: this library has {len(modules)} models; a project takes one", code="TW0809")
        ((name, found),) = modules.items()
        memory = found["memory"]["functions"]["main"][0]
        inputs, outputs = (_tensors(memory[k]) for k in ("inputs", "outputs"))
        target = found["target"]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ArtifactError(
            f"{path}: not a Model Library ({type(error).__name__}: {error}); make one with: tvmc compile MODEL "
            "--target c -f mlf",
            code="TW0809"
        ) from None
    word = identifier(str(name))
    wanted = c_paths(word)
    if lacking := [p for p in wanted if p not in content]:
        raise ArtifactError(
            f"{path}: the model is not C text but code for "
            f"{', '.join(map(str, target)) if isinstance(target, list) else target} (there is no {lacking[0]}); "
            "projects need C: tvmc compile MODEL --target c -f mlf",
            code="TW0809")
    try:
        return ModelLibrary(word, {own: content[p].decode() for p, own in wanted.items()}, inputs, outputs)
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: a file of the model is not text: {error}", code="TW0804") from None


def _members(path: Path) -> dict[str, bytes]:
    try:
        with tarfile.open(path, "r:") as archive:
            found = {}
            for m in plain_members(archive, path.stat().st_size):
                stream = archive.extractfile(m) if m.isfile() and m.size <= _LARGEST else None
                if stream is not None:
                    found[m.name.removeprefix("./")] = stream.read()
            return found
    except FileNotFoundError:
        raise ArtifactError(f"the Model Library '{path}' does not exist", code="TW0810") from None
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ArtifactError(f"{path}: not a Model Library: {error}", code="TW0809") from None


def _tensors(described: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    try:
        return tuple(
            TensorInfo(str(n), tuple(int(d) for d in t["shape"]), DataType(t["dtype"])) for n, t in described.items())
    except CompileError as error:
        raise ValueError(str(error)) from None
