"""The fuzzer: cases are the same for the same seed, outcomes are classified, planted faults are found and made small,
crashes are outcomes."""

from __future__ import annotations

import os
import runpy
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from fuzz import __main__ as command
from fuzz import compare, rules
from fuzz.kinds import load
from fuzz.outcomes import AGREES, EXPLAINED, FOREIGN, INVALID, REFUSED, WRONG, Draw, Outcome, raised, silent
from fuzz.report import Report
from fuzz.runner import Result, Runner, Task, smallest
from fuzz.shrink import shrink
from tilewright.base.errors import ShapeError

pytest.importorskip("onnxruntime", reason="onnxruntime, one of the references, is not installed")


# What all kinds share.


@dataclass
class Numbers:
    """A kind whose cases are lists of numbers; the number decides what becomes of it."""

    name: str = "numbers"

    def prepare(self) -> None:
        """Nothing has to be read."""

    def draw(self, draw: Draw) -> list[int]:
        return [draw.number, 0, 0]

    def run(self, case: list[int], phase: Any) -> Outcome:
        phase("reference" if case[0] == 4 else "ours")
        if case[0] == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if case[0] == 3:
            return raised(KeyError("k"))
        if case[0] == 4:
            os.kill(os.getpid(), signal.SIGFPE)
        if case[0] == 5:
            return Outcome(FOREIGN, "MemoryError") if np.zeros(1 << 36, np.uint8).any() else Outcome(AGREES)
        return Outcome(WRONG, "odd") if case[0] == 7 else Outcome(AGREES)

    def smaller(self, case: list[int]) -> Iterator[list[int]]:
        yield from ([*case[:k], *case[k + 1:]] for k in range(1, len(case)))

    def test(self, case: list[int], outcome: Outcome) -> str:
        return f'"""{{about}}"""\nCASE = {case}\n'


def results(numbers: Sequence[int], tmp_path: Path) -> tuple[dict[int, Outcome], Report]:
    """The outcomes of the kind above, by number, and the report."""
    report = Report(tmp_path)
    found: dict[int, Outcome] = {}

    def follow(result: Result) -> Task | None:
        return Task(
            "numbers", 0, result.task.number, result.outcome
        ) if result.outcome.found and result.task.shrinks is None else None

    for result in Runner({"numbers": Numbers()}, 2).results([Task("numbers", 0, n) for n in numbers], follow):
        report.add(result)
        found.setdefault(result.task.number, result.outcome)
    return found, report


@pytest.mark.slow
def test_crashes_and_memory_are_outcomes(tmp_path: Path) -> None:
    found, report = results(range(8), tmp_path)
    assert [found[n].category for n in range(8)] == [AGREES, AGREES, FOREIGN, FOREIGN, INVALID, FOREIGN, AGREES, WRONG]
    assert (
        found[2].label == "the process ended with -11" and found[3].label.startswith("KeyError")
        and "Memory" in found[5].label
    )
    assert "CASE = [2]" in next(tmp_path.glob("test_numbers_the_process*")).read_text()
    assert "CASE = [7]" in next(tmp_path.glob("test_numbers_odd*")).read_text()
    text = "\n".join(report.lines())
    assert "numbers             3          0          0          1          1          3          8" in text


@pytest.mark.slow
def test_a_hang_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.runner.LONGEST", 2.0)

    def hangs(self: Numbers, case: Any, phase: Callable[[str], object]) -> None:
        phase("ours")
        time.sleep(600)

    monkeypatch.setattr(Numbers, "run", hangs)
    (result,) = Runner({"numbers": Numbers()}, 1).results([Task("numbers", 0, 0)], lambda result: None)
    assert result.outcome.category == FOREIGN and result.outcome.label == "more than 2 s"


def test_a_case_is_made_smaller() -> None:
    def smaller(case: list[int]) -> Iterator[list[int]]:
        yield from ([*case[:k], *case[k + 1:]] for k in range(len(case)))

    assert shrink([3, 1, 7, 4, 7], lambda case: 7 in case, smaller, 10.0) == [7]


