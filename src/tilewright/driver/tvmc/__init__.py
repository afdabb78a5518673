"""The field's `tvmc`: load a model, compile it to a package, run the package; from Python, and as `python -m tilewright.driver.tvmc`.

    model = tvmc.load("model.onnx")
    package = tvmc.compile(model, target="llvm", package_path="model.tar")
    result = tvmc.run(package, device="cpu")
    print(result)
"""

from __future__ import annotations

from tilewright.driver.tvmc.compiler import compile_model as compile  # the field's name
from tilewright.driver.tvmc.model import TVMCModel, load_model
from tilewright.driver.tvmc.model import load_model as load
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.driver.tvmc.result import TVMCResult
from tilewright.driver.tvmc.runner import run_module
from tilewright.driver.tvmc.runner import run_module as run
from tilewright.errors import CompileError as TVMCException
from tilewright.errors import PackageError as TVMCImportError

__all__ = ["TVMCException", "TVMCImportError", "TVMCModel", "TVMCPackage", "TVMCResult", "compile", "load", "load_model", "run", "run_module"]
