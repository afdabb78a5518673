"""Projects: folders with a model in C and all files needed to build it for one machine.

A project can be built without this package:

    project.json             the template's name, options, the model's inputs and outputs
    template.json            the commands
    model/                   <name>.c, <name>.h: the model
    main.c, self_test.c      programs: the model on files; the model on known values
    …                        files of the template: start, layout of memory
    build/                   the images
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from tilewright.backends.cpu.c.compile import EXACT
from tilewright.base.errors import ArtifactError, InputError, OptionError, RunError, TargetError
from tilewright.base.json_reading import read_json
from tilewright.base.types import DataType
from tilewright.compiler.micro.library import ModelLibrary, read_model_library
from tilewright.compiler.micro.template import DESCRIPTION, TemplateProject
from tilewright.runtime.files import write_atomically
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.program import TensorInfo

if TYPE_CHECKING:
    from tilewright.compiler.model import Model

Array = np.ndarray[Any, Any]
_STATE: Final = "project.json"
_PROGRAMS: Final = {"main": "main.elf", "self_test": "self_test.elf"}
_LONGEST_BUILD: Final = 600
_SHOWN: Final = 3000
"""Number of characters of a program's output that an error shows."""


class GeneratedProject:
    """A project in its folder. Raises `ArtifactError` for a folder that is not a project, `OptionError` for options
    that its template does not allow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        try:
            found = read_json((folder / _STATE).read_text(encoding="utf-8"))
            self.model = str(found["model"])
            self.inputs, self.outputs = (
                tuple(TensorInfo(str(n), tuple(map(int, s)), DataType(t)) for n, s, t in found[k])
                for k in ("inputs", "outputs"))
            self.options: dict[str, str] = {str(k): str(v) for k, v in found["options"].items()}
            name = str(found["template"])
        except (FileNotFoundError, NotADirectoryError):
            raise ArtifactError(
                f"'{folder}' is not a project: it has no {_STATE}; make one with: tvmc micro create-project {folder} "
                "LIBRARY.tar qemu-arm", code="TW0813"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(
                f"{folder / _STATE}: cannot be read ({type(error).__name__}: {error}); create the project again",
                code="TW0813"
            ) from None
        self.template = TemplateProject(self.folder)
        self.template.name = name

    @classmethod
    def from_directory(
        cls, project_dir: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> GeneratedProject:
        """Return the project in a folder, with options for its later steps."""
        made = cls(Path(project_dir))
        made.options |= made.template.checked(options or {}, "build")
        return made

    def info(self) -> dict[str, Any]:
        """Return the description of the template, and the inputs and outputs of the model."""
        return {
            **self.template.info(), "model": self.model, "inputs": list(map(str, self.inputs)),
            "outputs": list(map(str, self.outputs))
        }

    @property
    def is_built(self) -> bool:
        return all((self.folder / "build" / image).is_file() for image in _PROGRAMS.values())

    def build(self, options: Mapping[str, Any] | None = None) -> list[Path]:
        """Compile the programs and return the images; `options` also apply to later steps.

        Raises `TargetError` if a tool is missing or the model is too large for the board, `OptionError` for an invalid
        option.
        """
        self.options |= self.template.checked(options or {}, "build")
        (self.folder / "build").mkdir(exist_ok=True)
        made = []
        for program, image in _PROGRAMS.items():
            made.append(self.folder / "build" / image)
            made[-1].unlink(missing_ok=True)
            for words in self.template.description["build"]:
                self._do(words, self._values(program), "the project cannot be built")
        self._save()
        return made

    def flash(self) -> str:
        """Write the image to the board and return a description. Raises `ArtifactError` before `build`, `TargetError`
        on failure."""
        self.check_built()
        for words in self.template.description["flash"]:
            self._do(words, self._values("main"), "the image cannot be written to the board")
        return str(
            self.template.description["about_flash"] if not self.template.description["flash"]
            else f"{_PROGRAMS['main']} is on the board")

    def transport(self) -> contextlib.AbstractContextManager[GeneratedProject]:
        """Return what `micro.Session` opens: the project itself."""
        return contextlib.nullcontext(self)

    def test(self, options: Mapping[str, Any] | None = None) -> str:
        """Run the self-test on the machine and return its output, which ends in OK. Raises `RunError` if results
        differ."""
        self.check_built()
        with tempfile.TemporaryDirectory(prefix="tilewright-micro-") as folder:
            return self._run("self_test", [], Path(folder), options)

    def run(
        self, inputs: Mapping[str, Array] | Sequence[Array], options: Mapping[str, Any] | None = None
    ) -> list[Array]:
        """Run the model on the machine and return its outputs.

        `inputs` are arrays by name, or in order, of the model's shapes and dtypes. Raises `InputError` for unsuitable
        inputs, `ArtifactError` before `build`, `RunError` if the program fails or exceeds its time limit.
        """
        self.check_built()
        fed = self._by_name(inputs)
        with tempfile.TemporaryDirectory(prefix="tilewright-micro-") as name:
            folder, files = Path(name), []
            for k, t in enumerate(self.inputs):
                files.append(f"input_{k}.raw")
                (folder / files[-1]).write_bytes(_bytes(t, fed.get(t.name)))
            made = [f"output_{k}.raw" for k, _ in enumerate(self.outputs)]
            said = self._run("main", [*files, *made], folder, options)
            return [self._array(t, folder / file, said) for t, file in zip(self.outputs, made, strict=True)]

    def _by_name(self, inputs: Mapping[str, Array] | Sequence[Array]) -> Mapping[str, Array]:
        names = [t.name for t in self.inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise InputError(
                    f"the model takes {len(names)} inputs ({', '.join(names)}), but {len(inputs)} were given",
                    code="TW0701")
            return dict(zip(names, inputs, strict=True))
        if unknown := [n for n in inputs if n not in names]:
            raise InputError(
                f"the model has no input '{unknown[0]}'; it has {', '.join(names) or 'none'}", code="TW0702")
        return inputs

    def _array(self, t: TensorInfo, file: Path, said: str) -> Array:
        data = file.read_bytes() if file.is_file() else b""
        if len(data) != t.nbytes:
            raise RunError(
                f"'{self.folder}': the program succeeded, but wrote {len(data)} bytes of '{t.name}', which has "
                f"{t.nbytes}{_said(said)}",
                code="TW0814")
        return np.frombuffer(data, t.dtype.numpy()).reshape(t.shape).copy()

    def check_built(self) -> None:
        """Raise `ArtifactError` before `build`."""
        if not self.is_built:
            raise ArtifactError(
                f"the project '{self.folder}' is not built; first run: tvmc micro build {self.folder}", code="TW0813")

    def _values(
        self, program: str, options: Mapping[str, str] | None = None, files: Sequence[str] = ()
    ) -> dict[str, str]:
        listed = "".join(self.template.description["file"].replace("{file}", f) for f in files)
        own = {
            "model": self.model, "program": program, "image": _PROGRAMS[program], "project": str(self.folder),
            "files": listed, "exact": " ".join(EXACT[1:])
        }
        return {**self.template.values({**self.options, **(options or {})}), **own}

    def _do(self, words: Sequence[str], values: Mapping[str, str], what: str) -> None:
        command = self._command(words, values)
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                timeout=_LONGEST_BUILD, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TargetError(f"{what}: {error}", code="TW0508") from None
        if done.returncode:
            raise TargetError(
                f"'{self.folder}': {what}: {Path(command[0]).name} ended with status "
                f"{done.returncode}{_said(_last(done.stderr or done.stdout))}",
                code="TW0508")

    def _command(self, words: Sequence[str], values: Mapping[str, str]) -> list[str]:
        command = self.template.command(words, values)
        if not command or shutil.which(command[0]) is None:
            raise self.template.missing(command[0] if command else "", values)
        return command

    def _run(self, program: str, files: Sequence[str], folder: Path, options: Mapping[str, Any] | None) -> str:
        given = self.template.checked(options or {}, "run")
        values = self._values(program, given, files)
        command = self._command(self.template.description["run"], values)
        seconds = _seconds(values.get("timeout", "120"))
        try:
            done = subprocess.run(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                stdin=subprocess.DEVNULL, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"'{self.folder}': the program was ended after {seconds:g} seconds; --project-option timeout=SECONDS "
                "raises this limit",
                code="TW0814"
            ) from None
        except OSError as error:
            raise RunError(f"'{self.folder}': the program cannot be run: {error}", code="TW0814") from None
        if done.returncode:
            raise RunError(
                f"'{self.folder}': the program ended with status {done.returncode}{_said(_last(done.stdout))}",
                code="TW0814")
        return done.stdout

    def _save(self) -> None:
        _write_state(self.folder, self.template.name, self.model, self.options, self.inputs, self.outputs)


def generate_project_from_mlf(
    template_project_dir: str | os.PathLike[str], project_dir: str | os.PathLike[str], mlf: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    *, force: bool = False,
) -> GeneratedProject:
    """Create a project for the model in a Model Library (`tvmc compile MODEL --target c -f mlf`) from the template in a
    folder.

    Raises `ArtifactError` for a library of another kind, and for an existing folder unless `force` is set;
    `OptionError` for invalid options.
    """
    return _create(
        TemplateProject.from_directory(template_project_dir), Path(project_dir), read_model_library(mlf), options or {},
        force)


def generate_project(
    template_project_dir: str | os.PathLike[str], module: Model | FactoryModule,
    generated_project_dir: str | os.PathLike[str], options: Mapping[str, Any] | None = None,
) -> GeneratedProject:
    """Create a project for a model returned by `tilewright.compile`, or by `relay.build` for a target of kind c. Raises
    `OptionError` for other modules."""
    from tilewright.compiler.model import Model

    with tempfile.TemporaryDirectory(prefix="tilewright-micro-") as folder:
        library = Path(folder) / "model.tar"
        if isinstance(module, Model):
            module.save_c_library(library)
        elif isinstance(module, FactoryModule) and module.write_c is not None:
            module.write_c(library)
        else:
            raise OptionError(
                f"a project needs a model that tilewright.compile returned, or relay.build for the target 'c', but was "
                f"given a {type(module).__name__}, which holds machine code; write its C with: tvmc compile MODEL "
                "--target c -f mlf", code="TW0215")
        return generate_project_from_mlf(template_project_dir, generated_project_dir, library, options)


def _create(
    template: TemplateProject, folder: Path, library: ModelLibrary, options: Mapping[str, Any], force: bool
) -> GeneratedProject:
    given = template.checked(options, "create")
    if folder.exists() and not (force and (folder / _STATE).is_file()):
        more = ", or overwrite this project with -f" if (folder / _STATE).is_file() else ""
        raise ArtifactError(f"'{folder}' already exists; choose another folder{more}", code="TW0813")
    texts = {
        f"model/{library.name}.c": library.files["source"], f"model/{library.name}.h": library.files["header"],
        "main.c": library.files["main"], "self_test.c": library.files["test"],
        DESCRIPTION: json.dumps(template.description, indent=2),
    }
    try:
        texts |= {
            name: _source_text(template.folder, name) for name in map(_plain_name, template.description["sources"])}
        (folder / "model").mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "build", ignore_errors=True)
        for name, text in texts.items():
            write_atomically(folder / name, partial(_fill, text.encode()))
        _write_state(folder, template.name, library.name, given, library.inputs, library.outputs)
    except OSError as error:
        raise ArtifactError(f"the project '{folder}' cannot be written: {error}", code="TW0801") from None
    return GeneratedProject(folder)


def _write_state(
    folder: Path, template: str, model: str, options: Mapping[str, str], inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo]
) -> None:
    tensors = {
        k: [[t.name, list(t.shape), str(t.dtype)] for t in infos]
        for k, infos in (("inputs", inputs), ("outputs", outputs))}
    text = json.dumps({"template": template, "model": model, "options": dict(options), **tensors}, indent=2)
    write_atomically(folder / _STATE, partial(_fill, text.encode()))


def _fill(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _plain_name(name: Any) -> str:
    if not isinstance(name, str) or Path(name).name != name or name in ("", "..", _STATE, DESCRIPTION):
        raise ArtifactError(
            f"{DESCRIPTION}: '{name}' among the sources is not the name of a file in the template's folder",
            code="TW0813")
    return name


def _source_text(folder: Path, name: str) -> str:
    """Return a file of the template; links are refused, because they may lead to files that its author cannot read."""
    if (folder / name).is_symlink() or not (folder / name).is_file():
        raise ArtifactError(
            f"{folder / name} among the sources is not a plain file; put the file itself into the template's folder",
            code="TW0813")
    try:
        return (folder / name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{folder / name} among the sources is not text: {error}", code="TW0813") from None


def _bytes(t: TensorInfo, value: Any) -> bytes:
    """Return an input in the format that the program reads."""
    if value is None:
        raise InputError(f"the input '{t.name}' is not given", code="TW0701")
    array = np.asarray(value)
    if array.shape != tuple(t.shape) or array.dtype != t.dtype.numpy():
        raise InputError(
            f"the input '{t.name}' is {t.dtype}[{', '.join(map(str, t.shape))}], but "
            f"{array.dtype}[{', '.join(map(str, array.shape))}] was given",
            code="TW0704")
    return array.tobytes()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise OptionError(f"--project-option timeout: '{text}' is not a positive number of seconds", code="TW0202")
    return seconds


def _last(text: str) -> str:
    return text.strip()[-_SHOWN:]


def _said(text: str) -> str:
    return f": {text.strip()}" if text.strip() else ""
