"""Specializations: compiled programs, each with the guards (`runtime/guards.py`) under which a call may use it.

A `Model` and a tree of `Stages`, which serve varying sizes, have `specializations()`:

    fixed sizes      one specialization, whose guards have numbers alone
    dynamic sizes    one specialization, whose guards have symbols with ranges                     (open_program.py)
    one a shape      a specialization for each combination of shapes that the model is called with       (staged.py)
    stages           for each part of a program; guards on the values that decide shapes as well         (staged.py)

This module imports only what running needs, so that a model from the cache is loaded without the compiler.
"""

from __future__ import annotations

from tilewright.runtime.artifact import Artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.guards import Guards


class Specialization:
    """An artifact with its guards, and its code in this process once it is called."""

    def __init__(self, artifact: Artifact, threads: int | None, guards: Guards | None = None) -> None:
        """The default `guards` are the inputs of the artifact, with any contents."""
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
