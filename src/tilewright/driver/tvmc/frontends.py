"""TVM's `tvmc.frontends`: the readers of model formats, by name and by the ending of a file.

    frontend = guess_frontend("model.onnx")          # an OnnxFrontend
    mod, params = frontend.load("model.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.driver.tvmc.model import FORMATS, Shapes, load_model
from tilewright.ir.module import IRModule

__all__ = [
    "Frontend", "OnnxFrontend", "PyTorchFrontend", "RelayFrontend", "TFLiteFrontend", "get_frontend_by_name",
    "get_frontend_names", "guess_frontend", "load_model",
]


class Frontend:
    """A reader of one format: its name, and the endings of its files."""

    format_name: ClassVar[str]
    endings: ClassVar[Sequence[str]]

    @classmethod
    def name(cls) -> str:
        """Return the name for `--model-format`."""
        return cls.format_name

    @classmethod
    def suffixes(cls) -> list[str]:
        """Return the endings of files, without dots."""
        return list(cls.endings)

    def load(
        self, path: str | os.PathLike[str], shape_dict: Shapes | None = None
    ) -> tuple[IRModule, dict[str, Any]]:
        """Return the network of a file, and its parameters by name."""
        model = load_model(path, self.format_name, shape_dict)
        return model.mod, model.params


class OnnxFrontend(Frontend):
    """The reader of ONNX files."""

    format_name, endings = "onnx", ("onnx",)


class TFLiteFrontend(Frontend):
    """The reader of TFLite files."""

    format_name, endings = "tflite", ("tflite",)


class PyTorchFrontend(Frontend):
    """The reader of programs of PyTorch, which need the shapes of their inputs."""

    format_name, endings = "pytorch", ("pth", "zip", "pt2")


class RelayFrontend(Frontend):
    """The reader of Relay's text."""

    format_name, endings = "relay", ("relay",)


ALL_FRONTENDS = (OnnxFrontend, TFLiteFrontend, PyTorchFrontend, RelayFrontend)


def get_frontend_names() -> list[str]:
    """Return the names of the formats that are read."""
    return [f.format_name for f in ALL_FRONTENDS]


def get_frontend_by_name(name: str) -> Frontend:
    """Return the reader of a format. Raises `OptionError` for another name, with the reason if it is one of TVM's."""
    for frontend in ALL_FRONTENDS:
        if frontend.format_name == name:
            return frontend()
    why = FORMATS.get(name)
    known = get_frontend_names()
    raise OptionError(
        f"--model-format {name}: {why}" if isinstance(why, str)
        else f"--model-format: there is no format '{name}'{nearest(name, known)}; choose from {', '.join(known)}",
        code="TW0203")


def guess_frontend(path: str | os.PathLike[str]) -> Frontend:
    """Return the reader for the ending of a file. Raises `OptionError` for another ending."""
    ending = Path(path).suffix.lower().removeprefix(".")
    for frontend in ALL_FRONTENDS:
        if ending in frontend.endings:
            return frontend()
    raise OptionError(
        f"the format of '{path}' is not known from its ending; give --model-format, one of "
        f"{', '.join(get_frontend_names())}", code="TW0203")
