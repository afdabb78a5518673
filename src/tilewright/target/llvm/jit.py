"""Object files -> addresses in this process, through LLVM's linker for just-in-time code."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from typing import Any, Final

import llvmlite.binding as llvm

from tilewright.errors import InternalError
from tilewright.target.llvm.compile import target_machine
from tilewright.target.target import Target

_NUMBERS: Final = itertools.count()
_LOCK: Final = threading.Lock()


class LoadedCode:
    """Objects linked into the process; the addresses are good for as long as this object lives."""

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str]) -> None:
        """Link `objects` with each other and with the C library; `symbols` are those whose address is wanted."""
        library = llvm.JITLibraryBuilder()
        for image in objects:
            library.add_object_img(image)
        library.add_current_process()
        for name in symbols:
            library.export_symbol(name)
        try:
            with _LOCK:
                self._tracker: Any = library.link(_linker(), f"tilewright{next(_NUMBERS)}")
        except RuntimeError as error:
            raise InternalError(f"the generated code cannot be loaded: {error} (LLVM names missing symbols on standard error)") from error

    def address(self, symbol: str) -> int:
        """Where `symbol`, one of those asked for, starts in memory."""
        return int(self._tracker[symbol])


@functools.cache
def _linker() -> Any:
    """One linker for the process. It must outlive all code, so it is never closed."""
    return llvm.create_lljit_compiler(target_machine(Target("llvm")))
