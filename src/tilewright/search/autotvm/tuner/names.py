"""The names of tuners, as they are written on a command line."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.droplet_tuner import DropletTuner
from tilewright.search.autotvm.tuner.ga_tuner import GATuner
from tilewright.search.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from tilewright.search.autotvm.tuner.tuner import Tuner
from tilewright.search.autotvm.tuner.xgboost_tuner import XGBTuner

_SMALL: Final = 64
"""A space of so many configurations is looked through."""


def _boosted(loss: str, features: str) -> Callable[..., Tuner]:
    return lambda task, **options: XGBTuner(task, **{"loss_type": loss, "feature_type": features, **options})


def _suited(task: Task, **options: Any) -> Tuner:
    """Every configuration where there are few, else boosted trees over what is decided, which need no programs."""
    return GridSearchTuner(task, **{k: v for k, v in options.items() if k == "seed"}) if len(task.config_space) <= _SMALL else XGBTuner(
        task, **{"loss_type": "rank", "feature_type": "knob", "plan_size": 16, "model": "numpy", **options}
    )


TUNERS: Final[dict[str, Callable[..., Tuner]]] = {
    "auto": _suited,
    **{f"xgb{loss}{features}": _boosted(kind, features[1:] or "itervar") for (loss, kind), features in itertools.product(
        (("", "reg"), ("_rank", "rank"), ("_rank_binary", "rank-binary")), ("", "_knob", "_itervar", "_curve"),
    )},
    "ga": lambda task, **options: GATuner(task, **{"pop_size": 50, **options}),
    "random": RandomTuner,
    "gridsearch": GridSearchTuner,
    "droplet": DropletTuner,
}
"""Name -> what makes the tuner of a task."""


def get_tuner(name: str, task: Task, **options: Any) -> Tuner:
    """The tuner of a name for a task; raises `OptionError` for a name that there is not."""
    return tuner_named(name)(task, **options)


def tuner_named(name: str) -> Callable[..., Tuner]:
    """What makes tuners of a name; raises `OptionError` for one that there is not."""
    if name not in TUNERS:
        raise OptionError(f"Invalid tuner: {name}{nearest(name, TUNERS)}; the tuners are {', '.join(TUNERS)}", code="TW1103")
    return TUNERS[name]
