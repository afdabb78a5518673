"""Of networks with one thing changed, the report names what was changed, and its edit brings the operator back."""

from __future__ import annotations

import pytest

from offload_mutations import Case, cases
from offload_random import random_cases
from tilewright.relay.analysis import check_well_formed
from tilewright.relay.offload import explain_offload

CASES = {c.name: c for c in cases()}
RANDOM = {c.name: c for c in random_cases(300)}


def right_cause(case: Case) -> str:
    """Empty where the report of a case says what was changed; else what it says."""
    check_well_formed(case.mod)
    report = explain_offload(case.mod, "npu", tables={"npu": case.table})
    record = next((r for r in report if r.node == case.node), None)
    if record is None:
        return f"{case.name}: {case.node} is off-loaded"
    said = f"{record} {record.expected} {record.found} {record.path}"
    missing = [w for w in case.words if w not in said]
    return (
        f"{case.name}: {case.kind} with {missing} was expected:\n{record.kind}: {record}"
        if record.kind is not case.kind or missing else ""
    )


def mended(case: Case) -> str:
    """Empty where the edit of a case brings the operator to the accelerator; else what became of it."""
    report = explain_offload(case.mod, "npu", tables={"npu": case.table})
    record = next(r for r in report if r.node == case.node)
    if record.edit is None:
        return f"{case.name}: no edit: {record}"
    table, mod = case.table, case.mod
    if record.edit.table is not None:
        table = record.table(table)
    else:
        mod = record.apply(params=case.params)
    check_well_formed(mod)
    after = explain_offload(mod, "npu", tables={"npu": table})
    if any(t.node == case.node for t in after.taken):
        return ""
    return f"{case.name}: still on the CPU after: {record}\n" + "\n".join(str(r) for r in after if r.node == case.node)


def test_there_are_enough_networks() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name: str) -> None:
    assert not right_cause(CASES[name])


def test_the_cause_is_named_for_random_accelerators() -> None:
    wrong = [w for c in RANDOM.values() if (w := right_cause(c))]
    assert len(wrong) <= len(RANDOM) * 0.02, "\n".join(wrong)


@pytest.mark.slow
def test_edits_bring_random_operators_back() -> None:
    wrong = [w for c in RANDOM.values() if (w := mended(c))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.mends])
def test_the_edit_brings_it_back(name: str) -> None:
    assert not mended(CASES[name])
