"""Neural network operators as functions of tensors, with TVM's names and arguments."""

from __future__ import annotations

from typing import Any, Final

from tilewright.topi.names import Names

_NAMES: Final = Names(
    __name__,
    (
        "convolution", "depthwise", "channel_blocks", "transposed", "winograd", "deformable", "pooling",
        "normalization", "multiplication", "activation",
        "blocks", "binary", "sparse", "recurrent", "quantization", "displacement", "losses",
    ),
)


def __getattr__(name: str) -> Any:
    found = globals()[name] = _NAMES.get(name)
    return found


def __dir__() -> list[str]:
    return sorted(_NAMES.all())
