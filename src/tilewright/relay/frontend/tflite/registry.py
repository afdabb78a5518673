"""The table of TFLite converters, by operator or custom name. Parameters are named as in the schema."""

from __future__ import annotations

from typing import Final

from tilewright.relay.frontend.core.registry import Converters, Terms

_HINTS: Final = frozenset({
    "asymmetric_quantize_inputs", "pot_scale_int16", "quantized_bias_type", "num_splits", "values_count", "num",
    "in_data_type",
    "validate_indices", "weights_format", "depth_multiplier", "kernel_type", "new_shape", "out_data_type",
})
"""Options that repeat what tensors declare, or select an implementation."""

CONVERTERS: Final = Converters("tflite", "tilewright.relay.frontend.tflite.register_converter",
                               Terms(attribute="option", ignored=_HINTS))
converter: Final = CONVERTERS.converter
