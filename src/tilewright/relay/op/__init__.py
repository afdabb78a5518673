"""The operators of graphs: one class each, by family. Importing this package fills the operator table."""

from tilewright.relay.op import (
    blocks,
    broadcast,
    create,
    elementwise,
    image,
    image_sampling,
    indexing,
    nn,
    reduction,
    scans,
    shaping,
    sorting,
    transform,
    vision,
    vision_maps,
)
from tilewright.relay.op.registry import OPS, Fusion, Op, get, op

__all__ = [
    "OPS", "Fusion", "Op", "blocks", "broadcast", "create", "elementwise", "get", "image", "image_sampling", "indexing", "nn", "op", "reduction", "scans", "shaping",
    "sorting", "transform", "vision", "vision_maps",
]
