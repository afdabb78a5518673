"""Modules of `tvm.contrib`: processes of popen_pool, TFLite's interpreter, what is known of CUDA's libraries, stages of
BLAS and random numbers, archives."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import ArtifactError, InputError, OptionError, PackageError, ShapeError, TargetError
from tilewright.compat.contrib import cblas, cudnn, random, tar, tflite_runtime, utils
from tilewright.compat.contrib.cuda_graph import cuda_graph_executor
from tilewright.compat.contrib.popen_pool import MapResult, PopenPoolExecutor, PopenWorker, StatusKind
from tilewright.compat.testing.popen_jobs import (
    after_initializer,
    call_cpp_py_ffi,
    identity_after,
    initializer,
    register_ffi,
    terminate_self,
    timeout_job,
)
from tilewright.search.auto_scheduler.utils import call_func_with_timeout


def fail(what: str) -> None:
    raise KeyError(what)


def test_worker() -> None:
    worker = PopenWorker(initializer, [1, 2, 3], maximum_uses=2)
    worker.send(after_initializer)
    assert worker.recv() == (1, 2, 3)
    worker.send(os.getpid)
    first = worker.recv()
    assert first != os.getpid() and worker.is_alive()
    worker.send(os.getpid)
    assert worker.recv() != first  # a process is used twice
    worker.send(terminate_self)
    with pytest.raises(ChildProcessError, match="ended without a result"):
        worker.recv()
    worker.send(identity_after, [7, 30], timeout=0.2)
    with pytest.raises(TimeoutError, match="took more than its time"):
        worker.recv()
    worker.send(fail, ["x"])
    with pytest.raises(KeyError, match="x"):
        worker.recv()
    worker.kill()
    worker.join()
    assert not worker.is_alive()


def test_registered_functions_in_a_worker() -> None:
    worker = PopenWorker(register_ffi)
    worker.send(call_cpp_py_ffi, [5])
    assert worker.recv() == 5
    assert isinstance(call_func_with_timeout(worker, 0.2, timeout_job, (10,)), TimeoutError)
    assert call_func_with_timeout(worker, 60, identity_after, (4, 0)) == 4
    worker.kill()


def test_pool() -> None:
    pool = PopenPoolExecutor(max_workers=1, timeout=60)
    assert pool.submit(identity_after, 3, 0).result() == 3
    results = [*pool.map_with_error_catching(lambda x: 6 // x, [2, 0])]
    assert results[0] == MapResult(StatusKind.COMPLETE, 3)
    assert results[1].status == StatusKind.EXCEPTION and isinstance(results[1].value, ZeroDivisionError)


class Interpreter:
    """A model that doubles its input, with the interface of TFLite's interpreter."""

    def __init__(self, model_content: bytes) -> None:
        self.values: dict[int, Any] = {}

    def allocate_tensors(self) -> None:
        self.values[3] = np.zeros(2, np.float32)

    def get_input_details(self) -> list[dict[str, int]]:
        return [{"index": 3}]

    def get_output_details(self) -> list[dict[str, int]]:
        return [{"index": 4}]

    def set_tensor(self, index: int, value: Any) -> None:
        self.values[index] = value

    def get_tensor(self, index: int) -> Any:
        return self.values[index]

    def invoke(self) -> None:
        self.values[4] = 2 * self.values[3]


def test_tflite_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> Any:
        if name == "tensorflow.lite":
            return type("lite", (), {"Interpreter": Interpreter})
        raise ImportError(name)

    monkeypatch.setattr(tflite_runtime, "importlib", SimpleNamespace(import_module=imported))
    module = tflite_runtime.create(b"model", tvm.cpu())
    module.set_input(0, tvm.nd.array(np.array([1, 2], np.float32)))
    module.invoke()
    np.testing.assert_array_equal(module.get_output(0).numpy(), [2, 4])
    with pytest.raises(InputError, match="the model has no output 1; it has 1"):
        module.get_output(1)
    with pytest.raises(InputError, match="cannot be changed later"):
        module.set_num_threads(2)
    with pytest.raises(TargetError, match="'edge_tpu'; only 'cpu' is here"):
        tflite_runtime.create(b"model", tvm.cpu(), "edge_tpu")
    monkeypatch.setattr(tflite_runtime, "_PACKAGES", ("absent",))
    with pytest.raises(PackageError, match="pip install ai-edge-litert"):
        tflite_runtime.create(b"model", tvm.cpu())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_shapes_of_cudnn(layout: str) -> None:
    shapes = ((2, 8, 15, 17), (12, 4, 3, 5))
    x, w = shapes if layout == "NCHW" else (tuple(s[k] for k in (0, 2, 3, 1)) for s in shapes)
    found = cudnn.conv_output_shape(
        int(layout == "NHWC"), (1, 2), (2, 1), (1, 2), x, w, "float32", "float32", groups=2)
    call = relay.nn.conv2d(
        relay.var("x", shape=x), relay.var("w", shape=w), strides=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2,
        data_layout=layout, kernel_layout="OIHW" if layout == "NCHW" else "OHWI")
    assert tuple(found) == relay.transform.InferType()(tvm.IRModule.from_expr(call))["main"].ret_type.shape
    with pytest.raises(ShapeError, match="the input has 8 channels, and the weight expects 4"):
        cudnn.conv_output_shape(0, (0, 0), (1, 1), (1, 1), shapes[0], shapes[1], "float32", "float32")
    with pytest.raises(ShapeError, match="tensor_format is 2"):
        cudnn.conv_output_shape(2, (0, 0), (1, 1), (1, 1), shapes[0], shapes[1], "float32", "float32")


