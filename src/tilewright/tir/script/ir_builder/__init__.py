"""Builds TIR functions and modules by running Python, under TVM's names (`tvm.script.ir_builder`).

    with IRBuilder() as ib:
        with T.prim_func():
            A = T.arg("A", T.Buffer((16,), "float32"))
            with T.serial(16) as i:
                T.buffer_store(A, 0.0, [i])
    func = ib.get()
"""

from __future__ import annotations

from tilewright.tir.script.ir_builder import ir, tir
from tilewright.tir.script.ir_builder.base import IRBuilder

__all__ = ["IRBuilder", "ir", "tir"]
