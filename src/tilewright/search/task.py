"""Tuning tasks: a workload and the target for which it is tuned, for any search space."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tilewright.backends.machine import Machine
from tilewright.backends.targets.target import Target
from tilewright.base.forks import lazy_attribute
from tilewright.search.measure import Measured


class TuningTask(ABC):
    """Base class of tasks: templates and kernels of AutoTVM, and computations of the auto-scheduler."""

    def __init__(self, target: str | Target) -> None:
        self.target_text = str(target)
        if isinstance(target, Target):
            self.__dict__["target"] = target

    @lazy_attribute
    def target(self) -> Target:
        """The target. Raises `TargetError` for a record's target with unknown options."""
        return Target(self.target_text)

    @property
    @abstractmethod
    def key(self) -> str:
        """The workload in the form of records (`Candidate.key`)."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A short description of the task."""

    @property
    @abstractmethod
    def flop(self) -> float:
        """Number of operations per run."""

    @property
    def machine(self) -> Machine:
        """The processor as a machine model for schedules."""
        return self.target.machine

    def speed(self, result: Measured) -> float:
        """Return the operations per second of a result; 0 for a failure."""
        return self.flop / result.cost if result.ok else 0.0
