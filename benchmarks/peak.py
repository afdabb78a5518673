"""The multiply-adds of float32 vectors that one core makes in a second when nothing comes from memory."""

from __future__ import annotations

import ctypes
import time

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.target import Target
from tilewright.base.nd import aligned_empty

_CHAINS, _TRIPS = 15, 200_000


def text(lanes: int) -> str:
    """A loop of independent multiply-adds: enough of them to hide their latency."""
    v = f"<{lanes} x float>"
    chains = range(_CHAINS)
    return "\n".join([
        f'define void @peak(ptr %out, i64 %trips) "min-legal-vector-width"="{32 * lanes}" {{',
        "entry:", f"  %x = load {v}, ptr %out, align 4", "  br label %loop",
        "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *(f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in chains),
        *(f"  %b{k} = call {v} @llvm.fma.v{lanes}f32({v} %x, {v} %x, {v} %a{k})" for k in chains),
        "  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %trips", "  br i1 %more, label %loop, label %done",
        "done:", f"  %s0 = fadd {v} %b0, %b0",
        *(f"  %s{k} = fadd {v} %s{k - 1}, %b{k}" for k in chains if k),
        f"  store {v} %s{_CHAINS - 1}, ptr %out, align 4", "  ret void", "}",
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
