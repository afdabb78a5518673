"""Functions that check their arguments against their annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.compat.type_checked import type_checked


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"), [
        (int, [5], ["5", None]),
        (list[int], [[5], [], (1, 2)], [None, 5, ["5"]]),
        (dict[str, int], [{"a": 1}], [[1], {1: 1}, {"a": "b"}]),
        (tuple[str, int], [("a", 1)], [("a", 1, 2), ("a", 1.0), ["a", 1], 42]),
        (tuple[int, ...], [(), (1, 2, 3)], [(1, "2")]),
        (str | int | None, ["a", 5, None], [5.0, ("a",)]),
        (Callable[[int], int], [abs, len], [None, "abs"]),
        (set[int], [{1}], [[1]]),
        (Any, [1, None], []),
    ])
def test_arguments(kind: Any, accepted: list[Any], refused: list[Any]) -> None:
    def function(x: Any, y: Any = 0) -> Any:
        return x

    function.__annotations__ = {"x": kind, "y": int}
    checked = type_checked(function)
    assert checked.__name__ == "function"
    for value in accepted:
        assert checked(value) is value
    for value in refused:
        with pytest.raises(TypeError, match=r"argument 'x' of function is .*; it must be "):
            checked(x=value)


def test_the_message_names_the_type() -> None:
    @type_checked
    def function(x: list[int]) -> None:
        pass

    with pytest.raises(TypeError, match=r"argument 'x' of function is \['a'\]; it must be list\[int\]"):
        function(["a"])  # type: ignore[list-item]
