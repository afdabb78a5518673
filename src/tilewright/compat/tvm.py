"""`python -m tilewright.tvm`: runs a Python program for which `import tvm` gives this package.

    python -m tilewright.tvm script.py --option      python -m tilewright.tvm -m pytest tests
    python -m tilewright.tvm -c "import tvm"         export PYTHONPATH=$(python -m tilewright.tvm --path)
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = "usage: python -m tilewright.tvm (SCRIPT | -m MODULE | -c CODE) [ARGUMENT …], or --path"


def main(args: Sequence[str]) -> int:
    """Run the program with its arguments; `--path` prints the folder for `PYTHONPATH`. Return the exit status."""
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    from tilewright.compat import as_tvm

    option, rest = args[0], list(args[1:])
    if option == "--path":
        print(as_tvm.FOLDER)
        return 0
    if option in ("-m", "-c") and not rest:
        print(f"{option} needs an argument; {USAGE}", file=sys.stderr)
        return 2
    if option == "-m":
        sys.argv = rest
        sys.path.insert(0, "")
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        path = os.pathsep.join(filter(None, (str(as_tvm.FOLDER), os.environ.get("PYTHONPATH", ""))))
        return subprocess.run(
            [sys.executable, "-c", *rest], env={**os.environ, "PYTHONPATH": path}, check=False).returncode
    elif not Path(option).exists():
        print(f"there is no file {option}; {USAGE}", file=sys.stderr)
        return 2
    else:
        sys.argv = list(args)
        sys.path.insert(0, str(Path(option).resolve().parent))
        runpy.run_path(option, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
