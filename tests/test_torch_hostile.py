"""Files of PyTorch that try to run code when they are opened. Each test looks for what the code would leave behind, and
for the refusal."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily
from tilewright.base.errors import ModelError
from tilewright.driver.diagnosis.case import Case
from tilewright.driver.diagnosis.references import _by_torch
from tilewright.ir.module import IRModule
from tilewright.relay.frontend.pytorch.archive import checked_copy
from tilewright.relay.frontend.pytorch.reading import read_model
from tilewright.relay.frontend.pytorch.size_expressions import canonical_size
from tilewright.relay.frontend.pytorch.zip_reader import AmbiguousArchiveError, read_entries, read_entry

pytest.importorskip("torch", reason="torch is not installed")
import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MARK = "was-executed"
CODE = f"__import__('os').mkdir('{MARK}')"
_SEEN: list[str] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.mkdir", "os.system", "subprocess.Popen", "open") and MARK in str(arguments):
        _SEEN.append(event)


sys.addaudithook(_listen)


class _Calls:
    def __reduce__(self) -> Any:
        return os.mkdir, (MARK,)


class _Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.dense(x).relu()


@pytest.fixture(scope="module")
def entries() -> dict[str, bytes]:
    """The entries of a small exported program."""
    batch = torch.export.Dim("batch", min=2, max=64)
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(_Small().eval(), (torch.ones(6, 4),), dynamic_shapes=({0: batch},)), made)
    with zipfile.ZipFile(made) as archive:
        return {"m/" + e.filename.split("/", 1)[1]: archive.read(e) for e in archive.infolist()}


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    _SEEN.clear()
    yield
    assert not _SEEN and not (tmp_path / MARK).exists(), "code of the file was executed"


def written(entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile("m.pt2", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, data in entries.items():
            archive.writestr(name, data)
    return Path("m.pt2")


def changed(entries: dict[str, bytes], change: Callable[[Any], None], name: str = "m/models/model.json") -> Path:
    whole = json.loads(entries[name])
    change(whole)
    return written({**entries, name: json.dumps(whole).encode()})


def refused(path: Path, why: str = "is refused|is damaged|cannot be read") -> None:
    with pytest.raises(ModelError, match=why):
        read_model(path)


def graph(program: Any) -> Any:
    return program["graph_module"]["graph"]


def test_the_program_itself_is_read(entries: dict[str, bytes]) -> None:
    program, _ = read_model(written(entries))
    assert program.module()(torch.ones(5, 4))[0].shape == (5, 3)


POWER = "Pow(Add(s0, s1, s2, s3, s4, s5, 1), 16)"
SIZES = (
    f'FloorDiv("{CODE}", 1)', f'Max("{CODE}", 1)', f'Abs("{CODE}")', f'Symbol("{CODE}")',
    f'Symbol("s0", integer="{CODE}")', CODE, f'Integer("{CODE}")', f'Float("{CODE}")',
    f'"{CODE}"', f"(lambda: {CODE})()", f"[{CODE} for s0 in (1,)][0]", f"f'{{{CODE}}}'", f"s0 if {CODE} else s1",
    f"s0 and {CODE}", f"Add(s0, *[{CODE}])", f"Add(**{{{CODE}: 1}})",
    f"s0[{CODE}]", f"(s0 := {CODE})", "s0.__class__", "9**9**9", "Pow(Pow(s0, 16), 16)", "1 << 99999", "(" * 500,
    "1" * 5000, f"Where({CODE}, 1, 2)", "Symbol('s99999999')",
    f"Symbol(f'{{{CODE}}}')", f"Eq(s0, '{CODE}')",
    # sums whose common factors sympy looks for, which takes for ever
    f"FloorDiv(Add({POWER}, Pow(Add(s0, s1), 16)), Add(s1, {POWER}))",
    f"Mul({', '.join(f'Add(s{k}, s{k + 1})' for k in range(9))})",
    f"({' + '.join(f's{k}' for k in range(9))}) % ({' + '.join(f's{k}' for k in range(9, 18))})",
    "ModularIndexing(Add(Pow(s0, 9), s1), Add(Pow(s2, 9), s3), 2)",
)


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_read_by_a_grammar_of_its_own(entries: dict[str, bytes], size: str) -> None:
    def change(program: Any) -> None:
        graph(program)["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = size

    refused(changed(entries, change), "which is not valid arithmetic of sizes")


@pytest.mark.parametrize(("text", "canonical"), [
    (
        "Mul(Integer(2), Symbol('s17', positive=True, integer=True))",
        "Mul(Integer(2), Symbol('s17', positive=True, integer=True))"
    ),
    ("FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2))", "FloorDiv(Add(Symbol('s0'), Integer((-1))), Integer(2))"),
    ("2*s0 + 1", "((2 * s0) + 1)"), ("Pow(s0, Integer(2))", "Pow(s0, 2)"), ("Float('0.5', precision=53)", "0.5"),
    ("s0 // 2 % 3", "((s0 // 2) % 3)"),
    ("Max(Integer(1), s0)", "Max(Integer(1), s0)"),
    ("FloorDiv(s0*s1*s2*s3*64, s4*s5)", "FloorDiv(((((s0 * s1) * s2) * s3) * 64), (s4 * s5))"),
    ("Mod((s0 + 1)*(s1 + 1), s2 + 1)", "Mod(((s0 + 1) * (s1 + 1)), (s2 + 1))"),
    ("s0**2 - 2*s0 + 1", "((Pow(s0, 2) - (2 * s0)) + 1)"), ("Ge(s0, 2)", "Ge(s0, 2)"),
])
def test_sizes_are_printed_anew(text: str, canonical: str) -> None:
    assert canonical_size(text) == canonical


def _placeholder(program: Any) -> None:
    name = f"x={CODE}"
    text = json.dumps(program).replace('"name": "x"', json.dumps({"name": name})[1:-1]).replace(
        '"x": {"dtype"', f"{json.dumps(name)}: {{\"dtype\""
    )
    program.update(json.loads(text))


def _guards(program: Any) -> None:
    program["guards_code"] = [CODE]


def _operator(program: Any) -> None:
    graph(program)["nodes"][0].update(
        target="torch.os.mkdir", inputs=[{"name": "", "arg": {"as_string": MARK}, "kind": 1}]
    )


def _file_operator(program: Any) -> None:
    graph(program)["nodes"][0].update(
        target="torch.ops.aten.from_file.default", inputs=[{"name": "filename", "arg": {"as_string": MARK}, "kind": 1}]
    )


def _keyword(program: Any) -> None:
    graph(program)["nodes"][0]["inputs"][0]["name"] = f"a={CODE}, b"


def _node_name(program: Any) -> None:
    graph(program)["nodes"][0]["name"] = f"y\n    {CODE}\n    z"


def _subgraph(program: Any) -> None:
    graph(program)["nodes"][0]["inputs"][0]["arg"] = {
        "as_graph": {"name": f'a" + {CODE} + "', "graph": json.loads(json.dumps(graph(program)))}
    }


def _range(program: Any) -> None:
    program["range_constraints"][f"u{10**9}"] = {"min_val": 1, "max_val": 2}


def _verifier(program: Any) -> None:
    program["verifiers"] = [CODE]


def _constant_input(program: Any) -> None:
    graph(program)["inputs"].append({"as_string": f"' + str({CODE}) + '"})
    program["graph_module"]["signature"]["input_specs"].append(
        {"constant_input": {"name": "c", "value": {"as_string": f"' + str({CODE}) + '"}}}
    )


PROGRAMS = (
    _placeholder, _operator, _file_operator, _keyword, _node_name, _subgraph, _range, _verifier, _constant_input
)


@pytest.mark.parametrize("change", PROGRAMS)
def test_a_program_that_would_be_executed_is_refused(entries: dict[str, bytes], change: Callable[[Any], None]) -> None:
    refused(changed(entries, change), "is refused")


def test_guards_and_trees_of_a_file_are_not_run(entries: dict[str, bytes]) -> None:
    """Guards, and trees of arguments that name a module to import, are left out, and the reference of `diagnose` runs
    the program."""
    Path("evil_module.py").write_text(f"import os\nos.mkdir('{MARK}')\nclass E: pass\n", encoding="utf-8")

    def change(program: Any) -> None:
        _guards(program)
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        tree = json.loads(signature["in_spec"])
        tree[1]["context"] = json.dumps({"__enum__": True, "fqn": "evil_module:E", "name": "x"})
        signature.update(in_spec=json.dumps(tree), forward_arg_names=[f"x={CODE}"])
        graph(program)["nodes"][0]["metadata"] = {"stack_trace": f'File "a", line 1, in f\n    x\n{CODE}'}

    path = changed(entries, change)
    program, _ = read_model(path)
    assert program._guards_code == []
    found = _by_torch(path, Case(IRModule(), (np.ones((5, 4), np.float32),)))
    assert found[0].shape == (5, 3)


def test_names_that_differ_in_case_are_refused(entries: dict[str, bytes]) -> None:
    hostile = pickle.dumps(_Calls())
    for name in ("m/models/model.JSON", "m/data/weights/WEIGHT_0", "m/data/Constants/model_constants_config.json"):
        for first in (True, False):
            made = {name: hostile, **entries} if first else {**entries, name: hostile}
            refused(written(made), "torch ignores case")


@pytest.mark.parametrize("kind", ["weight_0", "opaque_obj_0", "custom_obj_0"])
@pytest.mark.parametrize("folder", ["weights", "constants"])
def test_pickles_in_the_place_of_tensors_are_refused(entries: dict[str, bytes], kind: str, folder: str) -> None:
    def change(table: Any) -> None:
        table["config"]["dense.weight"] = {
            "path_name": kind, "is_param": False, "use_pickle": kind == "weight_0", "tensor_meta": None
        }

    made = {**entries, f"m/data/{folder}/{kind}": pickle.dumps(_Calls())}
    refused(changed(made, change, f"m/data/{folder}/model_{folder}_config.json"), "reading it would run code")


def test_samples_of_inputs_are_not_read(entries: dict[str, bytes]) -> None:
    refused(
        written({**entries, "m/data/sample_inputs/model.pt": pickle.dumps(_Calls())}),
        "is not an archive, and would be read as a legacy pickle"
    )


def zip64(data: bytes, other: bytes) -> bytes:
    """An archive whose ZIP64 end record leads to another directory than its plain one."""
    at = data.rindex(b"PK\5\6")
    count, size, offset = struct.unpack_from("<HLL", data, at + 10)
    body = other + data[:at]
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(body), 1)
    return body + record + locator + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, offset + len(other), 0
    )


def test_end_records_that_disagree_are_refused(entries: dict[str, bytes]) -> None:
    clean = written(entries).read_bytes()
    hostile = changed(entries, _guards).read_bytes()
    Path("m.pt2").write_bytes(zip64(clean, hostile))
    refused(Path("m.pt2"), "end records disagree")


ZIP64_FORMS = [*itertools.product((False, True), ("clean", "hostile", "wide"), (False, True), (False, True))]
"""Whether the hostile entries are first, which directory the plain end record names, whether its sizes and its counts
say to look at the ZIP64 record."""


@pytest.mark.parametrize(("is_hostile_first", "plain", "has_wide_size", "has_wide_count"), ZIP64_FORMS)
@pytest.mark.parametrize(
    "change", [_guards, lambda program: _put(program, _strings(program)[0], CODE)], ids=["guards", "text"]
)
def test_two_directories_never_run_code(
    entries: dict[str, bytes], change: Callable[[Any], None], is_hostile_first: bool, plain: str, has_wide_size: bool,
    has_wide_count: bool,
) -> None:
    """48 archives with the clean program and a hostile one, in which the plain end record and the one of ZIP64 name
    either."""
    clean, hostile = written(entries).read_bytes(), changed(entries, change).read_bytes()
    parts = [hostile, clean] if is_hostile_first else [clean, hostile]
    body, places = b"", {}
    for name, part in zip(("hostile", "clean") if is_hostile_first else ("clean", "hostile"), parts, strict=True):
        at = part.rindex(b"PK\5\6")
        count, size, offset = struct.unpack_from("<HLL", part, at + 10)
        places[name] = (count, size, offset + len(body))
        body += part[:at]
    other = "clean" if plain == "hostile" else "hostile"
    count, size, offset = places[other]
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(body), 1)
    count, size, offset = places.get(plain, (count, size, 0xFFFFFFFF))
    count, size = 0xFFFF if has_wide_count else count, 0xFFFFFFFF if has_wide_size else size
    Path("m.pt2").write_bytes(
        body + record + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, offset, 0)
    )
    _read(Path("m.pt2"))


def _patched(data: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    at = data.index(mark) + offset
    return data[:at] + value + data[at + len(value) :]


HEADERS = (
    *((b"PK\3\4", offset, b"\x11") for offset in (6, 8, 14, 18, 22, 26, 28, 30)),
    *((b"PK\1\2", offset, b"\x11") for offset in (8, 10, 16, 20, 24, 28, 30, 32, 34, 42, 46)),
    *((b"PK\5\6", offset, b"\x11") for offset in (4, 6, 8, 10, 12, 16, 20)),
    (b"PK\1\2", 40, b"\x00\x00\xff\xa1"),
)


@pytest.mark.slow
@pytest.mark.parametrize("header", range(len(HEADERS)))
def test_headers_that_disagree_are_refused(entries: dict[str, bytes], header: int) -> None:
    mark, offset, value = HEADERS[header]
    data = written(entries).read_bytes()
    Path("m.pt2").write_bytes(_patched(data, mark, offset, value))
    refused(Path("m.pt2"))


@pytest.mark.slow
def test_variations_of_names_and_code_never_run(entries: dict[str, bytes]) -> None:
    """More than 200 archives: each hostile entry under each name, before and behind the entries, and each text of code
    in each string of the program."""
    contents = (pickle.dumps(_Calls()), CODE.encode(), json.dumps({"expr_str": CODE}).encode())
    names = (
        "m/models/model.json", "m/MODELS/model.json", "M/models/model.json", "models/model.json", "m/models/other.json",
        "m/data/weights/weight_0", "m/data/weights/model.pt",
             "m/data/constants/model.pt", "m/data/sample_inputs/model.pt", "m/extra/x", "m/data/aotinductor/model/x.so",
             "serialized_exported_program.json", "m/../x", "/m/x", "m//x", "m/x\\y")
    count = 0
    for name, content, is_first in itertools.product(names, contents, (True, False)):
        made = {
            name: content, **{k: v for k, v in entries.items() if k != name}
        } if is_first else {**entries, name: content}
        _read(written(made))
        count += 1
    text = json.loads(entries["m/models/model.json"])
    places = [*itertools.product(_strings(text), (CODE, f"x={CODE}", f"' + str({CODE}) + '"))]
    print(f"TILEWRIGHT_TEST_SEED={daily.SEED}; TILEWRIGHT_TEST_ALL=1 takes all")
    chosen = daily.sample(places, 12)
    for path, form in chosen:
        _read(changed(entries, lambda program, path=path, form=form: _put(program, path, form)))  # type: ignore[misc]
        count += 1
    assert count == 96 + len(chosen)
    assert 96 + len(places) >= 200


def _read(path: Path) -> None:
    try:
        program, _ = read_model(path)
        program.module()(torch.ones(5, 4))
    except (ModelError, RuntimeError):
        pass
    assert not _SEEN, path


def _strings(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, str):
        return [path]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for k, v in pairs for p in _strings(v, (*path, k))]


def _put(program: Any, path: tuple[Any, ...], text: str) -> None:
    for key in path[:-1]:
        program = program[key]
    program[path[-1]] = text


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The entries of a small traced module."""
    path = tmp_path_factory.mktemp("script") / "m.pt"
    torch.jit.trace(_Small().eval(), torch.ones(1, 4)).save(path)
    with zipfile.ZipFile(path) as archive:
        return {e.filename: archive.read(e) for e in archive.infolist()}


