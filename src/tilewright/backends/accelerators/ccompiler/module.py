"""A function as C text, and its machine code: saved as a line of JSON, the constants, and the object file."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json
from tilewright.base.nd import NDArray, aligned_empty, as_numpy
from tilewright.runtime import compiler_hooks
from tilewright.runtime.modules import ModuleNode, register_module

Array = np.ndarray[Any, Any]
_SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@register_module
class CompiledCModule(ModuleNode):
    """The function `symbol(void* const* args, void* const* constants, void* workspace)`; `args` are the inputs, then
    the outputs."""

    type_key: ClassVar[str] = "c_source"

    def __init__(
        self, symbol: str, entry: str, text: str, image: bytes, constants: Sequence[Array], workspace: int
    ) -> None:
        """`entry` is the name of the function in C, `image` the object file of `text`, `workspace` a number of bytes.
        """
        self.symbol, self._entry, self._text, self._image = symbol, entry, text, image
        self._constants = [np.ascontiguousarray(c) for c in constants]
        self._workspace = workspace
        self._code: Any = None
        self._run: Callable[..., None] | None = None

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the function, which is linked at its first call."""
        return self.run if name == self.symbol else None

    def run(self, *arrays: NDArray) -> None:
        """Run on the inputs, followed by the outputs."""
        if self._run is None:
            self._code = compiler_hooks.load_objects([self._image], [self._entry])
            self._run = _SIGNATURE(self._code.address(self._entry))
        given = [as_numpy(a) for a in arrays]
        passed = [np.ascontiguousarray(a) for a in given]
        workspace = aligned_empty((self._workspace,))
        self._run(_addresses(passed), _addresses(self._constants), workspace.ctypes.data)
        for mine, theirs in zip(passed, given, strict=True):
            if mine is not theirs:
                np.copyto(theirs, mine)

    def get_source(self, fmt: str = "c") -> str:
        """Return the C text."""
        return self._text

    def save_to_binary(self) -> bytes:
        head = {
            "symbol": self.symbol, "entry": self._entry, "text": self._text, "workspace": self._workspace,
            "constants": [[str(c.dtype), list(c.shape)] for c in self._constants],
        }
        return b"\n".join([json.dumps(head).encode(), b"".join(c.tobytes() for c in self._constants) + self._image])

    @classmethod
    def load_from_binary(cls, blob: bytes) -> CompiledCModule:
        line, _, data = bytes(blob).partition(b"\n")
        try:
            head, at = read_json(line), 0
            constants = []
            for dtype, shape in head["constants"]:
                count = int(np.prod(shape, dtype=np.int64))
                constants.append(np.frombuffer(data, dtype, count, at).reshape(shape))
                at += count * np.dtype(dtype).itemsize
            return cls(head["symbol"], head["entry"], head["text"], data[at:], constants, int(head["workspace"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"these bytes are not a function in C: {error}", code="TW0918") from error


def _addresses(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
