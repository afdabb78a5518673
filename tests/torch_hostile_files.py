"""Exported programs that somebody wrote to run code, and whether any does (`tests/damaged_files.py`).

`python tests/torch_hostile_files.py --count 2000 --seed 0` prints how many were refused, imported and run, by door and
kind of error; then every offender. Each file has one to three of the faults below: archives that readers understand
differently, names, JSON, sizes, operators, tables. An audit hook in each process reports a payload that begins to run:
programs, writing of files elsewhere, imports from the working folder, names of pickles.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import sys
import tempfile
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import damaged_files
import torch_mutations
from damaged_files import EXECUTED, Damage, Door, Format, Made, Random, note, usual_doors
from torch_mutations import NUMBERS, archive, entries_of, hostile_pickle

FILE = "model.pt2"
CODE = f"__import__('os').mkdir('{EXECUTED}')"
MODULE = "evil_module"
PROGRAM = "models/model.json"
Change = Callable[[Any, Random], None]


def one(of: Sequence[Any], random: Random) -> Any:
    """One of several things, as it is."""
    return of[int(random.integers(len(of)))]


# What readers of archives understand differently


def header(data: bytes, random: Random) -> bytes:
    """One field of a local header, of the central directory, or of the end record is another."""
    mark, fields = one(((b"PK\3\4", ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
                        (
                            b"PK\1\2",
                            (
                                (4, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2),
                                (38, 4), (42, 4)
                            )
                        ),
                        (b"PK\5\6", ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)))), random)
    places = [m.start() for m in re.finditer(re.escape(mark), data)]
    if not places:
        return data[::-1]
    offset, size = one(fields, random)
    at = one(places, random) + offset
    old = int.from_bytes(data[at : at + size], "little")
    new: int = one(
        (0, 1, old ^ 1, old + 1, old - 1, old + 64, (1 << 8 * size) - 1, int(random.integers(1 << 8 * size))), random
    ) % (1 << 8 * size)
    return data[:at] + new.to_bytes(size, "little") + data[at + size :]


def wide(data: bytes, random: Random) -> bytes:
    """A ZIP64 end record that leads to another directory, or ZIP64 sizes of one entry."""
    at = data.rfind(b"PK\5\6")
    if at < 0 or len(data) < at + 22:
        return data[::-1]
    if random.random() < 0.5:
        return _with_extra(data, random)
    other = archive({**entries_of(data), "m/models/model.json": b"{}"})
    count, size, offset = struct.unpack_from("<HLL", data, at + 10)
    body = other + data[:at] if random.random() < 0.5 else data[:at]
    moved = len(body) - at
    record = struct.pack(
        "<4sQ2H2L4Q", b"PK\6\6", one((44, 0, 1 << 40), random), 45, 45, 0, 0, count, count, size,
        one((offset, offset + moved), random)
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, one((len(body), 0, 1 << 62), random), 1)
    return body + record + locator + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, one((offset + moved, 0xFFFFFFFF), random), 0
    )


def _with_extra(data: bytes, random: Random) -> bytes:
    """An archive in which each entry has a ZIP64 field that says sizes of its own."""
    entries = entries_of(data)
    path = Path(tempfile.mkdtemp(dir=".")) / "wide.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name)
            values = struct.pack(
                "<3Q", *(int(one(NUMBERS, random)) % (1 << 64) for _ in range(3))
            )[: 8 * random.integers(4)]
            info.extra = struct.pack("<2H", 1, one((len(values), 0, 28, 65535), random)) + values
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.writestr(info, content)
    return path.read_bytes()


def order(data: bytes, random: Random) -> bytes:
    """Two entries have each other's contents, one is cut short, or an archive is put before, behind, or between."""
    entries = entries_of(data)
    if len(entries) < 2:
        return data + data
    a, b = random.choice(list(entries), 2, replace=False)
    which = random.integers(5)
    if which == 0:
        entries[a], entries[b] = entries[b], entries[a]
    elif which == 1:
        entries[a] = entries[a][: random.integers(len(entries[a]) + 1)]
    elif which == 2:
        other = archive({**entries, a: CODE.encode()})
        return other + data if random.random() < 0.5 else data + other
    elif which == 3:
        entries[a] = archive(entries)
    else:
        at = data.rfind(b"PK\5\6")
        comment = archive({a: CODE.encode()})[:65535]
        return data[: at + 20] + struct.pack("<H", len(comment)) + comment
    return archive(entries)


