"""The field's `tvm.micro`: models as files for small systems. There is the Model Library Format, and nothing that flashes boards."""

from __future__ import annotations

from tilewright.compiler.model_library import export_model_library_format

__all__ = ["export_model_library_format"]
