"""Targets by the names of boards: TVM's `tvm.target.target.micro`, `arm_cpu` and `riscv_cpu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.backends.target import Target
from tilewright.base.errors import TargetError
from tilewright.base.settings import nearest

MICRO: Final[Mapping[str, str]] = {
    "host": "", "atsamd51": "cortex-m4", "cxd5602gg": "cortex-m4", "esp32": "", "imxrt10xx": "cortex-m7",
    "mps2_an521": "cortex-m33", "mps3_an547": "cortex-m55", "nrf52840": "cortex-m4+nodsp", "nrf5340dk": "cortex-m33",
    "rp2040": "cortex-m0", "sam3x8e": "cortex-m3", "stm32f746xx": "cortex-m7", "stm32h7xx": "cortex-m7",
    "stm32l4r5zi": "cortex-m4", "stm32u5xx": "cortex-m33", "zynq_mp_r5": "cortex-r5",
}
"""The processor of each microcontroller; none for this machine and for one that is not an Arm."""


def micro(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """Return the target of kind c for a microcontroller, with more options of a target.

    Raises `TargetError` with the nearest name for another one.
    """
    if model not in MICRO:
        raise TargetError(
            f"there is no microcontroller '{model}'{nearest(model, MICRO)}; the known ones are {', '.join(MICRO)}",
            code="TW0502")
    mcpu = MICRO[model]
    words = ["c", f"-keys={'arm_cpu,cpu' if mcpu else 'cpu'}", *([f"-mcpu={mcpu}"] if mcpu else []), f"-model={model}"]
    words += options.split() if isinstance(options, str) else options or ()
    return Target(" ".join(words))
