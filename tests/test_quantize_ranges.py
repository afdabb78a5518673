"""How ranges are chosen of distributions, against what each way means in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.relay.quantize.ranges import Distribution, Levels, divergence_of, least_error_of, percentile_of

RANDOM = np.random.default_rng(0)
SAMPLES = {
    "normal": RANDOM.standard_normal(40_000).astype(np.float32),
    "relu": np.maximum(RANDOM.standard_normal(40_000), 0).astype(np.float32),
    "laplace": RANDOM.laplace(size=40_000).astype(np.float32),
    "uniform": RANDOM.uniform(-3, 1, 40_000).astype(np.float32),
    "few": RANDOM.standard_normal(50).astype(np.float32),
    "small": (RANDOM.standard_normal(5_000) * 1e-6).astype(np.float32),
}


def counted(*parts: np.ndarray) -> Distribution:
    made = Distribution()
    for part in parts:
        made.add(part)
    return made


@pytest.mark.parametrize("name", SAMPLES)
def test_the_ends_are_exact_and_nothing_is_lost(name: str) -> None:
    x = SAMPLES[name]
    d = counted(*np.array_split(np.sort(np.abs(x)) * np.sign(x), 7))  # sorted: the range has to grow
    assert d.counts.sum() == x.size
    assert (d.least, d.greatest) == (
        float((np.sort(np.abs(x)) * np.sign(x)).min()), float((np.sort(np.abs(x)) * np.sign(x)).max())
    )
    assert d.most() <= d.range


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("part", [0.5, 0.99, 0.9999, 1.0])
def test_a_percentile_is_that_of_numpy(name: str, part: float) -> None:
    x = SAMPLES[name]
    wanted = np.quantile(np.abs(x), part, method="inverted_cdf")
    d = counted(x)
    assert abs(percentile_of(d, part) - wanted) <= d.range / 4096


@pytest.mark.parametrize("name", SAMPLES)
def test_the_least_error_is_that_of_all_cuts(name: str) -> None:
    x = SAMPLES[name].astype(np.float64)
    low, high = least_error_of(counted(SAMPLES[name]), Levels.between)

    def error(a: float, b: float) -> float:
        return float(np.mean((Levels.between(a, b).apply(x) - x) ** 2))

    best = min(error(x.min() * part, x.max() * part) for part in np.linspace(1, 0.25, 96))
    assert error(low, high) <= 1.05 * best


def divergence(x: np.ndarray, cut: float, bins: int = 2048, levels: int = 128) -> float:
    """The divergence of a cut as the presentation has it: the counts within, quantized to `levels` bins and spread
    again over those that are not empty."""
    most = float(np.abs(x).max())
    counts, _ = np.histogram(np.abs(x), bins, (0, most))
    counts = counts.astype(np.float64)
    counts[0] = counts[1]
    last = round(cut / most * bins)
    p = counts[:last].copy()
    p[-1] += counts[last:].sum()
    q = np.zeros(last)
    for level in range(levels):
        inside = np.flatnonzero(np.arange(last) * levels // last == level)
        there = inside[p[inside] > 0]
        q[there] = counts[inside].sum() / max(len(there), 1)
    p, q = p / p.sum(), q / q.sum()
    return float(sum(a * np.log(a / max(b, 1e-9)) for a, b in zip(p, q, strict=True) if a > 0))


@pytest.mark.parametrize("name", ["normal", "laplace", "relu"])
def test_the_least_divergence_is_as_good_as_that_of_any_cut(name: str) -> None:
    x = np.concatenate([SAMPLES[name], [np.float32(9)]])
    found = divergence_of(counted(x))
    best = min(divergence(x, cut) for cut in np.linspace(0.6, np.abs(x).max(), 40))
    assert divergence(x, found) <= best + 0.01
    assert found < 9 or name == "laplace"


def test_an_outlier_does_not_widen_the_range_for_all() -> None:
    x = np.append(SAMPLES["normal"], np.float32(100))
    d = counted(x)
    assert d.within(d.most())[1] == 100
    assert divergence_of(d) < 10
    assert percentile_of(d, 0.9999) < 5


def test_of_a_uniform_distribution_all_is_kept() -> None:
    d = counted(SAMPLES["uniform"])
    assert divergence_of(d) == pytest.approx(3, rel=0.01)
    assert least_error_of(d, Levels.between) == pytest.approx((-3, 1), rel=0.01)


def test_levels_have_zero_among_them() -> None:
    for low, high in ((-1.0, 3.0), (0.5, 2.0), (-2.0, -1.0), (0.0, 6.0), (-1e-9, 1.0)):
        levels = Levels.between(low, high)
        assert levels.low <= 0 <= levels.high
        assert levels.high - levels.low == 255
        np.testing.assert_array_equal(levels.apply(np.zeros(3, np.float32)), np.zeros(3))
        inside = np.linspace(min(low, 0), max(high, 0), 1000)
        assert np.abs(levels.apply(inside) - inside).max() <= 1.001 * float(levels.scale)
    assert (Levels.symmetric(2.54, 8).low, Levels.symmetric(2.54, 8).high) == (-127, 127)
    assert float(Levels.symmetric(2.54, 8).scale) == pytest.approx(0.02)


def test_a_value_that_is_always_zero_has_a_scale() -> None:
    d = counted(np.zeros(10, np.float32))
    assert divergence_of(d) == 0.0
    assert percentile_of(d, 0.9999) == 0.0
    assert float(Levels.between(*least_error_of(d, Levels.between)).scale) == 1.0
    d.add(np.asarray([-2.0, 1.0], np.float32))
    assert (d.most(), d.counts.sum()) == (2.0, 12)


def test_what_is_no_number_and_no_data_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="infinite or NaN for the calibration data"):
        Distribution().add(np.asarray([1, np.nan], np.float32))
    with pytest.raises(InputError, match="the calibration data are empty; give at least one input"):
        Distribution().most()
