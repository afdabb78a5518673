"""Small networks with open dimensions, exported from PyTorch: readers with CTC outputs, recurrences, encoders,
decoders, segmentation, images to images, and detectors with non-maximum suppression.

    crnn_ctc: picture (batch, 1, 32, width)  ->  log probabilities (width // 4, batch, 37)

Weights are random, from a fixed seed. Files go where those of `models.py` go, and one that exists is kept.

    python benchmarks/open_exports.py                     # everything
    python benchmarks/open_exports.py crnn_ctc unet
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import models

WORDS = 1000
BOXES = 4
BATCH = range(1, 9)
LENGTH = range(1, 129)


@dataclass(frozen=True)
class Input:
    """An input: names of open dimensions and numbers, and the values that it takes."""

    shape: tuple[int | str, ...]
    words: int = 0
    """Values are below this number; 0 for floats."""

    def array(self, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """Return random values of these sizes; a dimension such as `past + length` is a sum."""
        shape = [d if isinstance(d, int) else sum(sizes[n.strip()] for n in d.split("+")) for d in self.shape]
        random = np.random.default_rng([models.SEED, *shape])
        return random.integers(0, self.words, shape) if self.words else random.standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Exported:
    """A network: how it is built, its inputs, the sizes that are drawn, and the multiples that sizes must be."""

    name: str
    build: Callable[[], Any]
    inputs: Mapping[str, Input]
    sizes: Mapping[str, Sequence[int]]
    outputs: tuple[str, ...] = ("output",)
    multiples: Mapping[str, int] | None = None
    boxes: bool = False
    """Whether the outputs are boxes and scores, which non-maximum suppression follows."""

    def feed(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return random inputs of these sizes."""
        return {name: i.array(sizes) for name, i in self.inputs.items()}

    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """Return the shapes of the inputs, as `tilewright.compile` takes them."""
        steps = self.multiples or {}
        return {
            name: tuple(f"{d}={steps[d]}..:{steps[d]}" if isinstance(d, str) and d in steps else d for d in i.shape)
            for name, i in self.inputs.items()}


# Networks.


def _crnn() -> Any:
    import torch
    from torch import nn

    def block(depth: int, channels: int, pool: tuple[int, int]) -> list[Any]:
        return [nn.Conv2d(depth, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(pool)]

    class Reader(nn.Module):
        """Convolutions, a recurrence in both directions, and log probabilities for CTC."""

        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                *block(1, 32, (2, 2)), *block(32, 64, (2, 2)), *block(64, 128, (2, 1)), *block(128, 128, (4, 1)))
            self.recurrence = nn.LSTM(128, 96, num_layers=2, bidirectional=True)
            self.scores = nn.Linear(192, 37)

        def forward(self, picture: Any) -> Any:
            columns = self.features(picture).squeeze(2).permute(2, 0, 1)
            return torch.log_softmax(self.scores(self.recurrence(columns)[0]), 2)

    return Reader()


def _speech() -> Any:
    import torch
    from torch import nn

    class Speech(nn.Module):
        """Frames of a spectrogram, halved twice, and a gated recurrence for CTC."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(80, 128, 3, stride=2, padding=1)
            self.second = nn.Conv1d(128, 128, 3, stride=2, padding=1)
            self.recurrence = nn.GRU(128, 128, batch_first=True, bidirectional=True)
            self.scores = nn.Linear(256, 29)

        def forward(self, frames: Any) -> Any:
            x = self.second(self.first(frames.transpose(1, 2)).relu()).relu()
            return torch.log_softmax(self.scores(self.recurrence(x.transpose(1, 2))[0]), 2)

    return Speech()


def _tagger(kind: str) -> Callable[[], Any]:
    def build() -> Any:
        from torch import nn

        class Tagger(nn.Module):
            """A label for each word by a recurrence over the words."""

            def __init__(self) -> None:
                super().__init__()
                self.words = nn.Embedding(WORDS, 128)
                self.recurrence = getattr(nn, kind)(128, 128, num_layers=2, batch_first=True, bidirectional=True)
                self.scores = nn.Linear(256, 17)

            def forward(self, ids: Any) -> Any:
                return self.scores(self.recurrence(self.words(ids))[0])

        return Tagger()

    return build


def _block(width: int, heads: int) -> Any:
    """A transformer layer as a function of words and of a source."""
    import torch
    from torch import nn

    class Block(nn.Module):
        """Attention over the own words and over those of a source, and a feed-forward network."""

        def __init__(self) -> None:
            super().__init__()
            self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def attend(self, x: Any, source: Any, first: int, causal: bool) -> Any:
            q, k, v = (
                self.projections[first + n](y).unflatten(2, (heads, -1)).transpose(1, 2)
                for n, y in enumerate((x, source, source)))
            weights = q @ k.transpose(2, 3) / math.sqrt(width / heads)
            if causal:
                rows = torch.arange(x.shape[1])
                weights = weights.masked_fill(rows[None, :] > rows[:, None], float("-inf"))
            return self.projections[first + 3]((weights.softmax(-1) @ v).transpose(1, 2).flatten(2))

        def forward(self, x: Any, source: Any) -> Any:
            x = x + self.attend(self.norms[0](x), self.norms[0](x), 0, True)
            x = x + self.attend(self.norms[1](x), source, 4, False)
            return x + self.down(nn.functional.gelu(self.up(self.norms[2](x))))

    return Block()


def _encoder() -> Any:
    from torch import nn

    class Encoder(nn.Module):
        """A transformer over embedded words."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 256)
            self.layers = nn.ModuleList(_block(256, 4) for _ in range(3))

        def forward(self, ids: Any) -> Any:
            x = self.words(ids)
            for layer in self.layers:
                x = layer(x, x)
            return x

    return Encoder()


