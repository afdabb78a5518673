"""Hostile files that are no models: archives, numpy archives, JSON, templates of projects, tuning records; and what the
source may not use."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily
from test_auto_scheduler import TILED
from test_auto_scheduler import record as steps_row
from test_autotvm_records import CONV_ROW, DENSE_ROW, DEPTHWISE_ROW, PRODUCTS_ROW, rows_of
from test_autotvm_tasks import kernel_task
from tilewright import tir
from tilewright.backends.targets.target import Target
from tilewright.base.array_files import read_npz
from tilewright.base.errors import ArtifactError, CompileError, InputError, ModelError, ParseError
from tilewright.base.json_reading import read_json
from tilewright.compiler import micro
from tilewright.driver.config import option_values
from tilewright.driver.diagnosis.case import Case
from tilewright.driver.files import read_arrays
from tilewright.driver.tvmc.model import TVMCModel
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.ir.module import IRModule
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.profiling import Report
from tilewright.runtime.roofline import Peaks
from tilewright.search import auto_scheduler, autotvm
from tilewright.search.auto_scheduler.measure import recover_measure_input
from tilewright.search.autotvm import record
from tilewright.search.autotvm.record import split_workload
from tilewright.search.records import decode
from tilewright.tir.script import from_source

SOURCE = Path(__file__).parent.parent / "src" / "tilewright"
DEEP = "[" * 100_000 + "]" * 100_000

# Archives


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def named(
    name: str, data: bytes = b"{}", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b"" if link else data


MEMBERS = (
    (named("model.json"), named("model.json")), (named("model.json"), named("./model.json")),
    (named("model.json", kind=tarfile.SYMTYPE, link="/etc/passwd"),),
    (named("model.json", kind=tarfile.LNKTYPE, link="/etc/passwd"),), (named("model.json", b"", tarfile.CHRTYPE),),
    (named("model.json", b"", tarfile.FIFOTYPE),),
    (named("/etc/x"), named("model.json")), (named("../x"), named("model.json")),
    (named("a/../../x"), named("model.json")), (named("a\\..\\..\\x"), named("model.json")),
    (named("C:x"), named("model.json")), (named("a\nb"), named("model.json")),
)


@pytest.mark.parametrize("members", MEMBERS)
def test_members_of_tars_are_plain_and_there_once(
    members: tuple[tuple[tarfile.TarInfo, bytes], ...], tmp_path: Path
) -> None:
    path = tar(tmp_path / "m.tar", *members)
    with pytest.raises(ModelError, match=r"is not a plain file|points outside of the archive|occurs twice"):
        TVMCModel(model_path=path)
    with pytest.raises(ArtifactError, match=r"is not a plain file|points outside of the archive|occurs twice"):
        TVMCPackage(path)
    with pytest.raises(ArtifactError, match=r"is not a plain file|points outside of the archive|occurs twice"):
        micro.read_model_library(path)


def test_a_saved_model_that_is_compressed_is_not_unpacked(tmp_path: Path) -> None:
    path = tar(tmp_path / "m.tar", named("model.json", bytes(64 << 20)), mode="w:gz")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ModelError, match=r"not a file that TVMCModel.save wrote"):
        TVMCModel(model_path=path)


def test_a_member_that_says_more_than_the_archive_has(tmp_path: Path) -> None:
    path = tar(tmp_path / "m.tar", named("model.json"))
    data = bytearray(path.read_bytes())
    data[124:136] = b"77777777777\0"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"has 8589934591 bytes, but the archive|not a file that TVMCModel.save wrote"):
        TVMCModel(model_path=path)


# Numpy archives


def npz(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{name}.npy", data)
    return path


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode().ljust(118 - 12 * (version > 1)) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<L", len(text)) + text + data


@pytest.mark.parametrize(("data", "why"), [
    (
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"),
        "does not contain exactly 4398046511104 bytes"
    ),
    (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bytes(8)), "does not contain exactly 4 bytes"),
    (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "does not contain"),
    (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04N."), "holds Python objects"),
    (npy("{'descr': __import__('os').mkdir('x'), 'fortran_order': False, 'shape': (1,), }"), "cannot read"),
    (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bytes(4), 3), "has version"),
    (npy("("), "its header is damaged"), (b"\x80\x04N." * 3, "magic string is not correct"), (b"", "EOF"),
])
def test_numpy_archives_say_what_they_have(
    data: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = npz(tmp_path / "a.npz", x=data)
    with pytest.raises(ValueError, match=f"(?i){why}|x"):
        read_npz(path)
    with pytest.raises(InputError, match=why):
        read_arrays(path)
    assert not (tmp_path / "x").exists()


def test_numpy_archives_are_read_as_numpy_does(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "c": np.float64(3), "d": np.zeros((0, 4), bool), "e": np.array(["x", "yz"])
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = read_npz(tmp_path / "a.npz")
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == np.asarray(array).dtype and found[name].shape == np.shape(array)


def test_an_archive_of_more_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 20))
    monkeypatch.setattr("tilewright.base.array_files.machine_bytes", lambda: 1 << 20)
    with pytest.raises(InputError, match=r"its arrays need 83\d+ bytes, and this machine has 1048576"):
        read_arrays(tmp_path / "a.npz")


# JSON


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


JSON_DOORS: tuple[Callable[[Path], Any], ...] = (
    lambda p: decode(DEEP, "a line"),
    lambda p: decode(json.dumps({"input": ["llvm", "t", [], {}], "config": 0}).replace("0", DEEP), "a line"),
    lambda p: Manifest.from_json(DEEP, "x"),
    lambda p: Report.from_json(DEEP), lambda p: Peaks.from_json(DEEP), lambda p: Target(f'{{"kind": {DEEP}}}'),
    lambda p: option_values(str(_written(p / "c.json", DEEP)), ["x"]),
    lambda p: micro.TemplateProject.from_directory(_written(p / "t" / "template.json", DEEP).parent),
    lambda p: micro.GeneratedProject.from_directory(_written(p / "g" / "project.json", DEEP).parent),
    lambda p: micro.read_model_library(tar(p / "l.tar", named("metadata.json", DEEP.encode()))),
    lambda p: TVMCModel(model_path=tar(p / "m.tar", named("model.json", DEEP.encode()))),
    lambda p: list(auto_scheduler.load_records(_written(p / "r.json", f"{DEEP}\n#\n"))),
    lambda p: autotvm.apply_history_best(str(_written(p / "r.json", f"{DEEP}\n"))),
)


@pytest.mark.parametrize("door", range(len(JSON_DOORS)))
def test_json_that_is_nested_deep_is_refused(door: int, tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        JSON_DOORS[door](tmp_path)
    with pytest.raises(ValueError, match="nested too deep"):
        read_json(DEEP)


# Projects


@pytest.mark.parametrize(("change", "why"), [
    ({"sources": ["a\0b"]}, "'sources' must be a list of texts"),
    ({"sources": [3]}, "'sources' must be a list of texts"), ({"sources": [".."]}, "is not the name of a file"),
    ({"sources": [""]}, "is not the name of a file"), ({"sources": ["/etc/passwd"]}, "is not the name of a file"),
    ({"sources": ["template.json"]}, "is not the name of a file"),
    ({"sources": ["project.json"]}, "is not the name of a file"), ({"sources": ["link.c"]}, "is not a plain file"),
    ({"sources": ["gone.c"]}, "is not a plain file"),
    ({"sources": ["bytes.c"]}, "is not text"), ({"build": ["rm -rf /"]}, "'build' must be a list of commands"),
    ({"build": [[1]]}, "'build' must be a list of commands"),
    ({"run": [["x"]]}, "'run' must be a list of texts"), ({"flash": [None]}, "'flash' must be a list of commands"),
    (
        {"options": {"a": {"help": "", "when": "build", "default": "x", "choices": {"x": [1]}}}},
        "an option is invalid"
    ),
])
def test_templates_name_their_own_files_and_plain_commands(
    change: dict[str, Any], why: str, tmp_path: Path, library: Path
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link.c").symlink_to("/etc/passwd")
    (tmp_path / "t" / "bytes.c").write_bytes(b"\xff\xfe")
    description = json.loads(
        (Path(micro.get_microtvm_template_projects("host")) / "template.json").read_text()
    ) | {"sources": []} | change
    (tmp_path / "t" / "template.json").write_text(json.dumps(description))
    with pytest.raises(ArtifactError, match=why):
        micro.generate_project_from_mlf(tmp_path / "t", tmp_path / "made", library)
    assert not (tmp_path / "made").exists()


def test_values_of_options_are_not_read_as_commands(tmp_path: Path, library: Path) -> None:
    """An option is one word of a command, also where it has spaces, braces or the names of values."""
    project = micro.generate_project_from_mlf(micro.get_microtvm_template_projects("host"), tmp_path / "made", library)
    project.options["compiler"] = "cc {model}; touch EVIL $(touch EVIL)"
    command = project.template.command(["{compiler}", "-O{optimization}"], project._values("main"))
    assert command[0] == "cc {model}; touch EVIL $(touch EVIL)" and len(command) == 2
    with pytest.raises(CompileError, match=r"needs the program 'cc \{model\}; touch EVIL"):
        project.build()
    assert not list(tmp_path.rglob("EVIL"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Model Library of a model in C."""
    metadata = {
        "modules": {
            "../net": {
                "memory": {"functions": {"main": [{"inputs": {"x": {"shape": [1], "dtype": "int8"}}, "outputs": {}}]}},
                "target": ["c"]
            }
        }
    }
    word = "net"
    names = (
        f"codegen/host/src/{word}.c", f"codegen/host/include/{word}.h", f"codegen/host/test/{word}_test.c",
        "codegen/host/test/main.c"
    )
    return tar(
        tmp_path_factory.mktemp("library") / "l.tar", named("metadata.json", json.dumps(metadata).encode()),
        *(named(n, b"/* */") for n in names)
    )


