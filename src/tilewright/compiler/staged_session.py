"""Session of `GraphModule` on a program in stages: inputs may have dynamic sizes, outputs have sizes once it has
run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import Device, NDArray, array, as_numpy, empty
from tilewright.compiler.staged import Stages
from tilewright.runtime.module import Session
from tilewright.runtime.program import TensorInfo


class StagedSession(Session):
    """A runnable copy of the program. An input of dynamic size has the shape of the value that was set last."""

    def __init__(self, stages: Stages, device: Device, outputs: int) -> None:
        self.stages, self.device, self._count = stages, device, outputs
        self.inputs = [
            empty(tuple(d if isinstance(d, int) else 0 for d in dims), dtype, device) for _, dims, dtype,
            _ in stages.signature]
        for x in self.inputs:
            x.copyfrom(np.zeros(x.shape))
        self.outputs: list[NDArray] = []

    @property
    def input_infos(self) -> Sequence[TensorInfo]:
        """Names and dtypes of the inputs, and the shapes of their values."""
        return [
            TensorInfo(name, x.shape, dtype) for x,
            (name, _, dtype, _) in zip(self.inputs, self.stages.signature, strict=True)]

    @property
    def output_infos(self) -> Sequence[TensorInfo]:
        """Outputs of the last run. Raises `InputError` before the first run."""
        if not self.outputs:
            raise InputError(
                "the sizes of the outputs are only known when the model has run; call run() first", code="TW0708")
        return [TensorInfo(f"output{k}", y.shape, y.dtype) for k, y in enumerate(self.outputs)]

    @property
    def output_count(self) -> int:
        return self._count

    def set_input(self, index: int, value: object) -> None:
        """Copy into an input array, or into a new one if the size is dynamic and has changed."""
        _, dims, dtype, _ = self.stages.signature[index]
        shape = as_numpy(value).shape
        if shape != self.inputs[index].shape and len(shape) == len(dims) and all(
            not isinstance(d, int) or d == s for d, s in zip(dims, shape, strict=True)
        ):
            self.inputs[index] = empty(shape, dtype, self.device)
        self.inputs[index].copyfrom(value)

    def run(self) -> None:
        """Run the program on the input arrays; outputs are new arrays."""
        found = self.stages(*[x.numpy() for x in self.inputs])
        self.outputs = [array(y, self.device) for y in (found if isinstance(found, tuple) else (found,))]
