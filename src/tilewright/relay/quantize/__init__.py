"""Quantization of float networks: `relay.quantize.quantize` with TVM's options, and `post_training` from data in one
call.

    with relay.quantize.qconfig(global_scale=8.0):           ranges by TVM's rules
        mod = relay.quantize.quantize(mod, params)
    found = relay.quantize.post_training(mod, data)          ranges of each value and channel, with a report of errors

Both select the values (`selection.py`), simulate their quantization (`simulate.py`), find ranges (`ranges.py`), and
create the integer network (`integers.py`): operators of the qnn dialect, as in quantized models of the frontends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilewright.relay.quantize.calibration import QuantizeCalibrate
from tilewright.relay.quantize.config import QAnnotateKind, QConfig, current_qconfig, kind2str, qconfig
from tilewright.relay.quantize.errors import LayerError, Report
from tilewright.relay.quantize.from_data import PostTraining, Quantized
from tilewright.relay.quantize.integers import QuantizeRealize, realize
from tilewright.relay.quantize.pipeline import prerequisite_optimize
from tilewright.relay.quantize.simulate import (
    QuantizeAnnotate,
    QuantizePartition,
    annotate,
    attach_simulated_quantize,
    partition,
)

if TYPE_CHECKING:
    from tilewright.compiler.calibration import calibrate, post_training, quantize

_COMPILING: Final = frozenset({"calibrate", "post_training", "quantize"})
"""Functions that run a compiled network on data."""

__all__ = [
    "LayerError", "PostTraining", "QAnnotateKind", "QConfig", "QuantizeAnnotate", "QuantizeCalibrate",
    "QuantizePartition", "QuantizeRealize", "Quantized", "Report", "annotate", "attach_simulated_quantize", "calibrate",
    "current_qconfig", "kind2str", "partition", "post_training", "prerequisite_optimize", "qconfig", "quantize",
    "realize",
]


def __getattr__(name: str) -> Any:
    if name in _COMPILING:
        from tilewright.compiler import calibration

        return getattr(calibration, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
