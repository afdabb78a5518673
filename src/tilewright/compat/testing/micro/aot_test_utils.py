"""TVM's `tvm.micro.testing.aot_test_utils`: the runners of `tvm.testing.aot`, and the options of its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

from tilewright.compat.testing.aot import AOTTestRunner

F = TypeVar("F", bound=Callable[..., Any])

AOT_DEFAULT_RUNNER: Final = AOTTestRunner()
AOT_CORSTONE300_RUNNER: Final = AOTTestRunner(
    "corstone300", includes=("uart_stdout.h",), pass_config={"relay.ext.cmsisnn.options": {"mcpu": "cortex-m55"}})
AOT_USMP_CORSTONE300_RUNNER: Final = AOTTestRunner(
    "corstone300", includes=("uart_stdout.h",),
    pass_config={"relay.ext.cmsisnn.options": {"mcpu": "cortex-m55"}, "tir.usmp.enable": True})


def parametrize_aot_options(test: F) -> F:
    """Run a test with the arguments `interface_api`, `use_unpacked_api` and `test_runner` of a program that C calls."""
    made: F = pytest.mark.parametrize(
        ("interface_api", "use_unpacked_api", "test_runner"), [("c", True, AOT_DEFAULT_RUNNER)])(test)
    return made
