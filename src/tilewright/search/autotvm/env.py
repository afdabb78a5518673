"""`GLOBAL_SCOPE`: switches of the whole process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass
class AutotvmGlobalScope:
    """`in_tuning` is never set here, since extraction does not tune. `silent`: print no progress."""

    in_tuning: bool = False
    silent: bool = False


GLOBAL_SCOPE: Final = AutotvmGlobalScope()