def with_line(script: dict[str, bytes], line: str, first: str = "") -> Path:
    """The traced module with one more line before the return of its `forward`, and one at the head of its code."""
    name = next(n for n in script if n.endswith(".py") and b"def forward" in script[n])
    return written(
        {**script, name: first.encode() + script[name].replace(b"    return", f"    {line}\n    return".encode(), 1)}
    )


def test_the_traced_module_itself_is_read(script: dict[str, bytes]) -> None:
    assert read_model(with_line(script, "y = torch.add(x, x)"))[0](torch.ones(1, 4)).shape == (1, 3)


CALLS = (
    f'torch.save([x], "{MARK}")', f'ops.aten.from_file("{MARK}", True, 4)', f'torch.load("{MARK}")',
    f't = torch\n    y = t.save(x, "{MARK}")', f't = ops.aten\n    y = t.save(x, "{MARK}")',
    f't = ops\n    y = t.aten.save(x, "{MARK}")', f'y = getattr(torch, "save")(x, "{MARK}")',
    f'y = getattr(ops.aten, "s\\x61ve")(x, "{MARK}")', f'self = torch\n    y = self.save(x, "{MARK}")',
    f'ops.debugprims.load_tensor("{MARK}", [1], [1])', f'y = ops.profiler._record_function_enter("{MARK}")',
    f'y = __torch__.torch.classes.inductor.AOTIModelRunner("{MARK}")',
    f't = __torch__.torch\n    y = t.classes.inductor.AOTIModelRunner("{MARK}")',
    f'y = getattr(ops, "debugprims").load_tensor("{MARK}", [1], [1])',
)


