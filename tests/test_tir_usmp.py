"""Places of buffers in memory pools."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright.base.errors import OptionError
from tilewright.tir import usmp

ALGORITHMS = ("greedy_by_size", "greedy_by_conflicts", "hill_climb")


def pool(size: int = -1, name: str = "workspace") -> Any:
    return tvm.WorkspacePoolInfo(name, [], tvm.PoolInfoProperties(size_hint_bytes=size))


def placed(algorithm: str, buffers: list[Any], pressure: int = 0) -> Any:
    return tvm.get_global_func(f"tir.usmp.algo.{algorithm}")(buffers, pressure)


def check(places: Any) -> int:
    """Check that no two conflicting buffers overlap; return the end of the last one."""
    spans = {b: (p.byte_offset.value, p.byte_offset.value + b.size_bytes.value) for b, p in places.items()}
    for b, (start, end) in spans.items():
        for c in b.conflicts:
            assert places[b].pool_info != places[c].pool_info or end <= spans[c][0] or spans[c][1] <= start
    return max(int(end) for _, end in spans.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_buffers_of_a_chain_share_memory(algorithm: str) -> None:
    buffers = [usmp.BufferInfo(f"b{k}", size, [pool()]) for k, size in enumerate((10, 20, 100, 40, 50, 50))]
    for k, b in enumerate(buffers):
        b.set_conflicts([c for j, c in enumerate(buffers) if abs(j - k) == 1])
    assert check(placed(algorithm, buffers)) == 140


def test_equal_buffers_are_placed_by_name() -> None:
    buffers = [usmp.BufferInfo(name, 10, [pool()]) for name in "abc"]
    for b in buffers:
        b.set_conflicts([c for c in buffers if c is not b])
    for algorithm in ALGORITHMS:
        assert [placed(algorithm, buffers)[b].byte_offset.value for b in buffers] == [20, 10, 0]


def test_the_next_pool_takes_what_the_first_cannot() -> None:
    small, large = pool(30, "small"), pool(-1, "large")
    buffers = [usmp.BufferInfo(f"b{k}", 20, [small, large], 8) for k in range(3)]
    for b in buffers:
        b.set_conflicts([c for c in buffers if c is not b])
    for algorithm in ALGORITHMS:
        places = placed(algorithm, buffers)
        assert sorted(p.pool_info.pool_name for p in places.values()) == ["large", "large", "small"]
        assert check(places) == 44
    for b in buffers:
        b.set_pool_candidates([small])
    with pytest.raises(OptionError, match=r"space available in the provided pools exceeded .* 'b1' of 20 bytes"):
        placed("greedy_by_size", buffers)


def test_random_buffers_fill_gaps() -> None:
    generator = random.Random(1)
    ranges = [(k, k + generator.randrange(1, 8), generator.randrange(1, 1000)) for k in range(40)]
    buffers = [usmp.BufferInfo(str(k), size, [pool()]) for k, (_, _, size) in enumerate(ranges)]
    for b, (start, end, _) in zip(buffers, ranges, strict=True):
        b.set_conflicts([
            c for c, (s, e, _) in zip(buffers, ranges, strict=True) if c is not b and s <= end and start <= e])
    least = max(sum(size for s, e, size in ranges if s <= t <= e) for t in range(50))
    assert least <= check(placed("hill_climb", buffers, least)) <= 1.05 * least
