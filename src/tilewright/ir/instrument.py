"""Pass instruments: passed to `PassContext(instruments=[…])`, called before and after every pass.

An instrument is a `PassInstrument`, or a class decorated with `@pass_instrument` that has some of its methods.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.base.errors import InternalError, TVMError

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.ir.transform import PassInfo

C = TypeVar("C", bound=type)


class PassInstrument:
    """Base of pass instruments; a subclass overrides the methods that it needs."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Return False to skip this pass."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the module before the pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the result of the pass."""


def pass_instrument(pi_cls: C | None = None) -> Any:
    """Turn a class with some of the methods of `PassInstrument` into an instrument: `@pass_instrument`, or
    `@pass_instrument()`."""

    def declare(cls: type) -> type:
        bases = (cls,) if issubclass(cls, PassInstrument) else (cls, PassInstrument)
        return type(cls.__name__, bases, {"__doc__": cls.__doc__, "__module__": cls.__module__})

    return declare if pi_cls is None else declare(pi_cls)


@dataclass
class PassTimingInstrument(PassInstrument):
    """Measures every pass; `render()` returns the table."""

    rows: list[tuple[int, str, float]] = field(default_factory=list)
    _open: list[tuple[int, float]] = field(default_factory=list)

    def enter_pass_ctx(self) -> None:
        self.rows.clear()
        self._open.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self.rows), time.perf_counter()))
        self.rows.append((len(self._open) - 1, info.name, 0.0))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        at, begin = self._open.pop()
        depth, name, _ = self.rows[at]
        self.rows[at] = (depth, name, time.perf_counter() - begin)

    def render(self) -> str:
        """Return one line per pass, nested passes indented: its name, milliseconds, and share of the total."""
        total = sum(t for depth, _, t in self.rows if depth == 0) or 1.0
        return "\n".join(f"{'  ' * depth}{name}: {t * 1e3:.3f} ms ({t / total:.1%})" for depth, name, t in self.rows)


@dataclass
class PassPrintingInstrument(PassInstrument):
    """Prints the module before or after the passes of these names."""

    print_before_pass_names: Sequence[str] = ()
    print_after_pass_names: Sequence[str] = ()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.print_before_pass_names:
            _print("before", mod, info)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.print_after_pass_names:
            _print("after", mod, info)


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print("before", mod, info)


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print("after", mod, info)


def _print(when: str, mod: IRModule, info: PassInfo) -> None:
    print(f"# {when} the pass {info.name}\n{mod.astext(show_meta_data=False)}")


@dataclass
class DumpIR(PassInstrument):
    """Writes the module as text after every pass: `dump_dir/03_FoldConstant.relay`; `refresh` empties the folder
    first."""

    dump_dir: str | Path
    refresh: bool = False
    _count: int = 0

    def enter_pass_ctx(self) -> None:
        if self.refresh and Path(self.dump_dir).is_dir():
            shutil.rmtree(self.dump_dir)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        folder = Path(self.dump_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self._count:02d}_{info.name}.relay").write_text(mod.astext(show_meta_data=False), encoding="utf-8")
        self._count += 1


DumpInstrument = DumpIR


@dataclass
class VerifyInstrument(PassInstrument):
    """Runs `check` on the result of every pass; its errors name the pass."""

    check: Callable[[IRModule], None]

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        try:
            self.check(mod)
        except TVMError as error:
            raise InternalError(
                f"the module is not well formed after the pass {info.name}: {error}", code="TW1302"
            ) from error
