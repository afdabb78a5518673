"""Model Library Format: a compiled model as files in a tar, to be linked into firmware or other programs.

    metadata.json                          version 7: memory, inputs, outputs, target
    codegen/host/lib/*.o                   kernels, entry function and constants, to be linked
    codegen/host/include/tvmgen_<name>.h   the C interface of the entry function
    executor-config/aot/<name>.json        the manifest: the steps, in order
    executor-config/graph/<name>.graph     the graph, for a model with the executor graph
    parameters/<name>.params               no parameters: constants are in the objects
    external/<k>.<kind>.bin                what other compilers made, as their modules save it
    src/<name>.relay                       the network, where it is given

A model that is one C file (`Model.save_c_library`) has no objects and no manifest, but

    codegen/host/src/<name>.c              the model; codegen/host/include/<name>.h beside it
    codegen/host/src/<name>_lib0.c         TVM's C interface of it, declared in codegen/host/include/tvmgen_<name>.h
    codegen/host/test/<name>_test.c        compares it with known answers; main.c runs it on files

`runtime.load_module` reads a library of one program with objects, and `micro.read_model_library` one in C.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.backends.cpu.c.interface import interface_of
from tilewright.backends.cpu.c.model import CModel
from tilewright.base.errors import ArtifactError
from tilewright.base.params import save_param_dict
from tilewright.compiler.export import artifact_parts, write_constants
from tilewright.ir.module import IRModule
from tilewright.runtime.files import write_atomically
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.graph_json import graph_json
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.program import KernelCall, TensorInfo
from tilewright.runtime.sealed_tar import member, sealed_tar

VERSION: Final = 7
"""Version of the metadata."""
_GENERATED_VERSION: Final = VERSION
"""TVM's name of the version."""
_CPU: Final = 1
"""DLPack's number of the CPU."""


class ModuleNamesError(ArtifactError, AssertionError):
    """Two models of one library have the same name. TVM raises an `AssertionError`."""

    code = "TW0809"


def export_model_library_format(
    mod: FactoryModule | FunctionModule | Sequence[FactoryModule | FunctionModule], file_name: str | os.PathLike[str],
    sources: Sequence[IRModule] = (), now: datetime.datetime | None = None,
) -> Path:
    """Write models that `relay.build` returned to a `.tar`, with the text of their networks `sources`, and return the
    path.

    One model for a target of kind c is written as C, with the text of its own network.

    `now` is the time in the metadata (default: the beginning of 1970, so that equal models give equal files). Raises
    `ArtifactError` for another extension, functions of `tvm.build`, programs that need Python, programs loaded from a
    library, which have no objects, and two models of one name.
    """
    path, given = Path(file_name), list(mod) if isinstance(mod, Sequence) else [mod]
    libraries = [lib for lib in given if isinstance(lib, FactoryModule)]
    if len(libraries) < len(given):
        raise ArtifactError(
            f"{path}: a model library has models that relay.build returned, and not functions of tvm.build; save those "
            "with export_library", code="TW0809")
    if path.suffix != ".tar":
        raise ArtifactError(f"{path}: a model library is a .tar", code="TW0802")
    if len(libraries) == 1 and (write := libraries[0].write_c) is not None:
        return write(path)
    names = [lib.libmod_name for lib in libraries]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ModuleNamesError(
            f"{path}: Multiple modules should have unique names: two models are called '{twice}'; give relay.build "
            "another mod_name for each", code="TW0809")
    stamp = _stamp(now)
    members: dict[str, bytes] = {}
    modules = {}
    for k, lib in enumerate(libraries):
        files, modules[lib.libmod_name] = _files_of(lib, len(libraries) > 1, path)
        members |= files
        modules[lib.libmod_name]["export_datetime"] = stamp
        if k < len(sources):
            members[f"src/{lib.libmod_name}.relay"] = sources[k].astext(show_meta_data=False).encode()
    members = {"metadata.json": _metadata(modules), **members}
    write_atomically(path, lambda file: _write(file, members))
    return path


def c_paths(name: str) -> dict[str, str]:
    """Return the paths of the files of a model in C within a library, with a description of each."""
    host = "codegen/host"
    return {
        f"{host}/src/{name}.c": "source", f"{host}/include/{name}.h": "header", f"{host}/test/{name}_test.c": "test",
        f"{host}/test/main.c": "main"
    }


