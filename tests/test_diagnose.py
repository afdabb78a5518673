"""`tilewright diagnose`: what it prints, its exit codes, its folder; other references; how programs become smaller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tvm
from tflite_small import MODELS
from tilewright import relay
from tilewright.base.errors import OptionError, PackageError
from tilewright.driver.diagnose import read_case
from tilewright.driver.diagnosis.bench import Bench
from tilewright.driver.diagnosis.case import Case, case_of, operators
from tilewright.driver.diagnosis.find import CONTROL, IMPORT, find
from tilewright.driver.diagnosis.references import check_reference, compare_import
from tilewright.driver.diagnosis.shrink import Shrinker
from tilewright.driver.diagnosis.ways import Settings, Verdict, Way, check, compared
from tilewright.driver.main import main
from tilewright.relay.expr import Call
from tilewright.relay.visitor import rewrite
from tilewright.runtime.worker import Worker

PLANT = """
from tilewright.relay.op.registry import get
kind = get("tanh")
computes = kind.compute
kind.compute = lambda self, x: computes(self, x + x)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Sigmoid(Tanh(x)) of four numbers."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="first"), helper.make_node("Sigmoid", ["t"], ["y"], name="second")
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", "y")]
    path = tmp_path / "small.onnx"
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "small", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)],
            ir_version=10
        ), path
    )
    return path


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "twice_too_much.py"
    path.write_text(PLANT)
    return path


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.close()


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).uniform(-1, 1, shape).astype("float32")


@pytest.mark.slow
def test_a_right_model_ends_with_0(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(model), "--thorough", "--reference", "onnxruntime"]) == 0
    assert capsys.readouterr().out == "no divergence\n"
    assert not Path("small.repro").exists()


@pytest.mark.slow
def test_a_wrong_one_ends_with_1_and_a_folder_that_shows_it(
    model: Path, plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "found"
    assert main(["diagnose", str(model), "--plugin", str(plugin), "-o", str(folder)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"values: tanh (Tanh 'first' ({model.name})) goes wrong in lowering compute\n")
    assert f"1 of 2 nodes; run {folder / 'repro.py'}" in out
    told = json.loads((folder / "report.json").read_text())
    assert (
        told["stage"], told["name"], told["operators"], told["settings"]["plugins"]
    ) == ("lowering", "compute", ["tanh"], [str(plugin)])
    assert "| operator | tanh |" in (folder / "report.md").read_text()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, folder / "repro.py"], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert ran.returncode == 1, ran.stderr
    assert "values: 4 of 4 elements differ" in ran.stderr
    plugin.write_text("")
    ran = subprocess.run(
        [sys.executable, folder / "repro.py"], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "no difference"), ran.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["--reference", "onnx"], "--reference: there is no 'onnx'; choose from interpreter, onnxruntime, torch, tflite"),
    (["--reference", "torch"], "torch reads models of PyTorch"),
    (["--target", "npu, llvm"], "has accelerators"),
    (["--pass-config", "relay.FuseOps.max_depth=x"], "relay.FuseOps.max_depth takes int, not 'x'"),
    (["--plugin", "nobody.py"], "there is no file"),
    (["--timeout", "0"], "Invalid value for '--timeout'"),
])
def test_what_is_not_written_right_ends_with_2(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["diagnose", str(model), *words]) == 2
    assert message in capsys.readouterr().err


def test_inputs_that_do_not_fit(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 2), "float64"))
    assert main(["diagnose", str(model), "-i", str(tmp_path / "in.npz")]) == 1
    assert "input 'x' is float32[2, 2], but was given float64[2, 2]" in capsys.readouterr().err


def test_a_reference_that_is_not_installed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PackageError, match="needs the package onnxruntime: pip install onnxruntime onnx"):
        check_reference("onnxruntime", model)
    with pytest.raises(OptionError, match="tflite reads models of TFLite"):
        check_reference("tflite", model)


@pytest.mark.slow
def test_a_node_that_is_imported_wrong(model: Path, worker: Worker) -> None:
    case = read_case(model, {}, {})
    assert case.names == ["x"]
    with Bench(Settings(), worker=worker) as bench:
        assert compare_import("onnxruntime", model, case, bench)[0] is None
        wrong = rewrite(
            case.main.body,
            lambda e: Call(relay.nn.relu(e.args[0]).op, e.args, span=e.span) if isinstance(e, Call)
            and e.op.name == "tanh" else None
        )
        made = case.module.copy()
        made["main"] = case.main.with_body(wrong)
        found, wanted = compare_import("onnxruntime", model, Case(made, case.values), bench)
    assert found is not None
    assert (found.stage, found.operator, found.origin) == (IMPORT, "Tanh", f"Tanh 'first' ({model.name})")
    assert found.case is not None
    assert operators(found.case.main.body) == ["nn.relu"]
    np.testing.assert_allclose(wanted[0], np.tanh(case.values[0]), 1e-6)
    assert "by onnxruntime" in found.verdict.text  # type: ignore[union-attr]


