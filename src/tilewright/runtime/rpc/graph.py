"""Models on a device for TVM's `GraphModule`.

    remote.upload("net.so")
    module = graph_executor.GraphModule(remote.load_module("net.so")["default"](remote.cpu(0)))
    module.set_input("x", x)
    module.run()
    print(module.get_output(0), module.benchmark(remote.cpu(0), repeat=3))      # times of the device

The arrays of the inputs and outputs stay on this machine; each run sends the inputs and returns the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import Device, NDArray
from tilewright.runtime.benchmark import USUAL, BenchmarkResult, Pace
from tilewright.runtime.module import Session
from tilewright.runtime.rpc.models import RemoteModel

if TYPE_CHECKING:
    from tilewright.runtime.rpc.client import RPCSession


class RemoteFactory:
    """A model that was uploaded to a device: `factory["default"](device)` is its session for `GraphModule`."""

    def __init__(self, session: RPCSession, name: str) -> None:
        self._session, self._name = session, name
        self._model = RemoteModel(session, name)

    def __getitem__(self, name: str) -> Callable[..., RemoteSession]:
        """Return the function that makes sessions. Raises `InputError` for another name than "default"."""
        if name != "default":
            raise InputError(
                f"there is no function '{name}' of the model '{self._name}' on the device; there is 'default', a "
                "function of the device", code="TW0707")
        return lambda *devices: RemoteSession(self._model, *devices)

    get_function = __getitem__

    def __repr__(self) -> str:
        return f"RemoteFactory({self._name} on {self._session.machine})"


class _Run:
    """A model as sessions call it: arrays by position, and results in given arrays."""

    def __init__(self, model: RemoteModel) -> None:
        self.model, self.inputs, self.outputs = model, model.inputs, model.outputs

    def __call__(self, *arrays: NDArray, out: Sequence[NDArray]) -> None:
        for place, answer in zip(out, self.model(self.named(arrays)), strict=True):
            place.copyfrom(answer)

    def named(self, arrays: Sequence[NDArray]) -> dict[str, np.ndarray[Any, Any]]:
        """Return arrays by the names of the inputs."""
        return {t.name: x.numpy() for t, x in zip(self.inputs, arrays, strict=True)}


class RemoteSession(Session):
    """A model on a device, with arrays of its inputs and outputs on this machine. Times are those of the device."""

    def __init__(self, model: RemoteModel, device: Device) -> None:
        self._run = _Run(model)
        super().__init__(self._run, device)  # type: ignore[arg-type]

    def benchmark(
        self, repeat: int, number: int, min_repeat_ms: float, end_to_end: bool, pace: Pace = USUAL
    ) -> BenchmarkResult:
        """Time runs on the device. Raises `InputError` for pauses between them, which a device does not make."""
        if pace != USUAL:
            raise InputError(
                "runs on a device are timed without pauses; omit cooldown_interval_ms and the options beside it",
                code="TW0717")
        given = self._run.named(self.inputs)
        _, times, _ = self._run.model.run(given, repeat, number, end_to_end, min_repeat_ms=min_repeat_ms)
        assert times is not None
        return times
