"""The commands: `python -m tilewright` is the first of them. An interrupt while their modules are imported is no
traceback either."""

from __future__ import annotations

import importlib
import sys


def tilewright() -> int:
    """`tilewright`, the command line."""
    return _run("tilewright.driver.main")


def tvmc() -> int:
    """`tvmc`, that of the field."""
    return _run("tilewright.driver.tvmc.main")


def _run(module: str) -> int:
    try:
        code: int = importlib.import_module(module).main()
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(tilewright())
