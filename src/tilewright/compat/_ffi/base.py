"""TVM's `tvm._ffi.base`: the base class of errors, and text from bytes."""

from tilewright.base.errors import TVMError

__all__ = ["TVMError", "py_str"]


def py_str(text: bytes) -> str:
    """Return the text that bytes hold in UTF-8."""
    return text.decode("utf-8")
