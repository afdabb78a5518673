"""Model file formats. A format is recognised by the first bytes, the file extension, or the package of an object.

Formats of other packages (entry points `tilewright.frontends`) are tried after the built-in ones. Unrecognised models
are passed to the ONNX frontend, whose errors describe them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import ModelError
from tilewright.base.model_formats import Contents, Format, Look, Shapes, Signature
from tilewright.base.plugins import installed_frontends

__all__ = ["ONNX", "PYTORCH", "RELAY", "TFLITE", "Format", "Signature", "format_named", "format_of"]

_OF_TORCH: Final = frozenset({".pt", ".pth", ".pt2"})
"""Extensions of files that may be pickles, whose first bytes do not identify them."""


def format_of(model: Any) -> Format:
    """Return the format of a path, of bytes, or of an object of the format's own package."""
    look = Look.at(model)
    found = next((f for f in (TFLITE, RELAY, PYTORCH) if f.recognizes(look)), None)
    if found is None and look.package != "tilewright" and not ONNX.recognizes(look):
        found = next((f for f in installed_frontends() if f.recognizes(look)), None)
    return found or ONNX


def format_named(name: str) -> Format | None:
    """Return an installed format by its name in lower case, or None."""
    return next((f for f in (ONNX, TFLITE, PYTORCH, RELAY, *installed_frontends()) if f.name.lower() == name), None)


class _BuiltIn(Format):
    """A format of this package. Its frontend has `survey`, `read` and `contents` in one module, imported at the first
    use."""

    def __init__(self, name: str, path: str, recognizes: Callable[[Look], bool]) -> None:
        for field, value in (("name", name), ("recognizes", recognizes), ("package", "")):
            object.__setattr__(self, field, value)
        object.__setattr__(self, "_module", f"tilewright.relay.frontend.{path}")

    def __getattr__(self, part: str) -> Any:
        if part not in ("survey", "read", "contents"):
            raise AttributeError(part)
        found = getattr(importlib.import_module(self._module), part)
        object.__setattr__(self, part, found)
        return found


def _read_relay(model: Any, shapes: Shapes | None) -> tuple[Any, dict[str, Any]]:
    from tilewright.relay.frontend.from_text import from_text

    try:
        text = Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{model}: cannot be read as text: {error}", code="TW0102") from None
    return from_text(text, shapes, Path(model).name), {}


def _survey_relay(model: Any, shapes: Shapes) -> tuple[Signature, list[str]]:
    main = _read_relay(model, shapes)[0]["main"]
    return [(p.name_hint, [d if isinstance(d, int) else str(d) for d in p.tensor_type.shape], str(p.tensor_type.dtype))
            for p in main.params], []


def _relay_contents(model: Any, shapes: Shapes | None) -> Contents:
    raise ModelError(f"{model}: it is Relay, which needs no check; check models of other formats", code="TW0102")


def _is_torch(look: Look) -> bool:
    return (look.suffix in _OF_TORCH or (look.head[:4] == b"PK\3\4" and look.suffix != ".onnx")
            or look.package == "torch")


def _is_tflite(look: Look) -> bool:
    return look.head[4:8] == b"TFL3" or look.package == "tflite" or (not look.head and look.suffix == ".tflite")


def _is_onnx(look: Look) -> bool:
    """Whether the head is that of a protobuf message that begins with the format's version (field 1, a varint)."""
    return look.suffix == ".onnx" or look.package == "onnx" or (not look.suffix and look.head[:1] == b"\x08")


ONNX: Final = _BuiltIn("ONNX", "onnx.signature", _is_onnx)
TFLITE: Final = _BuiltIn("TFLite", "tflite.signature", _is_tflite)
PYTORCH: Final = _BuiltIn("PyTorch", "pytorch.model", _is_torch)
RELAY: Final = Format("Relay", lambda look: look.suffix == ".relay", _survey_relay, _read_relay, _relay_contents)
"""Text, recognised by the extension `.relay` only. It is read as a module, because it may have functions other than
`main`."""
