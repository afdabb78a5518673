"""TVM's `tvm.utils`: roofline analysis, under the names of `tvm.utils.roofline`."""

from tilewright.compat import roofline
from tilewright.compat.roofline import estimate_peak_bandwidth, estimate_peak_fma_flops, roofline_analysis

__all__ = ["estimate_peak_bandwidth", "estimate_peak_fma_flops", "roofline", "roofline_analysis"]
