"""Logs that TVM's project published with tuned kernels ("TopHub"), from a folder of this machine.

    with autotvm.tophub.context("llvm"):      # ~/.tvm/tophub/llvm_v0.04.log, if it exists
        lib = relay.build(mod, "llvm", params=params)

The module `tvm_logs.py` describes the use of their records. Nothing is downloaded: copy the files into the
folder yourself. `$TOPHUB_LOCATION=NONE` turns them off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.backends.targets.target import Target
from tilewright.search.autotvm.task.dispatcher import ApplyHistoryBest

AUTOTVM_TOPHUB_ROOT_PATH: Final = Path("~/.tvm/tophub").expanduser()
"""The folder of the logs, `<target>_v<version>.log`."""
AUTOTVM_TOPHUB_LOC_VAR: Final = "TOPHUB_LOCATION"
AUTOTVM_TOPHUB_NONE_LOC: Final = "NONE"


def context(target: Any, extra_files: Sequence[str | os.PathLike[str]] | None = None) -> ApplyHistoryBest:
    """Return a context of the best configurations in the logs for `target` (a target, or several), and in
    `extra_files`.

    The newest log of a kind of device counts, or that of the kind of target: `arm_cpu_v0.08.log`, else
    `llvm_v0.04.log`. Without logs, the analytical model decides. Raises `OptionError` for a file without records.
    """
    targets = target.values() if isinstance(target, dict) else target if isinstance(target, (list, tuple)) else [target]
    return ApplyHistoryBest([*_logs(map(Target, targets)), *(extra_files or ())])


def _logs(targets: Iterable[Target]) -> list[Path]:
    """Return the logs for `targets`, each file once."""
    if os.environ.get(AUTOTVM_TOPHUB_LOC_VAR) == AUTOTVM_TOPHUB_NONE_LOC:
        return []
    logs = (next(filter(None, map(_newest, _names(t))), None) for t in targets)
    return list(dict.fromkeys(log for log in logs if log is not None))


def _names(target: Target) -> list[str]:
    """Return the names that logs for a target have: of its device, and of its kind."""
    device = target.attrs.get("device")
    return [*([str(device)] if device else []), target.kind.name]


def _newest(name: str) -> Path | None:
    """Return the log with the highest version for the devices `name`."""

    def version(log: Path) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", log.stem.removeprefix(f"{name}_v"))]

    return max(AUTOTVM_TOPHUB_ROOT_PATH.glob(f"{name}_v*.log"), key=version, default=None)
