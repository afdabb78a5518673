"""Debug information: lines and variables in the LLVM text and in files, what gdb shows of it, and names for perf."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, Origin
from tilewright.compiler.cache import VARIABLE
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.runtime import NullThreadPool, load_module
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.threads import POOLS

PRINTERS = Path(tvm.__file__).parent / "driver" / "gdb_printers.py"
NODE = "/layer1/layer1.0/conv1/Conv"
X = np.random.default_rng(0).standard_normal((1, 4, 8, 8), np.float32)
BASELINE = f"llvm -mtriple={Target('llvm').mtriple} -mcpu=x86-64"


def residual() -> IRModule:
    """relu(x + conv2(relu(conv1(x)))), whose convolutions have the names of a residual network's."""
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=(1, 4, 8, 8))
    one, two = (relay.const(rng.standard_normal((4, 4, 3, 3)).astype("float32")) for _ in range(2))
    conv = relay.nn.conv2d(x, one, padding=1).op
    first = relay.nn.relu(relay.Call(conv, [x, one], span=Origin(NODE, "Conv")))
    second = relay.Call(conv, [first, two], span=Origin(NODE.replace("conv1", "conv2"), "Conv"))
    return IRModule.from_expr(Function([x], relay.nn.relu(relay.add(second, x))))


def built(kind: str, target: str = "llvm") -> Any:
    with tvm.transform.PassContext(opt_level=3, config={"tir.debug_info": kind}):
        return relay.build(residual(), target)


def shifted(kind: str | None = None) -> Any:
    a = te.placeholder((4, 6), name="a")
    made = te.compute((4, 6), lambda i, j: a[i, j] * 2.0 + 1.0, name="made")
    s = te.create_schedule(made.op)
    s[made].parallel(made.op.axis[0])
    with tvm.transform.PassContext(config={} if kind is None else {"tir.debug_info": kind}):
        return tvm.build(s, [a, made], "llvm", name="shifted")


def test_functions_have_lines_without_being_asked() -> None:
    text = shifted().get_source()
    assert '!DIFile(filename: "shifted.tir.py", directory: "")' in text
    assert "emissionKind: LineTablesOnly" in text
    assert "dbg_declare" not in text
    assert re.search(r"fmul .*, !dbg !\d+", text)


def test_lines_are_left_out_where_that_is_asked() -> None:
    assert "!dbg" not in shifted("off").get_source()


@pytest.mark.parametrize("kind", [None, "off", "tir"])
def test_results_are_the_same(kind: str | None) -> None:
    a, got = np.arange(24, dtype=np.float32).reshape(4, 6), np.zeros((4, 6), np.float32)
    shifted(kind)(a, got)
    np.testing.assert_array_equal(got, a * 2 + 1)


def test_variables_and_the_text_of_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    text = shifted("tir").get_source()
    for name in ("a", "made", "i", "j"):
        assert f'!DILocalVariable(name: "{name}"' in text
    assert '"tensor float32 4, 6"' in text
    (file,) = tmp_path.glob("sources/*/shifted.tir.py")
    assert f'directory: "{file.parent}"' in text
    lines = file.read_text().splitlines()
    place = re.search(r"fmul .*, (!dbg !(\d+))", text)
    assert place is not None
    line = re.search(rf"^!{place[2]} = !DILocation\(line: (\d+)", text, re.MULTILINE)
    assert line is not None
    assert "* 2.0 + 1.0" in lines[int(line[1]) - 1]


