"""The counts of collected and skipped tests: what fails a run, and that the file is well formed."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

import conftest
import daily
from census import _ABSENT, Census, Run, Skip

CENSUS = Census(10, [Skip(
    "gdb is not installed", 2, ["tool:no-such-tool"]
), Skip("no model", 1, ["path:tests"]), Skip("given up", 3),
                       Skip(r"the file (\S+) is not there", 2, [r"path:\1"]),
                       Skip(r"needs (\w+)(?: or (\w+))?", 2, [r"package:\1", r"package:\2"])])


@pytest.mark.parametrize(("collected", "skipped", "modules", "complaint"), [
    (10, {"gdb is not installed": 2, "given up": 3}, [], ""),
    (9, {}, [], "9 tests were collected, fewer than the 10"),
    (12, {"gdb is not installed": 3}, [], "3 skipped as 'gdb is not installed', more than the 2"),
    (
        12, {"gdb is not installed here": 1, "here gdb is not installed": 2}, [],
        "3 skipped as 'gdb is not installed', more than the 2"
    ),
    (12, {"no model": 1}, [], "1 skipped as 'no model', though path:tests are here"),
    (12, {"the file tests/no_such_file is not there": 2}, [], ""),
    (
        12, {"the file tests/*sus.toml is not there": 1}, [],
        "1 skipped as 'the file tests/*sus.toml is not there', though path:tests/*sus.toml are here"
    ),
    (12, {"needs numpy": 1}, [], "1 skipped as 'needs numpy', though package:numpy are here"),
    (12, {"needs numpy or nosuchpackage": 1}, [], ""),
    (12, {"tired": 1}, [], "1 skipped for a reason that census.toml does not list: tired"),
    (12, {"given up": 1}, ["tests/test_x.py"], "the whole module tests/test_x.py was skipped"),
])
def test_what_fails_a_run(collected: int, skipped: dict[str, int], modules: list[str], complaint: str) -> None:
    found = CENSUS.complaints(collected, skipped, modules)
    assert len(found) == bool(complaint) and complaint in "".join(found)


def test_a_run_is_counted() -> None:
    def skip(name: str) -> Any:
        return SimpleNamespace(nodeid=name, longrepr=("file", 1, "Skipped: no gdb"))

    def done(name: str) -> Any:
        return SimpleNamespace(nodeid=name)

    run = Run.of(
        {"passed": [done("a::1"), done("a::2")], "failed": [done("a::2")], "skipped": [skip("a::3"), skip("b")]}
    )
    assert (run.collected, run.skipped, run.modules) == (4, {"no gdb": 2}, ["b"])
    assert run.lines() == ["4 tests collected, 2 skipped:", "      2  no gdb"]


def test_the_file_is_well_formed() -> None:
    census = Census.read()
    assert census.collected > 0
    for skip in census.skips:
        re.compile(skip.reason)
        assert skip.most > 0 and {w.partition(":")[0] for w in skip.without} <= set(_ABSENT)


def test_a_sample_of_each_kind_has_every_kind_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daily, "ALL", False)
    found = daily.of_each(range(100), lambda n: n % 7, 2, "kinds")
    assert [n % 7 for n in found] == [k for k in range(7) for _ in range(2)]
    assert all(a < b for a, b in zip(found[::2], found[1::2], strict=True))
    assert found == daily.of_each(range(100), lambda n: n % 7, 2, "kinds")
    monkeypatch.setattr(daily, "ALL", True)
    assert sorted(daily.of_each(range(100), lambda n: n % 7, 2, "kinds")) == list(range(100))


def test_cases_with_the_mark_are_sampled_and_the_core_is_drawn_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Item:
        def __init__(self, nodeid: str, **marks: Any) -> None:
            self.nodeid, self.marks = nodeid, {k: SimpleNamespace(args=(v,)) for k, v in marks.items()}

        def get_closest_marker(self, name: str) -> Any:
            return self.marks.get(name)

        def add_marker(self, name: str) -> None:
            self.marks[name] = SimpleNamespace(args=())

    def collected() -> list[Any]:
        return [*(Item(f"a.py::f[{k}]", sampled=3) for k in range(9)), *(Item(f"a.py::g[{k}]") for k in range(4)),
                Item("a.py::h", slow=True)]

    monkeypatch.setattr(daily, "ALL", False)
    items = collected()
    conftest.pytest_collection_modifyitems(items)
    names = [i.nodeid.partition("[")[0] for i in items]
    assert names == ["a.py::f"] * 3 + ["a.py::g"] * 4 + ["a.py::h"]
    assert sum("core" in i.marks for i in items if "::f" in i.nodeid) == 2
    assert "core" not in items[-1].marks
    monkeypatch.setattr(daily, "ALL", True)
    items = collected()
    conftest.pytest_collection_modifyitems(items)
    assert len(items) == 14
