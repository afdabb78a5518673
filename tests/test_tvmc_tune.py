"""`tvmc tune`, and what `tvmc compile` makes of records of either tuner."""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from small_models import cnn, mlp
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ModelError, OptionError, RunError, TargetError
from tilewright.driver import measuring, tvmc
from tilewright.driver.main import main as command_line
from tilewright.driver.tvmc.autotuner import selected, tasks_of
from tilewright.driver.tvmc.main import main
from tilewright.driver.tvmc.records import advised, is_of_auto_scheduler
from tilewright.runtime import rpc
from tilewright.runtime.rpc import connection
from tilewright.search.auto_scheduler.measure_record import load_records
from tilewright.search.autotvm import ApplyHistoryBest
from tilewright.search.local import LocalRunner
from tilewright.search.measure import Measured, MeasureErrorNo, failed

QUICK = ["--number", "1", "--parallel", "1"]
PERCEPTRON = np.random.default_rng(0).random((2, 16), np.float32)


def model(folder: Path) -> Path:
    path = folder / "mlp.onnx"
    path.write_bytes(mlp().SerializeToString())
    return path


def answers(path: Path, records: Path | None) -> np.ndarray[Any, Any]:
    package = tvmc.compile(tvmc.load(path), "llvm", tuning_records=records, output_format="tar")
    return tvmc.run(package, inputs={"x": PERCEPTRON}).outputs["output_0"]


