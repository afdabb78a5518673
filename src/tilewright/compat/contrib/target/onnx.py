"""TVM's `tvm.contrib.target.onnx`: `to_onnx` writes a Relay function as an ONNX model."""

from tilewright.relay.onnx_export import to_onnx

__all__ = ["to_onnx"]
