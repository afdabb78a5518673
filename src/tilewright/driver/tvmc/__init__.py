"""TVM's `tvmc`: loads, tunes and compiles a model, and runs the package, from Python or the command line.

    model = tvmc.load("model.onnx")
    records = tvmc.tune(model, target="llvm", tuning_records="records.json")    # for compile(…, tuning_records=records)
    package = tvmc.compile(model, target="llvm", package_path="model.tar")
    result = tvmc.run(package, device="cpu")
    print(result)
"""

from __future__ import annotations

from tilewright.base.errors import CompileError as TVMCException
from tilewright.base.errors import PackageError as TVMCImportError
from tilewright.driver.tvmc import (
    autotuner,
    compiler,
    composite_target,
    config_options,
    frontends,
    pass_config,
    pass_list,
    registry,
    result_utils,
    runner,
    shape_parser,
    target,
    tracker,
    transform,
    workspace_pools,
)
from tilewright.driver.tvmc.autotuner import tune_model
from tilewright.driver.tvmc.autotuner import tune_model as tune
from tilewright.driver.tvmc.compiler import compile_model as compile  # TVM's name
from tilewright.driver.tvmc.model import TVMCModel, load_model
from tilewright.driver.tvmc.model import load_model as load
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.result import TVMCResult
from tilewright.driver.tvmc.runner import run_module
from tilewright.driver.tvmc.runner import run_module as run

__all__ = [
    "TVMCException", "TVMCImportError", "TVMCModel", "TVMCPackage", "TVMCResult", "autotuner", "compile", "compiler",
    "composite_target", "config_options", "frontends", "load", "load_model", "pass_config", "pass_list", "registry",
    "result_utils", "run", "run_module", "runner", "shape_parser", "target", "tracker", "transform", "tune",
    "tune_model", "workspace_pools",
]
