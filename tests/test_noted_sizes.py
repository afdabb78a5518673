"""Stand-ins for sizes: what they answer, and what is noted of that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import relay
from tilewright.base.errors import ShapeError
from tilewright.base.types import Size, TensorType
from tilewright.relay.op.shaping import Reshape
from tilewright.scalar.arith.noted_sizes import Notes, is_noted

SIZES = st.integers(0, 6)


def asked(notes: Notes) -> int:
    return len(notes.asked)


def test_a_stand_in_is_a_size_that_notes_what_is_asked() -> None:
    notes = Notes()
    n, m = notes.shape(0, (5, 4))
    assert isinstance(n, int) and isinstance(n, Size) and is_noted(n) and not is_noted(5)
    assert (str(n), f"{n}", asked(notes)) == ("5", "5", 0)
    assert n != m and n > m and n + 1 != m
    assert (
        notes.hold([(5, 4)]), notes.hold([(9, 3)]), notes.hold([(3, 4)]), notes.hold([(4, 4)])
    ) == (True, True, False, False)


def test_types_of_stand_ins_ask_for_nothing() -> None:
    notes = Notes()
    t = TensorType(notes.shape(0, (5, 4)))
    assert t.is_static and t.ndim == 2
    assert all(map(is_noted, (*t.shape, t.size, math.prod(t.shape), -t.shape[0] // 2 * 3 + 1)))
    assert list(np.array(t.shape, dtype=object)) == list(t.shape)
    notes.asked.clear()
    assert np.array(t.shape, dtype=object).shape == (2,)
    assert asked(notes) == 0


@pytest.mark.parametrize("take", [
    range, hash, float, np.zeros, lambda n: np.asarray(n, np.int64), lambda n: [0] * n, lambda n: n / 2, lambda n: 2**n,
    lambda n: n.bit_length(),
])
def test_whoever_takes_the_number_asks_for_it(take: Callable[[Any], Any]) -> None:
    notes = Notes()
    (n,) = notes.shape(0, (5,))
    take(n)
    assert notes.hold([(5,)]) and not notes.hold([(6,)])


def test_one_of_other_notes_is_its_number() -> None:
    ours, others = Notes(), Notes()
    (n,), (m,) = ours.shape(0, (5,)), others.shape(0, (5,))
    assert n == m
    assert not ours.hold([(6,)]) and not others.hold([(6,)])


def test_division_by_nothing_is_another_answer() -> None:
    notes = Notes()
    sizes: Any = notes.shape(0, (6, 3))
    assert sizes[0] // sizes[1] == 2
    assert notes.hold([(4, 2)]) and not notes.hold([(4, 0)])


@given(st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES))
def test_where_the_answers_are_the_same_so_is_what_is_made(a: Any, b: Any, c: Any, d: Any) -> None:
    """Whether shapes broadcast, and which axes are repeated: a decision for two shapes holds for those of which the
    same is true."""

    def decide(x: Any, y: Any) -> list[int] | None:
        found = []
        for n, m in zip(x, y, strict=True):
            if n not in (m, 1) and m != 1:
                return None
            found.append((n == 1 and m != 1) - (m == 1 and n != 1))
        return found

    notes = Notes()
    answer = decide(notes.shape(0, a), notes.shape(1, b))
    assert answer == decide(a, b)
    if notes.hold([c, d]):
        assert answer == decide(c, d)


def test_an_inference_notes_what_makes_it_refuse() -> None:
    notes = Notes()
    x = relay.Var("x", TensorType(notes.shape(0, (6, 4))))
    assert Reshape((-1, 8))(x).tensor_type.shape == (3, 8)
    assert notes.hold([(6, 4)])
    assert not notes.hold([(5, 3)])
    with pytest.raises(ShapeError):
        Reshape((-1, 8))(relay.Var("x", TensorType((5, 3))))
