"""TVM's Universal Modular Accelerator interface: an accelerator as patterns, passes over loop programs, and C.

    class MyBackend(UMABackend):
        def __init__(self):
            super().__init__()
            self._register_pattern("conv2d", is_op("nn.conv2d")(wildcard(), wildcard()))
            self._register_tir_pass(PassPhase.TIR_PHASE_0, CallMyConv2d())
            self._register_codegen(fmt="c", includes=lambda: '#include "conv2d.h"')

        @property
        def target_name(self):
            return "my_accelerator"

    backend = MyBackend()
    backend.register()
    lib = relay.build(backend.partition(mod), [Target("llvm"), Target("my_accelerator")])

`contrib.accelerator` declares an accelerator with its memories and a simulator instead.
"""

from tilewright.backends.accelerators.uma.api.utils import uma_available
from tilewright.backends.accelerators.uma.backend import UMABackend

__all__ = ["UMABackend", "uma_available"]
