"""PyPI's text readers `rapidocr` and `rapidocr-onnxruntime` with ONNX Runtime swapped for ours, in one line: they read
the same text.

Each engine runs in a process of its own, since the swap has to come before the package is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL", reason="the pictures are drawn with Pillow")

from PIL import Image, ImageDraw, ImageFont

from ocr_demo import picture

pytestmark = pytest.mark.models

SWAP = """
import sys
import tilewright.onnx_session
sys.modules["onnxruntime"] = tilewright.onnx_session
"""
READ = {
    "rapidocr": """
from rapidocr import RapidOCR
engine = RapidOCR()
def read(path):
    found = engine(path)
    return [list(found.txts or ()), [float(s) for s in found.scores or ()]]
""",
    "rapidocr_onnxruntime": """
from rapidocr_onnxruntime import RapidOCR
engine = RapidOCR()
def read(path):
    lines = engine(path)[0] or []
    return [[text for _, text, _ in lines], [float(score) for *_, score in lines]]
""",
}
SHOW = """
import json
print(json.dumps({path: read(path) for path in sys.argv[1:]}))
"""
FEWEST = {"page": 8, "turned": 1, "receipt": 4, "headline": 1, "nothing": 0}
"""The lines that are found at least on each picture."""


def drawn() -> dict[str, Image.Image]:
    """Pictures: the page of the demo, a line upside down, a tall and narrow one, a wide one of light letters, and one
    without text."""
    turned = picture.draw().crop((0, 24, 960, 100)).rotate(180)
    receipt, headline = Image.new("RGB", (300, 620), "#fdfcf4"), Image.new("RGB", (1400, 180), "#203040")
    pen = ImageDraw.Draw(receipt)
    for k, line in enumerate(("COFFEE  4.20", "CROISSANT  3.10", "TOTAL  7.30", "THANK YOU", "Table 12")):
        pen.text((20, 30 + 110 * k), line, fill="#202020", font=ImageFont.load_default(size=30))
    ImageDraw.Draw(headline).text(
        (30, 50), "Compilers that people can read", fill="white", font=ImageFont.load_default(size=72)
    )
    return {
        "page": picture.draw(), "turned": turned, "receipt": receipt, "headline": headline,
        "nothing": Image.new("RGB", (320, 240), "white")
    }


def texts(package: str, before: str, paths: list[str]) -> dict[str, Any]:
    """What the package reads on each picture, and how sure it is, after the lines `before`."""
    program = "import sys\n" + before + READ[package] + SHOW
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {Path(path).stem: lines for path, lines in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("package", READ)
def test_the_same_text_is_read(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the pipeline is in the package {package}")
    paths = []
    for name, image in drawn().items():
        paths.append(str(tmp_path / f"{name}.png"))
        image.save(paths[-1])
    expected, found = texts(package, "", paths), texts(package, SWAP, paths)
    for name, (lines, scores) in expected.items():
        assert found[name][0] == lines, name
        assert len(lines) >= FEWEST[name], (name, lines)
        np.testing.assert_allclose(found[name][1], scores, atol=1e-3, err_msg=name)
