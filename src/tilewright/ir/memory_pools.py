"""TVM's `ir.memory_pools`: descriptions of the memories of a board, for `tvmc.compile(workspace_pools=…)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True)
class WorkspaceMemoryPools:
    """The memories for the workspace of a program."""

    pools: Sequence[WorkspacePoolInfo]
