"""Models on a device for TVM's `GraphModule`.

    remote.upload("net.so")
    module = graph_executor.GraphModule(remote.load_module("net.so")["default"](remote.cpu(0)))
    module.set_input("x", x)
    module.run()
    print(module.get_output(0), module.benchmark(remote.cpu(0), repeat=3))      # times of the device

    machine = VirtualMachine(remote.load_module("net.so"), remote.cpu(0))
    print(machine.invoke("main", x))

The arrays of the inputs and outputs stay on this machine; each run sends the inputs and returns the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import Device, as_numpy
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

    @property
    def executable(self) -> RemoteExecutable:
        """The model as a function of arrays, as `runtime.vm.VirtualMachine` calls it."""
        return RemoteExecutable(self._model)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return [t.name for t in self._model.inputs]

    def __repr__(self) -> str:
        return f"RemoteFactory({self._name} on {self._session.machine})"


class RemoteExecutable:
    """A model on a device, called with arrays by position."""

    def __init__(self, model: RemoteModel) -> None:
        self.model, self.inputs, self.outputs = model, model.inputs, model.outputs

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Return the outputs, one array or a tuple; or write them into `out`, an array or a list of arrays."""
        found = self.model(self.named(arrays))
        if out is None:
            return found[0] if len(found) == 1 else tuple(found)
        places = out if isinstance(out, (list, tuple)) else [out]
        for place, answer in zip(places, found, strict=True):
            place.copyfrom(answer)
        return out

    def named(self, arrays: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return arrays by the names of the inputs. Raises `InputError` for another number of arrays."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"the model takes {len(self.inputs)} inputs, but {len(arrays)} are given", code="TW0701")
        return {t.name: as_numpy(x) for t, x in zip(self.inputs, arrays, strict=True)}

    def benchmark(self, *arrays: Any, repeat: int, number: int, min_repeat_ms: float = 0) -> BenchmarkResult:
        """Time calls on the device."""
        _, times, _ = self.model.run(self.named(arrays), repeat, number, min_repeat_ms=min_repeat_ms)
        assert times is not None
        return times


class RemoteSession(Session):
    """A model on a device, with arrays of its inputs and outputs on this machine. Times are those of the device."""

    def __init__(self, model: RemoteModel, device: Device) -> None:
        self._run = RemoteExecutable(model)
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
