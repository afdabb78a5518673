"""Object files -> addresses in this process, through LLVM's linker for just-in-time code."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from tilewright.errors import InternalError
from tilewright.target.llvm.compile import target_machine
from tilewright.target.target import Target


class LoadedCode:
    """Objects linked into the process; the addresses are good for as long as this object lives.

    Each has its own linker: a shared one would keep some kilobytes of every library that was ever loaded.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str]) -> None:
        """Link `objects` with each other and with the C library; `symbols` are those whose address is wanted."""
        library = llvm.JITLibraryBuilder()
        for image in objects:
            library.add_object_img(image)
        library.add_current_process()
        for name in symbols:
            library.export_symbol(name)
        linker = llvm.create_lljit_compiler(target_machine(Target("llvm")))
        try:
            self._tracker: Any = library.link(linker, "tilewright")
        except RuntimeError as error:
            raise InternalError(f"the generated code cannot be loaded: {error} (LLVM names missing symbols on standard error)") from error
        # Not at exit: worker threads may still be running this code then, and the process takes it away anyway.
        weakref.finalize(self, _unload, self._tracker, linker).atexit = False

    def address(self, symbol: str) -> int:
        """Where `symbol`, one of those asked for, starts in memory."""
        return int(self._tracker[symbol])


def _unload(tracker: Any, linker: Any) -> None:
    tracker.close()
    linker.close()
