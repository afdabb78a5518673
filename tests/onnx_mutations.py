"""Sends damaged and hostile models (`tests/mutated_models.py`) through every door of the compiler, each in a process of its own.

`python tests/onnx_mutations.py --count 5000 --seed 0` prints how many were refused, compiled and run, by door and kind of error; then every
offender: a crash, an error that is none of ours or says nothing, more than `SECONDS` of compiling, more than `MEMORY` bytes. The number
of an offender is its reproducer: `--only 1234` sends that model alone, and `--keep FOLDER` writes the models of all offenders.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mutated_models
import tilewright
from mutated_models import DATA_BYTES, DATA_FILE
from tilewright.driver.main import main as command_line
from tilewright.errors import CompileError, InternalError
from tilewright.onnx_session import InferenceSession
from tilewright.types import DataType

MEMORY, SECONDS, LONGEST = 1 << 30, 10, 240
"""Bytes of data in a child beyond those it begins with; processor seconds; seconds on the clock, for what waits for ever."""
LARGEST_INPUT = 1 << 24
BAD = ("crash", "traceback", "silent", "hang", "memory", "vague")
VAGUE = ("cannot be made sense of", "more memory than there is")
"""What is said where nothing better was known: whatever ends there should have been refused by name."""
_PRELOADED = ("tilewright.compiler.build", "tilewright.compiler.growth", "tilewright.compiler.check", "tilewright.relay.interpreter",
              "tilewright.relay.frontend.onnx", "tilewright.target.llvm.jit", "tilewright.driver.report", "tilewright.runtime.artifact")
Model = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model: `kind` is one of `BAD`, or ran, run refused, compiled, refused."""

    number: int
    made: str
    door: str
    kind: str
    error: str = ""
    words: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in BAD


# In the child.


def through_compile(folder: Path, random: np.random.Generator) -> str:
    """`tilewright.compile` on the path, and a call."""
    compiled = tilewright.compile(folder / "model.onnx", threads=1)
    _note("run")
    fed = [_array(str(dtype), dims, random) for _, dims, dtype in compiled._signature]
    if any(x is None for x in fed):
        return "compiled"
    compiled(*fed)
    return "ran"


def through_session(folder: Path, random: np.random.Generator) -> str:
    """`InferenceSession`, and a run."""
    session = InferenceSession(folder / "model.onnx", threads=1)
    _note("run")
    fed = {n: _array(str(dtype), dims, random) for n, dims, dtype in session.model._signature}
    if any(x is None for x in fed.values()):
        return "compiled"
    session.run(None, fed)
    return "ran"


def through_check(folder: Path, random: np.random.Generator) -> str:
    """`tilewright.check`: what it says can be written as JSON."""
    report = tilewright.check(folder / "model.onnx")
    json.dumps(report.as_dict())
    if report.refused:
        raise CompileError(report.refused)
    return "compiled"


def through_commands(*words: str) -> Callable[[Path, np.random.Generator], str]:
    """The command line in this process; what it says on stderr is its message."""

    def run(folder: Path, random: np.random.Generator) -> str:
        said = folder / "stderr"
        _note("run" if words[0] == "run" else "compile")
        with said.open("w") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
            code = command_line([w.replace("FOLDER", str(folder)) for w in words])
        text = said.read_text()
        if "Traceback" in text or "fault of the compiler" in text or code not in (0, 1, 2):
            raise AssertionError(f"{code}: {text}")
        if code and "Error: " not in text and words[0] != "check":
            raise CompileError("")
        if code:
            raise CompileError(text.partition("refused: " if words[0] == "check" else "Error: ")[2] or text)
        return "ran" if words[0] == "run" else "compiled"

    return run


DOORS: dict[str, Callable[[Path, np.random.Generator], str]] = {
    "compile": through_compile,
    "session": through_session,
    "check": through_check,
    "command check": through_commands("check", "FOLDER/model.onnx"),
    "command compile": through_commands("compile", "FOLDER/model.onnx", "-o", "FOLDER/made.tar", "--threads", "1"),
    "command run": through_commands("run", "FOLDER/model.onnx", "--threads", "1"),
}
_TURNS = ("compile",) * 4 + ("session",) * 2 + ("check", "command check", "command compile", "command run")


def _array(dtype: str, dims: Sequence[int | str], random: np.random.Generator) -> Any:
    """An input of a signature, None where it would be too large; a sequence has one element, an optional a value."""
    if dtype.startswith("seq("):
        return [_array(dtype[4:-1], (2, 3), random)]
    if dtype.startswith("optional("):
        return _array(dtype[9:-1], (2, 3), random)
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


def _note(phase: str) -> None:
    """Leave in the folder what the child is doing, for whoever finds it dead."""
    Path("phase").write_text(phase)


