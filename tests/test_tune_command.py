"""`tilewright tune`, and compiling with what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import cnn
from tilewright.driver.main import main
from tilewright.search.autotvm.network import NetworkTuning


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    return path


@pytest.mark.slow
def test_it_tunes_and_goes_on_and_compiles(model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "records.json"

    def rows(selected: bool) -> list[dict[str, Any]]:
        return [r for r in map(json.loads, out.read_text().splitlines()) if r.get("selected", False) is selected]

    assert main(
        ["tune", str(model), "-o", str(out), "--minutes", "1", "--trials", "4", "--threads", "1", "--tuner", "random"]
    ) == 0
    said = capfd.readouterr()
    assert "4 trials, 0 of all failed" in said.out
    assert f"Wrote {out}:" in said.out
    assert len(rows(False)) == 4
    assert rows(True) and all(row["result"][1] == 0 and row["result"][0][0] > 0 for row in rows(True))
    assert main(["tune", str(model), "-o", str(out), "--minutes", "1", "--trials", "1", "--threads", "1"]) == 0
    assert "4 trials known" in capfd.readouterr().out
    assert len(rows(False)) == 5
    assert len({json.dumps([r["input"], r["config"]]) for r in rows(False)}) == 5  # none twice
    assert main(["compile", str(model), "-o", str(tmp_path / "m.tar"), "--tuning-records", str(out)]) == 0
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)
    np.testing.assert_allclose(tvm.load(tmp_path / "m.tar")(x), tvm.compile(model)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_an_interruption_keeps_what_was_found(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = NetworkTuning.step
    done: list[int] = []

    def interrupted(tuning: NetworkTuning, state: object, count: int) -> int:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(step(tuning, state, 1))  # type: ignore[arg-type]
        return done[-1]

    monkeypatch.setattr(NetworkTuning, "step", interrupted)
    out = tmp_path / "records.json"
    assert main(["tune", str(model), "-o", str(out), "--minutes", "2", "--threads", "1"]) == 0
    said = capfd.readouterr()
    assert "interrupted: the results so far are verified and kept" in said.err
    assert "3 trials" in said.out
    assert out.exists()


def test_what_it_refuses(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(model), "--tuner", "xgb_rnk"]) == 2
    assert "Invalid tuner: xgb_rnk; did you mean 'xgb_rank'?" in capsys.readouterr().err
    assert main(["tune", str(model), "--target", "npu, llvm"]) == 1
    assert "give only the processor" in capsys.readouterr().err
    assert main(["tune", str(model), "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53"]) == 1
    assert "does not run on this machine" in capsys.readouterr().err
    assert main(["compile", str(model), "--tuning-records", str(tmp_path / "none.json")]) == 2
    open_size = tmp_path / "open.onnx"
    open_size.write_bytes(cnn("n").SerializeToString())
    replayed = tmp_path / "trials.json"
    replayed.write_text("")
    for more in (["--minutes", "0.01"], ["--replay", str(replayed)], ["--input-shapes", "x:[m,3,16,16]"]):
        assert main(["tune", str(open_size), "-o", str(tmp_path / "o.json"), *more]) == 2
        said = capsys.readouterr().err
        assert "open.onnx: input 'x' has the dynamic shape [" in said
        assert 'give them with --input-shapes "x:[…]"' in said
    assert not (tmp_path / "o.json").exists()
