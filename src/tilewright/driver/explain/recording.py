"""Records the changes of each graph pass: text, graph, time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.driver.explain.graphs import Graph, graph_of_module
from tilewright.ir.instrument import PassInstrument
from tilewright.relay.expr import Function

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.ir.transform import PassInfo

IMPORTED = "import"
"""The name of the state before any pass."""
BETWEEN = "between passes"
"""The name of a change outside passes, such as the removal of functions for accelerators."""


@dataclass(frozen=True, slots=True)
class State:
    """The module after the pass `name`, which took `seconds`: its lines of text, and its graph."""

    name: str
    seconds: float
    lines: tuple[str, ...]
    graph: Graph


@dataclass
class Recording(PassInstrument):
    """Keeps a state for each pass that changed the module: `states[0]` is the imported module.

    A pass that runs inside another one is recorded separately if it works on the same module. If it works on a
    different module, for example to fold a constant, it belongs to the outer pass.
    """

    states: list[State] = field(default_factory=list)
    passes: int = 0
    """Number of passes that ran, including those without changes."""
    external: dict[str, Function] = field(default_factory=dict)
    """The functions for accelerators, by symbol, in their last version."""
    _module: IRModule | None = None
    _open: list[tuple[bool, float]] = field(default_factory=list)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        ours = mod is self._module or not self._open
        if ours and mod is not self._module:
            self._note(mod, BETWEEN if self.states else IMPORTED, 0.0)
        self._open.append((ours, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        ours, begin = self._open.pop()
        if ours:
            self.passes += 1
            self._note(mod, info.name, time.perf_counter() - begin)

    def _note(self, mod: IRModule, name: str, seconds: float) -> None:
        if mod is self._module:
            return
        self._module = mod
        lines = tuple(mod.astext(show_meta_data=False).rstrip("\n").split("\n"))
        if not self.states or self.states[-1].lines != lines:
            self.states.append(State(name, seconds, lines, graph_of_module(mod)))
        for n, f in mod.items():
            if isinstance(f, Function) and f.attrs.get("Compiler", "default") not in ("", "default"):
                self.external[str(f.attrs.get("global_symbol", n))] = f
