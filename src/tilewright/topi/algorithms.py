"""The algorithms and schedules of processors for functions that scripts call, such as `topi.nn.conv2d`.

The definitions of this package know no machine. A later layer provides what computes them fast on the machine of the
enclosing `with Target(…):`, which is an interface of TVM; Relay's operators get theirs from strategies
(`backends/base.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec

from tilewright.base.plugins import Hook
from tilewright.te.tensor import Tensor
from tilewright.tir.stmt import PrimFunc

P = ParamSpec("P")
_PROVIDER: Final = "tilewright.backends.cpu.strategies.scripts"
algorithm: Final[Hook[[Callable[..., Any]], Callable[..., Any]]] = Hook(_PROVIDER)
arrange: Final[Hook[[PrimFunc, Sequence[Tensor], Sequence[Tensor]], PrimFunc]] = Hook(_PROVIDER)
"""A program with a block for each computation, its inputs and its outputs -> the program scheduled."""


def fastest(definition: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Return the algorithm of the current machine for what `definition` defines, with the same arguments."""
    return algorithm(definition)
