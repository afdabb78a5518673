"""Run many small functions on the processors that this machine has or can emulate, one library and one start for all of
them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends.cpu.llvm.codegen import emit_module
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_object
from tilewright.compat.target import Target
from tilewright.runtime.host import host_arch, host_features
from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
PROCESSORS = {
    "x86-64": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", "haswell": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "skylake-avx512": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
    "znver5": "llvm -mtriple=x86_64-linux-gnu -mcpu=znver5",
    "aarch64": "llvm -mtriple=aarch64-linux-gnu",
}
OF_BYTES = {
    **PROCESSORS, "cortex-a76": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
    "neoverse-v1": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"
}
"""The same, and those that have other instructions for bytes."""
EMULATOR, COMPILER = "qemu-aarch64", "aarch64-linux-gnu-gcc"


def why_not(name: str) -> str:
    """Why code for that processor cannot run here; empty where it can."""
    target = Target(OF_BYTES[name])
    arch = target.mtriple.split("-")[0]
    if arch == host_arch():
        missing = target.features - host_features()
        return f"this machine has no {', '.join(sorted(missing))}" if missing else ""
    missing_programs = [p for p in (EMULATOR, COMPILER) if shutil.which(p) is None]
    if arch != "aarch64":
        return f"this machine is no {arch}"
    return f"{' and '.join(missing_programs)} are not installed" if missing_programs else ""


@dataclass(frozen=True)
class Work:
    """A flat function, whose name is its symbol, and its arrays, which it changes."""

    func: PrimFunc
    arrays: list[Array]


def run_all(works: Sequence[Work], name: str, folder: Path, threads: int = 2) -> None:
    """Run every function once on its arrays."""
    target = Target(OF_BYTES[name])
    objects = [compile_text(emit_module([w.func for w in works], target), target), pool_object(target)]
    if target.mtriple.startswith(host_arch()):
        _run_here(works, objects, threads)
    else:
        _run_emulated(works, objects, folder, threads)


def _run_here(works: Sequence[Work], objects: list[bytes], threads: int) -> None:
    code = LoadedCode(objects, [*(w.func.name for w in works), "tw_pool_create", "tw_pool_destroy"])
    pool = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code.address("tw_pool_create"))(threads)
    for w in works:
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(w.arrays) + 1))(code.address(w.func.name))
        call(pool, *(a.ctypes.data for a in w.arrays))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("tw_pool_destroy"))(pool)


def _run_emulated(works: Sequence[Work], objects: list[bytes], folder: Path, threads: int) -> None:
    """All arrays go into one file, one after the other at multiples of 64 bytes, and come back in another."""
    offsets: list[list[int]] = []
    size = 0
    for w in works:
        offsets.append([])
        for a in w.arrays:
            offsets[-1].append(size)
            size += -(-a.nbytes // 64) * 64
    memory = np.zeros(size, np.uint8)
    for w, at in zip(works, offsets, strict=True):
        for a, o in zip(w.arrays, at, strict=True):
            memory[o : o + a.nbytes] = np.ascontiguousarray(a).view(np.uint8).reshape(-1)
    (folder / "in").write_bytes(memory.tobytes())
    (folder / "driver.c").write_text(_driver(works, offsets, size, threads))
    names = []
    for k, data in enumerate(objects):
        names.append(str(folder / f"{k}.o"))
        Path(names[-1]).write_bytes(data)
    program = str(folder / "program")
    _do([COMPILER, "-static", "-O1", "-o", program, str(folder / "driver.c"), *names, "-lm", "-lpthread"])
    _do([EMULATOR, program, str(folder / "in"), str(folder / "out")])
    memory = np.frombuffer((folder / "out").read_bytes(), np.uint8)
    for w, at in zip(works, offsets, strict=True):
        for a, o in zip(w.arrays, at, strict=True):
            a[...] = memory[o : o + a.nbytes].view(a.dtype).reshape(a.shape)


def _driver(works: Sequence[Work], offsets: list[list[int]], size: int, threads: int) -> str:
    lines = [
        "#include <stdio.h>", "#include <stdint.h>",
        f"static unsigned char memory[{size}] __attribute__((aligned(64)));",
             "void *tw_pool_create(int64_t); void tw_pool_destroy(void *);"]
    lines += [f"void {w.func.name}({', '.join(['void *'] * (len(w.arrays) + 1))});" for w in works]
    lines += ["int main(int n, char **names) {", "  FILE *f = fopen(names[1], \"rb\");",
              "  if (!f || fread(memory, 1, sizeof memory, f) != sizeof memory) return 2;", "  fclose(f);",
              f"  void *pool = tw_pool_create({threads});"]
    lines += [
        f"  {w.func.name}(pool, {', '.join(f'memory + {o}' for o in at)});" for w,
        at in zip(works, offsets, strict=True)
    ]
    lines += ["  tw_pool_destroy(pool);", "  f = fopen(names[2], \"wb\");",
              "  return !f || fwrite(memory, 1, sizeof memory, f) != sizeof memory || fclose(f) ? 3 : 0;", "}"]
    return "\n".join(lines) + "\n"


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}{done.stderr}"
