"""Tuners: how the configurations to measure are chosen, and their names on a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.search.autotvm import callback
from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.droplet_tuner import DropletTuner
from tilewright.search.autotvm.tuner.ga_tuner import GATuner
from tilewright.search.autotvm.tuner.tuner import GridSearchTuner, RandomTuner, Tuner
from tilewright.search.autotvm.tuner.xgboost_tuner import XGBTuner

__all__ = [
    "TUNERS", "DropletTuner", "GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner", "callback", "get_tuner",
    "tuner_named",
]
_SMALL: Final = 64
"""Size of a space that "auto" searches exhaustively."""


def _boosted(loss: str, features: str) -> Callable[..., Tuner]:
    return lambda task, **options: XGBTuner(task, **{"loss_type": loss, "feature_type": features, **options})


def _auto(task: Task, **options: Any) -> Tuner:
    """Measure every configuration of a small space; else use boosted trees over the decisions."""
    if len(task.config_space) <= _SMALL:
        return GridSearchTuner(task, **{k: v for k, v in options.items() if k == "seed"})
    return XGBTuner(task, **{"loss_type": "rank", "feature_type": "knob", "plan_size": 16, "model": "numpy", **options})


TUNERS: Final[dict[str, Callable[..., Tuner]]] = {
    "auto": _auto,
    **{
        f"xgb{loss}{features}": _boosted(kind, features[1:] or "itervar")
        for loss, kind in (("", "reg"), ("_rank", "rank"), ("_rank_binary", "rank-binary"))
        for features in ("", "_knob", "_itervar", "_curve")},
    "ga": lambda task, **options: GATuner(task, **{"pop_size": 50, **options}),
    "random": RandomTuner,
    "gridsearch": GridSearchTuner,
    "droplet": DropletTuner,
}
"""Name -> function that makes the tuner of a task."""


def get_tuner(name: str, task: Task, **options: Any) -> Tuner:
    """Return the tuner of a name for a task. Raises `OptionError` for an unknown name."""
    return tuner_named(name)(task, **options)


def tuner_named(name: str) -> Callable[..., Tuner]:
    """Return the function that makes tuners of a name. Raises `OptionError` for an unknown one."""
    if name not in TUNERS:
        raise OptionError(
            f"Invalid tuner: {name}{nearest(name, TUNERS)}; the tuners are {', '.join(TUNERS)}", code="TW1103")
    return TUNERS[name]
