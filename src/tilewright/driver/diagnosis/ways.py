"""The ways to compute the results of a case, each of which may be wrong: the whole compiler, one pass, one kernel.

    check(case, way, settings) -> None if the results agree with the interpreter, else a `Verdict`

This code may crash or hang; `probes.py` runs it in a worker process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.errors import TVMError
from tilewright.compiler.build import build
from tilewright.compiler.pipeline import compile_fused, compile_module, is_one_program
from tilewright.driver.diagnosis.case import Array, Case, flattened
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, named_pass
from tilewright.relay.check_rewrites import TOLERANCE, difference, tolerance_of
from tilewright.relay.expr import Constant, Expr, Function, Var
from tilewright.relay.transform.fuse_ops import FuseOps
from tilewright.relay.transform.pipeline import graph_passes
from tilewright.relay.visitor import post_order, rewrite
from tilewright.runtime.executable import Executable

WHOLE, PASS, KERNEL = "whole", "pass", "kernel"
VALUES, NON_FINITE, ERROR, CRASH, HANG = "values", "non-finite", "error", "crash", "hang"
"""Kinds of verdicts: wrong numbers, non-finite numbers where the reference is finite, an exception, a crash, a timeout.
"""
NAMES: Final = ("by the reference", "compiled")
ON_PURPOSE: Final = 0.1
"""Tolerance for passes that approximate on purpose, relative to the largest value."""
_POISON: Final = (np.nan, -1.0e30)
"""Initial contents of the memory of floating-point results before each run; memory of integers holds `_BYTES`."""
_BYTES: Final = (0x55, 0xAA)


@dataclass(frozen=True, slots=True)
class Settings:
    """Compilation settings; `plugins` are Python files or modules that are run first in every process."""

    target: str = "llvm"
    opt_level: int = 3
    config: dict[str, Any] = field(default_factory=dict)
    disabled_pass: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    threads: int | None = None

    def context(self) -> PassContext:
        """Return the context in which passes run."""
        return PassContext(self.opt_level, disabled_pass=self.disabled_pass, config=self.config)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Settings:
        """Return the settings that `to_json` encoded."""
        return Settings(
            **{**fields, "disabled_pass": tuple(fields["disabled_pass"]), "plugins": tuple(fields["plugins"])})


@dataclass(frozen=True, slots=True)
class Way:
    """The whole compiler, only pass number `step` of the pipeline, or the whole program as one kernel."""

    kind: str
    step: int = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """A wrong result. `error` is the class name of an exception."""

    kind: str
    text: str
    error: str = ""

    def same(self, other: Verdict | None) -> bool:
        """Whether both probably have the same cause; finite and non-finite wrong numbers do."""
        if other is None:
            return False
        return {self.kind, other.kind} <= {VALUES, NON_FINITE} or (self.kind, self.error) == (other.kind, other.error)


class NoReference(TVMError):
    """The interpreter cannot run a case, so there is no reference."""

    code = "TW0712"


class Trail:
    """The progress of a process, in a file that its parent reads after a crash."""

    def __init__(self, path: str = "") -> None:
        self.path = Path(path) if path else None

    def at(self, what: str, **more: Any) -> None:
        """Record the step that is about to run."""
        if self.path is not None:
            self.path.write_text(json.dumps({"at": what, **more}), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A pass, as it runs in the pipeline."""

    name: str
    exact: bool
    passes: tuple[Pass, ...]

    def __call__(self, mod: IRModule) -> IRModule:
        for p in self.passes:
            mod = p(mod)
        return mod


def steps_of(target: Target) -> list[PipelineStep]:
    """Return the graph passes that `optimize` runs under the current context, in order."""
    context, fuse = PassContext.current(), FuseOps(link_params=False)
    found = [p for p in graph_passes(target).passes if context.pass_enabled(p.info)]
    found += [] if context.pass_enabled(fuse.info) else [fuse]
    return [PipelineStep(p.name, p.exact, (*map(named_pass, p.info.required), p)) for p in found]


def check(case: Case, way: Way, settings: Settings, trail: Trail | None = None) -> Verdict | None:
    """Return the fault of the result of a case, or None. Raises `NoReference` if the right result is unknown."""
    trail = trail or Trail()
    trail.at("reference")
    wanted = reference(case)
    tolerance = tolerance_for(case, settings)
    with settings.context():
        trail.at(way.kind, step=way.step)
        try:
            answers = computed(case, way, settings)
        except Exception as error:  # what the compiler raises is what is looked for
            return raised(error)
        for given in answers:
            found = compared(
                wanted, given,
                tolerance if way.kind != PASS or steps_of(Target(settings.target))[way.step].exact else ON_PURPOSE)
            if found is not None and way.kind == WHOLE and (meant := _approximated(case, settings)) is not None:
                found = compared(wanted, meant, ON_PURPOSE) or compared(meant, given, tolerance)
            if found is not None:
                return found
    return None