NAMES = (
    "{0}/", "/{0}", "../{0}", "{1}/../{2}", "{1}//{2}", "{1}/./{2}", "{1}\\{2}", "{3}", "{4}", "{0}\0", "{0}\n", "{0} ",
    "C:{0}", "{0}\u0301", "{5}", ".", "x" * 70000, "{0}.so", "\u202e{0}"
)


def rename(data: bytes, random: Random) -> bytes:
    """An entry of hostile contents, whose name another reader may take for one of the program's."""
    entries = entries_of(data)
    if not entries:
        return data[::-1]
    name = one(list(entries), random)
    folder, _, last = name.partition("/")
    kelvin = name.replace("k", "\u212a").replace("s", "\u017f")
    new = one(NAMES, random).format(name, folder, last, name.upper(), name.swapcase(), kelvin)
    hostile = one((hostile_pickle(random), CODE.encode(), entries[name]), random)
    made = {new: hostile, **entries} if random.random() < 0.5 else {**entries, new: hostile}
    try:
        return archive(made)
    except (ValueError, struct.error):  # a name that no archive has
        return archive(entries)


def pickled(data: bytes, random: Random) -> bytes:
    """A pickle stands where there may be one, and tables that ask for it."""
    entries = entries_of(data)
    root = next(iter(entries), "m").split("/", maxsplit=1)[0]
    folder = one(("weights", "constants"), random)
    kind = one(("weight_0", "opaque_obj_0", "custom_obj_0", "model_weights_config.json", "model.pt"), random)
    for name in [n for n in entries if n.endswith(f"model_{folder}_config.json")]:
        payload = {
            "path_name": kind, "is_param": bool(random.integers(2)), "use_pickle": bool(random.integers(2)),
            "tensor_meta": None
        }
        entries[name] = json.dumps({"config": {"x": payload}}).encode()
    place = one(
        (
            f"data/{folder}/{kind}", f"data/{folder}/model.pt", "data/sample_inputs/model.pt", "extra/x", "data.pkl",
            "models/other.json"
        ), random
    )
    return archive({**entries, f"{root}/{place}": hostile_pickle(random)})


# What is in the program


def texts(data: bytes, random: Random) -> bytes:
    """The JSON has keys twice, deep nesting, another encoding, or numbers that are too long."""
    entries = entries_of(data)
    name = next((n for n in entries if n.endswith(one((PROGRAM, "config.json"), random))), None)
    if name is None:
        return data[::-1]
    text = entries[name].decode(errors="replace")
    key = one(
        (
            "guards_code", "graph_module", "range_constraints", "config", "opset_version", "target", "expr_str",
            "use_pickle", "path_name"
        ), random
    )
    value = one(
        (
            json.dumps([CODE]), json.dumps(CODE), "true", "{}", "[" * 3000 + "]" * 3000, "9" * 5000, "NaN", "-Infinity",
            "1e999", '"\\ud800"', json.dumps({"x": CODE})
        ), random
    )
    which = random.integers(5)
    if which == 0:
        text = text.replace("{", f'{{"{key}": {value}, ', 1)
    elif which == 1:
        text = re.sub(r"\}\s*$", f', "{key}": {value}}}'.replace("\\", r"\\"), text)
    elif which == 2:
        places = [m.start() for m in re.finditer(f'"{key}"', text)]
        at = one(places, random) if places else 1
        text = text[:at] + f'"{key}": {value}, ' + text[at:]
    else:
        encoded = text.encode(one(("utf-16", "utf-32", "utf-8-sig", "utf-7"), random), "replace")
        return archive({**entries, name: encoded})
    return archive({**entries, name: text.encode()})