def test_errors_of_ours_are_refusals_by_kind_of_message() -> None:
    a, b = (raised(ShapeError(f"'x{k}' has the shape [{k}, 2]; {k} dimensions are needed")) for k in (1, 2))
    assert a.category == REFUSED and a.label == b.label
    assert raised(ValueError("x")).category == FOREIGN


def test_seed_and_start_say_which_cases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "load", lambda name: Numbers())
    code = command.main(
        ["--kind", "onnx", "--seed", "3", "--start", "7", "--count", "2", "--found", str(tmp_path), "--no-shrink"]
    )
    said = capsys.readouterr().out
    assert code == 1 and "seed 3" in said and "wrong: odd (onnx --seed 3 --start 7)" in said


# Comparison.


def test_floats_may_differ_by_rounding_and_not_by_more() -> None:
    x = np.asarray([1, 100, np.nan, np.inf], np.float32)
    assert not compare.difference([x], [x * np.float32(1 + 2e-6)])
    assert "1 of 4 elements differ; at [1]" in compare.difference([x], [x + np.asarray([0, 0.1, 0, 0], np.float32)])
    assert "at [2]" in compare.difference([x], [np.asarray([1, 100, 0, np.inf], np.float32)])
    assert "shape [4], expected [2]" in compare.difference([x], [x[:2]])
    assert "type float32, expected float64" in compare.difference([x], [x.astype(np.float64)])
    assert compare.difference([np.asarray([1, 2])], [np.asarray([1, 3])])


def test_float64_decides_where_the_references_disagree() -> None:
    exact, near, far = np.asarray([1.0]), np.asarray([1.001], np.float32), np.asarray([1.5], np.float32)
    assert compare.as_good([near], [[near * 0 + 1], [near * 0 + np.float32(1.0005)]], [exact])
    assert not compare.as_good([far], [[near * 0 + 1], [near]], [exact])


def test_whole_numbers_are_those_of_float64_or_of_a_reference_or_unsure() -> None:
    exact, shaken = np.asarray([31, 4]), [[np.asarray([31, 5])], [np.asarray([31, 4])]]
    theirs = [[np.asarray([8, 4])]]  # float32 has a tie at the first place
    assert compare.as_sure([np.asarray([8, 5])], [exact], shaken, theirs)
    assert not compare.as_sure([np.asarray([8, 5])], [exact], shaken)
    assert not compare.as_sure([np.asarray([9, 4])], [exact], shaken, theirs)


def test_float64_results_have_the_shapes_of_the_runtime() -> None:
    from fuzz.onnx_evaluate import Steps

    pool = onnx_case(helper.make_node("GlobalMaxPool", ["x"], ["y"]), {"x": np.ones((2, 1, 5), np.float32)})
    (found,) = Steps(pool.model, pool.feeds).exact()
    assert found.shape == (2, 1, 1)


# ONNX.


def onnx_case(node: Any, feeds: dict[str, np.ndarray[Any, Any]], *others: Any) -> Any:
    from fuzz.onnx_evaluate import type_of
    from fuzz.onnx_kind import Case

    inputs = [helper.make_value_info(n, type_of(v)) for n, v in feeds.items()]
    graph = helper.make_graph(
        [*others, node], "g", inputs, [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    )
    return Case(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), feeds)


@pytest.mark.slow
def test_onnx_draws_the_same_from_a_number_and_agrees() -> None:
    kind = load("onnx")
    outcomes = []
    for number in range(6):
        case, again = kind.draw(Draw(20, number)), kind.draw(Draw(20, number))
        assert case.model == again.model and all(
            np.array_equal(a, b) for a, b in zip(case.feeds.values(), again.feeds.values(), strict=True)
        )
        outcomes.append(kind.run(case, silent))
    assert [o.category for o in outcomes].count(AGREES) >= 4, outcomes