def reference(case: Case) -> list[Array]:
    """Return the results of the interpreter. Raises `NoReference` if it cannot run the program."""
    try:
        with np.errstate(all="ignore"):
            return case.reference()
    except Exception as error:  # whatever stops numpy leaves nothing to compare with
        raise NoReference(f"{type(error).__name__}: {error}") from error


def raised(error: Exception) -> Verdict:
    """Return the verdict of an exception, identified by its root cause."""
    inner = error
    while inner.__cause__ is not None and isinstance(inner.__cause__, Exception):
        inner = inner.__cause__
    return Verdict(ERROR, f"{type(error).__name__}: {error}", type(inner).__name__)


def compared(wanted: Sequence[Array], given: Sequence[Array], tolerance: float) -> Verdict | None:
    """Return the fault of a result. Integers are compared exactly, unless the tolerance is for an approximation."""
    if tolerance >= ON_PURPOSE:
        wanted, given = (
            [a if a.dtype.kind in "Ob" else a.astype(np.float64) for a in side] for side in (wanted, given))
    found = difference(tuple(wanted), tuple(given), tolerance, NAMES)
    if found is None:
        return None
    finite = all(
        np.isfinite(b.astype(np.float64)).all() for a, b in zip(wanted, given, strict=False)
        if a.dtype.kind not in "iubO" and np.isfinite(a.astype(np.float64)).all())
    return Verdict(VALUES if finite else NON_FINITE, found)


def tolerance_for(case: Case, settings: Settings) -> float:
    """Return the tolerance for the narrowest floating-point type among the values and of mixed precision."""
    mixed = str(settings.config.get("relay.ToMixedPrecision.type", ""))
    return max(tolerance_of(case.main), TOLERANCE.get(mixed, 0.0))


def computed(case: Case, way: Way, settings: Settings) -> list[list[Array]]:
    """Return the results of a case on this way; native code runs twice, with different initial memory contents."""
    target = Target(settings.target)
    if way.kind == PASS:
        with np.errstate(all="ignore"):
            return [Case(steps_of(target)[way.step](case.module), case.values).reference()]
    return run_twice(executable(case, way, settings), case.values)


def executable(case: Case, way: Way, settings: Settings) -> Any:
    """Return a case as native code, compiled by the whole compiler or as one kernel."""
    target = Target(settings.target)
    if way.kind != WHOLE:
        return compile_fused(as_kernel(case), target, "diagnosed").executable(settings.threads)
    if is_one_program(case.main):
        return compile_module(lambda: case.module, target, "diagnosed").executable(settings.threads)
    return build(case.module, target).executable


def as_kernel(case: Case) -> Function:
    """Return a `main` that calls the program as one primitive function with all inputs and constants as arguments."""
    inner: dict[Expr, Expr] = {}
    args: list[Expr] = []
    main = case.main
    for e in [*main.params, *(e for e in post_order(main.body) if isinstance(e, Constant))]:
        inner[e] = Var(f"p{len(inner)}", e.known_type())
        args.append(e)
    body = rewrite(main.body, lambda e: None, memo=dict(inner))
    params = [v for v in inner.values() if isinstance(v, Var)]
    return main.with_body(Function(params, body, attrs={"Primitive": 1})(*args))


def run_twice(run: Any, values: Sequence[Array]) -> list[list[Array]]:
    """Return the results of two runs with different initial memory contents, which reveals elements that are not
    written."""
    if not isinstance(run, Executable):  # a program in stages: the sizes of its results are not known before it runs
        return [flattened(run(*values))]
    answers = []
    for number, byte in zip(_POISON, _BYTES, strict=True):
        if any(o.dtype.is_object for o in run.outputs):
            answers.append(flattened(run(*values)))
            continue
        out = [_poisoned(o.shape, o.dtype.numpy(), number, byte) for o in run.outputs]
        run(*values, out=out)
        answers.append(out)
    return answers


def _poisoned(shape: Sequence[Any], dtype: np.dtype[Any], number: float, byte: int) -> Array:
    array = np.empty(tuple(shape), dtype)
    if dtype.kind in "iub":
        array.reshape(-1).view("uint8").fill(byte if dtype.kind != "b" else byte & 1)
    else:
        with np.errstate(all="ignore"):
            array.fill(dtype.type(number))
    return array


def _approximated(case: Case, settings: Settings) -> list[Array] | None:
    """Return the program after the last pass that approximates on purpose; None if no such pass changes it."""
    module, meant = case.module, None
    for step in steps_of(Target(settings.target)):
        after = step(module)
        if after is not module and not step.exact:
            meant = after
        module = after
    return None if meant is None else Case(meant, case.values).reference()


def optimized(case: Case, settings: Settings) -> Case:
    """Return the case after all passes."""
    module = case.module
    for step in steps_of(Target(settings.target)):
        module = step(module)
    return Case(module, case.values)
