"""Importers of trained models, one package for each format. Importing this package imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule


def from_onnx(
    model: Any, shape: dict[str, Any] | None = None, dtype: str | dict[str, str] | None = None,
    opset: int | None = None, freeze_params: bool = True, convert_config: dict[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """Import an ONNX model; see `tilewright.relay.frontend.onnx.from_onnx`."""
    from tilewright.relay.frontend.onnx import from_onnx as read

    return _with_spans_as_wanted(read(model, shape, dtype, opset, freeze_params, convert_config))


def from_pytorch(
    script_module: Any, input_infos: Any = None, custom_convert_map: dict[str, Any] | None = None,
    default_dtype: str = "float32", use_parser_friendly_name: bool = False, keep_quantized_weight: bool = False,
    freeze_params: bool = False,
) -> tuple[IRModule, dict[str, Any]]:
    """Import a TorchScript module or an exported program; see `tilewright.relay.frontend.pytorch.from_pytorch`."""
    from tilewright.relay.frontend.pytorch import from_pytorch as read

    return _with_spans_as_wanted(read(
        script_module, input_infos, custom_convert_map, default_dtype, use_parser_friendly_name, keep_quantized_weight,
        freeze_params))


def from_tflite(
    model: Any, shape_dict: dict[str, Any] | None = None, dtype_dict: dict[str, str] | None = None,
    op_converter: dict[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """Import a TFLite model; see `tilewright.relay.frontend.tflite.from_tflite`."""
    from tilewright.relay.frontend.tflite import from_tflite as read

    return _with_spans_as_wanted(read(model, shape_dict, dtype_dict, op_converter))


def _with_spans_as_wanted(imported: tuple[IRModule, dict[str, Any]]) -> tuple[IRModule, dict[str, Any]]:
    """Return an imported model, without spans where the option `relay.frontend.fill_span` is off."""
    from tilewright.ir.transform import PassContext
    from tilewright.relay.transform.spans import without_spans

    if PassContext.current().get("relay.frontend.fill_span"):
        return imported
    return without_spans(imported[0]), imported[1]
