"""TVM's `tvm.micro.testing`: targets by platform, and files for projects."""

from __future__ import annotations

from tilewright.backends.boards import micro
from tilewright.backends.target import Target
from tilewright.compiler.micro.testing import utils

__all__ = ["get_target", "utils"]


def get_target(platform: str, board: str | None = None) -> Target:
    """Return the target of a board; of this machine for the platform "crt"."""
    return micro("host" if platform == "crt" or board is None else board)
