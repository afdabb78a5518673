"""Base of the advisors that schedule a network's kernels: those of Ansor and of MetaSchedule."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from tilewright.compiler.tuning_advisor import Advisor
from tilewright.ir.transform import PassContext

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target
    from tilewright.compiler.kernel import Found
    from tilewright.relay.expr import Function
    from tilewright.te.tensor import Tensor
    from tilewright.tir.stmt import PrimFunc


class KernelScheduler(Advisor):
    """An advisor that schedules kernels while `option` of `PassContext` is on. The enclosing advisor has the others."""

    option: ClassVar[str]

    @abstractmethod
    def schedule(
        self, func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor], target: Target
    ) -> PrimFunc | None:
        """Return a kernel as it is to be scheduled; None: it keeps its own schedule."""

    @abstractmethod
    def texts(self) -> Iterable[str]:
        """Return texts that are equal for equal records."""

    def decisions(
        self, function: Function, constants: Sequence[bool], target: Target
    ) -> Mapping[str, int | str] | None:
        outer = self.around()
        found: Mapping[str, int | str] | None = None if outer is None else outer.decisions(function, constants, target)
        return found

    def arrangement(self, target: Target) -> Found | None:
        """Return the function that schedules kernels: this advisor's if the option is on, then the enclosing one's."""
        outer = self.around()
        rest: Found | None = None if outer is None else outer.arrangement(target)
        return self.arranging(target, rest) if PassContext.current().config.get(self.option, False) else rest

    def arranging(self, target: Target, rest: Found | None = None) -> Found:
        """Return a function that schedules kernels by this advisor, regardless of the option, then by `rest`."""

        def found(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc | None:
            made = self.schedule(func, args, outputs, target)
            return rest(func, args, outputs) if made is None and rest is not None else made

        return found

    @property
    def identity(self) -> str:
        outer, option = self.around(), PassContext.current().config.get(self.option)
        told = [*self.texts(), outer.identity if outer else "", str(option)]
        return hashlib.sha256("|".join(told).encode()).hexdigest()
