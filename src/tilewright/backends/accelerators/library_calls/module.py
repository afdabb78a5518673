"""A part of a network as calls of a library: the calls in order, their tensors, constants, and the C text.

It is saved as a line of JSON followed by the bytes of the constants. It needs no compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import ArtifactError, RunError
from tilewright.base.global_functions import get_global_func
from tilewright.base.json_reading import read_json
from tilewright.runtime.modules import CPart, ModuleNode

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a part: `kind` is input, constant, output or workspace; `place` is its number among those, or its
    byte offset in the workspace."""

    kind: str
    place: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Step:
    """One call: the name of the function, the numbers of its input and output tensors, its attributes, and its meaning
    as Relay text.

    The meaning takes the first `len(reads) - constants` of the input tensors; the others are inside it.
    """

    function: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    constants: int
    attributes: dict[str, Any]
    meaning: str


class LibraryModule(ModuleNode):
    """The calls of `library` for the part `symbol`."""

    type_key: ClassVar[str] = "library_calls"

    def __init__(
        self, library: str, symbol: str, tensors: Sequence[Tensor], steps: Sequence[Step], constants: Sequence[Array],
        workspace: int
    ) -> None:
        self.library, self.symbol, self.tensors, self.steps = library, symbol, tuple(tensors), tuple(steps)
        self.constants, self.workspace = tuple(constants), workspace

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the function that runs the calls with the registered `runtime.library.<library>`; it raises `RunError`
        if none is registered."""
        return self._run if name == self.symbol else None

    def _run(self, *arrays: Any) -> None:
        runner = get_global_func(f"runtime.library.{self.library}", allow_missing=True)
        if runner is None:
            raise RunError(
                f"'{self.symbol}' calls functions of {self.library}, which are not available: register "
                f"'runtime.library.{self.library}', or, for answers without the library, use "
                f"tilewright.backends.accelerators.library_calls.stand_in('{self.library}')",
                code="TW0913")
        runner(self, *arrays)

    def get_source(self) -> str:
        """Return the calls as a C file, which needs a library with the declared functions."""
        from tilewright.backends.accelerators.library_calls.c_text import c_text

        return c_text(self)

    def as_c(self) -> CPart:
        """Return the calls as a part of a model in C."""
        from tilewright.backends.accelerators.library_calls.c_text import HEAD, c_text, word

        types = HEAD.split("\n", 1)[1].strip()
        return CPart(word(self.symbol), types, c_text(self).replace(HEAD, ""), self.constants, self.workspace)

    def save_to_binary(self) -> bytes:
        head = {
            "library": self.library, "symbol": self.symbol, "workspace": self.workspace,
            "tensors": [asdict(t) for t in self.tensors],
            "steps": [asdict(s) for s in self.steps],
            "constants": [[str(c.dtype), list(c.shape)] for c in self.constants],
        }
        return b"\n".join(
            [json.dumps(head).encode(), b"".join(np.ascontiguousarray(c).tobytes() for c in self.constants)])

    @classmethod
    def load_from_binary(cls, blob: bytes) -> LibraryModule:
        line, _, data = bytes(blob).partition(b"\n")
        try:
            head = read_json(line)
            tensors = [Tensor(**{**t, "shape": tuple(t["shape"])}) for t in head["tensors"]]
            steps = [Step(**{**s, "reads": tuple(s["reads"]), "writes": tuple(s["writes"])}) for s in head["steps"]]
            constants, at = [], 0
            for dtype, shape in head["constants"]:
                count = int(np.prod(shape, dtype=np.int64))
                constants.append(np.frombuffer(data, dtype, count, at).reshape(shape))
                at += count * np.dtype(dtype).itemsize
            return cls(head["library"], head["symbol"], tensors, steps, constants, head["workspace"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"these are not calls of a library: {error}", code="TW0918") from error
