"""What holds for every test: nodes are frozen for real, and nothing is read from or written to the user's cache."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from typing import Any

import pytest

import daily
from census import Census, Run

# Before anything of the package is imported: node classes are made at import.
os.environ["TILEWRIGHT_FREEZE_NODES"] = "1"
if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the folder of the process that started them
    _CACHE = os.environ["TILEWRIGHT_CACHE_DIR"]
else:
    _CACHE = tempfile.mkdtemp(prefix="tilewright-test-cache-")
    atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
os.environ["TILEWRIGHT_CACHE_DIR"] = _CACHE
os.environ[
    "TILEWRIGHT_TIMING_LOCK"
] = os.path.join(_CACHE, "timing")  # noqa: PTH118  # tests do not wait for what else this machine times


def pytest_report_header() -> str:
    """How to repeat the samples that this run draws."""
    return f"samples are drawn by TILEWRIGHT_TEST_SEED={daily.SEED}"


_CORE_CASES = 2
"""How many cases of a parametrized test are in the core."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a parametrized test with the mark `sampled`, today's cases are run. The core is every test but the slow ones
    and those of whole models; of a parametrized test, a few cases drawn each day."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, several in tests.items():
        if (mark := several[0].get_closest_marker("sampled")) is not None:
            tests[name] = daily.sample(several, mark.args[0], name)
    drawn = {item for several in tests.values() for item in several}
    items[:] = [item for item in items if item in drawn]
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("slow", "models")):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, several in cases.items():
        for item in daily.sample(several, _CORE_CASES, name):
            item.add_marker("core")


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> int:
    """A clock by which all that is timed takes a second, and compiling is expected to take so many."""
    ticks, compiling = itertools.count(), 16
    monkeypatch.setattr("tilewright.base.jit_policy.clock", lambda: float(next(ticks)))
    monkeypatch.setattr("tilewright.base.jit_policy.COMPILING.of", lambda operators: float(compiling))
    return compiling


def _run(config: pytest.Config) -> Run | None:
    """The tests of this run, if it is a full one: all folders, nothing chosen by name or mark, and no worker of another
    run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    chosen = any(
        config.getoption(o, None) for o in ("keyword", "markexpr", "lf", "collectonly", "maxfail", "deselect", "ignore")
    )
    if hasattr(
        config, "workerinput"
    ) or reporter is None or chosen or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return None
    return Run.of(reporter.stats)


def _complaints(run: Run | None) -> list[str]:
    return Census.read().complaints(run.collected, run.skipped, run.modules) if run is not None else []


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A full run that leaves out more than `census.toml` allows has failed."""
    if exitstatus == pytest.ExitCode.OK and _complaints(_run(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How much of ONNX's conformance suite ran, when it did; of a full run, what was left out and why."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ())]
    found = [value for r in reports for name, value in getattr(r, "user_properties", ()) if name == "conformance"]
    if found:
        total, passed, native = map(sum, zip(*found, strict=True))
        terminalreporter.write_line(
            f"ONNX conformance suite: {passed} of {total} cases pass, {native} of them compiled from end to end"
        )
    run = _run(config)
    for line in run.lines() if run is not None else []:
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After the line of pytest itself, why a run without a failure has failed."""
    for complaint in _complaints(_run(config)):
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"census: {complaint}")
