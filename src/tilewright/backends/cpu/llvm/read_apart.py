"""Text of LLVM with parts that a user wrote, read in another process, because LLVM ends its process for some errors."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import llvmlite

_READ: Final = "read"
_UNKNOWN: Final = "; Unknown intrinsic"
_READER: Final = """
import sys
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
try:
    module = llvm.parse_assembly(sys.stdin.read())
    module.verify()
except RuntimeError as error:
    sys.exit(str(error))
print(str(module) + sys.argv[2])
"""


@dataclass(frozen=True)
class Reading:
    """Whether LLVM accepts a text, what it says otherwise, and whether the text declares a function that LLVM does not
    have."""

    accepted: bool
    message: str
    unknown: bool


@functools.lru_cache(256)
def read_apart(text: str) -> Reading:
    """Read a module in another process."""
    folder = str(Path(llvmlite.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _READER, folder, _READ], input=text, capture_output=True, text=True, check=False)
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return Reading(
        done.stdout.rstrip().endswith(_READ), " ".join(said[:2]) or "LLVM ended its process", _UNKNOWN in done.stdout)
