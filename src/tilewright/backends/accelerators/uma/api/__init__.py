"""The stages of a UMA backend: partitioning of graphs, lowering to loop programs, generation of C."""

from tilewright.backends.accelerators.uma.api.codegen import UMACodegen
from tilewright.backends.accelerators.uma.api.lower import UMALower
from tilewright.backends.accelerators.uma.api.partitioner import UMAPartitioner
from tilewright.backends.accelerators.uma.api.utils import PassPhase

__all__ = ["PassPhase", "UMACodegen", "UMALower", "UMAPartitioner"]
