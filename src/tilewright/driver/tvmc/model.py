"""The model that `tvmc` loads: a Relay network with its parameters, read from the file at the first access."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from tilewright.base.errors import CompileError as TVMCException
from tilewright.base.errors import MissingFileError, ModelError, OptionError
from tilewright.base.params import load_param_dict, save_param_dict
from tilewright.compiler.formats import ONNX, PYTORCH, RELAY, TFLITE, Format, format_named, format_of
from tilewright.driver import files
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.result import TVMCResult
from tilewright.runtime.files import temporary_folder
from tilewright.runtime.sealed_tar import member, plain_members

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.runtime.module import FactoryModule

__all__ = ["FORMATS", "TVMCException", "TVMCModel", "TVMCPackage", "TVMCResult", "load_model"]

FORMATS: Final[Mapping[str, Format | str]] = {
    "onnx": ONNX, "tflite": TFLITE, "pytorch": PYTORCH, "relay": RELAY,
    "keras": "there is no importer for Keras; save the model as TFLite, or convert it to ONNX with tf2onnx",
    "pb": "there is no importer for TensorFlow's graphs; convert them to TFLite, or to ONNX with tf2onnx",
    "paddle": "there is no importer for PaddlePaddle; convert the model to ONNX with paddle2onnx",
}
"""TVM's format names: the reader of each, or the reason why it is not supported."""
_SUFFIXES: Final = {".h5": "keras", ".keras": "keras", ".pb": "pb", ".pdmodel": "paddle"}
_MODULE, _PARAMS = "model.json", "model.params"

Shapes = Mapping[str, Sequence[Any]]


class TVMCModel:
    """A network and its parameters, from a file, a Relay module, or the output of `save`.

    The file is read at the first access to `mod` or `params`; without such an access, it is compiled as `tilewright
    compile` does it, through the cache. Raises `ModelError` for a file that cannot be read.
    """

    def __init__(
        self, mod: IRModule | None = None, params: Mapping[str, Any] | None = None,
        model_path: str | os.PathLike[str] | None = None,
        shape_dict: Shapes | None = None, model_format: Format | None = None,
    ) -> None:
        if (mod is None) == (model_path is None):
            raise OptionError(
                "TVMCModel takes either a module or model_path; give one of them", code="TW0204")
        self._mod, self._params = mod, dict(params or {})
        self.path = None if model_path is None else Path(model_path)
        self.shapes: dict[str, Sequence[Any]] = dict(shape_dict or {})
        self._format = model_format
        if self.path is not None and tarfile.is_tarfile(self.path):
            self._mod, self._params, self.path = *_read_saved(self.path), None

    @property
    def mod(self) -> IRModule:
        """The network. Raises `OptionError` if input sizes are dynamic: then there is a program, but no network of
        known types."""
        if self._mod is None:
            assert self.path is not None
            if name := next((n for n, dims in self.shapes.items() if not all(isinstance(d, int) for d in dims)), None):
                raise OptionError(
                    f"--input-shapes leaves sizes of '{name}' dynamic, but layouts, operators of mixed precision, "
                    "off-loading and the Model Library Format need known sizes; give numbers", code="TW0204")
            self._mod, params = (self._format or format_of(self.path)).read(self.path, self.shapes or None)
            self._params.update(params)
        return self._mod

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of `mod` by name; those that a frontend made constants are in the network."""
        _ = self.mod
        return self._params

    @property
    def source(self) -> Path | IRModule:
        """The input of the compiler: the file if the network was not read, else the network with its parameters bound.
        """
        if self._mod is None and self.path is not None and self._format in (None, format_of(self.path)):
            return self.path
        from tilewright.relay.transform.bind_params import bind_params

        return bind_params(self.mod, self.params)

    def summary(self, file: TextIO | None = None) -> None:
        """Print the network, without its constants, to `file` or the standard output."""
        print(self.mod.astext(show_meta_data=False), file=file or sys.stdout)

    def copy(self) -> TVMCModel:
        """Return a copy of this model that can be changed independently."""
        return self.with_mod(self.mod.copy())

    def with_mod(self, mod: IRModule) -> TVMCModel:
        """Return a model of another network, with the parameters and the shapes of this one."""
        return TVMCModel(mod, self.params, shape_dict=self.shapes)

    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write network and parameters to a tar, which `TVMCModel(model_path=…)` reads."""
        from tilewright.relay.serialization import save_json

        content = {_MODULE: save_json(self.mod).encode(), _PARAMS: save_param_dict(self.params)}
        with files.replacing(Path(model_path)) as scratch, tarfile.open(
            scratch, "w", format=tarfile.PAX_FORMAT
        ) as archive:
            for name, data in content.items():
                archive.addfile(member(name, len(data)), io.BytesIO(data))

    def export_package(
        self, executor_factory: FactoryModule, package_path: str | os.PathLike[str] | None = None,
        cross: str | None = None, cross_options: str | None = None, output_format: str = "so",
    ) -> str:
        """Write the package of a module that `relay.build` made of this network, and return its path. The arguments are
        those of `tvmc.compile`. Raises `OptionError` for a compiler that links with the Model Library Format."""
        from tilewright.driver import options
        from tilewright.driver.tvmc.compiler import OUTPUT_FORMATS, export_factory

        if output_format not in OUTPUT_FORMATS:
            raise OptionError(
                f"output_format: there is no format '{output_format}'; choose from {', '.join(OUTPUT_FORMATS)}",
                code="TW0203")
        if output_format == "mlf" and cross:
            raise OptionError("Specifying the MLF output and a cross compiler is not supported.", code="TW0204")
        path = Path(package_path or self.default_package_path())
        export_factory(
            executor_factory, path, output_format, options.linker(cross or "", cross_options or ""), [self.mod])
        return str(path)

    @staticmethod
    def default_package_path() -> str:
        """Return a path in a new folder, which is removed when the process ends."""
        return str(temporary_folder("tvmc-") / "package.tar")


