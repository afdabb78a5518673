"""Memory in C code: checks report as LLVM's code does, what kernels take is known, and what the C library refuses is said."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from memory_faults import BUILDER, CONFIG, OVERLAPS, Planted, check_report, numbers
from test_memory_faults import two_takes
from tilewright import relay, te
from tilewright.errors import CompileError, MemoryFault, OptionError, RunError, TargetError
from tilewright.runtime import load_module
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.host import host_arch
from tilewright.target import Target
from tilewright.target.c.compile import compile_c, find_compilers

pytestmark = pytest.mark.skipif(not find_compilers(host_arch()), reason="there is no C compiler")
C = Target("c")


@pytest.mark.parametrize("planted", [*BUILDER, *OVERLAPS], ids=lambda p: p.id)
def test_a_planted_fault_is_reported_from_c(planted: Planted) -> None:
    with C:
        check_report(planted)


def test_a_checked_model_names_its_node(tmp_path: Path) -> None:
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        lib = relay.build(two_takes(), "c")
    lib.export_library(tmp_path / "takes.so")
    x, right, wrong = numbers(32).reshape(4, 8), np.array([0, 1, 2], np.int32), np.array([0, 9, 2], np.int32)
    for run in (lib.executable, load_module(tmp_path / "takes.so").executable):
        np.testing.assert_array_equal(run(x, right, right)[0], x[right])
        with pytest.raises(MemoryFault, match=r"p0\[9, 0\] of float32 p0\[4, 8\](.|\n)*computes Gather 'two'"):
            run(x, right, wrong)


def gather(**config: Any) -> FunctionModule:
    data, at = te.placeholder((16,), name="data"), te.placeholder((3,), "int32", name="at")
    out = te.compute((3,), lambda i: data[at[i]], name="out")
    with tvm.transform.PassContext(config=config):
        return tvm.build(te.create_schedule(out.op), [data, at, out], "c", name="gather")


@pytest.mark.parametrize("suffix", [".c", ".so", ".tar"])
def test_files_of_checked_c_report_too(tmp_path: Path, suffix: str) -> None:
    gather(**CONFIG).export_library(tmp_path / f"gather{suffix}")
    again, out = load_module(tmp_path / f"gather{suffix}"), np.zeros(3, np.float32)
    again(numbers(), np.array([0, 5, 15], np.int32), out)
    np.testing.assert_array_equal(out, numbers()[[0, 5, 15]])
    with pytest.raises(MemoryFault, match=r"data\[16\] of float32 data\[16\]"):
        again(numbers(), np.array([0, 16, 15], np.int32), out)


def test_one_c_file_of_a_model_is_not_checked(tmp_path: Path) -> None:
    text = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(4), float32]) { nn.relu(%x) }\n"
    (tmp_path / "relu.relay").write_text(text)
    model = tvm.compile(tmp_path / "relu.relay", config=CONFIG)
    with pytest.raises(CompileError, match=r"'relu' cannot be one C file: its accesses to memory are to be checked \(tir\.instrument_…\)"):
        model.save(tmp_path / "relu.c")


def test_lines_of_other_texts_are_refused() -> None:
    with pytest.raises(OptionError, match=r"tir\.debug_info='tir' is for targets of LLVM; a debugger shows the C text itself where it is compiled with -g"):
        gather(**{"tir.debug_info": "tir"})
    with tvm.transform.PassContext(config={"tir.debug_info": "model"}), pytest.raises(OptionError, match=r"tir\.debug_info='model' is for targets of LLVM"):
        relay.build(two_takes(), "c")
    assert "gather" in gather(**{"tir.debug_info": "off"}).get_source()


def test_c_text_is_compiled_as_asked(tmp_path: Path) -> None:
    module, out = gather(), np.zeros(3, np.float32)
    path = module.export_library(tmp_path / "gather.so", cc=find_compilers(host_arch())[0].name, options=["-O0", "-g3"])
    load_module(path)(numbers(), np.array([0, 5, 15], np.int32), out)
    np.testing.assert_array_equal(out, numbers()[[0, 5, 15]])
    assert b".debug_line" in subprocess.run(["readelf", "-SW", str(path)], capture_output=True, check=True, timeout=60).stdout
    with pytest.raises(TargetError, match="there is no C compiler 'no-such-cc' here; name one that is installed"):
        module.export_library(tmp_path / "other.so", cc="no-such-cc")
    with pytest.raises(CompileError, match="C text of 'gather' with the options --no-such-option: "):
        module.export_library(tmp_path / "other.so", options=["--no-such-option"])
    with pytest.raises(OptionError, match=r"cc= and options= compile the C text of a module built for 'c' into a \.so or \.tar; this module is for 'llvm'"):
        tvm.build(te.create_schedule(te.compute((3,), lambda i: i, name="i").op), [], "llvm").export_library(tmp_path / "other.so", cc="gcc")


def staged(size: Any) -> FunctionModule:
    """`x + 2`, in two stages, the second of which is parallel."""
    x = te.placeholder((size,), name="x")
    first = te.compute((size,), lambda i: x[i] + 1.0, name="first")
    y = te.compute((4, size), lambda k, i: first[i] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].parallel(s[y].op.axis[0])
    s[first].compute_at(s[y], s[y].op.axis[0])
    return tvm.build(s, [x, y], "c", name="staged")


@pytest.mark.parametrize("size", [100, 200_000, te.var("n")], ids=str)
def test_what_the_c_library_refuses_is_said(size: Any) -> None:
    """The code is compiled with a C library that has nothing."""
    module, n = staged(size), 100 if size == 100 else 200_000
    takes, text = module.artifact.manifest.scratch, module.get_source()
    assert (takes.stack, takes.heap) == ((400, 0) if size == 100 else (0, 800_000) if size == 200_000 else (0, 1))
    x, y = np.zeros(n, np.float32), np.zeros((4, n), np.float32)
    module(x, y)
    assert (y == 2).all()
    y[:] = 0
    code = compile_c(text.replace("#include <stdlib.h>", "#include <stdlib.h>\n#define malloc(size) NULL"), C)
    without = FunctionModule(replace(module.artifact, objects=(code, *module.artifact.objects[1:])))
    if size == 100:
        without(x, y)
        assert "malloc" not in text and (y == 2).all()
        return
    with pytest.raises(RunError, match="too little memory for what stands between the stages of 'staged': staged takes most"):
        without(x, y)
    assert not y.any()
