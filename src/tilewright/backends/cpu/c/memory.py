"""Memory between the stages of a C kernel: arrays on the stack up to a limit, from the C library above it.

    float *restrict x = malloc(…);
    if (x == NULL) {
      ++context->refused;
    } else {
      …
      free(x);
    }

Statements whose memory was refused are not computed, and the caller sees the count (`runtime/scratch.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.runtime.scratch import Scratch
from tilewright.scalar.expr import Buffer
from tilewright.tir.stmt import Allocate, PrimFunc, walk_stmt

_LARGEST: Final = 64 << 10
"""Largest size in bytes of one array on the stack."""
_MOST_STACK: Final = 256 << 10
"""Largest size in bytes of the stack of a kernel, including the bodies of its parallel loops."""

CONTEXT: Final = """\
typedef struct tw_context tw_context;
struct tw_context {
  void (*parallel_for)(tw_context *context, void (*body)(void *closure, int64_t begin, int64_t end), void *closure, int64_t count, int64_t grain);
  int64_t threads;
  void *pool;
  volatile int64_t refused; /* how often there was no memory; that it changes is what counts */
};"""  # noqa: E501
"""The part of a context that kernels use; its layout is that of `backends/cpu/llvm/pool.py`."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The buffers of a kernel on the stack, and the bytes of scratch memory per thread."""

    on_stack: frozenset[Buffer]
    taken: Scratch


def memory_of(func: PrimFunc) -> Memory:
    """Return the scratch memory of a flat function."""
    on_stack: set[Buffer] = set()
    stack = heap = 0
    for b in dict.fromkeys(s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate)):
        nbytes = _nbytes(b)
        if nbytes is not None and nbytes <= _LARGEST and stack + nbytes <= _MOST_STACK:
            on_stack.add(b)
            stack += nbytes
        else:
            heap += 1 if nbytes is None else nbytes
    return Memory(frozenset(on_stack), Scratch(stack, heap, str(func.origin or func.name)))


def _nbytes(b: Buffer) -> int | None:
    """Return the bytes of a flat buffer; None if its size is known only at run time."""
    (size,) = b.shape
    return max(1, size) * b.dtype.itemsize if isinstance(size, int) else None
