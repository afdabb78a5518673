"""Memory pools of `relay.build`: the workspace and the constants of a program must each have room in one of them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import OptionError
from tilewright.compat.testing.usmp import is_tvm_backendallocworkspace_calls
from tilewright.ir.memory_pools import ConstantInfo


def program() -> tvm.IRModule:
    """Return two products by constants of 16 KiB, with 4 KiB between them."""
    x = relay.var("x", shape=(16, 64))
    weight = relay.const(np.ones((64, 64), "float32"))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(relay.nn.dense(x, weight), weight)))


def workspace(*sizes: int) -> tvm.WorkspaceMemoryPools:
    return tvm.WorkspaceMemoryPools([
        tvm.WorkspacePoolInfo(f"sram{k}", ["c"], tvm.PoolInfoProperties(size_hint_bytes=size))
        for k, size in enumerate(sizes)])


def constants(size: int) -> tvm.ConstantMemoryPools:
    return tvm.ConstantMemoryPools([tvm.ConstantPoolInfo("flash", ["c"], [], tvm.PoolInfoProperties(size))])


@pytest.mark.parametrize("sizes", [(-1,), (1 << 20,), (16, 1 << 20)])
def test_programs_with_room_in_a_pool_are_built(sizes: tuple[int, ...]) -> None:
    built = relay.build(
        program(), "c", workspace_memory_pools=workspace(*sizes), constant_memory_pools=constants(1 << 20))
    assert not is_tvm_backendallocworkspace_calls(built.lib)


def test_programs_without_room_are_refused() -> None:
    with pytest.raises(OptionError, match=r"no memory pool has room for the workspace of the program, one block of "
                       r"\d+ bytes: 'sram0' has 16, 'sram1' has 32; enlarge a pool"):
        relay.build(program(), "c", workspace_memory_pools=workspace(16, 32))
    with pytest.raises(OptionError, match=r"no memory pool has room for the constants .*: 'flash' has 64;"):
        relay.build(program(), "c", constant_memory_pools=constants(64))
    with pytest.raises(OptionError, match="there is none; enlarge a pool"):
        workspace().check(1)


def test_constants_of_a_pool_have_names_offsets_and_values() -> None:
    pool = tvm.ConstantPoolInfo("flash", ["c"], [ConstantInfo("weight", 16, tvm.nd.array(np.arange(3)))])
    (found,) = pool.constant_info_arr
    assert (pool.pool_name, pool.size_hint_bytes, found.name_hint, found.byte_offset) == ("flash", -1, "weight", 16)
    np.testing.assert_array_equal(found.data.numpy(), [0, 1, 2])
