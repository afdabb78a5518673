"""Configuration of the package's logging: Python's `logging`, with one logger per module, named after the module.

    TILEWRIGHT_LOG=INFO python3 compile.py                           messages of level INFO and above
    TILEWRIGHT_LOG=ir.transform=DEBUG,relay=INFO python3 compile.py  a level for each module and its submodules
    TVM_LOG_DEBUG=DEFAULT=1;ir/transform.py=2 python3 compile.py     TVM's form: 0 is INFO, higher is DEBUG

The variables are read when the package is imported; `configure` does the same at any time. Programs that configure
`logging` themselves need neither.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.public_names import real_name
from tilewright.base.settings import nearest

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ROOT: Final = "tilewright"
_HANDLER: Final = logging.StreamHandler()
_HANDLER.setFormatter(logging.Formatter("%(levelname)s %(name)s:%(lineno)d: %(message)s"))


def configure(text: str) -> dict[str, int]:
    """Set log levels, write the messages to standard error, and return the levels by logger.

    `text` is a level or `module=level` pairs, separated by commas or semicolons. Raises `OptionError` for an unknown
    level.
    """
    found: dict[str, int] = {}
    for part in filter(None, re.split(r"[,;]", text.replace(" ", ""))):
        module, separator, level = part.rpartition("=")
        name = re.sub(r"\.(py|cc|h)$", "", module).replace("/", ".").removeprefix("src.").removeprefix(f"{_ROOT}.")
        whole = not separator or name in ("", "DEFAULT", _ROOT)
        found[_ROOT if whole else f"{_ROOT}.{real_name(name)}"] = _level(level)
    for name, number in found.items():
        logging.getLogger(name).setLevel(number)
    root = logging.getLogger(_ROOT)
    if found and _HANDLER not in root.handlers:
        root.addHandler(_HANDLER)
    return found


def _level(text: str) -> int:
    if text.lstrip("-").isdecimal():
        return logging.INFO if int(text) <= 0 else logging.DEBUG
    if text.upper() not in LEVELS:
        raise OptionError(
            "there is no logging level "
            f"'{text}'{nearest(text.upper(), LEVELS) or '; the levels are ' + ', '.join(LEVELS)}", code="TW0210")
    return int(getattr(logging, text.upper()))
