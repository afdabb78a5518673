"""Sends damaged and hostile model files through doors of the compiler, each in a process of its own, and says what
became of them.

`tests/onnx_mutations.py`, `tests/tflite_mutations.py` and `tests/torch_mutations.py` give it their files. An offender
is a crash, an error that is none of ours or says nothing, more than `SECONDS` of compiling, more than `MEMORY` bytes,
or code of the file that was run. The number of an offender is its reproducer: `--only 1234` sends that file alone, and
`--keep FOLDER` writes those of all offenders.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

import tilewright
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.types import DataType
from tilewright.driver.main import main as command_line

MEMORY, SECONDS, LONGEST = 1 << 30, 10, 240
"""Bytes of data in a child beyond those it begins with; processor seconds; seconds on the clock, for what waits for
ever."""
LARGEST_INPUT = 1 << 24
BAD = ("crash", "traceback", "silent", "hang", "memory", "vague", "executed")
VAGUE = ("bug of the importer", "more memory than is available", "a size in it is wrong")
"""What is said where nothing better was known: whatever ends there should have been refused by name."""
EXECUTED = "was-executed"
"""A hostile file makes a folder of this name in the current one, where its code is run."""
_PRELOADED = (
    "tilewright.compiler.build", "tilewright.compiler.stage_growth", "tilewright.compiler.check",
    "tilewright.relay.interpreter",
              "tilewright.backends.cpu.llvm.jit", "tilewright.driver.report", "tilewright.runtime.artifact")
Random = np.random.Generator
Damage = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True)
class Made:
    """A damaged file: what it was made from and how, its bytes, and the shapes of inputs that it does not say
    itself."""

    how: str
    data: bytes
    shapes: Mapping[str, Sequence[int]] | None = None


Door = Callable[[Path, Made, Random], str]


@dataclass(frozen=True)
class Format:
    """A format of files: how the one of a number is made, by which doors it goes, what stands beside it, what is
    imported before."""

    file: str
    make: Callable[[int], Made]
    doors: Mapping[str, Door]
    turns: Sequence[str]
    beside: Mapping[str, bytes] = field(default_factory=dict)
    preloaded: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: `kind` is one of `BAD`, or ran, run refused, ran long, compiled, refused."""

    number: int
    made: str
    door: str
    kind: str
    error: str = ""
    words: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in BAD


# Doors.


def through_compile(file: str) -> Door:
    """`tilewright.compile` on the path, and a call."""

    def run(folder: Path, made: Made, random: Random) -> str:
        compiled = tilewright.compile(folder / file, shapes=made.shapes, threads=1)
        note("run")
        fed = [an_input(str(dtype), dims, random) for _, dims, dtype in compiled._signature]
        if any(x is None for x in fed):
            return "compiled"
        compiled(*fed)
        return "ran"

    return run


def through_check(file: str) -> Door:
    """`tilewright.check`: what it says can be written as JSON."""

    def run(folder: Path, made: Made, random: Random) -> str:
        report = tilewright.check(folder / file, shapes=made.shapes)
        json.dumps(report.as_dict())
        if report.refused:
            raise CompileError(report.refused)
        return "compiled"

    return run


def through_command(*words: str) -> Door:
    """The command line in this process; what it says on stderr is its message."""

    def run(folder: Path, made: Made, random: Random) -> str:
        said = folder / "stderr"
        note("run" if words[0] == "run" else "compile")
        said_shapes = " ".join(f"{name}:[{','.join(map(str, s))}]" for name, s in (made.shapes or {}).items())
        shapes = ["--input-shapes", said_shapes] if said_shapes else []
        with said.open("w") as written, contextlib.redirect_stderr(written), contextlib.redirect_stdout(written):
            code = command_line([w.replace("FOLDER", str(folder)) for w in words] + shapes)
        text = said.read_text()
        if "Traceback" in text or "fault of the compiler" in text or code not in (0, 1, 2):
            raise AssertionError(f"{code}: {text}")
        if code and "Error: " not in text and words[0] != "check":
            raise CompileError("")
        if code:
            raise CompileError(text.partition("refused: " if words[0] == "check" else "Error: ")[2] or text)
        return "ran" if words[0] == "run" else "compiled"

    return run


def usual_doors(file: str) -> dict[str, Door]:
    """The doors that every format has."""
    return {
        "compile": through_compile(file),
        "check": through_check(file),
        "command check": through_command("check", f"FOLDER/{file}"),
        "command compile": through_command("compile", f"FOLDER/{file}", "-o", "FOLDER/made.tar", "--threads", "1"),
        "command run": through_command("run", f"FOLDER/{file}", "--threads", "1"),
    }


