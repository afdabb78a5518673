"""Drivers in C: built here where there is a C compiler, called through one header, their modules saved with
programs."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, OptionError, RunError, TargetError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.base.nd import aligned_empty
from tilewright.base.types import DataType
from tilewright.runtime import DeviceMemory, Driver, load_driver, load_module, memory_of
from tilewright.runtime.driver import HEADER
from tilewright.runtime.module import FactoryModule

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler here")
Array = np.ndarray[Any, Any]


def build(folder: Path, name: str, *options: str) -> Path:
    """The example driver as a shared library."""
    assert CC is not None
    source = Path(__file__).parent / "example_driver.c"
    path = folder / f"{name}.so"
    subprocess.run(
        [
            CC, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{HEADER.parent}", *options, str(source), "-o",
            str(path)
        ], check=True
    )
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"), "libexample")


@pytest.fixture
def driver(library: Path) -> Driver:
    return load_driver(library)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(FUNCTIONS)
    yield
    for name in [n for n in FUNCTIONS if n not in before and not n.startswith("runtime.module")]:
        remove_global_func(name)


def asked(driver: Driver, function: str, result: Any = ctypes.c_long, *args: int) -> Any:
    """What the library says of itself."""
    found = getattr(driver._library, function)
    found.restype = result
    return found(*args)


def program(
    driver: Driver, scope: str = "global", alignment: int = 1, kind: str = "add"
) -> tuple[tvm.runtime.FactoryModule, Callable[..., Array]]:
    """A sum that the driver computes, between operators of ours; and what it means."""
    x, y = (relay.var(n, shape=(3, 5)) for n in "xy")
    inner = relay.Function(
        [p := relay.var("p", shape=(3, 5)), q := relay.var("q", shape=(3, 5))], relay.add(p, q),
        attrs={"Compiler": "example", "global_symbol": "f"}
    )
    mod = tvm.IRModule({"f": inner})
    mod["main"] = relay.Function([x, y], relay.exp(relay.Call(mod.get_global_var("f"), [relay.negative(x), y])))
    register_func(
        "relay.ext.example", lambda f: driver.module(f"{f.attrs['global_symbol']} {kind} {scope} {alignment}".encode()),
        override=True
    )
    return relay.build(mod, "llvm"), lambda a, b: np.exp(b - a)


X, Y = np.random.default_rng(0).standard_normal((2, 3, 5), np.float32)


@needs_cc
@pytest.mark.parametrize(
    ("scope", "alignment"), [("global", 1), ("global", 64), ("global", 4096), ("sram", 16), ("sram", 256)]
)
def test_programs_call_drivers_and_give_memory_back(driver: Driver, scope: str, alignment: int) -> None:
    lib, meaning = program(driver, scope, alignment)
    before = asked(driver, "example_copied")
    for _ in range(3):
        np.testing.assert_allclose(lib.executable(X, Y), meaning(X, Y), rtol=1e-6)
    assert asked(driver, "example_live") == 0
    assert asked(driver, "example_copied") - before == (3 * 3 * X.nbytes if scope == "sram" else 0)


@needs_cc
def test_memory_of_the_host_is_shared_where_it_is_aligned(driver: Driver) -> None:
    function = driver.module(b"g negate global 64")["g"]
    given, made = aligned_empty((4, 4), "float32"), aligned_empty((4, 4), "float32")
    given[...] = 3
    function(tvm.nd.NDArray(given), tvm.nd.NDArray(made))
    assert [asked(driver, "example_data", ctypes.c_void_p, k) for k in (0, 1)] == [a.ctypes.data for a in (given, made)]
    np.testing.assert_array_equal(made, -3)
    unaligned = aligned_empty((17,), "float32")[1:]
    function(tvm.nd.NDArray(unaligned), tvm.nd.NDArray(made.reshape(-1)))
    assert asked(driver, "example_data", ctypes.c_void_p, 0) != unaligned.ctypes.data
    np.testing.assert_array_equal(made.reshape(-1), -unaligned)


@needs_cc
@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_modules_are_saved_and_loaded(driver: Driver, library: Path, suffix: str, tmp_path: Path) -> None:
    lib, _ = program(driver, "sram", 32)
    lib.export_library(tmp_path / f"m{suffix}")
    again = load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    assert [m.type_key for m in again.imported_modules] == ["example-driver"]
    np.testing.assert_array_equal(again.executable(X, Y), lib.executable(X, Y))
    code = (
        "import sys, numpy as np\nfrom tilewright.runtime import load_driver, load_module\nfrom tilewright.base.errors "
        "import ArtifactError\n"
        f"x = np.ones((3, 5), np.float32)\ntry:\n    load_module({str(tmp_path / f'm{suffix}')!r})\nexcept "
        "ArtifactError as e:\n    print(e)\n"
        f"load_driver({str(library)!r})\nprint(load_module({str(tmp_path / f'm{suffix}')!r}).executable(x, x).sum())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "it has a module of the kind 'example-driver', which nothing here can load" in said[0]
    assert said[1] == "15.0"


@needs_cc
def test_what_a_driver_says_against_it_is_told(driver: Driver) -> None:
    with pytest.raises(
        ArtifactError,
        match=r"the driver of 'example-driver' \(.*libexample.so\) refused the module: 'nonsense' is no module"
    ):
        driver.module(b"nonsense")
    lib, _ = program(driver, kind="fail")
    with pytest.raises(RunError, match="takes 1 inputs and 1 outputs, but was given 3 arrays"):
        lib.executable(X, Y)
    broken = driver.module(b"g fail global 1")["g"]
    a = tvm.nd.array(X)
    with pytest.raises(
        RunError, match="the driver of 'example-driver' reports an error in 'g': it is broken after 1 calls"
    ):
        broken(a, a)
    with pytest.raises(KeyError, match="the module 'example-driver' has no function 'h'"):
        driver.module(b"g add global 1")["h"]
    big = tvm.nd.array(np.zeros(1 << 20, np.float32))
    with pytest.raises(
        RunError, match="the driver of 'example-driver' cannot allocate 4194304 bytes of 'sram'; give it a smaller part"
    ):
        driver.module(b"g negate sram 64")["g"](big, big)
    assert asked(driver, "example_live") == 0


@needs_cc
def test_what_is_no_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TargetError, match=r"the driver .*none.so cannot be loaded: .*; build it for this machine as a shared library"
    ):
        load_driver(tmp_path / "none.so")
    empty = tmp_path / "empty.c"
    empty.write_text("int x;")
    subprocess.run([str(CC), "-shared", "-fPIC", str(empty), "-o", str(tmp_path / "empty.so")], check=True)
    with pytest.raises(
        TargetError,
        match=r"empty.so is not a driver: it has no function tw_driver; .*tilewright_driver.h declares the functions"
    ):
        load_driver(tmp_path / "empty.so")
    with pytest.raises(TargetError, match="is for version 9 of the interface, but this is version 1; build it with"):
        load_driver(build(tmp_path, "old", "-DVERSION=9"))
    with pytest.raises(TargetError, match=r"has no function call$"):
        load_driver(build(tmp_path, "dumb", "-DCALL=0", "-Wno-unused-function"))
    with pytest.raises(
        TargetError, match="has no function copy_out; the functions of device memory must be given together"
    ):
        load_driver(build(tmp_path, "half", "-DCOPY_OUT=0", "-Wno-unused-function"))
    other = build(tmp_path, "other")
    with pytest.raises(OptionError, match="registered already"):
        load_driver(other)


@needs_cc
def test_the_header_is_c_and_cpp(tmp_path: Path) -> None:
    for suffix, options in ((".c", ["-std=c99", "-pedantic"]), (".cpp", ["-x", "c++"])):
        file = tmp_path / f"use{suffix}"
        file.write_text('#include "tilewright_driver.h"\nint size(void) { return (int)sizeof(tw_driver_table); }\n')
        compiler = CC if suffix == ".c" else shutil.which("c++") or CC
        subprocess.run(
            [
                str(compiler), *options, "-Wall", "-Werror", f"-I{HEADER.parent}", "-c", str(file), "-o",
                str(tmp_path / "use.o")
            ], check=True
        )


DTYPES = (
    "bool", "int4", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float4_e2m1fn", "complex64"
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5), (0, 4), (1, 1024)])
def test_memory_of_every_type_is_what_numpy_has(dtype: str, shape: tuple[int, ...]) -> None:
    array = aligned_empty(shape, DataType(dtype).numpy())
    memory = memory_of(array, alignment=32)
    assert (memory.shape, memory.dtype, memory.nbytes) == (shape, dtype, array.nbytes)
    assert memory.allocated % 32 == 0
    assert max(1, array.nbytes) <= memory.allocated < array.nbytes + 33
    assert memory.holds(array)
    assert not DeviceMemory(shape, DataType(dtype), "sram").holds(array)
    if math.prod(shape):
        assert memory.strides == array.strides


def test_memory_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(OptionError, match="a tensor of string cannot be placed in device memory; convert it"):
        DeviceMemory((2,), DataType("string"))
    with pytest.raises(OptionError, match="an alignment of 48 bytes is not a power of two"):
        DeviceMemory((2,), DataType("int8"), alignment=48)
    with pytest.raises(OptionError, match="has no size in memory"):
        DeviceMemory((2, -1), DataType("int8"))
