"""Loads object files into this process, with LLVM's linker for just-in-time code."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from tilewright.backends.cpu.elf import functions_of
from tilewright.backends.cpu.llvm import perf
from tilewright.backends.cpu.llvm.compile import target_machine
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError
from tilewright.runtime import compiler_hooks, kept_values


@compiler_hooks.load_objects.provide
class LoadedCode:
    """Objects linked into the process; the addresses are valid while this object lives.

    Each has its own linker: a shared linker would keep some kilobytes of every library that was ever loaded.
    """

    def __init__(
        self, objects: Sequence[bytes], symbols: Sequence[str], elsewhere: Mapping[str, int] | None = None
    ) -> None:
        """Link `objects` with each other and with the C library.

        `symbols` are those to be looked up; `elsewhere` has addresses of other code.
        """
        self._objects, self._symbols = objects, frozenset(symbols)
        self._open: LoadedCode | None = None
        told = perf.kind_wanted()
        known = [name for image in objects for name in functions_of(image)] if told else []
        library = llvm.JITLibraryBuilder()
        for image in objects:
            library.add_object_img(image)
        library.add_current_process()
        for name, address in (elsewhere or {}).items():
            library.import_symbol(name, address)
        for name in dict.fromkeys((*symbols, *known)):
            library.export_symbol(name)
        # LLVM's older linker ends the process if the system places the sections of an object far from each other
        linker = llvm.create_lljit_compiler(target_machine(Target("llvm")), use_jit_link=True)
        try:
            self._tracker: Any = library.link(linker, "tilewright")
        except RuntimeError as error:
            raise InternalError(
                f"the generated code cannot be loaded: {error} (LLVM names missing symbols on standard error)"
            ) from error
        leave = kept_values.use(self.address(kept_values.USERS)) if kept_values.USERS in self._symbols else None
        # Not at exit: worker threads may still run this code, and the end of the process frees it anyway.
        weakref.finalize(self, _unload, self._tracker, linker, leave).atexit = False
        if told:
            perf.tell(told, objects, self.address)

    def address(self, symbol: str) -> int:
        """Return the address of one of the requested symbols."""
        return int(self._tracker[symbol])

    def hidden_address(self, symbol: str) -> int:
        """Return the address of any symbol: in a copy of the code with all functions global, linked at the first call.

        Raises `KeyError` if there is no such symbol.
        """
        if self._open is None:
            functions = (name for image in self._objects for name in functions_of(image))
            self._open = LoadedCode(self._objects, tuple(dict.fromkeys((*self._symbols, *functions))))
        if symbol not in self._open._symbols:
            raise KeyError(symbol)
        return self._open.address(symbol)


def _unload(tracker: Any, linker: Any, leave: Callable[[], None] | None) -> None:
    if leave is not None:
        leave()
    tracker.close()
    linker.close()
