"""Python scripts under tools that look at their memory.

    python -m tilewright.debug asan SCRIPT [ARGUMENTS]

runs a script with AddressSanitizer in its process, for libraries that `export_library(…, sanitize="address")` wrote. Where their functions touch
memory that is not theirs, the process ends with status 1, and a report on stderr has the line of the C text.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tilewright.errors import TargetError
from tilewright.runtime.host import host_arch
from tilewright.target.c.compile import find_compilers, named_compiler, sanitizer_of

_OPTIONS: Final = "detect_leaks=0:allocator_may_return_null=1"
"""Python itself frees less than a detector of leaks expects, and asks what it may not get."""


def asan(script: str, arguments: Sequence[str] = ()) -> int:
    """Run a Python script with gcc's AddressSanitizer; returns its status. Raises `TargetError` where there is none."""
    compilers = [c for c in find_compilers(host_arch()) if not c.is_zig]
    library = sanitizer_of(compilers[0] if compilers else named_compiler("gcc"))
    given = os.environ.get("ASAN_OPTIONS")
    environment = {**os.environ, "LD_PRELOAD": str(library), "ASAN_OPTIONS": f"{_OPTIONS}:{given}" if given else _OPTIONS}
    status = subprocess.run([sys.executable, script, *arguments], env=environment, check=False).returncode
    return status if status >= 0 else 128 - status


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the status."""
    match arguments:
        case ["asan", script, *rest]:
            try:
                return asan(script, rest)
            except TargetError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
        case _:
            print("usage: python -m tilewright.debug asan SCRIPT [ARGUMENTS]", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