def an_input(dtype: str, dims: Sequence[int | str | EllipsisType], random: Random) -> Any:
    """An input of a signature, None where it would be too large; a sequence has one element, an optional a value."""
    if dtype.startswith("seq("):
        return [an_input(dtype[4:-1], (2, 3), random)]
    if dtype.startswith("optional("):
        return an_input(dtype[9:-1], (2, 3), random)
    shape = tuple(d if isinstance(d, int) else int(random.integers(1, 4)) for d in dims if d is not ...)
    kind = DataType(dtype)
    if np.prod([float(d) for d in shape]) > LARGEST_INPUT:
        return None
    if kind.is_object:
        return np.full(shape, "text", object)
    if kind.numpy().kind == "b":
        return random.random(shape) < 0.5
    if kind.numpy().kind in "iu" and kind.numpy().itemsize > 1:
        wild = random.integers(-(1 << 63), (1 << 63) - 1, shape, dtype=np.int64)
        return np.where(random.random(shape) < 0.1, wild, random.integers(0, 4, shape)).astype(kind.numpy())
    values = random.standard_normal(shape) * random.choice([1, 1, 1, 1e20])
    return np.where(random.random(shape) < random.choice([0, 0, 0, 0.1]), np.nan, values).astype(kind.numpy())


# Damage to any file.


def flip(data: bytes, random: Random) -> bytes:
    """Some bytes are others."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 8)):
        if changed:
            changed[random.integers(len(changed))] = random.integers(256)
    return bytes(changed)


def cut(data: bytes, random: Random) -> bytes:
    """The end is missing, or a piece in the middle."""
    begin = int(random.integers(len(data) + 1))
    return data[:begin] + (data[begin + int(random.integers(64)):] if random.random() < 0.5 else b"")


def repeat(data: bytes, random: Random) -> bytes:
    """A piece stands twice."""
    begin = int(random.integers(len(data) + 1))
    return data[:begin] + data[max(0, begin - int(random.integers(200))):]


DAMAGE: tuple[Damage, ...] = (flip, cut, repeat)


def faulty(
    data: bytes, random: Random, changes: Sequence[Damage], weights: Sequence[float], lost: tuple[type[Exception], ...],
    otherwise: Callable[[Random], Damage],
) -> tuple[str, bytes]:
    """`data` with one to three of `changes`, and their names; one file in twelve is damaged as bytes.

    Where an earlier fault leaves nothing to change, which raises one of `lost`, there is damage that `otherwise`
    chooses.
    """
    if random.random() < 0.08:
        damage = DAMAGE[random.integers(len(DAMAGE))]
        return damage.__name__, damage(data, random)
    names = []
    for _ in range(random.choice([1, 2, 3], p=[0.6, 0.3, 0.1])):
        fault = changes[random.choice(len(changes), p=weights)]
        try:
            data = fault(data, random)
        except lost:
            fault = otherwise(random)
            data = fault(data, random)
        names.append(fault.__name__)
    return ", ".join(names), data


# In the child.


def note(phase: str) -> None:
    """Leave in the folder what the child is doing, for whoever finds it dead."""
    Path("phase").write_text(phase)


def _child(folder: Path, form: Format, door: str, number: int) -> None:
    """Make one file and send it through one door; the outcome is left in a file of the folder."""
    os.chdir(folder)
    os.environ["TILEWRIGHT_CACHE_DIR"] = "off"  # what an older compiler kept of a file says nothing of this one
    made = form.make(number)
    Path("made").write_text(made.how)
    Path(form.file).write_bytes(made.data)
    for name, data in form.beside.items():
        Path(name).write_bytes(data)
    messages = os.open("native", os.O_CREAT | os.O_WRONLY)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    faulthandler.enable(messages)
    faulthandler.register(signal.SIGXCPU, messages, chain=True)
    signal.alarm(LONGEST)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _of_status("VmData") + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    note("compile")
    warnings.simplefilter("ignore")
    error, kind = "", ""
    try:
        kind = form.doors[door](folder, made, np.random.default_rng(number))
    except CompileError as found:
        error = f"{type(found).__name__}: {found}"
        kind = "silent" if not found.message.strip() else "vague" if any(
            v in found.message for v in VAGUE
        ) else "run refused" if Path("phase").read_text() == "run" else "refused"
    except Exception as found:  # whatever else is raised is what is looked for
        kind, error = "traceback", f"{type(found).__name__}{_places(found)}: {str(found)[:300]}"
        if isinstance(found, InternalError):
            error = f"{error} (internal)"
    Path("outcome").write_text(json.dumps([kind, error]), errors="replace")


def _of_status(what: str) -> int:
    """Bytes of this process: `VmData` is what the system counts against `RLIMIT_DATA`, `VmRSS` what is in memory."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{what}:")[2].split()[0]) * 1024


def _places(error: BaseException) -> str:
    """The last lines of code of a traceback, innermost first."""
    found, where = [], error.__traceback__
    while where is not None:
        found.append(f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}")
        where = where.tb_next
    return f" at {' < '.join(found[::-1][:6])}"


# In the parent.


