"""Damaged and hostile files of PyTorch through every door of the compiler (`tests/damaged_files.py`).

`python tests/torch_mutations.py --count 500 --seed 0` prints how many were refused, compiled and run, by door and kind
of error; then every offender. A mutation is drawn from a number alone. Seeds are small programs as TorchScript and as
exported programs. A file whose code is run leaves a folder behind, which is the worst of offences.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import damaged_files
from damaged_files import DAMAGE, EXECUTED, Damage, Format, Made, Random, cut, flip, repeat, usual_doors

pytest.importorskip("torch", reason="torch is not installed")
import torch

FILE = "model.pt"
DOORS = usual_doors(FILE)
TURNS = ("compile",) * 5 + ("check", "command check", "command compile", "command run")
NUMBERS = (0, -1, -2, 1, 2, 3, 7, 64, 1000, 10**9, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 70)
TEXTS = (
    "", "x", "\0", "a" * 5000, "Tensor", "torch.ops.aten.relu.default", "torch.os.system", "../x", "/etc/passwd", "s0",
    "9**9**9", "__import__('os').mkdir('was-executed')"
)
CODE = (
    "ops.aten.save([x], \"was-executed\")", "torch.relu(x)", "x", "torch.zeros([1000000000, 1000000000])", "1 // 0",
    "unknown(x)", "(" * 3000 + "x" + ")" * 3000,
        "ops.prim.RaiseException(\"no\")", "torch.reshape(x, [-1, 0, 7])", "None", "-" * 50_000 + "1")
Entries = dict[str, bytes]
Seed = tuple[str, bytes, dict[str, tuple[int, ...]]]


# Seeds


class _Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(3):
            x = torch.tanh(x) + k
        if x.sum() > 0:
            return x * 2
        return x


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]


def _quantized() -> Any:
    from torch.ao.quantization import QuantWrapper, convert, get_default_qconfig, prepare

    module = QuantWrapper(
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    ).eval()
    module.qconfig = get_default_qconfig("fbgemm")
    prepared = prepare(module)
    prepared(torch.randn(2, 3, 8, 8))
    return convert(prepared)


class _Dynamic(torch.nn.Module):
    """An embedding of bytes, and an LSTM whose products quantize what they take as they run."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.nn.quantized import Embedding
        from torch.ao.quantization import quantize_dynamic

        self.rows = Embedding(10, 4)
        self.cells = quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(4, 5, batch_first=True)), {torch.nn.LSTM})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(self.rows(x.abs().to(torch.int64)))[0]


class _Rows(torch.nn.Module):
    """A quantized convolution of one dimension, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.nn import quantized

        self.conv = quantized.Conv1d(4, 6, 3)
        self.norm = quantized.LayerNorm(
            [6], torch.nn.Parameter(torch.ones(6)), torch.nn.Parameter(torch.zeros(6)), 0.1, 100
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(torch.quantize_per_tensor(x, 0.05, 100, torch.quint8))
        return self.norm(y.transpose(1, 2).contiguous()).dequantize()


def _programs() -> dict[str, tuple[Callable[[], Any], tuple[int, ...]]]:
    nn = torch.nn
    return {
        "convolutions": (
            lambda: nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
                nn.Flatten(), nn.Linear(4, 5)
            ), (1, 3, 8, 8)
        ),
        "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (1, 4, 8)),
        "recurrent": (_Recurrent, (1, 3, 4)),
        "dense": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.GELU(), nn.Softmax(-1)), (2, 6)),
        "shapes": (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 6)), nn.ConstantPad1d(1, 0.5)), (2, 3, 8)),
        "quantized": (_quantized, (1, 3, 8, 8)),
        "quantized rows": (_Rows, (1, 4, 9)),
        "quantized as it runs": (_Dynamic, (1, 3)),
    }


@functools.cache
def small_models() -> tuple[Seed, ...]:
    """Suffix, bytes, and the shapes of inputs of small programs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found: list[Seed] = []
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path, exported = Path(folder) / "m.pt", Path(folder) / "m.pt2"
        for name, (make, shape) in _programs().items():
            module, x = make().eval(), torch.randn(shape)
            traced = torch.jit.trace(module, x, check_trace=False)
            traced.save(str(path))
            graph = torch.jit.load(str(path)).inlined_graph
            found.append((".pt", path.read_bytes(), {list(graph.inputs())[1].debugName().split(".")[0]: shape}))
            if "quantized" not in name:
                torch.export.save(
                    torch.export.export(
                        module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) if name == "dense" else None
                    ), exported
                )
                found.append((".pt2", exported.read_bytes(), {}))
        torch.jit.script(_Branches()).save(str(path))
        found.append((".pt", path.read_bytes(), {"x": (2, 3)}))
        torch.save({"w": torch.ones(3)}, path)
        found.append((".pth", path.read_bytes(), {}))
        torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
        found.append((".pth", path.read_bytes(), {}))
    return tuple(found)


# Archives


