"""Ill-typed programs with their messages (`relay_type_errors.md`), and functional passes, before -> after
(`relay_functional_passes.md`).

A case is a heading and a program in Relay, then the message that `InferType` gives, or, with the pass in back quotes
before the program, the module that must come out, without types. With TILEWRIGHT_UPDATE_TEXT=1 what comes out is
written instead of compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relay import transform
from tilewright.relay.analysis import check_well_formed
from tilewright.relay.interpreter import evaluate
from tilewright.relay.printer import astext

TEXT = Path(__file__).parent / "text"
ERRORS, PASSES = TEXT / "relay_type_errors.md", TEXT / "relay_functional_passes.md"
ERROR_CASE = re.compile(r"^## (?P<name>[^\n]+)\n+```relay\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M)
PASS_CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+`(?P<pass>[^`\n]+)`\n+```relay\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M
)
VERSION = '#[version = "0.0.5"]\n'


def cases(file: Path, form: re.Pattern[str]) -> list[Any]:
    return [pytest.param(m, id=m["name"]) for m in form.finditer(file.read_text())]


def compare_or_update(file: Path, case: re.Match[str], text: str) -> None:
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['text']}```", f"```text\n{text.rstrip()}\n```")
        file.write_text(file.read_text().replace(case[0], updated))
    else:
        assert text.rstrip() == case["text"].rstrip()


@pytest.mark.parametrize(("file", "form"), [(ERRORS, ERROR_CASE), (PASSES, PASS_CASE)])
def test_the_files_hold_cases_only(file: Path, form: re.Pattern[str]) -> None:
    assert file.read_text().count("\n## ") == len(form.findall(file.read_text())) >= 20


@pytest.mark.parametrize("case", cases(ERRORS, ERROR_CASE))
def test_an_ill_typed_program_is_refused_with_a_message(case: re.Match[str]) -> None:
    with pytest.raises(CompileError) as raised:
        transform.InferType()(relay.parse(VERSION + case["code"], "program"))
    compare_or_update(ERRORS, case, str(raised.value))


@pytest.mark.parametrize("case", cases(PASSES, PASS_CASE))
def test_before_and_after(case: re.Match[str]) -> None:
    before = transform.InferType()(relay.parse(VERSION + case["code"]))
    graph_pass = eval(case["pass"], vars(transform))
    after = transform.InferType()(graph_pass(before))
    check_well_formed(after)
    rng = np.random.default_rng(0)
    inputs = [
        np.asarray(rng.integers(1, 4, p.checked_type.shape)).astype(p.checked_type.dtype.numpy())
        for p in before["main"].params
    ]
    if len(after["main"].params) == len(inputs):
        np.testing.assert_equal(evaluate(after, *inputs), evaluate(before, *inputs))
        assert_structural_equal(graph_pass(after), after)
    compare_or_update(PASSES, case, astext(after, annotate=lambda e: "").removeprefix(VERSION))


def test_modules_come_back_as_they_are_when_there_is_nothing_to_do() -> None:
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    for p in (
        transform.InferType(), transform.DeDup(), transform.LambdaLift(), transform.Inline(),
        transform.RemoveUnusedFunctions(), transform.ToBasicBlockNormalForm()
    ):
        assert p(mod) is mod
