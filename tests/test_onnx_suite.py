"""ONNX's conformance suite, all of it, compiled: every case passes, or is refused and stands on docs/onnx_refused.md.

The cases are run in parts, so that the processes of a parallel run share them; `conftest.py` adds up what ran natively.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

import daily
import small_models as models
from onnx_suite import Case, Outcome, cases, listed, page, reasons, run
from onnx_verdict import APART, plain
from tilewright.base.errors import NoNativeKernel
from tilewright.compat import onnx_backend as backend
from tilewright.relay.op.registry import OPS

pytestmark = pytest.mark.slow
PARTS = 40


@pytest.mark.parametrize("part", daily.sample(range(PARTS), 8, "ONNX suite"))
def test_every_case_passes_or_is_known_to_be_refused(part: int, record_property: Callable[[str, object], None]) -> None:
    mine: list[Case] = list(cases()[part::PARTS])
    outcomes: dict[str, Outcome] = {c.name: run(c) for c in mine}
    record_property(
        "conformance",
        [len(outcomes), sum(o.passed for o in outcomes.values()), sum(o.native for o in outcomes.values())]
    )
    assert not {
        name: o.wrong for name, o in outcomes.items() if o.wrong
    }, "wrong answers, or errors that are none of ours"
    refused, apart = reasons(outcomes)
    known = {name: why for name, why in listed().items() if name in outcomes}
    assert refused | apart == known, "docs/onnx_refused.md differs: correct the compiler, or update the page with `python tests/onnx_suite.py --write`"  # noqa: E501


def test_the_page_names_only_cases_that_there_are() -> None:
    assert listed().keys() <= {c.name for c in cases()}


def test_a_page_says_what_it_was_made_of() -> None:
    outcomes = {"node/b": Outcome(refused="no | here"), "node/a": Outcome(refused="no | here"), "node/c": Outcome(
        refused="not\n there"
    ),
                "node/d": Outcome(apart="random"), "node/e": Outcome(native=True)}
    text = page(*reasons(outcomes))
    assert "| no \\| here | node/a node/b |\n| not there | node/c |\n\nCompared" in text and text.endswith(
        "| random | node/d |\n"
    )
    assert "node/e" not in text
    assert "\n\nNo case is refused.\n\nCompared" in page({}, {"node/d": "random"})


def test_what_runs_by_its_numpy_meaning_is_not_counted_as_native(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object) -> None:
        raise NoNativeKernel

    def erf(size: int) -> Case:  # of different sizes, so that no program comes from the cache
        model = models.graph([helper.make_node("Erf", ["x"], ["y"])], {"x": (size,)}, {"y": (size,)}, {})
        return Case("erf", lambda: (model, [([np.ones(size, np.float32)], [np.full(size, 0.8427008, np.float32)])]))

    assert run(erf(5)) == Outcome(native=True)
    monkeypatch.setattr(OPS["erf"], "compute", none)
    assert run(erf(6)) == Outcome(native=False) and run(erf(6)).passed


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("string_concat", {"string_concat"}), ("unique_sorted_with_axis", {"unique_slices"}),
        ("nonzero_example", set()), ("add", set())
    ]
)
def test_a_model_says_which_operators_run_in_python(name: str, operators: set[str]) -> None:
    model, ((inputs, _),) = next(c for c in cases() if c.name == f"node/test_{name}").load()
    prepared = backend.prepare(model)
    prepared.run(plain(inputs))
    assert prepared.model.in_python == operators


def off_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every answer wrong."""
    called = backend.TilewrightRep.run
    monkeypatch.setattr(
        backend.TilewrightRep, "run",
        lambda self, inputs: [y ^ True if y.dtype == bool else y + y.dtype.type(2) for y in called(self, inputs)]
    )


def test_a_wrong_answer_and_a_refusal_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.graph([helper.make_node("Erf", ["x"], ["y"])], {"x": (1,)}, {"y": (1,)}, {})
    case = Case("erf", lambda: (model, [([np.ones(1, np.float32)], [np.full(1, 0.8427008, np.float32)])]))
    assert run(case).passed
    off_by_two(monkeypatch)
    wrong = run(case)
    assert "Not equal to tolerance" in wrong.wrong and not wrong.refused and not wrong.passed
    model.graph.node[0].op_type = "NoSuch"
    refused = run(Case("refused", lambda: (model, [])))
    assert "NoSuch" in refused.refused and not refused.wrong and not refused.passed


@pytest.mark.parametrize("name", sorted(APART))
def test_what_is_compared_with_other_values_is_still_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in cases() if c.name == name)
    assert run(case) == Outcome(apart=APART[name][0])
    off_by_two(monkeypatch)
    assert run(case).wrong
