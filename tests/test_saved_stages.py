"""Programs in stages as files: saved, loaded in another process, and grown there."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from small_models import stages_of
from test_dynamic_interpreter import FLOAT, INT64, detector, floats, picture
from tilewright import relay, runtime
from tilewright.base.errors import ArtifactError, InputError
from tilewright.relay.op.selection import UniqueSlices

pytestmark = pytest.mark.filterwarnings("ignore::tilewright.base.errors.OpenSizeWarning")

_READER = """
import sys
import numpy as np
import tilewright

given, wanted = np.load(sys.argv[2]), np.load(sys.argv[3])
program = tilewright.load(sys.argv[1], threads=1)
for k in range(int(sys.argv[4])):
    for j, found in enumerate(program({n: given[f"{n}{k}"] for n in ("boxes", "scores")})):
        np.testing.assert_array_equal(found, wanted[f"y{k}_{j}"])
"""


def model(
    kind: str, inputs: dict[str, Any], kinds: dict[str, int] | None = None, outputs: tuple[str, ...] = ("y",),
    **attributes: Any
) -> onnx.ModelProto:
    taken = [helper.make_tensor_value_info(n, (kinds or {}).get(n, FLOAT), s) for n, s in inputs.items()]
    given = [helper.make_tensor_value_info(n, (kinds or {}).get(n, FLOAT), None) for n in outputs]
    graph = helper.make_graph([helper.make_node(kind, list(inputs), list(outputs), **attributes)], "g", taken, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def again(compiled: tilewright.Model, folder: Path) -> Any:
    return tilewright.load(compiled.save(folder / "m.tar"))


@pytest.mark.slow
def test_another_process_goes_on_without_the_model(tmp_path: Path) -> None:
    compiled = tilewright.compile(detector())
    for counts in ((2, 3, 4), (0, 0, 0)):
        compiled(picture(*counts))
    saved = compiled.save(tmp_path / "detector.tar")
    feeds = [picture(*counts) for counts in ((2, 3, 4), (0, 0, 0), (24, 24, 24), (5, 0, 11))]
    given: dict[str, Any] = {f"{n}{k}": v for k, feed in enumerate(feeds) for n, v in feed.items()}
    np.savez(tmp_path / "given.npz", **given)
    np.savez(
        tmp_path / "wanted.npz",
        **{f"y{k}_{j}": y for k, feed in enumerate(feeds) for j, y in enumerate(compiled(feed))}
    )
    command = [
        sys.executable, "-c", _READER, str(saved), str(tmp_path / "given.npz"), str(tmp_path / "wanted.npz"),
        str(len(feeds))
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_loaded_grows_and_is_saved_again(tmp_path: Path, slow_clock: int) -> None:
    compiled = tilewright.compile(detector())
    compiled(picture(1, 2, 3))
    loaded = again(compiled, tmp_path)
    programs = sum(e.program is not None for e in loaded.edges())
    assert programs == sum(e.program is not None for e in stages_of(compiled).edges())
    feed = picture(4, 5, 6)
    for _ in range(slow_clock + 1):
        for got, wanted in zip(loaded(feed), compiled(feed), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert sum(e.program is not None for e in loaded.edges()) > programs


def test_counts_that_were_not_met_before_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tilewright.compile(model("NonZero", {"x": (50,)}, {"y": INT64}))
    compiled(floats(50))
    loaded = again(compiled, tmp_path)
    monkeypatch.delattr("tilewright.compiler.saved_stages.Way.compiled")
    monkeypatch.delattr("tilewright.compiler.saved_stages.Way.compiled_symbolic")
    for n in range(1, 51):
        np.testing.assert_array_equal(loaded((np.arange(50) < n).astype(np.float32)), [np.arange(n)])
    assert [len(e.sizes) for e in loaded.edges()] == [0, 1]
    points = [e.next for e in loaded.edges() if e.next is not None]
    assert not any(p.seen for p in points)


def test_values_that_decide_the_first_way(tmp_path: Path) -> None:
    proto = model("ReduceSum", {"x": (2, 3), "axes": (1,)}, {"axes": INT64}, keepdims=0)
    compiled, x = tilewright.compile(proto), floats(2, 3)
    compiled(x, np.array([0]))
    loaded = again(compiled, tmp_path)
    for axis in (0, 1):
        np.testing.assert_allclose(loaded(x=x, axes=np.array([axis])), x.sum(axis), rtol=1e-6)
    with pytest.raises(InputError, match="missing input 'axes'"):
        loaded(x)


def test_operators_that_run_between_stages(tmp_path: Path) -> None:
    x = relay.var("x", shape=(3, 2))
    compiled = tilewright.compile(tilewright.IRModule.from_expr(relay.Function([x], UniqueSlices()(relay.exp(x)))))
    loaded = again(compiled, tmp_path)
    for value in (np.array([[1, 2], [1, 2], [3, 4]], np.float32), np.array([[1, 2], [0, 2], [3, 4]], np.float32)):
        for got, wanted in zip(loaded(value), UniqueSlices().reference(np.exp(value)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert loaded.in_python == {"unique_slices"}


def test_sizes_that_it_was_not_called_with(tmp_path: Path) -> None:
    compiled = tilewright.compile(model("NonZero", {"x": ("n",)}, {"y": INT64}))
    with pytest.raises(InputError, match="symbolic dimensions"):
        compiled.save(tmp_path / "m.tar")
    for n in (3, 5):
        compiled(floats(n))
    loaded = again(compiled, tmp_path)
    for n in (5, 3):
        np.testing.assert_array_equal(loaded(floats(n, seed=n)), np.stack(np.nonzero(floats(n, seed=n))))
    np.testing.assert_array_equal(loaded(floats(4)), np.stack(np.nonzero(floats(4))))


def test_values_that_it_was_not_called_with(tmp_path: Path) -> None:
    compiled = tilewright.compile(model("Trilu", {"x": ("n", "n"), "k": ()}, {"k": INT64}))
    x = np.random.default_rng(0).random((4, 4), np.float32)
    compiled(x, np.array(1))
    loaded = again(compiled, tmp_path)
    np.testing.assert_array_equal(loaded(x[:3, :3], np.array(1)), np.triu(x[:3, :3], 1))
    with pytest.raises(
        InputError,
        match=r"takes \(x: \(n, n\), k: \(\)\), and was not called with inputs of the shapes .* before it was saved; "
        r"compile the model"
    ):
        loaded(x, np.array(2))


def saved(folder: Path) -> Path:
    compiled = tilewright.compile(model("NonZero", {"x": (4,)}, {"y": INT64}))
    compiled(floats(4))
    return compiled.save(folder / "m.tar")


@pytest.mark.parametrize("place", ["stages.json", "program", "function"])
def test_a_damaged_file_is_refused(tmp_path: Path, place: str) -> None:
    path = saved(tmp_path)
    with tarfile.open(path) as archive:
        found = next(m for m in archive.getmembers() if m.name.startswith(place))
    data = bytearray(path.read_bytes())
    data[found.offset_data + found.size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"m\.tar: the file is damaged"):
        tilewright.load(path)


@pytest.mark.parametrize("size", [600, 5000])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, size: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ArtifactError, match=r"m\.tar: the file is damaged"):
        tilewright.load(path)


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with tarfile.open(path) as archive:
        member = archive.extractfile("stages.json")
        assert member is not None
        text = member.read()
    assert json.loads(text)["format"] == "tilewright stages 1"


def test_what_else_reads_artifacts_says_where_it_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(
        ArtifactError, match=r"a program in stages, not a single artifact; load it with tilewright\.load"
    ):
        runtime.load(path)


def test_programs_in_stages_are_no_libraries(tmp_path: Path) -> None:
    compiled = tilewright.compile(model("NonZero", {"x": (4,)}, {"y": INT64}))
    compiled(floats(4))
    with pytest.raises(
        ArtifactError,
        match=r"m\.so: a program in stages, which can grow at run time, is saved as \.tar, not as '\.so'"
    ):
        compiled.save(tmp_path / "m.so")


def test_equal_programs_are_equal_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert saved(tmp_path / "a").read_bytes() == saved(tmp_path / "b").read_bytes()
