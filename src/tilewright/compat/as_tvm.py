"""`import tilewright.as_tvm` lets the rest of a program write `import tvm`, and `import tvm.relay` or any other module.

    import tilewright.as_tvm
    import tvm                          # this package; `tvm.relay` is the module `tilewright.relay`

`python -m tilewright.tvm script.py` does the same for an unchanged script. An installed TVM is untouched: only
programs that ask for it get this package, with a warning.
"""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

import tilewright
from tilewright.base.errors import InputError, ShadowedModuleWarning

FOLDER: Final = Path(__file__).with_name("import_tvm")
"""A folder for `PYTHONPATH` that makes `import tvm` give this package in every program."""


def install() -> None:
    """Make `tvm` a second name of this package. Warns if TVM is installed; raises `InputError` if it is imported."""
    present = sys.modules.get("tvm")
    if present is not None and present is not tilewright and getattr(present, "__file__", "") != str(_shim()):
        raise InputError(
            f"'tvm' is already imported from {getattr(present, '__file__', 'elsewhere')}; import tilewright.as_tvm "
            "before it, or remove that import", code="TW0212")
    installed = PathFinder.find_spec("tvm", [p for p in sys.path if Path(p or ".").resolve() != FOLDER])
    if present is not tilewright and installed is not None and installed.origin is not None:
        warnings.warn(
            f"'import tvm' gives tilewright, not TVM in {Path(installed.origin).parent}", ShadowedModuleWarning,
            stacklevel=2)
    sys.modules["tvm"] = tilewright


def _shim() -> Path:
    return FOLDER / "tvm" / "__init__.py"


install()
