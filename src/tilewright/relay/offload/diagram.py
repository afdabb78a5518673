"""Diagram of a partition: a self-contained SVG file with the operators from top to bottom in evaluation order.

Each function of a target is a frame in the target's colour; operators of the CPU are grey, with the reason beside them.
Values that skip rows are arcs on the left. A tooltip shows the full reason of an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.offload.report import Offload, Record, shown_macs
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order

ROW: Final = 26
"""Height of a row, in pixels, with the gap below it."""
LEFT, WIDTH, BESIDE, GAP = 120, 430, 560, 30
LETTERS: Final = 40
"""Number of letters of a label. Longer names are cut at the front, since their ends distinguish them."""
LONGEST: Final = 92
"""Number of letters of a reason shown beside its operator."""
COLOURS: Final = ("#2f7ed8", "#e08214", "#1b9e77", "#c2388a", "#7b61c9", "#a6761d")
CPU: Final = "#8a8f98"


@dataclass
class Row:
    """An operator, or a composite of several: its label, its target, the function of the target, and the reason for the
    CPU.
    """

    label: str
    shape: str
    target: str
    region: str
    macs: int
    record: Record | None = None
    reads: set[int] = field(default_factory=set)


def to_svg(report: Offload) -> str:
    """Return the diagram of a report as SVG text."""
    rows = rows_of(report)
    tops = list(_tops(rows))
    height = (tops[-1] + ROW if tops else 60) + 30
    colour = {t: COLOURS[i % len(COLOURS)] for i, t in enumerate(report.targets)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + BESIDE + 620}" height="{height}" viewBox="0 0 '
        f'{LEFT + BESIDE + 620} {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="26" font-size="15" font-weight="bold" fill="#222">{escape(report.summary())}</text>',
        *_legend(report, colour), *_frames(rows, tops, colour), *_arcs(rows, tops),
    ]
    for row, top in zip(rows, tops, strict=True):
        parts += _drawn(row, top, colour)
    return "\n".join([*parts, "</svg>"]) + "\n"


def to_html(report: Offload) -> str:
    """Return the diagram of a report as an HTML page."""
    return ('<!doctype html>\n<html lang="en"><meta '
            f'charset="utf-8"><title>{escape(report.summary())}</title>\n<body>{to_svg(report)}</body></html>\n')


def rows_of(report: Offload) -> list[Row]:
    """Return the rows of the diagram: the calls of `main` in order, with calls of a target's function replaced by its
    rows."""
    mod = report.partitioned
    records = {r.call: r for r in report.records if r.call is not None}
    macs = {t.call: t.macs for t in report.taken}
    rows: list[Row] = []
    made: dict[Expr, set[int]] = {}
    functions = {n: f for n, f in mod.items() if isinstance(f, Function)}
    for name, f in functions.items():
        if "Compiler" not in f.attrs:
            _Rows(report, functions, records, macs, rows, made).of(f, "", "" if name == "main" else name)
    return rows


class _Rows:
    """Builds the rows of a function and of its callees."""

    def __init__(
        self, report: Offload, functions: dict[str, Function], records: dict[Call, Record], macs: dict[Call, int],
        rows: list[Row], made: dict[Expr, set[int]]
    ) -> None:
        self.report, self.functions, self.records, self.macs, self.rows, self.made = (report, functions, records, macs,
            rows, made)

    def of(self, f: Function, target: str, region: str) -> None:
        for e in post_order(f.body, inside=False):
            below = (set().union(*(self.made.get(o, set()) for o in operands(e))) if not isinstance(e, (Constant, Var))
                     else self.made.get(e, set()))
            if not isinstance(e, Call) or not e.args:
                self.made[e] = below
                continue
            called = self.functions.get(e.op.name_hint) if isinstance(e.op, GlobalVar) else None
            if called is not None and "Compiler" in called.attrs and isinstance(e.op, GlobalVar):
                for p, a in zip(called.params, e.args, strict=True):
                    self.made[p] = self.made.get(a, set())
                self.of(called, str(called.attrs["Compiler"]), e.op.name_hint)
                self.made[e] = self.made.get(called.body, set())
                continue
            self.made[e] = {len(self.rows)}
            self.rows.append(self._row(e, target, region, below))

    def _row(self, e: Call, target: str, region: str, below: set[int]) -> Row:
        inner = [c for c in post_order(e.op) if isinstance(c, Call)] if isinstance(e.op, Function) else [e]
        before = [b for c in inner if (b := self.report.origins.get(c)) is not None]
        known = e.known_type()
        shape = f"{known.dtype}[{', '.join(map(str, known.shape))}]" if isinstance(known, TensorType) else ""
        label = (str(e.op.attrs.get("Composite", "function")) if isinstance(e.op, Function) else e.op.name
                 if isinstance(e.op, Op) else repr(e.op))
        if e.span is not None and e.span.name:
            room = max(8, LETTERS - len(label) - 2)
            label += f"  {e.span.name if len(e.span.name) <= room else '…' + e.span.name[1 - room :]}"
        record = next((r for b in before if (r := self.records.get(b)) is not None), None) if not target else None
        count = sum(self.macs.get(b, 0) for b in before) if target else record.macs if record is not None else 0
        return Row(label, shape, target, region, count, record, below)


def _tops(rows: list[Row]) -> Iterator[int]:
    top, region = 70, ""
    for row in rows:
        if row.region != region:
            top += GAP if row.region else GAP // 2
            region = row.region
        yield top
        top += ROW


def _legend(report: Offload, colour: dict[str, str]) -> Iterator[str]:
    x = 20
    for name, fill in [*colour.items(), ("CPU", CPU)]:
        yield (f'<rect x="{x}" y="38" width="14" height="14" rx="3" fill="{fill}"/><text x="{x + 20}" y="50" '
               f'fill="#222">{escape(name)}</text>')
        x += 40 + 8 * len(name)


def _frames(rows: list[Row], tops: list[int], colour: dict[str, str]) -> Iterator[str]:
    """Yield a frame around the rows of each function of a target."""
    start = 0
    for i in range(1, len(rows) + 1):
        if i < len(rows) and rows[i].region == rows[start].region:
            continue
        first = rows[start]
        if first.region and first.target:
            fill, macs = colour.get(first.target, CPU), sum(r.macs for r in rows[start:i])
            words = f"{first.region}" + (f", {shown_macs(macs)}" if macs else "")
            yield (
                f'<rect x="{LEFT - 10}" y="{tops[start] - 22}" width="{WIDTH + 20}" height="{(i - start) * ROW + 24}" '
                f'rx="6" fill="{fill}" fill-opacity="0.10" stroke="{fill}"/>'
                f'<text x="{LEFT - 4}" y="{tops[start] - 8}" font-size="11" fill="{fill}">{escape(words)}</text>'
            )
        start = i


def _arcs(rows: list[Row], tops: list[int]) -> Iterator[str]:
    """Yield lines for the values: a stroke to the next row, an arc to a later one."""
    for i, row in enumerate(rows):
        for j in sorted(row.reads):
            if j == i - 1:
                yield f'<path d="M{LEFT + WIDTH - 30} {tops[j] + ROW - 5} V{tops[i] + 1}" stroke="#555" fill="none"/>'
            elif j < i:
                y0, y1 = tops[j] + ROW // 2, tops[i] + ROW // 2
                out = LEFT - 12 - min(100, 12 + (y1 - y0) // 8)
                yield (f'<path d="M{LEFT} {y0} C{out} {y0} {out} {y1} {LEFT} {y1}" stroke="#777" fill="none" '
                       'stroke-opacity="0.7"/>')


def _drawn(row: Row, top: int, colour: dict[str, str]) -> Iterator[str]:
    fill = colour.get(row.target, CPU) if row.target else CPU
    middle = top + 14
    hint = f"<title>{escape(str(row.record))}</title>" if row.record is not None else ""
    yield f'<g>{hint}<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{ROW - 5}" rx="4" fill="{fill}"/>'
    yield f'<text x="{LEFT + 8}" y="{middle + 1}" fill="white">{escape(_cut(row.label, LETTERS))}</text>'
    yield (f'<text x="{LEFT + WIDTH - 8}" y="{middle + 1}" fill="white" font-size="11" '
           f'text-anchor="end">{escape(_cut(row.shape, 26))}</text>')
    if row.record is not None:
        macs = f"{shown_macs(row.macs)}: " if row.macs else ""
        yield (f'<text x="{LEFT + WIDTH + 20}" y="{middle + 1}" fill="#444" '
               f'font-size="11">{escape(_cut(macs + row.record.why, LONGEST))}</text>')
    yield "</g>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most - 1]}…"
