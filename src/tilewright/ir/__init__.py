"""Modules of functions, structural equality and hashing, and the pass runner."""

from tilewright.ir import transform
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import register_op_attr, reset_op_attr
from tilewright.ir.structural import assert_structural_equal, structural_equal, structural_hash

__all__ = ["IRModule", "assert_structural_equal", "register_op_attr", "reset_op_attr", "structural_equal", "structural_hash", "transform"]
