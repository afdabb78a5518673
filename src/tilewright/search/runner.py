"""Common parts of runners: timing options, results one by one, and the warning about noise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.closing import Closeable
from tilewright.base.errors import OptionError
from tilewright.runtime.trial import TrialOptions
from tilewright.search.measure import Built, Image, Measured, OnMeasured, failed

_LOG: Final = logging.getLogger(__name__)


class TrialRunner(Closeable):
    """Base class of runners, with the timing options."""

    def __init__(
        self, timeout: float, number: int, repeat: int, min_repeat_ms: float, cooldown_interval: float, flush: bool,
        noise: float,
    ) -> None:
        """Measure `repeat` costs of each candidate, each the mean of `number` calls or of enough to take
        `min_repeat_ms`.

        `timeout` and `cooldown_interval` (the pause after each trial) are in seconds. `flush`: empty the caches before
        each call. Costs whose spread exceeds `noise`, as a fraction of their median, are measured again. Raises
        `OptionError` or `InputError` for values out of range.
        """
        if timeout <= 0 or cooldown_interval < 0:
            raise OptionError(
                f"timeout={timeout} must be above 0 seconds, and cooldown_interval={cooldown_interval} at least 0",
                code="TW1110")
        self.options = TrialOptions(number, repeat, min_repeat_ms, flush, noise)
        self.timeout, self.cooldown_interval = timeout, cooldown_interval


def one_by_one(
    built: Sequence[Built], run: Callable[[Image, Image | None], Measured], on_measured: OnMeasured | None,
) -> list[Measured]:
    """Return one result for each, in order, from the trials of `run`; `on_measured` is called with each."""
    results = []
    for k, one in enumerate(built):
        measured = not_built(one) if one.image is None else with_build(run(one.image, one.reference), one)
        results.append(measured)
        if on_measured is not None:
            on_measured(k, measured)
    warn_of_noise(results)
    return results


def warn_of_noise(results: Sequence[Measured]) -> None:
    """Log a warning about noisy results."""
    noisy = [m.spread for m in results if m.noisy]
    if noisy:
        _LOG.warning(
            "the costs of %d of %d candidates are up to %.0f %% apart, also when measured again: other programs use "
            "this machine, or its clock changes", len(noisy), len(results), 100 * max(noisy))


def not_built(built: Built) -> Measured:
    """Return the result of a candidate without code."""
    return failed(built.error_no, built.error, built.seconds)


def with_build(measured: Measured, built: Built) -> Measured:
    """Return a result with the seconds and the digest of building added."""
    return replace(
        measured, all_cost=measured.all_cost + built.seconds, ir_hash=built.image.ir_hash if built.image else "")
