"""Which frontend reads a model: told by the first bytes of a file, or by what kind of object it is.

What is none of the others is taken for ONNX, whose frontend says what is wrong with it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import ModelError, PackageError

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule

Signature = list[tuple[str, list[int | str], str]]
_LONGEST: Final = 8
"""Bytes that tell the formats apart."""
_OF_TORCH: Final = frozenset({".pt", ".pth", ".pt2"})
"""Endings of files that have been pickles, too, which say of themselves nothing that is certain."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of model files. Nothing of its frontend is imported before it is used."""

    name: str
    survey: Callable[[Any, Mapping[str, Any]], tuple[Signature, list[str]]]
    """The inputs of a model, for shapes of some of them, and the names of the files beside it that hold its tensors."""
    read: Callable[[Any, Mapping[str, Any] | None], tuple[IRModule, dict[str, Any]]]
    """The model as a module of relay, for these shapes of its inputs."""


def format_of(model: Any) -> Format:
    """The format of a path, of bytes, or of an object of the format's own package."""
    head = _head(model)
    if head[4:8] == b"TFL3" or type(model).__module__.partition(".")[0] == "tflite":
        return TFLITE
    suffix = Path(model).suffix if isinstance(model, (str, os.PathLike)) else ""
    if suffix == ".relay":
        return RELAY
    if suffix in _OF_TORCH or (
        head[:4] == b"PK\3\4" and suffix != ".onnx"
    ) or type(model).__module__.partition(".")[0] == "torch":
        return PYTORCH
    return ONNX


def _head(model: Any) -> bytes:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model[:_LONGEST])
    if not isinstance(model, (str, os.PathLike)):
        return b""
    try:
        with Path(model).open("rb") as file:
            return file.read(_LONGEST)
    except OSError:  # the frontend says what is wrong with it
        return b"\0\0\0\0TFL3" if Path(model).suffix == ".tflite" else b""


def _survey_onnx(model: Any, shapes: Mapping[str, Any]) -> tuple[Signature, list[str]]:
    from tilewright.relay.frontend.onnx.signature import survey

    return survey(model, shapes)


def _read_onnx(model: Any, shapes: Mapping[str, Any] | None) -> tuple[IRModule, dict[str, Any]]:
    from tilewright.relay.frontend.onnx import from_onnx

    return from_onnx(model, shapes)


def _survey_tflite(model: Any, shapes: Mapping[str, Any]) -> tuple[Signature, list[str]]:
    from tilewright.relay.frontend.tflite.signature import survey

    return survey(model)


def _read_tflite(model: Any, shapes: Mapping[str, Sequence[int]] | None) -> tuple[IRModule, dict[str, Any]]:
    from tilewright.relay.frontend.tflite import from_tflite

    return from_tflite(model, shapes)


def require_torch(model: Any) -> None:
    """Raise `PackageError` where torch, which reads its own files, is not installed."""
    if importlib.util.find_spec("torch") is None:
        named = Path(model).name if isinstance(model, (str, os.PathLike)) else "the model"
        raise PackageError(
            f"{named}: an archive as PyTorch writes them, and reading it needs the package torch: pip install torch; "
            "or export the model to ONNX"
        )


def _survey_pytorch(model: Any, shapes: Mapping[str, Any]) -> tuple[Signature, list[str]]:
    require_torch(model)
    from tilewright.relay.frontend.pytorch import signature

    return signature(model, shapes), []


def _read_pytorch(model: Any, shapes: Mapping[str, Any] | None) -> tuple[IRModule, dict[str, Any]]:
    require_torch(model)
    from tilewright.relay.frontend.pytorch import from_shapes

    return from_shapes(model, shapes or {}), {}


def _read_relay(model: Any, shapes: Mapping[str, Any] | None) -> tuple[IRModule, dict[str, Any]]:
    from tilewright.relay.frontend.from_text import from_text

    try:
        text = Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{model}: cannot be read as text: {error}", code="TW0102") from None
    return from_text(text, shapes, Path(model).name), {}


def _survey_relay(model: Any, shapes: Mapping[str, Any]) -> tuple[Signature, list[str]]:
    main = _read_relay(model, shapes)[0]["main"]
    return [
        (p.name_hint, [d if isinstance(d, int) else str(d) for d in p.tensor_type.shape], str(p.tensor_type.dtype))
        for p in main.params
    ], []


ONNX: Final = Format("ONNX", _survey_onnx, _read_onnx)
TFLITE: Final = Format("TFLite", _survey_tflite, _read_tflite)
RELAY: Final = Format("Relay", _survey_relay, _read_relay)
"""Text, by the ending `.relay` alone. It may have more functions than `main`, so it is read as a module, and not known
by its bytes."""
PYTORCH: Final = Format("PyTorch", _survey_pytorch, _read_pytorch)
