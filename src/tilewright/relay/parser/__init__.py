"""Parser of Relay text: `parse` for modules, `parse_expr` for expressions and functions. Grammar: `docs/relay_text.md`.

It reads printed programs back to equal ones, and handwritten text. An error is a `ParseError` with the line, a caret
and the nearest valid word; independent errors are reported together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.ir import diagnostics
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr
from tilewright.relay.parser.module import ModuleReader

MetaTable = Mapping[str, Sequence[Any]]


def parse(source: str, source_name: str = "from_string", init_module: IRModule | None = None, init_meta_table: MetaTable
          | None = None) -> IRModule:
    """Parse `source` as a module; a bare expression becomes its `main`.

    `source_name` is used in messages. The result includes the functions and data types of `init_module`, which `source`
    can use. `init_meta_table`, `{"relay.Constant": [array, …]}`, has the constants of a text without `#[metadata]`.
    Types that the text omits are inferred; if they cannot be, they stay unknown, and `InferType` tells the reason.
    Raises `ParseError`.
    """
    from tilewright.relay.transform.infer_type import record_types

    with diagnostics.reporting():
        module, expr = ModuleReader(source, source_name, init_module, init_meta_table).read()
    if expr is not None:
        module.update(IRModule.from_expr(expr))
    with suppress(CompileError):
        record_types(module)
    return module


def parse_expr(
    source: str, source_name: str = "from_string", init_module: IRModule | None = None, init_meta_table: MetaTable
    | None = None
) -> Expr:
    """Parse `source` as an expression or function. Raises `ParseError`."""
    reader = ModuleReader(source, source_name, init_module, init_meta_table)
    with diagnostics.reporting():
        _, expr = reader.read()
    if expr is None:
        raise reader.source.error(0, 1, "an expression is expected, but the text has none; use parse for definitions")
    return expr


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """Parse a module: the former name of `parse`."""
    return parse(source, source_name)


__all__ = ["fromtext", "parse", "parse_expr"]
