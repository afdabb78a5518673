"""Cases of the loop passes, before -> after, in `tests/text/tir_*.md`.

A case is a heading, the passes in back quotes (run one after the other), a Python block that binds `before` to a
function, and the text that must come out. Every case is also run: both programs compute the same. With
TILEWRIGHT_UPDATE_TEXT=1 the expected texts are written instead of compared; read the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import loop_programs
from loop_programs import same
from tilewright import tir
from tilewright.scalar import expr, intrinsics
from tilewright.tir import stmt
from tilewright.tir.transform.common_subexpressions import common_subexpressions
from tilewright.tir.transform.hoist_conditions import hoist_conditions
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.pipeline import LOOP_PASSES, lower_loops
from tilewright.tir.transform.remove_dead_memory import remove_dead_memory
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.scalarize import scalarize
from tilewright.tir.transform.share_storage import share_storage

FILES = sorted((Path(__file__).parent / "text").glob("tir_*.md"))
CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+`(?P<pass>[^`\n]+)`\n+```python\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M
)
OTHERS = (
    common_subexpressions, hoist_conditions, inject_double_buffer, lower_blocks, remove_dead_memory, remove_no_op,
    scalarize, share_storage
)
PASSES = {**{p.__name__: p for p in (*LOOP_PASSES, *OTHERS)}, "lower_loops": lower_loops}


def cases() -> list[Any]:
    return [pytest.param(f, m, id=f"{f.stem}:{m['name']}") for f in FILES for m in CASE.finditer(f.read_text())]


def run_case(case: re.Match[str]) -> str:
    names: dict[str, Any] = {**vars(expr), **vars(intrinsics), **vars(stmt), **vars(loop_programs), "parse": tir.parse}
    exec(case["code"], names)
    after = before = names["before"]
    for name in case["pass"].split(", "):
        after = PASSES[name](after)
    same(before, after)
    return str(after)


def test_the_files_hold_cases_only() -> None:
    assert FILES
    for f in FILES:
        assert f.read_text().count("\n## ") == len(
            CASE.findall(f.read_text())
        ), f"{f.name} holds a case of another form"


@pytest.mark.parametrize(("file", "case"), cases())
def test_before_and_after(file: Path, case: re.Match[str]) -> None:
    text = run_case(case)
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['text']}```", f"```text\n{text}\n```")
        file.write_text(file.read_text().replace(case[0], updated))
        return
    assert text == case["text"].rstrip("\n")