def test_the_name_of_a_model_in_c_is_an_identifier(library: Path, tmp_path: Path) -> None:
    found = micro.read_model_library(library)
    assert found.name == "net"
    micro.generate_project_from_mlf(micro.get_microtvm_template_projects("host"), tmp_path / "made", library)
    assert all(p.is_relative_to(tmp_path / "made") for p in tmp_path.rglob("*") if p.is_file())


# Tuning records

VALUES: tuple[Any, ...] = (
    0, -1, 1 << 31, 1 << 70, 1e308, float("inf"), float("nan"), "", "x", "__import__('os').mkdir('EVIL')", "llvm", None,
    True, [], {}, [[]], {"a": 1}, "TENSOR", "float32", "v0.6", "../x"
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def mutated(row: str, chance: random.Random) -> str:
    """A record in which one to three values are others, or away."""
    whole = json.loads(row)
    for _ in range(chance.choice([1, 1, 2, 3])):
        *path, last = chance.choice([*_places(whole)] or [()])
        holder = whole
        for key in path:
            holder = holder[key]
        if chance.random() < 0.15:
            del holder[last]
        else:
            holder[last] = chance.choice(VALUES)
    return json.dumps(whole)


def _use(file: Path) -> None:
    task = kernel_task("dense")
    with autotvm.apply_history_best(str(file)) as history:
        history.decisions(task.function, task.constants, task.target)


def _replay(file: Path) -> None:
    for inp, _ in auto_scheduler.load_records(file):
        if inp.task.workload_key == '["small_matmul", 24, 32, 20]':
            recover_measure_input(inp, rebuild_state=True)


RECORD_DOORS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    "autotvm": (
        lambda f: list(record.load_from_file(f)), _use, lambda f: record.pick_best(f, f.with_name("best")),
        split_workload
    ),
    "auto_scheduler": (_replay, auto_scheduler.load_best_record, lambda f: auto_scheduler.ApplyHistoryBest(str(f))),
}


