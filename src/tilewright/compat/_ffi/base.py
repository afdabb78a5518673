"""TVM's `tvm._ffi.base`: the base class of errors."""

from tilewright.base.errors import TVMError

__all__ = ["TVMError"]
