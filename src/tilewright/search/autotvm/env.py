"""`GLOBAL_SCOPE`: switches of the whole process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass
class AutotvmGlobalScope:
    """`in_tuning` is for scripts that ask, since extraction does not tune. `silent`: no progress on the standard
    error."""

    in_tuning: bool = False
    silent: bool = False


GLOBAL_SCOPE: Final = AutotvmGlobalScope()
