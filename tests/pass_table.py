"""The table of `docs/passes.md`, derived from the classes of the passes: `python tests/pass_table.py` writes it."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, Final

from tilewright import relay
from tilewright.ir.transform import PASSES, Pass
from tilewright.relay import quantize, transform
from tilewright.relay.qnn import transform as qnn

PAGE: Final = Path(__file__).parent.parent / "docs" / "passes.md"
BEGIN: Final = "<!-- the table: python tests/pass_table.py -->\n"
END: Final = "<!-- the end of the table -->\n"


def passes() -> list[tuple[str, type[Pass]]]:
    """The passes over graphs with the names under `relay.` that reach them."""
    found = []
    for name, cls in PASSES.items():
        elsewhere = any(part in cls.__module__ for part in (".backend.", ".collage.", ".contrib."))
        if not cls.__module__.startswith("tilewright.relay.") or elsewhere:
            continue  # those of one accelerator, or of one way to lower, are described with it
        public = getattr(transform, name, None)
        if getattr(quantize, name, None) is cls:
            found.append((f"quantize.{name}", cls))
            continue
        if public is None and getattr(relay, name, None) is cls:
            found.append((name, cls))
            continue
        if public is not cls and getattr(qnn, name, None) is not cls:
            raise LookupError(f"no module of passes has {name}")
        found.append(
            (f"transform.{name}", cls) if public is cls else (f"qnn.transform.{name.removeprefix('Qnn')}", cls)
        )
    return sorted(found, key=lambda row: row[0].lower())


def table() -> str:
    """One row for each pass: its name and options, its level, and the first paragraph of its docstring."""
    rows = ["| `relay.` | options | level | what it does |\n", "|---|---|---|---|\n"]
    for name, cls in passes():
        what = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {_options(cls)} | {cls.opt_level} | {what} |\n")
    return "".join(rows)


def _options(cls: type[Pass]) -> str:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return ", ".join(f"`{f.name}`" if f.default is dataclasses.MISSING else f"`{f.name}={f.default!r}`" for f in fields)


def page() -> str:
    """The page with the table as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
