"""The benchmark programs run, check answers before they time, and write what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

from small_models import mlp, onnxruntime_answers, whole
from tilewright.backends.cpu.machine import Microarchitecture
from tilewright.backends.machine import Core

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small classifier with an open batch."""
    path = tmp_path / "small.onnx"
    path.write_bytes(mlp("batch").SerializeToString())
    return path


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run one of the programs."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_compare_times_everybody_and_writes_every_round(model: Path, tmp_path: Path) -> None:
    found, table = tmp_path / "rows.json", tmp_path / "rows.md"
    done = run(
        "compare.py", model, "--peers", "ort", "--threads", "1", "--rounds", "3", "--json", found, "--markdown", table
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["runtime"]: row for row in json.loads(found.read_text())}
    assert set(rows) == {"tilewright", "onnxruntime"}
    for row in rows.values():
        assert len(row["seconds"]) == 3
        assert row["median"] == np.median(row["seconds"]) > 0
        assert row["difference"] < 1e-4
    assert rows["tilewright"]["report"]
    assert len(table.read_text().splitlines()) == 4
    assert "geometric mean" in done.stdout


def test_a_runtime_that_is_wrong_gets_no_time(model: Path, tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    done = run(
        "compare.py", model, "--peers", "ort", "--threads", "1", "--rounds", "2", "--tolerance", "-1", "--json", found
    )
    assert done.returncode == 1
    for row in json.loads(found.read_text()):
        assert row["seconds"] == []
        assert row["failure"].startswith("wrong answer: relative difference")


def test_what_cannot_be_had_is_left_out_aloud() -> None:
    done = run("compare.py", "no_such_model", "--without-ours", "--peers", "ort")
    assert "left out: no_such_model: neither an .onnx file nor one of" in " ".join(done.stdout.split())


def test_relay_text_reads_back_before_it_times(tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    path.write_bytes(mlp(2).SerializeToString())
    done = run("relay_text.py", path, "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "read with" in done.stdout


def test_relay_passes_shows_text_types_passes_and_patterns(tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    path.write_bytes(mlp(2).SerializeToString())
    done = run("relay_passes.py", path, "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (
        "print", "read", "InferType from nothing", "all passes of compiling", "5,000 calls x 50 patterns", "FuseOps",
        "BatchingOps"
    ):
        assert name in done.stdout


def test_compile_time_shows_cold_and_cached(model: Path, tmp_path: Path) -> None:
    found = tmp_path / "times.json"
    done = run("compile_time.py", model, "--rounds", "1", "--open", "--json", found)
    assert done.returncode == 0, done.stdout + done.stderr
    (runs,) = json.loads(found.read_text()).values()
    assert runs["cold"][0]["seconds"] > runs["cached"][0]["seconds"] > 0
    assert runs["cold"][0]["report"]
    assert runs["open"][0]["seconds"] > 0 and runs["open"][0]["artifact"] > 0
    assert "times as long" in done.stdout and "times as large" in done.stdout


def test_kernels_are_timed_beside_the_peak(tmp_path: Path) -> None:
    found, table = tmp_path / "rows.json", tmp_path / "rows.md"
    done = run(
        "kernels.py", "depthwise 3x3 s1 7x7x960", "gemv", "--peers", "ort", "--rounds", "2", "--json", found,
        "--markdown", table
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(found.read_text())
    assert [(r["kernel"].split()[0], r["runtime"]) for r in data["rows"]] == [
        (kind, runtime) for kind in ("gemv", "depthwise") for runtime in ("tilewright", "onnxruntime")
    ]
    for row in data["rows"]:
        assert len(row["seconds"]) == 2
        assert row["median"] == np.median(row["seconds"]) > 0
        assert 0 < row["difference"] < 1e-4
    assert data["peak"] > 1e9
    assert f"{data['peak'] / 1e9:.0f} GFLOP/s" in done.stdout
    assert len(table.read_text().splitlines()) == 6


def test_a_kernel_that_is_not_there_names_those_that_are() -> None:
    done = run("kernels.py", "winogrande")
    assert done.returncode == 2
    assert done.stdout.startswith("no line has winogrande in its name; the lines are product 1024x1024x1024")


@pytest.mark.models
def test_the_answers_of_a_model_depend_on_its_input() -> None:
    path = whole("mobilenet_v2")
    one, other = (np.random.default_rng(seed).standard_normal((1, 3, 224, 224), np.float32) for seed in (0, 1))
    first, second = (onnxruntime_answers(path, {"input": x})[0] for x in (one, other))
    assert np.linalg.norm(first - second) > 0.05 * np.linalg.norm(first)


def test_batches_are_timed_and_divided(model: Path, tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    done = run("batches.py", model, "--batches", "1,3", "--threads", "1", "--rounds", "2", "--json", found)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(found.read_text())
    assert [(r["batch"], r["runtime"]) for r in rows] == [
        (n, runtime) for n in (1, 3) for runtime in ("tilewright", "onnxruntime")
    ]
    for row in rows:
        assert len(row["seconds"]) == 2
        assert row["difference"] < 1e-4
    _, *lines = done.stdout.splitlines()
    each = [float(line.split()[3]) for line in lines]
    ours = [row["median"] * 1e3 / row["batch"] for row in rows if row["runtime"] == "tilewright"]
    assert np.allclose(each, ours, atol=1e-3)


def test_a_program_for_open_sizes_is_timed_beside_those_for_each_size(tmp_path: Path) -> None:
    from test_open_images import convolution

    path = tmp_path / "small.onnx"
    onnx.save(convolution(8, 16, 3), path)
    done = run(
        "open_sizes.py", path, "--shapes", "x:[1,8,h,w]", "--at", "x:[1,8,5,9]", "--at", "x:[1,8,16,16]", "--seconds",
        "0.01"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["x:[1,8,5,9]", "x:[1,8,16,16]"]
    assert all(" ratio " in line for line in done.stdout.splitlines())


def test_networks_with_open_dimensions_are_compared_and_timed() -> None:
    done = run("open_networks.py", "testing.mlp", "--sizes", "2", "--seconds", "0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    line, total = done.stdout.splitlines()
    assert "agrees at 2 sizes" in line and " time " in line and "; artifact " in line
    assert total.startswith("1 networks, 1 of them with one program that agrees; time ")
    compared = run("open_networks.py", "testing.mlp", "--sizes", "1", "--no-race").stdout
    assert "agrees at 1 sizes" in compared and " time " not in compared


def test_answers_that_noise_changes_are_unstable() -> None:
    from open_networks import Network, Row, _compare, _is_unstable

    def places(feed: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        return [np.argsort(feed["scores"], kind="stable").astype(np.float32)]

    tied, apart = ({"scores": np.asarray([k, 0, 0], np.float32)} for k in (0, 1))
    apart["scores"][2] = 2
    assert _is_unstable(places, tied, 1e-3) and not _is_unstable(places, apart, 1e-3)
    assert not _is_unstable(None, tied, 1e-3)
    network = Network("n", lambda: None, lambda model: {}, {}, lambda drawn: {})
    shaky, wrong = Row("n"), Row("n")
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    _compare(shaky, network, "3", ones, zeros, "b", lambda: True)
    _compare(wrong, network, "3", ones, zeros, "b", lambda: False)
    assert shaky.unstable == ["3"] and shaky.agrees
    assert wrong.wrong.startswith("at 3 the answer differs from that of b by") and not wrong.unstable


def test_networks_that_are_finished_are_not_measured_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    arguments = ("testing.mlp", "--sizes", "2", "--race", "1", "--seconds", "0.01", "--resume", rows)
    done = run("open_networks.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = rows.read_text().splitlines()
    found = json.loads(line)
    assert found["name"] == "testing.mlp" and found["agreed"] == 2 and len(found["ratios"]) == 1
    assert run("open_networks.py", *arguments).stdout == done.stdout
    assert rows.read_text().splitlines() == [line]


EACH_PROGRAM: Final = """
import importlib, pathlib, sys
path = list(sys.path)
for program in sys.argv[1:]:
    importlib.import_module(program)
    sys.path[:] = path
    for name, module in list(sys.modules.items()):  # the next program finds its own modules by itself
        if (file := getattr(module, "__file__", None)) and pathlib.Path(file).resolve().parent == pathlib.Path.cwd():
            del sys.modules[name]
"""


def test_every_program_finds_what_it_imports() -> None:
    programs = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-c", EACH_PROGRAM, *programs], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_torch_compile_says_which_networks_there_are() -> None:
    done = run("torch_compile.py", "no_such_network")
    assert (
        done.returncode == 2 and "there is no network no_such_network; there are resnet18, bert, small" in done.stderr
    )


def test_candidates_are_built_and_timed() -> None:
    done = run("measuring.py", 4, "--rounds", 1, "--places", "here", "tracker")
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["place", "count", "built/s", "timed/s", "building", "failed", "best"]
    assert [(place, count, failed) for place, count, _, _, _, failed, *_ in rows] == [
        ("here", "1", "0"), ("here", "2", "0"), ("tracker", "1", "0"), ("tracker", "2", "0")
    ]


@pytest.mark.slow
def test_a_row_is_fitted_to_this_machine() -> None:
    done = run("peak.py")
    assert done.returncode == 0, done.stdout + done.stderr
    row = eval(done.stdout, {"Microarchitecture": Microarchitecture, "Core": Core})
    core = row.core
    assert row.source == "measured by benchmarks/peak.py" and len(row.cpus) == 1
    assert (
        0.3 < core.clock_ghz < 8 and 0.5 <= core.multiplies <= 8 and 0.5 <= core.loads <= 8
        and 1 <= core.add_latency <= 12
    )
    assert core.l1_cycles < core.l2_cycles * 1.5 and core.memory_byte_cycles > 0
