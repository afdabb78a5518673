"""TVM's `tvm.meta_schedule.tir_integration`: tuning of loop programs."""

from tilewright.search.meta_schedule.tune import compile_tir, tune_tir

__all__ = ["compile_tir", "tune_tir"]
