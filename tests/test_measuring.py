"""Measuring in worker processes: what goes wrong is told and goes no further, what is told is right and is
remembered."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from planted import DEFAULT, EXPECTED, Planted, planted
from tilewright import tir
from tilewright.base.errors import (
    InputError,
    ModelError,
    OptionError,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerRaised,
    WorkerTimedOut,
)
from tilewright.base.types import DataType
from tilewright.runtime.manifest import Parameter
from tilewright.runtime.trial import TrialOptions, flush_caches, load_library, timed, trial
from tilewright.runtime.trial_data import Guarded, arrays_of, difference, random_array
from tilewright.runtime.worker import Worker
from tilewright.search.building import Lowered, default_build, pickled, travelling
from tilewright.search.lines import LineFile
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import Candidate, Measured, MeasureErrorNo, measure
from tilewright.search.records import Record, Records, decode, encode
from tilewright.tir.stmt import PrimFunc

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(timeout=2, n_parallel=1) as made:
        yield made


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(timeout=2, number=2, repeat=2, cooldown_interval=0, threads=1) as made:
        yield made


@pytest.mark.slow
def test_each_planted_candidate_is_recorded_as_its_kind_and_measuring_goes_on(
    builder: LocalBuilder, runner: LocalRunner, tmp_path: Path
) -> None:
    candidates = [planted(kind) for kind in EXPECTED]
    records = Records(tmp_path / "records.json")
    told: dict[int, Measured] = {}
    results = measure(candidates, builder, runner, records, told.__setitem__)
    assert {c.kind: m.error_no for c, m in zip(candidates, results, strict=True)} == EXPECTED
    assert [told[k] for k in range(len(candidates))] == results
    assert all(len(m.costs) == 2 and min(m.costs) > 0 if m.ok else m.error for m in results)
    texts = {c.kind: m.error for c, m in zip(candidates, results, strict=True)}
    assert "SIGSEGV" in texts["segfault"] and "SIGABRT" in texts["abort"] and "status 3" in texts["exit"]
    assert "1 of 64 elements of B are wrong; element [63]" in texts["one element left out"]
    assert "wrote outside of one of its arrays" in texts["wrote outside"]
    assert "wrote into A, which it only reads" in texts["wrote input"]
    assert "float32 A[65]" in texts["other arguments"]
    assert texts["exception"] == "ValueError: the factors do not divide the extent"
    assert "MemoryError" in texts["huge memory"]
    again = Records(tmp_path / "records.json")
    assert {json.loads(r.config)["entity"][0][2]: r.measured.error_no for r in again} == EXPECTED
    assert [again.find(c) for c in candidates] == results


@pytest.mark.slow
def test_what_is_known_is_not_measured_again(builder: LocalBuilder, runner: LocalRunner, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.json")
    one, other = planted("right", 1), planted("sum", 2)
    first = measure([one, other, one], builder, runner, records)
    assert first[0] is first[2] and len((tmp_path / "records.json").read_text().splitlines()) == 2
    told: list[int] = []
    assert measure(
        [other, one], builder, runner, Records(tmp_path / "records.json"), lambda k, m: told.append(k)
    ) == [first[1], first[0]]
    assert told == [0, 1] and len((tmp_path / "records.json").read_text().splitlines()) == 2
    assert first[0].machine and first[0].ir_hash and first[0].ir_hash != first[1].ir_hash


def test_answers_are_not_checked_where_nothing_is_known_to_be_right(builder: LocalBuilder, runner: LocalRunner) -> None:
    (result,) = measure([planted("wrong answer", 3, checked=False)], builder, runner)
    assert result.ok


@dataclass(frozen=True, slots=True)
class Packed(Planted):
    """A product with a constant that is stored in parts of `lanes`."""

    lanes: int = 16

    def lower(self) -> PrimFunc:
        parts = 64 // self.lanes
        return tir.parse(
            f'@T.prim_func\ndef scaled(A: T.Buffer((64,), "float32"), W: T.Buffer(({parts}, {self.lanes}), "float32"), '
            'B: T.Buffer((64,), "float32")):\n'
            f"    for i, j in T.grid({parts}, {self.lanes}):\n        B[i * {self.lanes} + j] = A[i * {self.lanes} + "
            "j] * W[i, j]\n"
        )

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        flat = np.arange(64, dtype=np.float32) + (1 if self.kind == "other constants" else 0)
        return {"X" if self.kind == "no such parameter" else "W": flat.reshape(-1, self.lanes)}

    def default(self) -> Candidate | None:
        return Packed(self.key, "{}", self.target, lanes=4)


@pytest.mark.parametrize(
    ("kind", "error_no", "text"),
    [
        ("right", MeasureErrorNo.NO_ERROR, "^$"),
        ("other constants", MeasureErrorNo.WRONG_ANSWER, "elements of B are wrong"),
        (
            "no such parameter", MeasureErrorNo.RUNTIME_DEVICE,
            "'X', float32.4, 16., has a value, but is not a parameter of scaled"
        ),
    ],
)
def test_constants_are_stored_as_each_candidate_wants_them(
    builder: LocalBuilder, runner: LocalRunner, kind: str, error_no: int, text: str
) -> None:
    (result,) = measure([Packed(planted("packed").key, f'{{"index": "{kind}"}}', "llvm", kind)], builder, runner)
    assert result.error_no == error_no and re.search(text, result.error), result


@dataclass(frozen=True, slots=True)
class BadDefault(Planted):
    """A candidate whose default schedule is bad."""

    bad: str = ""

    def default(self) -> Candidate | None:
        if self.bad == "raises":
            raise KeyError("no default")
        return planted(self.bad, 7)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ("raises", "cannot be built.*no default"), ("exception", "cannot be built.*do not divide"),
        ("segfault", "cannot be run.*SIGSEGV")
    ]
)
def test_a_default_schedule_that_fails_is_told(builder: LocalBuilder, runner: LocalRunner, bad: str, text: str) -> None:
    right = planted("right")
    (result,) = measure([BadDefault(right.key, right.config, right.target, bad=bad)], builder, runner)
    assert result.error_no == MeasureErrorNo.UNKNOWN_ERROR
    assert re.search(text, result.error)


def test_a_candidate_of_the_script_itself_is_lowered_here(builder: LocalBuilder, runner: LocalRunner) -> None:
    class Local(Planted):
        pass

    Local.__module__, Local.__qualname__ = "__main__", "Local"
    sys.modules["__main__"].Local = Local  # type: ignore[attr-defined]
    try:
        right = planted("right")
        local = Local(right.key, right.config, right.target, "right", False)
        assert pickled(local)[1] and not pickled(Lowered.of(local))[1]
        travelled, _ = pickle.loads(travelling(local, default_build, with_default=True))
        assert travelled.identity == local.identity and travelled.default() is None
        checked = Local(right.key, right.config, right.target)
        assert pickle.loads(
            travelling(checked, default_build, with_default=True)
        )[0].default().config == planted(DEFAULT).config
        (result,) = measure([local], builder, runner)
        assert result.ok, result.error
    finally:
        del sys.modules["__main__"].Local


def test_code_uses_as_many_threads_as_are_asked_for(builder: LocalBuilder) -> None:
    with LocalRunner(number=1, repeat=1, cooldown_interval=0, threads=3) as three:
        measure([planted("right", 4)], builder, three)
        answer, _ = three._worker.call("tilewright.runtime.trial:threads_of_worker", {})
    assert answer == {"threads": 3}


def test_cold_caches_can_be_seen() -> None:
    data = np.zeros(1 << 16, np.float32)[::16]  # fits the second-level cache; each line is read once

    def call() -> None:
        data.sum()

    call()
    options = TrialOptions(number=1, repeat=5, noise=1e9)
    warm = [min(timed(call, options)[0]) for _ in range(3)]
    cold = [min(timed(call, TrialOptions(number=1, repeat=5, noise=1e9, flush=True))[0]) for _ in range(2)]
    assert min(cold) > min(warm)
    flush_caches()


class Clock:
    """A clock that goes on when a test says so: what it tells of times holds on any machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tilewright.runtime.trial.time", made)
    return made


