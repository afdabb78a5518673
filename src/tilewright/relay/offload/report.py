"""The off-loading report: operators on the CPU with reason and smallest edit, and shares; as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from tilewright.base.errors import CompileError, OptionError, Origin
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr
from tilewright.relay.offload.changes import Edit, applied
from tilewright.relay.offload.difference import Kind


@dataclass(frozen=True)
class Record:
    """The reason why an operator stays on the CPU.

    `row` is the nearest row of the pattern table of `target`, and `path` the position in its pattern: operators with
    argument numbers. `expected` and `found` are the required and actual values; `more` are further differences from the
    same row. `proven`: the edit was tried, and the row accepts the result.
    """

    node: str
    operator: str
    span: Origin | None
    function: str
    macs: int
    target: str
    kind: Kind
    why: str
    row: str = ""
    path: str = ""
    expected: str = ""
    found: str = ""
    more: tuple[str, ...] = ()
    edit: Edit | None = None
    proven: bool = False
    call: Call | None = field(default=None, repr=False, compare=False)
    mod: IRModule | None = field(default=None, repr=False, compare=False)

    def apply(self, mod: IRModule | None = None, params: Mapping[str, Any] | None = None) -> IRModule:
        """Apply the edit to the explained module (or the equal `mod`); see `Edit.apply`."""
        if self.edit is None:
            raise OptionError(f"no small edit off-loads '{self.node}' to {self.target}: {self.why}",
                              code="TW0909")
        whole = mod if mod is not None else self.mod
        assert whole is not None
        return self.edit.apply(whole, params)

    def table(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the pattern table `rows` with the edit applied. Raises `OptionError` if the edit does not concern the
        table."""
        if self.edit is None or self.edit.table is None:
            raise OptionError(f"the edit for '{self.node}' cannot be made automatically: "
                              f"{self.edit.text if self.edit else self.why}", code="TW0909")
        return self.edit.table(rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible dictionaries and lists."""
        where = None if self.span is None else {"name": self.span.name, "kind": self.span.kind, "file": self.span.file,
            "line": self.span.line}
        edit = None
        if self.edit is not None:
            what = "table" if self.edit.table is not None else "model" if self.edit.can_apply else "by hand"
            edit = {"text": self.edit.text, "of": what, "keeps_meaning": self.edit.keeps_meaning,
                    "needs": list(self.edit.needs), "proven": self.proven}
        return {
            "node": self.node, "operator": self.operator, "origin": where, "function": self.function, "macs": self.macs,
            "target": self.target, "kind": str(self.kind),
            "row": self.row, "path": self.path, "expected": self.expected, "found": self.found, "why": self.why,
            "more": list(self.more), "edit": edit,
        }

    def __str__(self) -> str:
        return f"{self.called}: {self.reason}"

    @property
    def called(self) -> str:
        """The node with its operator and its multiply-accumulates."""
        return f"{self.node} ({self.operator}{f', {shown_macs(self.macs)}' if self.macs else ''})"

    @property
    def reason(self) -> str:
        """The reason and the edit; operators of one match share this text."""
        lines = [self.why, *(f"  and {m}" for m in self.more)]
        if self.edit is not None:
            keeps = "keeps the results" if self.edit.keeps_meaning else "changes the results"
            lines.append(f"  edit: {self.edit.text}" + (f" ({keeps})" if self.edit.can_apply else ""))
        return "\n".join(lines)


@dataclass(frozen=True)
class Taken:
    """An operator that a target computes, and the row that matched it; empty for a single operator."""

    node: str
    operator: str
    macs: int
    target: str
    row: str
    call: Call = field(repr=False, compare=False)


@dataclass(frozen=True)
class Offload(Sequence[Record]):
    """The report: records sorted by multiply-accumulates, most first. `mod` is the explained module, `partitioned` the
    result.
    """

    targets: tuple[str, ...]
    records: tuple[Record, ...]
    taken: tuple[Taken, ...]
    mod: IRModule = field(repr=False)
    partitioned: IRModule = field(repr=False)
    origins: Mapping[Expr, Call] = field(repr=False)
    """The original call in `mod` of each call of `partitioned`."""

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def left(self) -> tuple[Record, ...]:
        """The records of operators on the CPU, except those folded at compile time."""
        return tuple(r for r in self.records if r.kind is not Kind.FOLDED)

    @property
    def macs(self) -> int:
        """The multiply-accumulates of the program."""
        return self.macs_taken + sum(r.macs for r in self.left)

    @property
    def macs_taken(self) -> int:
        """The multiply-accumulates that the targets compute."""
        return sum(t.macs for t in self.taken)

    @property
    def share_of_macs(self) -> float:
        """The share of multiply-accumulates that the targets compute; 1 if the program has none."""
        return self.macs_taken / self.macs if self.macs else 1.0

    @property
    def share_of_operators(self) -> float:
        """The share of operators that the targets compute; 1 if the program has none."""
        return len(self.taken) / (len(self.taken) + len(self.left)) if self.taken or self.left else 1.0

    def require(self, share: float) -> None:
        """Raise `OffloadError` with the operators on the CPU if less than `share` of the multiply-accumulates is
        off-loaded.
        """
        if self.share_of_macs >= share:
            return
        worst = [r for r in self.left if r.macs] or list(self.left)
        shown = "\n".join(str(r) for r in worst[:8])
        rest = f"\nand {len(worst) - 8} more operators" if len(worst) > 8 else ""
        raise OffloadError(
            f"{', '.join(self.targets)}: {percent(self.share_of_macs)} of the multiply-accumulates are off-loaded, and "
            f"{percent(share)} are required; left on the CPU:\n{shown}{rest}")

    def applied(self, params: Mapping[str, Any] | None = None, *, change_results: bool = False) -> IRModule:
        """Return the module with all applicable edits that keep its results; with `change_results`, also those that
        change them."""
        edits = [r.edit for r in self.records if r.mod is self.mod and r.edit is not None and r.edit.can_apply
                 and (change_results or r.edit.keeps_meaning)]
        usable = [e for e in edits if all(n in (params or {}) for n in e.needs)]
        return applied(self.mod, usable, params)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible dictionaries and lists."""
        return {
            "targets": list(self.targets),
            "operators": {"offloaded": len(self.taken), "left": len(self.left), "share": self.share_of_operators},
            "macs": {"offloaded": self.macs_taken, "left": self.macs - self.macs_taken, "share": self.share_of_macs},
            "left": [r.as_dict() for r in self.records],
            "offloaded": [{"node": t.node, "operator": t.operator, "macs": t.macs, "target": t.target, "row": t.row}
                          for t in self.taken],
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    def to_svg(self) -> str:
        """Return a diagram of the partition as SVG text."""
        from tilewright.relay.offload.diagram import to_svg

        return to_svg(self)

    def to_html(self) -> str:
        """Return the diagram as an HTML page."""
        from tilewright.relay.offload.diagram import to_html

        return to_html(self)

    def summary(self) -> str:
        """Return the shares in one line."""
        return (
            f"{', '.join(self.targets)}: {len(self.taken)} of "
            f"{len(self.taken) + len(self.left)} operators ({percent(self.share_of_operators)}), "
            f"{shown_macs(self.macs_taken)} of {shown_macs(self.macs)} ({percent(self.share_of_macs)})"
        )

    def text(self) -> str:
        """Return the shares, then the records; operators with the same reason are listed together."""
        told: dict[str, list[Record]] = {}
        for r in self.records:
            told.setdefault(r.reason, []).append(r)
        lines = [self.summary()]
        for reason, rs in told.items():
            names = ", ".join(r.called for r in rs[:4]) + (f" and {len(rs) - 4} more" if len(rs) > 4 else "")
            lines.append(f"{names}:\n  " + reason)
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text()


def one_after_another(targets: tuple[str, ...], reports: Sequence[Offload]) -> Offload:
    """Merge the reports of targets that were partitioned one after another; each operator gets the reason of the
    nearest target."""
    last = reports[-1]
    earlier: dict[tuple[str, str, str], Record] = {}
    for report in reports[:-1]:
        earlier.update({(r.function, r.node, r.operator): r for r in report.records if r.kind is not Kind.UNKNOWN})
    records = tuple(earlier.get((r.function, r.node, r.operator), r) if r.kind is Kind.UNKNOWN else r
                    for r in last.records)
    origins = {e: c for report in reports for e, c in report.origins.items()}
    return Offload(targets, records, tuple(t for report in reports for t in report.taken), last.mod, last.partitioned,
                   origins)


class OffloadError(CompileError):
    """Raised if a smaller share of a model is off-loaded than required. The message lists the operators on the CPU,
    with reasons."""

    code = "TW0908"


def percent(share: float) -> str:
    """Format a share; never 100 % if something is left."""
    return f"{min(share * 100, 99.9) if share < 1 else 100:.1f} %"


def shown_macs(count: int) -> str:
    """Format a number of multiply-accumulates."""
    for size, word in ((10**9, "GMAC"), (10**6, "MMAC"), (10**3, "kMAC")):
        if count >= size:
            return f"{count / size:.2f} {word}"
    return f"{count} MAC"
