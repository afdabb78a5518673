"""TVM's `tvm.contrib.clang`: C and C++ source as LLVM text, for functions that a schedule imports.

    text = create_llvm('extern "C" int twice(int x) { return 2 * x; }')
    s[C].pragma(axis, "import_llvm", text)
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import ArtifactError

__all__ = ["create_llvm", "find_clang"]


def find_clang(required: bool = True) -> list[str]:
    """Return the commands of Clang for C++, best first: `clang`, `clang-14` and so on, and that of the package ziglang.

    Raises `ArtifactError` if there is none and `required` is set.
    """
    folders = os.environ.get("PATH", "").split(os.pathsep)
    versions = {p.name for folder in folders if folder for p in Path(folder).glob("clang-[0-9]*")}
    numbered = sorted((n for n in versions if n[6:].isdigit()), key=lambda n: -int(n[6:]))
    found = [path for name in ("clang", *numbered) if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        found.append(f"{sys.executable} -m ziglang c++")
    if not found and required:
        raise ArtifactError("Clang was not found; install it, or the Python package ziglang, or give `cc`",
                            code="TW0507")
    return found


def create_llvm(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] | None = None,
    options: Sequence[str] | None = None, cc: str | None = None,
) -> str:
    """Return C++ source as LLVM text. `inputs` are files or, where there is no such file, source text.

    `output` is a file for the text. Raises `ArtifactError` with the message of the compiler.
    """
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    command = (cc or find_clang()[0]).split(" ")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(output) if output is not None else Path(folder) / "made.ll"
        files = [_file(source, Path(folder) / f"input{k}.cc") for k, source in enumerate(given)]
        command += ["-O3", "-fno-sanitize=all", "-emit-llvm", "-S", "-o", str(made), *(options or ()), *files]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ArtifactError(f"{command[0]} cannot be run: {error}", code="TW0508") from error
        if done.returncode:
            raise ArtifactError(f"{' '.join(command)}\nfailed:\n{done.stdout}{done.stderr}", code="TW0508")
        return made.read_text(encoding="utf-8")


def _file(source: str | os.PathLike[str], place: Path) -> str:
    """Return the path of a source file, or write source text to `place`."""
    if isinstance(source, os.PathLike) or ("\n" not in source and Path(source).exists()):
        return str(source)
    place.write_text(source, encoding="utf-8")
    return str(place)
