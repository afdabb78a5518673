"""`source_format`: the `Format` of a frontend that has a reader and uses the unmodified importer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.model_formats import Contents, Format, Look, Shapes, Signature, file_bytes
from tilewright.relay.frontend.core.reading import SourceGraph

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.relay.frontend.core.importer import Importer

__all__ = ["Contents", "Format", "Look", "Shapes", "Signature", "file_bytes", "source_format"]


def source_format(
    name: str, recognizes: Callable[[Look], bool], read_graph: Callable[[Any], SourceGraph],
    importer: Callable[[], Importer],
) -> Format:
    """The format of a frontend whose reader turns a path or bytes into a `SourceGraph`, with the unmodified importer.
    """

    def survey(model: Any, shapes: Shapes) -> tuple[Signature, list[str]]:
        return [(n, [d if isinstance(d, int) else str(d) for d in dims], t)
                for n, dims, t in _declared(read_graph(model))], []

    def read(model: Any, shapes: Shapes | None) -> tuple[IRModule, dict[str, Any]]:
        from tilewright.relay.frontend.core.importer import import_source

        made = importer()
        made.file = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        return import_source(made, read_graph(model), shapes)

    def contents(model: Any, shapes: Shapes | None) -> Contents:
        graph, table = read_graph(model), importer().table
        nodes: dict[tuple[str, str], list[str]] = {}
        unknown = {(n.domain, n.kind) for n in graph.nodes if table.find(n.kind, n.version, n.domain) is None}
        for n in graph.nodes:
            nodes.setdefault((n.domain, n.kind), []).append(n.name)
        return Contents({name: 1}, "", _declared(graph), [], nodes, unknown, table.advice,
                        lambda: read(model, shapes)[0])

    package = (read_graph.__module__ or "").partition(".")[0]
    return Format(name, recognizes, survey, read, contents, "" if package == "__main__" else package)


def _declared(graph: SourceGraph) -> list[tuple[str, tuple[Any, ...], str]]:
    return [(str(n), tuple(kind.shape), str(kind.dtype)) for n, kind in graph.inputs.items() if kind is not None]
