"""Arithmetic and conditions on symbolic dimensions while a model is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.base.types import TensorType
from tilewright.relay.frontend.core.shape_arithmetic import UNDECIDED, applied
from tilewright.relay.op.registry import OPS
from tilewright.scalar.arith.open_sizes import samples
from tilewright.scalar.expr import Var

N, M = Var("n"), Var("m")


def _array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    return np.array([*values, None], object)[:-1]


def _applied(name: str, *args: Sequence[Any], dtype: str = "int64") -> list[Any] | None:
    with samples({N: 61, M: 127}):
        found = applied(OPS[name](), TensorType((len(args[0]),), dtype), [_array(a) for a in args])
    return None if found is None else found.tolist()


@pytest.mark.parametrize(("name", "a", "b", "wanted"), [
    ("equal", [N, N, N, N + M], [N, M, 0, M], [True, UNDECIDED, False, False]),
    ("less", [N, N, N, 2], [N + 1, M, 1, 3], [True, UNDECIDED, False, True]),
    ("greater_equal", [N, N, N], [1, 2, M], [True, UNDECIDED, UNDECIDED]),
    ("floor_divide", [N * 2, N * M], [N, M], [2, N]),
    ("floor_mod", [N * 2, N], [N, N], [0, 0]),
    ("minimum", [N, N + M], [N + 3, M], [N, M]),
    ("maximum", [N, 4], [N + 3, 7], [N + 3, 7]),
    ("logical_and", [UNDECIDED, UNDECIDED, True], [False, True, True], [False, UNDECIDED, True]),
    ("logical_or", [UNDECIDED, UNDECIDED], [False, True], [UNDECIDED, True]),
])
def test_results_are_known_where_all_sizes_agree(name: str, a: list[Any], b: list[Any], wanted: list[Any]) -> None:
    found = _applied(name, a, b)
    assert str(found) == str(wanted)


def test_a_quotient_that_is_rounded_toward_zero_needs_a_dividend_that_is_not_negative() -> None:
    assert _applied("divide", [N - M], [2]) is None
    assert _applied("divide", [N], [2.5]) is None
    assert _applied("divide", [N], [2], dtype="float32") is None
    found = _applied("divide", [N + 1], [2])
    assert found is not None and str(found[0]) == "((n + 1) // 2)"


def test_a_choice_with_an_undecided_condition_is_known_if_both_sides_are_the_same() -> None:
    assert _applied("where", [UNDECIDED, True], [N, N], [N, M]) == [N, N]
    assert _applied("where", [UNDECIDED], [N], [M]) is None
    assert _applied("where", [False], [UNDECIDED], [M]) == [M]
    with pytest.raises(TypeError, match="undecided"):
        bool(UNDECIDED)
