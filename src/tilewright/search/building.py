"""Builds the image of a candidate in a worker process, and lowers candidates that only this process can lower."""

from __future__ import annotations

import io
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.compiler.functions import build as compile_functions
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import PassContext
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.wire import Message
from tilewright.search.measure import Candidate, MeasureErrorNo
from tilewright.tir.stmt import PrimFunc

BUILD: Final = "tilewright.search.building:build_image"
BuildFunc = Callable[[PrimFunc, str], FunctionModule]
"""Native functions of a loop program for a target."""


@dataclass(frozen=True, slots=True)
class Lowered(Candidate):
    """A candidate that was lowered by the process that made it."""

    key: str
    config: str
    target: str
    program: IRModule
    ranges_of: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    values_of: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    default_of: Candidate | None = None

    def lower(self) -> PrimFunc:
        (func,) = self.program.functions.values()
        assert isinstance(func, PrimFunc)
        return func

    def default(self) -> Candidate | None:
        return self.default_of

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return self.ranges_of

    def values(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return self.values_of

    @classmethod
    def of(cls, candidate: Candidate, with_default: bool = False) -> Lowered:
        """Lower a candidate here, and its default schedule if asked for; raises the errors of lowering."""
        func = candidate.lower()
        default = candidate.default() if with_default else None
        return cls(
            candidate.key, candidate.config, candidate.target, IRModule({func.name: func}), candidate.ranges(),
            candidate.values(), None if default is None else cls.of(default))


def pickled(value: Any) -> tuple[bytes, bool]:
    """Pickle `value`; return the bytes, and whether they refer to the running script, which other processes lack."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.of_script


def travelling(candidate: Candidate, build_func: BuildFunc, with_default: bool = False) -> bytes:
    """Pickle a candidate and a build function for another process; raises the errors of lowering.

    A candidate of the running script is lowered here. `with_default`: the other process asks for its default schedule.
    """
    data, of_script = pickled((candidate, build_func))
    return pickled((Lowered.of(candidate, with_default), build_func))[0] if of_script else data


class _Pickler(pickle.Pickler):
    """A pickler that notices references to definitions of the running script."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.of_script = False

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) or callable(value):
            self.of_script = self.of_script or getattr(value, "__module__", "") == "__main__"
        return NotImplemented


def default_build(func: PrimFunc, target: str) -> FunctionModule:
    """Build a loop program as `tvm.build` does."""
    return compile_functions(func, target=target)


def build_with_options(build: BuildFunc, options: Mapping[str, Any], func: PrimFunc, target: str) -> FunctionModule:
    """Call a build function under options of `PassContext`."""
    with PassContext(config=dict(options)):
        return build(func, target)


def build_image(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Lower and compile the candidate in `pieces[0]`; return the image, or `{"error_no", "error"}`."""
    start = time.perf_counter()
    try:
        candidate, build_func = pickle.loads(pieces[0])
        func = candidate.lower()
        if not isinstance(func, PrimFunc):
            name = type(candidate).__name__
            raise OptionError(
                f"{name}.lower() returns a {type(func).__name__}, but must return a PrimFunc", code="TW1110")
        values = {name: np.ascontiguousarray(value) for name, value in candidate.values().items()}
    except Exception as error:
        return _refused(MeasureErrorNo.INSTANTIATION_ERROR, error, start), []
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-image-") as folder:
            path = Path(folder) / f"code{message['form']}"
            build_func(func, candidate.target).export_library(path)
            image = path.read_bytes()
    except Exception as error:
        return _refused(MeasureErrorNo.COMPILE_HOST, error, start), []
    ranges = [[name, float(low), float(high)] for name, (low, high) in candidate.ranges().items()]
    described = [[name, str(DataType(value.dtype)), list(value.shape)] for name, value in values.items()]
    message = {
        "ir_hash": structural_hash(func), "values": described, "ranges": ranges, "seconds": time.perf_counter() - start
    }
    return message, [image, *(value.reshape(-1).view(np.uint8).tobytes() for value in values.values())]


def _refused(error_no: MeasureErrorNo, error: Exception, start: float) -> Message:
    return {
        "error_no": int(error_no), "error": f"{type(error).__name__}: {error}", "seconds": time.perf_counter() - start
    }
