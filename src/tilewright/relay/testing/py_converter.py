"""Evaluation of a program in Python, without compilation."""

from __future__ import annotations

from typing import Any

from tilewright import relay
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr

__all__ = ["run_as_python"]


def run_as_python(expr: Expr, mod: IRModule | None = None, target: Any = "llvm") -> Any:
    """Return the value of an expression over the functions and types of `mod`, computed by the interpreter in Python;
    a Python function for a function."""
    return relay.create_executor("debug", mod).evaluate(expr)