TERMS = (
    "s0", "s77", "u0", "Symbol('s77')", "Symbol('s77', positive=True, integer=True)", "Integer(2)", "1", "0", "-1",
    "oo", "true", "1e308", "Integer(9223372036854775807)"
)
FUNCTIONS = (
    "Add", "Mul", "Max", "Min", "FloorDiv", "CeilDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing", "Where",
    "Pow", "PowByNatural", "Abs", "Eq", "And", "Not", "floor", "Rational", "lambdify", "sympify",
             "Lambda", "Function", "eval", "Piecewise", "Sum", "factorial", "Derivative")


def size_text(random: Random, depth: int = 3) -> str:
    """A size: code, or arithmetic that is right, or costly, or neither."""
    drawn = random.random()
    if drawn < 0.15:
        return str(
            one(
                (
                    CODE, f'"{CODE}"', f"[{CODE}][0]", f"(lambda: {CODE})()",
                    f"s0.__class__.__mro__[1].__subclasses__()[{CODE}]", f"Symbol({CODE!r})", f"Float({CODE!r})",
                    "9**9**9", f"f'{{{CODE}}}'"
                ), random
            )
        )
    if depth == 0 or drawn < 0.35:
        return str(one(TERMS, random))
    if drawn < 0.5:
        return (
            f"({size_text(random, depth - 1)} "
            f"{one(('+', '-', '*', '//', '%', '**', '/', '<<', 'and', '@', '<', '=='), random)} "
            f"{size_text(random, depth - 1)})"
        )
    count = one((1, 2, 2, 3, 8), random)
    return f"{one(FUNCTIONS, random)}({', '.join(size_text(random, depth - 1) for _ in range(count))})"


def spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside of one."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from spots(inner, (*path, key))


def put(whole: Any, path: Sequence[Any], value: Any) -> None:
    """Set the value at a path."""
    for key in path[:-1]:
        whole = whole[key]
    whole[path[-1]] = value


def _sizes(whole: Any, random: Random) -> None:
    where = [p for p in spots(whole) if p[-1] in ("as_int", "expr_str")]
    path = one(where, random)
    if path[-1] == "expr_str":
        put(whole, path, size_text(random))
    else:
        put(whole, path[:-1], {"as_expr": {"expr_str": size_text(random), "hint": None}})


def _strings(whole: Any, random: Random) -> None:
    where = []
    for path in spots(whole):
        value = whole
        for key in path:
            value = value[key]
        if isinstance(value, str):
            where.append(path)
    put(
        whole, one(where, random),
        one(
            (
                CODE, f"x={CODE}", f"' + str({CODE}) + '", f"x\n    {CODE}\n", f"{MODULE}:E", "__class__",
                "__builtins__", "self", "torch", "\ud800", "{x.__class__}", ""
            ), random
        )
    )


def _operators(whole: Any, random: Random) -> None:
    nodes = whole["graph_module"]["graph"]["nodes"]
    node = one(nodes, random)
    node["target"] = one((
        "torch.os.mkdir", "torch.ops.aten.from_file.default", "torch.ops.aten.save", "torch.ops.load_library",
        "torch.ops.inductor._mm_plus_mm", "torch.ops.higher_order.inline_asm_elementwise",
                          "torch.ops.higher_order.aoti_call_delegate", "torch.ops.__class__.mro",
                          "torch.ops.aten.__class__", "torch._C._jit_clear_class_registry", "builtins.eval",
                          "builtins.exec", "_operator.call",
                          "torch.ops.aten.mkldnn_linear", f"{MODULE}.f", "torch.ops.debugprims.load_tensor.default",
                          "math.trunc", "torch.utils.cpp_extension.load", "torch.ops.aten.relu.default"), random)
    if random.random() < 0.7:
        node["inputs"] = [
            {
                "name": one(("", "filename", f"a={CODE}", "__class__"), random),
                "arg": {"as_string": one((EXECUTED, CODE), random)}, "kind": 1
            }
        ]