@pytest.mark.parametrize("call", CALLS)
def test_torchscript_that_touches_files_is_refused(script: dict[str, bytes], call: str) -> None:
    refused(
        with_line(script, f"y = {call}" if not call.startswith(("t =", "y =", "self =")) else call),
        "reads or writes files|assigns a new value to self"
    )


@pytest.mark.parametrize(("first", "line"), [
    ("# coding: utf-7\n", f'ACM = x\n    y = x +ACM- torch.save(x, "{MARK}")'),
    ("", f'y = x # \f\v\r torch.save(x, "{MARK}")'), ("\ufeff", "y = x"), ("", "y = \uff53ave(x)"),
])
def test_code_that_two_parsers_read_differently_is_refused(script: dict[str, bytes], first: str, line: str) -> None:
    """In UTF-7 Python takes `+ACM-` for the beginning of a comment, torch for a sum."""
    refused(with_line(script, line, first), "characters that are not ASCII|reads or writes files")


def test_what_torch_does_not_need_of_a_script_is_not_handed_on(script: dict[str, bytes]) -> None:
    made = {
        **script, "m/model.json": b"{}", "m/attributes.pkl": b"\x80\x02).", "m/extra/x": pickle.dumps(_Calls()),
        "m/bytecode.pkl": b"\x80\x02)."
    }
    root = next(iter(script)).split("/", maxsplit=1)[0]
    with checked_copy(
        written({f"{root}/" + n.split("/", 1)[1]: d for n, d in made.items()})
    ) as (kind, fresh), zipfile.ZipFile(fresh) as archive:
        assert kind == "TorchScript"
        assert {n.split("/", 2)[1] for n in archive.namelist()} == {
            "data", "data.pkl", "code", "constants.pkl", "version", "byteorder", ".data"
        }


