"""Functions that an installed compiler provides to the runtime. Without it, a call raises `ImportError`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.plugins import Hook

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker
    from tilewright.runtime.artifact import Artifact
    from tilewright.runtime.functions import FunctionModule
    from tilewright.runtime.manifest import Manifest
    from tilewright.runtime.program import Code

save: Final[Hook[[Artifact, Path, Linker | None], Path]] = Hook("tilewright.compiler.export")
"""Link a program that is in memory, and write it to a file."""
named_linker: Final[Hook[[str], Linker]] = Hook("tilewright.compiler.export")
"""Return the linker that a compiler command names."""
link_for_debuggers: Final[Hook[[Artifact], Code]] = Hook("tilewright.compiler.export")
"""Load a program as a separate library, so that debuggers see its code."""
load_objects: Final[Hook[[Sequence[bytes], Sequence[str]], Code]] = Hook("tilewright.backends.cpu.llvm.jit")
"""Link object files in memory: `load_objects(objects, symbols)`, with the symbols that are looked up later."""
load_stages: Final[Hook[[Path, int | None], Any]] = Hook("tilewright.compiler.saved_stages")
"""Load a program in stages, which compiles more stages while it runs: `load_stages(file, threads)`."""
load_c: Final[Hook[[Path], FunctionModule]] = Hook("tilewright.compiler.functions")
"""Compile and load a file of C text that `export_library` wrote."""
compiled_again: Final[
    Hook[[Artifact, str, str | None, Sequence[str]], Artifact]
] = Hook("tilewright.compiler.functions")
"""Compile C text again: `compiled_again(artifact, text, compiler, options)`."""
export_sanitized: Final[
    Hook[[Artifact, str, Path, str | None, Sequence[str], str], Path]
] = Hook("tilewright.compiler.functions")
"""Write a library for sanitizers: `export_sanitized(artifact, text, path, compiler, options, sanitizers)`."""
timed_entries: Final[Hook[[Manifest, Callable[[str], int]], Any]] = Hook("tilewright.backends.cpu.llvm.timed")
"""Entry functions that read the clock between steps: `timed_entries(manifest, address_of_symbol)`; None if native
code has no clock."""
