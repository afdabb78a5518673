"""Constants of modules from other compilers, passed to each of their functions once, before its first call.

    relay.ext.npu.constant_updater(function, "npu_0") -> {"weights": …}
    module.get_function("__init_npu_0")(weights…)            the names in the order of the updater
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json
from tilewright.base.nd import NDArray, array, as_numpy
from tilewright.base.types import DataType
from tilewright.runtime.modules import INITIALIZER, ModuleNode, register_module

_HEAD: Final = struct.Struct("<Q")


@register_module
class ConstantsModule(ModuleNode):
    """Arrays by name for each symbol."""

    type_key = "const_loader"

    def __init__(self, constants: Mapping[str, Mapping[str, NDArray]]) -> None:
        self.constants = constants

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return None

    def initialize(self, module: ModuleNode, symbol: str) -> None:
        """Pass a module the constants of its function. Raises `ArtifactError` if it does not accept constants."""
        found = self.constants.get(symbol)
        if found is None:
            return
        take = module.get_function(f"{INITIALIZER}{symbol}")
        if take is None:
            raise ArtifactError(
                f"the module '{module.type_key}' has constants for '{symbol}', but no function '{INITIALIZER}{symbol}' "
                "that takes them",
                code="TW0808")
        take(*found.values())

    def save_to_binary(self) -> bytes:
        listed = {
            s: [[n, list(a.shape), str(a.dtype)] for n, a in named.items()] for s, named in self.constants.items()}
        head = json.dumps(listed, separators=(",", ":")).encode()
        return b"".join(
            [
                _HEAD.pack(len(head)), head,
                *(as_numpy(a).tobytes() for named in self.constants.values() for a in named.values())
            ])

    @classmethod
    def load_from_binary(cls, blob: bytes) -> ConstantsModule:
        try:
            at = _HEAD.size + _HEAD.unpack_from(blob)[0]
            made: dict[str, dict[str, NDArray]] = {}
            for symbol, named in read_json(blob[_HEAD.size : at]).items():
                made[symbol] = {}
                for name, shape, dtype in named:
                    kind = DataType(dtype).numpy()
                    values = np.frombuffer(blob, kind, int(np.prod(shape, dtype=np.int64)), at)
                    made[symbol][str(name)] = array(values.reshape(shape))
                    at += values.nbytes
        except (struct.error, ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"the constants of modules are damaged ({error!r}); compile the model again", code="TW0804"
            ) from error
        return cls(made)
