"""Measuring on a Dask cluster of processes on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planted import EXPECTED, planted
from small_models import cnn
from tilewright.base.errors import OptionError
from tilewright.driver.main import main
from tilewright.search.cluster import ClusterBuilder, ClusterRunner
from tilewright.search.measure import MeasureErrorNo, measure
from tilewright.search.records import Records

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
HERE = Path(__file__).parent


class Process:
    """A scheduler or worker of Dask, which ends with this process."""

    def __init__(self, *arguments: str) -> None:
        theirs, self._life = os.pipe()
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")]),
            "DASK_DISTRIBUTED__WORKER__DAEMON": "False"
        }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "dask_process.py"), str(theirs), *arguments], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, pass_fds=(theirs,), start_new_session=True, text=True,
            env=environment,
        )
        os.close(theirs)

    def line(self, pattern: str) -> str:
        """What the first line that fits says."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(pattern, line):
                return found.group(1)
        raise AssertionError("it ended before it said so")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)
        os.close(self._life)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Process]]]:
    folder = tmp_path_factory.mktemp("dask")
    scheduler = Process(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"
    )
    workers: list[Process] = []
    try:
        address = scheduler.line(r"Scheduler at:\s*(tcp://\S+)")
        for n in range(3):
            workers.append(Process(
                "worker", address, "--name", f"board-{n}", "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--resources", "board=1",
                "--host", "127.0.0.1", "--local-directory", str(folder), "--death-timeout", "30",
            ))
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.end()


@pytest.mark.slow
def test_one_of_three_workers_is_killed_and_no_trial_is_lost(
    cluster: tuple[str, list[Process]], tmp_path: Path
) -> None:
    address, workers = cluster
    kinds = ["segfault", "wrong answer", "exception"]
    candidates = [planted("slow build", k) for k in range(14)] + [planted(k) for k in kinds]
    records = Records(tmp_path / "r.json")
    done: list[int] = []

    def finished(k: int, measured: Any) -> None:
        done.append(k)
        if len(done) == 4:
            workers[0].process.kill()

    with ClusterBuilder(address, resources={"board": 1}) as builder, ClusterRunner(
        address, number=2, repeat=1, cooldown_interval=0.02, threads=1, workers=["board-0", "board-1", "board-2"]
    ) as runner:
        results = measure(candidates, builder, runner, records, finished)
        assert [m.error_no for m in results] == [MeasureErrorNo.NO_ERROR] * 14 + [EXPECTED[k] for k in kinds], results
        assert sorted(done) == list(range(17)) and len((tmp_path / "r.json").read_text().splitlines()) == 17
        assert all(m.machine for m in results if m.ok)
        with ClusterRunner(address, workers="nobody") as wrong, pytest.raises(
            OptionError, match=r"no worker named \['nobody'\].*its workers: board-1, board-2"
        ):
            measure([planted("right")], builder, wrong)


def test_a_first_message_with_two_answers_is_asked_for_again() -> None:
    calls: list[str] = []

    def client(address: str, **options: Any) -> str:
        calls.append(address)
        assert len(calls) > 2
        return "a client"

    builder = ClusterBuilder("tcp://scheduler:8786")
    assert builder._connect(client) == "a client" and calls == ["tcp://scheduler:8786"] * 3


def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.search.cluster._CONNECT_SECONDS", 0.3)
    with pytest.raises(OptionError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"):
        ClusterBuilder("tcp://127.0.0.1:9").build([planted("right")])
    with pytest.raises(OptionError, match="timeout=0 must be above 0"):
        ClusterBuilder("tcp://127.0.0.1:9", timeout=0)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OptionError, match="needs Dask; `pip install distributed`"):
        ClusterBuilder("tcp://127.0.0.1:9").build([planted("right")])


@pytest.mark.slow
def test_a_model_is_tuned_on_the_cluster(
    cluster: tuple[str, list[Process]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, out = tmp_path / "cnn.onnx", tmp_path / "records.json"
    model.write_bytes(cnn().SerializeToString())
    where = ["--cluster", cluster[0], "--worker-tag", "board"]
    assert main(
        [
            "tune", str(model), "-o", str(out), "--minutes", "1", "--trials", "4", "--tuner", "random", "--threads",
            "1", *where
        ]
    ) == 0
    said = capfd.readouterr().out
    assert "4 trials, 0 of all failed" in said and "The model as a whole was not run there." in said
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so"), "--tuning-records", str(out)]) == 0
