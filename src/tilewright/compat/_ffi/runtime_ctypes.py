"""TVM's `tvm._ffi.runtime_ctypes`: devices and data types."""

from tilewright.base.nd import Device
from tilewright.base.types import DataType

__all__ = ["DataType", "Device"]
