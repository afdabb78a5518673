"""The peak of one core in multiply-adds of float32 vectors, and a row for the table of microarchitectures, fitted to
this machine.

    python benchmarks/peak.py        # prints the row of `backends/cpu/machine.py` for this processor; takes a few
                                     seconds

Clock, ports, latencies and the speed of the levels of memory are measured on one core. Costs of code (tiles, pieces,
threads) keep the values of the generic row: they are fitted by hand with `benchmarks/kernels.py`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import time
from collections.abc import Callable

import llvmlite.binding as llvm

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.machine import Microarchitecture, microarchitecture
from tilewright.backends.targets.target import Target
from tilewright.base.nd import aligned_empty
from tilewright.runtime.host import host_cache_sizes

_CHAINS, _TRIPS = 15, 200_000
_ADDS, _ROUNDS = 64, 15
_LARGE = 256 << 20


def text(lanes: int, count: int = _CHAINS) -> str:
    """A loop of `count` independent multiply-adds: enough of them to hide their latency."""
    v = f"<{lanes} x float>"
    chains = range(count)
    return "\n".join([
        f'define void @peak(ptr %out, i64 %trips) "min-legal-vector-width"="{32 * lanes}" {{',
        "entry:", f"  %x = load {v}, ptr %out, align 4", "  br label %loop",
        "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *(f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in chains),
        *(f"  %b{k} = call {v} @llvm.fma.v{lanes}f32({v} %x, {v} %x, {v} %a{k})" for k in chains),
        "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %trips", "  br i1 %more, label %loop, label %done",
        "done:", f"  %s0 = fadd {v} %b0, %b0",
        *(f"  %s{k} = fadd {v} %s{k - 1}, %b{k}" for k in chains if k),
        f"  store {v} %s{count - 1}, ptr %out, align 4", "  ret void", "}",
        f"declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})",
    ])  # fmt: skip


class Peak:
    """The peak of some threads, measured again and again on the one that asks."""

    def __init__(self, threads: int = 1) -> None:
        target = Target("llvm")
        self.lanes, self.threads = target.vector_bits // 32, threads
        self.code = LoadedCode([compile_text(text(self.lanes), target)], ["peak"])
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.code.address("peak"))
        self.memory = aligned_empty((self.lanes,), "float32")
        self.memory[...] = 0
        self.found: list[float] = []

    def measure(self) -> None:
        """One more sample."""
        begin = time.perf_counter()
        self.call(self.memory.ctypes.data, _TRIPS)
        self.found.append(2 * self.lanes * _CHAINS * _TRIPS * self.threads / (time.perf_counter() - begin))

    @property
    def best(self) -> float:
        """Floating-point operations a second, of the sample that nothing disturbed most."""
        return max(self.found)


def _adds() -> str:
    """A loop of integer additions and exclusive ors in turn, each of which waits one cycle for the one before."""
    chain = [f"  %x{k + 1} = {'xor' if k % 2 else 'add'} i64 %x{k}, %step" for k in range(_ADDS)]
    return "\n".join([
        "define void @peak(ptr %out, i64 %trips) {", "entry:", "  %step = load i64, ptr %out", "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]", f"  %x0 = phi i64 [ 0, %entry ], [ %x{_ADDS}, %loop ]",
        *chain,
        "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %trips", "  br i1 %more, label %loop, label %done",
        "done:", f"  store i64 %x{_ADDS}, ptr %out", "  ret void", "}",
    ])  # fmt: skip


def _stream(lanes: int, vectors: int, *, writes: bool) -> str:
    """A loop over all `vectors` of a buffer, sixteen in one trip, that reads or writes each of them; `trips` counts
    passes."""
    v, each = f"<{lanes} x i32>", range(16)
    places = [f"  %q{k} = getelementptr {v}, ptr %out, i64 %at{k}" for k in each]
    moves = [f"  store {v} zeroinitializer, ptr %q{k}" for k in each] if writes else [
        line for k in each for line in (f"  %l{k} = load {v}, ptr %q{k}", f"  %b{k} = xor {v} %a{k}, %l{k}")
    ]
    return "\n".join([
        f'define void @peak(ptr %out, i64 %trips) "min-legal-vector-width"="{32 * lanes}" {{', "entry:",
        "  br label %pass",
        "pass:", "  %p = phi i64 [ 0, %entry ], [ %pn, %end ]", "  br label %loop",
        "loop:", "  %i = phi i64 [ 0, %pass ], [ %next, %loop ]",
        *([] if writes else [f"  %a{k} = phi {v} [ zeroinitializer, %pass ], [ %b{k}, %loop ]" for k in each]),
        *(f"  %at{k} = add i64 %i, {k}" for k in each), *places, *moves,
        "  %next = add i64 %i, 16", f"  %more = icmp slt i64 %next, {vectors}",
        "  br i1 %more, label %loop, label %end",
        "end:",
        *(
            [] if writes else [f"  %s{k} = xor {v} {f'%s{k - 1}' if k else 'zeroinitializer'}, %b{k}" for k in each]
            + [f"  store {v} %s15, ptr %out"]
        ),
        "  %pn = add i64 %p, 1", "  %again = icmp slt i64 %pn, %trips", "  br i1 %again, label %pass, label %done",
        "done:", "  ret void", "}",
    ])  # fmt: skip


def _seconds(source: str, nbytes: int, trips: int) -> float:
    """The seconds of one trip of a loop over a buffer of `nbytes`, in the round that nothing disturbed most."""
    code = LoadedCode([compile_text(source, Target("llvm"))], ["peak"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    memory = aligned_empty((nbytes // 4,), "float32")
    memory[...] = 0
    return min(_timed(lambda: call(memory.ctypes.data, trips)) for _ in range(_ROUNDS)) / trips


def _timed(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def fit() -> Microarchitecture:
    """A row for the processor of this machine; what is not measured is that of its family."""
    target = Target("llvm")
    lanes, row = target.vector_bits // 32, microarchitecture(target.family, "")
    l1, l2 = host_cache_sizes()
    hertz = _ADDS / _seconds(_adds(), 64, 20_000)
    pair = [_seconds(text(wide), 64, 50_000) for wide in (lanes, lanes // 2)]
    halves = pair[0] > 1.5 * pair[1]
    hertz *= 0.5 if halves else 1.0  # a cycle starts whole vectors, as in `Core`

    def cycles(size: int, passes: int, *, writes: bool = False) -> float:
        """Cycles of one vector of a buffer of `size` bytes."""
        vectors = size // (4 * lanes) // 16 * 16
        return _seconds(_stream(lanes, vectors, writes=writes), size, passes) * hertz / vectors

    near, second, third = cycles(l1 // 2, 2000), cycles(l2 // 2, 200), cycles(4 * l2, 20)
    core = dataclasses.replace(
        row.core, clock_ghz=round(hertz / 1e9, 2), multiplies=round(_CHAINS / pair[0] / hertz, 1),
        add_latency=round(_seconds(text(lanes, 1), 64, 50_000) * hertz, 1),
        loads=round(1 / near, 1), store_cycles=round(cycles(l1 // 2, 2000, writes=True), 2),
        l1_cycles=round(near, 2), l2_cycles=round(second, 2), l3_cycles=round(third, 2),
        l2_bytes_per_ns=round(4 * lanes / second * hertz / 1e9, 1),
        memory_byte_cycles=round(cycles(_LARGE, 1) / (4 * lanes), 3),
    )
    return dataclasses.replace(
        row, cpus=(llvm.get_host_cpu_name(),), source="measured by benchmarks/peak.py", l1_bytes=l1, l2_bytes=l2,
        pipe_bits=target.vector_bits // 2 if halves else 0, core=core,
    )


if __name__ == "__main__":
    print(fit())
    sys.exit(0)
