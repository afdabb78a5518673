"""The rules about shapes and axes of `tilewright.topi.shapes`, under the name that the type rules of operators use."""

from tilewright.topi.shapes import (
    Perm,
    Shape,
    axes_of,
    axis_of,
    broadcast_shapes,
    differ,
    inverse,
    last_channels,
    product,
    require_rank,
    require_same_dtype,
    require_static,
    same,
    text,
)

__all__ = [
    "Perm", "Shape", "axes_of", "axis_of", "broadcast_shapes", "differ", "inverse", "last_channels", "product", "require_rank", "require_same_dtype",
    "require_static", "same", "text",
]
