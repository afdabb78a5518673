"""`GLOBAL_SCOPE`: what the field keeps for the whole process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass
class AutotvmGlobalScope:
    """Switches of the field. Nothing here tunes while it extracts, so `in_tuning` is for scripts that ask."""

    in_tuning: bool = False
    silent: bool = False
    """Whether progress is kept from the standard error."""


GLOBAL_SCOPE: Final = AutotvmGlobalScope()
