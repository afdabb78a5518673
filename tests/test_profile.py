"""Profiles: bookkeeping by a clock of the test's own, rooflines by peaks of the test's own, reports in all forms,
traces, and what a program needs of memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import cnn, mlp
from tilewright import relay
from tilewright.base.errors import InputError, OptionError, RunError
from tilewright.base.plugins import Hook
from tilewright.base.types import DataType
from tilewright.compiler.cache import Cache
from tilewright.compiler.peaks import peaks
from tilewright.relay.analysis.features import mac_number
from tilewright.relay.analysis.operation_counts import operations, product_type
from tilewright.runtime import compiler_hooks
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory_report import memory_report
from tilewright.runtime.notes import Note
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.perfetto import perfetto_bytes
from tilewright.runtime.profile import Chunk, Profile, Run, Span, StepTime, profile_program
from tilewright.runtime.profiling import (
    Count,
    DeviceWrapper,
    Duration,
    Metric,
    MetricCollector,
    Percent,
    Ratio,
    Report,
    number_of,
    profile_function,
)
from tilewright.runtime.roofline import BETWEEN, Bound, Peaks, judge
from tilewright.runtime.trace import CALLER, Slice, Trace, chrome_json, trace_of
from tilewright.runtime.trial import machine_name

IMAGE = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
FLAT = Peaks(1, {"float32": 1e11, "bfloat16": 2e11, "int8": 4e11}, ((1 << 20, 1e11), (1 << 28, 1e10)))


@pytest.fixture(scope="module")
def network() -> Executable:
    return tvm.compile(cnn(), threads=2).executable


def note(operations: int = 0, reads: int = 0, constants: int = 0, dtype: str = "float32") -> Note:
    return Note(("nn.dense",), operations, DataType(dtype), reads, constants, ())


# --- the clock
# ------------------------------------------------------------------------------------------------------------


def test_steps_and_what_is_between_them_are_the_whole(network: Executable) -> None:
    ticks = count(0, 10)
    with network.stepwise(IMAGE) as (subject, _):
        profile = profile_program(subject, 4, clock=lambda: next(ticks))
    steps = len(network.manifest.steps)
    assert [round(1e9 * s.seconds, 6) for s in profile.steps] == [10] * steps
    assert 1e9 * profile.wall == pytest.approx(10 * (2 * steps + 1))
    assert 1e9 * profile.unattributed == pytest.approx(10 * (steps + 1))
    rows = profile.report().calls
    assert sum(number_of(r["Duration (us)"]) for r in rows) == pytest.approx(1e6 * profile.wall)
    assert sum(number_of(r["Percent"]) for r in rows) == pytest.approx(100)
    assert rows[-1]["Name"] == BETWEEN
    assert (profile.clock, len(profile.all_runs)) == ("python", 4)


def test_the_quicker_half_of_the_runs_counts(network: Executable) -> None:
    looks = 2 * len(network.manifest.steps) + 2

    def clock() -> Iterator[int]:
        now = 0
        for pace in (1, 100, 7, 90, 5):  # the first is not measured
            for _ in range(looks):
                now += pace
                yield now

    ticks = clock()
    with network.stepwise(IMAGE) as (subject, _):
        profile = profile_program(subject, 4, clock=lambda: next(ticks))
    assert [round(1e9 * s.seconds) for s in profile.steps] == [6] * len(profile.steps)
    assert [round(1e9 * s.least) for s in profile.steps] == [5] * len(profile.steps)
    assert 1e9 * profile.wall == pytest.approx(6 * (looks - 1))


def test_native_code_looks_at_the_clock(network: Executable) -> None:
    expected = network(IMAGE)
    profile = network.profile(IMAGE, number=3, timeline=True)
    assert profile.clock == "native"
    assert all(s.seconds > 0 for s in profile.steps)
    run = profile.timeline
    assert run is not None
    assert [s.step for s in run.spans] == [*range(len(profile.steps))]
    assert run.begin <= run.spans[0].begin and run.spans[-1].end <= run.end
    assert all(a.end <= b.begin for a, b in pairwise(run.spans))
    assert all(run.begin <= c.begin <= c.end <= run.end for c in run.chunks)
    np.testing.assert_array_equal(network(IMAGE), expected)


def test_all_iterations_of_a_parallel_loop_are_noted() -> None:
    x = relay.var("x", shape=(2048, 256))
    program = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), threads=2).executable
    run = program.profile(number=1, timeline=True).timeline
    assert run is not None and len(run.chunks) > 1 and len({c.thread for c in run.chunks}) <= 2
    chunks = sorted((c.first, c.last) for c in run.chunks)
    assert chunks[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(chunks))


def test_every_part_of_a_batch_is_timed() -> None:
    program = tvm.compile(cnn(batch=4), config={"relay.SplitBatch.images": 2}, threads=1).executable
    assert program.manifest.parts == 2
    profile = program.profile(number=2, timeline=True)
    assert profile.timeline is not None
    assert [(s.part, s.step) for s in profile.timeline.spans] == [
        (p, k) for p in range(2) for k in range(len(profile.steps))
    ]
    assert profile.report().calls[0]["Count"] == Count(2)


def test_without_the_compiler_python_looks_at_the_clock(network: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_hooks, "timed_entries", Hook("tilewright.absent"))
    profile = network.profile(IMAGE, number=2, timeline=True)
    assert profile.clock == "python"
    assert "no compiler is installed here" in profile.report().table()
    assert profile.timeline is not None and not profile.timeline.chunks
    with pytest.raises(OptionError, match="number=0 must be at least 1"):
        network.profile(number=0)


@pytest.mark.parametrize("form", [".so", ".tar", "c", "checked"])
def test_programs_of_all_kinds_are_profiled(form: str, tmp_path: Path) -> None:
    special: dict[str, dict[str, Any]] = {
        "c": {"target": "c"}, "checked": {"config": {"tir.instrument_bound_checkers": True}}
    }
    options = special.get(form, {})
    model = tvm.compile(mlp(), **options)
    program = tvm.load(model.save(tmp_path / f"m{form}")) if form.startswith(".") else model.executable
    profile = program.profile(number=1)
    first = profile.steps[0].note
    assert first is not None and first.operations > 0
    assert profile.steps[0].name in str(profile)


def test_operators_in_python_are_rows() -> None:
    step = StepTime("take", "node", 2e-6, 1e-6, None, is_native=False)
    report = Profile("m", (step,), 3e-6, (3e-6,), 1, "python", 0).report(FLAT)
    assert (report.calls[0]["Bound"], report.calls[0]["Try"]) == ("python", "an operator with a kernel")
    assert "no compiler is installed here" in report.table()


# --- the roofline
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "seconds", "bound", "advice"), [
    (note(operations=10**8), 1.2e-3, Bound.COMPUTE, "--mixed-precision bfloat16"),
    (note(operations=10**8), 4e-3, Bound.COMPUTE, "tilewright tune"),
    (note(operations=4 * 10**8, dtype="uint8"), 1.2e-3, Bound.COMPUTE, ""),
    (note(reads=10**6), 1.2e-5, Bound.MEMORY, "--mixed-precision bfloat16"),
    (note(constants=10**6), 1.2e-5, Bound.MEMORY, "tilewright quantize"),
    (note(constants=10**6), 1e-4, Bound.MEMORY, "tilewright tune"),
    (note(operations=1000, reads=100), 2e-6, Bound.OVERHEAD, "larger batches"),
])
def test_what_holds_a_step_back(what: Note, seconds: float, bound: Bound, advice: str) -> None:
    verdict = judge(what, seconds, FLAT, program_bytes=1 << 20)
    assert verdict.bound is bound
    assert verdict.advice.startswith(advice) and bool(verdict.advice) == bool(advice)
    assert verdict.share == pytest.approx(verdict.least / seconds)


def test_constants_are_where_the_program_fits() -> None:
    assert judge(note(constants=10**6), 1.0, FLAT, 1 << 20).least == pytest.approx(1e-5)
    assert judge(note(constants=10**6), 1.0, FLAT, 1 << 24).least == pytest.approx(1e-4)
    assert judge(note(reads=10**6), 1.0, FLAT, 1 << 24).least == pytest.approx(1e-5)
    many = Peaks(2, FLAT.operations, FLAT.bandwidths)
    assert judge(note(operations=10), 1e-6, many, 0).advice == "--threads 1"


def test_peaks_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.compiler.peaks._SIZES", (1 << 16, 1 << 18))
    cache = Cache(tmp_path)
    found = peaks(1, cache)
    assert found.operations["float32"] > 1e8 and [n for n, _ in found.bandwidths] == [1 << 16, 1 << 18]
    monkeypatch.setattr("tilewright.compiler.peaks.measure_peaks", lambda *_: pytest.fail("measured again"))
    assert peaks(1, cache) == found == Peaks.from_json(found.to_json())
    for wrong in ("[]", '{"threads": 1, "operations": {}, "bandwidths": []}', "x"):
        with pytest.raises(InputError, match=r"not peaks of a machine|need the rate of float32 operations"):
            Peaks.from_json(wrong)


def test_rooflines_under_the_names_of_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.compat.roofline.peaks", lambda threads: FLAT)
    mod, params = relay.frontend.from_onnx(cnn(), freeze_params=False)
    report = tvm.utils.roofline_analysis(mod, params, "llvm", tvm.cpu(), inputs={"x": IMAGE}, runs=2)
    assert [r.get("Bound") in {*Bound} for r in report.calls] == [True] * 4 + [False]
    assert report.configuration["Peak float32 (Gop/s)"] == Ratio(100.0)
    assert tvm.utils.estimate_peak_fma_flops("llvm", tvm.cpu(), "int8") == 4e11
    assert [tvm.utils.estimate_peak_bandwidth("llvm", tvm.cpu(), nbytes=n) for n in (1, None)] == [1e11, 1e10]
    here, there = SimpleNamespace(machine=machine_name()), SimpleNamespace(machine="a board")
    assert tvm.utils.roofline.x86.estimate_peak_fma_vector_flops("llvm", tvm.cpu(), here, "int8") == 4e11
    assert tvm.utils.roofline.x86.estimate_peak_bandwidth_dram("llvm", tvm.cpu(), here) == 1e10
    with pytest.raises(OptionError, match="peaks are measured on the target machine"):
        tvm.utils.roofline.x86.estimate_peak_bandwidth_dram("llvm", tvm.cpu(), there)
    with pytest.raises(OptionError, match="peaks are available for float32, bfloat16, int8"):
        tvm.utils.estimate_peak_fma_flops("llvm", tvm.cpu(), "float64")
    with pytest.raises(OptionError, match="peaks are measured on the target machine"):
        tvm.utils.estimate_peak_bandwidth("llvm -mtriple=riscv64-linux-gnu", tvm.cpu())


def test_operations_that_a_graph_asks_for() -> None:
    data, weight = relay.var("x", shape=(1, 8, 10, 10)), relay.const(np.zeros((8, 16, 3, 3), np.float32))
    up = relay.nn.conv2d_transpose(data, weight, channels=16, kernel_size=(3, 3))
    assert mac_number(up) == 8 * 10 * 10 * 16 * 9
    dense = relay.nn.relu(relay.nn.dense(relay.var("d", shape=(2, 8)), relay.const(np.zeros((4, 8), np.float32))))
    assert operations(relay.Function([], dense)) == 2 * 2 * 4 * 8 + 2 * 4
    pool = relay.nn.max_pool2d(data, pool_size=(2, 2), strides=(2, 2))
    assert operations(relay.Function([], pool)) == 8 * 5 * 5 * 4
    assert operations(relay.Function([], relay.nn.softmax(relay.var("s", shape=(3, 5))))) == 5 * 15
    assert operations(relay.Function([], relay.sum(relay.var("s", shape=(3, 5)), axis=1))) == 15
    assert operations(relay.Function([], relay.transpose(relay.var("s", shape=(3, 5))))) == 0
    assert product_type(
        relay.Function(
            [],
            relay.nn.dense(
                relay.var("b", shape=(2, 8), dtype="uint8"), relay.var("w", shape=(4, 8), dtype="int8"),
                out_dtype="int32"
            )
        )
    ) == "uint8"


# --- reports
# --------------------------------------------------------------------------------------------------------------

ROWS: list[dict[str, Metric]] = [
    {
        "Name": "a", "Duration (us)": Duration(2.0), "Percent": Percent(20.0), "Count": Count(1), "GFLOP/s": Ratio(2.0),
        "Origin": "first"
    },
    {"Name": "b", "Duration (us)": Duration(5.0), "Percent": Percent(50.0), "Count": Count(1)},
    {
        "Name": "a", "Duration (us)": Duration(3.0), "Percent": Percent(30.0), "Count": Count(1), "GFLOP/s": Ratio(4.0),
        "Origin": "third"
    },
]


def test_a_report_is_a_table_csv_and_json() -> None:
    report = Report(ROWS, {"cpu0": {"Duration (us)": Duration(10.0)}}, {"Threads": Count(2)})
    lines = report.table().splitlines()
    assert lines[0].split("  ")[0] == "Name"
    assert [line.split()[0] for line in lines[1:6]] == ["a", "b", "----------", "Sum", "Total"]
    assert "5.00" in lines[1] and "3.00" in lines[1] and "first, third" in lines[1]
    assert lines[-1] == "Threads: 2"
    assert [
        line.split()[0] for line in report.table(aggregate=False, col_sums=False).splitlines()[1:4]
    ] == ["b", "a", "a"]
    assert [line.split()[0] for line in report.table(sort=False, aggregate=False).splitlines()[1:4]] == ["a", "b", "a"]
    assert list(csv.DictReader(io.StringIO(report.csv())))[1] == {
        "Name": "b", "Duration (us)": "5", "Percent": "50", "Count": "1", "GFLOP/s": "", "Origin": ""
    }
    assert json.loads(report.json())["calls"][0]["Duration (us)"] == {"microseconds": 2.0}
    assert Report.from_json(report.json()) == report
    assert str(report) == report.table()


def test_what_is_no_report() -> None:
    for text in (
        "{", "{}", '{"calls": [{"a": 1}], "device_metrics": {}}',
        '{"calls": [{"a": {"miles": 1}}], "device_metrics": {}}'
    ):
        with pytest.raises(InputError, match="this is not a report"):
            Report.from_json(text)
    with pytest.raises(InputError, match="is text, not a number"):
        number_of("x")


class Calls(MetricCollector):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def init(self, devices: Any) -> None:
        self.told.append("init")

    def start(self, device: DeviceWrapper) -> int:
        self.told.append("start")
        return len(self.told)

    def stop(self, started: int) -> dict[str, Metric]:
        self.told.append("stop")
        return {"Started": Count(started)}


def test_a_function_is_profiled() -> None:
    collector = Calls()
    seen: list[int] = []
    assert profile_function(seen.append, tvm.cpu(), [collector], warmup_iters=2)(1) == {"Started": Count(2)}
    assert (collector.told, seen) == (["init", "start", "stop"], [1, 1, 1])
    assert [*profile_function({"f": seen.append}, tvm.cpu(), func_name="f", warmup_iters=0)(1)] == ["Duration (us)"]
    with pytest.raises(InputError, match="warmup_iters=-1"):
        profile_function(print, tvm.cpu(), warmup_iters=-1)
    MetricCollector().init([])
    assert MetricCollector().stop(MetricCollector().start(DeviceWrapper(tvm.cpu()))) == {}


# --- traces
# ---------------------------------------------------------------------------------------------------------------


def watched() -> tuple[Profile, Any]:
    """A profile by hand of a program with two steps, of which a second thread ran a chunk."""
    program = tvm.compile(mlp(sizes=(16, 10))).executable
    manifest = program.manifest
    names = [
        StepTime(getattr(s, "symbol", "copy"), "node", 1e-6, 1e-6, n) for s,
        n in zip(manifest.steps, manifest.notes, strict=True)
    ]
    spans = tuple(Span(k, 0, 1000 + 100 * k, 1090 + 100 * k) for k in range(len(names)))
    run = Run(900, 2000, spans, (Chunk(7, 0, 4, 1005, 1050), Chunk(8, 4, 8, 1010, 1060)), caller=7)
    return Profile("m", tuple(names), 1e-6, (1e-6,), 2, "native", 0, 1, run), manifest


def test_a_trace_has_lanes_and_memory() -> None:
    profile, manifest = watched()
    trace = trace_of(profile, manifest)
    assert [*trace.lanes] == [CALLER, "worker 1"]
    (run,) = trace.lanes[CALLER]
    assert [s.name for s in run.inside] == [s.name for s in profile.steps]
    assert run.inside[0].inside[0].name == f"{profile.steps[0].name} [0, 4)"
    assert trace.lanes["worker 1"][0].begin == 1010
    assert trace.arena[0] == (900, 0) and trace.arena[-1] == (2000, 0) and max(n for _, n in trace.arena) > 0
    with pytest.raises(OptionError, match="no timeline was recorded"):
        trace_of(Profile("m", profile.steps, 1e-6, (1e-6,), 2, "native", 0), manifest)


def test_a_trace_for_chrome(tmp_path: Path) -> None:
    trace = trace_of(*watched())
    events = json.loads(trace.save(tmp_path / "t.json").read_text())["traceEvents"]
    assert json.loads(chrome_json(trace))["traceEvents"] == events
    slices = [e for e in events if e["ph"] == "X"]
    assert slices[0]["ts"] == 0 and slices[0]["dur"] == 1.1
    assert all(slices[0]["ts"] <= e["ts"] and e["ts"] + e["dur"] <= 1.1 + 1e-9 for e in slices)
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"tilewright: m", CALLER, "worker 1"}
    assert {e["name"] for e in events if e["ph"] == "C"} == {"arena in use"}
    with pytest.raises(OptionError, match=r"has none of the extensions of a trace: \.json, \.pftrace"):
        trace.save(tmp_path / "t.txt")


def test_a_trace_for_perfetto(tmp_path: Path) -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from google.protobuf import unknown_fields

    trace = trace_of(*watched())
    read = messages.Trace()
    read.ParseFromString(trace.save(tmp_path / "t.pftrace").read_bytes())
    assert not list(unknown_fields.UnknownFieldSet(read))
    assert not any(
        list(unknown_fields.UnknownFieldSet(m)) for p in read.packet for m in (p, p.track_event, p.track_descriptor)
    )
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in read.packet if p.HasField("track_descriptor")}
    assert [t.thread.thread_name for t in tracks.values() if t.HasField("thread")] == [CALLER, "worker 1"]
    event = messages.TrackEvent
    depth: dict[int, list[tuple[str, int]]] = {}
    ended = []
    for packet in read.packet:
        found = packet.track_event
        assert packet.trusted_packet_sequence_id == 1
        if not packet.HasField("track_event"):
            continue
        assert found.track_uuid in tracks
        if found.type == event.TYPE_SLICE_BEGIN:
            depth.setdefault(found.track_uuid, []).append((found.name, packet.timestamp))
        elif found.type == event.TYPE_SLICE_END:
            name, begin = depth[found.track_uuid].pop()
            ended.append((name, begin, packet.timestamp))
        else:
            assert found.type == event.TYPE_COUNTER and tracks[
                found.track_uuid
            ].counter.unit == messages.CounterDescriptor.UNIT_SIZE_BYTES
    assert not any(depth.values())
    stack: list[Slice] = [s for lane in trace.lanes.values() for s in lane]
    wanted = []
    while stack:
        s = stack.pop()
        wanted.append((s.name, s.begin, s.end))
        stack += s.inside
    assert sorted(ended) == sorted(wanted)
    large = Trace("m", {CALLER: (Slice("s", 1 << 40, (1 << 40) + 300, {"n": -1, "long": "x" * 300}),)}, ())
    again = messages.Trace.FromString(perfetto_bytes(large))
    (begin,) = [p for p in again.packet if p.track_event.type == event.TYPE_SLICE_BEGIN]
    assert begin.timestamp == 1 << 40 and begin.track_event.debug_annotations[0].int_value == -1


# --- memory
# ---------------------------------------------------------------------------------------------------------------


def test_what_lives_where_most_does(network: Executable) -> None:
    report = memory_report(network.manifest)
    assert report.arena == network.manifest.workspace_bytes == 4096
    assert (report.peak, report.use, report.steps) == (4096, (2048, 4096, 2112, 64), 4)
    assert [(a.nbytes, a.shape, a.dtype, a.first, a.last) for a in report.alive] == [
        (2048, (1, 8, 8, 8), "float32", 0, 1), (2048, (1, 8, 8, 8), "float32", 1, 2)
    ]
    text = str(report)
    assert (
        "peak of the arena: 4,096 bytes (4 kB), at step 1 of 4, kernel_1_conv2d_add (Conv 'second'" in text
        and "Conv 'first'" in text
    )
    assert json.loads(json.dumps(report.as_dict()))["inputs"] == IMAGE.nbytes
    alone = tvm.compile(tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4,)))))
    assert "nothing lives in the arena" in str(memory_report(alone.artifact.manifest))
    with pytest.raises(RunError, match="only known at run time: it has dynamic shapes"):
        memory_report(tvm.compile(mlp(batch="n"), {"x": ("n", 16)}).artifact.manifest)


def test_the_steps_of_a_program_for_all_sizes_cannot_be_timed_separately() -> None:
    program = tvm.compile(mlp(batch="n"), {"x": ("n", 16)}).executable
    assert isinstance(program, OpenExecutable)
    for one in (program, program.at(((3, 16),))):
        with pytest.raises(RunError, match=r"cannot be timed separately: it has .*dynamic shapes"):
            one.profile(np.ones((3, 16), np.float32))