@pytest.mark.slow
def test_torch_as_the_reference(tmp_path: Path, worker: Worker) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "small.pt2"
    torch.export.save(
        torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), (torch.zeros(2, 4),)), path
    )
    case = read_case(path, {"x": (2, 4)}, {})
    with Bench(Settings(), worker=worker) as bench:
        found, wanted = compare_import("torch", path, case, bench)
    assert found is None
    np.testing.assert_allclose(wanted[0], case.reference()[0], 1e-4, 1e-6)


def test_tensorflow_lite_as_the_reference(tmp_path: Path, worker: Worker) -> None:
    pytest.importorskip("ai_edge_litert")
    name = next(n for n in MODELS if n.startswith("conv"))
    path = tmp_path / "small.tflite"
    path.write_bytes(MODELS[name]())
    with Bench(Settings(), worker=worker) as bench:
        assert compare_import("tflite", path, read_case(path, {}, {}), bench)[0] is None


@pytest.mark.slow
def test_a_part_of_control_flow(tmp_path: Path, worker: Worker, plugin: Path) -> None:
    """What stands around a branch is cut off; what is in it is not looked into."""
    x = relay.var("x", shape=(2, 2))
    chosen = relay.If(relay.greater(relay.sum(x), relay.const(np.float32(100))), relay.tanh(x), relay.nn.relu(x))
    case = case_of(relay.Function([x], relay.tanh(relay.exp(chosen))), [random(2, 2)])
    with Bench(Settings(plugins=(str(plugin),)), worker=worker) as bench:
        found = find(case, bench)
        assert (found.stage, found.operator, found.case and found.case.nodes) == ("lowering", "tanh", 1)
        inside = case_of(
            relay.Function([x], relay.If(relay.less(relay.sum(x), relay.const(np.float32(100))), relay.tanh(x), x)),
            [random(2, 2)]
        )
        found = find(inside, bench)
    assert (found.found, found.stage) == (True, CONTROL)


def test_a_program_becomes_small() -> None:
    """To one operator, on as few numbers as show it."""
    x = relay.var("x", shape=(16, 384))
    y = relay.nn.relu(relay.nn.dense(relay.exp(x), relay.const(random(64, 384)), units=64))
    case = case_of(relay.Function([x], relay.nn.softmax(relay.sigmoid(relay.tanh(y)))), [random(16, 384)])
    small = Shrinker(case, lambda c: "nn.dense" in operators(c.main.body)).run()
    assert operators(small.main.body) == ["nn.dense"]
    assert small.elements <= 256
    assert small.reference()[0].shape == (small.values[0].shape[0], small.main.body.tensor_type.shape[1])


def test_a_program_stays_where_it_cannot_be_smaller() -> None:
    x = relay.var("x", shape=(4,))
    case = case_of(relay.Function([x], relay.tanh(relay.exp(x))), [random(4)])
    assert Shrinker(case, lambda c: operators(c.main.body) == ["exp", "tanh"]).run() is case


def test_verdicts() -> None:
    one = [np.array([1.0, 2.0], "float32")]
    assert compared(one, [one[0] + 1e-7], 3e-4) is None
    assert compared(one, [one[0] + 1], 3e-4).kind == "values"  # type: ignore[union-attr]
    assert compared(one, [one[0] * np.nan], 3e-4).kind == "non-finite"  # type: ignore[union-attr]
    assert compared([np.array([1, 2])], [np.array([1, 3])], 3e-4).kind == "values"  # type: ignore[union-attr]
    wrong, raised = Verdict("values", ""), Verdict("error", "", "KeyError")
    assert wrong.same(Verdict("non-finite", ""))
    assert not wrong.same(None)
    assert not raised.same(replace(raised, error="ValueError"))


def test_a_case_is_checked_in_this_process_too() -> None:
    x = relay.var("x", shape=(3, 5), dtype="int32")
    case = case_of(
        relay.Function([x], relay.Tuple([relay.sum(x, axis=1), relay.less(x, relay.const(np.int32(2)))])),
        [np.arange(15, dtype="int32").reshape(3, 5)]
    )
    assert check(case, Way("whole"), Settings()) is None
    assert check(case, Way("kernel"), Settings()) is None
    assert [v.dtype.name for v in Case.from_bytes(case.to_bytes()).reference()] == ["int32", "bool"]
    assert tvm.ir.structural_equal(Case.from_bytes(case.to_bytes()).module, case.module)