def _guards(whole: Any, random: Random) -> None:
    whole["guards_code"] = [one((CODE, f"L['x'].size()[0] == {CODE}", "1 +"), random)]
    whole["verifiers"] = [one((CODE, MODULE, "TRAINING", "ATEN"), random)]
    whole["range_constraints"] = {
        one((CODE, "s0", "u999999", "s" * 300), random): {
            "min_val": int(one(NUMBERS, random)), "max_val": int(one(NUMBERS, random))
        }
    }


def _trees(whole: Any, random: Random) -> None:
    for call in whole["graph_module"]["module_call_graph"]:
        if call.get("signature"):
            kind = one(("builtins.tuple", f"{MODULE}.E", "collections.namedtuple", "builtins.eval", None), random)
            context = json.dumps(
                {"__enum__": True, "fqn": f"{MODULE}:E", "name": "x"}
            ) if random.random() < 0.5 else CODE
            call["signature"]["in_spec"] = json.dumps([1, {"type": kind, "context": context, "children_spec": []}])
            call["signature"]["forward_arg_names"] = [f"x={CODE}"]
        call["fqn"] = one(("", CODE, "a.b"), random)


def _numbers(whole: Any, random: Random) -> None:
    where = [
        p for p in spots(whole)
        if p[-1] in ("as_int", "as_float", "dtype", "layout", "kind", "min_val", "max_val", "index", "major", "minor")
    ]
    put(whole, one(where, random), one((*NUMBERS, None, 1.5, "1", [], {}), random))


def _names(whole: Any, random: Random) -> None:
    where = [p for p in spots(whole) if p[-1] in ("name", "as_name")]
    put(
        whole, one(where, random),
        one(
            (
                "x", "self", "torch", "relu", "None", "def", "print", "exec", "x" * 300, "\u212a", "_tensor_constant0",
                "__builtins__"
            ), random
        )
    )


def program(data: bytes, random: Random) -> bytes:
    """The program has a hostile size, string, operator, guard, tree, number or name."""
    entries = entries_of(data)
    name = next((n for n in entries if n.endswith(PROGRAM)), None)
    if name is None:
        return data[::-1]
    try:
        whole = json.loads(entries[name])
        change: Change = one(
            (_sizes, _sizes, _sizes, _strings, _strings, _operators, _guards, _trees, _numbers, _names), random
        )
        change(whole, random)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):  # an earlier fault
        return archive({**entries, name: CODE.encode()})
    return archive({**entries, name: json.dumps(whole).encode()})


def table(data: bytes, random: Random) -> bytes:
    """A table of tensors has other names, sizes, strides, offsets or types."""
    entries = entries_of(data)
    names = [n for n in entries if n.endswith("config.json") and b"tensor_meta" in entries[n]]
    if not names:
        return program(data, random)
    name = one(names, random)
    try:
        whole = json.loads(entries[name])
        put(
            whole, one([*spots(whole)], random),
            one(
                (
                    *NUMBERS, *itertools.repeat(CODE, 3), {"as_int": int(one(NUMBERS, random))}, "../x", "/etc/passwd",
                    True, None, [], {}
                ), random
            )
        )
    except (ValueError, TypeError, IndexError, RecursionError):
        return data[::-1]
    return archive({**entries, name: json.dumps(whole).encode()})


FAULTS: tuple[Damage, ...] = (header, wide, order, rename, pickled, texts, program, program, program, table)


