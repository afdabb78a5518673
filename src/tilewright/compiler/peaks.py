"""Peak performance of this machine, measured once and cached: operations per second by dtype, and bytes per second by
working set.

Operations are those of the fastest matrix product of each dtype whose arguments stay in the second-level cache. Bytes
are those that `nn.relu` reads and writes. Both are measured inside a run, between clock reads, and the fastest of many
runs counts, because machines are shared.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

import numpy as np

from tilewright import __version__
from tilewright.base.types import DataType
from tilewright.compiler.build import build_module
from tilewright.compiler.cache import Cache
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Function, const, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.op.nn_matmul import Dense
from tilewright.runtime.executable import Executable
from tilewright.runtime.host import host_features
from tilewright.runtime.roofline import Peaks
from tilewright.runtime.threads import checked_threads, default_threads

_ROWS, _DEPTH, _COLUMNS = 384, 384, 512
_SIZES: Final = (128 << 10, 1 << 20, 8 << 20, 256 << 20)
"""Bytes that a run reads and writes."""
_TYPES: Final = {
    "float32": ("float32", "float32", ""), "bfloat16": ("bfloat16", "bfloat16", ""), "int8": ("uint8", "int8", "int32")
}
_NEEDED: Final = {"bfloat16": ("avx512bf16", "amx-bf16", "bf16"), "int8": ("avx512vnni", "avxvnni", "dotprod")}
"""Features of which a dtype needs at least one to be faster than float32."""
_RUNS, _LARGE_RUNS = 60, 8


def peaks(threads: int | None = None, cache: Cache | None = None) -> Peaks:
    """Return the peaks of this machine with `threads` threads (default: all cores), from the cache or measured in one
    second."""
    count = default_threads() if threads is None else checked_threads(threads)
    kept = cache or Cache.default()
    key = Cache.key(
        "peaks", __version__, _processor(), ",".join(sorted(host_features())), str(os.cpu_count()), str(count))
    stored = kept.get(key)
    if stored is not None:
        return Peaks.from_json(stored)
    found = measure_peaks(count)
    kept.put(key, found.to_json().encode())
    return found


def measure_peaks(threads: int, runs: int = _RUNS) -> Peaks:
    """Measure the peaks now."""
    operations = {
        kind: _operations(*types, threads, runs)
        for kind, types in _TYPES.items() if kind not in _NEEDED or host_features().intersection(_NEEDED[kind])}
    return Peaks(threads, operations, tuple((size, _bandwidth(size, threads, runs)) for size in _SIZES))


def _operations(left: str, right: str, sums: str, threads: int, runs: int) -> float:
    weights = np.ones((_COLUMNS, _DEPTH)).astype(DataType(right).numpy())
    x = var("x", shape=(_ROWS, _DEPTH), dtype=left)
    program = _compiled(Function((x,), Dense(out_dtype=sums)(x, const(weights))), threads)
    return 2.0 * _ROWS * _DEPTH * _COLUMNS / _quickest(program, runs)


def _bandwidth(size: int, threads: int, runs: int) -> float:
    x = var("x", shape=(size // 2 // 4096, 1024), dtype="float32")
    program = _compiled(Function((x,), Relu()(x)), threads)
    return size / _quickest(program, runs if size < _SIZES[-1] else min(runs, _LARGE_RUNS))


def _compiled(function: Expr, threads: int) -> Executable:
    return build_module(IRModule.from_expr(function), name="peak").executable(threads)


def _quickest(program: Executable, runs: int) -> float:
    """Return the seconds of the longest step: the minimum over all runs."""
    given = {t.name: np.zeros(t.shape, t.dtype.numpy()) for t in program.inputs}
    return max(s.least for s in program.profile(given, number=runs).steps)


def _processor() -> str:
    """Return the processor's name from its operating system."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine())
