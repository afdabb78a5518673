"""Tuners: how the configurations to measure are chosen. The names of the field."""

from tilewright.search.autotvm import callback
from tilewright.search.autotvm.tuner.droplet_tuner import DropletTuner
from tilewright.search.autotvm.tuner.ga_tuner import GATuner
from tilewright.search.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from tilewright.search.autotvm.tuner.names import TUNERS, get_tuner
from tilewright.search.autotvm.tuner.tuner import Tuner
from tilewright.search.autotvm.tuner.xgboost_tuner import XGBTuner

__all__ = ["TUNERS", "DropletTuner", "GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner", "callback", "get_tuner"]
