"""The contents of the page of one compiled model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.base.errors import ArtifactError, InternalError, OptionError, RunError
from tilewright.compiler.report import BuildReport
from tilewright.driver.explain.graphs import ProgramStep, steps_of
from tilewright.driver.explain.kernels import Text, plain_texts, texts_of
from tilewright.driver.explain.measurement import Measurement, measure
from tilewright.driver.explain.memory import Memory, memory_of
from tilewright.driver.explain.recording import Recording, State
from tilewright.runtime.artifact import runs_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilewright.backends.targets.target import Target
    from tilewright.compiler.model import Model
    from tilewright.relay.expr import Function
    from tilewright.runtime.manifest import Manifest

_ENTRIES = ("flow",)
"""Code outside kernels to show: the control flow of a program."""


@dataclass(frozen=True, slots=True)
class KernelTexts:
    """A kernel's texts, the steps that run it, and their nodes of the model."""

    symbol: str
    texts: tuple[Text, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """All facts about a model. `not_measured` is the reason for a missing `measurement`."""

    name: str
    target: str
    manifest: Manifest
    phases: Mapping[str, float]
    passes: int
    states: tuple[State, ...]
    steps: tuple[ProgramStep, ...]
    kernels: tuple[KernelTexts, ...]
    memory: Memory
    measurement: Measurement | None = None
    not_measured: str = ""
    c: str = ""
    """The C text of all kernels, if the target is C."""
    accelerators: tuple[str, ...] = field(default=())
    sizes: str = ""
    """The symbolic dimensions of the model, for which this program has numbers."""


def explained(model: Model, name: str, run: bool = True) -> Content:
    """Compile `model` again with a recording, and run it if `run`.

    Raises `InputError` for a model of more than one program, `OptionError` for dynamic shapes. If no measurement is
    possible, `not_measured` gives the reason.
    """
    if model.artifact.manifest.symbols:
        shapes = " ".join(f"{n}:[{','.join(map(str, dims))}]" for n, dims in model.open_dimensions.items())
        raise OptionError(
            f"'{name}' has {model.size_report}. A report shows the program for one combination of sizes; give numbers "
            f'in --input-shapes "{shapes}"', code="TW0304")
    report, recording = BuildReport(keeps_module=True), Recording()
    artifact = model.build_again(report, (recording,))
    steps = tuple(_steps(report, recording.external))
    measurement, reason = None, "the report was made without running the model"
    if run:
        try:
            if not runs_here(artifact.manifest):
                raise ArtifactError(
                    f"the program is for '{artifact.manifest.target}', which is not this machine",
                    code="TW0805")
            measurement, reason = measure(artifact.executable(model.threads), steps), ""
        except (RunError, ArtifactError) as error:
            reason = str(error)
    return Content(
        name, str(model.target), artifact.manifest, report.phases, recording.passes, tuple(recording.states), steps,
        tuple(_kernels(report, steps, model.target.processor)), memory_of([plan for plan, _ in report.plans]),
        measurement, reason, report.text,
        tuple(a.name for a in model.target.accelerators), _sizes(model))


def _sizes(model: Model) -> str:
    """Return the symbolic dimensions of the model with their numbers in this program: `x: batch = 1`."""
    given = {t.name: t.shape for t in model.inputs}
    numbers = [
        f"{name}: " + ", ".join(f"{d} = {n}" for d, n in zip(dims, given[name], strict=True) if isinstance(d, str))
        for name, dims in model.declared_dimensions.items() if name in given]
    return "; ".join(numbers)


def _steps(report: BuildReport, external: Mapping[str, Function]) -> list[ProgramStep]:
    if report.module is None:
        raise InternalError("the build kept no module for the report")
    found: list[ProgramStep] = []
    for block, (plan, steps) in enumerate(report.plans):
        name = f"block_{block}" if f"block_{block}" in report.module else "main"
        found += steps_of(plan, steps, report.module[name], external, block, len(found))
    return found


def _kernels(report: BuildReport, steps: tuple[ProgramStep, ...], target: Target) -> list[KernelTexts]:
    """Return the texts of all kernels in order of creation."""
    users: dict[str, list[int]] = {}
    for k, s in enumerate(steps):
        users.setdefault(s.symbol, []).append(k)
    made = [
        KernelTexts(symbol, tuple(texts_of(kernel, report.functions[symbol], target)), tuple(users.get(symbol, ())))
        for symbol, kernel in report.kernels.items()]
    plain = [
        symbol for symbol in report.llvm if symbol not in report.kernels and (symbol in users or symbol in _ENTRIES)]
    return [
        *made,
        *(
            KernelTexts(symbol, tuple(plain_texts(report.llvm[symbol], target)), tuple(users.get(symbol, ())))
            for symbol in plain)
    ]
