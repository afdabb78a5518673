"""Runs on boards without Python, by ssh: `SSHRunner("pi@192.168.1.17")`, with `LocalBuilder(build_func=board_build)`;
`ProgramRunner()` runs the same programs on this machine.

Each candidate becomes a static program: the kernel, and `bench.c`, which times it. The program is copied to the board
with the data and run there; its results are copied back and compared. The board needs a shell, `cat`, `mkdir` and `rm`;
this machine needs a C compiler for the board's processor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import signal
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tilewright.backends.cpu.c.compile import find_compilers
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, RPCError
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.host import host_arch
from tilewright.runtime.manifest import Manifest, Parameter
from tilewright.runtime.sealed_tar import plain_members
from tilewright.runtime.trial import ATTEMPTS, LONGER_MS, spread_of
from tilewright.runtime.trial_data import arrays_of, difference, random_array
from tilewright.search.building import default_build
from tilewright.search.measure import Built, Image, Measured, MeasureErrorNo, OnMeasured, failed
from tilewright.search.runner import TrialRunner, one_by_one
from tilewright.search.ssh import SSHConnection, ThisMachine, words
from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
ENTRY: Final = "tw_board_kernel"
"""Symbol of a kernel that is linked into a program, whose own function is `main`."""
_BENCH: Final = Path(__file__).with_name("bench.c")
_MARGIN: Final = 90.0
"""Seconds that a board may take in addition to running: it may wait a minute for the timing lock."""
_PREPARE_SECONDS: Final = 60
_ATTEMPTS: Final = 3
_ABOUT: Final = (
    "uname -n; grep -m 1 -E 'model name|Hardware|CPU part' /proc/cpuinfo || uname -m; grep -c ^processor /proc/cpuinfo")
_LOG: Final = logging.getLogger(__name__)


def board_build(func: PrimFunc, target: str) -> FunctionModule:
    """Build a kernel for boards: `tvm.build`, under the name that programs for boards call."""
    return default_build(dataclasses.replace(func, name=ENTRY), target)


@dataclass(frozen=True, slots=True)
class _Program:
    """A static program, followed by the values of its constants from `values_at` on. `params` are the others."""

    data: bytes
    values_at: int
    params: tuple[Parameter, ...]


@dataclass(slots=True)
class _Prepared:
    """The workload whose data is on the board. `written` are the parameters that the default schedule writes."""

    key: str
    first: list[Array]
    written: tuple[bool, ...]
    answers: dict[int, Array]


class _TrialError(Exception):
    """A trial that failed. The arguments are a `MeasureErrorNo` and a text."""


class Board(Protocol):
    """Commands and files of a board: `SSHConnection`, or `ThisMachine`. The errors are those of `SSHConnection`."""

    def run(self, command: str, data: bytes = b"", timeout: float = 60.0) -> tuple[int, bytes, str]: ...

    def checked(self, command: str, data: bytes = b"", timeout: float = 60.0) -> bytes: ...

    def write(self, path: str, data: bytes) -> None: ...

    def close(self) -> None: ...


class BoardRunner(TrialRunner):
    """Base class of runners that time a program for each candidate; subclasses connect to the board."""

    form = ".tar"

    def __init__(
        self, destination: str, timeout: float, number: int, repeat: int, min_repeat_ms: float,
        cooldown_interval: float, threads: int, seed: int, noise: float, launcher: Sequence[str],
    ) -> None:
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, False, noise)
        if threads < 1:
            raise OptionError(f"threads={threads} must be at least 1", code="TW1110")
        self.destination, self.threads = destination, threads
        self._seed, self._launcher = seed, tuple(launcher)
        self._connection: Board | None = None
        self._folder = self._machine = ""
        self._prepared: _Prepared | None = None

    def connect(self) -> Board:
        """Return a new connection to the board."""
        raise NotImplementedError

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """Return one result for each, in order; those that were not built have the error of building."""
        return one_by_one(built, self._run, on_measured)

    def _run(self, image: Image, reference: Image | None) -> Measured:
        start = time.perf_counter()
        for attempt in range(_ATTEMPTS):
            try:
                found = self._trial(image, reference)
                time.sleep(self.cooldown_interval)
            except _TrialError as error:
                found = failed(*error.args)
            except OptionError as error:
                found = failed(MeasureErrorNo.COMPILE_HOST, str(error))
            except RPCError as error:
                self.close()
                if attempt == _ATTEMPTS - 1:
                    return failed(MeasureErrorNo.UNKNOWN_ERROR, str(error), time.perf_counter() - start)
                _LOG.warning("%s; the trial is repeated", error)
                continue
            return dataclasses.replace(found, all_cost=time.perf_counter() - start, machine=self._machine)
        raise AssertionError("not reached")

    def _trial(self, image: Image, reference: Image | None) -> Measured:
        """Run one trial. Raises `_TrialError`, `OptionError` if linking fails, `RPCError` if the board is not reached.
        """
        board, right = self._board(), reference or image
        key = hashlib.sha256(right.library + repr((right.ranges, self._seed)).encode()).hexdigest()
        if self._prepared is None or self._prepared.key != key:
            self._prepared = None
            self._prepared = self._prepare(board, key, right, reference is not None)
        prepared = self._prepared
        program = _linked(image, prepared.written)
        if [
            (tuple(map(int, p.shape)), p.dtype.numpy()) for p in program.params
        ] != [(x.shape, x.dtype) for x in prepared.first]:
            text = f"the code takes ({', '.join(map(str, program.params))}), but the default schedule has other arrays"
            raise _TrialError(MeasureErrorNo.WRONG_ANSWER, text)
        best: tuple[list[float], float] | None = None
        for attempt in range(ATTEMPTS):
            check = attempt == 0 and bool(prepared.answers)
            least_ms, seconds = max(self.options.min_repeat_ms, attempt * LONGER_MS), int(np.ceil(self.timeout))
            lines, data = self._launch(board, program, self.options.repeat, least_ms, seconds, check)
            if check and (text := _difference(data, program.params, prepared)):
                raise _TrialError(MeasureErrorNo.WRONG_ANSWER, text)
            found = _costs(lines)
            if best is None or found[1] < best[1]:
                best = found
            if best[1] <= self.options.noise:
                break
        assert best is not None
        costs, spread = best
        return Measured(tuple(costs), timestamp=time.time(), noisy=spread > self.options.noise, spread=spread)

    def _prepare(self, board: Board, key: str, right: Image, check: bool) -> _Prepared:
        """Copy the data of a workload to the board, and compute the expected results there, with the default schedule.
        """
        program = _linked(right)
        ranges = {name: (low, high) for name, low, high in right.ranges}
        first = [random_array(p, k, self._seed, ranges) for k, p in enumerate(program.params)]
        written = tuple(p.written for p in program.params)
        board.write(f"{self._folder}/data", b"".join(x.tobytes() for x in first))
        if not check:
            return _Prepared(key, first, written, {})
        try:
            _, data = self._launch(board, program, 0, 0.0, _PREPARE_SECONDS, True)
        except _TrialError as error:
            text = f"the default schedule of this workload cannot be run, so no result can be checked: {error.args[1]}"
            raise _TrialError(MeasureErrorNo.UNKNOWN_ERROR, text) from error
        return _Prepared(key, first, written, _arrays(data, program.params, written))

    def _launch(
        self, board: Board, program: _Program, repeat: int, least_ms: float, seconds: int, answers: bool,
    ) -> tuple[list[str], bytes]:
        """Run a program on the board; return its printed lines, and with `answers` the arrays that its kernel wrote."""
        path, written = f"{self._folder}/program", f"{self._folder}/answers"
        arguments = [
            *self._launcher, path, f"{self._folder}/data", path, program.values_at, written, self.options.number,
            repeat, least_ms, self.threads, seconds,
        ]
        file, shown = words([path]), f" && echo && cat {words([written])}" if answers else ""
        command = f"cat > {file} && chmod 700 {file} && {words(arguments)}{shown}"
        try:
            status, said, errors = board.run(command, program.data, seconds + _MARGIN)
        except TimeoutError:
            self.close()  # a program that still runs there may disturb the next
            status, said, errors = 128 + signal.SIGALRM, b"", ""
        if status == 128 + signal.SIGALRM:
            raise _TrialError(MeasureErrorNo.RUN_TIMEOUT, f"no answer within {seconds} s; the program was ended")
        if status:
            how = f"was ended by signal {status - 128}" if status > 128 else f"ended with status {status}"
            raise _TrialError(
                MeasureErrorNo.RUNTIME_DEVICE, f"the program {how}{f': {errors[-500:]}' if errors else ''}")
        text, _, data = said.partition(b"\n\n") if not said.startswith(b"\n") else (b"", b"", said[1:])
        lines = text.decode(errors="replace").splitlines()
        wrong = next((line.removeprefix("wrong ") for line in lines if line.startswith("wrong ")), None)
        if wrong is not None:
            raise _TrialError(MeasureErrorNo.WRONG_ANSWER, wrong)
        return lines, data

    def _board(self) -> Board:
        if self._connection is None:
            self._connection = self.connect()
            self._folder = self._connection.checked("mktemp -d").decode().strip()
            said = self._connection.checked(_ABOUT).decode().splitlines()
            processor = said[1].partition(":")[2].strip() or said[1]
            self._machine = f"{said[0]}, {processor}, {said[-1]} cores"
        return self._connection

    def close(self) -> None:
        """Disconnect from the board and remove its files; the next run connects again."""
        connection, self._connection, self._prepared = self._connection, None, None
        if connection is not None:
            try:
                connection.checked(f"rm -rf {words([self._folder])}", timeout=20)
            except RPCError as error:
                _LOG.warning("%s is left on %s: %s", self._folder, self.destination, error)
            connection.close()


class SSHRunner(BoardRunner):
    """Times code on one board, one candidate after the other."""

    def __init__(
        self, destination: str, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1, *, threads: int = 1, seed: int = 0, noise: float = 0.1,
        config: str | Path | None = None, launcher: Sequence[str] = (),
    ) -> None:
        """`destination` and `config` are those of `SSHConnection`; `launcher` precedes each program on the board (an
        emulator).

        The other options are those of `LocalRunner`. The board is connected with the first trial.
        Raises `OptionError` or `InputError` for values out of range.
        """
        super().__init__(
            destination, timeout, number, repeat, min_repeat_ms, cooldown_interval, threads, seed, noise, launcher)
        self._config = config

    def connect(self) -> Board:
        """Return an ssh connection to the board."""
        return SSHConnection(self.destination, self._config)


class ProgramRunner(BoardRunner):
    """Times programs on this machine as `SSHRunner` does on a board: each trial is a process of its own."""

    def __init__(
        self, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1, *, threads: int = 1, seed: int = 0, noise: float = 0.1,
        launcher: Sequence[str] = (),
    ) -> None:
        """The options are those of `SSHRunner`."""
        super().__init__(
            "this machine", timeout, number, repeat, min_repeat_ms, cooldown_interval, threads, seed, noise, launcher)

    def connect(self) -> Board:
        """Return a shell of this machine."""
        return ThisMachine()


def _linked(image: Image, written: Sequence[bool] = ()) -> _Program:
    """Link the program of an image. `written`: the parameters that it may write, by default its own.

    Raises `OptionError` if it cannot be linked.
    """
    with (
        tarfile.open(fileobj=io.BytesIO(image.library), mode="r:") as archive,
        tempfile.TemporaryDirectory(prefix="tilewright-board-") as name,
    ):
        folder = Path(name)
        parts = {m.name: archive.extractfile(m) for m in plain_members(archive, len(image.library)) if m.isfile()}
        contents = {n: f.read() for n, f in parts.items() if f is not None}
        manifest = Manifest.from_json(contents["manifest.json"], "a candidate for a board")
        if ENTRY not in manifest.functions:
            raise OptionError(
                "candidates for boards are built by LocalBuilder(build_func=tuning.boards.board_build), but this one "
                f"has {', '.join(manifest.functions)}", code="TW1110")
        params = arrays_of(ENTRY, manifest.functions[ENTRY])
        constants = {v.name: v.data for v in image.values}
        objects = [n for n in contents if n.endswith(".o") and "/" not in n and not n.startswith("-")]
        for n in objects:
            (folder / n).write_bytes(contents[n])
        rest = tuple(p for p in params if p.name not in constants)
        allowed = {p.name for p, w in zip(rest, written or [p.written for p in rest], strict=False) if w}
        (folder / "bench.c").write_text(_source(params, constants, allowed))
        arch = Target(manifest.target).mtriple.split("-")[0]
        failures = []
        for compiler in find_compilers(arch):
            options = ["-target", f"{arch}-linux-musl"] if compiler.is_zig and arch != host_arch() else []
            arguments = [*options, "-O2", "-static", "-s", "bench.c", *objects, "-o", "program", "-lpthread", "-lm"]
            failure = compiler.run(arguments, folder)
            if failure is None:
                program = (folder / "program").read_bytes()
                return _Program(
                    program + b"".join(constants[p.name] for p in params if p.name in constants), len(program), rest)
            failures.append(f"{compiler.name}: {failure}")
        raise OptionError(
            f"no program for {arch} can be linked; install a cross compiler ({arch}-linux-gnu-gcc), or `pip install "
            "ziglang`. "
            + "; ".join(failures), code="TW0507")


def _source(params: Sequence[Parameter], constants: dict[str, bytes], written: set[str]) -> str:
    """Return `bench.c` for a kernel of these parameters, of which it may write some."""
    rows = ", ".join(f"{{{_nbytes(p)}u, {int(p.name in constants)}, {int(p.name in written)}}}" for p in params)
    pointers = "".join(", void *" for _ in params)
    given = "".join(f", (p)[{k}]" for k in range(len(params)))
    return (
        f"#define _GNU_SOURCE\n#include <stddef.h>\nenum {{ KERNEL_PARAMS = {len(params)} }};\nstatic const struct "
        f"{{ size_t bytes; int constant, written; }} PARAMS[] = {{{rows}}};\nextern void {ENTRY}(void "
        f"*context{pointers});\n#define CALL(context, p) {ENTRY}(context{given})\n{_BENCH.read_text(encoding='utf-8')}")


def _nbytes(p: Parameter) -> int:
    return int(np.prod([int(d) for d in p.shape], dtype=np.int64)) * p.dtype.numpy().itemsize


def _arrays(data: bytes, params: Sequence[Parameter], written: Sequence[bool]) -> dict[int, Array]:
    """Return the arrays that a program wrote, by the numbers of its parameters."""
    found, at = {}, 0
    for k, p in enumerate(params):
        if written[k]:
            found[k] = np.frombuffer(data[at : at + _nbytes(p)], p.dtype.numpy()).reshape([int(d) for d in p.shape])
            at += _nbytes(p)
    return found


def _difference(data: bytes, params: Sequence[Parameter], prepared: _Prepared) -> str:
    """Describe the difference from the results of the default schedule; empty if there is none."""
    found, answers = _arrays(data, params, prepared.written), prepared.answers.items()
    return next((text for k, wanted in answers if (text := difference(found[k], wanted, params[k].name))), "")


def _costs(lines: Sequence[str]) -> tuple[list[float], float]:
    """Return seconds per call for each repetition, and the spread of its halves."""
    costs: list[float] = []
    halves: list[float] = []
    parts: list[tuple[float, int]] = []
    for line in lines:
        word, *rest = line.split()
        if word == "half":
            parts.append((float(rest[0]), int(rest[1])))
        elif word == "figure":
            costs.append(sum(s * n for s, n in parts) / sum(n for _, n in parts))
            halves += [s for s, _ in parts]
            parts = []
    return costs, spread_of(halves)
