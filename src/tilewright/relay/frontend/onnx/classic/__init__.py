"""Converters of the domain `ai.onnx.ml` and of ONNX's operators on strings."""

from __future__ import annotations

from tilewright.relay.frontend.core.registry import families

FAMILIES = families(__name__, "features labels linear_models support_vectors text trees")
"""The modules of converters."""
