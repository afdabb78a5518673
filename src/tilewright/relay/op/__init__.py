"""The operators of graphs: one class each, by family. Importing this package fills the operator table."""

from tilewright.relay.op import (
    blocks,
    broadcast,
    create,
    einsum,
    elementwise,
    image,
    image_sampling,
    indexing,
    nn,
    nn_loss,
    random,
    reduction,
    scans,
    scattering,
    shaping,
    signal,
    sorting,
    transform,
    vision,
    vision_maps,
)
from tilewright.relay.op.registry import OPS, Fusion, Op, get, op

__all__ = [
    "Fusion", "OPS", "Op", "blocks", "broadcast", "create", "einsum", "elementwise", "get", "image", "image_sampling", "indexing", "nn",
    "nn_loss", "op", "random", "reduction", "scans", "scattering", "shaping", "signal", "sorting", "transform", "vision", "vision_maps",
]