def data_pickle(script: dict[str, bytes], old: bytes, new: bytes) -> Path:
    name = next(n for n in script if n.endswith("/data.pkl"))
    assert old in script[name]
    return written({**script, name: script[name].replace(old, new, 1)})


MILLION = b"J\x00\x00\x10\x00"
WEIGHT = b"K\x00(K\x03K\x04t(K\x04K\x01t"
"""Offset, sizes and strides of the weight."""


@pytest.mark.parametrize(("old", "new", "why"), [
    (b"cpuq\x0aK\x0c", b"cpuq\x0a" + MILLION, "has a tensor with 4194304 bytes in '0', which holds 48"),
    (b"cpuq\x0aK\x0c", b"cpuq\x0ah\x08", "an invalid reference to tensor data"),
    (WEIGHT, b"K\x00(" + MILLION + b"K\x04t(K\x04K\x01t", "does not fit its 48 bytes"),
    (WEIGHT, b"K\x00(K\x03K\x04t(" + MILLION + b"K\x01t", "does not fit its 48 bytes"),
    (WEIGHT, b"K\x01(K\x03K\x04t(K\x04K\x01t", "does not fit its 48 bytes"),
    (WEIGHT, b"K\x00(" + 2 * MILLION + b"t(K\x00K\x00t", "does not fit its 48 bytes"),
    (WEIGHT, b"K\x00(J\xff\xff\xff\xffK\x04t(K\x04K\x01t", "with sizes that are not numbers"),
    (b"q\x00", b"r\xff\xff\xff\x0f", "memo is not numbered in order"),
    (b"ctorch._utils\n_rebuild_tensor_v2\n", b"K\x05", "calls an object without a name"),
    (b"FloatStorage", b"FloatStorage\nctorch\nFloatStorage\n)R", "would call torch.FloatStorage"),
])
def test_tensors_have_the_memory_that_is_stored(script: dict[str, bytes], old: bytes, new: bytes, why: str) -> None:
    """torch's own reader takes the sizes of a pickle as they are, and would read what lies behind the bytes of the
    file."""
    refused(data_pickle(script, old, new), why)


