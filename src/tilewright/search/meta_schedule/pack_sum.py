"""Training data for boosted trees in which the predictions of several rows add up, for xgboost as TVM uses it.

    data = PackSum(xs=[rows of candidate 0, rows of candidate 1, …], ys=scores)
    xgboost.train(config, data.dmatrix, obj=lambda pred, _: data.obj_square_error(pred), callbacks=[…])

`XGBModel` of this package adds up the rows instead, and needs no xgboost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import OptionError

Array = np.ndarray[Any, Any]
Metric = Callable[[Array, Any], tuple[str, float]]


class PackSum:
    """Rows of candidates: `xs` has an array float32 [rows, features] for each, `ys` their scores.

    Raises `OptionError` unless there is a score for each candidate.
    """

    def __init__(self, xs: Sequence[Array], ys: Array | None = None) -> None:
        self.ids = np.repeat(np.arange(len(xs)), [len(x) for x in xs])
        """The candidate of each row."""
        self.ys = None if ys is None else np.asarray(ys, np.float64)
        if self.ys is not None and len(self.ys) != len(xs):
            raise OptionError(f"there are {len(xs)} candidates, but {len(self.ys)} scores", code="TW1104")
        self.count = len(xs)
        self._rows = np.concatenate(xs, axis=0) if len(xs) else np.zeros((0, 1), np.float32)

    @property
    def dmatrix(self) -> Any:
        """The rows as `xgboost.DMatrix`; each row has the score of its candidate as its label."""
        import xgboost

        return xgboost.DMatrix(data=self._rows, label=None if self.ys is None else self.ys[self.ids])

    def predict_with_score(self, pred: Array) -> Array:
        """Return the predictions of the candidates, for those of the rows."""
        return np.bincount(self.ids, weights=pred, minlength=self.count)

    def obj_square_error(self, ys_pred: Array) -> tuple[Array, Array]:
        """Return the gradient and the second derivative of half the squared error, for each row."""
        off = (self.predict_with_score(ys_pred) - self._scores())[self.ids]
        return off, np.ones_like(off)

    def rmse(self, ys_pred: Array) -> tuple[str, float]:
        """Return the root of the mean squared error of the candidates, with its name."""
        return "p-rmse", float(np.sqrt(np.mean((self.predict_with_score(ys_pred) - self._scores()) ** 2)))

    def average_peak_score(self, ys_pred: Array, n: int) -> tuple[str, float]:
        """Return how good the best of the first k candidates in the predicted order is, as a part of the best of all,
        on average over k up to n, with its name."""
        scores = self._scores()
        picked = scores[np.argsort(-self.predict_with_score(ys_pred), kind="stable")][:n]
        wanted = np.maximum(np.max(scores, initial=0.0), 1e-12)
        return f"a-peak@{n}", float(np.mean(np.maximum.accumulate(picked) / wanted))

    def _scores(self) -> Array:
        if self.ys is None:
            raise OptionError("a PackSum without scores (ys) only predicts", code="TW1108")
        return self.ys


def custom_callback(
    early_stopping_rounds: int, verbose_eval: int, fevals: Sequence[Metric], evals: Sequence[tuple[Any, str]],
    focused_metric: str = "tr-p-rmse", cvfolds: Any = None,
) -> Any:
    """Return a callback of `xgboost.train` that evaluates metrics on named data after each round.

    Training ends once `focused_metric`, the name of the data and of a metric, has not fallen for
    `early_stopping_rounds` rounds. Metrics are printed every `verbose_eval` rounds; 0 prints none. Raises `OptionError`
    for folds of `xgboost.cv`.
    """
    from xgboost.callback import TrainingCallback

    if cvfolds is not None:
        raise OptionError("custom_callback is for xgboost.train, not for the folds of xgboost.cv", code="TW1103")

    class EarlyStop(TrainingCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.best, self.best_round = float("inf"), 0

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            found = {}
            for data, name in evals:
                pred = model.predict(data)
                found.update({f"{name}-{key}": value for key, value in (f(pred, data) for f in fevals)})
            if verbose_eval and epoch % verbose_eval == 0:
                print(f"[{epoch}]", *(f"{key}: {value:.6g}" for key, value in found.items()))
            if focused_metric not in found:
                raise OptionError(
                    f"there is no metric '{focused_metric}'; there are {', '.join(found)}", code="TW1103")
            if found[focused_metric] < self.best:
                self.best, self.best_round = found[focused_metric], epoch
            return epoch - self.best_round >= early_stopping_rounds

    return EarlyStop()
