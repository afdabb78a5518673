"""Damaged and hostile files of TFLite and PyTorch are imported or refused by one of our errors; nothing in them is
executed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import daily
import damaged_files
import tflite_mutations
import tilewright
from damaged_files import EXECUTED
from tflite_models import Graph, Op, T, model
from tilewright.base.errors import ModelError, ShapeError
from tilewright.relay.frontend.tflite import from_tflite


@pytest.mark.slow
@pytest.mark.parametrize(("script", "count"), [("tflite_mutations.py", 60), ("torch_mutations.py", 60)])
def test_mutated_files_are_refused_or_run(script: str, count: int) -> None:
    """Through every door, each in a process with limits. What is compiled is run, too."""
    if script.startswith("torch"):
        pytest.importorskip("torch")
    counts = counted(script, count)
    assert counts["ran"] > 1 and counts["refused"] > 20


@pytest.mark.slow
def test_hostile_programs_of_torch_run_no_code() -> None:
    """A sample of the day; all 2,000 with `TILEWRIGHT_TEST_ALL`."""
    pytest.importorskip("torch")
    count = 2000 if daily.ALL else 60
    print(f"TILEWRIGHT_TEST_SEED={daily.SEED}")
    counts = counted("torch_hostile_files.py", count, 0 if daily.ALL else daily.SEED % 10_000 * count)
    assert counts["refused"] > count // 2


def _imports(*_: object) -> str:
    __import__("evil_module")
    return "ran"


def _executes(*_: object) -> str:
    # defined, and not called: what is looked for is code that begins to run
    exec("def f():\n    __import__('os').mkdir('was-executed')")
    return "ran"


def _unpickles(*_: object) -> str:
    with contextlib.suppress(Exception):
        pickle.loads(b"\x80\x04\x8c\x08builtins\x94\x8c\x04eval\x94\x93.")
    return "ran"


def _makes_a_folder(*_: object) -> str:
    Path("was-executed").mkdir()
    return "ran"


def _writes(*_: object) -> str:
    Path("/no-such-folder/x").open("w").close()
    return "ran"


@pytest.mark.slow
@pytest.mark.parametrize(("door", "why"), [
    (lambda *_: str(os.system("true")), "os.system"), (lambda *_: str(subprocess.call(["true"])), "subprocess.Popen"),
    (_imports, "import"), (_executes, "exec"), (_unpickles, "pickle.find_class"), (_writes, "open"),
    (_makes_a_folder, "os.mkdir"),
])
def test_payloads_that_run_are_found(door: damaged_files.Door, why: str) -> None:
    pytest.importorskip("torch")
    import torch_hostile_files

    form = dataclasses.replace(
        torch_hostile_files.models(), doors={"door": torch_hostile_files.watched(door)}, turns=("door",), preloaded=()
    )
    (found,) = damaged_files.outcomes(form, [3], 1)
    assert found.kind == "executed" and found.error.startswith(why)


def counted(script: str, count: int, seed: int = 0) -> dict[str, int]:
    """What became of the files of a script, by kind of outcome; there is no offender."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": "off"}
    command = [
        sys.executable, str(Path(__file__).with_name(script)), "--small", "--json", "--count", str(count), "--seed",
        str(seed)
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert sum(said["counts"].values()) == count and said["bad"] == []
    return dict(said["counts"])


def test_a_number_makes_one_file() -> None:
    kinds = [tflite_mutations.small_models()]
    assert tflite_mutations.made(3, kinds) == tflite_mutations.made(3, kinds) != tflite_mutations.made(4, kinds)


# TFLite


def one(
    kind: str, x: T, y: T, options: str = "", values: dict[str, object] | None = None, more: tuple[T, ...] = ()
) -> bytes:
    tensors = [x, *more, y]
    return model(
        tensors, [Op(kind, list(range(len(tensors) - 1)), [len(tensors) - 1], options, values or {})], [0],
        [len(tensors) - 1]
    )


X = T("x", (1, 4), "int8", None, 0.1, 3)
POOLED = {"StrideW": 1, "StrideH": 1, "FilterWidth": 3, "FilterHeight": 3}


@pytest.mark.parametrize(("source", "message"), [
    (one("SOFTMAX", X, T("y", (1, 4)), "SoftmaxOptions", {"Beta": 1.0}), "has no scale, but the operator needs one"),
    (
        one("LOGISTIC", T("x", (1, 4), "int8", None, 0.1, 1000), T("y", (1, 4), "int8", None, 0.1)),
        "tensor 'x' has scales or zero points that are not valid"
    ),
    (
        model(
            [T("a", (), "int32", 0), T("x", ()), T("y", ()), T("z", ())],
            [Op("SPLIT", [0, 1], [2, 3], "SplitOptions", {"NumSplits": 2})], [1], [2, 3]
        ), "its input is a scalar, which cannot be split"
    ),
    (model([
        T("x", (2, 4)), T("w", ()), T("r", (5, 5), value=np.zeros((5, 5))), T("b", (5,), value=np.zeros(5)),
        T("h", (2, 5), variable=True), T("y", (2, 5))
    ],
           [Op("RNN", [0, 1, 2, 3, 4], [5], "RNNOptions")], [0, 1], [5]),
           "tensor 'w', a matrix of weights, has 0 dimensions"),
    (
        one("LOGISTIC", X, T("y", (1, 4), "float32", None, 0.1)),
        "its result has the type float32, but a quantized result must be integers"
    ),
    (
        one("LEAKY_RELU", X, X, "LeakyReluOptions", {"Alpha": 1e38}),
        r"a scale of 1e\+38 cannot be converted to the scale 1 in fixed point"
    ),
    (
        model(
            [T("a", (2,), "int32", [2, 3]), T("b", (2,), "int32", [2, 4]), T("y", (2,), "int32")],
            [Op("BROADCAST_ARGS", [0, 1], [2])], [], [2]
        ), "cannot be broadcast together"
    ),
    (
        one("HARD_SWISH", X, T("y", (1, 4), "int8", None, 1e-9)),
        "must be at least 1/128 of that of its input, 0.1"
    ),
    (
        one("TANH", T("x", (1, 4), "int16", None, 1e30), T("y", (1, 4), "int16", None, 1 / 32768)),
        "too large for the kernel's 32-bit arithmetic"
    ),
    (model([T("c", (1,), "bool"), T("x", (2,)), T("y", (2,))], [
        Op("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    ], [0, 1], [2],
           Graph([T("a", (2,))], [], [0], [0]), Graph([T("a", (2,))], [], [0], [0, 0])),
           "its branches have 1 and 2 results"),
    (one("RESIZE_BILINEAR", T(
        "x", (1, 2, 2, 1), "int8", None, 0.1
    ), T("y", (1, 2, 2, 1), "int8", None, 0.1), "ResizeBilinearOptions", {},
         (T("s", (2,), "int32", [1 << 25, 7]),)),
         "its result has 33554432 x 7 points, but at most 134217728 are supported"),
    (model([T("x", (1, 3)), T("h", (1, 4)), T("w", (16, 7)), T("b", (1, 4)), *(T(f"y{k}", (1, 4)) for k in range(4))],
           [Op("LSTM", [0, 1, 2, -1, 3], [4, 5, 6, 7], "LSTMOptions", {"KernelType": 1})], [0, 1, 2, 3], [4]),
           "1 of its 5 inputs are missing"),
    (
        one("TILE", T("x", (2,)), T("y", (4,)), more=(T("n", (1,), "float32", [2.0]),)),
        "tensor 'n' must be integers, but is float32"
    ),
])
def test_senseless_models(source: bytes, message: str) -> None:
    with pytest.raises((ModelError, ShapeError), match=message):
        from_tflite(source)


def test_hard_swish_of_absurd_scales_is_all_or_nothing() -> None:
    """Shifts by more bits than a number has leave nothing of it, or all."""
    small, large = (
        tilewright.compile(
            one("HARD_SWISH", T("x", (1, 4), "int8", None, scale), T("y", (1, 4), "int8", None, 1e20))
        )(np.array([[-100, 0, 1, 100]], np.int8)) for scale in (1e-30, 1e12)
    )
    assert (small == 0).all() and (large == 0).all()


@pytest.mark.parametrize("shape", [(1, 5, 5, 0), (1, 0, 5, 2), (0, 5, 5, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_means_of_nothing(shape: tuple[int, ...], dtype: str) -> None:
    """Images of no channels, of no rows, and no images."""
    wanted = (shape[0], 1, 1, shape[3])
    scales = (None, 0.1, 3) if dtype == "int8" else ()
    source = one("MEAN", T("x", shape, dtype, *scales), T(
        "y", wanted, dtype, *((None, 0.2, 1) if scales else ())
    ), "ReducerOptions", {"KeepDims": True},
                 (T("a", (2,), "int32", [1, 2]),))
    found = np.asarray(tilewright.compile(source)(np.zeros(shape, dtype)))
    assert found.shape == wanted and found.dtype == dtype


# PyTorch


def archive(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in entries.items():
            made.writestr(name.replace("__in__", "/").replace("__dot__", "."), data)
    return path


LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.cos\nmkdir\n(X\x0c\x00\x00\x00was-executedtR."
MEMO = (
    b"\x80\x04\x8c\x02os\x94\x8c\x05mkdir\x94\x8c\x0bcollections\x8c\x0bOrderedDict\x30\x30h\x00h\x01\x93\x8c\x0cwas-executed\x85R."
)
CODE = b"class M(Module):\n  training : bool\n  def %s:\n    return x\n"
STATE = (
    b"class M(Module):\n  training : bool\n  def __setstate__(self, x):\n    %s\n    return None\n  def keep(self, "
    b"x):\n    %s\n    return None\n"
)
RUNS = b'ops.aten.save([], "was-executed")'


@pytest.mark.parametrize(("entries", "message"), [
    ({"m__in__data__dot__pkl": MEMO}, r"would call os\.mkdir"),
    (
        {"m__in__models__in__model__dot__json": b"{}", "m__in__data__in__w__dot__pt": LEGACY},
        "would be read as a legacy pickle"
    ),
    (
        {
            "m__in__config__dot__json": b'{"config": {"w": {"path_name": "weight_0", "use_pickle": true}}}',
            "m__in__weight_0": LEGACY
        }, "contains only weights"
    ),
    ({"m__in__models__in__model__dot__json": b"[" * 100_000}, "model.json is damaged: it is not valid JSON"),
    (
        {"m__in__models__in__model__dot__json": b'{"expr_str": "9**9**9"}'},
        "has the size '9\\*\\*9\\*\\*9', which is not valid arithmetic"
    ),
    *((
        {"m__in__code__in__x__dot__py": STATE % body},
        r"has a __setstate__ that does more than pack weights, and would run when the file is read"
    ) for body in (
        (RUNS, b"self.w = x"), (b"_0 = (self).keep(x)", RUNS), (b"_0 = (self).keep(x)", b"_0 = (self).keep(x)"),
        (b"while True:\n      pass", b"self.w = x"),
        (b"self = self.other", b"self.w = x"), (b"_0 = (self).other(x)", b"self.w = x"),
        (b"_0 = (self.keep).keep(x)", b"self.w = x"), (b"self.w = torch.add(x, x)", b"pass"),
    )),
    (
        {"m__in__code__in__x__dot__py": CODE % b'forward(self, x=ops.aten.save([], "was-executed"))'},
        "has a call in a default value"
    ),
    ({"m__in__code__in__x__dot__py": b"(" * 5000 + b")" * 5000}, "is not valid TorchScript"),
    (
        {"m__in__data__in__aotinductor__in__x__dot__txt": b""},
        "is machine code; export the program without compiling it"
    ),
])
def test_archives_that_would_run_something(
    entries: dict[str, bytes], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=message):
        tilewright.compile(archive(tmp_path / "m.pt", **entries))
    assert not (tmp_path / EXECUTED).exists()


@pytest.mark.parametrize(("wrap", "message"), [
    (lambda data: b"before" + data, "there are bytes before or after the archive"),
    (lambda data: data + b"behind", "there are bytes before or after the archive"),
    (lambda data: LEGACY, r"is a pickle, the format of torch\.save before version 1\.6"),
    (lambda data: data[:40], "is not an archive of torch.jit.save or torch.export.save"),
])
def test_what_stands_around_an_archive(wrap: object, message: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = archive(tmp_path / "m.pt", m__in__version=b"3\n")
    path.write_bytes(wrap(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ModelError, match=message):
        tilewright.compile(path)


def test_names_that_are_there_twice(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as written, pytest.warns(UserWarning, match="Duplicate"):
        written.writestr("m/version", b"3\n")
        written.writestr("m/version", b"4\n")
    (tmp_path / "m.pt").write_bytes(made.getvalue())
    with pytest.raises(ModelError, match="its entry 'm/version' occurs twice"):
        tilewright.compile(tmp_path / "m.pt")


def test_a_module_without_a_program(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(torch.nn.ModuleList([torch.nn.ReLU()])).save(str(tmp_path / "m.pt"))
    with pytest.raises(
        ModelError, match=r"the module has no code \(.*forward.*\); save a module that has a forward method"
    ):
        tilewright.compile(tmp_path / "m.pt", shapes={"x": (1, 2)})


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "dynamic lstm", "embedding"])
def test_quantized_layers_pack_their_weights_while_they_are_read(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch
    from torch.ao.nn import quantized
    from torch.ao.quantization import quantize_dynamic

    def of_bytes(layer: object) -> object:
        return lambda x: layer(
            torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
        ).dequantize()  # type: ignore[operator]

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = {
                "conv1d": lambda: quantized.Conv1d(3, 4, 3), "conv2d": lambda: quantized.Conv2d(3, 4, 3),
                "embedding": lambda: quantized.Embedding(10, 4),
                    "dynamic lstm": lambda: quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(5, 4)), {torch.nn.LSTM})}
            self.layer = made[name]()

        def forward(self, x: object) -> object:
            return of_bytes(self.layer)(x) if "conv" in name else self.layer(x)[0] if "lstm" in name else self.layer(x)  # type: ignore[operator]

    x = torch.arange(1 * 3 * 5 * (5 if name == "conv2d" else 1)).reshape(
        (1, 3, 5, 5) if name == "conv2d" else (1, 3, 5)
    ) % 10
    x = x[0] if name == "embedding" else x.float() / 7
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = Module().eval()
        traced = torch.jit.trace(module, x, check_trace=False)
        traced.save(str(tmp_path / "m.pt"))
        expected = module(x).numpy()
    found = tilewright.compile(tmp_path / "m.pt", shapes={"x": tuple(x.shape)}, threads=1)(x.numpy())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_check_says_what_a_program_of_torch_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    x = torch.from_numpy(np.ones((2, 3), np.float32))
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(network, (x,)), tmp_path / "m.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(network, x).save(str(tmp_path / "m.pt"))
    for file, kind in (("m.pt2", "torch.export"), ("m.pt", "TorchScript")):
        report = tilewright.check(tmp_path / file, shapes={"input": (2, 3)})
        assert report.ok and report.opsets == {kind: 1}
        assert {o.name: o.runs for o in report.operators} == {"aten::linear": "native", "aten::relu": "native"}
        assert [(v.shape, v.dtype) for v in report.inputs] == [((2, 3), "float32")]
