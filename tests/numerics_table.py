"""The table of docs/numerics.md: the formula of each runtime for each operator, from the docstring of its rule.

`python tests/numerics_table.py` writes it.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.relay.qnn.settle_numerics import KNOWN

PAGE = Path(__file__).parent.parent / "docs" / "numerics.md"
BEGIN, END = "| operator | numerics | what it computes |\n|---|---|---|\n", "\n\n"


def table() -> str:
    """A row for each operator and each meaning of it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for runtime, rules in KNOWN.items():
        for operator, rule in rules.items():
            meaning = " ".join((rule.__doc__ or "").split("\n\n")[0].split())
            rows.setdefault((operator.name, meaning), []).append(runtime)
    lines = [
        f"| `{name}` | {', '.join(runtimes)} | {meaning} |" for (name, meaning),
        runtimes in sorted(rows.items(), key=lambda r: (r[0][0], r[1]))
    ]
    return BEGIN + "\n".join(lines)


def written(page: str) -> str:
    """The page with the table as it is now."""
    begin = page.index(BEGIN)
    return page[:begin] + table() + page[page.index(END, begin) :]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
