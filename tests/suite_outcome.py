"""What becomes of a case of a conformance suite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What became of a case: nothing is said of one that passes."""

    refused: str = ""
    """Our message, when the model was refused."""
    wrong: str = ""
    """What is wrong with the answer, or the error that is none of ours."""
    native: bool = False
    """Whether all of it ran compiled."""
    apart: str = ""
    """Whose answer it is, where the files of the case have another one that is not the specification's."""

    @property
    def passed(self) -> bool:
        return not (self.refused or self.wrong)
