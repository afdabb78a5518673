"""TVM's `tvmc.config_options`: the options of a `--config` file, and the folder of such files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.driver.config import configs_folder

CONFIGS_JSON_DIR: Path | None = None
"""A folder that a script sets for `get_configs_json_dir`."""


def get_configs_json_dir() -> Path:
    """Return the folder of configurations: `CONFIGS_JSON_DIR`, else the one that the environment variable
    `TVM_CONFIGS_JSON_DIR` names if it exists, else the one of this package."""
    return CONFIGS_JSON_DIR or configs_folder()


def convert_config_json_to_cli(json_params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options as dictionaries of one parameter each: those of `targets`, `executor` and `runtime` by part,
    as `{"target_c_mcpu": "cortex-m55"}`, and the others by name."""
    found: list[dict[str, Any]] = []
    for option, value in json_params.items():
        if option == "targets":
            found += [{f"target_{t['kind']}_{k}": v} for t in value for k, v in t.items() if k != "kind"]
            found.append({"target": ", ".join(t["kind"] for t in value)})
        elif option in ("executor", "runtime"):
            kind = value["kind"]
            found += [
                {option if k == "kind" else f"{option}_{kind}_{k.replace('-', '_')}": v} for k, v in value.items()]
        elif isinstance(value, Mapping):
            found.append({option.replace("-", "_"): [f"{k}={v}" for k, v in value.items()]})
        else:
            found.append({option.replace("-", "_"): value})
    return found
