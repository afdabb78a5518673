"""Hand-written kernels and the small models made of them, for the tests of the runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.entry import emit_entry
from tilewright.backends.cpu.llvm.pool import pool_text
from tilewright.backends.targets.target import Target
from tilewright.base import nd
from tilewright.base.types import DataType
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.host import host_triple
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import Copy, HostStep, HostValue, KernelCall, Place, TensorInfo

N = 8
KERNELS = """
define void @add8(ptr %ctx, ptr %x, ptr %c, ptr %y) {
  %a = load <8 x float>, ptr %x, align 4
  %b = load <8 x float>, ptr %c, align 4
  %r = fadd <8 x float> %a, %b
  store <8 x float> %r, ptr %y, align 4
  ret void
}
define void @double8(ptr %ctx, ptr %x, ptr %y) {
  %a = load <8 x float>, ptr %x, align 4
  %r = fadd <8 x float> %a, %a
  store <8 x float> %r, ptr %y, align 4
  ret void
}
define internal void @body(ptr %y, i64 %begin, i64 %end) {
entry:
  %empty = icmp sge i64 %begin, %end
  br i1 %empty, label %done, label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %y, i64 %i
  %square = mul i64 %i, %i
  store i64 %square, ptr %p, align 8
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @squares(ptr %ctx, ptr %y) {
  %parallel_for = load ptr, ptr %ctx, align 8
  call void %parallel_for(ptr %ctx, ptr @body, ptr %y, i64 100, i64 7)
  ret void
}
"""
F32, I64 = DataType("float32"), DataType("int64")
X, Y = TensorInfo("x", (2, 4), F32), TensorInfo("y", (2, 4), F32)
IN, OUT, WORK, CONST = Place("input", 0), Place("output", 0), Place("workspace", 64), Place("constant", 64)


def constants(*rows: float) -> np.ndarray:
    """64 bytes of nothing, then eight floats: 0, 1, … 7, or `rows`."""
    block = nd.aligned_empty((96,))
    block[:] = 0
    block[64:] = np.asarray(rows or range(N), np.float32).view(np.uint8)
    return block


def build(manifest: Manifest, data: np.ndarray) -> Artifact:
    """Compile the kernels and the entry of `manifest`."""
    target = Target(manifest.target)
    features = tuple(sorted(target.features))
    manifest = replace(
        manifest, constants_bytes=data.nbytes, features=features, triple=manifest.triple or host_triple()
    )
    objects = tuple(compile_text(text, target) for text in (KERNELS, emit_entry(manifest) + pool_text(target)))
    return Artifact(manifest, objects, data)


def affine(name: str = "affine", target: str = "llvm", rows: tuple[float, ...] = (), **fields: Any) -> Artifact:
    """y = 2 * (x + c), through the workspace."""
    steps = (KernelCall("add8", (IN, CONST, WORK), "Add 'a'"), KernelCall("double8", (WORK, OUT), "Mul 'm'"))
    return build(Manifest(name, (X,), (Y,), steps, workspace_bytes=128, target=target, **fields), constants(*rows))


def affine_value(x: np.ndarray) -> np.ndarray:
    return 2 * (x + np.arange(N, dtype=np.float32).reshape(2, 4))


def two_outputs() -> Artifact:
    """y = x + b for two inputs, and the first input itself."""
    inputs = (X, TensorInfo("b", (2, 4), F32))
    outputs = (Y, TensorInfo("same", (2, 4), F32))
    steps = (KernelCall("add8", (IN, Place("input", 1), OUT)), Copy(IN, Place("output", 1), 32))
    return build(Manifest("two", inputs, outputs, steps, target="llvm"), constants())


def squares(threads: int = 0) -> Artifact:
    """The squares of 0 … 99, by a parallel loop."""
    step = KernelCall("squares", (OUT,))
    return build(
        Manifest("squares", (), (TensorInfo("y", (100,), I64),), (step,), target="llvm", threads=threads), constants()
    )


def with_host_step() -> Artifact:
    """y = 2 * -(x + c), the negation in Python."""
    between = Place("workspace", 0)
    host = HostStep(
        "my.negate", lambda a: [-a], (HostValue(WORK, (2, 4), F32),), (HostValue(between, (2, 4), F32),), "Neg 'n'"
    )
    steps = (KernelCall("add8", (IN, CONST, WORK)), host, KernelCall("double8", (between, OUT)))
    return build(Manifest("hosted", (X,), (Y,), steps, workspace_bytes=128, target="llvm"), constants())
