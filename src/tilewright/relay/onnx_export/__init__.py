"""ONNX files of Relay functions: `to_onnx(mod, params, "net", path="net.onnx")`.

`writers.py` has one function for each operator; `graph.py` walks a function and collects the nodes. The package `onnx`
is needed.
"""

from tilewright.relay.onnx_export.graph import OPSET, OPSETS, to_onnx

__all__ = ["OPSET", "OPSETS", "to_onnx"]
