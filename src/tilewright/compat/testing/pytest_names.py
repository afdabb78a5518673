"""Parameters of test functions, under the names of `tvm.testing`.

    batch = parameter(1, 8)                     a fixture with two values
    height, width = parameters((1, 2), (3, 4))  fixtures whose values change together

    @parametrize_targets("llvm")
    def test_conv(target, dev, batch): ...

`plugin.py` gives these values to the functions.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from typing import Any, Final, TypeVar

import pytest

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import FUNCTIONS
from tilewright.runtime.host import host_arch, host_features

F = TypeVar("F", bound=Callable[..., Any])

TARGETS: Final = "tilewright_targets"
"""Attribute of a test function: its targets."""
EXCLUDED: Final = "tilewright_excluded"
"""Attribute of a test function: targets that it does not support, mapped to the mark of its tests."""
GROUP: Final = "tilewright_group"
"""Attribute of a fixture function: the number, values, ids and position of parameters that change together."""
_GROUPS: Final = count()


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: Mapping[str, Any] | None = None) -> Any:
    """Return a fixture with these values. `by_dict` maps ids to values."""
    if by_dict is not None:
        if values or ids:
            raise OptionError(
                "parameter takes values with ids, or by_dict; give one of them", code="TW0215")
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids)
    def made(*_cls: Any, request: pytest.FixtureRequest) -> Any:
        return request.param

    return made


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> tuple[Any, ...]:
    """Return one fixture for each position in the tuples of `value_sets`; a test gets the values of one tuple."""
    group, found = next(_GROUPS), []
    for k in range(len(value_sets[0]) if value_sets else 0):

        def made(*_cls: Any, request: pytest.FixtureRequest) -> Any:
            return request.param

        setattr(made, GROUP, (group, [v[k] for v in value_sets], ids, k))
        found.append(_Grouped(made))
    return tuple(found)


def _Grouped(made: Any) -> Any:
    fixture_of = pytest.fixture(made)
    setattr(fixture_of, GROUP, getattr(made, GROUP))
    return fixture_of


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """Make a fixture of a function; with `cache_return_value`, it is called once a session for each of its parameters,
    and each test gets a copy of the result."""
    if func is None:
        return lambda f: fixture(f, cache_return_value=cache_return_value)
    return pytest.fixture(_cached(func) if cache_return_value else func)


def _cached(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return `func` with its results stored by the text of its arguments, and copied for each call."""
    known: dict[str, Any] = {}

    def call(*owner: Any, **named: Any) -> Any:
        key = repr(sorted(named.items(), key=lambda item: item[0]))
        if key not in known:
            known[key] = func(*owner, **named)
        return copy.deepcopy(known[key])

    call.__name__, call.__doc__ = func.__name__, func.__doc__
    call.__signature__ = inspect.signature(func)  # type: ignore[attr-defined]
    return call


def parametrize_targets(*targets: Any) -> Any:
    """Run a test function on these targets instead of all enabled ones; also a plain decorator, for all enabled ones.
    """
    if len(targets) == 1 and callable(targets[0]):
        return targets[0]

    def mark(func: F) -> F:
        setattr(func, TARGETS, [t for t in targets if not isinstance(t, tuple)] or [t for t, _ in targets])
        return func

    return mark


def exclude_targets(*targets: str) -> Callable[[F], F]:
    """Leave these targets out of a test function."""
    return lambda func: _excluded(func, targets, None)


def known_failing_targets(*targets: str) -> Callable[[F], F]:
    """Mark a test function as expected to fail on these targets."""
    return lambda func: _excluded(func, targets, pytest.mark.xfail(reason="known to fail on this target"))


def _excluded(func: F, targets: Sequence[str], mark: Any) -> F:
    setattr(func, EXCLUDED, {**getattr(func, EXCLUDED, {}), **dict.fromkeys(targets, mark)})
    return func


