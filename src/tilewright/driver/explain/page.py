"""The page: one self-contained HTML file with its data, scripts and styles.

Long texts of kernels and passes are compressed and decoded when they are shown. Text of a model is never interpreted as
markup: the data are JSON with `<` escaped, and scripts write it as text. The page's policy permits only its own
scripts.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tilewright import __version__
from tilewright.base.types import FLOAT32
from tilewright.driver.explain.content import Content
from tilewright.driver.explain.difference import ADDED, CHANGED, REMOVED, Row, difference
from tilewright.driver.explain.graphs import Graph, compared
from tilewright.driver.explain.kernels import Text
from tilewright.driver.explain.recording import State

FOLDER: Final = Path(__file__).parent / "page"
STYLES: Final = ("page.css", "views.css")
SCRIPTS: Final = (
    "base.js", "colours.js", "layout.js", "drawing.js", "overview.js", "passes.js", "program.js", "kernels.js",
    "run.js", "memory.js", "main.js"
)


def page_of(content: Content) -> str:
    """Return the page as text."""
    style = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in STYLES)
    script = (
        "(() => {\n'use strict';\n" + "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
        + "\n})();"
    )
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri "
        "'none'; form-action 'none'"
    )
    title = html.escape(f"{content.name}: how it was compiled")
    return "\n".join([
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="tilewright {__version__}">',
        f"<title>{title}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        "<noscript>This report draws itself by its own script; allow JavaScript to read it.</noscript>",
        f'<script type="application/json" id="summary">{_json(summary_of(content))}</script>',
        *(f'<script type="application/gzip" id="{name}">{_packed(data)}</script>' for name, data in _parts(content)),
        f"<script>{script}</script>",
        "</body>",
        "</html>",
        "",
    ])


def summary_of(content: Content) -> dict[str, Any]:
    """Return the data that the page needs at once: everything except texts and graphs."""
    m, run = content.manifest, content.measurement
    kernels = {k.symbol: number for number, k in enumerate(content.kernels)}
    step, most = content.memory.peak
    return {
        "model": content.name, "target": content.target, "compiler": __version__, "accelerators": content.accelerators,
        "inputs": [[t.name, _tensor(t)] for t in m.inputs], "outputs": [[t.name, _tensor(t)] for t in m.outputs],
        "sizes": content.sizes,
        "phases": [[name, seconds] for name, seconds in content.phases.items()], "passes": content.passes,
        "states": [
            {"name": s.name, "seconds": s.seconds, **_counted(before, s)} for before, s in _pairs(content.states)],
        "operators": dict(content.states[0].graph.operators) if content.states else {},
        "kernels": [
            {"symbol": k.symbol, "steps": k.steps, "lines": [[t.title, len(t.lines)] for t in k.texts]}
            for k in content.kernels],
        "steps": [
            {
                "symbol": s.symbol, "where": s.where, "block": s.block, "kernel": kernels.get(s.symbol, -1),
                "reads": s.reads, "bytes": s.nbytes,
                "operations": [[o.name, o.type, o.origin] for o in s.operations],
                **(
                    {"seconds": run.steps[k].seconds, "work": run.steps[k].operations, "moved": run.steps[k].nbytes}
                    if run is not None else {}
                ),
            }
            for k, s in enumerate(content.steps)],
        "memory": {
            "workspace": content.memory.workspace, "constants": m.constants_bytes, "peak": most, "peak_step": step,
            "values": [[v.offset, v.nbytes, v.birth, v.death] for v in content.memory.values],
        },
        "run": None if run is None
        else {
            "seconds": run.seconds, "threads": run.threads, "operations": run.peaks.rate(FLOAT32),
            "bytes": run.peaks.bandwidths[-1][1]
        },
        "not_measured": content.not_measured, "has_c": bool(content.c),
    }


def _tensor(t: Any) -> str:
    return f"{t.dtype}[{', '.join(map(str, t.shape))}]"


def _pairs(states: tuple[State, ...]) -> Iterator[tuple[State | None, State]]:
    return zip((None, *states), states, strict=False)


def _counted(before: State | None, after: State) -> dict[str, Any]:
    """Return the numbers of added, removed and changed lines of a state, and the operators that changed in number."""
    if before is None:
        return {"added": 0, "removed": 0, "changed": 0, "operators": []}
    rows = difference(before.lines, after.lines)
    old, new = before.graph.operators, after.graph.operators
    return {
        **{
            word: sum(r.kind == kind for r in rows)
            for word, kind in (("added", ADDED), ("removed", REMOVED), ("changed", CHANGED))},
        "operators": [[name, old[name], new[name]] for name in sorted({*old, *new}) if old[name] != new[name]],
    }


def _parts(content: Content) -> Iterator[tuple[str, Any]]:
    """Yield the data that are decoded when they are shown, by the ids of their elements."""
    for k, (before, after) in enumerate(_pairs(content.states)):
        rows = (
            [Row("=", n, n) for n in range(1, len(after.lines) + 1)] if before is None
            else difference(before.lines, after.lines)
        )
        yield f"state-{k}", {
            "rows": [[r.kind, r.old, r.new] for r in rows], "old": () if before is None else before.lines,
            "new": after.lines,
            "graphs": [_graph(g) for g in ([after.graph] if before is None else [before.graph, after.graph])],
            "compared": [[]] if before is None
            else [compared(before.graph, after.graph), compared(after.graph, before.graph)],
        }
    for k, kernel in enumerate(content.kernels):
        yield f"kernel-{k}", [_text(t) for t in kernel.texts]
    if content.c:
        yield "c-text", content.c.split("\n")


def _graph(graph: Graph) -> list[list[Any]]:
    return [[n.label, n.type, n.origin, n.where, n.region, n.reads, n.attributes, n.inner] for n in graph.nodes]


def _text(text: Text) -> dict[str, Any]:
    return {"title": text.title, "lines": text.lines, "sources": text.sources}


def _json(value: Any) -> str:
    """Return JSON text that is safe inside an element of the page."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace(
        "\u2028", "\\u2028"
    ).replace("\u2029", "\\u2029")


def _packed(value: Any) -> str:
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()


def _digest(text: str) -> str:
    """Return the hash by which the page's policy permits a script or a style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
