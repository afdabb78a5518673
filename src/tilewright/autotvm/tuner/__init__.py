"""Tuners: how the configurations to measure are chosen. The names of the field."""

from tilewright.autotvm import callback
from tilewright.autotvm.tuner.droplet_tuner import DropletTuner
from tilewright.autotvm.tuner.ga_tuner import GATuner
from tilewright.autotvm.tuner.index_based_tuner import GridSearchTuner, RandomTuner
from tilewright.autotvm.tuner.names import TUNERS, get_tuner
from tilewright.autotvm.tuner.tuner import Tuner
from tilewright.autotvm.tuner.xgboost_tuner import XGBTuner

__all__ = ["TUNERS", "DropletTuner", "GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner", "callback", "get_tuner"]
