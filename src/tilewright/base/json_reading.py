"""A reader of JSON from other processes."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """Parse JSON. Raises `ValueError` for invalid text, and for values that are nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
