"""Specializations: compiled programs, each with the guards under which a call may use it.

Three things compile for sizes that vary, and all are made of specializations (`runtime/guards.py` says what guards are):

    fixed sizes       one specialization; dynamic ones: one, whose guards have symbols             (open_program.py)
    one a shape       a specialization for each combination of shapes that the model is called with   (staged.py)
    stages            the same, and guards on the values that decide shapes, for each part of a program (staged.py)

This module imports only what running needs, so that a model from the cache is loaded without the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tilewright.runtime.artifact import Artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.guards import Guards


class Specialization:
    """An artifact with its guards, and its code in this process once it is called."""

    def __init__(self, artifact: Artifact, threads: int | None, guards: Guards | None = None) -> None:
        """Without `guards`, those are the inputs of the artifact, of any contents."""
        self.artifact, self._threads = artifact, threads
        self.guards = guards or Guards.of(artifact.manifest)
        self._executable: Executable | None = None

    @property
    def executable(self) -> Executable:
        """The loaded code. Raises `ArtifactError` when this machine cannot run it."""
        if self._executable is None:
            self._executable = self.artifact.executable(self._threads)
        return self._executable

    @property
    def in_python(self) -> set[str]:
        """Names of the operators that run in Python by their numpy meaning."""
        return {s.name for s in self.artifact.manifest.host_steps}

    def use_threads(self, count: int) -> None:
        """Share the work of a call among `count` threads."""
        self._threads = count
        if self._executable is not None:
            self._executable.threads = count


class Specialized(Protocol):
    """A model as the specializations that calls use, which may become more with every call."""

    def specializations(self) -> Iterable[Specialization]:
        """Return the specializations so far."""
