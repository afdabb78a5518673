"""oneDNN programs as data: values and operations, in order.

Artifacts contain them; this module does not call the library.

    values      0: input [1, 3, 224, 224]   1: constant [64, 3, 7, 7]   2: [1, 64, 112, 112]   …
    operations  convolution 0, 1 -> 2, strides …, then relu
    results     2
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json
from tilewright.base.nd import aligned_empty

Array = np.ndarray[Any, Any]
_MAGIC: Final = b"TWDNNL01"
_HEAD: Final = struct.Struct("<8sQ")
INPUT, CONSTANT, MADE = "input", "constant", "made"
KINDS: Final = frozenset(
    {
        "convolution", "deconvolution", "inner_product", "matmul", "pool", "softmax", "eltwise", "binary", "concat",
        "layer_norm", "reshape", "transpose"
    })


@dataclass(slots=True)
class Value:
    """A float32 tensor with the axes of the graph. A constant has its `data`."""

    shape: tuple[int, ...]
    kind: str = MADE
    data: Array | None = None

    @property
    def nbytes(self) -> int:
        return 4 * math.prod(self.shape)


@dataclass(slots=True)
class Operation:
    """One primitive: `kind`, its input values, its output value, its attributes, and post-ops on the result.

    A post-op is `["eltwise", name, alpha, beta]`, `["sum", value]`, or `["binary", name, value]`.
    """

    kind: str
    inputs: list[int]
    output: int
    attrs: dict[str, Any] = field(default_factory=dict)
    post: list[list[Any]] = field(default_factory=list)

    def reads(self) -> list[int]:
        """All values that it reads, including those of post-ops."""
        return [*self.inputs, *(p[-1] for p in self.post if p[0] != "eltwise")]


@dataclass(slots=True)
class Program:
    """The function `symbol`: its inputs are the first values, in order."""

    symbol: str
    values: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> list[int]:
        return [k for k, v in enumerate(self.values) if v.kind == INPUT]

    def add(self, shape: Sequence[int], kind: str = MADE, data: Array | None = None) -> int:
        """Add a value; return its number."""
        self.values.append(Value(tuple(shape), kind, data))
        return len(self.values) - 1

    def to_bytes(self) -> bytes:
        """Return the program and its constants as bytes."""
        head = json.dumps({
            "symbol": self.symbol,
            "values": [[list(v.shape), v.kind] for v in self.values],
            "operations": [[o.kind, o.inputs, o.output, o.attrs, o.post] for o in self.operations],
            "results": self.results,
        }, separators=(",", ":")).encode()
        constants = [v.data for v in self.values if v.data is not None]
        return b"".join(
            [_HEAD.pack(_MAGIC, len(head)), head, *(np.ascontiguousarray(c, np.float32).tobytes() for c in constants)])

    @staticmethod
    def from_bytes(blob: bytes) -> Program:
        """Return the program that `to_bytes` encoded; raises `ArtifactError` for other data."""
        if len(blob) < _HEAD.size or blob[:8] != _MAGIC:
            raise ArtifactError(
                "these bytes are not a program for oneDNN of this version; compile the model again", code="TW0918")
        end = _HEAD.size + _HEAD.unpack_from(blob)[1]
        try:
            content = read_json(blob[_HEAD.size : end])
            made = Program(str(content["symbol"]))
            for shape, kind in content["values"]:
                made.values.append(Value(tuple(_count(n) for n in shape), str(kind)))
            made.operations = [
                Operation(str(kind), list(inputs), output, dict(attrs), list(post))
                for kind, inputs, output, attrs, post in content["operations"]]
            made.results = list(content["results"])
            made._check()
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"a program for oneDNN is damaged ({error!r}); compile the model again", code="TW0918"
            ) from error
        made._take_constants(memoryview(blob)[end:])
        return made

    def _check(self) -> None:
        """Raise `ValueError` for a number that is not a value, or a value that is not yet defined."""
        known = {k for k, v in enumerate(self.values) if v.kind != MADE}
        for o in self.operations:
            if o.kind not in KINDS:
                raise ValueError(f"unknown operation {o.kind}")
            if not known.issuperset(o.reads()) or o.output in known or o.output not in range(len(self.values)):
                raise ValueError(f"{o.kind} {o.inputs} -> {o.output}")
            known.add(o.output)
        if not known.issuperset(self.results) or not self.results:
            raise ValueError(f"results {self.results}")

    def _take_constants(self, data: memoryview) -> None:
        constants = [v for v in self.values if v.kind == CONSTANT]
        if len(data) != sum(v.nbytes for v in constants):
            raise ArtifactError("a program for oneDNN is truncated; compile the model again", code="TW0918")
        begin = 0
        for v in constants:
            v.data = aligned_empty(v.shape, "float32")
            v.data.reshape(-1)[...] = np.frombuffer(data, np.float32, math.prod(v.shape), begin)
            begin += v.nbytes


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not a size")
    return value