@pytest.mark.parametrize("kind", [*RECORD_DOORS])
def test_mutated_records_are_refused_or_used(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [*rows_of(), CONV_ROW, DENSE_ROW, DEPTHWISE_ROW, PRODUCTS_ROW] if kind == "autotvm" else [steps_row(TILED)]
    numbers = daily.sample(range(1500), 60, kind)
    print(f"TILEWRIGHT_TEST_SEED={daily.SEED}, {numbers}")
    (tmp_path / "in").mkdir()
    for number in numbers:
        chance = random.Random(number)
        file = tmp_path / "in" / "r.log"
        file.write_text(mutated(chance.choice(rows), chance) + "\n#\n")
        for door in RECORD_DOORS[kind]:
            try:
                door(file)
            except CompileError as error:
                assert error.message.strip(), number
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_a_task_that_is_a_path_does_not_name_a_file_elsewhere(tmp_path: Path) -> None:
    row = json.loads(CONV_ROW)
    row["input"][1] = "x/../../../evil"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "r.000.x").mkdir()
    file = tmp_path / "in" / "r"
    file.write_text(json.dumps(row) + "\n")
    split_workload(file)
    assert (tmp_path / "in" / "r.000.x_.._.._.._evil.json").is_file()
    with pytest.raises(ModelError, match="its result has neither an error nor times"):
        row["result"][0] = []
        decode(json.dumps(row), "a line")
    with pytest.raises(ModelError, match="its input is not"):
        auto_scheduler.measure_record.load_record_from_string(steps_row(TILED, target=" "))


