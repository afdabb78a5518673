"""TVM's `runtime.name_transforms`: names of models as identifiers of C."""

from __future__ import annotations

import re

from tilewright.base.errors import OptionError

__all__ = ["sanitize_name"]


def sanitize_name(original_name: str) -> str:
    """Return the name with an underscore for each character that an identifier of C cannot have. Raises `OptionError`
    for an empty name."""
    if not original_name:
        raise OptionError("Name is empty; give at least one character", code="TW0202")
    return re.sub(r"[^A-Za-z0-9_]", "_", original_name)