def write_c_library(
    model: CModel, texts: Mapping[str, str], target: str, path: Path, source: IRModule | None = None,
    now: datetime.datetime | None = None
) -> Path:
    """Write a model in C; `texts` are those of `target.c.project.files`. The other arguments are those of
    `export_model_library_format`."""
    if path.suffix != ".tar":
        raise ArtifactError(f"{path}: a model library is a .tar", code="TW0802")
    described = {
        "model_name": model.name, "executors": ["aot"], "style": "full-model", "target": [target],
        "external_dependencies": [],
        "export_datetime": _stamp(now),
        "memory": {
            "functions": {
                "main": [_bytes_needed(model.workspace_bytes, model.constant_bytes, model.inputs, model.outputs)],
                "operator_functions": []
            }
        },
    }
    members = {"metadata.json": _metadata({model.name: described})}
    members |= {p: texts[p.rpartition("/")[2]].encode() for p in c_paths(model.name)}
    made = interface_of(model)
    members[f"codegen/host/src/{made.name}_lib0.c"] = made.source.encode()
    members[f"codegen/host/include/tvmgen_{made.name}.h"] = made.header.encode()
    members[f"parameters/{model.name}.params"] = save_param_dict({})
    if source is not None:
        members[f"src/{model.name}.relay"] = source.astext(show_meta_data=False).encode()
    write_atomically(path, lambda file: _write(file, members))
    return path


def _files_of(lib: FactoryModule, is_one_of_several: bool, path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a model, and its metadata."""
    artifact, name = lib.artifact, lib.libmod_name
    if not artifact.objects:
        raise ArtifactError(
            f"{path}: '{name}' was loaded from a library, which has no object files left; compile the model again",
            code="TW0807")
    if is_one_of_several and not artifact.manifest.is_native:
        raise ArtifactError(
            f"{path}: '{name}' has parts that are not native code, so it cannot be exported with other models; export "
            "it separately", code="TW0807"
        )
    manifest, images, _ = artifact_parts(artifact)
    with tempfile.TemporaryFile() as constants:
        write_constants(constants, artifact, manifest, b"")
        constants.seek(0)
        images = {**images, "constants.o": constants.read()}
    prefix = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}." if is_one_of_several else ""
    files = {f"codegen/host/lib/{prefix}{file}": image for file, image in images.items()}
    if manifest.is_native:
        files[f"codegen/host/include/tvmgen_{manifest.c_name}.h"] = manifest.header().encode()
    files[f"executor-config/aot/{name}.json"] = manifest.to_json().encode()
    is_graph = lib.executor is not None and lib.executor.name == "graph"
    if is_graph:
        files[f"executor-config/graph/{name}.graph"] = graph_json(manifest).encode()
    files[f"parameters/{name}.params"] = save_param_dict({})
    external = []
    for k, module in enumerate(artifact.modules):
        file, blob = f"external/{prefix}{k}.{module.type_key}.bin", module.save_to_binary()
        files[file] = blob
        external.append({"kind": module.type_key, "file": file, "size_bytes": len(blob)})
    return files, {
        "model_name": name,
        "executors": ["graph" if is_graph else "aot"],
        "style": "full-model",
        "target": [manifest.target],
        "memory": {"functions": {"main": [_memory(manifest)], "operator_functions": _functions(manifest)}},
        "external_dependencies": external,
    }


def _stamp(now: datetime.datetime | None) -> str:
    return (now or datetime.datetime.fromtimestamp(0, datetime.UTC)).strftime("%Y-%m-%d %H:%M:%SZ")


def _metadata(modules: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, "modules": modules}, indent=2, sort_keys=True).encode()


def _memory(manifest: Manifest) -> dict[str, Any]:
    """Return the bytes that the entry function needs on the CPU. Kernels may use additional stack."""
    return _bytes_needed(manifest.workspace_bytes, manifest.constants_bytes, manifest.inputs, manifest.outputs)


def _bytes_needed(
    workspace: int, constants: int, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> dict[str, Any]:
    return {
        "device": _CPU, "workspace_size_bytes": workspace, "constants_size_bytes": constants,
        "io_size_bytes": sum(t.nbytes for t in (*inputs, *outputs)),
        "inputs": dict(map(_tensor, inputs)), "outputs": dict(map(_tensor, outputs)),
    }


def _tensor(t: TensorInfo) -> tuple[str, dict[str, Any]]:
    return t.name, {"dtype": str(t.dtype), "shape": list(t.shape), "size": t.nbytes}


def _functions(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the kernels, each with the origin of its first use."""
    found = {s.symbol: s.origin for s in reversed(manifest.steps) if isinstance(s, KernelCall)}
    return [{"function_name": symbol, "origin": origin} for symbol, origin in reversed(found.items())]


def _write(file: Any, members: dict[str, bytes]) -> None:
    with sealed_tar(file) as archive:
        for name, data in members.items():
            archive.addfile(member(f"./{name}", len(data)), io.BytesIO(data))


__all__ = ["VERSION", "c_paths", "export_model_library_format", "write_c_library"]
