"""TVM's `tvm.contrib.nvcc`: what an NVIDIA GPU of a given compute capability can do. There is no code generation for
GPUs here."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.base.errors import TargetError

__all__ = ["compile_cuda", "have_bf16", "have_fp16", "have_int8", "have_tensorcore", "parse_compute_version"]


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """Return the major and minor number of a compute capability: `"7.5"` -> `(7, 5)`."""
    major, _, minor = compute_version.partition(".")
    if not (major.isdecimal() and (minor or "0").isdecimal()):
        raise TargetError(f"'{compute_version}' is not a compute capability; write for example '7.5'", code="TW0501")
    return int(major), int(minor or 0)


def have_fp16(compute_version: str) -> bool:
    """Whether the GPU computes in float16."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Whether the GPU has dot products of int8."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_bf16(compute_version: str) -> bool:
    """Whether the GPU computes in bfloat16."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    """Whether the GPU has tensor cores; False if its compute capability is not given."""
    return compute_version is not None and parse_compute_version(compute_version) >= (7, 0)


def compile_cuda(code: str, *args: Any, **options: Any) -> NoReturn:
    """Raise `TargetError`: there is no code generation for GPUs."""
    raise TargetError("code for GPUs cannot be compiled here; the targets are CPUs: 'llvm' and 'c'", code="TW0502")
