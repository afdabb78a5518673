"""TVM's names of the reader of TVMScript (`tvm.script.parser`), which is `tir/parser.py` here.

    from tvm.script.parser import ir_module, tir as T
"""

from __future__ import annotations

from tilewright.tir.script import from_source as parse
from tilewright.tir.script import ir, tir
from tilewright.tir.script.ir import ir_module
from tilewright.tir.script.parser import core
from tilewright.tir.script.tir import prim_func

__all__ = ["core", "ir", "ir_module", "parse", "prim_func", "tir"]
