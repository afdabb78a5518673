"""TVM's `tvm.contrib.torch`: TVMScript and compiled models as modules of PyTorch.

    @as_torch
    @T.prim_func
    def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")) -> None: ...

    double(a, b)                                 writes the tensor b
    optimize_torch(model, example)(x)            a model, compiled for this machine

Tensors are on the CPU. No gradients flow through these modules.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilewright.backends.targets.target import Target
from tilewright.base import nd
from tilewright.base.errors import OptionError
from tilewright.compiler.build import build as build_model
from tilewright.compiler.functions import build
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.frontend.pytorch.model import from_pytorch
from tilewright.runtime.module import FactoryModule, load_module
from tilewright.tir.stmt import PrimFunc

__all__ = ["OperatorModuleWrapper", "as_torch", "optimize_torch"]


class OperatorModuleWrapper(torch.nn.Module):  # type: ignore[misc]
    """A function over buffers as a module of PyTorch, which writes into the tensors that it is given."""

    def __init__(self, module: PrimFunc | IRModule) -> None:
        super().__init__()
        self.ir_module = module if isinstance(module, IRModule) else IRModule({"main": module})
        self._function: Any = None

    def tune(self, target: str | Target | None = None, **options: Any) -> None:
        """Build the function for `target`, by default for this machine.

        The loops stay as they are written, because schedules of TVMScript are not searched: `options`, TVM's limits of
        the search, change nothing.
        """
        self._function = build(self.ir_module, target=Target(target or "llvm"))

    def forward(self, *tensors: Any) -> None:
        """Call the function with tensors in the order of its parameters."""
        if self._function is None:
            self.tune()
        self._function(*map(nd.from_dlpack, tensors))

    def script(self) -> str:
        """Return the functions as TVMScript."""
        return "\n".join(function.script() for function in self.ir_module.functions.values())


def as_torch(func: PrimFunc | IRModule) -> OperatorModuleWrapper:
    """Make a function of TVMScript a module of PyTorch. Raises `OptionError` for other values."""
    if not isinstance(func, PrimFunc | IRModule):
        raise OptionError(f"as_torch takes a T.prim_func or an IRModule, not a {type(func).__name__}", code="TW0215")
    return OperatorModuleWrapper(func)


class CompiledModel(torch.nn.Module):  # type: ignore[misc]
    """A compiled model as a module of PyTorch, for tensors of the shapes of its examples. It can be pickled."""

    def __init__(self, library: FactoryModule) -> None:
        super().__init__()
        self._library = library

    def forward(self, *tensors: Any) -> Any:
        """Return the output, or a tuple of several."""
        session = self._library.session(nd.Device())
        for index, tensor in enumerate(tensors):
            session.set_input(index, np.ascontiguousarray(tensor.detach().numpy()))
        session.run()
        outputs = [torch.from_numpy(x.numpy()) for x in session.outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            return _loaded, (self._library.export_library(Path(folder) / "model.tar").read_bytes(), )


def _loaded(data: bytes) -> CompiledModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tar"
        path.write_bytes(data)
        library = load_module(path)
    assert isinstance(library, FactoryModule)
    return CompiledModel(library)


def optimize_torch(
    func: Any, example_inputs: Any, tuning_config: Any = None, target: str | Target | None = None,
    work_dir: str | None = None, **options: Any
) -> CompiledModel:
    """Compile a module or function of PyTorch for the shapes of `example_inputs`, a tensor or several.

    `tuning_config`, `work_dir` and `options`, which limit TVM's search, change nothing: the schedules are those of the
    compiler.
    """
    examples = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs, )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(func, examples)
    mod, params = from_pytorch(traced, [(f"inp_{k}", tuple(x.shape)) for k, x in enumerate(examples)])
    with PassContext(opt_level=3):
        return CompiledModel(build_model(mod, target or "llvm", params=params))
