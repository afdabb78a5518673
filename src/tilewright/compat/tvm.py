"""`python -m tilewright.tvm`: runs a Python program for which `import tvm` gives this package.

    python -m tilewright.tvm script.py --option      python -m tilewright.tvm -m pytest tests
    python -m tilewright.tvm -c "import tvm"         export PYTHONPATH=$(python -m tilewright.tvm --path)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

USAGE = "usage: python -m tilewright.tvm (SCRIPT | -m MODULE | -c CODE) [ARGUMENT …], or --path"


def main(args: Sequence[str]) -> int:
    """Replace this process by Python with these arguments. Return the exit status of `--path`, of the usage and of
    mistakes."""
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if args else 2
    from tilewright.compat.as_tvm import FOLDER

    option, *rest = args
    if option == "--path":
        print(FOLDER)
        return 0
    if option in ("-m", "-c"):
        mistake = "" if rest else f"{option} needs an argument"
    else:
        mistake = "" if Path(option).exists() else f"there is no file {option}"
    if not mistake:
        path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH", ""))))
        os.execve(sys.executable, [sys.executable, *args], {**os.environ, "PYTHONPATH": path})
    print(f"{mistake}; {USAGE}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
