"""Runs cases in worker processes: a crash, a timeout and too much memory are outcomes like others.

The parent forks the workers, so that they begin with all modules imported. A worker answers one task after another; it
notes in shared memory whether a reference or our code runs, so that a crash is attributed. A worker that dies is
replaced. One is also replaced after `CASES` cases, since compiled code is never freed.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import mmap
import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from fuzz.outcomes import FOREIGN, INVALID, Draw, Kind, Outcome, OwnShrinker, place
from fuzz.shrink import shrink

WORKERS: Final = 2
CASES: Final = 400
MEMORY: Final = 3 << 30
"""Bytes of data of a worker beyond those that it begins with."""
SECONDS: Final = 40.0
"""Processor time of a case."""
LONGEST: Final = 400.0
"""Time on the clock of a case, for one that waits for ever."""
SHRINKING: Final = 20.0
"""Processor time of making one case smaller."""
_PHASES: Final = {"idle": 0, "reference": 1, "ours": 2}


@dataclass(frozen=True)
class Task:
    """A case of a kind; with `shrinks`, it is known to fail so, and is made smaller."""

    kind: str
    seed: int
    number: int
    shrinks: Outcome | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} --seed {self.seed} --start {self.number}"


@dataclass(frozen=True)
class Result:
    """The outcome of a task; `test` is the source of a test where one was asked for."""

    task: Task
    outcome: Outcome
    test: str = ""


@dataclass
class Worker:
    """A process, the task that it has, and when it began."""

    process: Any
    connection: Connection
    phase: mmap.mmap
    task: Task | None = None
    began: float = 0.0
    spent: float = 0.0
    done: int = 0


@dataclass
class Runner:
    """Workers for cases of some kinds."""

    kinds: dict[str, Kind]
    count: int = WORKERS
    workers: list[Worker] = field(default_factory=list)

    def results(
        self, tasks: Iterable[Task], follow: Callable[[Result], Task | None], until: float = float("inf")
    ) -> Iterator[Result]:
        """The results of all tasks that begin before the time `until`; `follow` may answer one with another task."""
        pending, more = iter(tasks), list[Task]()
        try:
            while True:
                self._give(pending, more, until)
                if not any(w.task for w in self.workers):
                    return
                for result in self._finished():
                    another = follow(result)
                    if another is not None:
                        more.append(another)
                    yield result
        finally:
            for w in self.workers:
                w.process.kill()
                w.process.join()
            self.workers.clear()

    def _give(self, pending: Iterator[Task], more: list[Task], until: float) -> None:
        while len(self.workers) < self.count:
            self.workers.append(start(self.kinds))
        for k, w in enumerate(self.workers):
            if w.task is not None:
                continue
            task = more.pop(0) if more else next(pending, None) if time.monotonic() < until else None
            if task is None:
                continue
            if w.done >= CASES:
                w.process.kill()
                w.process.join()
                w = self.workers[k] = start(self.kinds)
            w.task, w.began, w.spent = task, time.monotonic(), processor_time(w.process.pid)
            w.connection.send(task)

    def _finished(self) -> Iterator[Result]:
        busy = [w for w in self.workers if w.task]
        ready = wait([w.connection for w in busy], timeout=1.0)
        for w in busy:
            assert w.task is not None
            if w.connection in ready:
                yield self._answer(w)
            elif reason := overdue(w):
                yield self._ended(w, reason)

    def _answer(self, w: Worker) -> Result:
        assert w.task is not None
        try:
            outcome, test = w.connection.recv()
        except (EOFError, ConnectionResetError):
            w.process.join()
            return self._ended(w, f"the process ended with {w.process.exitcode}")
        result = Result(w.task, outcome, test)
        w.task = None
        w.done += 1
        return result

    def _ended(self, w: Worker, reason: str) -> Result:
        """The outcome for a worker that died or was ended; a fresh one takes its place."""
        assert w.task is not None
        task, phase = w.task, w.phase[0]
        w.process.kill()
        w.process.join()
        self.workers[self.workers.index(w)] = start(self.kinds)
        if phase == _PHASES["reference"]:
            return Result(task, Outcome(INVALID, "a reference crashed or took too long", reason))
        return Result(task, Outcome(FOREIGN, reason, "in our code" if phase == _PHASES["ours"] else "between cases"))


def processor_time(pid: int) -> float:
    """Seconds of processor time of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overdue(w: Worker) -> str:
    """Why a worker is to be ended; empty where it is in time."""
    assert w.task is not None
    more = SHRINKING * 3 if w.task.shrinks else 0.0
    if processor_time(w.process.pid) - w.spent > SECONDS + more:
        return f"more than {SECONDS:.0f} s of processor time"
    return f"more than {LONGEST:.0f} s" if time.monotonic() - w.began > LONGEST + 3 * more else ""