def test_noise_is_measured_again_and_told(clock: Clock) -> None:
    naps = iter([0.001, 0.01] * 1000)
    costs, spread = timed(lambda: clock.sleep(next(naps)), TrialOptions(number=2, repeat=2))
    assert spread > 0.1 and len(costs) == 2
    count = [0]

    def settles() -> None:
        count[0] += 1
        clock.sleep(0.02 if count[0] <= 1 else 0.004)

    costs, spread = timed(settles, TrialOptions(number=2, repeat=1, noise=0.9))
    assert count[0] >= 4 and spread < 1e-6 and max(costs) == pytest.approx(0.004)


def test_a_repetition_takes_at_least_the_time_that_it_is_given(clock: Clock) -> None:
    calls = [0]

    def call() -> None:
        calls[0] += 1
        clock.sleep(0.001)

    timed(call, TrialOptions(number=1, repeat=1, min_repeat_ms=20, noise=1e9))
    assert 20 <= calls[0] < 200


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
)
def test_random_data_is_the_same_everywhere_and_differences_are_found(dtype: str) -> None:
    p = Parameter("x", (8, 9), DataType(dtype), False)
    x, y = random_array(p, 0, 5, {}), random_array(p, 0, 5, {})
    assert x.dtype == DataType(dtype).numpy() and x.tobytes() == y.tobytes() and difference(x, y, "x") == ""
    assert random_array(p, 1, 5, {}).tobytes() != x.tobytes() != random_array(p, 0, 6, {}).tobytes()
    y[3, 4] = not y[3, 4] if dtype == "bool" else y[3, 4] // 2 + 7
    assert "1 of 72 elements of x are wrong; element [3, 4]" in difference(y, x, "x")
    if dtype != "bool":
        ranged = random_array(p, 0, 5, {"x": (2, 4)}).astype(np.float64)
        assert ranged.min() >= 2 and ranged.max() <= 4


