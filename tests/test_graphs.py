"""Walks over graphs: each node once, in order, also around cycles and in deep graphs."""

from __future__ import annotations

from tilewright.base.graphs import post_order, reachable

DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}


def test_operands_come_before_users() -> None:
    assert post_order(["a"], DIAMOND.__getitem__) == ["d", "b", "c", "a"]
    assert post_order(["c", "a"], DIAMOND.__getitem__) == ["d", "c", "b", "a"]


def test_users_come_before_operands() -> None:
    assert list(reachable(["a"], DIAMOND.__getitem__)) == ["a", "c", "d", "b"]
    seen = {"b"}
    assert list(reachable(["a"], DIAMOND.__getitem__, seen)) == ["a", "c", "d"]
    assert seen == {"a", "b", "c", "d"}


def test_cycles_end_and_depth_is_no_limit() -> None:
    assert post_order([0], lambda n: [(n + 1) % 3]) == [2, 1, 0]
    assert len(post_order([0], lambda n: [n + 1] if n < 100_000 else [])) == 100_001
    assert len(list(reachable([0], lambda n: [n + 1] if n < 100_000 else []))) == 100_001
