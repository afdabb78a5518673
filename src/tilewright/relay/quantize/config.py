"""The options of `relay.quantize`, under TVM's names, on a context variable.

    with relay.quantize.qconfig(calibrate_mode="kl_divergence", skip_conv_layers=[]):
        quantized = relay.quantize.quantize(mod, params, dataset)
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from tilewright.base.errors import OptionError, UnknownOptionWarning
from tilewright.base.settings import nearest

CALIBRATE_MODES: Final = ("global_scale", "kl_divergence", "percentile")
WEIGHT_SCALES: Final = ("power2", "max")
PARTITIONS: Final = ("disabled", "enabled", "fully_integral")


class QAnnotateKind(enum.IntEnum):
    """The role of a quantized value in its layer."""

    IDENTITY = 0
    INPUT = 1
    WEIGHT = 2
    ACTIVATION = 3
    BIAS = 4


def kind2str(kind: int) -> str:
    """The name of a kind in the options: "input", "weight", …"""
    return QAnnotateKind(kind).name.lower()


@dataclass(frozen=True)
class QConfig:
    """The options of `relay.quantize`, with TVM's defaults; a context manager. Raises `OptionError` for invalid values.

    Inputs of layers have `nbit_input` bits in `dtype_input`, weights `nbit_weight` bits in `dtype_weight`; sums are
    int32. `calibrate_mode` is the source of ranges: `global_scale` for all values, or data (`kl_divergence`,
    `percentile`), `calibrate_chunk_by` values at a time (-1: all). `weight_scale` is the largest weight ("max") or the
    power of two above it ("power2").

    `skip_conv_layers` are numbers of convolutions, from zero on, that stay in float; `skip_dense_layer` keeps all
    products in float, `debug_enabled_ops` all operators but the named ones. `do_simulation` keeps the simulated
    quantization. `rounding` of requantizations puts ties UPWARD, away from zero (TONEAREST) or to even (TOEVEN).
    `partition_conversions` moves the quantization of inputs and dequantization of outputs into functions;
    "fully_integral" rejects a network that computes anything else with floats.
    """

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"
    _tokens: list[Token[QConfig | None]] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        chosen = (
            ("calibrate_mode", CALIBRATE_MODES), ("weight_scale", WEIGHT_SCALES), ("partition_conversions", PARTITIONS),
            ("rounding", ("UPWARD", "TONEAREST", "TOEVEN")), ("dtype_input", ("int8", "uint8")),
            ("dtype_weight", ("int8",)), ("dtype_activation", ("int32",)),
            ("nbit_activation", (32,)), ("round_for_shift", (True,)),
        )
        for name, values in chosen:
            given = getattr(self, name)
            if given not in values:
                near = nearest(given, [v for v in values if isinstance(v, str)]) if isinstance(given, str) else ""
                raise OptionError(f"qconfig: {name} is {given!r}; it must be one of "
                                  f"{', '.join(map(str, values))}{near}",
                                  code="TW1001")
        for name in ("nbit_input", "nbit_weight"):
            bits = getattr(self, name)
            if not isinstance(bits, int) or not 2 <= bits <= 8:
                raise OptionError(f"qconfig: {name} is {bits!r}; it must be an integer from 2 to 8, because "
                                  "kernels multiply 8-bit numbers", code="TW1001")
        if not self.global_scale > 0:
            raise OptionError(f"qconfig: global_scale is {self.global_scale!r}; it must be above zero, the largest "
                              "magnitude of a value", code="TW1001")
        if not isinstance(self.calibrate_chunk_by, int) or self.calibrate_chunk_by == 0 or self.calibrate_chunk_by < -1:
            raise OptionError(f"qconfig: calibrate_chunk_by is {self.calibrate_chunk_by!r}; it must be the number of "
                              "values to calibrate at a time, or -1 for all", code="TW1001")

    def get_nbit_by_kind(self, kind: int) -> int:
        """The number of bits of a kind of values."""
        return int(getattr(self, f"nbit_{kind2str(kind)}"))

    def get_dtype_by_kind(self, kind: int) -> str:
        """The dtype of a kind of values."""
        return str(getattr(self, f"dtype_{kind2str(kind)}"))

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _CURRENT.reset(self._tokens.pop())


_CURRENT: ContextVar[QConfig | None] = ContextVar("tilewright_quantize_config", default=None)


def current_qconfig() -> QConfig:
    """The options of the innermost `with qconfig(…)`, or the defaults."""
    return _CURRENT.get() or QConfig()


def qconfig(**options: Any) -> QConfig:
    """The options by name, for a `with` statement. An unknown name is ignored, with an `UnknownOptionWarning`."""
    known = [f.name for f in fields(QConfig) if not f.name.startswith("_")]
    for name in options:
        if name not in known:
            warnings.warn(
                f"qconfig has no option '{name}', which is ignored"
                f"{nearest(name, known) or '; the options are: ' + ', '.join(known)}",
                UnknownOptionWarning, stacklevel=2)
    return QConfig(**{name: value for name, value in options.items() if name in known})