def load_model(
    path: str | os.PathLike[str], model_format: str | None = None, shape_dict: Shapes | None = None,
    *, freeze_params: bool = True,
) -> TVMCModel:
    """Load a model file: ONNX, TFLite, PyTorch (which needs shapes) or Relay, recognised by its contents, or read as
    `model_format`.

    `shape_dict` gives sizes to inputs. With `freeze_params` false, the weights of an ONNX model are parameters, and not
    constants of the network. Raises `MissingFileError`, `OptionError` with an alternative for an unsupported format.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"the model '{path}' does not exist, is a broken link, or a folder", code="TW0101")
    name = model_format or _SUFFIXES.get(file.suffix)
    unknown = f"there is no format '{name}'; choose from {', '.join(FORMATS)}"
    reader = None if name is None else FORMATS.get(name) or format_named(name) or unknown
    if isinstance(reader, str):
        raise OptionError(f"--model-format {name}: {reader}", code="TW0203")
    if reader is TFLITE and file.read_bytes()[4:8] != b"TFL3":
        raise ModelError(
            f"{file.name}: not a TFLite model, because bytes 4 to 7 are not TFL3; "
            "omit --model-format to detect the format",
            code="TW0102")
    if (reader or format_of(file)) is PYTORCH and not shape_dict:
        raise OptionError(
            f"{file.name}: a PyTorch model does not say the shapes of its inputs; give them with --input-shapes "
            "\"x:[1,3,224,224]\"",
            code="TW0113")
    if not freeze_params and (reader or format_of(file)) is ONNX:
        from tilewright.relay.frontend import from_onnx

        mod, params = from_onnx(str(file), dict(shape_dict or {}), freeze_params=False)
        return TVMCModel(mod, params, shape_dict=shape_dict)
    return TVMCModel(model_path=file, shape_dict=shape_dict, model_format=reader)


def _read_saved(path: Path) -> tuple[IRModule, dict[str, Any]]:
    from tilewright.ir.module import IRModule
    from tilewright.relay.serialization import load_json

    try:
        with tarfile.open(path, "r:") as archive:
            found = {
                m.name: archive.extractfile(m) for m in plain_members(archive, path.stat().st_size)
                if m.isfile() and m.name in (_MODULE, _PARAMS)}
            content = {name: stream.read() for name, stream in found.items() if stream is not None}
        mod = load_json(content[_MODULE].decode())
    except (tarfile.TarError, OSError, EOFError, KeyError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path}: not a file that TVMCModel.save wrote ({_MODULE} and {_PARAMS} in a tar): {error}", code="TW0103"
        ) from None
    if not isinstance(mod, IRModule):
        raise ModelError(f"{path}: {_MODULE} holds a {type(mod).__name__}, not a module", code="TW0103")
    return mod, dict(load_param_dict(content.get(_PARAMS, save_param_dict({}))))
