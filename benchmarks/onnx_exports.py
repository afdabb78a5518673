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


def ssdlite(path: Path) -> None:
    """torchvision's SSDlite, the picture's sizes open: picture (3, height, width) -> boxes (n, 4), scores (n), labels
    (n)."""
    import torch

    with _native_operators():
        import torchvision

        torch.manual_seed(models.SEED)
        network = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=21, score_thresh=0.3
        )
        models._move_statistics(network.backbone, {"picture": torch.zeros(1, 3, 320, 320)})
        with torch.no_grad():
            for layer in network.head.classification_head.modules():
                if isinstance(layer, torch.nn.Conv2d) and layer.out_channels % 21 == 0:
                    layer.weight *= 4  # so that some boxes are sure of what they show

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
        _export(Detector(), path, {"picture": torch.rand(3, 320, 400)}, ["boxes", "scores", "labels"], axes)


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
    "lstm_lm": lstm_lm, "ssdlite": ssdlite, "boosted_trees": boosted_trees, "text_classifier": text_classifier,
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

    with contextlib.suppress(RuntimeError):  # there already, from the native part
        torch.library.impl("torchvision::nms", "CPU", nms)
    before, extension._has_ops = extension._has_ops, _yes
    try:
        yield
    finally:
        extension._has_ops = before


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