def _requires(what: str, *, is_present: bool) -> Any:
    """Return a decorator that skips a test where `what` is missing, used with or without parentheses. Its `marks()` are
    the marks for `pytest.param`."""
    mark = pytest.mark.skipif(not is_present, reason=f"requires {what}")

    def decorate(*marks: Any) -> Any:
        if len(marks) == 1 and callable(marks[0]):
            return mark(marks[0])
        return mark

    decorate.marks = lambda: [mark]  # type: ignore[attr-defined]
    return decorate


def _has(module: str) -> bool:
    """Return whether a Python module is installed."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def skip_if_32bit(reason: str = "") -> Any:
    """Return a decorator that skips a test on processors with 32-bit addresses."""
    return pytest.mark.skipif(sys.maxsize < 2**32, reason=reason or "addresses have 32 bits")


requires_llvm = _requires("LLVM", is_present=True)
requires_gpu = _requires("a GPU", is_present=False)
requires_cuda = _requires("CUDA", is_present=False)
requires_rpc = _requires("remote devices", is_present=True)
skip_if_wheel_test = _requires("the sources of the package", is_present=True)
requires_rocm = _requires("ROCm", is_present=False)
requires_opencl = _requires("OpenCL", is_present=False)
requires_metal = _requires("Metal", is_present=False)
requires_vulkan = _requires("Vulkan", is_present=False)
requires_hexagon = _requires("a Hexagon processor", is_present=False)
requires_micro = _requires("TVM's tools for microcontrollers", is_present=False)
requires_x86 = _requires("an x86-64 processor", is_present=host_arch() == "x86_64")
requires_skylake_avx512 = _requires("AVX-512", is_present="avx512bw" in host_features())
requires_cascadelake = _requires("AVX-512 VNNI", is_present="avx512vnni" in host_features())
requires_arm_dot = _requires("Arm's dot products", is_present="dotprod" in host_features())
requires_cmsisnn = _requires("the pattern table of CMSIS-NN", is_present=True)
requires_ethosn = _requires(
    "the driver of Ethos-N, registered as 'runtime.library.ethos-n'", is_present="runtime.library.ethos-n" in FUNCTIONS)
requires_ethosu = _requires("Vela, the compiler of Ethos-U", is_present=_has("ethosu.vela"))
requires_corstone300 = _requires("a Corstone-300 board or its simulator", is_present=False)
requires_vitis_ai = _requires("Vitis AI", is_present=False)
requires_libtorch = _requires("calls of libtorch", is_present=False)
requires_tensorcore = _requires("tensor cores", is_present=False)
requires_matrixcore = _requires("matrix cores", is_present=False)
requires_cudagraph = _requires("CUDA graphs", is_present=False)
requires_cudnn = _requires("cuDNN", is_present=False)
requires_cublas = _requires("cuBLAS", is_present=False)
requires_cutlass = _requires("CUTLASS", is_present=False)
requires_nvptx = _requires("PTX code", is_present=False)
requires_openclml = _requires("OpenCL ML", is_present=False)


def requires_package(*packages: str) -> Any:
    """Return a decorator that skips a test unless all these Python packages are installed."""
    missing = [p for p in packages if find_spec(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"requires the packages {', '.join(missing)}")


def requires_cuda_compute_version(*_version: int) -> Any:
    """Return a decorator that skips a test, since no GPU is supported."""
    return requires_cuda


def requires_nvcc_version(_major: int, _minor: int = 0, _release: int = 0) -> Any:
    """Return a decorator that skips a test, since no code is compiled for GPUs."""
    return requires_cuda


def slow(func: F) -> F:
    """Return a test function that is skipped if the environment variable `SKIP_SLOW_TESTS` is set, as in TVM."""
    is_skipped = os.environ.get("SKIP_SLOW_TESTS", "").lower() in ("1", "true", "yes")
    marked: F = pytest.mark.skipif(is_skipped, reason="SKIP_SLOW_TESTS is set")(func)
    return marked


def uses_gpu(func: F) -> F:
    """Return a test function that also runs on the GPUs of a machine; no GPU is supported, so it is unchanged."""
    return func


def main() -> None:
    """Run the tests of the file that calls this, with the arguments of the command line."""
    caller = sys._getframe(1).f_globals["__file__"]
    raise SystemExit(pytest.main([caller, *sys.argv[1:]]))
