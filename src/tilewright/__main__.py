"""The console commands; `python -m tilewright` runs the first. An interrupt while modules are imported prints no
traceback."""

from __future__ import annotations

import importlib
import sys


def tilewright() -> int:
    """Run `tilewright`, the command line."""
    return _run("tilewright.driver.main")


def tvmc() -> int:
    """Run TVM's command line, `tvmc`."""
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
