"""Plugin of pytest for TVM's tests: modules for devices that are not here can be imported, and skip the test that calls
them.

    from tvm.topi.cuda.conv3d_winograd import _infer_tile_size     a file of tests for all devices can start
    _infer_tile_size(data, kernel)                                 the test is skipped

Functions inside TVM's schedule templates skip tests in the same way.

It also registers the target `example_target_hook`, which TVM's tests of hooks use, and offers names of older versions
of NumPy that the tests use.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest

DEVICES: Final = (
    "tvm.topi.cuda", "tvm.topi.hexagon", "tvm.topi.x86.tensor_intrin",
    "tvm.topi.x86.conv2d_avx_common", "tvm.contrib.mkl", "tvm.contrib.ndk", "tvm.contrib.hexagon", "tvm.contrib.cublas",
    "tvm.contrib.cublaslt", "tvm.contrib.cutlass", "tvm.contrib.miopen", "tvm.contrib.mps", "tvm.contrib.rocblas",
    "tvm.contrib.thrust", "tvm.contrib.xcode", "tvm.contrib.coreml_runtime", "tvm.contrib.nnpack",
    "tvm.contrib.target.coreml", "tvm.contrib.target.vitis_ai", "tvm.contrib.ethosu", "tvm.rpc.server_ios_launcher",
    "tvm.relay.backend.contrib.ethosu", "tvm.relay.op.contrib.clml", "tvm.relay.op.contrib.cublas",
    "tvm.relay.op.contrib.cudnn", "tvm.relay.op.contrib.cutlass", "tvm.relay.op.contrib.tensorrt",
    "tvm.relay.op.contrib.torchop", "tvm.relay.op.contrib.vitis_ai", "tvm.tir.tensor_intrin.hexagon",
)
TEMPLATES: Final = {
    "tvm.topi.nn": ("_get_workload",), "tvm.topi.x86": ("_fallback_schedule",),
    "tvm.topi.generic": ("fallback_schedule_cpu_common_int8",),
}
"""Functions inside TVM's schedule templates, by module; Tilewright has other schedules."""
EXAMPLE: Final = "example_target_hook"
"""Target of TVM's tests of hooks."""


class DeviceName:
    """A function or class for a device: a call skips the test that makes it, or its file where the file makes it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        pytest.skip(f"{self._name} needs a device, a library or a template that is not here", allow_module_level=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return DeviceName(f"{self._name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)


class DeviceModule(ModuleType):
    """A module of functions and classes for a device."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return DeviceName(f"{self.__name__}.{name}")


@dataclass(frozen=True)
class LazyFixture:
    """A parameter of a test that is the value of a fixture, by its name."""

    name: str


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Replace the parameters of a test that name fixtures by the values of these."""
    for parameter, value in pyfuncitem.funcargs.items():
        if isinstance(value, LazyFixture):
            pyfuncitem.funcargs[parameter] = pyfuncitem._request.getfixturevalue(value.name)


def _offer_lazy_fixtures() -> None:
    """Offer the function of `pytest-lazyfixture`, which supports older versions of pytest only."""
    module = ModuleType("pytest_lazyfixture")
    module.__dict__["lazy_fixture"] = LazyFixture
    sys.modules[module.__name__] = module


def _offer_older_numpy() -> None:
    """Offer `numpy.infty`, and the argument `newshape` of `numpy.reshape`, which newer versions of NumPy refuse."""
    newer = np.reshape

    @functools.wraps(newer)
    def reshape(*args: Any, **options: Any) -> Any:
        if "newshape" in options:
            options["shape"] = options.pop("newshape")
        return newer(*args, **options)

    np.__dict__.setdefault("infty", np.inf)
    np.reshape = reshape


def _offer_templates() -> None:
    """Offer the functions of `TEMPLATES`, so that files which import them start; a call skips its test."""
    for name, functions in TEMPLATES.items():
        module = importlib.import_module(name)
        for function in functions:
            setattr(module, function, DeviceName(f"{name}.{function}"))


class DeviceFinder(MetaPathFinder, Loader):
    """Finds the modules of `DEVICES` and those inside them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = re.sub(r"^tilewright\.(?:compat\.|runtime\.(?=rpc\.))?", "tvm.", fullname)
        if any(f"{name}.".startswith(f"{d}.") for d in DEVICES):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return DeviceModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty. TVM's module for Core ML also imports the one for Xcode."""
        if module.__name__.endswith("target.coreml"):
            importlib.import_module("tvm.contrib.xcode")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the cases in the file that `$TILEWRIGHT_TVM_CASES` names, if it is set."""
    if (path := os.environ.get("TILEWRIGHT_TVM_CASES")) is not None:
        wanted = {*Path(path).read_text(encoding="utf-8").splitlines()}
        items[:] = [i for i in items if f"{i.path.relative_to(config.rootpath)}::{i.name}" in wanted]


def _register_example() -> None:
    """Register the target of TVM's tests of hooks, which replaces a sum by the difference minus its option
    `example_attribute`.

    TVM has it in C++ as an example. Its hook `TIRToRuntime` is missing.
    """
    from tilewright.backends.offload_kinds import register_offload_kind

    tvm = importlib.import_module("tvm")

    def differences(mod: Any) -> Any:
        made = {}
        for name, function in mod.items():
            less = float(function.attrs.get(f"{EXAMPLE}.example_attribute", 0))
            x, y = (tvm.te.placeholder(p.checked_type.shape, p.checked_type.dtype, p.name_hint)
                    for p in function.params)
            result = tvm.te.compute(x.shape, lambda *i, x=x, y=y, less=less: x(*i) - y(*i) - less)
            made[name] = tvm.te.create_prim_func([x, y, result])
        return tvm.IRModule(made)

    register_offload_kind(EXAMPLE, {"example_attribute": 0})
    tvm.target.register_target_kind(EXAMPLE, {"RelayToTIR": differences})


importlib.import_module("tilewright.as_tvm")  # its finders come after this one
sys.meta_path.insert(0, DeviceFinder())
_offer_lazy_fixtures()
_offer_older_numpy()
_offer_templates()
_register_example()
