"""`tvm.parser`: the parser of Relay text."""

from __future__ import annotations

from tilewright.relay.parser import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