@pytest.mark.slow
def test_records_of_autotvm(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, records = model(tmp_path), tmp_path / "records.json"
    tune = ["tune", str(path), "--target", "llvm", "--tasks", "0", "--tuner", "random", *QUICK]
    assert main([*tune, "-o", str(records), "--trials", "2"]) == 0, capfd.readouterr().err
    assert f"2 records in {records}" in capfd.readouterr().out
    copy = tmp_path / "copy.json"
    assert main([*tune, "-o", str(copy), "--trials", "1", "--tuning-records", str(records)]) == 0
    rows = [json.loads(row) for row in copy.read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["result"][1] == 0 for row in rows)
    assert len({json.dumps(row["config"]) for row in rows}) == 3  # none twice
    assert not is_of_auto_scheduler(copy)
    plain = answers(path, None)
    caplog.set_level(logging.INFO, "tilewright.compiler.tuned")
    np.testing.assert_allclose(answers(path, copy), plain, rtol=1e-5)
    assert sum("tuned, " in r.message for r in caplog.records) == 1
    assert sum("no record" in r.message for r in caplog.records) == len(caplog.records) - 1


@pytest.mark.slow
def test_records_of_auto_scheduler(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, records = model(tmp_path), tmp_path / "schedules.json"
    assert main(
        [
            "tune", str(path), "--target", "llvm", "--tasks", "0", "--trials", "2", "--enable-autoscheduler", "-o",
            str(records), *QUICK
        ]
    ) == 0, capfd.readouterr().err
    assert f"2 records in {records}" in capfd.readouterr().out
    assert is_of_auto_scheduler(records)
    found = list(load_records(records))
    assert [r.error_no for _, r in found] == [0, 0]
    steps = [i.state.transform_steps for i, _ in found]
    assert [bool(s) for s in steps] == [False, True]  # the own schedule is the first trial
    records.write_text(records.read_text().splitlines()[1] + "\n")
    plain = answers(path, None)
    caplog.set_level(logging.INFO, "tilewright.search.auto_scheduler.dispatcher")
    np.testing.assert_allclose(answers(path, records), plain, rtol=1e-5)
    assert f"a schedule of {len(steps[1])} steps that was found" in caplog.text


def test_records_of_both_forms_are_taken(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(
        '{"i": [["[\\"a\\"]", "llvm", [1, 16, 64, 0, 0, 0, 0, 0], "", 0, []], [[], []]], "r": [[0.1], 0, 1, 1], "v": '
        '"v0.6"}\n'
    )
    found = advised(tmp_path / "log.json")
    assert isinstance(found, ApplyHistoryBest) and found.report == {"taken": 1}
    assert found.schedules.query("llvm", '["a"]') == ()
    assert isinstance(advised(None), nullcontext) and isinstance(advised(""), nullcontext)


def test_tasks_are_named_by_number() -> None:
    assert selected("all", 3) == [0, 1, 2]
    assert selected("2", 3) == [2]
    assert selected("0, 2,1-2", 3) == [0, 2, 1]
    for text, said in (
        ("few", "cannot read 'few'"), ("", "cannot read ''"), ("1,", "cannot read ''"),
        ("3", "'3' is not within the tasks, 0 to 2"), ("2-1", "'2-1' is not"), ("0-9", "'0-9' is not")
    ):
        with pytest.raises(OptionError, match=said):
            selected(text, 3)


def test_what_python_is_refused(tmp_path: Path) -> None:
    made = tvmc.load(model(tmp_path))
    with pytest.raises(OptionError, match="--trials is 0"):
        tvmc.tune(made, "llvm", tmp_path / "r.json", trials=0)
    with pytest.raises(OptionError, match="did you mean 'xgb_rank'"):
        tvmc.tune(made, "llvm", tuner="xgb_rnk")
    with pytest.raises(TargetError, match="does not run on this machine"):
        tvmc.tune(made, {"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    with pytest.raises(ModelError, match="cannot be read"):
        tvmc.compile(made, "llvm", tuning_records=tmp_path / "none.json")
    assert not (tmp_path / "r.json").exists()


def test_tasks_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    for scheduler in (False, True):
        found = tasks_of(tvmc.load(path), Target("llvm"), scheduler)
        assert len(found) > 1
        assert min(weight for _, weight in found) >= 1
    relay_text = tmp_path / "nothing.relay"
    relay_text.write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 4), float32]) { reshape(%x, newshape=[8]) }\n'
    )
    with pytest.raises(OptionError, match="nothing to tune"):
        tasks_of(tvmc.load(relay_text), Target("llvm"))


@pytest.mark.slow
@pytest.mark.parametrize("tuner", [[], ["--enable-autoscheduler"]], ids=["autotvm", "auto_scheduler"])
def test_an_interrupt_ends_the_command_and_what_was_measured_stays(
    tuner: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, records = model(tmp_path), tmp_path / "records.json"
    ran: list[object] = []
    run_image = LocalRunner.run_image

    def interrupted(self: LocalRunner, *args: Any) -> Any:
        ran.append(args)
        if len(ran) == 3:
            signal.raise_signal(signal.SIGINT)
        return run_image(self, *args)

    def rows() -> list[Any]:
        return [json.loads(row) for row in records.read_text().splitlines()]

    command = ["tune", str(path), "--target", "llvm", "--tasks", "0", *tuner, "-o", str(records), *QUICK]
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text() if children.exists() else ""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(LocalRunner, "run_image", interrupted)
            assert main([*command, "--trials", "500"]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)
    said = capfd.readouterr().err
    assert said.endswith("Error: interrupted\n") and "Traceback" not in said
    assert len(ran) == 3 and 1 <= len(rows()) <= 2
    assert (children.read_text() if children.exists() else "") == before
    kept = len(rows())
    assert main([*command, "--trials", "1"]) == 0
    assert len(rows()) == kept + 1


def tuned_by(tracker: int, path: Path, records: Path) -> int:
    return main(
        [
            "tune", str(path), "--target", "llvm", "-o", str(records), "--trials", "2", "--rpc-tracker",
            f"127.0.0.1:{tracker}", "--rpc-key", "board", *QUICK
        ]
    )


def test_a_tracker_that_does_not_answer_ends_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(measuring, "DEVICE_SECONDS", 0.2)
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", "a secret of the tests")
    path, records = model(tmp_path), tmp_path / "r.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert tuned_by(port, path, records) == 4
        assert f"no connection to 127.0.0.1:{port}: no answer in time" in capfd.readouterr().err
        assert command_line(["tune", str(path), "--tracker", f"127.0.0.1:{port}", "--rpc-key", "board"]) == 1
        assert "no answer in time" in capfd.readouterr().err
    assert tuned_by(port, path, records) == 4
    assert f"no connection to 127.0.0.1:{port}: [Errno 111] Connection refused" in capfd.readouterr().err
    tracker = rpc.Tracker(port=0)
    try:
        assert tuned_by(tracker.port, path, records) == 4
        assert f"the tracker at 127.0.0.1:{tracker.port} has no device 'board'; it has: none" in capfd.readouterr().err
    finally:
        tracker.close()
    assert not records.exists()


def measure_as(monkeypatch: pytest.MonkeyPatch, result: Measured) -> list[int]:
    """Let every candidate have this result; gives how many there were in each batch."""
    batches: list[int] = []

    def run(self: Any, built: Any, on_measured: Any = None) -> list[Measured]:
        batches.append(len(built))
        for k in range(len(built) if on_measured else 0):
            on_measured(k, result)
        return [result] * len(built)

    monkeypatch.setattr(LocalRunner, "run", run)
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [False, True])
def test_a_device_on_which_nothing_can_be_measured_ends_the_command(
    scheduler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_as(monkeypatch, failed(MeasureErrorNo.UNKNOWN_ERROR, "the device has gone"))
    with pytest.raises(
        RunError, match=r"none of 2 candidates could be measured; the last one failed because: the device has gone"
    ):
        tvmc.tune(
            tvmc.load(model(tmp_path)), "llvm", tmp_path / "r.json", trials=2, tasks_filter="0", tuner="random",
            number=1, parallel=1, enable_autoscheduler=scheduler
        )


@pytest.mark.slow
def test_trials_are_the_most_of_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    made = tvmc.load(path)
    count = len(tasks_of(made, Target("llvm")))
    measured = measure_as(monkeypatch, Measured((1e-3,)))
    for trials in (count - 1, count + 1):
        measured.clear()
        tvmc.tune(made, "llvm", tmp_path / f"{trials}.json", trials=trials, tuner="random", number=1, parallel=1)
        assert sum(measured) == trials


@pytest.mark.slow
def test_schedules_of_a_network_of_integers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    stored = {
        "w": rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8),
        "v": rng.integers(-128, 128, (8 * 25, 16)).astype(np.int8),
        "s": np.float32(0.02), "z": np.int8(0), "rows": np.array([1, -1]),
    }
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["c"]),
        helper.make_node("Reshape", ["c", "rows"], ["r"]),
        helper.make_node("QLinearMatMul", ["r", "s", "z", "v", "s", "z", "s", "z"], ["y"]),
    ]
    taken, given = (
        helper.make_tensor_value_info(n, TensorProto.INT8, s) for n, s in (("x", (1, 4, 7, 7)), ("y", None))
    )
    graph = helper.make_graph(
        nodes, "g", [taken], [given], [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    )
    path, records = tmp_path / "m.onnx", tmp_path / "records.json"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    assert main(
        ["tune", str(path), "--target", "llvm", "--trials", "2", "--enable-autoscheduler", "-o", str(records), *QUICK]
    ) == 0, capfd.readouterr().err
    assert f"2 records in {records}" in capfd.readouterr().out
