"""The cycles of a program, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class LayerCycles:
    """A layer of the network. `near` are the bytes of near memory of its tiles, `cycles` the time from the end of the
    previous layer to its end. `compute` and `transfer` are the busy cycles of the queues."""

    name: str
    operator: str
    macs: int
    near: int
    cycles: int = 0
    compute: int = 0
    transfer: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    commands: int = 0


@dataclass
class Cycles:
    """The cycles of a program with overlapping transfers, and the peak use of near memory in bytes."""

    symbol: str
    near_size: int
    macs_per_cycle: int
    layers: list[LayerCycles] = field(default_factory=list)
    near_peak: int = 0

    @property
    def total(self) -> int:
        return sum(x.cycles for x in self.layers)

    @property
    def macs(self) -> int:
        return sum(x.macs for x in self.layers)

    @property
    def utilization(self) -> float:
        """Executed multiplications as a fraction of the peak."""
        return self.macs / (self.total * self.macs_per_cycle) if self.total and self.macs_per_cycle else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries and lists."""
        totals = {
            "cycles": self.total, "macs": self.macs, "near_peak": self.near_peak, "near_size": self.near_size,
            "utilization": self.utilization
        }
        return {"symbol": self.symbol, **totals, "layers": [asdict(x) for x in self.layers]}

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("layer", "operator", "cycles", "compute", "transfer", "bytes in", "bytes out", "macs", "near")
        ]
        for x in self.layers:
            rows.append(
                (
                    x.name[-40:], x.operator,
                    *(f"{n:,}" for n in (x.cycles, x.compute, x.transfer, x.bytes_in, x.bytes_out, x.macs, x.near))
                ))
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(
                c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths, strict=True))
            ).rstrip() for r in rows]
        used = f", {self.utilization:.0%} of the multiplications that there is room for" if self.macs_per_cycle else ""
        return "\n".join(
            [
                f"{self.symbol}: {self.total:,} cycles, {self.macs:,} macs{used}; near memory {self.near_peak:,} of "
                f"{self.near_size:,} bytes",
                *lines
            ])


def cycle_reports(program: Any) -> list[Cycles]:
    """Return the reports of all accelerators' parts of a model, of a result of `relay.build` or `tilewright.load`, or
    of modules."""
    return [m.cycles() for m in modules_of(program) if hasattr(m, "cycles")]


def modules_of(program: Any) -> Iterable[Any]:
    """Return the modules of accelerators in a compiled model."""
    for name in ("imported_modules", "modules"):
        if hasattr(program, name):
            return list(getattr(program, name))
    if hasattr(program, "artifact"):
        return list(program.artifact.modules)
    return program if isinstance(program, (list, tuple)) else [program]
