"""Modules that only rename: the names of TVM and of ONNX Runtime, mapped to the packages that implement them."""
