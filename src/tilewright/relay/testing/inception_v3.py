"""Inception version 3: parallel branches of convolutions of several sizes (Szegedy et al., 2015)."""

from __future__ import annotations

from typing import Final

from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.testing.layers import Workload, classified, conv_bn_relu, data_of, joined, network, workload

Step = tuple[int, tuple[int, int], int, tuple[int, int]]
"""A convolution: channels, kernel, stride, padding."""
Branch = tuple[Step, ...]


def _c(channels: int, height: int = 1, width: int = 0, stride: int = 1, padded: bool = True) -> Step:
    wide = width or height
    return channels, (height, wide), stride, (height // 2, wide // 2) if padded else (0, 0)


def _seven(channels: int) -> tuple[Branch, ...]:
    c = channels
    return (
        (_c(192),), (_c(c), _c(c, 1, 7), _c(192, 7, 1)), (_c(c), _c(c, 7, 1), _c(c, 1, 7), _c(c, 7, 1), _c(192, 1, 7)),
    )


_STEM: Final[Branch] = (_c(32, 3, stride=2, padded=False), _c(32, 3, padded=False), _c(64, 3))
_BLOCKS: Final[tuple[tuple[str, tuple[Branch, ...], int], ...]] = (
    *(("mixed", ((_c(64),), (_c(48), _c(64, 5)), (_c(64), _c(96, 3), _c(96, 3))), pooled) for pooled in (32, 64, 64)),
    ("smaller", ((_c(384, 3, stride=2, padded=False),), (_c(64), _c(96, 3), _c(96, 3, stride=2, padded=False))), 0),
    *(("mixed", _seven(c), 192) for c in (128, 160, 160, 192)),
    ("smaller", ((_c(192), _c(320, 3, stride=2, padded=False)),
                 (_c(192), _c(192, 1, 7), _c(192, 7, 1), _c(192, 3, stride=2, padded=False))), 0),
)


def _chain(x: Expr, steps: Branch, name: str) -> Expr:
    for k, (channels, kernel, stride, padding) in enumerate(steps):
        x = conv_bn_relu(x, f"{name}_{k}", channels, kernel, strides=stride, padding=padding, epsilon=2e-5)
    return x


def _wide(x: Expr, pool: str, name: str) -> Expr:
    """Return one of the last blocks, whose branches split again."""
    short, deep = _chain(x, (_c(384),), f"{name}_b"), _chain(x, (_c(448), _c(384, 3)), f"{name}_c")
    halves = [_chain(y, (_c(384, *size),), f"{name}_{side}{size[0]}") for side, y in (("b", short), ("c", deep))
              for size in ((1, 3), (3, 1))]
    make = nn.avg_pool2d if pool == "avg" else nn.max_pool2d
    pooled = make(x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))
    return joined(_chain(x, (_c(320),), f"{name}_a"), *halves, _chain(pooled, (_c(192),), f"{name}_pool"))


def get_net(batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str) -> Function:
    """Return the network without its auxiliary classifier."""
    x = _chain(data_of(batch_size, image_shape, dtype), _STEM, "stem")
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    x = _chain(x, (_c(80), _c(192, 3, padded=False)), "stem2")
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    for k, (kind, branches, pooled) in enumerate(_BLOCKS):
        parts = [_chain(x, b, f"mixed{k}_{i}") for i, b in enumerate(branches)]
        if kind == "mixed":
            parts.append(_chain(nn.avg_pool2d(x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1)), (_c(pooled),),
                                f"mixed{k}_pool"))
        else:
            parts.append(nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2)))
        x = joined(*parts)
    x = _wide(_wide(x, "avg", "mixed9"), "max", "mixed10")
    return network(classified(nn.global_avg_pool2d(x), num_classes))


def get_workload(batch_size: int = 1, num_classes: int = 1000, image_shape: tuple[int, ...] = (3, 299, 299),
                 dtype: str = "float32") -> Workload:
    """Return the module and random weights."""
    return workload(get_net(batch_size, num_classes, image_shape, dtype))
