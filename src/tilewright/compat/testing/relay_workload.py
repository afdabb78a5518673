"""Networks for tests and measurements of tuning, from the package torchvision."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule

NETWORKS: Final[Mapping[str, tuple[str, int]]] = {
    "resnet_18": ("resnet18", 2), "resnet_50": ("resnet50", 2), "wide_resnet_50": ("wide_resnet50_2", 2),
    "resnext_50": ("resnext50_32x4d", 2), "mobilenet_v2": ("mobilenet_v2", 2),
    "mobilenet_v3": ("mobilenet_v3_large", 2), "densenet_121": ("densenet121", 2), "vgg_16": ("vgg16", 2),
    "inception_v3": ("inception_v3", 2), "resnet3d_18": ("video.r3d_18", 3),
}
"""By name: the function of `torchvision.models`, and the number of dimensions of an image."""


def get_network(
    name: str, input_shape: Sequence[int], *, layout: str | None = None, cache_dir: str | None = None
) -> tuple[IRModule, dict[str, Any], tuple[str, list[int], str]]:
    """Return a network with random weights: its program, its weights, and the name, shape and dtype of its input.

    `layout` NHWC or NDHWC converts its convolutions, for an `input_shape` of NCHW or NCDHW. Raises `OptionError` for an
    unknown name or layout, and for a `cache_dir`: networks are not kept in files.
    """
    if name not in NETWORKS:
        raise OptionError(
            f"there is no network '{name}'{nearest(name, NETWORKS)}; there are {', '.join(NETWORKS)}", code="TW1103")
    if cache_dir is not None:
        raise OptionError("cache_dir: networks are not kept in files; omit it", code="TW1108")
    path, rank = NETWORKS[name]
    layouts = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[rank]
    if layout not in (None, *layouts):
        raise OptionError(f"the layout of '{name}' is {' or '.join(layouts)}, not '{layout}'", code="TW1103")
    mod, params = _imported(path, list(input_shape))
    if layout == layouts[1]:
        mod = relay.transform.ConvertLayout({f"nn.conv{rank}d": [layout, "default"]})(mod)
    return mod, params, ("input0", list(input_shape), "float32")


def _imported(path: str, shape: list[int]) -> tuple[IRModule, dict[str, Any]]:
    """Import the network of a function of torchvision."""
    import torch
    from torchvision import models

    maker: Any = models
    for part in path.split("."):
        maker = getattr(maker, part)
    options = {"init_weights": False, "aux_logits": False} if path == "inception_v3" else {}
    network = maker(weights=None, **options).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        traced = torch.jit.trace(network, torch.from_numpy(np.random.randn(*shape).astype("float32")))
    mod, params = relay.frontend.from_pytorch(traced, [("input0", shape)])
    return mod, params
