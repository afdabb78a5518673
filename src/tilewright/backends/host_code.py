"""The interface of host code: the code of a program around its kernels, which runs them on the host.

    i32 tw_run(ptr context, ptr args)             runs the steps of a manifest on the addresses `args`
    ptr tw_pool_create(i64 threads)               makes the context of runs, with its pool of threads
    i32 <name>_run(inputs, outputs)               the entry for C programs, in saved files

`backends/cpu/llvm/host_code.py` writes it as LLVM text. A back end without LLVM brings its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from tilewright.backends.flow import FlowProgram
    from tilewright.backends.targets.target import Target
    from tilewright.runtime.manifest import Manifest
    from tilewright.runtime.sizes import Size

FIRST_CHUNK: Final = 1 << 14
"""Bytes of the workspace from which values of control flow are allocated before memory is requested."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The places where a program with control flow checks for pending signals.

    It has the estimated nanoseconds of each block, the blocks that check between their kernels, and the maximum
    nanoseconds between two checks.
    """

    work: Sequence[int]
    blocks: Collection[int]
    span: int


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """A program with control flow: its functions, and the objects to which they refer by number."""

    program: FlowProgram
    blocks: Sequence[Manifest]
    """The straight-line parts."""
    looks: Mapping[int, frozenset[int]]
    """For each block that checks for signals, the steps after which it checks."""
    calls: Sequence[int]
    """Number of arrays of each call that leaves native code."""
    constants: Sequence[int]
    """Offsets of the constants that functions use as values, in bytes."""
    result_bytes: Sequence[Size]
    workspace_bytes: int
    """Size of the workspace that the blocks share; `FIRST_CHUNK` bytes follow it."""
    watch: Watch | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Positions of dynamic sizes in the table of sizes (`runtime/size_table.py`)."""


class HostCode(Protocol):
    """The writer and the compiler of host code."""

    def entries(self, manifest: Manifest, target: Target, looks: frozenset[int] | None) -> Sequence[str]:
        """Return the texts of a program without control flow: its entry functions, the pool, and the functions that
        they call.

        `looks` are the numbers of the steps after which a run checks for pending signals; None for entries without
        checks.
        """

    def flow(self, flow: ControlFlow, manifest: Manifest, target: Target) -> Sequence[str]:
        """Return the texts of a program with control flow; the first has its blocks and functions."""

    def for_functions(self, manifest: Manifest, target: Target) -> Sequence[bytes]:
        """Return the objects that functions of `tvm.build` call: the thread pool, and fault reports of checked code."""

    def c_entry(self, manifest: Manifest) -> bytes:
        """Return the object of the functions that a C program calls."""

    def data(self, target: Target, contents: Sequence[tuple[str, Any]]) -> bytes:
        """Return an object with one read-only global symbol for each `(name, array of bytes)`, for targets without
        64-bit ELF."""

    def compile(self, text: str, target: Target, *, in_order: bool = False) -> bytes:
        """Return the object file of a text of `entries` or `flow`, as `Backend.compile` does."""
