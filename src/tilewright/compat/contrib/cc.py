"""TVM's `tvm.contrib.cc`: the system's C++ compiler, for libraries and programs.

    create_shared("model.so", ["model.o"])
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tilewright.base.errors import ArtifactError

__all__ = [
    "create_executable", "create_shared", "create_staticlib", "cross_compiler", "get_cc", "get_target_by_dump_machine",
]

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def get_cc() -> str | None:
    """Return the path of the C++ compiler: `$CXX`, else the first installed of g++, clang++, clang and gcc."""
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "g++", "clang++", "clang", "gcc"):
        if name and (found := shutil.which(name)):
            return found
    return None


def create_shared(output: str | os.PathLike[str], objects: Files, options: Sequence[str] | None = None,
                  cc: str | None = None, cwd: str | None = None, ccache_env: Any = None) -> None:
    """Link or compile files to a shared library. Raises `ArtifactError` with the message of the compiler."""
    _compile(output, objects, ["-shared", "-fPIC", *(options or ())], cc, cwd)


def create_executable(output: str | os.PathLike[str], objects: Files, options: Sequence[str] | None = None,
                      cc: str | None = None, cwd: str | None = None, ccache_env: Any = None) -> None:
    """Link or compile files to a program. Raises `ArtifactError` with the message of the compiler."""
    _compile(output, objects, list(options or ()), cc, cwd)


def create_staticlib(output: str | os.PathLike[str], inputs: Files, ar: str | None = None) -> None:
    """Write object files to an archive. Raises `ArtifactError`."""
    tool = ar or shutil.which("ar")
    if tool is None:
        raise ArtifactError("no archiver was found; install binutils, or give `ar`", code="TW0507")
    Path(output).unlink(missing_ok=True)
    _run([tool, "rcs", str(output), *_paths(inputs)], None)


def get_target_by_dump_machine(compiler: str) -> Callable[[], str]:
    """Return a function that asks a compiler for its target triple."""
    return lambda: _run([compiler, "-dumpmachine"], None).strip()


class CompileFunction(Protocol):
    """A function like `create_shared`."""

    def __call__(self, output: str | os.PathLike[str], objects: Files, options: Sequence[str] | None = None,
                 cc: str | None = None) -> None: ...


class cross_compiler:
    """`create_shared` with another compiler and more options: the `fcompile` of `export_library`."""

    output_format = "so"

    def __init__(self, compile_func: str | CompileFunction, options: Sequence[str] | None = None,
                 output_format: str = "so", get_target_triple: Callable[[], str] | None = None,
                 add_files: Sequence[str] | None = None) -> None:
        """`compile_func` is the name of a compiler, or a function like `create_shared`; `add_files` are linked, too."""
        self._function = create_shared if isinstance(compile_func, str) else compile_func
        self.compiler = compile_func if isinstance(compile_func, str) else None
        self.output_format = output_format
        self._options, self._files = list(options or ()), list(add_files or ())
        self.get_target_triple = get_target_triple or get_target_by_dump_machine(self.compiler or get_cc() or "cc")

    def __call__(self, outputs: str | os.PathLike[str], objects: Files, options: Sequence[str] | None = None) -> None:
        """Make the library `outputs` from the files."""
        more = [] if self.compiler is None else [self.compiler]
        self._function(outputs, [*_paths(objects), *self._files], [*self._options, *(options or ())], *more)


def _compile(output: str | os.PathLike[str], objects: Files, options: Sequence[str], cc: str | None,
             cwd: str | None) -> None:
    compiler = cc or get_cc()
    if compiler is None:
        raise ArtifactError("no C++ compiler was found; install one, or give `cc`", code="TW0507")
    _run([compiler, "-o", str(output), *_paths(objects), *options], cwd)


def _paths(files: Files) -> list[str]:
    return [str(files)] if isinstance(files, (str, os.PathLike)) else list(map(str, files))


def _run(command: Sequence[str], cwd: str | None) -> str:
    """Return what a command writes. Raises `ArtifactError` if it fails or is missing."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ArtifactError(f"{command[0]} cannot be run: {error}", code="TW0508") from error
    if done.returncode:
        raise ArtifactError(f"{' '.join(command)}\nfailed:\n{done.stdout}{done.stderr}", code="TW0508")
    return done.stdout
