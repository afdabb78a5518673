"""The timing lock: processes of one machine measure one after the other, and build at the same time."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tilewright
from planted import planted
from tilewright.base.errors import OptionError
from tilewright.runtime import timing_lock
from tilewright.runtime.timing_lock import ACQUIRE, VARIABLE, TimingLock, wait
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import Measured, measure


def test_who_asked_first_is_next(tmp_path: Path) -> None:
    path = str(tmp_path / "timing")
    one, other, third = TimingLock(path), TimingLock(path), TimingLock(path)
    assert one.acquire(0) and one.acquire(0)
    assert not other.acquire(0)
    assert other.holder == str(os.getpid())
    one.release()
    assert not one.acquire(0)  # the other one waits already
    assert not third.acquire(0)
    assert other.acquire(0)
    other.release()
    assert one.acquire(0) or third.acquire(0)
    one.release()
    third.release()


def test_a_process_that_ends_leaves(tmp_path: Path) -> None:
    path = str(tmp_path / "timing")
    program = (
        "import sys; from tilewright.runtime.timing_lock import TimingLock; t = TimingLock(sys.argv[1]); "
        "print(t.acquire(0), flush=True); sys.stdin.read()"
    )
    source = str(Path(tilewright.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "True\n"
        mine = TimingLock(path)
        assert not mine.acquire(0)
        assert mine.holder == str(child.pid)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
    assert mine.acquire(60)
    mine.release()


def test_nobody_waits_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    clock = map(float, itertools.count(0, 25))
    with caplog.at_level(logging.WARNING):
        assert not wait(lambda seconds: (False, "17"), lambda: next(clock))
    assert "process 17 has held the timing lock for 60 s, or is stopped" in caplog.text
    clock, answers = map(float, itertools.count(0, 25)), iter(
        [(False, "17"), (False, "17"), (False, "18"), (False, "18"), (True, "")]
    )
    assert wait(lambda seconds: next(answers), lambda: next(clock))  # they take turns: no one is stopped


def test_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=rf"the timing lock cannot be opened.*{VARIABLE}"):
        TimingLock(str(tmp_path / "no" / "folder")).acquire(0)
    (tmp_path / "link.queue").symlink_to(tmp_path / "other")
    with pytest.raises(OptionError, match="the timing lock cannot be opened"):
        TimingLock(str(tmp_path / "link")).acquire(0)


def test_a_file_that_is_no_lock_keeps_its_contents(tmp_path: Path) -> None:
    mine, large = tmp_path / "mine", tmp_path / "large"
    mine.write_text("mine")
    os.link(mine, tmp_path / "linked")
    large.write_text("contents" * 100)
    for name in ("linked", "large"):
        with pytest.raises(OptionError, match="is not a lock file: it must be a small regular file with one name"):
            TimingLock(str(tmp_path / name)).acquire(0)
    assert mine.read_text() == "mine" and large.read_text() == "contents" * 100


@pytest.mark.slow
def test_runs_wait_and_builds_do_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "timing"))
    other = TimingLock()
    assert other.acquire(0)
    built, asked, results = threading.Event(), threading.Event(), list[Measured]()
    with LocalBuilder(timeout=60, n_parallel=1) as builder, LocalRunner(
        timeout=60, number=1, repeat=1, cooldown_interval=0, threads=1, noise=1e9
    ) as runner:
        build, call = builder.build, runner._worker.call

        def building(*given: Any) -> Any:
            made = build(*given)
            built.set()
            return made

        def calling(function: str, *given: Any) -> Any:
            answer = call(function, *given)
            if function == ACQUIRE and not answer[0]["acquired"]:
                asked.set()
            assert function == ACQUIRE or not other._held
            return answer

        monkeypatch.setattr(builder, "build", building)
        monkeypatch.setattr(runner._worker, "call", calling)
        thread = threading.Thread(
            target=lambda: results.extend(measure([planted("right"), planted("sum")], builder, runner)), daemon=True
        )
        thread.start()
        assert built.wait(120) and asked.wait(120) and not results
        other.release()
        thread.join(120)
        assert [m.ok for m in results] == [True, True]
        assert other.acquire(10)  # the worker, which is still there, has let go
        other.release()


def test_a_turn_in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timing_lock, "_HERE", [TimingLock(str(tmp_path / "timing"))])
    other = TimingLock(str(tmp_path / "timing"))
    with timing_lock.exclusive():
        assert not other.acquire(0)
        other.release()
    assert other.acquire(0)
    other.release()
