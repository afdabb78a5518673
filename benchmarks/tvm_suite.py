"""TVM v0.13's own tests and tutorials on this package: a table of what passes, by folder.

    python benchmarks/tvm_suite.py FOLDER/tvm_v0.13 python/relay python/unittest --jobs 2 --results results.jsonl
    python benchmarks/tvm_suite.py FOLDER/tvm_v0.13 gallery --only relay_quick_start
    python benchmarks/tvm_suite.py FOLDER/tvm_v0.13 --expected benchmarks/tvm_passing.txt      (make test-tvm)

Each file runs in a process of its own, `python -m tilewright.tvm -m pytest FILE` (tutorials: `python -m tilewright.tvm
FILE`), with a limit of time. A test file that stops while it is imported counts each of its functions as not started.
A test that calls TVM's code for GPUs, Hexagon or Android counts as skipped (`tvm_devices.py`).
`--results` keeps one line of JSON for each file; files that it has are not run again.

`--expected` names a list of cases that pass, one `FILE::CASE` on a line. Without other files, those of the list are
run, and the exit code is 1 if a case of the list does not pass. `--write` adds the cases that pass to the list.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

STATES: Final = ("passed", "failed", "skipped", "not started", "timed out")
SOURCE: Final = Path(__file__).resolve().parents[1] / "src"
CASES: Final = "TILEWRIGHT_TVM_CASES"
"""Names a file with the cases that the plugin keeps, `FILE::CASE` on a line."""
PLUGIN: Final = Path(__file__).resolve().parent / "tvm_devices.py"
"""Plugin of pytest: tests that call code for devices that are not here are skipped."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one file: the number of cases in each state, and the first line of each message."""

    file: str
    counts: Mapping[str, int]
    messages: Sequence[str] = field(default_factory=tuple)
    passed: Sequence[str] = field(default_factory=tuple)
    """The names of the cases that pass; that of a tutorial is empty."""


def functions_of(file: Path) -> int:
    """Return the number of test functions of a file, methods of classes included."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return sum(isinstance(n, ast.FunctionDef) and n.name.startswith("test") for n in ast.walk(tree))


def run(root: Path, name: str, limit: float) -> Result:
    """Run a test file or a tutorial, and return what became of it."""
    file = root / name
    environment = _environment()
    is_test = file.name.startswith("test_")
    with tempfile.TemporaryDirectory() as folder:
        if not is_test:
            _place_logs(Path(folder))
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "tilewright.tvm"]
        if is_test:
            command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN.stem, f"--junitxml={report}"]
        try:
            done = subprocess.run(
                [*command, str(file)], cwd=root if is_test else folder, env=environment, capture_output=True, text=True,
                timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return Result(name, {"timed out": functions_of(file) if is_test else 1})
        if not is_test:
            return _of_script(name, done)
        if report.exists():
            found = read_report(name, report)
            if found.counts:
                return found
    return Result(name, {"not started": functions_of(file)}, [last_line(done.stdout + done.stderr)])


def _environment() -> dict[str, str]:
    """Return the environment variables of a run. Without `CI`, for which TVM's `conftest.py` loads a script of its own
    servers."""
    path = os.pathsep.join(filter(None, [str(SOURCE), str(PLUGIN.parent), os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    return {**kept, "PYTHONPATH": path, "MPLBACKEND": "agg"}


def _place_logs(folder: Path) -> None:
    """Copy the records that tutorials expect in their folder, from `logs` of the downloaded files."""
    logs = Path(os.environ.get("TEST_DATA_ROOT_PATH", "")) / "logs"
    for log in sorted(logs.glob("*.json")) if "TEST_DATA_ROOT_PATH" in os.environ else ():
        shutil.copy(log, folder)


def _of_script(name: str, done: subprocess.CompletedProcess[str]) -> Result:
    if done.returncode == 0:
        return Result(name, {"passed": 1}, (), [""])
    return Result(name, {"failed": 1}, [last_line(done.stderr)])


def failing(root: Path, cases: Sequence[tuple[str, str]], limit: float) -> list[str]:
    """Run only these cases, `(file, name)`, in one process; return those that do not pass, or the last line of an error
    that ended the process. Raises `subprocess.TimeoutExpired` after `limit` seconds."""
    root = root.resolve()
    with tempfile.TemporaryDirectory() as folder:
        report, chosen = Path(folder) / "report.xml", Path(folder) / "cases.txt"
        chosen.write_text("\n".join(f"{file}::{case}" for file, case in cases), encoding="utf-8")
        command = [
            sys.executable, "-m", "tilewright.tvm", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN.stem,
            "--import-mode=importlib", f"--rootdir={root}", "-o", "junit_family=xunit1", f"--junitxml={report}",
            *dict.fromkeys(file for file, _ in cases)]
        environment = {**_environment(), CASES: str(chosen)}
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=limit, check=False)
        if not report.exists():
            return [last_line(done.stdout + done.stderr)]
        passed = {
            (case.get("file") or "", case.get("name") or "") for case in ElementTree.parse(report).iter("testcase")
            if not len(case)}
    return [f"{file}::{case}" for file, case in cases if (file, case) not in passed]


def read_report(name: str, report: Path) -> Result:
    """Return the counts of a JUnit report, the first lines of its messages and the cases that pass; no counts if the
    file could not be imported."""
    counts, messages, passed = Counter[str](), list[str](), list[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag: child for child in case}
        states = (("error", "failed"), ("failure", "failed"), ("skipped", "skipped"))
        state = next((s for tag, s in states if tag in kinds), "passed")
        if "error" in kinds and not case.get("classname"):
            return Result(name, {})
        counts[state] += 1
        if state == "failed":
            said = kinds.get("failure", kinds.get("error"))
            text = (said.get("message") or "") if said is not None else ""
            messages.append(f"{case.get('name')}: {text.partition(chr(10))[0][:200]}")
        elif state == "passed":
            passed.append(case.get("name") or "")
    return Result(name, dict(counts), messages, passed)


def read_list(path: Path) -> list[tuple[str, str]]:
    """Return the files and cases of a list; lines that begin with # are comments."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(file, case) for file, _, case in (n.partition("::") for n in lines if n and not n.startswith("#"))]


