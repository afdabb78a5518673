"""What provokes each code of `catalogue/tuning.md`, in an empty folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tilewright import te
from tilewright.driver import tune
from tilewright.driver.tvmc.autotuner import Outcome
from tilewright.search import auto_scheduler, autotvm
from tilewright.search.auto_scheduler.transform_step import step_from_json
from tilewright.search.autotvm.task.task import TEMPLATES
from tilewright.search.cluster import ClusterBuilder
from tilewright.search.cost_model import CostModel
from tilewright.search.local import LocalBuilder


def tw1101() -> None:
    Path("records.json").write_text('{"x": 1}\n', encoding="utf-8")
    list(auto_scheduler.load_records("records.json"))


def tw1102() -> None:
    Path("records.json").touch()
    with autotvm.apply_history_best("records.json"):
        raise AssertionError


def tw1103() -> None:
    CostModel(kind="forest")


def tw1104() -> None:
    task: Any = SimpleNamespace(config_space=autotvm.ConfigSpace(), default_config=None)
    autotvm.tuner.GATuner(task, pop_size=1)


def tw1105() -> None:
    with mock.patch.dict(TEMPLATES, clear=True):
        autotvm.task.create("errors/example", (8,), "llvm")


def tw1106() -> None:
    space = autotvm.ConfigSpace()
    space.define_split("tile", te.var("n"), num_outputs=2)


def tw1107() -> None:
    autotvm.ConfigSpace().get(0)._define("tile", list)  # type: ignore[arg-type]


def tw1108() -> None:
    auto_scheduler.SearchTask(func="errors_example", args=(8,), target="llvm")


def tw1109() -> None:
    auto_scheduler.ComputeDAG([1, 2])  # type: ignore[list-item]


def tw1110() -> None:
    LocalBuilder(timeout=0)


def tw1111() -> None:
    with mock.patch.dict(sys.modules, {"distributed": None}):
        ClusterBuilder("tcp://10.0.0.7:8786")._connected()


def tw1112() -> None:
    auto_scheduler.TaskScheduler([])


def tw1113() -> None:
    step_from_json(["XX", 0, 1])


def tw1114() -> None:
    tune.measurable("npu, llvm")


def tw1115() -> None:
    autotvm.callback.log_to_file("records.log", protocol="pickle")



def tw1116() -> None:
    outcome = Outcome()
    outcome(None, [], [SimpleNamespace(error_no=7, error="the device 'board' has gone")])
    outcome.check()
