"""Models as C files: `Model.save("model.c")`, `Model.export_c(folder)`, `tilewright compile MODEL -t c -o model.c`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.backends.cpu.c.model import CModel, emit_model
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError, CompileError
from tilewright.compiler.cache import Cache
from tilewright.compiler.external import without_parts
from tilewright.compiler.flow import needs_control
from tilewright.compiler.pipeline import OffLoaded, compile_module, compiling, front_half, off_loaded
from tilewright.compiler.program import build_parts
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.runtime.files import write_atomically
from tilewright.tir.transform.instrument_memory import Checks

Array = np.ndarray[Any, Any]


def c_model(make: Callable[[], IRModule], target: Target, name: str) -> CModel:
    """Return the module that `make` returns as one C file. Raises `CompileError` if it has control flow, dynamic sizes,
    memory checks, or parts made by other compilers."""
    one_core = Target({"num-cores": 1, **target.processor.export()})
    with compiling():
        taken = off_loaded(make(), target)
        reason = _refusal(taken)
        if reason:
            raise CompileError(f"'{name}' cannot be one C file: {reason}", code="TW0511")
        front = front_half(taken.module, one_core)
        main = front.functions[0]
        parts = [part for module in taken.modules if (part := module.as_c()) is not None]
        return emit_model(*build_parts(main, one_core, name, BuildReport(), front.output_names, front.loops), parts)


def _refusal(taken: OffLoaded) -> str:
    """Return the reason why a module cannot be one C file; empty if it can."""
    if any(module.as_c() is None for module in taken.modules):
        return "other compilers compiled parts of it; remove the accelerator from the target"
    if needs_control(taken.module["main"]):
        return "it has control flow (branches, loops, closures); save it as .so or .tar, whose C interface is the same"
    if Checks.current() is not None:
        return (
            "its memory accesses are checked (tir.instrument_…), but one C file cannot report faults; build for the "
            "target 'c' and save it as .so")
    return ""


def known_answers(
    make: Callable[[], IRModule], name: str, cache: Cache, inputs: Sequence[Array] | None
) -> tuple[list[Array], list[Array]]:
    """Return the inputs (default: random ones), and the results of the LLVM back end for them on this machine.

    Calls of libraries count as the operators that they stand for.
    """
    artifact = compile_module(lambda: without_parts(make()), Target("llvm"), name, None, cache)
    random = np.random.default_rng(0)
    given = [np.ascontiguousarray(x) for x in inputs] if inputs is not None else [
        _filled(t, random) for t in artifact.manifest.inputs]
    answer = artifact.executable(threads=1)(*given)
    return given, [np.ascontiguousarray(a) for a in (answer if isinstance(answer, tuple) else (answer,))]


def _filled(t: Any, random: np.random.Generator) -> Array:
    """Return random values: 0 and 1 for integers (0 to 255 for bytes), a normal distribution for floats."""
    kind = t.dtype.numpy()
    most = 2 if t.dtype.bits > 8 or t.dtype.code == "bool" else 256
    values: Array = random.standard_normal(t.shape) if t.dtype.is_float else random.integers(0, most, t.shape)
    return values.astype(kind)


def write_model(model: CModel, path: Path) -> Path:
    """Write `<stem>.c` and `<stem>.h`."""
    if path.stem != model.name:
        raise ArtifactError(
            f"{path}: the model is called '{model.name}', and its file includes {model.name}.h; write "
            f"{path.with_name(model.name + '.c')}", code="TW0802")
    write_files({f"{model.name}.c": model.source, f"{model.name}.h": model.header}, path.parent)
    return path


def write_project(texts: dict[str, str], folder: Path) -> list[Path]:
    """Write the files that `target.c.project.files` returned: the model, its test, an example and a Makefile."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_files(texts, folder)


def write_files(texts: dict[str, str], folder: Path) -> list[Path]:
    """Write files into a folder, each atomically. Raises `ArtifactError`."""
    paths = []
    for name, text in texts.items():
        path, data = folder / name, text.encode()
        try:
            write_atomically(path, partial(_fill, data))
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be written: {error.strerror or error}", code="TW0801") from error
        paths.append(path)
    return paths


def _fill(data: bytes, file: BinaryIO) -> None:
    file.write(data)
