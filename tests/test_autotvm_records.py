"""Records of tuning: written, read, thinned out; logs that TVM wrote; the command that shows them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from test_autotvm_tasks import kernel_task
from tilewright import relay
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ModelError, OptionError
from tilewright.search import autotvm
from tilewright.search.autotvm import record, tophub, tvm_logs
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.records import Records, decode, encode

CONV = """fn (%p0: Tensor[(1, 56, 56, 64), float32], %p1: Tensor[(3, 3, 64, 128), float32], Primitive=1) {
  nn.relu(nn.conv2d(%p0, %p1, strides=[2, 2], padding=[1, 1, 1, 1], channels=128, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO")) }"""  # noqa: E501
DENSE = (
    "fn (%p0: Tensor[(32, 512), float32], %p1: Tensor[(1000, 512), float32], Primitive=1) { nn.dense(%p0, %p1, "
    "units=1000) }"
)
DEPTHWISE = """fn (%p0: Tensor[(1, 28, 28, 64), float32], %p1: Tensor[(3, 3, 64, 1), float32], Primitive=1) {
  nn.conv2d(%p0, %p1, padding=[1, 1, 1, 1], groups=64, channels=64, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI") }"""  # noqa: E501
PRODUCTS = (
    "fn (%p0: Tensor[(12, 64, 32), float32], %p1: Tensor[(12, 48, 32), float32], Primitive=1) { nn.batch_matmul(%p0, "
    "%p1, transpose_b=True) }"
)

TENSOR = "TENSOR"
LLVM = "llvm -keys=cpu -link-params=0 -mcpu=skylake-avx512"


def tvm_row(
    name: str, args: list[Any], entity: list[Any], seconds: float = 1e-3, target: str = LLVM, error: int = 0
) -> str:
    """A line as TVM v0.8 to v0.13 writes it."""
    return json.dumps({
        "input": [target, name, args, {}], "config": {"index": 3, "code_hash": None, "entity": entity},
        "result": [[seconds], error, 2.5, 1614000000.0], "version": 0.2, "tvm_version": "0.8.dev0",
    })


CONV_ROW = tvm_row(
    "conv2d_NCHWc.x86",
    [
        [TENSOR, [1, 64, 56, 56], "float32"], [TENSOR, [128, 64, 3, 3], "float32"], [2, 2], [1, 1, 1, 1], [1, 1],
        "NCHW", "NCHW", "float32"
    ],
    [["tile_ic", "sp", [-1, 64]], ["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, 7]], ["unroll_kw", "ot", True]],
)
DENSE_ROW = tvm_row(
    "dense_pack.x86", [[TENSOR, [32, 512], "float32"], [TENSOR, [1000, 512], "float32"], None, "float32"],
    [
        ["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 2, 16]], ["tile_k", "sp", [-1, 2]],
        ["tile_inner", "sp", [-1, 1]]
    ],
)
DEPTHWISE_ROW = tvm_row(
    "depthwise_conv2d_NCHWc.x86",
    [
        [TENSOR, [1, 64, 28, 28], "float32"], [TENSOR, [64, 1, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "NCHW",
        "NCHW", "float32"
    ],
    [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 16]], ["tile_ow", "sp", [-1, 2]], ["unroll_kw", "ot", False]],
)
PRODUCTS_ROW = tvm_row(
    "batch_matmul.x86",
    [[TENSOR, [12, 64, 32], "float32"], [TENSOR, [12, 48, 32], "float32"], [12, 64, 48], "float32", 0, 1],
    [["tile_y", "sp", [-1, 4]], ["tile_x", "sp", [-1, 16]], ["tile_k", "sp", [-1, 4]]],
)


def task_of(text: str, flags: str) -> KernelTask:
    function = relay.parse_expr(text)
    assert isinstance(function, relay.Function)
    return KernelTask.of(function, [f == "1" for f in flags], Target("llvm"))


@pytest.mark.parametrize(
    ("row", "text", "flags", "decisions"),
    [
        (CONV_ROW, CONV, "01", {"tile_oc": 32, "tile_ow": 7, "unroll_kw": 1}),
        (DENSE_ROW, DENSE, "01", {"tile_y": 4, "tile_x": 16, "tile_k": 2}),
        (DEPTHWISE_ROW, DEPTHWISE, "01", {"tile_oc": 16, "tile_ow": 2, "unroll_kw": 0}),
        (PRODUCTS_ROW, PRODUCTS, "00", {"tile_y": 4, "tile_x": 16, "tile_k": 4}),
    ],
)
def test_tiles_of_tvm_are_taken_over(
    tmp_path: Path, row: str, text: str, flags: str, decisions: dict[str, int]
) -> None:
    file = tmp_path / "tvm.log"
    file.write_text(row + "\n")
    task = task_of(text, flags)
    with autotvm.apply_history_best(file) as history:
        assert history.report == {"of TVM taken over": 1}
        assert history.decisions(task.function, task.constants, task.target) == decisions
        assert history.query(task.target, ("fused.other", "fn () { 1f }", "")).is_fallback


def test_what_does_not_apply_is_counted_by_reason(tmp_path: Path) -> None:
    file = tmp_path / "tvm.log"
    file.write_text("\n".join([
        CONV_ROW, CONV_ROW, tvm_row("conv2d_nchw.cuda", [], [], target="cuda -keys=cuda,gpu"),
        tvm_row("conv2d_nchw_winograd.x86", [], []),
        tvm_row("roi_align", [], []), tvm_row("dense_pack.x86", [1, 2], []),
        tvm_row("dense_nopack.x86", json.loads(DENSE_ROW)["input"][2], []),
        tvm_row("dense_pack.x86", json.loads(DENSE_ROW)["input"][2], [], 1e9, error=4), "# a comment", "",
    ]) + "\n")
    assert autotvm.apply_history_best(str(file)).report == {
        "of TVM taken over": 2,
        "of TVM, for a target 'cuda' that code is not made for": 1,
        "of TVM, for the template 'conv2d_nchw_winograd.x86', which has no counterpart": 1,
        "of TVM, for the template 'roi_align', which has no counterpart": 1,
        "of TVM, for 'dense_pack.x86' with arguments that are not understood": 1,
        "of TVM, for 'dense_nopack.x86', whose configuration has no tiles": 1,
        "failed when measured": 1,
    }


def test_tophub_reads_the_newest_log_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tophub, "AUTOTVM_TOPHUB_ROOT_PATH", tmp_path)
    assert not tophub.context("llvm").best
    for name, rows in (
        ("llvm_v0.04", [CONV_ROW, DENSE_ROW, PRODUCTS_ROW]), ("llvm_v0.10", [CONV_ROW, DENSE_ROW]),
        ("arm_cpu_v0.08", [CONV_ROW]), ("llvm_v9", [])):
        (tmp_path / f"{name}.{'log' if rows else 'txt'}").write_text("\n".join(rows))
    extra = tmp_path / "extra.json"
    extra.write_text(DEPTHWISE_ROW)
    arm = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu"
    for target, files, count in (
        ("llvm", (), 2), (arm, (), 1), (Target("llvm"), [extra], 3), (["llvm", "llvm"], (), 2),
        ({"cpu": "llvm", "arm": arm}, (), 2), ("c", (), 0)):
        assert len(autotvm.tophub.context(target, files).best) == count, target
    task = task_of(CONV, "01")
    with autotvm.tophub.context("llvm") as logs:
        decisions = logs.decisions(task.function, task.constants, task.target)
    assert decisions is not None
    assert decisions["tile_ow"] == 7
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    assert not tophub.context("llvm").best


def test_anchors_of_layouts_with_blocks() -> None:
    args = [
        [TENSOR, [1, 4, 56, 56, 16], "float32"], [TENSOR, [8, 4, 3, 3, 16, 16], "float32"], [2, 2], [1, 1], [1, 1],
        "NCHW16c", "NCHW16c", "float32"
    ]
    assert tvm_logs._conv2d(args) == tvm_logs.anchor_of(task_of(CONV, "01").workload)


def rows_of(name: str = "dense", machine: str = "") -> list[str]:
    task = kernel_task(name)
    made = []
    for index, seconds in ((0, 3.0), (5, 1.0), (9, 2.0)):
        row = json.loads(
            record.encode(
                autotvm.MeasureInput(task.target, task, task.config_space.get(index)),
                autotvm.MeasureResult((seconds,), 0, 1.0, 5.0)
            )
        )
        made.append(json.dumps({**row, "machine": machine}))
    failed = autotvm.MeasureResult((1e9,), 4, 1.0, 5.0)
    return [*made, record.encode(autotvm.MeasureInput(task.target, task, task.config_space.get(7)), failed)]


def test_lines_are_those_of_the_field() -> None:
    row = json.loads(rows_of()[1])
    task = kernel_task("dense")
    assert row["input"] == ["llvm", task.name, list(task.args), {}]
    assert row["config"] == task.config_space.get(5).to_json_dict()
    assert row["result"] == [[1.0], 0, 1.0, 5.0]
    assert row["version"] == 0.2
    assert json.loads(rows_of()[3])["result"][:2] == [[1e9], 4]
    found = record.decode(rows_of()[1])
    assert found is not None
    inp, result = found
    assert inp.task.workload == task.workload
    assert inp.config.to_json_dict() == task.config_space.get(5).to_json_dict()
    assert (result.cost, result.error_no) == (1.0, 0)
    assert record.decode("# comment") is None
    assert record.measure_str_key(inp) != record.measure_str_key(inp, include_config=False)
    with pytest.raises(OptionError, match="loading a pickle can run code"):
        record.encode(inp, result, "pickle")
    with pytest.raises(ModelError, match="not a tuning record"):
        record.decode("{}")


def test_the_best_is_picked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, best = tmp_path / "log.json", tmp_path / "best.json"
    log.write_text("\n".join([*rows_of(), *rows_of("softmax")]) + "\n")
    assert record.main(["--act", "pick-best", "--i", str(log), "--o", str(best)]) == 0
    assert "the best of 2 workloads" in capsys.readouterr().out
    found = list(record.load_from_file(best))
    assert [r.cost for _, r in found] == [1.0, 1.0]
    assert record.main(["--act", "read", "--i", str(log)]) == 0
    assert "RUNTIME_DEVICE" in capsys.readouterr().out
    assert record.main(["--act", "read", "--i", str(tmp_path / "none.json")]) == 1
    assert "the records cannot be read" in capsys.readouterr().err
    record.split_workload(log)
    parts = sorted(p.name for p in tmp_path.glob("log.json.*"))
    assert len(parts) == 2
    assert len(list(record.load_from_file(tmp_path / parts[0]))) == 3


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    rows = rows_of()
    log.write_text(f"{rows[0]}\n{rows[1][:50]}")
    assert len(list(record.load_from_file(log))) == 1
    log.write_text(f"{rows[0]}\n{rows[1]}")
    assert len(list(record.load_from_file(log))) == 2
    log.write_text(f"{rows[0][:50]}\n{rows[1]}\n")
    with pytest.raises(ModelError, match=r"log\.json:1: not a tuning record"):
        list(record.load_from_file(log))


def test_records_of_other_machines_say_nothing_here(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text("\n".join(rows_of(machine="host, Quantum 9000, 4 cores")) + "\n")
    assert autotvm.apply_history_best(log).report == {
        "measured on another processor: Quantum 9000": 3, "failed when measured": 1
    }
    named = [
        row.replace('["llvm"', '["llvm -mcpu=x86-64-v3"') for row in rows_of(machine="host, Quantum 9000, 4 cores")
    ]
    assert autotvm.apply_history_best(io.StringIO("\n".join(named) + "\n")).report["taken"] == 3
    unknown = [row.replace('["llvm"', '["llvm -mcpu=q9000"') for row in rows_of()]
    assert autotvm.apply_history_best(io.StringIO("\n".join(unknown) + "\n")).report[
        "for a target that is not known: llvm -mcpu=q9000"
    ] == 3
    log.write_text("")
    with pytest.raises(OptionError, match="has no records"):
        autotvm.apply_history_best(log)


def test_a_selected_record_counts_more_than_a_faster_trial(tmp_path: Path) -> None:
    log, task = tmp_path / "log.json", kernel_task("dense")
    rows = rows_of()
    chosen = json.dumps({**json.loads(rows[2]), "selected": True})
    log.write_text("\n".join([rows[0], chosen, rows[1]]) + "\n")
    assert autotvm.apply_history_best(log).query(task.target, task.workload).index == 9
    store = Records(log)
    assert [r.selected for r in store] == [False, True, False]
    store.add(TaskCandidate.of(task, task.config_space.get(0)), autotvm.MeasureResult((4.0,)), selected=True)
    assert autotvm.apply_history_best(log).query(task.target, task.workload).index == 0  # the last selected one
    record.pick_best(log, tmp_path / "best.json")
    (best,) = Records(tmp_path / "best.json")
    assert best.selected and best.measured.costs == (4.0,)


@pytest.mark.parametrize(("seconds", "index"), [(1.0, "own"), (0.95, "own"), (0.85, 5)])
def test_a_trial_must_be_faster_than_the_own_choice_by_more_than_noise(
    tmp_path: Path, seconds: float, index: int | str
) -> None:
    log, task = tmp_path / "log.json", kernel_task("dense")
    own = task.default_config
    assert own.index != 5
    pairs = [(own, 1.0), (task.config_space.get(5), seconds)]
    rows = [
        record.encode(autotvm.MeasureInput(task.target, task, c), autotvm.MeasureResult((s,), 0, 1.0, 5.0))
        for c, s in pairs]
    assert [json.loads(r).get("own", False) for r in rows] == [True, False]
    log.write_text("\n".join(rows) + "\n")
    wanted = own.index if index == "own" else index
    assert autotvm.apply_history_best(log).query(task.target, task.workload).index == wanted
    record.pick_best(log, tmp_path / "best.json")
    ((best, _),) = record.load_from_file(tmp_path / "best.json")
    assert best.config.index == wanted


def test_both_forms_are_written_as_they_were_read() -> None:
    ansor = (
        '{"i": [["[\\"m\\", 4]", "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, ["a"]], [[], [["CI", 2]]]], "r": [[0.5], '
        '0, 1.0, 7], "v": "v0.6"}'
    )
    assert encode(decode(ansor, "here")) == ansor
    assert json.loads(encode(decode(rows_of()[0], "here"))) == json.loads(rows_of()[0])
    with pytest.raises(ModelError, match="here: not a tuning record of AutoTVM or auto_scheduler"):
        decode('{"i": [1], "v": "v0.6"}', "here")
    with pytest.raises(ModelError, match=r"load it with auto_scheduler\.load_records"):
        record.decode(ansor)
    costs, error_no, all_cost, timestamp = decode(ansor, "here").measured
    assert (costs, error_no, all_cost, timestamp) == ((0.5,), 0, 1.0, 7.0)


def test_several_files_are_one_history(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(rows_of()[0] + "\n")
    (tmp_path / "b.json").write_text(rows_of()[1] + "\n")
    history = autotvm.apply_history_best([tmp_path / "a.json", tmp_path / "b.json"])
    task = kernel_task("dense")
    assert history.query(task.target, task.workload).index == 5
    again = autotvm.apply_history_best([tmp_path / "b.json", tmp_path / "a.json"])
    assert history.identity == again.identity != autotvm.apply_history_best(tmp_path / "a.json").identity