def made(number: int) -> Made:
    """The hostile file of that number."""
    random = np.random.default_rng(number + (1 << 40))
    seeds = [s for s in torch_mutations.small_models() if s[0] == ".pt2"]
    _, data, _ = one(seeds, random)
    names = []
    for _ in range(random.choice([1, 2, 3], p=[0.7, 0.2, 0.1])):
        fault = one(FAULTS, random)
        data = fault(data, random)
        names.append(fault.__name__)
    return Made(", ".join(names), data)


# Doors


def watched(door: Door) -> Door:
    """The door, with a hook that leaves `EXECUTED` in the folder when a payload begins to run."""

    def run(folder: Path, made: Made, random: Random) -> str:
        (folder / f"{MODULE}.py").write_text(f"import os\nos.mkdir('{EXECUTED}')\nclass E: pass\ndef f(*a): pass\n")
        sys.path.insert(0, str(folder))
        allowed = (str(folder), tempfile.gettempdir(), "/dev/null", "/proc/self/")
        found: list[str] = []

        def listen(event: str, arguments: tuple[Any, ...]) -> None:
            if not found and _is_payload(event, arguments, allowed):
                found.append(event)  # the folder that is made here is an event, too
                (folder / EXECUTED).mkdir(exist_ok=True)
                (folder / EXECUTED / "why").write_text(f"{event} {str(arguments)[:300]}")

        sys.addaudithook(listen)
        return door(folder, made, random)

    return run


def _is_payload(event: str, arguments: tuple[Any, ...], allowed: tuple[str, ...]) -> bool:
    if event in (
        "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn", "code.__new__",
        "socket.connect"
    ):
        return True
    if event == "import":
        return str(arguments[0]).partition(".")[0] in (MODULE, "antigravity", "this", "pdb", "webbrowser")
    if event == "pickle.find_class":
        return str(arguments[0]) in ("os", "posix", "nt", "subprocess", "builtins", "sys")
    if event == "exec":
        return isinstance(arguments[0], types.CodeType) and _names_payload(arguments[0])
    if event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        return bool(
            arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ) and not path.startswith(allowed) and "__pycache__" not in path
    return event == "os.mkdir" and EXECUTED in str(arguments)


def _names_payload(code: types.CodeType) -> bool:
    """Whether code that is about to run would import something and make the folder."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return ("__import__" in code.co_names and EXECUTED in code.co_consts) or any(map(_names_payload, inner))


def _reference(folder: Path, made: Made, random: Random) -> str:
    """What `diagnose --reference torch` does: torch runs the program."""
    from tilewright.base.errors import InputError
    from tilewright.driver.diagnosis.case import Case
    from tilewright.driver.diagnosis.references import _by_torch
    from tilewright.ir.module import IRModule
    from tilewright.relay.frontend.pytorch.model import signature

    note("compile")
    infos = signature(folder / FILE)
    note("run")
    fed = tuple(damaged_files.an_input(dtype, dims, random) for _, dims, dtype in infos)
    if any(x is None for x in fed):
        return "compiled"
    try:
        _by_torch(folder / FILE, Case(IRModule(), fed))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:  # torch's own, of a program that does not fit together  # noqa: E501
        raise InputError(f"torch: {error}", code="TW0717") from error
    return "ran"


DOORS: dict[str, Door] = {name: watched(door) for name, door in {**usual_doors(FILE), "reference": _reference}.items()}
TURNS = ("compile", "compile", "check", "reference", "reference", "command check", "command compile", "command run")


def models() -> Format:
    """Hostile files. The small models are made before the first child is."""
    torch_mutations.small_models()
    return Format(
        FILE, made, DOORS, TURNS,
        preloaded=[
            "tilewright.relay.frontend.pytorch", "torch.export", "torch._dynamo", "sympy",
            "tilewright.driver.diagnosis.references"
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Send many; exit with 1 when there is an offender."""
    return damaged_files.report(models(), damaged_files.options(__doc__, 2000, [*DOORS]).parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
