"""The steps of `tilewright diagnose`: read a model, find the cause of wrong results, write the smallest failing
program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import InputError, OptionError
from tilewright.driver import tensors

if TYPE_CHECKING:
    from tilewright.driver.diagnosis.case import Array, Case
    from tilewright.driver.diagnosis.find import Diagnosis
    from tilewright.driver.diagnosis.ways import Settings

INTERPRETER: Final = "interpreter"


def read_settings(
    target: str, opt_level: int, config: Mapping[str, Any], disabled: list[str], plugins: list[str]
) -> Settings:
    """Return the compilation settings. Raises `OptionError` for a target with accelerators."""
    from tilewright.backends.targets.target import Target
    from tilewright.base.settings import checked
    from tilewright.driver.diagnosis.ways import Settings

    chosen = Target(target)
    if chosen.accelerators:
        raise OptionError(
            f"--target: '{target}' has accelerators, but diagnose examines only the processor; remove "
            f"'{chosen.accelerators[0].name}'",
            code="TW0204")
    return Settings(
        str(chosen), opt_level, dict(checked(dict(config))), tuple(disabled),
        tuple(str(Path(p).resolve()) if p.endswith(".py") else p for p in plugins))


def check_reference(name: str, model: Path) -> None:
    """Raise `OptionError` or `PackageError` for a reference that cannot run the model."""
    if name != INTERPRETER:
        from tilewright.driver.diagnosis import references

        references.check_reference(name, model)


def read_case(model: Path, shapes: Mapping[str, Any], given: Mapping[str, Array]) -> Case:
    """Read the model with its inputs; missing inputs are random.

    Raises `ModelError`, `InputError` for inputs of a wrong shape or dtype, `OptionError` for an input of dynamic shape.
    """
    from tilewright.compiler.formats import format_of
    from tilewright.driver.diagnosis.case import Case
    from tilewright.relay.transform.bind_params import bind_params
    from tilewright.relay.transform.infer_type import InferType

    sizes = dict(shapes) or {name: array.shape for name, array in given.items()}
    module, params = format_of(model).read(model, sizes or None)
    module = InferType()(bind_params(module, params))
    infos = [_Info(p.name_hint, p.tensor_type) for p in module["main"].params]
    fed = tensors.feed(infos, given, tensors.Fill.RANDOM)
    for info in infos:
        array = fed[info.name]
        if tuple(array.shape) != tuple(info.shape) or array.dtype != info.dtype.numpy():
            raise InputError(
                f"input '{info.name}' is {info.dtype}[{', '.join(map(str, info.shape))}], but was given "
                f"{array.dtype}[{', '.join(map(str, array.shape))}]",
                code="TW0704")
        if array.dtype == object:
            raise InputError(f"input '{info.name}' has strings, but diagnose compares only numbers", code="TW0703")
    return Case(module, tuple(np.asarray(fed[i.name], order="C") for i in infos))


class _Info:
    """An input with the attributes that `tensors.feed` needs."""

    def __init__(self, name: str, kind: Any) -> None:
        self.name, self.shape, self.dtype = name, kind.shape, kind.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod([int(d) for d in self.shape])) * int(self.dtype.itemsize)


def diagnose(
    model: Path, case: Case, settings: Settings, folder: Path, timeout: float, reference: str, *, thorough: bool
) -> Diagnosis:
    """Find the cause, with progress on the terminal, and write a reproducer into a folder."""
    from rich.console import Console
    from rich.markup import escape

    from tilewright.driver.diagnosis.bench import Bench
    from tilewright.driver.diagnosis.find import find
    from tilewright.driver.diagnosis.repro import write_repro

    console = Console(stderr=True, highlight=False)
    with console.status("the whole program") as status, Bench(settings, timeout) as bench:
        stage = "the whole program"

        def told(text: str) -> None:
            nonlocal stage
            stage = text
            status.update(escape(text))

        bench.tried = lambda: status.update(escape(f"{stage} ({bench.probes} tries)"))
        found: Diagnosis | None = None
        if reference != INTERPRETER:
            from tilewright.driver.diagnosis.references import compare_import

            told(f"the import, by {reference}")
            found, wanted = compare_import(reference, model, case, bench)
            if found is not None:
                write_repro(found, settings, folder, wanted)
        if found is None:
            found = find(case, bench, told, thorough=thorough)
            if found.case is not None:
                write_repro(found, settings, folder, bench.arrays("expected", found.case))
    return found
