"""Limits of sizes that only one branch of a program needs."""

from __future__ import annotations


class Branches:
    """How the least sizes of one branch limit a program: with `are_apart`, only the calls that take this branch."""

    def __init__(self, are_apart: bool = True) -> None:
        self.are_apart = are_apart
        self.has_limits = False
        """Whether a branch with such limits was found."""
