"""Modules that only rename: the names of TVM and of ONNX Runtime, and the packages that have what they name."""
