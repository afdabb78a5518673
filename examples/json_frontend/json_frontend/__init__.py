"""A frontend for networks as JSON: `FORMAT` is found by the entry point `json`, and `converters.py` has a function for
each operator."""

from __future__ import annotations

from json_frontend.converters import CONVERTERS, register_converter
from json_frontend.reader import is_json, read_graph
from tilewright.relay.frontend.core.deferral import resolve_nodes
from tilewright.relay.frontend.core.format import source_format
from tilewright.relay.frontend.core.importer import Importer

__all__ = ["CONVERTERS", "FORMAT", "register_converter"]

FORMAT = source_format("JSON", is_json, read_graph, lambda: Importer(CONVERTERS))
resolve_nodes("json", lambda known: Importer(CONVERTERS, known=known))
