"""The layout names of `tilewright.topi.layouts`, under the name that the operators use."""

from tilewright.topi.layouts import axes_between, channels_first, channels_last, data_axes, kernel_axes

__all__ = ["axes_between", "channels_first", "channels_last", "data_axes", "kernel_axes"]
