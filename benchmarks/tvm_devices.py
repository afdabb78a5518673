"""Plugin of pytest for TVM's tests: modules for devices that are not here can be imported, and skip the test that calls
them.

    from tvm.topi.cuda.conv3d_winograd import _infer_tile_size     a file of tests for all devices can start
    _infer_tile_size(data, kernel)                                 the test is skipped
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

DEVICES: Final = ("tvm.topi.cuda", "tvm.contrib.cuda_graph", "tvm.contrib.ndk", "tvm.contrib.hexagon")


class DeviceModule(ModuleType):
    """A module whose public functions skip the test that calls them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: pytest.skip(f"{self.__name__}.{name} needs a device that is not here")


class DeviceFinder(MetaPathFinder, Loader):
    """Finds the modules of `DEVICES` and those inside them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if any(f"{fullname}.".startswith(f"{d}.") for d in DEVICES):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return DeviceModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the cases in the file that `$TILEWRIGHT_TVM_CASES` names, if it is set."""
    if (path := os.environ.get("TILEWRIGHT_TVM_CASES")) is not None:
        wanted = {*Path(path).read_text(encoding="utf-8").splitlines()}
        items[:] = [i for i in items if f"{i.path.relative_to(config.rootpath)}::{i.name}" in wanted]


importlib.import_module("tilewright.as_tvm")  # its finders come after this one
sys.meta_path.insert(0, DeviceFinder())
