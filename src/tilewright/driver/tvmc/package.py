"""A compiled model as `tvmc` packs it: one tar with the library and the data that an executor needs.

    graph   mod.so or mod.tar · mod.json (the graph) · mod.params (no parameters: constants are in the library)
    aot     mod.so or mod.tar · <name>.h (the C interface)
    vm      lib.so or lib.tar
    mlf     the Model Library Format: metadata.json, codegen/, executor-config/, parameters/, src/

Only known members of a package are unpacked, and they are checked when they are loaded.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import ArtifactError, OptionError
from tilewright.base.json_reading import read_json
from tilewright.base.params import save_param_dict
from tilewright.driver import files
from tilewright.runtime.graph_json import graph_json
from tilewright.runtime.sealed_tar import is_sealed, member, plain_members, sealed_tar

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker
    from tilewright.runtime.artifact import Artifact
    from tilewright.runtime.executable import Executable

_LIBRARIES: Final = ("mod.so", "mod.tar", "lib.so", "lib.tar")
_GRAPH, _PARAMS, _METADATA = "mod.json", "mod.params", "metadata.json"
CLASSIC, MLF = "classic", "mlf"
EXECUTORS: Final = ("graph", "aot", "vm")


def write_package(
    artifact: Artifact, path: Path, executor: str = "graph", library: str = "so", linker: Linker | None = None
) -> None:
    """Write the package of a program, its library as `so` or `tar`. Raises `ArtifactError`."""
    manifest = artifact.manifest
    with tempfile.TemporaryDirectory(prefix="tvmc-") as folder:
        file = artifact.save(Path(folder) / f"{'lib' if executor == 'vm' else 'mod'}.{library}", linker)
        members = {file.name: file.read_bytes()}
    if executor == "graph":
        members |= {_GRAPH: graph_json(manifest).encode(), _PARAMS: save_param_dict({})}
    elif executor == "aot":
        members[f"{manifest.c_name}.h"] = manifest.header().encode()
    _write(path, members)


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    """Write the members, each without time or owner, so that equal programs give equal packages."""
    with files.replacing(path) as scratch, scratch.open("wb") as file, sealed_tar(file) as archive:
        for name, data in members.items():
            archive.addfile(member(name, len(data)), io.BytesIO(data))


class TVMCPackage:
    """A compiled package. `type` is `classic` for one with a library, or `mlf` for the Model Library Format.

    `project_dir` is the folder of the project that a board's model belongs to. Raises `ArtifactError` for a file that
    is not a package, and `OptionError` for a `project_dir` with a classic package. """

    def __init__(
        self, package_path: str | os.PathLike[str], project_dir: str | os.PathLike[str] | None = None
    ) -> None:
        self.package_path = os.fspath(package_path)
        self._path = Path(package_path)
        content = self._members()
        self.lib_name = next((n for n in _LIBRARIES if n in content), None)
        """The file name of the library; None in the Model Library Format."""
        if self.lib_name is None and _METADATA not in content:
            raise self._no_package(f"it has none of {', '.join((*_LIBRARIES, _METADATA))}")
        self.type = CLASSIC if self.lib_name is not None else MLF
        if project_dir is not None and self.type == CLASSIC:
            raise OptionError("Setting 'project_dir' is only allowed when importing a MLF.!", code="TW0204")
        self.project_dir = None if project_dir is None else Path(project_dir)
        if not is_sealed(self._path):
            raise ArtifactError(
                f"the package '{self.package_path}' is damaged (its contents do not match its checksum), or was packed "
                "by another program; copy it again, or compile the model again",
                code="TW0804")
        graph, params = (_only(content, name, start, end) for name, start, end in (
            (_GRAPH, "executor-config/graph/", ".graph"), (_PARAMS, "parameters/", ".params")))
        self.graph = None if graph is None else graph.decode()
        self.params = None if params is None else bytearray(params)
        self.executor_type = "aot" if self.graph is None else "graph"
        self._library_name, self._library = "mod.tar", b""
        if self.lib_name is not None:
            self.executor_type = "vm" if self.lib_name.startswith("lib") else self.executor_type
            self._library_name, self._library = self.lib_name, content[self.lib_name]
        elif not any(n.startswith("codegen/host/src/") for n in content):
            self._library = self._path.read_bytes()
        self.notes: tuple[str, ...] = ()
        """Notes of the compiler on the package."""
        self._folder: Path | None = None

    def _members(self) -> dict[str, bytes]:
        try:
            with tarfile.open(self._path, "r:") as archive:
                found = {
                    m.name.removeprefix("./"): archive.extractfile(m)
                    for m in plain_members(archive, self._path.stat().st_size) if m.isfile()}
                return {name: stream.read() for name, stream in found.items() if stream is not None}
        except FileNotFoundError:
            raise ArtifactError(f"the package '{self.package_path}' does not exist", code="TW0810") from None
        except IsADirectoryError:
            raise self._no_package("it is a folder; a project of a board is run with --device micro") from None
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise self._no_package(str(error)) from None

    def _no_package(self, why: str) -> ArtifactError:
        return ArtifactError(
            f"'{self.package_path}' is not a package of tvmc: {why}; make one with: tvmc compile MODEL --target llvm "
            f"-o {self._path.name}",
            code="TW0810")

    @property
    def lib_path(self) -> str | None:
        """The path of the library, in a folder that exists as long as the package; None in the Model Library Format."""
        return None if self.lib_name is None else str(self.library())

    def library(self) -> Path:
        """Return the path of the library, in a folder that exists as long as the package; the Model Library Format is a
        library itself. Raises `ArtifactError` for a model in C."""
        if not self._library:
            raise ArtifactError(
                f"'{self.package_path}' is a model in C, which a project compiles; make one: tvmc micro create-project "
                f"DIR {self._path.name} host, or compile for the target llvm",
                code="TW0809")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tvmc-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            (self._folder / self._library_name).write_bytes(self._library)
        return self._folder / self._library_name

    def executable(self) -> Executable | Any:
        """Return the program, loaded into this process. Raises `ArtifactError` if it is damaged, made for another
        machine, or its graph belongs to another program."""
        from tilewright.runtime.artifact import load_executable
        from tilewright.runtime.graph_json import check_graph

        path = str(self.library())
        try:
            made = load_executable(path)
        except ArtifactError as error:
            raise ArtifactError(
                error.message.replace(path, f"{self.package_path} ({self._library_name})"), code="TW0810"
            ) from None
        if self.graph is not None:
            check_graph(self.graph, made.manifest)
        return made

    def metadata(self) -> dict[str, Any]:
        """`metadata.json` of the Model Library Format; raises `ArtifactError` for a package of another format."""
        content = self._members()
        if _METADATA not in content:
            raise ArtifactError(
                f"'{self.package_path}' has no {_METADATA}: it is not in the Model Library Format; compile with -f mlf",
                code="TW0810")
        found: dict[str, Any] = read_json(content[_METADATA])
        return found


def _only(content: Mapping[str, bytes], name: str, start: str, end: str) -> bytes | None:
    """Return the member of a name, or the only one between `start` and `end` of a model library; None without one."""
    found = [name] if name in content else [n for n in content if n.startswith(start) and n.endswith(end)]
    return content[found[0]] if len(found) == 1 else None
