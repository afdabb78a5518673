"""The cost model: what it learns, how fast it is, and comparisons in pairs."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base.errors import InputError, OptionError
from tilewright.search import comparison, features
from tilewright.search.comparison import compared, in_turn
from tilewright.search.cost_model import LOSSES, CostModel
from tilewright.tir import parse


def speeds(x: np.ndarray) -> np.ndarray:
    """A landscape with a ridge, and a cliff: what tiles that do not fit the registers do."""
    return np.where(x[:, 0] * x[:, 1] > 28, 5.0, 60 - (x[:, 0] - 6) ** 2 - 3 * np.abs(x[:, 1] - 3) + x[:, 2])


def candidates(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 14, (count, 6)).astype(np.float32)


def agreement(scores: np.ndarray, wanted: np.ndarray) -> float:
    """The correlation of the ranks."""
    a, b = (v.argsort().argsort() for v in (scores, wanted))
    return float(np.corrcoef(a, b)[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numpy", "xgboost"])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns_which_are_fast(loss: str, kind: str) -> None:
    if kind == "xgboost":
        pytest.importorskip("xgboost")
    model = CostModel(loss, kind)
    x, others = candidates(300, 0), candidates(500, 1)
    model.fit(x, speeds(x))
    scores, wanted = model.predict(others), speeds(others)
    top = np.argsort(-scores)[:20]
    assert wanted[top].mean() > np.quantile(wanted, 0.9)
    if loss == "reg" or (loss, kind) == ("rank", "numpy"):
        good = wanted > 5  # below the cliff all are the same
        assert agreement(scores[good], wanted[good]) > 0.8


def test_it_is_the_same_every_time() -> None:
    x = candidates(200, 0)
    found = []
    for _ in range(2):
        model = CostModel("rank", "numpy", seed=3)
        model.fit(x, speeds(x))
        found.append(model.predict(candidates(50, 5)))
    np.testing.assert_array_equal(found[0], found[1])


def test_it_scores_ten_thousand_as_it_scores_one() -> None:
    model = CostModel("reg", "numpy")
    x = np.random.default_rng(0).random((256, 60)).astype(np.float32)
    model.fit(x, x[:, 0])
    many = np.random.default_rng(1).random((10_000, 60)).astype(np.float32)
    np.testing.assert_array_equal(model.predict(many)[:5], [model.predict(many[k : k + 1])[0] for k in range(5)])


def test_it_knows_nothing_of_nothing() -> None:
    model = CostModel("rank", "numpy")
    np.testing.assert_array_equal(model.predict(candidates(4, 0)), np.zeros(4))
    model.fit(candidates(4, 0), np.zeros(4))  # all failed
    np.testing.assert_array_equal(model.predict(candidates(4, 0)), np.zeros(4))


def test_names_that_there_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="there is no loss 'rnk'; did you mean 'rank'"):
        CostModel("rnk")
    with pytest.raises(OptionError, match="there is no cost model 'forest'; the kinds are auto, numpy, xgboost"):
        CostModel("reg", "forest")
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert CostModel("reg", "auto").kind == "numpy"
    with pytest.raises(OptionError, match="xgboost is not installed"):
        CostModel("reg", "xgboost")


PROGRAM = """
@T.prim_func
def main(a: T.Buffer((64, 32), "float32"), b: T.Buffer((32, 16), "float32"), c: T.Buffer((64, 16), "float32")):
    for i in T.parallel(64):
        for k in T.serial(32):
            for j in T.vectorized(16):
                c[i, j] = T.fma(a[i, k], b[k, j], c[i, j])
"""


def test_features_of_loops() -> None:
    func = parse(PROGRAM)
    assert features.arithmetic(func) == 2 * 64 * 32 * 16
    rows = features.of_loops(func, "itervar")
    per = features._PER_LOOP
    inner = rows[4 : 4 + per]  # behind what is of the whole program: the innermost loop
    assert list(inner[:3]) == [4, 11, 4]  # 16 long, 64 * 32 trips around it
    assert list(inner[3:7]) == [0, 0, 1, 0]  # vectorized
    curve = features.of_loops(func, "curve")
    assert len(curve) == 4 + 24 * 4
    assert curve[4:].max() == pytest.approx(np.log2(64 * 32 + 32 * 16 + 64 * 16), abs=0.01)
    other = parse(PROGRAM.replace("T.parallel(64)", "T.serial(64)"))
    assert not np.array_equal(rows, features.of_loops(other, "itervar"))
    assert len(features.of_loops(other, "itervar")) == len(rows)


def test_pairs_say_what_is_sure() -> None:
    rng = np.random.default_rng(0)
    base = 1e-3 * (1 + rng.random(40))  # drifts by a factor of two
    faster = compared(base.tolist(), (0.9 * base * (1 + 0.01 * rng.standard_normal(40))).tolist())
    assert faster.is_faster
    assert faster.ratio == pytest.approx(0.9, abs=0.01)
    assert faster.low < 0.9 < faster.high
    same = compared(base.tolist(), (base * (1 + 0.05 * rng.standard_normal(40))).tolist())
    assert not same.is_faster
    assert compared(base.tolist(), (1.2 * base).tolist()).is_slower
    assert str(faster).startswith("0.9")
    with pytest.raises(InputError, match="not pairs"):
        compared([1.0], [])


def test_programs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_timed", lambda call, number: call())  # a program is what it takes
    order: list[str] = []

    def program(name: str, seconds: float) -> Callable[[], float]:
        return lambda: order.append(name) or seconds  # type: ignore[func-returns-value]

    found = in_turn(program("a", 4e-3), program("b", 1e-3), pairs=12)
    assert found.is_faster
    assert found.ratio == pytest.approx(0.25)
    assert found.pairs == 12
    assert "".join(order[4:]) == "baab" * 6
    assert in_turn(program("a", 1e-3), program("b", 1e-3), pairs=1000, seconds=0).pairs == 8
