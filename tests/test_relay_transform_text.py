"""Cases of the graph passes, before -> after, in `tests/text/relay_*.md`.

A case is a heading, the pass in back quotes, a Python block that binds `before`, and the relay text that must come out.
Every case is also run: the values before and after agree, and running the pass again changes nothing. With
TILEWRIGHT_UPDATE_TEXT=1 the expected texts are written instead of compared; read the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.types import TensorType
from tilewright.ir import IRModule, assert_structural_equal, register_op_attr, reset_op_attr
from tilewright.relay import dataflow_pattern, transform
from tilewright.relay.interpreter import evaluate
from tilewright.relay.printer import text_of

# of test_relay_parser.py and test_relay_language_text.py
OTHERS = ("relay_parse_errors", "relay_text", "relay_functional_passes", "relay_type_errors")
FILES = sorted(f for f in (Path(__file__).parent / "text").glob("relay_*.md") if f.stem not in OTHERS)
CASE = re.compile(
    r"^## (?P<name>[^\n]+)\n+`(?P<pass>[^`\n]+)`\n+```python\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M
)
REGISTERED: list[tuple[str, str]] = []


def cases() -> list[Any]:
    return [pytest.param(f, m, id=f"{f.stem}:{m['name']}") for f in FILES for m in CASE.finditer(f.read_text())]


def random_input(kind: TensorType, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if kind.dtype.is_float:
        return rng.standard_normal(kind.shape).astype(kind.dtype.numpy())
    if kind.dtype == "string":
        return rng.choice(["a", "b", "a!", "Cat, dog # cat", ""], kind.shape).astype(object)
    return rng.integers(0, 2 if kind.dtype == "bool" else 5, kind.shape).astype(kind.dtype.numpy())


def weights(*shape: int, dtype: str = "float32") -> relay.Constant:
    """A constant that is the same in every run."""
    return relay.Constant(np.random.default_rng(7).standard_normal(shape).astype(dtype))


def run_case(case: re.Match[str]) -> str:
    names: dict[str, Any] = {
        "IRModule": IRModule, "relay": relay, "nn": relay.nn, "qnn": relay.qnn.op, "np": np, "weights": weights,
        "var": relay.var, "const": relay.expr.const, "supports": supports,
        "alters": alters,
    }
    exec(case["code"], names)
    before = IRModule.from_expr(names["before"])
    graph_pass = eval(case["pass"], {**vars(transform), "relay": relay, "p": dataflow_pattern})
    after = graph_pass(before)
    inputs = [random_input(p.type_annotation, k) for k, p in enumerate(before["main"].params)]
    compare(
        evaluate(before, *inputs), evaluate(after, *inputs),
        halves="MixedPrecision" in case["pass"] or "float16" in case["code"]
    )
    assert_structural_equal(graph_pass(after), after)
    return text_of(after["main"]) if len(after) == 1 else after.astext().partition("\n")[2]


def supports(target: str, *operators: str) -> None:
    """Let `target` compute these operators until the end of the case."""
    for name in operators:
        register_op_attr(name, f"target.{target}", lambda call: True)
        REGISTERED.append((name, f"target.{target}"))


def alters(name: str, hook: Any) -> None:
    """Let `AlterOpLayout` ask `hook` about an operator until the end of the case."""
    relay.op.register_alter_op_layout(name, hook)
    REGISTERED.append((name, "FTVMAlterOpLayout"))


@pytest.fixture(autouse=True)
def no_operator_stays_registered() -> Iterator[None]:
    yield
    while REGISTERED:
        reset_op_attr(*REGISTERED.pop())


def compare(left: Any, right: Any, halves: bool) -> None:
    """Equal types and close values; `halves` allows for results in 16 bits, and for their precision."""
    if isinstance(left, tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            compare(a, b, halves)
        return
    assert left.dtype == right.dtype or (halves and left.dtype.itemsize == 2 * right.dtype.itemsize)
    error = np.linalg.norm(left.astype(np.float64) - right.astype(np.float64))
    assert error <= (1e-2 if halves else 1e-4) * max(1.0, float(np.linalg.norm(right.astype(np.float64))))


def test_the_files_hold_cases_only() -> None:
    for f in FILES:
        headings = f.read_text().count("\n## ")
        assert headings == len(
            CASE.findall(f.read_text())
        ), f"a case in {f.name} is not of the form that this file describes"
    assert FILES


@pytest.mark.parametrize(("file", "case"), cases())
def test_before_and_after(file: Path, case: re.Match[str]) -> None:
    text = run_case(case)
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        updated = case[0].replace(f"```text\n{case['text']}```", f"```text\n{text.rstrip()}\n```")
        file.write_text(file.read_text().replace(case[0], updated))
        return
    assert text.rstrip() == case["text"].rstrip()