@pytest.mark.parametrize("kind", ["tir", "relay", "model"])
def test_models_and_artifacts(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    plain, lib = relay.build(residual(), "llvm"), built(kind)
    want = plain.executable(X)
    np.testing.assert_array_equal(lib.executable(X), want)
    assert lib.artifact.manifest.debug == kind
    lib.export_library(tmp_path / "m.so")
    again = load_module(tmp_path / "m.so")
    assert isinstance(again, FactoryModule)
    np.testing.assert_array_equal(again.executable(X), want)
    suffix = {"tir": "tir.py", "relay": "relay", "model": "nodes.txt"}[kind]
    texts = "\n".join(f.read_text() for f in (tmp_path / "cache").glob(f"sources/*/*.{suffix}"))
    assert {"tir": "@T.prim_func", "relay": "nn.conv2d(", "model": f"Conv '{NODE}'"}[kind] in texts


def test_an_unknown_text_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'tir.debug_info' takes one of , off, tir, relay, model, not 'c'"):
        shifted("c")


def test_every_location_of_a_checked_model_is_valid() -> None:
    """Checks and debug information together: LLVM's verifier accepts both."""
    with tvm.transform.PassContext(
        opt_level=3, config={"tir.debug_info": "tir", "tir.instrument_bound_checkers": True}
    ):
        lib = relay.build(residual(), "llvm")
    np.testing.assert_allclose(lib.executable(X), relay.build(residual(), "llvm").executable(X), rtol=1e-5, atol=1e-5)


# gdb.
def printers() -> Any:
    spec = importlib.util.spec_from_file_location("gdb_printers", PRINTERS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_printer_shows() -> None:
    p = printers()
    assert p.parsed("tensor float32 1, 4, 8") == ("float32", [1, 4, 8])
    assert p.parsed("tensor int8 n, 4") == ("int8", None)
    assert p.parsed("int") is None
    for dtype in ("float32", "int8", "uint16", "float64", "float16", "int64"):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        assert p.shown(p.decoded(x.tobytes(), dtype), [2, 3]) == "[[0, 1, 2], [3, 4, 5]]"
    assert p.decoded(np.array([0x3F80, 0xC000], np.uint16).tobytes(), "bfloat16") == [1.0, -2.0]
    assert p.decoded(b"\1\0", "bool") == [True, False]
    assert p.shown([0.5, 1.25], [2, 2]) == "[[0.5, 1.25]] … 2 more"
    assert p.size_of("bfloat16") == 2
    assert p.size_of("float64") == 8


def gdb(script: str, program: str, tmp_path: Path) -> str:
    """What gdb prints that runs these commands on a Python program."""
    (tmp_path / "script.gdb").write_text(
        "set pagination off\nset confirm off\nset breakpoint pending on\nset print elements 6\nsource "
        f"{PRINTERS}\n{script}\nkill\n"
    )
    (tmp_path / "program.py").write_text(program)
    path = os.pathsep.join(p for p in sys.path if p)
    command = [
        "gdb", "-q", "-nx", "-batch", "-iex", "set auto-load off", "-x", str(tmp_path / "script.gdb"), "--args",
        sys.executable, str(tmp_path / "program.py")
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False,
        start_new_session=True, env={**os.environ, "PYTHONPATH": path, "DEBUGINFOD_URLS": ""},
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
@pytest.mark.skipif(Target("llvm").family != "x86", reason="the script records instructions of x86-64")
def test_a_session(tmp_path: Path) -> None:
    """A breakpoint on a line of the loops and one on a node's name, locals, tensors, and a step back."""
    folder = tmp_path / "cache"
    os.environ[VARIABLE], before = str(folder), os.environ.get(VARIABLE)
    try:
        for kind in ("tir", "model"):
            built(kind, BASELINE).export_library(tmp_path / f"{kind}.so")
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
    file = min(folder.glob("sources/*/kernel_0_*.tir.py"))
    lines = file.read_text().splitlines()
    at = next(k for k, line in enumerate(lines, 1) if "p0[" in line)
    np.save(tmp_path / "x.npy", X)
    program = (
        "import numpy as np, tilewright as tvm\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r})\n"
        "with tvm.runtime.NullThreadPool():\n"
        "    for kind in ('tir', 'model'):\n"
        f"        tvm.runtime.load_module(f{str(tmp_path) + '/{kind}.so'!r}).executable(x)\n"
    )
    said = gdb(
        f"break {file.name}:{at}\nbreak -function {NODE}\nrun\ninfo locals\nprint p0\ntensor p0 --from 0,1\nnodes "
        "conv2d\ninfo threads\nremember\nnext\nnext\n"
        "echo back\\n\nreverse-next\nrecord stop\nset scheduler-locking off\ndelete 1\ncontinue\nnodes conv2\nprint p0",
        program, tmp_path,
    )
    stopped = re.search(
        rf"Breakpoint 1(\.\d+)?, kernel_0_\w+ \((.|\n)*?\) at .*{re.escape(file.name)}:{at}\n{at}\t(.*)", said
    )
    assert stopped is not None, said
    assert stopped[3] == lines[at - 1]
    for begin, wanted in (
        (r"\$1 = float32\[1, 4, 8, 8\] at 0x\w+: ", X), (r"from \[0, 1\]: ", X[0, 1]),
        (r"\$2 = float32\[1, 4, 8, 8\] at 0x\w+: ", X)
    ):
        shown = re.search(rf"{begin}\[+([^\]]+)\]", said)
        assert shown is not None, said
        np.testing.assert_allclose([float(v) for v in shown[1].split(",")], wanted.reshape(-1)[:6], rtol=1e-5)
    assert re.search(r"^\w+ = \d+$", said, re.MULTILINE), said  # loop variables
    assert re.search(r"^kernel_0_\w+ +kernel_0_\w+\.tir\.py:2$", said, re.MULTILINE), said
    forward, _, back = said.partition("back\n")
    steps = [line for line in forward.split(stopped[0])[1].splitlines() if re.match(r"\d+\t", line)]
    assert back.splitlines()[0] == steps[-2], said
    assert re.search(rf"Breakpoint 2(\.\d+)?, {NODE} \(", back), said
    assert NODE.replace("conv1", "conv2") in back, said


def test_no_threads() -> None:
    run = relay.build(residual(), "llvm").executable
    run.threads = 3
    want = run(X)
    with NullThreadPool():
        np.testing.assert_array_equal(run(X), want)
        assert list(POOLS._contexts) == [1]
    np.testing.assert_array_equal(run(X), want)


def test_a_function_of_flat_loops_has_lines_of_its_own_text() -> None:
    func = tir.parse(
        "@T.prim_func\ndef f(a: T.Buffer((8,), \"float32\")):\n    for i in T.serial(8):\n        a[i] = 1.0"
    )
    assert isinstance(func.body, tir.For)
    printed = tir.printer.PrintedFunc(func)
    assert [printed.line_of(func.body), printed.line_of(func.body.body)] == [3, 4]
    assert printed.line_of(tir.stmt.Seq(())) == 0
