"""Rewrites that read the parameters, each with `convert(func, params, …) -> (func, params)`, under TVM's names."""

from tilewright.relay.transform import conv2d_to_sparse as bsr_conv2d
from tilewright.relay.transform import dense_to_sparse as bsr_dense
from tilewright.relay.transform import simplify_fc_transpose

__all__ = ["bsr_conv2d", "bsr_dense", "simplify_fc_transpose"]
