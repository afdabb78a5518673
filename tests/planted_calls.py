"""What worker processes of the tests are told to do."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Any


def echo(message: dict[str, Any], pieces: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    return {**message, "sizes": [len(p) for p in pieces]}, [p[::-1] for p in pieces if p]


def leave(message: dict[str, Any], pieces: Sequence[bytes]) -> None:
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


def sleep(message: dict[str, Any], pieces: Sequence[bytes]) -> None:
    time.sleep(600)


def refuse(message: dict[str, Any], pieces: Sequence[bytes]) -> None:
    raise ValueError("no")


def hold(message: dict[str, Any], pieces: Sequence[bytes]) -> None:
    """Never lets go of the interpreter."""
    re.match(r"(a+)+$", "a" * 64 + "b")
