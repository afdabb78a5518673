"""Executables: arguments, outputs, threads, host steps, timing."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import small_programs as programs
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.entry import emit_entry
from tilewright.backends.targets.target import Target
from tilewright.base import nd
from tilewright.base.errors import InputError, InternalError, OptionError
from tilewright.base.types import DataType
from tilewright.runtime import threads
from tilewright.runtime.benchmark import BenchmarkResult, measure
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import KernelCall, Place, TensorInfo, entry_symbols

X = np.arange(8, dtype="float32").reshape(2, 4) - 3


@pytest.fixture(scope="module")
def affine() -> Executable:
    return programs.affine().executable()


@pytest.fixture(scope="module")
def two() -> Executable:
    return programs.two_outputs().executable()


def test_call_by_position_name_and_mapping(affine: Executable) -> None:
    for result in (affine(X), affine(x=X), affine({"x": X}), affine(nd.array(X))):
        np.testing.assert_array_equal(result, programs.affine_value(X))


def test_outputs_are_new_each_time(affine: Executable) -> None:
    first = affine(X)
    affine(X + 1)
    np.testing.assert_array_equal(first, programs.affine_value(X))


def test_strided_unaligned_and_readonly_inputs(affine: Executable) -> None:
    wide = np.zeros((2, 8), "float32")
    wide[:, ::2] = X
    shifted = np.frombuffer(b"\0" * 4 + X.tobytes(), np.float32, 8, 4).reshape(2, 4)
    fortran = np.asfortranarray(X)
    for x in (wide[:, ::2], shifted, fortran, nd.from_dlpack(wide[:, ::2])):
        np.testing.assert_array_equal(affine(x), programs.affine_value(X))


def test_torch_inputs_and_outputs(affine: Executable) -> None:
    torch = pytest.importorskip("torch")
    out = torch.empty(2, 4)
    affine(torch.from_numpy(X.copy()), out=out)
    np.testing.assert_array_equal(out.numpy(), programs.affine_value(X))


def test_plain_lists_take_the_dtype_of_the_model(affine: Executable) -> None:
    np.testing.assert_array_equal(affine(X.tolist()), programs.affine_value(X))


def test_several_outputs_and_copies(two: Executable) -> None:
    y, same = two(X, b=X)
    np.testing.assert_array_equal(y, 2 * X)
    np.testing.assert_array_equal(same, X)
    assert same is not X


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"missing input 'x', 'b'; the model takes float32 x\[2, 4\], float32 b\[2, 4\]"),
        ((X,), {}, "missing input 'b'"),
        ((X, X, X), {}, "3 inputs were given, but the model has 2"),
        ((X,), {"c": X}, "the model has no input 'c'; it has float32 x"),
        ((X,), {"x": X, "b": X}, "input 'x' was given twice: by position 0 and by name"),
        (
            (X, X.astype("float64")), {},
            r"input 'b' has dtype float64, expected float32 b\[2, 4\]; convert it with .astype\('float32'\)"
        ),
        ((X, X.reshape(4, 2)), {}, r"input 'b' has shape \[4, 2\], expected float32 b\[2, 4\]"),
    ],
)
def test_wrong_inputs(two: Executable, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        two(*args, **kwargs)


def test_out_is_written_and_returned(affine: Executable) -> None:
    out = np.empty((2, 4), "float32")
    assert affine(X, out=out) is out
    np.testing.assert_array_equal(out, programs.affine_value(X))
    device_array = nd.empty((2, 4))
    affine(X, out=device_array)
    np.testing.assert_array_equal(device_array.numpy(), programs.affine_value(X))


def test_out_may_be_strided_or_an_input(affine: Executable) -> None:
    wide = np.zeros((2, 8), "float32")
    affine(X, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], programs.affine_value(X))
    assert not wide[:, 1::2].any()
    x = X.copy()
    affine(x, out=x)
    np.testing.assert_array_equal(x, programs.affine_value(X))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((2, 4)), r"out= for 'y' is float64\[2, 4\], expected float32 y\[2, 4\]"),
        (np.broadcast_to(np.float32(0), (2, 4)), "out= for 'y' cannot be written to"),
        ((), "out= has 0 arrays, the model has 1 outputs"),
        ([[1]], "out= for 'y' is a list, expected an array"),
    ],
)
def test_wrong_out(affine: Executable, out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        affine(X, out=out)


def test_parallel_loop_on_several_threads() -> None:
    artifact = programs.squares(threads=2)
    for executable in (artifact.executable(), artifact.executable(1), artifact.executable(4)):
        for _ in range(50):
            np.testing.assert_array_equal(executable(), np.arange(100) ** 2)
    assert artifact.executable().threads == 2


def test_threads_can_be_changed() -> None:
    executable = programs.squares().executable(1)
    executable.threads = 2
    assert executable.threads == 2
    np.testing.assert_array_equal(executable(), np.arange(100) ** 2)
    with pytest.raises(OptionError, match="0 is not a number of threads; use 1 to 1024"):
        executable.threads = 0


def test_number_of_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.default_threads() == 3
    monkeypatch.setenv(threads.VARIABLE, "many")
    with pytest.raises(OptionError, match="TILEWRIGHT_NUM_THREADS is 'many', which is not a number"):
        threads.default_threads()
    monkeypatch.delenv(threads.VARIABLE)
    assert 1 <= threads.default_threads() <= (os.cpu_count() or 1)


def test_binding_of_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = programs.squares(threads=2).executable()
    threads.POOLS.close()
    monkeypatch.setenv(threads.BINDING, "no")
    with pytest.raises(
        OptionError, match="TILEWRIGHT_BIND_THREADS is 'no'; set it to 0 to let the system place the threads"
    ):
        executable()
    for value in ("0", "1"):
        threads.POOLS.close()
        monkeypatch.setenv(threads.BINDING, value)
        np.testing.assert_array_equal(executable(), np.arange(100) ** 2)


def test_one_pool_for_all_executables() -> None:
    first, second = programs.affine().executable(2), programs.squares().executable(2)
    first(X), second()
    assert first._context == second._context


def test_pools_start_again_after_closing(affine: Executable) -> None:
    affine(X)
    threads.POOLS.close()
    np.testing.assert_array_equal(affine(X), programs.affine_value(X))


def test_concurrent_calls_do_not_meet(affine: Executable) -> None:
    parallel = programs.squares(threads=2).executable()
    wrong: list[object] = []

    def work(seed: int) -> None:
        x = np.full((2, 4), seed, "float32")
        expected = programs.affine_value(x)
        for _ in range(300):
            if not (affine(x) == expected).all() or not (parallel() == np.arange(100) ** 2).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes() -> None:
    executable = programs.squares(threads=2).executable()
    executable()
    child = os.fork()
    if child == 0:
        os._exit(0 if (executable() == np.arange(100) ** 2).all() else 1)
    deadline = time.monotonic() + 20
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < deadline:
        time.sleep(0.02)
        done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done and status == 0
    np.testing.assert_array_equal(executable(), np.arange(100) ** 2)


def test_host_step_between_native_segments() -> None:
    artifact = programs.with_host_step()
    assert entry_symbols(artifact.manifest.steps) == ["tw_run_0", "tw_run_1"]
    executable = artifact.executable()
    np.testing.assert_array_equal(executable(X), -programs.affine_value(X))
    assert executable.benchmark(repeat=2, number=2).mean > 0


def test_entry_refuses_places_that_do_not_exist() -> None:
    def program(place: Place) -> Manifest:
        return Manifest("bad", (programs.X,), (programs.Y,), (KernelCall("k", (place,)),), workspace_bytes=64)

    with pytest.raises(InternalError, match="a step names input 1, the program has 1"):
        emit_entry(program(Place("input", 1)))
    with pytest.raises(InternalError, match="a step names byte 65 of the workspace, which has 64"):
        emit_entry(program(Place("workspace", 65)))


def test_unaligned_constants_are_moved() -> None:
    artifact = programs.affine()
    block = np.empty(97, np.uint8)
    shifted = block[1:] if block.__array_interface__["data"][0] % 2 == 0 else block[:96]
    shifted[:] = artifact.constants
    executable = Executable(artifact.manifest, artifact._link_in_process(), shifted)
    np.testing.assert_array_equal(executable(X), programs.affine_value(X))


def test_benchmark_result_and_its_text() -> None:
    result = BenchmarkResult((0.001, 0.002, 0.006))
    assert (result.min, result.median, result.max) == (0.001, 0.002, 0.006)
    assert result.mean == pytest.approx(0.003) and result.std == pytest.approx(0.00216, rel=1e-2)
    assert str(result).splitlines()[1].split() == [
        "mean", "(ms)", "median", "(ms)", "max", "(ms)", "min", "(ms)", "std", "(ms)"
    ]
    assert str(result).splitlines()[2].split() == ["3.0000", "2.0000", "6.0000", "1.0000", "2.1602"]


def test_benchmark_of_a_call(affine: Executable) -> None:
    assert len(affine.benchmark(repeat=3, number=2).results) == 3
    assert affine.benchmark(X, repeat=1, number=1, min_repeat_ms=2).mean > 0
    assert affine.benchmark(x=X, repeat=1, end_to_end=True).mean > 0


def test_benchmark_grows_until_it_takes_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    calls: list[None] = []

    def half_a_millisecond() -> None:
        calls.append(None)
        clock[0] += 0.0005

    monkeypatch.setattr("tilewright.runtime.benchmark.time.perf_counter", lambda: clock[0])
    found = measure(half_a_millisecond, repeat=1, number=1, min_repeat_ms=10)
    assert len(calls) == 1 + 1 + 22
    assert found.mean == pytest.approx(0.0005)
    with pytest.raises(OptionError, match="repeat=0 and number=1 must both be at least 1"):
        measure(print, 0, 1)


def test_example_inputs_fit(two: Executable) -> None:
    examples = two.example_inputs()
    assert set(examples) == {"x", "b"} and examples["x"].dtype == np.float32
    assert len(two(examples)) == 2


def test_any_name_is_a_symbol() -> None:
    step = KernelCall('conv 1/"add"\\ö', (Place("output", 0),))
    text = emit_entry(Manifest("odd", (), (programs.Y,), (step,)))
    assert 'call void @"conv\\201\\2F\\22add\\22\\5C\\C3\\B6"(ptr %ctx, ptr %arg0)' in text
    assert len(compile_text(text, Target("llvm"))) > 0


def test_inputs_are_fetched_before_the_first_kernel_that_reads_them() -> None:
    small, large = TensorInfo("small", (3, 100), DataType("float32")), TensorInfo(
        "large", (1 << 20,), DataType("float32")
    )
    step = KernelCall("add", (Place("input", 0), Place("input", 1), Place("output", 0)))
    lines = [
        line.strip() for line in emit_entry(Manifest("both", (small, large), (programs.Y,), (step, step))).splitlines()
    ]
    calls = [line for line in lines if line.startswith("call void") and "llvm" not in line]
    add = "call void @add(ptr %ctx, ptr %arg0, ptr %arg1, ptr %arg2)"
    assert calls == ["call void @fetch(ptr %arg0, i64 1200)", add, add]