def test_graphs_of_cuda_are_refused() -> None:
    with pytest.raises(TargetError, match=r"use contrib\.graph_executor"):
        cuda_graph_executor.GraphModuleCudaGraph(None)


@pytest.mark.parametrize(("transa", "transb"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_by_blas(transa: bool, transb: bool) -> None:
    n, k, m = 5, 7, 3
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, k, n) if transa else (2, n, k)).astype(np.float32)
    b = rng.standard_normal((1, m, k) if transb else (1, k, m)).astype(np.float32)
    x, y = te.placeholder(a.shape, name="x"), te.placeholder(b.shape, name="y")
    several = cblas.batch_matmul(x, y, transa, transb)
    p, q = te.placeholder(a.shape[1:], name="p"), te.placeholder(b.shape[1:], name="q")
    single = cblas.matmul(p, q, transa, transb)
    wanted = np.matmul(a.swapaxes(1, 2) if transa else a, b.swapaxes(1, 2) if transb else b)
    got, first = np.zeros((2, n, m), np.float32), np.zeros((n, m), np.float32)
    tvm.build(te.create_schedule(several.op), [x, y, several], "llvm")(a, b, got)
    tvm.build(te.create_schedule(single.op), [p, q, single], "llvm")(a[0].copy(), b[0].copy(), first)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.testing.assert_allclose(first, wanted[0], rtol=1e-5)


def drawn(stage: te.Tensor, *, begin: int = 7) -> Any:
    random.seed(begin)
    out: Any = np.zeros([int(str(n)) for n in stage.shape], str(stage.dtype))
    tvm.build(te.create_schedule(stage.op), [stage], "llvm")(out)
    return out


def test_random_numbers_of_stages() -> None:
    whole = random.randint(-3, 4, (100, 100))
    x = drawn(whole)
    assert (x.dtype, x.min(), x.max()) == (np.int32, -3, 3)
    np.testing.assert_array_equal(x, drawn(whole))
    assert (x != drawn(whole, begin=8)).any()
    even, bell = drawn(random.uniform(2, 6, (100, 100))), drawn(random.normal(3, 4, (100, 100)))
    assert 2 <= even.min() < 2.1 and 5.9 < even.max() <= 6
    assert abs(bell.mean() - 3) < 0.2 and abs(bell.std() - 4) < 0.2
    with pytest.raises(OptionError, match="randint draws int32 numbers, not int64"):
        random.randint(0, 4, (2,), "int64")
    with pytest.raises(OptionError, match="randint has no numbers from 4 to 3; give a higher `high`"):
        random.randint(4, 4, (2,))


@pytest.mark.parametrize("dtype", ["bool", "int4", "int8", "uint64", "float16", "float64"])
def test_arrays_filled_at_random(dtype: str) -> None:
    x = tvm.nd.empty((32, 32), dtype)
    tvm.get_global_func("tvm.contrib.random.random_fill")(x)
    assert np.count_nonzero(x.numpy()) == 32 * 32


def test_archives_of_objects(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.o", "in/a.o", "in/b.o"):
        (tmp_path / name).write_text(name)
    tar.tar(tmp_path / "lib.tar", [tmp_path / "a.o", tmp_path / "in" / "b.o"])
    folder = utils.tempdir(tmp_path / "temporary")
    found = tar.normalize_file_list_by_unpacking_tars(folder, [tmp_path / "in/a.o", tmp_path / "lib.tar"])
    assert [Path(f).read_text() for f in found] == ["in/a.o", "a.o", "in/b.o"]
    with pytest.raises(ArtifactError, match=r"two files are named 'a\.o'; rename one of them"):
        tar.tar(tmp_path / "twice.tar", [tmp_path / "a.o", tmp_path / "in/a.o"])
    with tarfile.open(tmp_path / "outside.tar", "w") as archive:
        archive.add(tmp_path / "a.o", "b/good.o")
        archive.add(tmp_path / "a.o", "../outside.o")
    with pytest.raises(tarfile.TarError, match="points outside of the archive"):
        tar.untar(tmp_path / "outside.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "outside.o").exists()
