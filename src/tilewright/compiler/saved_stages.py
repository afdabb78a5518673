"""Files of programs in stages: the compiled stages, and the rest of the program at each point, for further growth.

    model.tar   stages.json · stages.sha256 · function.N.json · program.N.tar

`stages.json` has the inputs, the compile options, the tree of points and edges (`compiler/staged.py`) and the checksum
of every other member. A function is a program as JSON (`serialization`), a program is an artifact
(`runtime/artifact.py`). Loading a file runs no code of it. A loaded program needs the package, not the model: after the
first stage it interprets and compiles as before it was saved. The root has no function unless values decide its edge,
so a model with symbolic dimensions accepts only the shapes and deciding values for which it was compiled. A first
stage with symbolic sizes serves all shapes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from tilewright import __version__
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError, InputError, ParseError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.json_reading import read_json
from tilewright.compiler.cache import Cache
from tilewright.compiler.model_compiler import Options
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.report import BuildReport
from tilewright.compiler.sequences import grouped
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.stage_growth import Sizer, grow
from tilewright.compiler.staged import Edge, Key, Point, SizeOf, Stages
from tilewright.compiler.symbolic_stages import SymbolicStage, symbolic_edge
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, Tuple, Var
from tilewright.relay.serialization import load_json, save_json
from tilewright.runtime import compiler_hooks
from tilewright.runtime.artifact import STAGES_MEMBER, Artifact, load_tar
from tilewright.runtime.call_inputs import described
from tilewright.runtime.entry_layout import EntryLayout
from tilewright.runtime.files import write_atomically
from tilewright.runtime.sealed_tar import is_sealed, member, plain_members, sealed_tar

Array = np.ndarray[Any, Any]

FORMAT: Final = "tilewright stages 1"


@dataclass(frozen=True)
class Way:
    """Name, target and options with which the stages of a program are compiled."""

    name: str
    target: Target
    options: Options
    threads: int | None = None
    entry: EntryLayout | None = None
    """The structure of the values that the program takes and returns, if not all are tensors."""

    def compiled(self, function: Function) -> Artifact:
        """Compile one stage."""
        with self.options.context():
            return compile_module(
                lambda: IRModule.from_expr(function), self.target, self.name, BuildReport(), Cache.default())

    def compiled_symbolic(self, stage: SymbolicStage) -> Artifact:
        """Compile one stage for all sizes. Raises `OpenSizeError` if it has no such program."""
        return stage.compiled(self.target.processor, self.name, BuildReport(), Cache.default())


def save_stages(tree: Stages, way: Way, main: Function | None, path: Path) -> Path:
    """Write a program and its compiled stages. `main` is the whole program if values of its inputs decide its first
    edge.

    Raises `ArtifactError` for another kind of file, and for a first stage that needs Python.
    """
    if path.suffix != ".tar":
        raise ArtifactError(
            f"{path}: a program in stages, which can grow at run time, is saved as .tar, not as "
            f"'{path.suffix}'", code="TW0802")
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-stages-") as folder:
            write_atomically(path, _Writer(Path(folder), tree, way, main).write)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror or error}", code="TW0801") from error
    return path


class _Writer:
    """Members of one file, made before it is written: the first member has the checksums of the others."""

    def __init__(self, folder: Path, tree: Stages, way: Way, main: Function | None) -> None:
        self.folder = folder
        self.sums: dict[str, str] = {}
        said = {
            "format": FORMAT, "version": __version__, "name": way.name, "target": str(way.target),
            "options": way.options.to_json(), "threads": way.threads,
            "inputs": [[name, list(dims), str(dtype)] for name, dims, dtype, _ in tree.signature],
            "root": self._point(tree.root, main),
        }
        if way.entry is not None:
            said["entry"] = way.entry.to_json()
        self.text = json.dumps({**said, "sums": self.sums}).encode()

    def write(self, file: BinaryIO) -> None:
        with sealed_tar(file) as archive:
            for name, data in (
                (STAGES_MEMBER, self.text), ("stages.sha256", hashlib.sha256(self.text).hexdigest().encode())
            ):
                archive.addfile(member(name, len(data)), io.BytesIO(data))
            for name in self.sums:
                with (self.folder / name).open("rb") as content:
                    archive.addfile(member(name, (self.folder / name).stat().st_size), content)

    def _point(self, point: Point, function: Function | None) -> dict[str, Any]:
        edges = [
            self._edge(e) for e in list(point.edges.values()) if e.ready and (function is None or not _needs_python(e))]
        symbolic = [
            {**self._edge(e), "key": _stored_key(key), "sizes": [*map(_stored_size, e.sizes)]}
            for key, e in list(point.symbolic.items()) if e is not None]
        return {
            "function": self._function(function), "open": point.open, "asked": point.asked, "met": point.met,
            "edges": edges, "decided": point.decided, "symbolic": symbolic,
            "most": [[*_stored_size(size), most] for size, most in point.most.items()],
        }

    def _edge(self, edge: Edge) -> dict[str, Any]:
        return {
            "key": _stored_key(edge.key), "takes": edge.takes,
            "gives": edge.gives, "lists": edge.lists,
            "small": edge.small, "program": self._program(edge.program),
            "next": None if edge.next is None else self._point(edge.next, edge.next.function),
            "sizers": [[self._function(_closed(size.call)), places] for size, places in edge.sizers],
        }

    def _function(self, function: Function | None) -> str | None:
        return None if function is None else self._member(
            "function", "json", lambda path: path.write_text(save_json(function)))

    def _program(self, program: Specialization | None) -> str | None:
        return None if program is None else self._member("program", "tar", program.artifact.save)

    def _member(self, kind: str, ending: str, write: Any) -> str:
        name = f"{kind}.{len(self.sums)}.{ending}"
        write(self.folder / name)
        with (self.folder / name).open("rb") as file:
            self.sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return name


def _stored_size(size: SizeOf) -> list[Any]:
    return [size.value, size.place, size.is_dimension]


def _loaded_size(value: Any, place: Any, is_dimension: Any) -> SizeOf:
    return SizeOf(int(value), int(place), bool(is_dimension))


def _stored_key(key: Key) -> list[Any]:
    return [k if isinstance(k, tuple) else base64.b64encode(k).decode() for k in key]


def _loaded_key(key: Sequence[Any]) -> Key:
    return tuple(base64.b64decode(k) if isinstance(k, str) else tuple(k) for k in key)


def _needs_python(edge: Edge) -> bool:
    return edge.program is not None and bool(edge.program.artifact.manifest.host_steps)


def _closed(call: Call) -> Function:
    """Return a function with a call as its body, and parameters of the types of its arguments."""
    args: list[Expr] = []
    params: list[Var] = []
    for a in call.args:
        made = [
            Var(f"v{len(params) + k}", f.known_type()) for k, f in enumerate(a.fields if isinstance(a, Tuple) else (a,))
        ]
        params += made
        args.append(Tuple(tuple(made)) if isinstance(a, Tuple) else made[0])
    return Function(params, Call(call.op, args, span=call.span))


class SavedStages(Stages):
    """A loaded program in stages, called like the model that it was saved from."""

    name = "default"
    entry: EntryLayout | None = None

    def module(self) -> Any:
        """Return the program as a module of `runtime.load_module`."""
        from tilewright.compiler.build import StagedModule

        return StagedModule(self, self.name, self._output_count(), None, self.entry)

    def _output_count(self) -> int:
        """Return the number of outputs: that of any way to the end of the program."""
        ends = (len(edge.gives) for edge in self.edges() if edge.next is None)
        return next(ends, 1)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        results, lists = self.run(self.arrays(args, kwargs), out)
        if out is not None and lists:
            raise InputError(
                "the program returns sequences or optionals, but out= supports only tensors; omit it", code="TW0705")
        return grouped(results, lists) if lists else results


@compiler_hooks.load_stages.provide
def load_stages(path: Path, threads: int | None = None) -> SavedStages:
    """Load a file of `save_stages`, ready to call. Raises `ArtifactError` for a damaged file, and one for another
    machine."""
    try:
        if not is_sealed(path):
            raise _damaged(path)
        with tarfile.open(path, "r:") as archive:
            return _Reader(path, archive, threads).whole()
    except (tarfile.TarError, KeyError, EOFError, ValueError, TypeError, IndexError, ParseError) as error:
        raise _damaged(path) from error
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}", code="TW0803") from error


def _damaged(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path}: the file is damaged (its contents do not match its checksum); copy it again, or compile the model "
        "again", code="TW0804")


class _Reader:
    """Reader of one file."""

    def __init__(self, path: Path, archive: tarfile.TarFile, threads: int | None) -> None:
        self.path, self.archive, self.threads = path, archive, threads
        self.members = {m.name: m for m in plain_members(archive, path.stat().st_size)}

    def whole(self) -> SavedStages:
        text = self._bytes(STAGES_MEMBER)
        if hashlib.sha256(text).hexdigest().encode() != self._bytes("stages.sha256"):
            raise _damaged(self.path)
        said = read_json(text)
        if said["format"] != FORMAT:
            raise ArtifactError(
                f"{self.path}: a program in stages of the format '{said['format']}', but this version reads "
                f"'{FORMAT}'; compile the model again", code="TW0806")
        for name, wanted in said["sums"].items():
            if hashlib.sha256(self._bytes(name)).hexdigest() != wanted:
                raise _damaged(self.path)
        self.threads = said["threads"] if self.threads is None else self.threads
        way = Way(str(said["name"]), Target(said["target"]), Options.from_json(said["options"]), self.threads)
        inputs = [(str(n), tuple(dims), str(t)) for n, dims, t in said["inputs"]]
        root = self._point(said["root"], hashlib.sha256(text).hexdigest())

        def grown(point: Point, values: Sequence[Array] | None) -> tuple[Edge, set[int]]:
            if point.function is None:
                shapes = "these" if values is None else ", ".join(str(v.shape) for v in values)
                raise InputError(
                    f"{self.path}: the program takes ({described(inputs)}), and was not called with inputs of the "
                    f"shapes {shapes} before it was saved; compile the model, call it with them, and save it "
                    "again", code="TW0704")
            with no_garbage_collection(), way.options.context():
                return grow(point.function, values)

        def symbolic(
            point: Point, values: Sequence[Array], foreseen: bool
        ) -> tuple[Edge | None, tuple[int, ...]]:
            with no_garbage_collection(), way.options.context():
                return symbolic_edge(
                    point, values, lambda stage, _: Specialization(way.compiled_symbolic(stage), self.threads),
                    foreseen=foreseen)

        made = SavedStages(
            inputs, root, grown, lambda make, edge: Specialization(way.compiled(make()), self.threads),
            symbolic=symbolic)
        made.name, made.entry = way.name, EntryLayout.from_json(said["entry"]) if "entry" in said else None
        return made

    def _bytes(self, name: str) -> bytes:
        stream = self.archive.extractfile(self.members[name])
        if stream is None or self.members[name].size > self.path.stat().st_size:
            raise _damaged(self.path)
        with stream:
            return stream.read()

    def _function(self, name: str | None) -> Function | None:
        if name is None:
            return None
        found = load_json(self._bytes(name).decode())
        if not isinstance(found, Function):
            raise _damaged(self.path)
        return found

    def _program(self, name: str | None) -> Specialization | None:
        return None if name is None else Specialization(
            load_tar(self.path, self.members[name].offset_data, is_whole=False), self.threads)

    def _point(self, said: dict[str, Any], name: str) -> Point:
        point = Point(self._function(said["function"]), said["open"])
        point.asked, point.met, point.name = tuple(said["asked"]), int(said["met"]), name
        for one in said["edges"]:
            point.keep(_loaded_key(one["key"]), self._edge(one))
        point.decided = tuple(said.get("decided", ()))
        point.most = {_loaded_size(*size): int(most) for *size, most in said.get("most", ())}
        for one in said.get("symbolic", ()):
            key, edge = _loaded_key(one["key"]), self._edge(one)
            point.name_edge(edge, edge.sizes, point.decided, key)
            point.symbolic[key] = edge
        return point

    def _edge(self, one: dict[str, Any]) -> Edge:
        after = None if one["next"] is None else self._point(one["next"], "")
        sizers = [(self._sizer(function), tuple(places)) for function, places in one["sizers"]]
        sizes = [_loaded_size(*size) for size in one.get("sizes", ())]
        edge = Edge(
            one["takes"], one["gives"], after, None, sizers, small=one["small"], lists=tuple(one["lists"]), sizes=sizes)
        edge.program = self._program(one["program"])
        return edge

    def _sizer(self, name: str) -> Sizer:
        function = self._function(name)
        if function is None or not isinstance(function.body, Call):
            raise _damaged(self.path)
        return Sizer(function.body)
