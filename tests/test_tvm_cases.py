"""Cases of TVM's own tests that passed once still pass: each day another sample of `benchmarks/tvm_passing.txt`."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

import daily
from suites import suite_folder

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from tvm_suite import failing, read_list  # noqa: E402  # a script beside the package

_CASES = 1000
_OF_A_FILE = 60
"""Number of cases of one file in a sample."""
_GROUPS = 8
Case = tuple[str, str]


def drawn() -> list[list[Case]]:
    """Return today's cases in groups; the cases of a file are in one group."""
    files = defaultdict[str, list[Case]](list)
    for file, case in read_list(BENCHMARKS / "tvm_passing.txt"):
        if case:
            files[file].append((file, case))
    groups: list[list[Case]] = [[] for _ in range(_GROUPS)]
    for file in daily.shuffled(sorted(files), "files of TVM"):
        if sum(map(len, groups)) < _CASES:
            min(groups, key=len).extend(daily.sample(files[file], _OF_A_FILE, file))
    return groups


@pytest.mark.slow
@pytest.mark.parametrize("group", range(_GROUPS))
def test_cases_of_tvm_still_pass(group: int) -> None:
    root = suite_folder("tvm_v0.13*")
    cases = drawn()[group]
    assert cases
    folder = root if (root / "python").is_dir() else root / "tvm_v0.13"
    failed = failing(folder, cases, 600)
    if failed:  # many of TVM's tests draw random numbers without a seed: a case is lost if it fails twice
        again = [case for case in cases if "::".join(case) in failed]
        failed = failing(folder, again or cases, 600)
    assert failed == []
