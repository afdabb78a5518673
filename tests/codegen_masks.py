"""Kernels that read and write vectors under masks of every shape, with guard elements around what may be written.

    python tests/codegen_masks.py [processor …]      all of them, on every processor that this machine has or emulates
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codegen_processors import PROCESSORS, Work, run_all, why_not
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Ramp, Var, as_expr, const
from tilewright.tir import interpreter
from tilewright.tir.stmt import SERIAL, For, IfThenElse, PrimFunc, Stmt, Store

Array = np.ndarray[Any, Any]
GUARD = 64
TYPES = ("int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
NARROWED = (
    ("int64", "int32"), ("int64", "int16"), ("int64", "int8"), ("int32", "int16"), ("int32", "int8"), ("int16", "int8"),
    ("int32", "uint8"), ("int32", "bool"),
    ("float64", "float32"), ("float64", "float16"), ("float64", "bfloat16"), ("float32", "float16"),
    ("float32", "bfloat16"),
)
PAIRS = (*((t, t) for t in TYPES), *NARROWED, *((b, a) for a, b in NARROWED))
LANES = range(1, 65)
COMMON_LANES = (2, 3, 4, 5, 8, 13, 16, 18, 32, 64)
"""Lanes of which every known mask is tried; of others, two."""
WAYS = ("store", "load", "scatter", "gather")
"""What happens under the mask: a store or a load of neighbours, or of elements that are apart."""
KNOWN = ("literal", "variable", "difference")
"""How the code generator gets to know a constant mask."""


def lanes_from(base: PrimExpr, step: int, lanes: int) -> PrimExpr:
    """`base`, `base + step`, ...; one lane is a scalar."""
    if lanes == 1:
        return base
    return Ramp(base, step, lanes) if step else E.Broadcast(base, lanes)


@dataclass(frozen=True)
class Case:
    """One kernel; `masks` has one row for each iteration. Known masks are constants in the code, others are read from
    memory."""

    way: str
    source: str
    to: str
    masks: tuple[tuple[bool, ...], ...]
    known: str = ""

    def __str__(self) -> str:
        rows = " ".join("".join("01"[on] for on in row) for row in self.masks[:1])
        return (
            f"{self.way} {self.source} -> {self.to} under {rows} "
            f"{self.known or f'and {len(self.masks) - 1} more, read'}"
        )

    @property
    def lanes(self) -> int:
        return len(self.masks[0])

    def func(self, name: str) -> PrimFunc:
        n, rows = self.lanes, len(self.masks)
        step = {"scatter": 3}.get(self.way, 1)
        a = Buffer("a", (n * (5 if self.way == "gather" else 1),), self.source)
        b, m = Buffer("b", (rows * self.room,), self.to), Buffer("m", (rows * n,), "bool")
        row = Var("row")
        mask = self._mask(row, m)
        index = lanes_from(as_expr(0), 5 if self.way == "gather" else 1, n)
        value: PrimExpr = Load(a, (index,))
        stored: PrimExpr | None = mask
        if self.way in ("load", "gather"):
            value, stored = E.if_then_else(mask, value, const(0, f"{self.source}x{n}")), None
        place = lanes_from(E.add(E.mul(row, self.room), GUARD), step, n)
        value = E.cast(f"{self.to}x{n}", value)
        body: Stmt = Store(b, value, (place,), stored) if n > 1 or stored is None else IfThenElse(
            stored, Store(b, value, (place,))
        )
        return PrimFunc(name, (a, b, m), For(row, as_expr(0), as_expr(rows), SERIAL, body))

    @property
    def room(self) -> int:
        """Elements of the output for one row: the guard elements on both sides, and the lanes."""
        return self.lanes * (3 if self.way == "scatter" else 1) + 2 * GUARD

    def _mask(self, row: Var, m: Buffer) -> PrimExpr:
        n, on = self.lanes, self.masks[0]
        if not self.known:
            return Load(m, (lanes_from(E.mul(row, n), 1, n),))
        base: PrimExpr = {"literal": as_expr(0), "variable": row, "difference": E.add(E.mul(row, 5), 3)}[self.known]
        lane = lanes_from(base, 1, n)
        count = sum(on)
        if on == tuple(k < count for k in range(n)):
            return E.compare(E.LT, lane, lanes_from(E.add(base, count), 0, n))
        return E.any_of(*(E.compare(E.EQ, lane, lanes_from(E.add(base, k), 0, n)) for k in range(n) if on[k]))

    def arrays(self, rng: np.random.Generator) -> list[Array]:
        n = self.lanes * (5 if self.way == "gather" else 1)
        kind = DataType(self.source)
        some = rng.standard_normal(n) * 100 if kind.is_float else rng.integers(
            0, 256, 8 * n, dtype=np.uint8
        ).view("int64")
        a = some.astype(kind.numpy())
        b = np.full(len(self.masks) * self.room, 1 if self.to == "bool" else 85, DataType(self.to).numpy())
        return [a, b, np.array(self.masks, bool).reshape(-1)]


def masks_of(lanes: int, rng: np.random.Generator) -> list[tuple[bool, ...]]:
    """Every first part, every single lane, and a few random ones."""
    first = [tuple(k < p for k in range(lanes)) for p in range(1, lanes + 1)]
    single = [tuple(k == p for k in range(lanes)) for p in range(1, lanes)]
    some = [tuple(bool(x) for x in rng.random(lanes) < share) for share in (0.1, 0.3, 0.5, 0.9)]
    return list(dict.fromkeys([*first, *single, *(m for m in some if any(m))]))


def all_cases(seed: int) -> Iterator[Case]:
    """Known masks one by one, where stores of neighbours come in each way of knowing them; read masks all in one
    kernel."""
    rng = np.random.default_rng(seed)
    for way in WAYS:
        for source, to in PAIRS:
            for lanes in LANES:
                masks = masks_of(lanes, rng)
                yield Case(way, source, to, tuple(masks))
                known = masks[:: 1 if way == "store" else 4] if lanes in COMMON_LANES else [
                    masks[k] for k in rng.integers(len(masks), size=2)
                ]
                for mask in known:
                    yield Case(way, source, to, (mask,), KNOWN[int(rng.integers(len(KNOWN)))])


def wrong(cases: list[Case], processor: str, folder: Path, seed: int) -> list[str]:
    """The cases that a processor computes in another way than the interpreter, or with changed guard elements."""
    rng = np.random.default_rng(seed)
    works = [Work(case.func(f"f{k}"), case.arrays(rng)) for k, case in enumerate(cases)]
    expected = [[a.copy() for a in w.arrays] for w in works]
    with np.errstate(all="ignore"):
        for w, arrays in zip(works, expected, strict=True):
            interpreter.run(w.func, arrays)
    run_all(works, processor, folder)
    return [str(c) for c, w, e in zip(cases, works, expected, strict=True) if w.arrays[1].tobytes() != e[1].tobytes()]


def main() -> None:
    cases = list(all_cases(0))
    for name in sys.argv[1:] or PROCESSORS:
        if why_not(name):
            print(f"{name}: left out, {why_not(name)}")
            continue
        bad: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            for first in range(0, len(cases), 2000):
                bad += wrong(cases[first : first + 2000], name, Path(folder), first)
        print(f"{name}: {len(cases)} kernels, {len(bad)} wrong", *bad[:20], sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
