"""The cost of a part of a graph on a target, in seconds or any unit that all targets share.

A code generator with a cycle model registers it as `relay.ext.<target>.cost`, a function of a Relay function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import get_global_func
from tilewright.ir.module import IRModule
from tilewright.relay.analysis.regions import DEFAULT
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order

_FUSION: Final = 0.9
"""Cost of an operator in a part of `MockCostEstimator`, relative to the one before."""


class CostEstimator:
    """Base of estimators: subclasses define `estimate`, and `transfer` if moving values has a cost."""

    def estimate(self, function: Function, target: str) -> float:
        """Return the cost of one run of a part on a target; infinity if the target cannot run it. The attribute
        `Compiler` of `function` is the target, except for `default`."""
        raise OptionError(f"{type(self).__name__} has no method estimate(function, target), which must return the cost "
                          "of one run of the function on the target", code="TW0419")

    def transfer(self, nbytes: int, source: str, destination: str) -> float:
        """Return the cost of moving `nbytes` from one target to another; zero unless a subclass overrides it."""
        return 0.0


@dataclass(frozen=True)
class CustomCostEstimator(CostEstimator):
    """Costs computed by functions: `py_fn_estimator(function, target)` and, optionally, `py_fn_transfer(nbytes, source,
    destination)`."""

    py_fn_estimator: Callable[[Function, str], float]
    py_fn_transfer: Callable[[int, str, str], float] | None = None

    def estimate(self, function: Function, target: str) -> float:
        return self.py_fn_estimator(function, target)

    def transfer(self, nbytes: int, source: str, destination: str) -> float:
        return 0.0 if self.py_fn_transfer is None else self.py_fn_transfer(nbytes, source, destination)


@dataclass(eq=False)
class MockCostEstimator(CostEstimator):
    """Costs for tests: the first operator of a part costs `target_costs[target]`, and each further one nine tenths of
    the one before. Raises `OptionError` for an estimate after the first `max_estimates`; 0: there is no limit."""

    target_costs: Mapping[str, float]
    max_estimates: int = 0
    estimates: int = field(default=0, init=False)
    """Number of estimates so far."""

    def estimate(self, function: Function, target: str) -> float:
        self.estimates += 1
        if 0 < self.max_estimates < self.estimates:
            raise OptionError(
                f"more than max_estimates={self.max_estimates} parts are estimated; give a larger number",
                code="TW0419")
        calls = sum(isinstance(e, Call) and isinstance(e.op, Op) for e in post_order(function))
        return sum(self.target_costs[target] * _FUSION**k for k in range(calls))


@dataclass(frozen=True)
class HostCosts(CostEstimator):
    """The costs of another estimator, which calls the target `default` by the name `host`."""

    costs: CostEstimator
    host: str

    def estimate(self, function: Function, target: str) -> float:
        return self.costs.estimate(function, self._named(target))

    def transfer(self, nbytes: int, source: str, destination: str) -> float:
        return self.costs.transfer(nbytes, self._named(source), self._named(destination))

    def _named(self, target: str) -> str:
        return self.host if target == DEFAULT else target


@dataclass(frozen=True)
class MeasureCostEstimator(CostEstimator):
    """Measured costs: the median time of a compiled part in seconds, or the result of a registered
    `relay.ext.<target>.cost`.

    Inputs are random. Raises `CompileError` for unknown sizes, and the errors of the target's compiler.
    """

    host: str = "llvm"
    repeat: int = 5
    number: int = 10

    def estimate(self, function: Function, target: str) -> float:
        model = get_global_func(f"relay.ext.{target}.cost", allow_missing=True)
        if model is not None:
            return float(model(function))
        from tilewright.relay.build_module import build

        program = build(_runnable(function), self.host).executable
        return float(program.benchmark(repeat=self.repeat, number=self.number).median)


@dataclass(frozen=True)
class CycleCostEstimator(CostEstimator):
    """Costs in seconds from cycle counts: `hertz` has the clock rates of targets with cycle counts, and `others`
    estimates the rest. A transfer takes `latency` seconds plus the bytes divided by `bandwidth` (bytes per second).

    `relay.ext.<target>` compiles a part; the program's `cycles()` has the `total`, as for declared accelerators. Raises
    `OptionError` for a target whose programs do not count cycles.
    """

    hertz: Mapping[str, float]
    others: CostEstimator = field(default_factory=MeasureCostEstimator)
    latency: float = 0.0
    bandwidth: float = math.inf

    def transfer(self, nbytes: int, source: str, destination: str) -> float:
        return self.latency + nbytes / self.bandwidth

    def estimate(self, function: Function, target: str) -> float:
        if target not in self.hertz:
            return self.others.estimate(function, target)
        generator = get_global_func(f"relay.ext.{target}", allow_missing=True)
        program = generator(function) if generator is not None else None
        if program is None or not hasattr(program, "cycles"):
            why = (f"relay.ext.{target} is not registered" if generator is None
                   else f"{type(program).__name__} has no method cycles()")
            raise OptionError(f"the programs for '{target}' have no cycle counts: {why}; register "
                              f"relay.ext.{target}.cost and measure the cost", code="TW0419")
        return float(program.cycles().total / self.hertz[target])


def _runnable(function: Function) -> IRModule:
    """Return a module whose `main` is the part, or calls it if it belongs to another compiler."""
    if "Compiler" not in function.attrs:
        return IRModule.from_expr(function.without_attr("Primitive"))
    mod = IRModule({str(function.attrs["global_symbol"]): function})
    params = [Var(p.name_hint, p.checked_type) for p in function.params]
    mod["main"] = Function(params, Call(mod.get_global_var(str(function.attrs["global_symbol"])), params))
    return mod
