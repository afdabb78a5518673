"""Threads that compile and call small networks for minutes, while runs are interrupted and processes fork: no error,
and flat memory.

    python tests/soak.py [minutes, 30 if not given] [seed]

Every minute one line tells the counts and the resident memory. The program fails where a result is wrong, anything but
an interrupt is raised, a child process does not end well, or the resident memory of the last third is more than 64 MiB
above that of the third before.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from small_networks import KINDS
from tilewright import relay
from tilewright.relay.interpreter import evaluate

THREADS = 3
MOST_GROWTH_MIB = 64
SECONDS_OF_A_CHILD = 40


class InterruptedRunError(Exception):
    """What the handler of the timer raises."""


def resident_mib() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def check(kind: int, seed: int) -> None:
    """Compile a network, call it twice, and compare with its meaning."""
    module = KINDS[kind](seed)
    main = module["main"]
    rng = np.random.default_rng(seed)
    inputs = [
        np.asarray(rng.standard_normal([int(d) for d in p.checked_type.shape]).astype(p.checked_type.dtype.numpy()))
        for p in main.params
    ]
    wanted = evaluate(main, *inputs)
    model = tvm.compile(module, threads=1 + seed % 2)
    for _ in range(2):
        np.testing.assert_allclose(model(*inputs), wanted, rtol=1e-4, atol=1e-5)


class Soak:
    """The threads of one soak, what they count, and the errors that they meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: list[str] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        for kind in range(len(KINDS)):
            check(kind, 0)  # a child that is made while another thread imports a module cannot import it
        self._long = tvm.compile(_long_network())
        self._threads = [
            threading.Thread(target=self._work, args=(self.random.random(),), daemon=True) for _ in range(THREADS)
        ]

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def _work(self, seed: float) -> None:
        mine = random.Random(seed)
        while not self._ended.is_set():
            try:
                check(mine.randrange(len(KINDS)), mine.randrange(10_000))
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                return
            self.count("compiles")
            self.count("calls", 2)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The threads work inside the `with` block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()

    def interrupt(self) -> None:
        """Interrupt a long run of the main thread, and run it to its end afterwards."""
        x = np.zeros((1, 512), np.float32)

        def stop(*_: Any) -> None:
            raise InterruptedRunError

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, self.random.uniform(0.001, 0.05))
        try:
            while True:
                self._long(x)
        except InterruptedRunError:
            self.count("interrupts")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if not np.array_equal(self._long(x), np.zeros((1, 512), np.float32)):
            self.errors.append("a run after an interrupt is wrong")

    def fork(self) -> None:
        """A child process compiles and calls a network."""
        kind, seed = self.random.randrange(len(KINDS)), self.random.randrange(10_000)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(SECONDS_OF_A_CHILD)
                faulthandler.dump_traceback_later(SECONDS_OF_A_CHILD // 2, file=sys.__stderr__ or sys.stderr)
                check(kind, seed)
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            self.errors.append(f"a child process ended with {status}: network {kind} of seed {seed}")
        self.count("forks")


def _long_network() -> tvm.IRModule:
    """So many products that a run is interruptible."""
    x = relay.var("x", shape=(1, 512))
    weights = relay.const(np.zeros((512, 512), np.float32))
    y: Any = x
    for _ in range(400):
        y = relay.nn.dense(y, weights)
    return tvm.IRModule.from_expr(relay.Function([x], y))


def run(seconds: float, seed: int, report: float = 0.0) -> tuple[collections.Counter[str], list[str]]:
    """Soak for some seconds: the counts, and the errors. Every `report` seconds a line is printed, where that is not 0;
    then memory is judged as well."""
    begin, sizes, last = time.monotonic(), list[tuple[float, float]](), 0.0
    soak = Soak(seed)
    with soak.running():
        while (passed := time.monotonic() - begin) < seconds and not soak.errors:
            soak.interrupt()
            soak.fork()
            if report and passed - last >= report:
                last = passed
                sizes.append((passed, resident_mib()))
                print(f"{passed / 60:6.1f} min  {dict(soak.counts)}  {sizes[-1][1]:.0f} MiB", flush=True)
    if report and len(sizes) >= 6:
        third = len(sizes) // 3
        before, after = (statistics.median(m for _, m in part) for part in (sizes[third : 2 * third], sizes[-third:]))
        print(f"resident memory: {before:.0f} MiB in the second third, {after:.0f} MiB in the last", flush=True)
        if after - before > MOST_GROWTH_MIB:
            soak.errors.append(f"memory grew by {after - before:.0f} MiB")
    return soak.counts, soak.errors


def main() -> None:
    minutes, seed = (
        float(sys.argv[1]) if len(sys.argv) > 1 else 30.0, int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    )
    print(f"seed {seed}, {THREADS} threads, {minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE_DIR"] = folder
        counts, errors = run(60 * minutes, seed, report=60.0)
    print(dict(counts), *errors, sep="\n")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