def start(kinds: dict[str, Kind]) -> Worker:
    """A worker, forked from this process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    phase = mmap.mmap(-1, 1)
    process = context.Process(target=work, args=(kinds, theirs, phase), daemon=False)
    process.start()
    theirs.close()
    return Worker(process, ours, phase)


def work(kinds: dict[str, Kind], connection: Connection, phase: mmap.mmap) -> None:
    """Answer tasks until the parent is gone."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()
    limit_memory()
    silence()
    for count in itertools.count():
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            outcome, test = answer(kinds[task.kind], task, phase)
        except Exception as error:  # outside of the calls of our code: drawing, comparing and shrinking have faults, too  # noqa: E501
            text = "".join(traceback.format_exception(error))
            outcome, test = Outcome(FOREIGN, f"fault of the fuzzer: {type(error).__name__} {place(error)}", text), ""
        phase[0] = _PHASES["idle"]
        connection.send((outcome, test))
        if count % 50 == 0:
            gc.collect()


def answer(kind: Kind, task: Task, phase: mmap.mmap) -> tuple[Outcome, str]:
    """The outcome of a task, and the test that was asked for."""

    def note(name: str) -> None:
        phase[0] = _PHASES[name]

    phase[0] = _PHASES["reference"]  # which drawing asks what they accept
    case = kind.draw(Draw(task.seed, task.number))
    if task.shrinks is None:
        outcome = attempt(kind, case, note)
        return replace(outcome, ours=(), references={}), ""
    wanted = task.shrinks
    small = smallest(kind, case, wanted)
    outcome = attempt(kind, small, note) if not dies(wanted) else wanted
    return outcome, kind.test(small, outcome)


def attempt(kind: Kind, case: Any, note: Callable[[str], None]) -> Outcome:
    """The outcome of a case; memory that runs out is one."""
    try:
        return kind.run(case, note)
    except MemoryError:
        return Outcome(FOREIGN, "MemoryError", "more memory than a worker may have")


def dies(outcome: Outcome) -> bool:
    """Whether the outcome ends the process."""
    return outcome.label.startswith(("the process", "more than"))


def smallest(kind: Kind, case: Any, wanted: Outcome) -> Any:
    """The smallest case with this outcome; one that ends the process is tried in children of their own."""

    def fails(candidate: Any) -> bool:
        if dies(wanted):
            return ends(kind, candidate)
        found = attempt(kind, candidate, lambda phase: None)
        return found.category == wanted.category and (found.category != FOREIGN or found.label == wanted.label)

    if isinstance(kind, OwnShrinker):
        case = kind.made_smaller(case, fails)
    return shrink(case, fails, kind.smaller, SHRINKING, time.monotonic if dies(wanted) else time.process_time)


def ends(kind: Kind, case: Any) -> bool:
    """Whether our code ends a process with a signal, or takes too long."""
    phase = mmap.mmap(-1, 1)
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
        attempt(kind, case, lambda name: phase.__setitem__(0, _PHASES[name]))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and phase[0] == _PHASES["ours"]


def limit_memory() -> None:
    """Let this process have `MEMORY` bytes of data beyond those that it has."""
    fields = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    now = next(int(line.split()[1]) * 1024 for line in fields if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + MEMORY, now + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def silence() -> None:
    """Send what native code prints to nowhere."""
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
