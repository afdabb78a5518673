"""Common parts of the CPU back ends: validation of target options, and linking."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.backends.base import Backend
from tilewright.backends.cpu import processors
from tilewright.base.errors import TargetError
from tilewright.runtime.host import host_arch

if TYPE_CHECKING:
    from tilewright.backends.base import Strategies
    from tilewright.backends.cpu.link import Linker
    from tilewright.backends.targets.target import Target


class CpuBackend(Backend):
    """A back end for the processors of `processors.py`."""

    keys: tuple[str, ...] = ("cpu",)

    def add_strategies(self, strategies: Strategies) -> None:
        from tilewright.backends.cpu import operators

        operators.add_strategies(strategies)

    def check(self, target: Target) -> None:
        arch = target.mtriple.split("-", maxsplit=1)[0]
        if arch not in processors.FAMILIES:
            raise TargetError(
                f"'{target.mtriple}' is not a triple that code can be made for: "
                f"{nearest(arch, processors.FAMILIES, 'architecture')}", code="TW0503")
        is_known = target.mcpu in processors.CPUS[target.family] or processors.is_microcontroller(target.mcpu)
        if target.mcpu != "native" and not is_known:
            others = [family for family, names in processors.CPUS.items() if target.mcpu in names]
            hint = (
                f"it is one of {others[0]}; give its -mtriple" if others
                else nearest(target.mcpu, processors.CPUS[target.family], "CPU")
            )
            raise TargetError(f"CPU '{target.mcpu}' is not known for {arch}: {hint}", code="TW0503")
        if target.mcpu == "native" and processors.FAMILIES[arch] != processors.FAMILIES.get(host_arch()):
            raise TargetError(
                f"-mcpu=native is this machine ({host_arch()}), but the triple says '{target.mtriple}'; name a CPU of "
                f"{arch}", code="TW0503")
        for change in target.mattr:
            if change[:1] not in "+-" or len(change) < 2:
                raise TargetError(
                    f"'{change}' in -mattr is not a change of features; write +{change.strip('+-')} or "
                    f"-{change.strip('+-')}", code="TW0503")

    def link(
        self, objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None,
        stack: int = 0,
    ) -> None:
        from tilewright.backends.cpu.combine import combine_archive, combine_object
        from tilewright.backends.cpu.link import link_dll, link_shared
        from tilewright.backends.cpu.link_wasm import link_wasm

        match out.suffix:
            case ".a":
                combine_archive(objects, out, triple, linker)
            case ".o":
                combine_object(objects, out, triple, linker)
            case ".dll":
                link_dll(objects, out, exports, triple, linker)
            case ".wasm":
                link_wasm(objects, out, exports, stack, linker)
            case _:
                link_shared(objects, out, exports, triple, linker)


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.65)
    return f"did you mean '{near[0]}'?" if near else f"the known {what}s are {', '.join(sorted(names))}"
