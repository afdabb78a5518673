"""TVM's `tvm.micro.testing`: targets by platform, files for projects, and parameters of tests for microcontrollers."""

from __future__ import annotations

from tilewright.backends.targets.boards import micro
from tilewright.backends.targets.target import Target
from tilewright.compat.testing.micro import aot_test_utils, utils

__all__ = ["aot_test_utils", "get_target", "utils"]


def get_target(platform: str, board: str | None = None) -> Target:
    """Return the target of a board; of this machine for the platform "crt"."""
    return micro("host" if platform == "crt" or board is None else board)
