"""Temporary attributes of operators, for tests of hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.op_attributes import register_op_attr, registrations, reset_op_attr

__all__ = ["TempOpAttr"]


@contextmanager
def TempOpAttr(op_name: str, attr_key: str, attr_value: Any) -> Iterator[None]:
    """A context with a temporary attribute of an operator."""
    with registrations():
        reset_op_attr(op_name, attr_key)
        register_op_attr(op_name, attr_key, attr_value)
        yield