@pytest.mark.slow
def test_onnx_finds_a_planted_fault_and_makes_it_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tilewright.relay.op import elementwise

    true_compute = elementwise.Tanh.compute
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    monkeypatch.setattr(elementwise.Tanh, "compute", lambda self, x: elementwise.Sigmoid().compute(x))
    kind = load("onnx")
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Tanh", ["b"], ["c"])
    ]
    case = onnx_case(helper.make_node("Relu", ["c"], ["y"]), {"x": x - 1}, *nodes)
    outcome = kind.run(case, silent)
    assert outcome.category == WRONG
    small = smallest(kind, case, outcome)
    assert [n.op_type for n in small.model.graph.node] == ["Tanh"] and next(iter(small.feeds.values())).size == 1
    path = tmp_path / "test_it.py"
    path.write_text(kind.test(small, kind.run(small, silent)).replace("{about}", "planted"))
    with pytest.raises(AssertionError):
        runpy.run_path(str(path))["test_found"]()
    monkeypatch.setattr(elementwise.Tanh, "compute", true_compute)
    runpy.run_path(str(path))["test_found"]()


def test_onnx_differences_are_explained_by_rules() -> None:
    division = onnx_case(
        helper.make_node("Div", ["x", "z"], ["y"]),
        {"x": np.asarray([3, -4], np.int32), "z": np.asarray([0, 2], np.int32)}
    )
    rule = rules.applying(division.model.graph.node[0], [*division.feeds.values()], [np.zeros(2, np.int32)])
    assert rule is not None and rule.name == "integer division by zero"
    # The mean of equal numbers, subtracted, is a rounding error; its reciprocal is anything.
    x = np.full((1, 3), 0.1, np.float32)
    nodes = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[1]), helper.make_node("Sub", ["x", "m"], ["d"])]
    case = onnx_case(helper.make_node("Reciprocal", ["d"], ["y"]), {"x": x}, *nodes)
    from fuzz.onnx_kind import judged

    wild = [np.full((1, 3), 5e7, np.float32)]
    outcome = judged(case, wild, {"onnx": [np.full((1, 3), np.inf, np.float32)]})
    assert (outcome.category, outcome.label) == (EXPLAINED, rules.CONDITION.name)


