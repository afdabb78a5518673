"""The work of loops that are written out (`loops.py`): definitions declare it, and a back end maps it to threads."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

WORK: Final = "work"
"""The annotation of a loop whose trips may run on several threads: the kind of its steps, their number, and the number
of trips."""


class Step(StrEnum):
    """Kinds of steps of loops that are written out, by how long they take."""

    MOVE = "move"
    """An element is read, combined, and written."""
    COMPARE = "compare"
    """An element is compared and moved, in one pass of a sort."""
    RANDOM = "random"
    """A random word is made."""
    OVERLAP = "overlap"
    """A box is compared with others."""
    SAMPLE = "sample"
    """A cell of a region is sampled."""
    DIVISOR = "divisor"
    """A greatest common divisor is found."""
    PROPOSAL = "proposal"
    """A box is predicted, sorted, and compared with others."""
    FUNCTION = "function"
    """A special function is evaluated."""
