"""Reads JSON that was not written by this process."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """Parse JSON. Raises `ValueError` for any text that cannot be read, also where its values are nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
