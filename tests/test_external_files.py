"""Files with modules of other compilers: they run where there is no compiler, and one changed byte of a module is
refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.runtime import load_module, register_module
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]

TABLE = '''"""A module that adds a table of its own; it imports the runtime alone."""
import numpy as np
from tilewright.runtime import ModuleNode, register_module

@register_module
class Table(ModuleNode):
    type_key = "table"

    def __init__(self, symbol, table):
        self.symbol, self.table = symbol, table

    def get_function(self, name):
        return self.run if name == self.symbol else None

    def run(self, x, out):
        out.copyfrom(x.numpy() + self.table)

    def save_to_binary(self):
        return self.symbol.encode() + b"\\0" + self.table.tobytes()

    @classmethod
    def load_from_binary(cls, blob):
        symbol, _, rest = blob.partition(b"\\0")
        return cls(symbol.decode(), np.frombuffer(rest, np.float32))
'''

ALONE = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first in ("llvmlite", "onnx") or first == "tilewright" and rest.partition(".")[0] in (
            "arith", "compiler", "driver", "expr", "ir", "relay", "target", "te", "tir", "topi"):
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Wall())
sys.path.insert(0, sys.argv[2])
import numpy as np, table
from tilewright.runtime import load_module
x = np.arange(8, dtype="float32")
executable = load_module(sys.argv[1]).executable
print(*executable(*[x, np.array(3, "int32")][: len(executable.inputs)]))
"""

LINE = "def @main(%x: Tensor[(8), float32]) { tanh(@f(exp(%x))) }\n"
LOOP = """def @main(%x: Tensor[(8), float32], %n: int32) {
  let %loop = fn (%i: int32, %s: Tensor[(8), float32]) -> Tensor[(8), float32] {
    if (less(%i, %n)) { %loop(add(%i, 1), tanh(@f(%s))) } else { %s }
  };
  %loop(0, %x)
}
"""
PART = 'def @f(%p: Tensor[(8), float32], Compiler="table", global_symbol="f") { negative(%p) }\n'
NUMBERS = np.arange(8, dtype=np.float32) * 3 + 1


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Path]:
    """A folder with the module's file, whose class is registered here, and a code generator."""
    before = dict(FUNCTIONS)
    (tmp_path / "table.py").write_text(TABLE)
    space: dict[str, Any] = {}
    exec(compile(TABLE.replace("@register_module\n", ""), "table.py", "exec"), space)
    register_module(space["Table"])
    register_func("relay.ext.table", lambda f: space["Table"](str(f.attrs["global_symbol"]), NUMBERS))
    yield tmp_path
    for name in [n for n in FUNCTIONS if n not in before]:
        remove_global_func(name)


def built(text: str) -> tvm.runtime.FactoryModule:
    return relay.build(relay.transform.InferType()(tvm.parser.parse('#[version = "0.0.5"]\n' + text + PART)), "llvm")


@pytest.mark.parametrize("text", [LINE, LOOP], ids=["line", "loop"])
def test_they_run_where_there_is_no_compiler(text: str, table: Path) -> None:
    lib = built(text)
    x = np.arange(8, dtype=np.float32)
    given = [x, np.array(3, np.int32)][: len(lib.executable.inputs)]
    lib.export_library(table / "m.so")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(table / "m.so"), str(table)], capture_output=True, text=True, check=False,
        env=dict(os.environ)
    )
    assert done.stderr == ""
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), lib.executable(*given), rtol=1e-6)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_every_changed_byte_of_a_module_is_refused(suffix: str, table: Path) -> None:
    path = built(LINE).export_library(table / f"m{suffix}")
    data = bytearray(path.read_bytes())
    blob = b"f\0" + NUMBERS.tobytes()
    begin = data.index(blob)
    bad = table / f"bad{suffix}"
    for k in range(begin, begin + len(blob)):
        data[k] ^= 1 << k % 8
        bad.write_bytes(data)
        with pytest.raises(
            ArtifactError, match=r"bad.* the file is damaged \(its contents do not match its checksum\)"
        ):
            load_module(bad)
        data[k] ^= 1 << k % 8
    bad.write_bytes(data)
    again, plain = load_module(bad), load_module(path)
    assert isinstance(again, FactoryModule) and isinstance(plain, FactoryModule)
    np.testing.assert_array_equal(again.executable(NUMBERS), plain.executable(NUMBERS))


def test_changed_bytes_of_a_library_are_refused(table: Path) -> None:
    path = built(LINE).export_library(table / "m.so")
    data = bytearray(path.read_bytes())
    bad = table / "bad.so"
    for k in (*range(4, len(data), 97), len(data) - 1):
        data[k] ^= 0x10
        bad.write_bytes(data)
        with pytest.raises(ArtifactError):
            load_module(bad)
        data[k] ^= 0x10


def test_sizes_that_are_open_are_refused_by_name(table: Path) -> None:
    n = relay.Any()
    p, x = relay.var("p", shape=(n,)), relay.var("x", shape=(n,))
    mod = tvm.IRModule({"f": relay.Function([p], relay.negative(p), attrs={"Compiler": "table", "global_symbol": "f"})})
    mod["main"] = relay.Function([x], relay.tanh(relay.Call(mod.get_global_var("f"), [x])))
    with pytest.raises(
        CompileError,
        match=r"the function @f is not supported together with sizes known only at run time; give "
        r"static sizes"
    ):
        relay.build(mod, "llvm").executable(NUMBERS)
