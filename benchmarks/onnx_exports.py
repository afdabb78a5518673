"""Makes the ONNX files of `onnx_workloads.py` that no package carries, with the exporters that people use: torch's and
skl2onnx.

Weights are random or fitted to made-up tables, always from the same seed. Files go where those of `models.py` go, and
one that exists is kept.

    python benchmarks/onnx_exports.py                     # everything
    python benchmarks/onnx_exports.py lstm_lm
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import models

WORDS = 2000
WIDTH = 256
CITIES = ("Bern", "Basel", "Chur", "Genf", "Luzern", "Zug")
VOCABULARY = [
    "the", "a", "cat", "dog", "house", "river", "runs", "sleeps", "under", "over", "bright", "old", "new", "price",
    "offer", "free", "click", "winner", "meeting", "tomorrow", "report", "agenda", "budget", "lunch"
]


def lstm_lm(path: Path) -> None:
    """A language model of two LSTM layers: ids (batch, length), the states before -> scores (batch, length, WORDS), the
    states after."""
    import torch

    torch.manual_seed(models.SEED)

    class Model(torch.nn.Module):
        """Embedding, recurrence, scores."""

        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(WORDS, WIDTH // 2)
            self.recurrence = torch.nn.LSTM(WIDTH // 2, WIDTH, num_layers=2, batch_first=True)
            self.scores = torch.nn.Linear(WIDTH, WORDS)

        def forward(self, ids: Any, h: Any, c: Any) -> Any:
            hidden, (last_h, last_c) = self.recurrence(self.words(ids), (h, c))
            return self.scores(hidden), last_h, last_c

    inputs = {"ids": torch.zeros(2, 5, dtype=torch.int64), "h": torch.zeros(2, 2, WIDTH), "c": torch.zeros(2, 2, WIDTH)}
    axes = {
        "ids": {0: "batch", 1: "length"}, "scores": {0: "batch", 1: "length"},
        **{n: {1: "batch"} for n in ("h", "c", "last_h", "last_c")}
    }
    _export(Model(), path, inputs, ["scores", "last_h", "last_c"], axes)


CLASSES = 21
PICTURE = (3, 320, 400)


def ssdlite(path: Path) -> None:
    """torchvision's SSDlite, the picture's sizes open: picture (3, height, width) -> boxes (n, 4), scores (n), labels
    (n)."""
    _detector(path, lambda detection: detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES, score_thresh=0.3
    ), 4)


def faster_rcnn(path: Path) -> None:
    """torchvision's Faster R-CNN on MobileNetV3: regions of a first network, and a class for each."""
    _detector(path, lambda detection: detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=CLASSES, box_score_thresh=0.1, rpn_post_nms_top_n_test=100
    ), 3)


def retinanet(path: Path) -> None:
    """torchvision's RetinaNet with MobileNetV3 as its backbone: boxes of three feature maps."""
    import torch

    def made(detection: Any) -> Any:
        backbone = detection.backbone_utils.mobilenet_backbone(
            backbone_name="mobilenet_v3_large", weights=None, fpn=True, trainable_layers=6,
            norm_layer=torch.nn.BatchNorm2d
        )
        sizes = tuple((x, int(x * 1.26), int(x * 1.59)) for x in (32, 64, 128))
        anchors = detection.anchor_utils.AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 3)
        network = detection.RetinaNet(
            backbone, CLASSES, min_size=320, max_size=400, anchor_generator=anchors, score_thresh=0.05
        )
        for layer in network.head.classification_head.conv.modules():
            if isinstance(layer, torch.nn.Conv2d):  # the usual ones are for training, and leave nothing of a picture
                torch.nn.init.kaiming_normal_(layer.weight)
        return network

    _detector(path, made, 0.05)


def _detector(path: Path, make: Callable[[Any], Any], sure: float) -> None:
    """Export a detector whose weights of class scores are multiplied by `sure`, so that some boxes are sure of what
    they show."""
    import torch

    with _native_operators():
        import torchvision

        torch.manual_seed(models.SEED)
        network = make(torchvision.models.detection)
        models._move_statistics(network.backbone, {"picture": torch.zeros(1, 3, 320, 320)})
        with torch.no_grad():
            for layer in _scores(network):
                layer.weight *= sure

        class Detector(torch.nn.Module):
            """The network as a function of one picture."""

            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, picture: Any) -> Any:
                (found,) = self.network([picture])
                return found["boxes"], found["scores"], found["labels"]

        axes = {
            "picture": {1: "height", 2: "width"}, "boxes": {0: "found"}, "scores": {0: "found"}, "labels": {0: "found"}
        }
        _export(Detector(), path, {"picture": torch.rand(*PICTURE)}, ["boxes", "scores", "labels"], axes)


def _scores(network: Any) -> list[Any]:
    """The layers that compute the scores of classes."""
    import torch

    head = network.roi_heads.box_predictor if hasattr(network, "roi_heads") else network.head.classification_head
    return [
        layer for layer in head.modules()
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)) and layer.weight.shape[0] % CLASSES == 0
    ]


