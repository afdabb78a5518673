"""TVM's `tvm.micro.testing`: parameters of tests for microcontrollers."""

from tilewright.compat.testing.micro import aot_test_utils

__all__ = ["aot_test_utils"]
