"""Python programs as trees: `doc` has the nodes, and `doc_printer.to_python_script` writes their text."""

from __future__ import annotations

from tilewright.tir.script.printer import doc, doc_printer

__all__ = ["doc", "doc_printer"]