def boosted_trees(path: Path) -> None:
    """Scaled numbers and an encoded column of texts into gradient boosted trees: numbers (n, 6), city (n, 1) -> label
    (n), probabilities (n, 3)."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    random = np.random.default_rng(models.SEED)
    numbers = random.standard_normal((600, 6)).astype(np.float32)
    table = np.concatenate([numbers.astype(object), random.choice(CITIES, (600, 1)).astype(object)], axis=1)
    kind = (numbers[:, 0] * numbers[:, 1] + (table[:, 6] == "Bern") > 0).astype(np.int64) + (numbers[:, 2] > 0.5)
    parts = ColumnTransformer(
        [("numbers", StandardScaler(), list(range(6))), ("city", OneHotEncoder(handle_unknown="ignore"), [6])]
    )
    fitted = Pipeline(
        [("parts", parts), ("trees", GradientBoostingClassifier(n_estimators=60, max_depth=4, random_state=0))]
    ).fit(table, kind)
    types = [("numbers", FloatTensorType([None, 6])), ("city", StringTensorType([None, 1]))]
    model = to_onnx(fitted, initial_types=types, options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    _write(model, path)


def text_classifier(path: Path) -> None:
    """Words of a text, counted and weighted, into a logistic regression: text (n, 1) -> label (n), a dictionary of
    probabilities for each."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    random = np.random.default_rng(models.SEED)
    texts = [" ".join(random.choice(VOCABULARY, random.integers(4, 12))) for _ in range(400)]
    kind = np.array(["spam" if any(w in t for w in ("free", "click", "winner")) else "ham" for t in texts])
    fitted = Pipeline([("words", TfidfVectorizer()), ("classes", LogisticRegression())]).fit(texts, kind)
    options = {TfidfVectorizer: {"locale": "C"}}  # one that every machine has
    _write(
        to_onnx(
            fitted, initial_types=[("text", StringTensorType([None]))], options=options,
            target_opset={"": 17, "ai.onnx.ml": 3}
        ), path
    )


EXPORTS: dict[str, Callable[[Path], None]] = {
    "lstm_lm": lstm_lm, "ssdlite": ssdlite, "faster_rcnn": faster_rcnn, "retinanet": retinanet,
    "boosted_trees": boosted_trees, "text_classifier": text_classifier,
}


def ensure(name: str) -> Path:
    """The path of the file, made now when it is missing; raises `ImportError` where the packages that make it are
    missing."""
    path = models.folder() / f"{name}.onnx"
    if not path.exists():
        EXPORTS[name](path)
    return path


def _export(
    network: Any, path: Path, inputs: dict[str, Any], outputs: list[str], axes: dict[str, dict[int, str]]
) -> None:
    import torch

    with models.whole_file(path) as partial, torch.no_grad(), warnings.catch_warnings():
        # the exporter is deprecated and warns about traced constants; the files are checked
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), tuple(inputs.values()), str(partial), input_names=list(inputs), output_names=outputs,
            dynamic_axes=axes, opset_version=models.OPSET, dynamo=False,
        )


def _write(model: Any, path: Path) -> None:
    with models.whole_file(path) as partial:
        partial.write_bytes(model.SerializeToString())


@contextlib.contextmanager
def _native_operators() -> Iterator[None]:
    """What the exporter runs of torchvision's native part, for builds that come without it."""
    import torch

    models.declare_missing_operators()
    from torchvision import extension  # before anything is registered: the package may be missing

    def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
        left = scores.argsort(descending=True)
        kept = []
        while len(left):
            first, left = left[0], left[1:]
            kept.append(first)
            low, high = torch.maximum(
                boxes[left, :2], boxes[first, :2]
            ), torch.minimum(boxes[left, 2:], boxes[first, 2:])
            both = (high - low).clamp(min=0).prod(1)
            area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
            left = left[both <= iou_threshold * (area[left] + area[first] - both)]
        return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.int64)

    def roi_align(
        features: Any, rois: Any, scale: float, height: int, width: int, sampling: int, aligned: bool
    ) -> Any:
        """The mean of each region's image: the exporter reads shapes only."""
        return features.mean((2, 3))[rois[:, 0].long()][:, :, None, None].expand(-1, -1, height, width).contiguous()

    for name, rule in (("nms", nms), ("roi_align", roi_align)):
        with contextlib.suppress(RuntimeError):  # there already, from the native part
            torch.library.impl(f"torchvision::{name}", "CPU", rule)
    users = [extension, importlib.import_module("torchvision.ops.roi_align")]
    before = [user._has_ops for user in users]
    for user in users:
        user._has_ops = _yes
    try:
        yield
    finally:
        for user, rule in zip(users, before, strict=True):
            user._has_ops = rule


def _yes() -> bool:  # a function of its own, which torch compiles
    return True


def main() -> int:
    """Make what is asked for; 1 when something could not be made for want of a package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"one of: {', '.join(EXPORTS)}")
    chosen = parser.parse_args().names
    if unknown := set(chosen) - set(EXPORTS):
        parser.error(f"no model called {', '.join(sorted(unknown))}; the models are {', '.join(EXPORTS)}")
    failed = 0
    for name in chosen or EXPORTS:
        try:
            path = ensure(name)
        except ImportError as missing:
            print(f"{name}: needs the package {missing.name}")
            failed = 1
        else:
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, {path}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
