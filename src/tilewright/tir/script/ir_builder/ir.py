"""Modules of `tvm.script.ir_builder`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.module import IRModule
from tilewright.tir.script.ir_builder.base import IRBuilder
from tilewright.tir.stmt import PrimFunc


@contextmanager
def ir_module() -> Iterator[None]:
    """Begin a module; the functions built inside are its functions."""
    builder = IRBuilder.current()
    found: dict[str, PrimFunc] = {}
    builder.module = found
    yield
    builder.module = None
    builder.add(IRModule(dict(found)))
