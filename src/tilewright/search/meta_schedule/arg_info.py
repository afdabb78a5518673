"""The arguments of programs as data: shapes and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import number_of
from tilewright.search.meta_schedule.utils import normalized_module, only_function
from tilewright.tir.stmt import PrimFunc

TENSOR: Final = "TENSOR"


class ArgInfo:
    """An argument of a program."""

    def as_json(self) -> Any:
        """Return the argument as JSON-compatible data."""
        raise NotImplementedError

    @staticmethod
    def from_json(json_obj: Any) -> ArgInfo:
        """Return the argument for the output of `as_json`. Raises `OptionError` for other data."""
        if (
            not isinstance(json_obj, (list, tuple)) or len(json_obj) != 3 or json_obj[0] != TENSOR
            or not isinstance(json_obj[2], (list, tuple))
        ):
            raise OptionError(
                f'{json_obj!r} is not an argument; one is ["TENSOR", "float32", [1, 224, 224, 3]]', code="TW1101")
        return TensorInfo(str(json_obj[1]), [int(d) for d in json_obj[2]])

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[ArgInfo]:
        """Return the arguments of a function, in order. Raises `OptionError` for symbolic sizes."""
        return [TensorInfo.of(b.name, str(b.dtype), b.shape) for b in func.buffers]

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[ArgInfo]:
        """Return the arguments of the only function of a module."""
        return ArgInfo.from_prim_func(only_function(normalized_module(mod)))


@dataclass(frozen=True, init=False, repr=False)
class TensorInfo(ArgInfo):
    """A tensor argument."""

    dtype: str
    shape: tuple[int, ...]

    def __init__(self, dtype: str | DataType, shape: Sequence[Any]) -> None:
        object.__setattr__(self, "dtype", str(DataType(dtype)))
        object.__setattr__(self, "shape", tuple(int(d) for d in shape))

    @staticmethod
    def of(name: str, dtype: str, shape: Sequence[Any]) -> TensorInfo:
        """Return the argument of a buffer. Raises `OptionError` for a symbolic size."""
        sizes = [number_of(d) if not isinstance(d, int) else d for d in shape]
        if any(d is None for d in sizes):
            raise OptionError(
                f"argument '{name}' has the shape {tuple(shape)}; the search needs constant sizes", code="TW1109")
        return TensorInfo(dtype, sizes)

    def as_json(self) -> Any:
        return [TENSOR, self.dtype, list(self.shape)]

    def __repr__(self) -> str:
        return f'TensorInfo("{self.dtype}", {list(self.shape)})'