def outcomes(
    form: Format, numbers: Sequence[int], jobs: int, doors: Sequence[str] = (), keep: Path | None = None
) -> Iterator[Outcome]:
    """What becomes of the files of these numbers; the children are forked from this process, which has everything
    loaded."""
    for name in (*_PRELOADED, *form.preloaded):
        __import__(name)
    turns, shared = doors or form.turns, _of_status("VmRSS")
    running: dict[int, tuple[int, str, Path]] = {}
    left = iter(numbers)
    with tempfile.TemporaryDirectory() as place:
        while True:
            for number in left:
                door, folder = turns[number % len(turns)], Path(place) / str(number)
                folder.mkdir()
                running[_forked(folder, form, door, number)] = (number, door, folder)
                if len(running) >= jobs:
                    break
            if not running:
                return
            child, status, used = os.wait3(0)
            number, door, folder = running.pop(child)
            found = _outcome(number, door, folder, status, used.ru_maxrss * 1024 - shared)
            if found.bad and keep is not None and (folder / form.file).exists():
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / form.file, keep / f"{number}{Path(form.file).suffix}")
            shutil.rmtree(folder)
            yield found


def _forked(folder: Path, form: Format, door: str, number: int) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        _child(folder, form, door, number)
    finally:
        os._exit(0)


def _outcome(number: int, door: str, folder: Path, status: int, peak: int) -> Outcome:
    made, phase, native = (_left(folder / name) for name in ("made", "phase", "native"))
    code = os.waitstatus_to_exitcode(status)
    if (folder / EXECUTED).exists():
        return Outcome(
            number, made, door, "executed", _left(folder / EXECUTED / "why"),
            f"{phase}: {_left(folder / 'outcome')[:200]}"
        )
    if code in (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL):
        # A model may say that a loop has as many turns as it likes: what runs too long is told apart.
        kind = "ran long" if phase == "run" and "relay/transform" not in native else "hang"
        return Outcome(number, made, door, kind, "", f"{phase}: {_stack(native)}")
    if code or not (folder / "outcome").exists():
        return Outcome(number, made, door, "crash", f"signal {-code}", f"{phase}: {_stack(native)}")
    kind, words = json.loads((folder / "outcome").read_text())
    if peak > MEMORY:
        return Outcome(number, made, door, "memory", f"{peak >> 20} MB", f"{kind}: {words}")
    error, _, words = words.partition(": ")
    if kind == "traceback" and "MemoryError" in error:
        kind = "memory"
    return Outcome(number, made, door, kind, error, words)


def _left(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _stack(native: str) -> str:
    """The last places of a stack that was printed by a dying child, innermost first, and what stood before it."""
    places = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', native)
    return (
        f"{native.partition('File ')[0][:200].strip()} "
        f"{' < '.join(f'{Path(f).name}:{n} {w}' for f, n, w in places[:9])}"
    )


def shape_of(message: str) -> str:
    """A message without its names and numbers, so that messages of one kind are alike."""
    text = re.sub(r"b?'[^']*'|\"[^\"]*\"|/\S+", "'…'", message)
    return re.sub(r"\S*\d\S*", "#", text)[:160]


def show(found: Sequence[Outcome], messages: bool) -> None:
    """Print tables of outcomes and errors, all offenders, and if asked for each kind of message with one example."""
    print(f"{len(found)} models")
    for door in sorted({o.door for o in found}):
        counted = collections.Counter(o.kind for o in found if o.door == door)
        print(f"  {door:16s} {', '.join(f'{k} {n}' for k, n in counted.most_common())}")
    for error, n in collections.Counter(o.error.partition(" at ")[0] for o in found if o.error).most_common():
        print(f"  {n:6d} {error}")
    if messages:
        alike: dict[str, list[Outcome]] = {}
        for o in found:
            if o.kind in ("refused", "run refused"):
                alike.setdefault(shape_of(o.words), []).append(o)
        for several in sorted(alike.values(), key=len, reverse=True):
            print(f"  {len(several):5d} ({several[0].number}) {several[0].error}: {several[0].words[:400]}")
    for o in sorted((o for o in found if o.bad or o.kind == "ran long"), key=lambda o: (o.kind, o.error, o.words)):
        print(f"{o.kind} --only {o.number}, {o.door} [{o.made}]: {o.error}: {o.words[:600]}")


def options(description: str | None, count: int, doors: Sequence[str]) -> argparse.ArgumentParser:
    """What the scripts of all formats may be told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of single models")
    parser.add_argument("--door", choices=doors, help="this door for all of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--small", action="store_true", help="from the small models alone, which need no suite to be loaded"
    )
    parser.add_argument("--messages", action="store_true", help="show each kind of message once")
    parser.add_argument("--json", action="store_true", help="one line of JSON with the counts and the offenders")
    parser.add_argument("--keep", type=Path, help="a folder for the models of offenders")
    return parser


def report(form: Format, chosen: argparse.Namespace) -> int:
    """Send the files that were chosen; 1 when there is an offender."""
    numbers = chosen.only or range(chosen.seed, chosen.seed + chosen.count)
    found = list(outcomes(form, numbers, chosen.jobs, [chosen.door] if chosen.door else (), chosen.keep))
    bad = [o for o in found if o.bad]
    if chosen.json:
        print(
            json.dumps(
                {
                    "counts": collections.Counter(o.kind for o in found),
                    "bad": [f"{o.number} {o.door} {o.kind} {o.error}: {o.words}" for o in bad]
                }
            )
        )
    else:
        show(found, chosen.messages)
    return int(bool(bad))
