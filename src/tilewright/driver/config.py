"""Files of options for `--config`: JSON objects of options by name, with `targets`, `executor` and `runtime` as
objects.

    {"targets": [{"kind": "bnns"}, {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}],
     "executor": {"kind": "aot", "unpacked-api": true},
     "pass-config": {"relay.FuseOps.max_depth": 8},
     "opt-level": 3}

A name without `.json` refers to a file of the package in `configs/host/`, or of the folder that the environment
variable `TVM_CONFIGS_JSON_DIR` names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.json_reading import read_json
from tilewright.base.settings import nearest

SHIPPED: Final = Path(__file__).parent / "configs" / "host"


def option_values(name: str, known: Collection[str | None]) -> dict[str, Any]:
    """Read the values of options by parameter name. Raises `OptionError` for a file that cannot be read, and for keys
    outside `known`."""
    path = _path(name)
    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"--config: cannot read '{path}': {error.strerror or error}", code="TW0205") from None
    except ValueError as error:
        raise OptionError(f"--config: '{path}' is not JSON: {error}", code="TW0205") from None
    if not isinstance(content, dict):
        raise OptionError(
            f"--config: '{path}' holds a {type(content).__name__}; write an object of options by name", code="TW0205")
    values = {
        key: value for option, given in content.items()
        for key, value in _values(option.replace("-", "_"), given, path).items()}
    for key in values:
        if key not in known:
            options = sorted(k for k in known if k)
            raise OptionError(
                f"--config: '{path}' gives '{key.replace('_', '-')}', which is not an "
                f"option{nearest(key, options).replace('_', '-')}",
                code="TW0205")
    return values


def configs_folder() -> Path:
    """Return the folder of configurations that `TVM_CONFIGS_JSON_DIR` names if it exists, else the one of the package.
    """
    named = os.environ.get("TVM_CONFIGS_JSON_DIR")
    return Path(named) if named and Path(named).is_dir() else SHIPPED.parent


def _path(name: str) -> Path:
    if Path(name).suffix == ".json":
        return Path(name)
    folder = configs_folder()
    known = {p.stem: p for p in sorted([*folder.glob("*.json"), *folder.glob("host/*.json")])}
    if name not in known:
        raise OptionError(
            f"--config: there is no configuration '{name}'{nearest(name, known)}; give a .json file, or one of "
            f"{', '.join(known)}",
            code="TW0205")
    return known[name]


def _values(key: str, given: Any, path: Path) -> dict[str, Any]:
    """Return the values of one key by parameter name."""
    if key == "targets":
        if not isinstance(given, list) or not all(isinstance(t, dict) and "kind" in t for t in given):
            raise OptionError(
                f"--config: the targets of '{path}' are a list of objects with a 'kind', accelerators first",
                code="TW0205")
        return {"target": ", ".join(_target(t) for t in given)}
    if key in ("executor", "runtime") and isinstance(given, dict):
        if "kind" not in given:
            raise OptionError(f"--config: the {key} of '{path}' has no 'kind'", code="TW0205")
        kind = given["kind"]
        return {
            key: kind,
            **{f"{key}_{kind}_{name.replace('-', '_')}": _word(v) for name, v in given.items() if name != "kind"}
        }
    if key == "pass_config" and isinstance(given, dict):
        return {key: [f"{name}={_word(v)}" for name, v in given.items()]}
    return {key: given if isinstance(given, list) else _word(given)}


def _target(t: Mapping[str, Any]) -> str:
    words = (
        f"-{k}={shlex.quote(','.join(map(str, v)) if isinstance(v, list) else _word(v))}" for k, v in t.items()
        if k != "kind")
    return " ".join([str(t["kind"]), *words])


def _word(value: Any) -> str:
    """Format a value for a command line."""
    return str(int(value)) if isinstance(value, bool) else str(value)
