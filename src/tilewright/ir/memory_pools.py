"""TVM's `ir.memory_pools`: descriptions of the memories of a board, for `relay.build` and `tvmc.compile`.

    sram = WorkspacePoolInfo("sram", [target], PoolInfoProperties(size_hint_bytes=64 * 1024))
    relay.build(mod, "c", workspace_memory_pools=WorkspaceMemoryPools([sram]))     an error if the workspace is larger
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import OptionError


@dataclass(frozen=True)
class PoolInfoProperties:
    """Size in bytes (-1: unlimited), clock in Hz (-1: unknown), bandwidths in bytes per cycle (-1: unknown), latencies
    in cycles, and the bytes of a burst by target."""

    size_hint_bytes: int = -1
    clock_frequency_hz: int = -1
    read_bandwidth_bytes_per_cycle: int = -1
    write_bandwidth_bytes_per_cycle: int = -1
    read_latency_cycles: int = 0
    write_latency_cycles: int = 0
    target_burst_bytes: Mapping[Any, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolInfo:
    """A memory by name, the targets that use it, and its properties, also as attributes of the pool."""

    pool_name: str
    targets: Sequence[Any] = ()
    pool_info_properties: PoolInfoProperties = field(default_factory=PoolInfoProperties)

    @property
    def size_hint_bytes(self) -> int:
        return self.pool_info_properties.size_hint_bytes

    @property
    def clock_frequency_hz(self) -> int:
        return self.pool_info_properties.clock_frequency_hz

    @property
    def read_bandwidth_bytes_per_cycle(self) -> int:
        return self.pool_info_properties.read_bandwidth_bytes_per_cycle

    @property
    def write_bandwidth_bytes_per_cycle(self) -> int:
        return self.pool_info_properties.write_bandwidth_bytes_per_cycle

    @property
    def read_latency_cycles(self) -> int:
        return self.pool_info_properties.read_latency_cycles

    @property
    def write_latency_cycles(self) -> int:
        return self.pool_info_properties.write_latency_cycles

    @property
    def target_burst_bytes(self) -> Mapping[Any, int]:
        return self.pool_info_properties.target_burst_bytes


class WorkspacePoolInfo(PoolInfo):
    """A memory that may be written: for the workspace of a program."""


@dataclass(frozen=True, eq=False)
class ConstantInfo:
    """A constant in a pool: its name, its offset in bytes, and its values, an array of numpy or an `NDArray`."""

    name_hint: str
    byte_offset: int
    data: Any


@dataclass(frozen=True, init=False)
class ConstantPoolInfo(PoolInfo):
    """A memory that is read only: for the constants of a program. `constant_info_arr` are those placed in it."""

    constant_info_arr: Sequence[ConstantInfo] = ()

    def __init__(
        self, pool_name: str, targets: Sequence[Any] = (), constant_info_arr: Sequence[ConstantInfo] | None = None,
        pool_info_properties: PoolInfoProperties | None = None,
    ) -> None:
        super().__init__(pool_name, targets, pool_info_properties or PoolInfoProperties())
        object.__setattr__(self, "constant_info_arr", tuple(constant_info_arr or ()))


@dataclass(frozen=True, eq=False)
class AllocatedPoolInfo:
    """A pool with the bytes that a plan uses of it, and the position of its address among the parameters of the main
    function, if that is known."""

    pool_info: PoolInfo
    allocated_size: int
    pool_var_idx: int | None = None


@dataclass(frozen=True)
class _Pools:
    pools: Sequence[PoolInfo]
    content = ""

    def check(self, nbytes: int) -> None:
        """Raise `OptionError` unless one of the pools has room for `nbytes`, since a program uses one block."""
        sizes = {p.pool_name: p.size_hint_bytes for p in self.pools}
        if all(0 <= size < nbytes for size in sizes.values()):
            shown = ", ".join(f"'{name}' has {size}" for name, size in sizes.items())
            raise OptionError(
                f"no memory pool has room for the {self.content} of the program, one block of {nbytes} bytes: "
                f"{shown or 'there is none'}; enlarge a pool", code="TW0204")


@dataclass(frozen=True)
class WorkspaceMemoryPools(_Pools):
    """The memories for the workspace of a program."""

    pools: Sequence[WorkspacePoolInfo]
    content = "workspace"


@dataclass(frozen=True)
class ConstantMemoryPools(_Pools):
    """The memories for the constants of a program."""

    pools: Sequence[ConstantPoolInfo]
    content = "constants"
