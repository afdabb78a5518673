"""`Format`: the interface of model formats, and the recognition of a file without reading it.

This module imports nothing of the compiler: a program that is in the cache is found without a frontend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import ModelError

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule

Signature = list[tuple[str, list[int | str], str]]
"""Name, dimensions and dtype of each input; a dimension that is not known is a name."""
Shapes = Mapping[str, Any]
HEAD: Final = 8
"""Number of leading bytes that identify a format."""


@dataclass(frozen=True, slots=True)
class Look:
    """External properties of a model, by which its format is recognised without reading it."""

    head: bytes
    """The first bytes of a file; empty for an object."""
    suffix: str
    """The ending of the file's name, with its dot; empty for bytes and objects."""
    package: str
    """The package that the object's type belongs to."""

    @staticmethod
    def at(model: Any) -> Look:
        """Look at a path, at bytes, or at an object. A file that cannot be read has no head."""
        package = type(model).__module__.partition(".")[0]
        if isinstance(model, (bytes, bytearray, memoryview)):
            return Look(bytes(model[:HEAD]), "", package)
        if not isinstance(model, (str, os.PathLike)):
            return Look(b"", "", package)
        try:
            with Path(model).open("rb") as file:
                return Look(file.read(HEAD), Path(model).suffix, package)
        except OSError:
            return Look(b"", Path(model).suffix, package)


@dataclass(frozen=True, slots=True)
class Contents:
    """The declarations and operators of a model, before it is imported."""

    versions: Mapping[str, int]
    producer: str
    inputs: Sequence[tuple[str, tuple[int | str, ...], str]]
    """Name, shape and dtype as the file declares them."""
    outputs: Sequence[tuple[str, tuple[int | str, ...], str]]
    nodes: Mapping[tuple[str, str], Sequence[str]]
    """Names of nodes by domain and operator."""
    unknown: Collection[tuple[str, str]]
    """Operators without a converter."""
    advice: Callable[[str, str], str]
    """The way to supply a converter, by operator and domain."""
    read: Callable[[], IRModule]
    """Imports the model as an `IRModule`."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of model files."""

    name: str
    recognizes: Callable[[Look], bool]
    survey: Callable[[Any, Shapes], tuple[Signature, list[str]]]
    """Inputs of a model, given shapes of some of them, and names of the files that hold its tensors."""
    read: Callable[[Any, Shapes | None], tuple[IRModule, dict[str, Any]]]
    """The model as an `IRModule`, for these shapes of its inputs, and its parameters by name."""
    contents: Callable[[Any, Shapes | None], Contents]
    """The declarations and operators of a model."""
    package: str = ""
    """Package of a frontend that is not built in; programs are compiled anew when its files change."""


def file_bytes(model: Any, other: str = "") -> tuple[str, bytes]:
    """Return the name to show and the contents of a path or of bytes. `other` names objects that the format takes too.

    Raises `ModelError` for a file that cannot be read, and for other objects.
    """
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "", bytes(model)
    if not isinstance(model, (str, os.PathLike)):
        forms = f"path, bytes or {other}" if other else "path or bytes"
        raise ModelError(f"a model is given as {forms}, not as {type(model).__name__}", code="TW0102")
    path = Path(model)
    try:
        return str(path), path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"there is no file '{path}'; check the path (the current folder is '{Path.cwd()}')",
                         code="TW0101") from None
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}", code="TW0101") from None
