"""`import tvm` for programs whose `PYTHONPATH` has the folder above: replaces itself by `tilewright`."""

from tilewright.compat import as_tvm as as_tvm
