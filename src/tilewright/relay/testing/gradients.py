"""TVM's `relay.testing.check_grad`: a comparison of gradients of programs, which are not computed here."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.base.errors import CompileError
from tilewright.relay.expr import Function

__all__ = ["check_grad"]


def check_grad(func: Function, *args: Any, **options: Any) -> NoReturn:
    """Raise `CompileError`: programs are compiled for inference, and have no gradients."""
    raise CompileError(
        "gradients of Relay programs are not computed; use te.gradient for the derivative of a tensor expression",
        code="TW0403")
