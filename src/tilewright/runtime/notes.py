"""Notes on a step of a program: its number of operations and bytes, and the values that it computes. For profilers and
debuggers; runs do not need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.types import DataType
from tilewright.runtime.program import HostValue, value_from_json, value_to_json


@dataclass(frozen=True, slots=True)
class Note:
    """Of one step, in a program of equal parts for one of them.

    `operators` are the names of what was fused, in order; `operations` the additions, multiplications and so on that
    the graph asks for, a multiply-add being two; `dtype` the type of the numbers that are multiplied; `reads` the bytes
    of values and inputs that it reads, `constants` those of constants.
    """

    operators: tuple[str, ...]
    operations: int
    dtype: DataType
    reads: int
    constants: int
    outputs: tuple[HostValue, ...]

    @property
    def writes(self) -> int:
        """The bytes of the results."""
        total = 0
        for value in self.outputs:
            count = value.dtype.itemsize
            for d in value.shape:
                count *= d
            total += count
        return total

    @property
    def nbytes(self) -> int:
        """The bytes that the step has to move at least."""
        return self.reads + self.constants + self.writes

    def to_json(self) -> list[Any]:
        return [
            list(self.operators), self.operations, self.dtype, self.reads, self.constants,
            [*map(value_to_json, self.outputs)]
        ]

    @staticmethod
    def from_json(fields: Any) -> Note:
        """Raises `ValueError`, `TypeError` or `ArtifactError` for what `to_json` does not write."""
        operators, operations, dtype, reads, constants, outputs = fields
        numbers = (operations, reads, constants)
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"{fields!r} is no note of a step")
        return Note(
            tuple(map(str, operators)), operations, DataType(str(dtype)), reads, constants,
            tuple(map(value_from_json, outputs)))
