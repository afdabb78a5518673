"""Arrays and devices: sharing memory, copying, and the messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright.base import nd
from tilewright.base.errors import InputError, TargetError


def test_array_is_a_copy_with_the_values() -> None:
    source = np.arange(6, dtype="int16").reshape(2, 3)
    x = nd.array(source)
    source[0, 0] = 99
    assert x.shape == (2, 3) and x.dtype == "int16" and x.ndim == 2 and x.size == 6 and x.nbytes == 12
    np.testing.assert_array_equal(x.numpy(), np.arange(6).reshape(2, 3))
    assert np.asarray(x).__array_interface__["data"][0] % 64 == 0


def test_array_from_lists_and_scalars() -> None:
    assert nd.array([[1.0, 2.0]]).shape == (1, 2)
    assert nd.array(3).shape == () and nd.array(3).numpy() == 3


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool", "int4", "float64"]
)
def test_empty_of_every_type(dtype: str) -> None:
    x = nd.empty((3, 5), dtype)
    x.copyfrom(np.ones((3, 5)))
    assert x.dtype == dtype and x.shape == (3, 5)
    assert (np.asarray(x).astype("float32") == 1).all()


def test_empty_without_elements() -> None:
    assert nd.empty((0, 3)).numpy().shape == (0, 3)


def test_numpy_copies_and_asarray_shares() -> None:
    x = nd.array(np.zeros(3, "float32"))
    x.numpy()[0] = 1
    assert x.asnumpy()[0] == 0
    np.asarray(x)[0] = 2
    assert x.numpy()[0] == 2


def test_array_protocol_converts_and_refuses() -> None:
    x = nd.array(np.ones(2, "float32"))
    assert np.asarray(x, dtype="int32").dtype == np.int32
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, dtype="int32", copy=False)


def test_copyto_array_and_device() -> None:
    x = nd.array(np.arange(4, dtype="float32"))
    y = nd.empty((4,), "int32")
    assert x.copyto(y) is y and y.numpy().tolist() == [0, 1, 2, 3]
    z = x.copyto(nd.cpu(0))
    np.asarray(x)[0] = 7
    assert z.numpy()[0] == 0 and z.device == nd.cpu()


def test_copyfrom_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3,\) cannot be copied into one of shape \(2,\)"):
        nd.empty((2,)).copyfrom(np.zeros(3))


def test_indexing_reads_and_writes() -> None:
    x = nd.array(np.zeros((2, 2), "float32"))
    x[0, 1] = 5
    assert x[0].tolist() == [0, 5] and len(x) == 2 and "cpu(0)" in repr(x)


def test_dlpack_to_numpy_shares_memory() -> None:
    x = nd.array(np.arange(3, dtype="float32"))
    view = np.from_dlpack(x)
    np.asarray(x)[0] = 9
    assert view[0] == 9 and x.__dlpack_device__() == (1, 0)


def test_dlpack_from_numpy_shares_memory_and_keeps_strides() -> None:
    source = np.arange(12, dtype="float64").reshape(3, 4)[:, ::2]
    x = nd.from_dlpack(source)
    source[0, 0] = 5
    assert x.strides == source.strides and x.numpy()[0, 0] == 5


def test_dlpack_bfloat16_there_and_back() -> None:
    x = nd.array(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    y = nd.from_dlpack(x)
    assert y.dtype == "bfloat16" and y.numpy().astype("float32").tolist() == [1.5, -2.0]
    np.asarray(x)[0] = 4
    assert float(y[0]) == 4


def test_uint16_stays_uint16_through_dlpack() -> None:
    assert nd.from_dlpack(np.array([1, 2], "uint16")).dtype == "uint16"


def test_dlpack_capsule() -> None:
    assert nd.from_dlpack(nd.array([1, 2]).to_dlpack()).numpy().tolist() == [1, 2]


def test_memory_of_a_capsule_is_written() -> None:
    torch = pytest.importorskip("torch")
    source = torch.arange(6, dtype=torch.float32)
    x = nd.from_dlpack(torch.utils.dlpack.to_dlpack(source))
    y = nd.from_dlpack(x)
    y[0] = 42
    assert source[0] == x.numpy()[0] == 42
    assert torch.utils.dlpack.from_dlpack(y.to_dlpack()).data_ptr() == source.data_ptr()
    half = nd.from_dlpack(torch.utils.dlpack.to_dlpack(torch.tensor([1.5], dtype=torch.bfloat16)))
    half[0] = 2.5
    assert half.dtype == "bfloat16" and float(half[0]) == 2.5


def test_dlpack_of_torch() -> None:
    torch = pytest.importorskip("torch")
    source = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
    x = nd.from_dlpack(source)
    source[0, 1] = 42
    assert x.shape == (3, 2) and x.numpy()[0, 1] == 42
    half = nd.from_dlpack(torch.tensor([1.5], dtype=torch.bfloat16))
    assert half.dtype == "bfloat16" and float(half[0]) == 1.5
    assert torch.from_dlpack(nd.array(np.array([2.5], ml_dtypes.bfloat16))).dtype == torch.bfloat16
    with pytest.raises(InputError, match=r"cannot be shared through DLPack: .*require gradient"):
        nd.from_dlpack(torch.ones(1, requires_grad=True))


def test_not_dlpack() -> None:
    with pytest.raises(InputError, match="expected a DLPack exporter or an unused DLPack capsule, not list"):
        nd.from_dlpack([1])


def test_dlpack_on_another_device() -> None:
    class OnGpu:
        def __dlpack__(self, **options: Any) -> None:
            raise AssertionError("must not be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(InputError, match="not in host memory; copy it to the CPU first"):
        nd.from_dlpack(OnGpu())


def test_devices() -> None:
    assert nd.device("llvm") == nd.device("cpu", 0) == nd.cpu(0) == nd.device("llvm -mcpu=znver4")
    assert nd.cpu().device_type == 1 and nd.cpu().exist and repr(nd.cpu(1)) == "cpu(1)" and not nd.cpu(1).exist
    nd.cpu().sync()


def test_unknown_device() -> None:
    with pytest.raises(TargetError, match="there is no device 'cpuu' here; did you mean 'cpu'"):
        nd.device("cpuu")
    with pytest.raises(TargetError, match="there is no device 'abacus' here; use 'cpu' or one of: cpu, cuda, opencl"):
        nd.device("abacus")


@pytest.mark.parametrize("kind", ["cuda", "opencl", "vulkan", "metal", "vpi", "rocm", "ext_dev", "webgpu", "hexagon"])
def test_other_devices_do_not_exist(kind: str) -> None:
    dev = nd.device(kind, 1)
    assert not dev.exist and dev == getattr(tvm, kind)(1) == getattr(tvm.runtime, kind)(1)
    uses: list[Callable[[], object]] = [
        lambda: nd.array([1.0], dev), lambda: nd.empty((2,), "float32", dev), lambda: nd.array([1.0]).copyto(dev),
        dev.sync]
    for use in uses:
        with pytest.raises(TargetError, match=rf"there is no device '{kind}\(1\)' here: arrays and programs"):
            use()


def test_numbers_of_devices() -> None:
    wanted = {
        "c": 1, "nvptx": 2, "cl": 4, "sdaccel": 4, "aocl": 5, "aocl_sw_emu": 5, "mtl": 8, "rocm": 10, "hexagon": 16}
    assert {k: nd.device(k).device_type for k in wanted} == wanted
    assert tvm.cl(2) == tvm.opencl(2)


def test_vectors_have_their_lanes_as_the_last_axis_of_numpy() -> None:
    made = nd.empty((3, 2), "float32x4")
    assert (
        made.shape, made.ndim, made.size, str(made.dtype), made.nbytes, made.strides
    ) == ((3, 2), 2, 6, "float32x4", 96, (32, 16))
    values = np.random.default_rng(0).random((3, 2, 4), np.float32)
    assert made.copyfrom(values) is made
    np.testing.assert_array_equal(made.numpy(), values)
    copy = made.copyto(nd.cpu())
    assert (copy.shape, str(copy.dtype)) == ((3, 2), "float32x4")
    with pytest.raises(
        InputError,
        match=r"shape \(3, 2\) cannot be copied into one of shape \(3, 2\) and dtype float32x4, whose 4 lanes form "
        r"the last axis"
    ):
        made.copyfrom(values[..., 0])


def test_uint16_copied_into_bfloat16_is_its_bits() -> None:
    made = nd.empty((3,), "bfloat16").copyfrom(np.array([0x3F80, 0x4000, 0xBF80], np.uint16))
    np.testing.assert_array_equal(made.numpy().astype(np.float32), [1, 2, -1])