# External data


@pytest.mark.parametrize("other", ["link", "file", "pipe"])
def test_external_data_that_is_replaced_while_it_is_opened_is_not_read(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of a path and its opening, a link to a file elsewhere is put there."""
    from tilewright.relay.frontend.onnx import reading

    secret, file = tmp_path / "secret", tmp_path / "model" / "w.bin"
    file.parent.mkdir()
    for path in (secret, file):
        path.write_bytes(bytes(16))
    opened = os.open

    def replaced(path: Any, flags: int, *more: Any, **kwargs: Any) -> int:
        if Path(path) == file:
            file.unlink()
            (
                file.symlink_to(secret) if other == "link" else os.mkfifo(file) if other == "pipe"
                else file.symlink_to(secret)
            )
            if other == "file":  # what is opened is the file elsewhere, and a plain one is back before anybody looks
                number = opened(secret, flags, *more, **kwargs)
                file.unlink()
                file.write_bytes(bytes(16))
                return number
        return opened(path, flags, *more, **kwargs)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(ModelError, match=r"which was replaced while it was being opened|cannot be opened"):
        reading._opened(file, file, "tensor 'w'")


# What the source does not use

CALLS = {"eval", "exec", "execfile", "system", "popen", "mktemp", "extractall", "unsafe_load", "full_load"}
WORDS = re.compile("|".join([*CALLS, "pickle", "marshal", "dill", "joblib", "shelve", "shell", "torch.load", "yaml"]))
PICKLES = {
    "search/cluster.py": "what Dask's scheduler brings, whose network is trusted",
    "search/building.py": "candidates for a child of this process, over its own pipe",
    "compat/exec/popen_worker.py": "calls from the parent of this process, over its own pipe",
    "compat/contrib/popen_pool.py": "answers of a child of this process, over its own pipe",
}
EVALUATED = {
    "tir/parse_python.py": "the Python around a @T.prim_func, never a text that is parsed",
    "tir/script/parser/core/evaluator.py": "a tree that the caller made, with names that it gave",
}


@pytest.mark.parametrize("value", ["open('written', 'w')", "__import__('os').getpid()", "len('abc')", "print(tir)"])
def test_texts_of_loops_run_no_python(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"@T.prim_func\ndef f(A: T.Buffer((4,), 'int64')):\n    A[0] = {value}"
    for read in (tir.parse, tir.parse_module, from_source):
        with pytest.raises(ParseError):
            read(text)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_the_source_evaluates_no_texts_and_reads_no_pickles() -> None:
    for path in SOURCE.rglob("*.py"):
        name, text = str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8")
        if not WORDS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(
                node.func, ast.Attribute
            ) else ""
            of = node.func.value.id if isinstance(node.func, ast.Attribute) and isinstance(
                node.func.value, ast.Name
            ) else ""
            where = f"{name}:{node.lineno}"
            assert called not in CALLS or (
                called == "eval" and isinstance(node.func, ast.Attribute) and of != "builtins"
            ) or name in EVALUATED, where
            assert not (
                of in ("pickle", "marshal", "dill", "cloudpickle", "joblib", "shelve")
                and called in ("load", "loads", "open", "Unpickler")
            ) or name in PICKLES, where
            words = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            assert not words.get("shell"), where
            assert not words.get("allow_pickle"), where
            assert not (of == "torch" and called == "load") or words.get("weights_only") is True, where
            assert not (of == "yaml" and called == "load"), where


def test_a_case_of_diagnosis_is_made_of_arrays() -> None:
    assert Case(IRModule(), (np.zeros(1),)).values[0].dtype == np.float64
