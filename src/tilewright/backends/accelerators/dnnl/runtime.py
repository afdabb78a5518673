"""The runtime module of a oneDNN program: primitives are created at the first call; its bytes are the program with
plain weights.

It needs nothing of the compiler, so an artifact with such a module runs on any machine with oneDNN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.backends.accelerators.dnnl.library import library
from tilewright.backends.accelerators.dnnl.plan import Frame, Plan, address
from tilewright.backends.accelerators.dnnl.program import Program
from tilewright.base.forks import new_lock
from tilewright.base.nd import NDArray, as_numpy
from tilewright.runtime.modules import ModuleNode, register_module
from tilewright.runtime.threads import threads_of_call


@register_module
class DNNLModule(ModuleNode):
    """A function on arrays, which it reads and writes in place. Several threads may call it."""

    type_key = "dnnl"

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plans: dict[int, tuple[Plan, list[Frame]]] = {}
        self._lock = new_lock()

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the function. Its first call raises `TargetError` if oneDNN is not installed."""
        return self.run if name == self.program.symbol else None

    def run(self, *arrays: NDArray) -> None:
        """Run on the inputs, followed by the outputs, with the number of threads of the calling program."""
        plan, frames = self._plan(threads_of_call())
        places = [address(as_numpy(a)) for a in arrays]
        count = len(places) - len(self.program.results)
        try:
            frame = frames.pop()
        except IndexError:
            frame = plan.frame()
        try:
            frame.run(places[:count], places[count:])
        finally:
            frames.append(frame)

    def _plan(self, threads: int) -> tuple[Plan, list[Frame]]:
        found = self._plans.get(threads)
        if found is None:
            with self._lock:
                found = self._plans.get(threads)
                if found is None:
                    found = self._plans[threads] = Plan(library(), self.program, threads), []
        return found

    def save_to_binary(self) -> bytes:
        return self.program.to_bytes()

    @classmethod
    def load_from_binary(cls, blob: bytes) -> DNNLModule:
        return cls(Program.from_bytes(blob))
