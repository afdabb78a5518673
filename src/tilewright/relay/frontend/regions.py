"""Sampled regions of feature maps, as detectors of all frontends use them."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.base.types import OpenSize
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import transpose
from tilewright.relay.types_of import shape_of

_PIXELS_PER_CELL: Final = 4
"""Pixels of a feature map that are transposed in the time that a sampled cell saves."""


def roi_align(
    x: Expr, regions: Expr, size: tuple[int, int], scale: float, sample_ratio: int, mode: str, aligned: bool
) -> Expr:
    """Return `vision.roi_align` of a feature map in the layout NCHW.

    The channels of a pixel are sampled together. They become contiguous where there are many regions, or a number of
    regions that only calls determine.
    """
    options = {
        "pooled_size": size, "spatial_scale": scale, "sample_ratio": sample_ratio, "mode": mode, "aligned": aligned}
    cells, pixels = shape_of(regions)[0] * prod(size), prod(shape_of(x)[2:])
    static = all(isinstance(n, int) and not isinstance(n, OpenSize) for n in (cells, pixels))
    if static and cells * _PIXELS_PER_CELL < pixels:
        return op.vision.roi_align(x, regions, **options)
    return op.vision.roi_align(transpose(x, (0, 2, 3, 1)), regions, layout="NHWC", out_layout="NCHW", **options)
