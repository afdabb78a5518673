"""Cases of te schedules, before -> after, in `tests/text/te_schedule*.md`.

A case is a heading, a Python block that schedules (with `A`, `B`, `C`, `D`, `k`, `s` of `program` at hand, and may bind
`args`), and the loops of `tvm.lower` in simple mode. Every case is also run: the loops compute what they do without a
schedule. With TILEWRIGHT_UPDATE_TEXT=1 the expected texts are written instead of compared; read the difference before
you keep it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import PrimFunc

FILES = sorted((Path(__file__).parent / "text").glob("te_schedule*.md"))
CASE = re.compile(r"^## (?P<name>[^\n]+)\n+```python\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M)


def program() -> dict[str, Any]:
    """B = 2 A, C = B @ B by blocks of its columns, D = C + 1."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(b[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 8), lambda i, j: c[i, j] + 1.0, name="D")
    return {"te": te, "tvm": tvm, "A": a, "B": b, "C": c, "D": d, "k": k, "s": te.create_schedule(d.op), "args": [a, d]}


def lowered(code: str) -> PrimFunc:
    names = program()
    exec(code, names)
    func = tvm.lower(names["s"], names["args"], simple_mode=True)["main"]
    assert isinstance(func, PrimFunc)
    return func


def cases() -> list[Any]:
    return [pytest.param(f, m, id=f"{f.stem}:{m['name']}") for f in FILES for m in CASE.finditer(f.read_text())]


def test_the_files_hold_cases_only() -> None:
    assert FILES
    for f in FILES:
        assert f.read_text().count("\n## ") == len(
            CASE.findall(f.read_text())
        ), f"{f.name} holds a case of another form"


@pytest.mark.parametrize(("file", "case"), cases())
def test_before_and_after(file: Path, case: re.Match[str]) -> None:
    func = lowered(case["code"])
    x = np.random.default_rng(0).integers(-4, 5, (8, 8)).astype("float32")
    out = np.zeros((8, 8), np.float32)
    run(func, [x, out])
    want = 4 * (x @ x) + 1
    np.testing.assert_array_equal(
        out, np.where(np.arange(8)[:, None] < 3, want, 0) if "store_predicate" in case["code"] else want
    )
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['text']}```", f"```text\n{func}\n```")
        file.write_text(file.read_text().replace(case[0], updated))
        return
    assert str(func) == case["text"].rstrip("\n")