def test_an_archive_within_an_archive_has_tensors_alone(entries: dict[str, bytes]) -> None:
    made = io.BytesIO()
    torch.save({"dense.weight": torch.ones(3, 4)}, made)
    with zipfile.ZipFile(made) as archive:
        tensors = {e.filename: archive.read(e) for e in archive.infolist()}
    deep = made.getvalue()
    for extra, method in (
        ({"archive/x.pt": deep}, zipfile.ZIP_STORED), ({"archive/x.py": b"1"}, zipfile.ZIP_STORED),
        ({"archive/data/9": bytes(9 << 20)}, zipfile.ZIP_DEFLATED)
    ):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w", method) as archive:
            for name, data in {**tensors, **extra}.items():
                archive.writestr(name, data)
        refused(
            written({**entries, "m/data/weights/model.pt": inner.getvalue()}), "which is compressed, an archive or code"
        )


def test_a_program_cannot_name_its_own_table_as_memory(entries: dict[str, bytes]) -> None:
    def change(table: Any) -> None:
        table["config"]["dense.weight"]["path_name"] = "model_weights_config.json"

    refused(
        changed(entries, change, "m/data/weights/model_weights_config.json"),
        "the name of an entry must consist of letters and digits"
    )


@pytest.mark.parametrize(
    ("sizes", "strides", "offset"),
    [
        ((1 << 40, 4), (0, 1), 0), ((3, 4), (1 << 40, 1), 0), ((3, 4), (4, 1), 1 << 40), ((3, 4), (-4, 1), 0),
        ((3, 4), (4,), 0)
    ]
)
def test_tables_of_tensors_fit_their_memory(
    entries: dict[str, bytes], sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    def change(table: Any) -> None:
        meta = table["config"]["dense.weight"]["tensor_meta"]
        meta.update(
            sizes=[{"as_int": n} for n in sizes], strides=[{"as_int": n} for n in strides],
            storage_offset={"as_int": offset}
        )

    refused(changed(entries, change, "m/data/weights/model_weights_config.json"), "is damaged")


@pytest.mark.parametrize(
    "operator",
    [
        "triton_kernel_wrapper_mutation", "aoti_call_delegate", "inline_asm_elementwise", "executorch_call_delegate",
        "call_torchbind"
    ]
)
def test_operators_that_run_other_programs_are_refused(entries: dict[str, bytes], operator: str) -> None:
    refused(
        changed(
            entries, lambda program: graph(program)["nodes"][0].update(target=f"torch.ops.higher_order.{operator}")
        ), "an operator is"
    )


def test_texts_with_too_many_values_are_refused_before_they_are_read(entries: dict[str, bytes]) -> None:
    refused(
        written({**entries, "m/models/model.json": b"[" + b"[],"[:3] * 5_100_000 + b"[]]"}), "more than 10000000 values"
    )


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 190, 3 << 20])
def test_entries_of_about_a_chunk_are_unpacked_whole(size: int) -> None:
    with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(size))
    with Path("z.zip").open("rb") as file:
        [entry] = read_entries(file)
        assert read_entry(file, entry) == bytes(size)


