"""Whole models on a device. The library is sent once, the inputs with each run. `RemoteModel` is the client's part; the
functions run in the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.types import DataType
from tilewright.runtime.artifact import load_executable
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.rpc.arrays import array_of
from tilewright.runtime.rpc.files import present
from tilewright.runtime.wire import Message

if TYPE_CHECKING:
    from tilewright.runtime.rpc.client import RPCSession

Array = np.ndarray[Any, Any]
Answer = tuple[Message, list[bytes]]
_HERE: Final = "tilewright.runtime.rpc.models"
LOAD, RUN = f"{_HERE}:load_model", f"{_HERE}:run_model"
_LONGEST: Final = 600.0
"""Largest number of seconds for a run with its repetitions."""
_MODELS: Final[list[Any]] = []


class RemoteModel:
    """A compiled model on a device: `RemoteModel(session, "mod.so", library)({"x": array})`."""

    def __init__(self, session: RPCSession, name: str, library: bytes | None = None) -> None:
        """`library` is a saved model: `.so`, or `.tar` if the device has the compiler. Without it, `name` is the file
        of a model that was uploaded. Raises `WorkerError` if it does not run."""
        if library is not None:
            session.upload(library, name)
        self._session = session
        found, _ = session.call(LOAD, {"name": name}, (), _LONGEST)
        self._number = found["model"]
        self.inputs, self.outputs = (
            tuple(TensorInfo(n, tuple(shape), DataType(dtype)) for n, dtype, shape in found[part])
            for part in ("inputs", "outputs"))
        """Name, shape and dtype of each input and output."""

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs."""
        return self.run(inputs)[0]

    def run(
        self, inputs: Mapping[str, Array], repeat: int = 0, number: int = 1, end_to_end: bool = False,
        profile: bool = False, min_repeat_ms: float = 0,
    ) -> tuple[list[Array], BenchmarkResult | None, str]:
        """Return the outputs, with `repeat` the times of that many measurements on the device, each of `number` runs
        and at least `min_repeat_ms`, and with `profile` the times of the steps."""
        described, pieces = _packed(
            [(i.name, np.ascontiguousarray(inputs[i.name], i.dtype.numpy())) for i in self.inputs])
        message = {
            "model": self._number, "inputs": described, "repeat": repeat, "number": number, "end_to_end": end_to_end,
            "profile": profile, "min_repeat_ms": min_repeat_ms
        }
        found, got = self._session.call(RUN, message, pieces, _LONGEST)
        times = BenchmarkResult(tuple(found["times"])) if repeat else None
        return [x for _, x in _unpacked(found["outputs"], got)], times, str(found["profile"])


def load_model(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Load the uploaded model `message["name"]`; return `{"model": number, "inputs": [[name, dtype, shape]]}`, and
    the same of "outputs"."""
    made = load_executable(present(message["name"]))
    if any(i.is_open or i.dtype.numpy().kind == "O" for i in made.inputs):
        raise InputError(
            "models with inputs of dynamic shape or of strings do not run on devices; compile for fixed shapes",
            code="TW1206")
    _MODELS.append(made)
    inputs, outputs = (
        [[i.name, str(i.dtype), list(i.shape)] for i in part] for part in (made.inputs, made.outputs))
    return {"model": len(_MODELS) - 1, "inputs": inputs, "outputs": outputs}, []


def run_model(message: Message, pieces: Sequence[bytes]) -> Answer:
    """Run the model on `message["inputs"]` with the elements `pieces`. Return `{"outputs", "times", "profile"}`, and
    the elements of the outputs."""
    number = message["model"]
    if not isinstance(number, int) or not 0 <= number < len(_MODELS):
        raise InputError(
            "the session has no such model; its process was replaced since it was loaded: load it again", code="TW1206")
    model, inputs = _MODELS[number], dict(_unpacked(message["inputs"], pieces))
    answer = model(inputs)
    outputs, made = _packed([("", np.asarray(x)) for x in (answer if isinstance(answer, (tuple, list)) else (answer,))])
    times: Sequence[float] = ()
    if message["repeat"]:
        times = model.benchmark(
            inputs, repeat=message["repeat"], number=message["number"], end_to_end=message["end_to_end"],
            min_repeat_ms=message.get("min_repeat_ms", 0)
        ).results
    profile = str(model.profile(inputs, number=message["number"])) if message["profile"] else ""
    return {"outputs": outputs, "times": list(times), "profile": profile}, made


def _packed(arrays: Sequence[tuple[str, Array]]) -> tuple[list[Any], list[bytes]]:
    return (
        [[name, str(DataType(x.dtype)), list(x.shape)] for name, x in arrays],
        [np.ascontiguousarray(x).tobytes() for _, x in arrays]
    )


def _unpacked(described: Sequence[Any], pieces: Sequence[bytes]) -> list[tuple[str, Array]]:
    return [
        (str(name), array_of(dtype, shape, data)) for (name, dtype, shape), data in zip(described, pieces, strict=True)]