def write_list(path: Path, results: Iterable[Result]) -> None:
    """Add the cases that pass to a list, in order."""
    comments = [n for n in path.read_text(encoding="utf-8").splitlines() if n.startswith("#")] if path.exists() else []
    cases = {*read_list(path), *((r.file, case) for r in results for case in r.passed)}
    names = sorted(f"{file}::{case}" if case else file for file, case in cases)
    path.write_text("\n".join([*comments, *names]) + "\n", encoding="utf-8")


def broken(expected: Iterable[tuple[str, str]], results: Mapping[str, Result]) -> list[str]:
    """Return the cases of a list that do not pass, of the files that were run."""
    passed = {name: {*result.passed} for name, result in results.items()}
    return [f"{file}::{case}" if case else file for file, case in expected if case not in passed.get(file, {case})]


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "Error" in line or "Exception" in line]
    return (lines or text.splitlines() or [""])[-1][:200]


def table(results: Iterable[Result], depth: int = 2) -> str:
    """Return a table in Markdown with a row for each folder."""
    rows = dict[str, Counter[str]]()
    for result in results:
        parts = Path(result.file).parts
        rows.setdefault("/".join(parts[:min(depth, len(parts) - 1)]), Counter()).update(result.counts)
    total = sum(rows.values(), Counter[str]())
    lines = [f"| {name} | " + " | ".join(str(row[s]) for s in STATES) + " |"
             for name, row in [*sorted(rows.items()), ("all", total)]]
    return "\n".join(["| folder | " + " | ".join(STATES) + " |", "| --- |" + " --- |" * len(STATES), *lines])


def files_below(root: Path, parts: Sequence[str], only: str) -> list[str]:
    """Return the test files and tutorials below the given parts of the folder, relative to it."""
    found = []
    for part in parts:
        pattern = "*.py" if part.startswith("gallery") else "test_*.py"
        here = [root / part] if (root / part).is_file() else sorted((root / part).rglob(pattern))
        found += [str(f.relative_to(root)) for f in here if only in str(f)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", help="files or folders, such as python/relay")
    parser.add_argument("--only", default="", help="only files with this text in their names")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each file")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--messages", action="store_true", help="print the first line of each failure")
    parser.add_argument("--expected", type=Path, help="the list of cases that pass")
    parser.add_argument("--write", action="store_true", help="add the cases that pass to the list")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no file after these minutes")
    options = parser.parse_intermixed_args(arguments)
    expected = read_list(options.expected) if options.expected is not None else []
    results = dict[str, Result]()
    if options.results is not None and options.results.exists():
        results = {r.file: r for r in (Result(**json.loads(line)) for line in options.results.read_text().splitlines())}
    parts = options.parts or list(dict.fromkeys(file for file, _ in expected))
    names = files_below(options.folder.resolve(), parts, options.only)
    end = time.monotonic() + options.minutes * 60
    for result in run_all(options.folder.resolve(), [n for n in names if n not in results], options, end):
        results[result.file] = result
        print(result.file, dict(result.counts), *(result.messages if options.messages else ()), sep="\n  ", flush=True)
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(result)) + "\n")
    print(table(results[n] for n in names if n in results))
    if options.write and options.expected is not None:
        write_list(options.expected, results.values())
    return report_broken(expected, results, [n for n in names if n not in results])


def run_all(root: Path, names: Sequence[str], options: argparse.Namespace, end: float) -> Iterator[Result]:
    """Run files, as many at a time as `--jobs` says, and begin none after `end`."""

    def one(name: str) -> Result | None:
        return run(root, name, options.limit) if time.monotonic() < end else None

    with ThreadPoolExecutor(options.jobs) as threads:
        yield from (result for result in threads.map(one, names) if result is not None)


def report_broken(
    expected: Sequence[tuple[str, str]], results: Mapping[str, Result], left: Sequence[str]
) -> int:
    """Print the cases of the list that do not pass and the files that were not run; return the exit code."""
    lines = [f"passed before, does not pass: {name}" for name in broken(expected, results)]
    lines += [f"not run for lack of time: {name}" for name in left]
    print(*lines, sep="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