def test_rounding_is_no_difference_and_nan_is_one() -> None:
    right = np.linspace(-1, 1, 64, dtype=np.float32)
    assert difference(right + np.float32(1e-6), right, "x") == ""
    assert difference(right + np.float32(1e-2), right, "x")
    nan = right.copy()
    nan[3] = np.nan
    assert difference(nan, right, "x") and difference(right, nan, "x") and difference(nan, nan, "x") == ""
    infinite = right.copy()
    infinite[3] = np.inf
    assert difference(infinite, right, "x") and difference(infinite, infinite, "x") == ""


def test_guards_see_what_is_written_beside_an_array() -> None:
    g = Guarded((3, 5), np.dtype("float32"))
    g.array[...] = 1
    assert not g.broken and g.array.ctypes.data % 64 == 0
    np.frombuffer(memoryview((ctypes.c_uint8 * 64).from_address(g.array.ctypes.data)), np.uint8)[60] = 1
    assert g.broken


def test_open_sizes_cannot_be_measured() -> None:
    with pytest.raises(InputError, match="arrays of dynamic shape, but only functions of static shapes are measured"):
        arrays_of("f", [Parameter("x", ("n",), DataType("float32"), False)])


@pytest.mark.parametrize("options", [{"number": 0}, {"repeat": 0}, {"min_repeat_ms": -1}, {"noise": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        TrialOptions(**options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why() -> None:
    why = (r"a worker process could not be started: .* its memory limit is 1 MiB, "
           r"and the interpreter alone takes \d+ MiB")
    with pytest.raises(WorkerNotStarted, match=why):
        Worker(memory_limit=1 << 20, modules=("tilewright.relay",)).call("planted_calls:echo", {})
    with LocalBuilder(memory_limit=1 << 20, n_parallel=1) as builder, LocalRunner() as runner:
        (result,) = measure([planted("right")], builder, runner)
    assert result.error_no == MeasureErrorNo.UNKNOWN_ERROR and re.search(why, result.error)


def test_a_trial_is_of_functions_and_prepared(tmp_path: Path) -> None:
    x = tvm.relay.var("x", shape=(4,), dtype="float32")
    tvm.relay.build(
        tvm.IRModule.from_expr(tvm.relay.Function([x], tvm.relay.nn.relu(x))), "llvm"
    ).export_library(tmp_path / "m.tar")
    with pytest.raises(InputError, match="a trial takes a library of functions, not a model"):
        load_library((tmp_path / "m.tar").read_bytes())
    with pytest.raises(InputError, match="the workload of this trial was not prepared"):
        trial({"key": "nobody"}, [])


def test_builders_and_runners_refuse_what_makes_no_sense() -> None:
    with pytest.raises(OptionError, match="there is no build_func 'defalt'; did you mean 'default'"):
        LocalBuilder(build_func="defalt")
    with pytest.raises(ValueError, match="n_parallel=0 at least 1"):
        LocalBuilder(n_parallel=0)
    with pytest.raises(OptionError, match="timeout=0 must be above 0"):
        LocalRunner(timeout=0)
    with pytest.raises(OptionError, match="define it at the top of a module"):
        LocalBuilder(build_func=lambda func, target: None)  # type: ignore[arg-type,return-value]


# ---- records
# ----------------------------------------------------------------------------------------------------------


def test_records_are_those_of_the_field() -> None:
    line = (
        '{"input": ["llvm -keys=cpu -link-params=0", "dense_nopack.x86", [["TENSOR", [1, 512], "float32"], ["TENSOR", '
        '[1000, 512], "float32"], null, "float32"], {}],'
        ' "config": {"index": 70, "code_hash": null, "entity": [["tile_y", "sp", [-1, 1, 1]], ["tile_x", "sp", [-1, 5, '
        '2]], ["tile_k", "sp", [-1, 32]]]},'
        ' "result": [[4.5e-05, 4.6e-05], 0, 0.9, 1626345678.5], "version": 0.2, "tvm_version": "0.8.dev0"}'
    )
    record = decode(line, "old.log:1")
    assert record.task == "dense_nopack.x86" and record.version == "0.8.dev0" and record.measured.costs == (
        4.5e-05, 4.6e-05
    )
    assert json.loads(record.config)["entity"][1] == ["tile_x", "sp", [-1, 5, 2]]
    ours = json.loads(encode(record))
    theirs = json.loads(line)
    assert {k: ours[k] for k in theirs} == theirs and set(ours) - set(theirs) == {
        "spread", "noisy", "machine", "ir_hash"
    }
    failed = decode(line.replace("[[4.5e-05, 4.6e-05], 0,", "[[1000000000.0], 4,"), "old.log:2")
    assert failed.measured.error_no == MeasureErrorNo.RUNTIME_DEVICE and failed.measured.cost == float("inf")
    assert json.loads(encode(failed))["result"][:2] == [[1e9], 4]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"input": 3}', '{"input": ["llvm", "t", [], {}], "config": {}, "result": [[1], 99, 0, 0]}', "null"]
)
def test_what_is_no_record_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    good = encode(Record("llvm", planted("right").key, "{}", Measured((1.0,))))
    (tmp_path / "r.json").write_text(f"{good}\n{line}\n")
    with pytest.raises(ModelError, match=r"r.json:2: not a tuning record"):
        Records(tmp_path / "r.json")


def test_records_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="in an existing folder"):
        Records(tmp_path / "nowhere" / "r.json")


def test_a_record_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a record is one line, but this one has several"):
        LineFile(tmp_path / "r.json").append("a\nb")


def test_a_torn_line_is_mended_and_nothing_of_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    a, b = planted("right", 1), planted("right", 2)
    Records(path).add(a, Measured((1.0,)))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    records = Records(path)
    assert len(records) == 1 and records.find(b) is None
    records.add(b, Measured((2.0,)))
    assert len(path.read_bytes().splitlines()) == 2
    found = Records(path)
    assert found.find(a) == Measured((1.0,)) and found.find(b) == Measured((2.0,))
    path.write_bytes(whole[: len(whole) // 2])
    Records(path).add(a, Measured((3.0,)))
    assert [r.measured.costs for r in Records(path)] == [(3.0,)]


def test_what_says_nothing_of_a_candidate_is_not_kept(tmp_path: Path) -> None:
    records = Records(tmp_path / "r.json")
    records.add(planted("right"), Measured((), MeasureErrorNo.UNKNOWN_ERROR))
    assert len(records) == 0 and not (tmp_path / "r.json").exists()


def test_several_writers_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"

    def write(first: int) -> None:
        records = Records(path)
        for k in range(first, first + 50):
            records.add(planted("right", k), Measured((float(k),), machine="m" * 5000))

    threads = [threading.Thread(target=write, args=(50 * n,)) for n in range(4)]
    for t in threads:
        t.start()
    records = Records(path)
    for t in threads:
        t.join(60)
    records.refresh()
    assert sorted(r.measured.costs[0] for r in records) == list(range(200))


def start(path: Path, count: int, kind: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    return subprocess.Popen(
        [sys.executable, str(HERE / "measuring_process.py"), str(path), str(count), kind], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=environment
    )


def kill_and_resume(path: Path, count: int, kind: str, kills: int, seconds: float, seed: int) -> int:
    """Measure `count` candidates, killed so often: some results and up to `seconds` after the beginning. How many kills
    came in time.

    Every result that was told is in the file, once.
    """
    told: list[int] = []
    rng, killed, most = random.Random(seed), 0, count // (kills + 1)
    for attempt in range(kills + 1):
        with start(path, count, kind) as process:
            assert process.stdout is not None and process.stdout.readline() == "begin\n"
            if attempt < kills:
                told += [
                    int(line) for _ in range(rng.randrange(most))
                    if (line := process.stdout.readline().strip()).isdigit()
                ]
                time.sleep(rng.uniform(0, seconds))
                process.kill()
            # `communicate` would pass over what `readline` has taken into its buffer
            lines = process.stdout.read().split("\n")
        killed += process.returncode < 0
        told += [int(line) for line in lines[:-1] if line != "done"]
        kept = [
            json.loads(line)["config"]["index"] for line in path.read_bytes().split(b"\n")[:-1]
        ] if path.exists() else []
        assert len(kept) == len(set(kept)), "a trial is in the file twice"
        assert set(told) <= set(kept), "a trial that was told is not in the file"
    assert sorted(kept) == list(range(count)) and "done" in lines
    assert path.read_bytes().endswith(b"\n")
    return killed


@pytest.mark.slow
def test_killed_while_it_writes_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path / "r.json", 400, "quick", 3, 0.02, seed=1) > 0


@pytest.mark.slow
def test_killed_while_workers_run_nothing_is_lost_and_no_process_stays(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path / "r.json", 8, "local", 1, 0.2, seed=3) > 0


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    trials, kills = (400, 30) if daily.ALL else (60, 5)
    assert kill_and_resume(tmp_path / "r.json", trials, "local", kills, 0.2, seed=daily.SEED) > 0


@pytest.mark.slow
def test_timeouts_and_crashes_of_workers_replace_them() -> None:
    worker = Worker(memory_limit=8 << 30)
    try:
        assert worker.call("planted_calls:echo", {"a": 1}, [b"xyz", b""]) == ({"a": 1, "sizes": [3, 0]}, [b"zyx"])
        first = worker.pid
        with pytest.raises(WorkerCrashed, match="the process ended with status 3: last words"):
            worker.call("planted_calls:leave", {})
        with pytest.raises(WorkerTimedOut, match=r"no answer within 0.3 s"):
            worker.call("planted_calls:sleep", {}, timeout=0.3)
        with pytest.raises(WorkerRaised, match="ValueError: no"):
            worker.call("planted_calls:refuse", {})
        with pytest.raises(WorkerRaised, match="AttributeError"):
            worker.call("planted_calls:nothing", {})
        assert worker.call(
            "planted_calls:echo", {}, []
        )[0] == {"sizes": []} and worker.started == 3 and worker.pid != first
    finally:
        worker.close()


def test_a_worker_ends_with_its_parent() -> None:
    code = (
        "import sys; from tilewright.runtime.worker import Worker; w = Worker(); w.call('planted_calls:echo', {}); "
        "print(w.pid, flush=True); w.call('planted_calls:hold', {})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=30)
    end = time.monotonic() + 20
    while time.monotonic() < end and not gone(pid):
        time.sleep(0.01)
    assert gone(pid)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_record_that_cannot_be_written_is_one_error() -> None:
    with pytest.raises(
        OptionError, match=r"/dev/full: the record cannot be written: .*; make room, or write to another file"
    ) as error:
        LineFile("/dev/full").append("{}")
    assert error.value.code == "TW1115"
