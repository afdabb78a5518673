"""The programs of `examples/classify`: one model called from C, C++, Rust and JavaScript, with equal answers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from shipped_models import CAT, CATS, MOBILENET, cat_pixels

FOLDER = Path(__file__).parent.parent / "examples" / "classify"
PROGRAMS = {
    "c": ("cc", "classify_c", ["./classify_c"]), "cpp": ("c++", "classify_cpp", ["./classify_cpp"]),
    "rust": ("rustc", "classify_rust", ["./classify_rust"]),
    "javascript": ("node", "mobilenet.wasm", ["node", "classify.mjs"]),
}
"""Language -> what it needs, what is made, and the command."""
HERE = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
pytestmark = [pytest.mark.models, pytest.mark.skipif(
    not MOBILENET.exists() or not CAT.exists() or importlib.util.find_spec("PIL") is None
    or shutil.which("make") is None,
    reason=f"{MOBILENET}, {CAT}, Pillow or make are not there")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a folder of its own, with the picture."""
    folder = tmp_path_factory.mktemp("example") / "classify"
    shutil.copytree(FOLDER, folder)
    (folder / "cat.rgb").write_bytes(cat_pixels().tobytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("language", PROGRAMS)
def test_all_languages_say_the_same(built: Path, language: str) -> None:
    tool, goal, command = PROGRAMS[language]
    path = shutil.which(tool, path=HERE)
    # rustup leaves commands behind that only say what to install
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip(f"{tool} is not installed")
    environment = {**os.environ, "PATH": HERE, "PYTHONPATH": str(FOLDER.parent.parent / "src")}
    made = subprocess.run([
        "make", goal, f"MODEL={MOBILENET}", f"COMPILE={sys.executable} -m tilewright compile"
    ], cwd=built, env=environment,
                          capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    assert made.returncode == 0, made.stderr[-3000:]
    done = subprocess.run(
        [*command, "cat.rgb"], cwd=built, env=environment, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    scores = tilewright.compile(MOBILENET)(cat_pixels()).ravel()
    best = np.argsort(-scores.astype(int), kind="stable")[:3]
    assert done.stdout.splitlines() == [f"{k} {scores[k]}" for k in best]
    assert best[0] in CATS
    if language != "javascript":
        assert subprocess.run(
            [*command, "none.rgb"], cwd=built, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        ).returncode == 2
