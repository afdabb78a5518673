"""Runs a built module on a device behind a tracker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.nd import array
from tilewright.search.meta_schedule.runner import RPCConfig


def run_module_via_rpc(
    rpc_config: RPCConfig, lib: Any, dev_type: str, args: Mapping[str, np.ndarray[Any, Any]],
    continuation: Callable[..., Any], backend: str | None = "graph",
) -> Any:
    """Return `continuation(module, device, arguments)` for a module that is sent to a device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tvm_tmp_mod.so"
        lib.export_library(str(path))
        session = rpc_config.connect_server()
        session.upload(str(path))
        module = session.load_module(path.name)
        dev = session.device(dev_type, 0)
        return continuation(module, dev, {name: array(value, dev) for name, value in args.items()})
