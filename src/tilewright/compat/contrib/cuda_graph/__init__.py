"""TVM's `tvm.contrib.cuda_graph`: programs as graphs of CUDA. Programs run on CPUs, so none can be made."""

from tilewright.compat.contrib.cuda_graph import cuda_graph_executor

__all__ = ["cuda_graph_executor"]
