"""The dot product of AMD's GPUs, four int8, for programs that name it; it runs on the CPU."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import dp4a_desc, register_loops

AMDGPU_SDOT4_INTRIN: Final = register_loops("sdot4", dp4a_desc)

__all__ = ["AMDGPU_SDOT4_INTRIN"]
