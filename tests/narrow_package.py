"""The package `examples/narrow_cpu` as an installation leaves it: importable, with the entry points of its
pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tilewright.backends import registry

PACKAGE = Path(__file__).parent.parent / "examples" / "narrow_cpu"


def install(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make the package importable, and write its metadata into `folder`, for as long as `patch` lasts."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group,
        points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    patch.syspath_prepend(folder)
    patch.syspath_prepend(PACKAGE)
    registry.forget()