def _attending() -> Any:
    from torch import nn

    class Decoder(nn.Module):
        """A transformer that reads a source while it writes: scores of the next words."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 256)
            self.blocks = nn.ModuleList(_block(256, 4) for _ in range(2))
            self.scores = nn.Linear(256, WORDS)

        def forward(self, ids: Any, source: Any) -> Any:
            x = self.words(ids)
            for block in self.blocks:
                x = block(x, source)
            return self.scores(x)

    return Decoder()


def _unet() -> Any:
    import torch
    from torch import nn

    def twice(depth: int, channels: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(depth, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())

    class UNet(nn.Module):
        """Scores of the pixels of a picture: halved three times and joined again."""

        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64, 128)
            self.down = nn.ModuleList(map(twice, (3, *widths[:-1]), widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[:-1])
            self.join = nn.ModuleList(twice(2 * w, w) for w in widths[:-1])
            self.scores = nn.Conv2d(widths[0], 5, 1)

        def forward(self, picture: Any) -> Any:
            kept, x = [], picture
            for k, layer in enumerate(self.down):
                x = layer(nn.functional.max_pool2d(x, 2) if k else x)
                kept.append(x)
            for k in reversed(range(len(self.up))):
                x = self.join[k](torch.cat([self.up[k](x), kept[k]], 1))
            return self.scores(x)

    return UNet()


def _denoiser() -> Any:
    from torch import nn

    layers: list[Any] = [nn.Conv2d(1, 64, 3, padding=1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(64, 1, 3, padding=1))


def _larger() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))


def _style() -> Any:
    from torch import nn

    def block(depth: int, channels: int, stride: int) -> list[Any]:
        return [
            nn.ReflectionPad2d(1), nn.Conv2d(depth, channels, 3, stride), nn.InstanceNorm2d(channels, affine=True),
            nn.ReLU()]

    return nn.Sequential(
        *block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2), *block(64, 64, 1),
        nn.Upsample(scale_factor=2.0), *block(64, 32, 1), nn.Upsample(scale_factor=2.0), *block(32, 16, 1),
        nn.Conv2d(16, 3, 1), nn.Sigmoid())


def _generator() -> Any:
    from torch import nn

    def block(depth: int, channels: int) -> list[Any]:
        return [nn.ConvTranspose2d(depth, channels, 4, 2, 1), nn.BatchNorm2d(channels), nn.LeakyReLU(0.2)]

    return nn.Sequential(*block(64, 128), *block(128, 64), *block(64, 32), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh())


def _dilated() -> Any:
    from torch import nn

    class Residual(nn.Module):
        """A dilated convolution over the past, added to its input."""

        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
            self.inner, self.outer = nn.Conv1d(64, 64, 3, dilation=dilation), nn.Conv1d(64, 64, 1)

        def forward(self, x: Any) -> Any:
            return x + self.outer(self.inner(self.pad(x)).relu())

    return nn.Sequential(nn.Conv1d(16, 64, 1), *(Residual(2**k) for k in range(6)), nn.Conv1d(64, 10, 1))


def _waves() -> Any:
    from torch import nn

    class Waves(nn.Module):
        """Features of sound: convolutions with strides, and a transformer layer."""

        def __init__(self) -> None:
            super().__init__()
            steps = ((1, 10, 5), (64, 3, 2), (64, 3, 2), (64, 3, 2), (64, 2, 2))
            self.features = nn.ModuleList(nn.Conv1d(depth, 64, taps, stride) for depth, taps, stride in steps)
            self.norm = nn.GroupNorm(8, 64)
            self.layer = _block(64, 4)

        def forward(self, sound: Any) -> Any:
            x = sound.unsqueeze(1)
            for k, layer in enumerate(self.features):
                x = nn.functional.gelu(self.norm(layer(x)) if k == 0 else layer(x))
            words = x.transpose(1, 2)
            return self.layer(words, words)

    return Waves()


def _keywords() -> Any:
    from torch import nn

    def block() -> list[Any]:
        return [
            nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 1),
            nn.BatchNorm2d(64), nn.ReLU()]

    return nn.Sequential(
        nn.Conv2d(1, 64, (10, 4), 2, padding=(4, 1)), nn.ReLU(), *block(), *block(), *block(), *block(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def _points() -> Any:
    from torch import nn

    class Points(nn.Module):
        """A class for a set of points: the maximum of features of all points."""

        def __init__(self) -> None:
            super().__init__()
            self.each = nn.Sequential(
                nn.Conv1d(3, 64, 1), nn.ReLU(), nn.Conv1d(64, 128, 1), nn.ReLU(), nn.Conv1d(128, 512, 1))
            self.scores = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

        def forward(self, points: Any) -> Any:
            return self.scores(self.each(points).max(2)[0])

    return Points()


def _ranking() -> Any:
    import torch
    from torch import nn

    class Ranking(nn.Module):
        """The click rate of an item: embeddings of categories beside numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(WORDS, 16) for _ in range(8))
            self.layers = nn.Sequential(
                nn.Linear(8 * 16 + 13, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, numbers: Any, categories: Any) -> Any:
            found = [table(categories[:, k]) for k, table in enumerate(self.tables)]
            return torch.sigmoid(self.layers(torch.cat([numbers, *found], 1)))

    return Ranking()


def _detector(stride: int) -> Callable[[], Any]:
    def build() -> Any:
        import torch
        from torch import nn

        class Detector(nn.Module):
            """Boxes (1, n, 4) and scores (1, 3, n) on a grid of the picture."""

            def __init__(self) -> None:
                super().__init__()
                layers, depth = list[Any](), 3
                for k in range(stride.bit_length() - 1):
                    layers += [
                        nn.Conv2d(depth, 16 << k, 3, 2, 1), nn.BatchNorm2d(16 << k), nn.SiLU(),
                        nn.Conv2d(16 << k, 16 << k, 3, padding=1), nn.ReLU()]
                    depth = 16 << k
                self.features, self.head = nn.Sequential(*layers), nn.Conv2d(depth, 7, 1)

            def forward(self, picture: Any) -> Any:
                found = self.head(self.features(picture))
                rows, columns = torch.arange(found.shape[2]), torch.arange(found.shape[3])
                y, x = torch.meshgrid(rows, columns, indexing="ij")
                middle = (torch.stack([y, x], 0) + 0.5)[None] * float(stride)
                size = torch.exp(found[:, 2:4].clamp(-2, 2)) * float(2 * stride)
                middle = middle + found[:, :2] * float(stride)
                boxes = torch.cat([middle - size / 2, middle + size / 2], 1)
                return boxes.flatten(2).transpose(1, 2), found[:, 4:].flatten(2).sigmoid()

        return Detector()

    return build


def _picture(channels: int = 3) -> dict[str, Input]:
    return {"picture": Input(("batch", channels, "height", "width"))}


def _pixels(step: int, least: int = 64, most: int = 256) -> dict[str, Sequence[int]]:
    return {"batch": range(1, 5), "height": range(least, most + 1, step), "width": range(least, most + 1, step)}


_TEXT = {"ids": Input(("batch", "length"), WORDS)}
_TEXTS: dict[str, Sequence[int]] = {"batch": BATCH, "length": LENGTH}
_FOUND = ("boxes", "scores")
_ONE = {"picture": Input((1, 3, "height", "width"))}
_SIDES: dict[str, Sequence[int]] = {"height": range(64, 321), "width": range(64, 321)}

EXPORTS: tuple[Exported, ...] = (
    Exported(
        "crnn_ctc", _crnn, {"picture": Input(("batch", 1, 32, "width"))},
        {"batch": BATCH, "width": range(32, 401, 4)}, multiples={"width": 4}),
    Exported(
        "speech_ctc", _speech, {"frames": Input(("batch", "frames", 80))}, {"batch": BATCH, "frames": range(16, 400)}),
    Exported("lstm_tagger", _tagger("LSTM"), _TEXT, _TEXTS),
    Exported("gru_tagger", _tagger("GRU"), _TEXT, _TEXTS),
    Exported("text_encoder", _encoder, _TEXT, _TEXTS),
    Exported(
        "translation_decoder", _attending, {**_TEXT, "source": Input(("batch", "words", 256))},
        {**_TEXTS, "words": LENGTH}),
    Exported("unet", _unet, _picture(), _pixels(8), multiples={"height": 8, "width": 8}),
    Exported("denoiser", _denoiser, _picture(1), _pixels(1)),
    Exported("super_resolution", _larger, _picture(1), _pixels(1)),
    Exported("style_transfer", _style, _picture(), _pixels(4), multiples={"height": 4, "width": 4}),
    Exported(
        "image_generator", _generator, {"latent": Input(("batch", 64, "rows", "columns"))},
        {"batch": range(1, 5), "rows": range(2, 25), "columns": range(2, 25)}),
    Exported(
        "dilated_convolutions", _dilated, {"series": Input(("batch", 16, "steps"))},
        {"batch": BATCH, "steps": range(1, 500)}),
    Exported(
        "sound_features", _waves, {"sound": Input(("batch", "samples"))},
        {"batch": range(1, 5), "samples": range(1600, 16000)}),
    Exported(
        "keyword_spotting", _keywords, {"frames": Input(("batch", 1, "frames", 40))},
        {"batch": BATCH, "frames": range(20, 200)}),
    Exported(
        "point_cloud", _points, {"points": Input(("batch", 3, "points"))},
        {"batch": BATCH, "points": range(16, 2049)}),
    Exported(
        "click_rate", _ranking, {"numbers": Input(("batch", 13)), "categories": Input(("batch", 8), WORDS)},
        {"batch": range(1, 513)}),
    Exported("detector_8", _detector(8), _ONE, _SIDES, _FOUND, boxes=True),
    Exported("detector_16", _detector(16), _ONE, _SIDES, _FOUND, boxes=True),
)


# Export.


def path_of(source: Exported) -> Path:
    """Return the file of a network, exported now if it is missing."""
    path = models.folder() / f"{source.name}.onnx"
    if not path.exists():
        _export(source, path)
    return path


def _export(source: Exported, path: Path) -> None:
    import torch

    torch.manual_seed(models.SEED)
    network = source.build().eval()
    sizes = {name: choices[len(choices) // 2] for name, choices in source.sizes.items()}
    axes = {
        name: {k: d for k, d in enumerate(i.shape) if isinstance(d, str)} for name, i in source.inputs.items()}
    with models.whole_file(path) as partial, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, tuple(map(torch.from_numpy, source.feed(sizes).values())), str(partial),
            input_names=list(source.inputs), output_names=list(source.outputs), dynamic_axes=axes,
            opset_version=models.OPSET, do_constant_folding=True, dynamo=False)
        if source.boxes:
            _suppress(partial)


def _suppress(path: Path) -> None:
    """Append non-maximum suppression to a model of boxes and scores; its outputs are the selected boxes."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(str(path))
    graph = model.graph
    limits: dict[str, np.ndarray[Any, Any]] = {
        "most": np.array([50], np.int64), "overlap": np.array([0.5], np.float32), "low": np.array([0.5], np.float32)}
    graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in limits.items())
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([2], np.int64), "column"))
    graph.node.extend([
        helper.make_node("NonMaxSuppression", ["boxes", "scores", *limits], ["selected"]),
        helper.make_node("Gather", ["selected", "column"], ["places"], axis=1),
        helper.make_node("Squeeze", ["places"], ["places_1"]),
        helper.make_node("Gather", ["boxes", "places_1"], ["found"], axis=1),
    ])
    del graph.output[:]
    graph.output.extend([
        helper.make_tensor_value_info("found", TensorProto.FLOAT, [1, "count", BOXES]),
        helper.make_tensor_value_info("selected", TensorProto.INT64, ["count", 3]),
    ])
    onnx.save(model, str(path))


def main() -> int:
    """Export the named networks, all of them by default."""
    known = {e.name: e for e in EXPORTS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"one of: {', '.join(known)}")
    chosen = parser.parse_args().names
    if unknown := set(chosen) - set(known):
        parser.error(f"no network called {', '.join(sorted(unknown))}; the networks are {', '.join(known)}")
    for name in chosen or known:
        print(f"{name}: {path_of(known[name])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
