"""When compiling pays, by a clock that stands still."""

from __future__ import annotations

import pytest

import tilewright
from tilewright import relay
from tilewright.base import jit_policy
from tilewright.base.jit_policy import ALIKE, Times, Use, Uses


def calls_until_compiled(uses: Uses, seconds: float, compiling: float) -> int:
    """How often a new key runs on values, at so many seconds each."""
    use, count = Use(), 0
    uses.meet(use)
    while not uses.pays(use, compiling):
        use.ran(seconds)
        uses.meet(use)
        count += 1
    return count


def often(uses: Uses, *times: int) -> None:
    """Other keys that are met so often, one after another."""
    for n in times:
        use = Use()
        for _ in range(n):
            uses.meet(use)


def test_a_key_is_compiled_when_it_took_as_long_as_compiling() -> None:
    assert calls_until_compiled(Uses(), 0.25, 4) == 16
    assert calls_until_compiled(Uses(), 4.0, 4) == 1
    assert calls_until_compiled(Uses(), 0.5, 100) == 200


def test_where_the_keys_before_came_back_often_this_one_is_not_waited_for() -> None:
    uses = Uses()
    often(uses, 900, 8, 20, 30)
    assert calls_until_compiled(uses, 0.25, 4) == 1
    assert calls_until_compiled(uses, 0.25, 5) == 20  # twice the rarest of them are not enough


def test_one_of_the_last_that_came_once_says_that_keys_do_not_come_back() -> None:
    uses = Uses()
    often(uses, 10**6, 1)
    assert calls_until_compiled(uses, 0.25, 4) == 16
    often(uses, *[50] * ALIKE)  # and is forgotten behind others
    assert calls_until_compiled(uses, 0.25, 4) == 1


def test_a_key_that_is_met_again_counts_as_one() -> None:
    uses, first, second = Uses(), Use(), Use()
    for _ in range(50):
        uses.meet(first)
        uses.meet(second)
    assert (first.met, second.met) == (50, 50)
    assert calls_until_compiled(uses, 0.25, 4) == 1


def test_a_first_call_that_makes_its_steps_does_not_speak_for_the_others() -> None:
    uses, use = Uses(), Use()
    often(uses, 4)
    uses.meet(use)
    use.ran(3.0)
    use.ran(0.25)
    assert (use.quickest, use.seconds) == (0.25, 3.25)
    assert not uses.pays(use, 4)
    use.ran(0.75)
    assert uses.pays(use, 4)


def test_what_compiling_takes_is_learned() -> None:
    times = Times(0.01)
    expected = times.of(100)
    times.took(10_000, 10_000 * expected / 100 * 3)
    assert times.of(100) == pytest.approx(3 * expected, rel=0.02)
    assert times.of(200) == 2 * times.of(100)


def test_what_is_compiled_is_learned_from(slow_clock: int) -> None:
    x = relay.var("x", shape=(2, 3))
    operators, seconds = jit_policy.COMPILING._operators, jit_policy.COMPILING._seconds
    tilewright.compile(relay.Function([x], relay.exp(relay.tanh(x))))
    assert jit_policy.COMPILING._operators == operators + 2
    assert jit_policy.COMPILING._seconds >= seconds + 1