def entries_of(data: bytes) -> Entries:
    """The entries of an archive by name; none of what is no archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {e.filename: archive.read(e) for e in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError, ValueError, RuntimeError):  # an earlier fault
        return {}


def archive(entries: Entries, packed: bool = False) -> bytes:
    """An archive whose sums are right, with each entry's contents at a multiple of 64 bytes, as torch has it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as written:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            header = made.tell() + 30 + len(name.encode()) + 4
            info.extra = b"FB" + (-header % 64).to_bytes(2, "little") + b"Z" * (-header % 64)
            written.writestr(info, data, zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)
    return made.getvalue()


def _chosen(entries: Entries, random: Random, pattern: str) -> str | None:
    found = [n for n in entries if re.search(pattern, n)]
    return found[random.integers(len(found))] if found else None


def _with(data: bytes, random: Random, pattern: str, fault: Damage) -> bytes:
    """One entry whose name has the pattern is damaged, and the archive is whole again."""
    entries = entries_of(data)
    name = _chosen(entries, random, pattern)
    if name is None:
        return flip(data, random)
    return archive({**entries, name: fault(entries[name], random)})


def damage_entry(data: bytes, random: Random) -> bytes:
    """One entry is damaged as bytes."""
    return _with(data, random, "", (flip, cut, repeat)[random.integers(3)])


def drop(data: bytes, random: Random) -> bytes:
    """An entry is away, has another name, or stands twice."""
    entries = entries_of(data)
    name = _chosen(entries, random, "")
    if name is None:
        return cut(data, random)
    which = random.integers(4)
    if which == 0:
        del entries[name]
    elif which == 1:
        entries[
            (
                "../outside", "/etc/x", name + ".so", "a\\..\\b", "model/data/aotinductor/model/x.cpp", "", "x" * 3000
            )[random.integers(7)]
        ] = entries.pop(name)
    elif which == 2:
        entries["other/" + name] = entries.pop(name)
    else:
        made = io.BytesIO(data)
        with warnings.catch_warnings(), zipfile.ZipFile(made, "a") as written:
            warnings.simplefilter("ignore")
            written.writestr(name, entries[name][::-1])
        return made.getvalue()
    return archive(entries)


def bomb(data: bytes, random: Random) -> bytes:
    """An entry is many zeros, packed; or the directory says sizes that are not so."""
    entries = entries_of(data)
    name = _chosen(entries, random, "")
    if name is None:
        return flip(data, random)
    if random.random() < 0.5:
        return archive({**entries, name: bytes(int(random.choice([1 << 24, 40 << 20])))}, packed=True)
    at, changed = data.rfind(b"PK\1\2"), bytearray(data)
    if at >= 0:
        place = at + int(random.choice([20, 24, 42]))
        changed[place:place + 4] = int(random.integers(1 << 32)).to_bytes(4, "little")
    return bytes(changed)


def prefix(data: bytes, random: Random) -> bytes:
    """Something stands before or behind the archive, a pickle with code for one."""
    other = (hostile_pickle(random), bytes(100), data)[random.integers(3)]
    return other + data if random.random() < 0.6 else data + other


# Pickles


class _Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def hostile_pickle(random: Random) -> bytes:
    """A pickle that makes a folder when it is read, written in one of the ways that there are."""
    which = random.integers(7)
    if which < 3:
        return pickle.dumps({"w": _Calls(os.mkdir, EXECUTED)}, protocol=(0, 2, 4)[which])
    if which == 3:
        return b"(S'was-executed'\nios\nmkdir\n."
    if which == 4:  # names that stand in the memo, with harmless ones read last
        return (
            b"\x80\x04\x8c\x02os\x94\x8c\x05mkdir\x94\x8c\x0bcollections\x8c\x0bOrderedDict\x30\x30h\x00h\x01\x93\x8c\x0cwas-executed\x85R."
        )
    if which == 5:
        return (
            b"\x80\x02ctorch._utils\n_rebuild_from_type_v2\n(cos\nmkdir\ncos\nmkdir\n(X\x0c\x00\x00\x00was-executedt}tR."
        )
    return pickle.dumps({"w": _Calls(eval, f"__import__('os').mkdir({EXECUTED!r})")}, protocol=2)


def poison(data: bytes, random: Random) -> bytes:
    """A pickle of the archive runs code, also where the file is no archive, or where a tensor stands."""
    entries = entries_of(data)
    if not entries:
        return hostile_pickle(random)
    name = _chosen(entries, random, r"\.pkl$|\.pt$|weight|sample_inputs") or _chosen(entries, random, "")
    assert name is not None
    hostile = hostile_pickle(random)
    which = random.integers(4)
    if which == 1:  # behind a harmless one, as in the files before archives
        hostile = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2) + hostile
    elif which == 2:
        hostile = archive({"a/data.pkl": hostile, "a/version": b"3\n", "a/byteorder": b"little"})
    elif which == 3:
        hostile = hostile + archive({"a/data.pkl": pickle.dumps({}, protocol=2), "a/version": b"3\n"})
    entries[name] = hostile
    for config in [n for n in entries if n.endswith("config.json")]:
        entries[config] = entries[config].replace(
            b'"use_pickle": false', b'"use_pickle": true'
        ).replace(b'"use_pickle":false', b'"use_pickle":true')
    return archive(entries)


