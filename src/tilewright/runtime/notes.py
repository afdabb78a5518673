"""Notes on the steps of a program for profilers and debuggers: operations, bytes and results. Runs do not need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.types import DataType
from tilewright.runtime.program import HostValue, value_from_json, value_to_json


@dataclass(frozen=True, slots=True)
class Note:
    """Properties of a step; in a program with equal parts, of one part.

    `operators` are the names of the fused operators, in order. `operations` is the number of arithmetic operations of
    the graph, a multiply-add counting as two; `dtype` the type of the multiplied numbers. `reads` are the bytes read
    from values and inputs, `constants` those of constants.
    """

    operators: tuple[str, ...]
    operations: int
    dtype: DataType
    reads: int
    constants: int
    outputs: tuple[HostValue, ...]

    @property
    def writes(self) -> int:
        """Bytes of the results."""
        total = 0
        for value in self.outputs:
            count = value.dtype.itemsize
            for d in value.shape:
                count *= d
            total += count
        return total

    @property
    def nbytes(self) -> int:
        """Minimum number of bytes that the step moves."""
        return self.reads + self.constants + self.writes

    def to_json(self) -> list[Any]:
        return [
            list(self.operators), self.operations, self.dtype, self.reads, self.constants,
            [*map(value_to_json, self.outputs)]
        ]

    @staticmethod
    def from_json(fields: Any) -> Note:
        """Return the note that `to_json` encoded. Raises `ValueError`, `TypeError` or `ArtifactError` for other data.
        """
        operators, operations, dtype, reads, constants, outputs = fields
        numbers = (operations, reads, constants)
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"{fields!r} is not a note of a step")
        return Note(
            tuple(map(str, operators)), operations, DataType(str(dtype)), reads, constants,
            tuple(map(value_from_json, outputs)))
