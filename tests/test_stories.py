"""The acceptance scripts beside this project, each a user's day from its first line to its last, in a process and a
folder of its own.

They are looked for in the folder that the environment variable `TILEWRIGHT_STORIES` names, then in `shared/stories`;
their models in `shared/models`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.models
ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
FOLDER = Path(os.environ.get("TILEWRIGHT_STORIES", SHARED / "stories"))
MODELS = SHARED / "models"
STORIES = {
    "deploy_and_tune.py": ("efficientnet_lite0.onnx", "cat.jpg"),
    "npu.py": (),
    "quantised_two_ways.py": (),
    "segfault.py": (),
    "tvmc.sh": ("mobilenet_v1_0.25_224_quant.tflite",),
}
TIMED = "tuning made the model slower"
"""What one script says where its second timing is the longer one, which other programs on the machine may cause as
well."""
ATTEMPTS = 4
TOOLS = {"tvmc.sh": ("aarch64-linux-gnu-gcc", "file"), "segfault.py": ("gcc",)}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_runs_from_start_to_end(name: str, tmp_path: Path) -> None:
    if not (FOLDER / name).is_file():
        pytest.skip(f"there is no story {name}; TILEWRIGHT_STORIES names the folder of the stories")
    missing = [tool for tool in TOOLS.get(name, ()) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    paths = {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [
        "sh" if name.endswith(".sh") else sys.executable, str(FOLDER / name),
        *(str(MODELS / model) for model in STORIES[name])
    ]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True, timeout=800, check=False,
            stdin=subprocess.DEVNULL
        )
        if TIMED not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "OK"


def test_every_story_is_run() -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"there are no stories in {FOLDER}; TILEWRIGHT_STORIES names the folder of the stories")
    assert {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".sh")} == set(STORIES)
