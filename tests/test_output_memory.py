"""Memory of large outputs: used again by later calls, returned after calls without need for it."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.mapped_memory import HUGE_PAGE, LEAST_MAPPED, array_in, map_memory, room_of, workspace_memory
from tilewright.runtime.output_memory import PATIENCE, OutputMemory

FLOAT = np.dtype("float32")
LARGE = (LEAST_MAPPED // 4,)


def test_only_large_outputs_are_mapped() -> None:
    memory = OutputMemory()
    assert memory.maker((LARGE[0] - 1,), FLOAT) is np.empty
    assert memory.maker(LARGE, FLOAT) == memory.empty
    assert memory.maker(LARGE, np.dtype(object)) is np.empty


def test_memory_of_an_array_is_free_when_its_last_view_is_gone() -> None:
    memory = OutputMemory()
    array = memory.empty((2, *LARGE), FLOAT)
    assert array.shape == (2, *LARGE) and array.dtype == FLOAT
    assert array.flags.writeable and array.flags.c_contiguous and array.ctypes.data % HUGE_PAGE == 0
    row = array[1]
    del array
    assert not memory.free
    row[:] = 1
    del row
    gc.collect()
    assert len(memory.free) == 1


def test_free_memory_is_used_again_for_outputs_that_are_not_far_smaller() -> None:
    memory = OutputMemory()
    first = memory.empty((4 * LARGE[0],), FLOAT)
    place = first.ctypes.data
    del first
    small = memory.empty(LARGE, FLOAT)
    assert small.ctypes.data != place and len(memory.free) == 1
    assert memory.empty((3 * LARGE[0],), FLOAT).ctypes.data == place


def test_two_outputs_that_live_have_memory_of_their_own() -> None:
    memory = OutputMemory()
    one, two = memory.empty(LARGE, FLOAT), memory.empty(LARGE, FLOAT)
    assert not np.shares_memory(one, two)


def test_unused_memory_goes_back_to_the_system() -> None:
    memory = OutputMemory()
    memory.empty(LARGE, FLOAT)
    for _ in range(PATIENCE - 1):
        memory.end_call()
    assert len(memory.free) == 1
    memory.end_call()
    assert not memory.free


def test_mapped_memory() -> None:
    block = map_memory(LEAST_MAPPED + 1)
    assert room_of(block) == LEAST_MAPPED + HUGE_PAGE
    array = array_in(block, (3, 5), np.dtype("int16"))
    assert array.shape == (15,) and not array.any() and array.ctypes.data % HUGE_PAGE == 0


@pytest.mark.parametrize("nbytes", [100, LEAST_MAPPED])
def test_workspace_memory(nbytes: int) -> None:
    array = workspace_memory(nbytes)
    assert array.shape == (nbytes,) and array.dtype == np.uint8 and array.ctypes.data % 64 == 0


def test_more_memory_than_addresses_is_an_error() -> None:
    with pytest.raises(MemoryError, match=f"{1 << 60} bytes"):
        map_memory(1 << 60)


def test_outputs_of_a_program_take_turns_in_the_same_memory() -> None:
    n = relay.Var("x", relay.TensorType((LARGE[0],), "float32"))
    model = tilewright.compile(relay.Function([n], relay.add(n, relay.const(np.float32(1)))), threads=1)
    x = np.arange(LARGE[0], dtype="float32")
    kept = model(x)
    places = set[int]()
    for k in range(6):
        y = model(x + k)
        np.testing.assert_array_equal(y, x + k + 1)
        places.add(y.ctypes.data)
    np.testing.assert_array_equal(kept, x + 1)
    assert len(places) <= 2 and kept.ctypes.data not in places


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident memory is read from Linux's /proc")
def test_calls_with_large_outputs_leave_no_memory_behind() -> None:
    memory = OutputMemory()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for size in range(8, 16):
        memory.empty((size * LARGE[0],), FLOAT)[:] = 1
        for _ in range(PATIENCE):
            memory.end_call()
    assert not memory.free
    assert resident() - before < 4 * LEAST_MAPPED
