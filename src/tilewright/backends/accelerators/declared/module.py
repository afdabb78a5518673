"""Programs of an accelerator as runtime modules: run by the simulator, saved in artifacts, and loaded without the
compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.modules import ModuleNode

if TYPE_CHECKING:
    from tilewright.backends.accelerators.declared.declaration import Accelerator
    from tilewright.backends.accelerators.declared.program import Program
    from tilewright.backends.accelerators.declared.report import Cycles


class AcceleratorModule(ModuleNode):
    """Base class of the modules of declared accelerators: one subclass for each, with its name as the `type_key`."""

    accelerator: Accelerator

    def __init__(self, program: Program) -> None:
        from tilewright.backends.accelerators.declared.simulator import Simulator

        self.program = program
        self.simulator = Simulator(self.accelerator, program)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.run if name == self.program.symbol else None

    def run(self, *arrays: Any) -> None:
        """Run the program on inputs, followed by the arrays for outputs. Raises `RunError`."""
        from tilewright.backends.accelerators.declared.simulator import check_inputs

        count = len(self.program.inputs)
        inputs = [a.numpy() for a in arrays[:count]]
        check_inputs(self.program, inputs)
        for place, value in zip(arrays[count:], self.simulator.run(*inputs), strict=True):
            place.copyfrom(np.ascontiguousarray(value))

    def cycles(self) -> Cycles:
        """Return the cycles of the program, layer by layer."""
        return self.simulator.cycles()

    def save_to_binary(self) -> bytes:
        return self.program.save(self.accelerator)

    @classmethod
    def load_from_binary(cls, blob: bytes) -> AcceleratorModule:
        from tilewright.backends.accelerators.declared.program import load

        return cls(load(bytes(blob), cls.accelerator))


def module_of(accelerator: Accelerator) -> type[AcceleratorModule]:
    """Return the class of an accelerator's modules."""
    name = f"{accelerator.name}_module"
    return type(
        name, (AcceleratorModule,),
        {"type_key": accelerator.name, "accelerator": accelerator, "__module__": __name__, "__qualname__": name})
