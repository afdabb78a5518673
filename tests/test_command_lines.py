"""Some two hundred command lines, in this process: what each says, its exit code, and that none ends in a traceback."""

from __future__ import annotations

import io
import logging
import shlex
import shutil
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from command_lines import CASES
from small_models import cnn, mlp
from tflite_small import _conv
from tilewright.driver import main as tilewright
from tilewright.driver.tvmc import main as tvmc
from tilewright.runtime.sealed_tar import SEAL, member, sealed_tar

PROGRAMS = {"tvmc": tvmc.main, "tilewright": tilewright.main}
RELAY = '#[version = "0.0.5"]\ndef @main(%x: Tensor[({}, 4), float32]) {{ nn.relu(add(%x, 1f)) }}\n'
TEXTS = {
    "r.relay": RELAY.format(2), "q.relay": RELAY.format("?"), "bad.relay": '#[version = "0.0.5"]\ndef @main(%x { }',
    "nomain.relay": '#[version = "0.0.5"]\ndef @other() { 1f }\n',
    "net.h5": "x", "net.pb": "x", "net.pdmodel": "x", "text.npz": "no archive", "text.npz.json": "{", "list.json": "[]",
    "unknown.json": '{"targte": "llvm"}',
    "nokind.json": '{"executor": {"link-params": 1}}', "badtargets.json": '{"targets": ["llvm"]}', "log.json": "",
    "autotvm.json": '{"input": ["llvm", "t", [], {}], "config": {}, "result": [[1], 0, 1, 1], "version": 0.2}\n',
    "ansor.json": '{"i": [], "r": [], "v": "v0.6"}\n',
    "searched.json": '{"i": [["[\\"f\\"]", "llvm", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], []]], '
    '"r": [[0.001], 0, 0.1, 1], "v": "v0.6"}\n',
    "target.json": '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "device": "arm_cpu"}',
    "tilewright.json": '{"output": "named.tar", "opt-level": 2}',
    "options.json": '{"targets": [{"kind": "llvm", "num-cores": 2}], "executor": {"kind": "aot", "unpacked-api": '
    'true}, "output-format": "tar", "output": "from_config.tar", '
    '"pass-config": {"relay.FuseOps.max_depth": 8}}',
}
"""Files by name."""


def rewritten(source: Path, target: Path, change: dict[str, bytes]) -> None:
    """A tar with some members changed."""
    with tarfile.open(source) as old, target.open("wb") as file, sealed_tar(file) as new:
        for info in (m for m in old.getmembers() if m.name != SEAL):
            stream = old.extractfile(info)
            assert stream is not None
            data = change.get(info.name, stream.read())
            new.addfile(member(info.name, len(data)), io.BytesIO(data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that command lines name."""
    made = tmp_path_factory.mktemp("commands")
    for name, text in TEXTS.items():
        (made / name).write_text(text)
    for name, model in {"m": mlp(), "o": mlp("n"), "c": cnn()}.items():
        (made / f"{name}.onnx").write_bytes(model.SerializeToString())
    (made / "t.tflite").write_bytes(_conv("int8"))
    (made / "p.pt").write_bytes(b"PK\3\4 nothing")
    x = np.random.default_rng(0).random((2, 16), np.float32)
    for name, arrays in {"in": {"x": x}, "other": {"other": x}, "short": {"x": x[:1]}}.items():
        np.savez(made / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    lines = {
        "g": "", "a": "--executor aot", "l": "-f mlf", "v": "-f tar",
        "f": "-f tar --target-llvm-mtriple=aarch64-linux-gnu"
    }
    for name, options in lines.items():
        assert tvmc.main(
            [
                "compile", str(made / "m.onnx"), "--target", "llvm", "-o", str(made / f"{name}.tar"),
                *shlex.split(options)
            ]
        ) == 0
    assert tvmc.main(
        [
            "compile", str(made / "o.onnx"), "--target", "llvm", "-f", "tar", "--input-shapes", "x:[0,16]", "-o",
            str(made / "w.tar")
        ]
    ) == 0
    assert tvmc.main(
        [
            "compile", str(made / "m.onnx"), "--target", "c", "-f", "mlf", "--module-name", "net", "-o",
            str(made / "k.tar")
        ]
    ) == 0
    assert tilewright.main(["compile", str(made / "m.onnx"), "-o", str(made / "s.so")]) == 0
    with tarfile.open(made / "g.tar") as package:
        library = package.extractfile("mod.so").read()  # type: ignore[union-attr]
        graph = package.extractfile("mod.json").read()  # type: ignore[union-attr]
    middle = len(library) // 2
    rewritten(
        made / "g.tar", made / "b.tar",
        {"mod.so": library[:middle] + bytes([library[middle] ^ 1]) + library[middle + 1 :]}
    )
    rewritten(made / "g.tar", made / "wrong.tar", {"mod.json": graph.replace(b'"x"', b'"z"')})
    tarfile.open(made / "empty.tar", "w").close()
    return made


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """`-v` sets levels of logging, which stay with the process."""
    yield
    logging.getLogger("tilewright").setLevel(logging.NOTSET)


def test_there_are_two_hundred() -> None:
    lines = [line for line, _, _ in CASES]
    assert len(lines) >= 200
    assert len(set(lines)) == len(lines)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code", "said"), CASES, ids=[line for line, _, _ in CASES])
def test_a_command_line(
    line: str, code: int, said: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    if "--cross-compiler cc" in line and shutil.which("cc") is None:
        pytest.skip("needs cc")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = PROGRAMS[program](arguments)
    out, err = capsys.readouterr()
    assert found == code, out + err
    assert "Traceback" not in out + err
    if code == 0:
        assert said in out
        assert "Error" not in err
    elif said:
        assert err.startswith("Error: ")
        assert len(err.splitlines()) == 1 or "^" in err, err
        assert said in err