def _child(folder: Path, door: str, number: int, kinds: Sequence[tuple[Model, ...]]) -> None:
    """Make one model and send it through one door; the outcome is left in a file of the folder."""
    os.chdir(folder)
    made, data = mutated_models.made(number, kinds)
    Path("made").write_text(made)
    Path("model.onnx").write_bytes(data)
    Path(DATA_FILE).write_bytes(bytes(DATA_BYTES))
    messages = os.open("native", os.O_CREAT | os.O_WRONLY)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    faulthandler.enable(messages)
    faulthandler.register(signal.SIGXCPU, messages, chain=True)
    signal.alarm(LONGEST)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _data_bytes() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    _note("compile")
    warnings.simplefilter("ignore")
    error, kind = "", ""
    try:
        kind = DOORS[door](folder, np.random.default_rng(number))
    except CompileError as found:
        error = f"{type(found).__name__}: {found}"
        kind = "silent" if not found.message.strip() else "vague" if any(v in found.message for v in VAGUE) else "run refused" if Path("phase").read_text() == "run" else "refused"
    except Exception as found:  # whatever else is raised is what is looked for
        kind, error = "traceback", f"{type(found).__name__}{_places(found)}: {str(found)[:300]}"
        if isinstance(found, InternalError):
            error = f"{error} (internal)"
    Path("outcome").write_text(json.dumps([kind, error]), errors="replace")


def _data_bytes() -> int:
    """What the system counts against `RLIMIT_DATA`."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmData:")[2].split()[0]) * 1024


def _places(error: BaseException) -> str:
    """The last lines of code of a traceback, innermost first."""
    found, where = [], error.__traceback__
    while where is not None:
        found.append(f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}")
        where = where.tb_next
    return f" at {' < '.join(found[::-1][:6])}"


# In the parent.


def outcomes(numbers: Sequence[int], kinds: Sequence[tuple[Model, ...]], jobs: int, doors: Sequence[str] = _TURNS, keep: Path | None = None) -> Iterator[Outcome]:
    """What becomes of the mutations of these numbers; the children are forked from this process, which has everything loaded."""
    for name in _PRELOADED:
        __import__(name)
    running: dict[int, tuple[int, str, Path]] = {}
    left = iter(numbers)
    with tempfile.TemporaryDirectory() as place:
        while True:
            for number in left:
                door, folder = doors[number % len(doors)], Path(place) / str(number)
                folder.mkdir()
                running[_forked(folder, door, number, kinds)] = (number, door, folder)
                if len(running) >= jobs:
                    break
            if not running:
                return
            child, status, used = os.wait3(0)
            number, door, folder = running.pop(child)
            found = _outcome(number, door, folder, status, used.ru_maxrss * 1024)
            if found.bad and keep is not None and (folder / "model.onnx").exists():
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "model.onnx", keep / f"{number}.onnx")
            shutil.rmtree(folder)
            yield found


def _forked(folder: Path, door: str, number: int, kinds: Sequence[tuple[Model, ...]]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        _child(folder, door, number, kinds)
    finally:
        os._exit(0)


def _outcome(number: int, door: str, folder: Path, status: int, peak: int) -> Outcome:
    made, phase, native = (_left(folder / name) for name in ("made", "phase", "native"))
    code = os.waitstatus_to_exitcode(status)
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
    return f"{native.partition('File ')[0][:200].strip()} {' < '.join(f'{Path(f).name}:{n} {w}' for f, n, w in places[:9])}"


def shape_of(message: str) -> str:
    """A message without its names and numbers, so that messages of one kind are alike."""
    text = re.sub(r"b?'[^']*'|\"[^\"]*\"|/\S+", "'…'", message)
    return re.sub(r"\S*\d\S*", "#", text)[:160]


def show(found: Sequence[Outcome], messages: bool) -> None:
    """Print tables of outcomes and errors, all offenders, and if asked for each kind of message with one example."""
    print(f"{len(found)} models")
    for door in DOORS:
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


def main(arguments: list[str]) -> int:
    """Send many; exit with 1 when there is an offender."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of single models")
    parser.add_argument("--door", choices=[*DOORS], help="this door for all of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="from the small models alone, which need no suite to be loaded")
    parser.add_argument("--messages", action="store_true", help="show each kind of message once")
    parser.add_argument("--json", action="store_true", help="one line of JSON with the counts and the offenders")
    parser.add_argument("--keep", type=Path, help="a folder for the models of offenders")
    chosen = parser.parse_args(arguments)
    small, nodes, real = mutated_models.small_models, mutated_models.node_models, mutated_models.networks
    kinds = [small()] if chosen.small else [small()] * 8 + [nodes()] * 26 + ([real()] if real() else [])
    numbers = chosen.only or range(chosen.seed, chosen.seed + chosen.count)
    doors = [chosen.door] if chosen.door else _TURNS
    found = list(outcomes(numbers, kinds, chosen.jobs, doors, chosen.keep))
    bad = [o for o in found if o.bad]
    if chosen.json:
        print(json.dumps({"counts": collections.Counter(o.kind for o in found), "bad": [f"{o.number} {o.door} {o.kind} {o.error}: {o.words}" for o in bad]}))
    else:
        show(found, chosen.messages)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