def test_entries_are_counted_and_have_one_name_each() -> None:
    for names, why in (
        (("a", "a"), "occurs twice"), (("a", "a/"), "occurs again"), ((".",), "has an unusual name"),
        (("",), "unusual name|points outside")
    ):
        with zipfile.ZipFile("z.zip", "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for name in names:
                archive.writestr(name or "x", b"")
        if "" in names:
            data = Path("z.zip").read_bytes()
            Path("z.zip").write_bytes(data.replace(b"x", b"\0"))
        with Path("z.zip").open("rb") as file, pytest.raises(AmbiguousArchiveError, match=why):
            read_entries(file)


def test_a_class_of_torch_that_is_no_packed_weight_is_refused(script: dict[str, bytes]) -> None:
    name = next(n for n in script if n.endswith("data.pkl"))
    refused(
        written({**script, name: b"\x80\x02c__torch__.torch.classes._nnapi\nCompilation\n)\x81."}),
        "would call __torch__"
    )


@pytest.mark.parametrize("folder", ["models", "extra", "data/weights"])
def test_many_texts_that_unpack_to_much_are_refused_together(entries: dict[str, bytes], folder: str) -> None:
    """Each of them is small enough alone; it is their sum that is bounded."""
    text = b"[" + b"[]," * 300_000 + b"[]]"
    with zipfile.ZipFile("m.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**entries, **{f"m/{folder}/x{k}.json": text for k in range(100)}}.items():
            archive.writestr(name, data)
    refused(Path("m.pt2"), r"its 1\d\d entries unpack from \d+ to \d+ bytes")