def repickle(data: bytes, random: Random) -> bytes:
    """Numbers or bytes of a pickle are others."""
    def fault(content: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return flip(content, random)
        numbers = [m.start() for m in re.finditer(rb"[KM]", content)]
        changed = bytearray(content)
        for at in random.choice(numbers, min(len(numbers), 3), replace=False) if numbers else ():
            changed[at + 1] = random.integers(256)
        return bytes(changed)

    return _with(data, random, r"\.pkl$", fault)


# Code and JSON


def recode(data: bytes, random: Random) -> bytes:
    """The TorchScript of a module is another."""
    def fault(content: bytes, random: Random) -> bytes:
        text = content.decode(errors="replace")
        code = CODE[random.integers(len(CODE))]
        which = random.integers(5)
        if which == 0:
            text = re.sub(r"return .*", lambda _: f"return {code}", text, count=1)
        elif which == 1:
            text += f"\n  def __setstate__(self, state: Any) -> NoneType:\n    _0 = {code}\n    return None\n"
        elif which == 2:
            words = re.findall(r"[\w.]+", text)
            if words:
                text = text.replace(words[random.integers(len(words))], words[random.integers(len(words))], 1)
        elif which == 3:
            text = re.sub(
                r"\d+", lambda m: str(NUMBERS[random.integers(len(NUMBERS))]) if random.random() < 0.2 else m.group(0),
                text
            )
        else:
            lines = text.splitlines()
            lines.insert(int(random.integers(len(lines) + 1)), f"    y = {code}")
            text = "\n".join(lines)
        return text.encode()

    return _with(data, random, r"code/.*\.py$", fault)


def rewrite(data: bytes, random: Random) -> bytes:
    """One value of a JSON of an exported program is another, away, or there twice."""
    def fault(content: bytes, random: Random) -> bytes:
        try:
            whole = json.loads(content)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):  # an earlier fault
            return flip(content, random)
        spots: list[tuple[Any, Any]] = []
        stack = [whole]
        while stack:
            v = stack.pop()
            keys = list(v) if isinstance(v, dict) else range(len(v)) if isinstance(v, list) else []
            spots += [(v, k) for k in keys]
            stack += [v[k] for k in keys]
        if not spots:
            return b"[" * 100_000 if random.random() < 0.5 else b"null"
        holder, key = spots[random.integers(len(spots))]
        which = random.integers(6)
        if which == 0 and isinstance(holder, dict):
            del holder[key]
        elif which == 1:
            other, place = spots[random.integers(len(spots))]
            holder[key] = json.loads(json.dumps(other[place]))
        elif isinstance(holder[key], bool):
            holder[key] = not holder[key]
        elif isinstance(holder[key], (int, float)):
            holder[key] = NUMBERS[random.integers(len(NUMBERS))]
        elif isinstance(holder[key], str):
            holder[key] = TEXTS[random.integers(len(TEXTS))]
        else:
            holder[key] = (None, [], {}, 7)[random.integers(4)]
        return json.dumps(whole).encode()

    return _with(data, random, r"\.json$", fault)


ARCHIVES: tuple[Damage, ...] = (damage_entry, drop, bomb, prefix, poison, repickle)
_WEIGHTS = (0.16, 0.14, 0.1, 0.1, 0.3, 0.2)


def mutate(suffix: str, data: bytes, random: Random) -> tuple[str, bytes]:
    """`data` with one or two faults, and their names."""
    names = []
    for _ in range(random.choice([1, 2], p=[0.75, 0.25])):
        drawn = random.random()
        fault: Damage
        if drawn < 0.06:
            fault = DAMAGE[random.integers(len(DAMAGE))]
        elif drawn < 0.55:
            fault = ARCHIVES[random.choice(len(ARCHIVES), p=_WEIGHTS)]
        else:
            fault = rewrite if suffix == ".pt2" else recode
        data = fault(data, random)
        names.append(fault.__name__)
    return ", ".join(names), data


def made(number: int) -> Made:
    """The mutation of that number."""
    random = np.random.default_rng(number)
    seeds = small_models()
    suffix, data, shapes = seeds[random.integers(len(seeds))]
    how, mutated = mutate(suffix, data, random)
    return Made(f"{suffix} {how}", mutated, shapes or None)


def models() -> Format:
    """Mutations of the small models. They are made before the first child is."""
    small_models()
    return Format(
        FILE, made, DOORS, TURNS,
        preloaded=["tilewright.relay.frontend.pytorch", "torch.export", "torch._dynamo", "sympy"]
    )


def main(arguments: Sequence[str]) -> int:
    """Send many; exit with 1 when there is an offender."""
    return damaged_files.report(models(), damaged_files.options(__doc__, 500, [*DOORS]).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