# The other kinds.


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code computes the logistic function in the place of tanh."""
    from tilewright.relay.op import elementwise

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")
    monkeypatch.setattr(elementwise.Tanh, "compute", lambda self, x: elementwise.Sigmoid().compute(x))


def draws_and_agrees(name: str, count: int) -> None:
    kind = load(name)
    cases = [kind.draw(Draw(3, number)) for number in range(count)]
    assert [str(kind.draw(Draw(3, number))) for number in range(count)] == [str(c) for c in cases]
    outcomes = [kind.run(c, silent) for c in cases]
    assert [o.category for o in outcomes].count(AGREES) >= count - 2, outcomes


def found_again(source: str, tmp_path: Path) -> None:
    """The test of a finding fails."""
    path = tmp_path / "test_it.py"
    path.write_text(source.replace("{about}", "planted"))
    with pytest.raises(AssertionError):
        runpy.run_path(str(path))["test_found"]()


@pytest.mark.slow
def test_tflite_finds_a_planted_fault_and_makes_it_small(wrong_tanh: None, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert, whose kernels are the reference, is not installed")
    from fuzz.tflite_kind import Case
    from tflite_models import Op, T

    draws_and_agrees("tflite", 5)
    kind = load("tflite")
    case = Case(
        (T("x", (2, 3)), T("y", (2, 3))), Op("TANH", [0], [1]), {0: np.arange(6, dtype=np.float32).reshape(2, 3)}
    )
    outcome = kind.run(case, silent)
    assert (outcome.category, outcome.label) == (WRONG, "TANH float32 float32")
    small = smallest(kind, case, outcome)
    assert small.feeds[0].size == 1 and small.tensors[1].shape == (1, 1)
    found_again(kind.test(small, kind.run(small, silent)), tmp_path)


@pytest.mark.slow
def test_torch_finds_a_planted_fault_and_makes_it_small(wrong_tanh: None, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from fuzz.torch_kind import Case, TorchKind

    kind = TorchKind()
    case = Case(
        {"x0": torch.arange(6.0).reshape(2, 3), "w1": torch.ones(3)},
        (("v2", "x0 + w1"), ("v3", "torch.tanh(v2)"), ("v4", "F.relu(v3)"))
    )
    outcome = kind.run(case, silent)
    assert outcome.category == WRONG and outcome.label.startswith("script: ")
    small = smallest(kind, case, outcome)
    assert [
        e for _, e in small.lines
    ] == ["torch.tanh(x2)"] and small.arrays["x2"].numel() == 1 and len(small.doors) == 1
    found_again(kind.test(small, kind.run(small, silent)), tmp_path)


@pytest.mark.slow
def test_torch_rules_hold_for_open_signs_and_infinite_reflections_alone() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from fuzz.rules import applying_torch

    values = {"x0": torch.ones(3, 2), "x1": torch.tensor([1.0, torch.inf]), "x2": torch.ones(2)}
    assert applying_torch([("v3", "torch.linalg.householder_product(x0, x1)")], values) is not None
    assert applying_torch([("v3", "torch.linalg.householder_product(x0, x2)")], values) is None
    assert applying_torch([("v3", "(torch.linalg.svd(x0, full_matrices=True))[0]")], values) is not None
    assert applying_torch([("v3", "torch.linalg.svdvals(x0)")], values) is None


@pytest.mark.slow
def test_torch_draws_the_same_from_a_number_and_agrees() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    draws_and_agrees("torch", 6)


@pytest.mark.slow
def test_relay_finds_a_planted_fault_and_makes_it_small(wrong_tanh: None, tmp_path: Path) -> None:
    from fuzz.relay_kind import Case, RelayKind
    from tilewright import relay
    from tilewright.driver.diagnosis.case import case_of

    kind = RelayKind()
    x = relay.var("x", shape=(2, 3))
    body = relay.nn.relu(relay.add(relay.tanh(relay.negative(x)), relay.const(2.0)))
    case = Case(case_of(relay.Function((x,), body), [np.arange(6, dtype=np.float32).reshape(2, 3)]))
    outcome = kind.run(case, silent)
    assert outcome.category == WRONG
    small = smallest(kind, case, outcome)
    assert small.program.nodes == 1 and "tanh" in str(small.program.module)
    found_again(kind.test(small, kind.run(small, silent)), tmp_path)


@pytest.mark.slow
def test_relay_draws_the_same_from_a_number_and_agrees() -> None:
    kind = load("relay")
    outcomes = [kind.run(kind.draw(Draw(3, number)), silent) for number in range(5)]
    assert [o.category for o in outcomes].count(AGREES) >= 4, outcomes
    assert str(kind.draw(Draw(3, 4)).program.module) == str(kind.draw(Draw(3, 4)).program.module)


@pytest.mark.slow
def test_schedules_find_a_planted_fault_and_make_it_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fuzz import schedules_kind
    from tilewright import tir

    draws_and_agrees("schedules", 6)
    true_func = schedules_kind.scheduled_func

    def spoilt(case: Any) -> Any:
        func = true_func(case)
        return tir.parse(str(func).replace("min(max(", "max(max(")) if "unroll" in [n for n, _ in case.steps] else func

    monkeypatch.setattr(schedules_kind, "scheduled_func", spoilt)
    kind = load("schedules")
    steps = tuple((name, k) for k, name in enumerate(("reorder", "unroll", "fuse", "split", "parallel")))
    case = next(
        c for seed in range(50) if kind.run(c := schedules_kind.Case("tir", seed, steps), silent).category == WRONG
    )
    small = smallest(kind, case, kind.run(case, silent))
    assert small.steps == (("unroll", 1),)
    found_again(kind.test(small, kind.run(small, silent)), tmp_path)
