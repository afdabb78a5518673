"""Memory in C code: checks report as LLVM's code does, what kernels take is known, and what the C library refuses is
said."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from memory_faults import BUILDER, CONFIG, OVERLAPS, Planted, check_report, numbers
from test_memory_faults import two_takes
from test_scratch import pool
from tilewright import relay, te
from tilewright.backends.cpu.c.compile import compile_c, find_compilers, sanitizer_of
from tilewright.base.errors import ArtifactError, CompileError, MemoryFault, OptionError, RunError, TargetError
from tilewright.compat.target import Target
from tilewright.driver.debug import explained, places_in
from tilewright.runtime import load_module
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.host import host_arch
from tilewright.runtime.module import FactoryModule

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
    again = load_module(tmp_path / "takes.so")
    assert isinstance(again, FactoryModule)
    for run in (lib.executable, again.executable):
        np.testing.assert_array_equal(run(x, right, right)[0], x[right])
        with pytest.raises(MemoryFault, match=r"p0\[9, 0\] of float32 p0\[4, 8\](.|\n)*computes Gather 'two'"):
            run(x, right, wrong)


def gather(target: str = "c", /, **config: Any) -> FunctionModule:
    data, at = te.placeholder((16,), name="data"), te.placeholder((3,), "int32", name="at")
    out = te.compute((3,), lambda i: data[at[i]], name="out")
    with tvm.transform.PassContext(config=config):
        return tvm.build(te.create_schedule(out.op), [data, at, out], target, name="gather")


@pytest.mark.parametrize("suffix", [".c", ".so", ".tar"])
def test_files_of_checked_c_report_too(tmp_path: Path, suffix: str) -> None:
    gather(**CONFIG).export_library(tmp_path / f"gather{suffix}")
    again, out = load_module(tmp_path / f"gather{suffix}"), np.zeros(3, np.float32)
    assert isinstance(again, FunctionModule)
    again(numbers(), np.array([0, 5, 15], np.int32), out)
    np.testing.assert_array_equal(out, numbers()[[0, 5, 15]])
    with pytest.raises(MemoryFault, match=r"data\[16\] of float32 data\[16\]"):
        again(numbers(), np.array([0, 16, 15], np.int32), out)


def test_one_c_file_of_a_model_is_not_checked(tmp_path: Path) -> None:
    model = tvm.compile(pool("MaxPool", [1, 2, 4, 4], kernel_shape=[3, 3]), config=CONFIG)
    with pytest.raises(
        CompileError,
        match=r"'pools' cannot be one C file: its memory accesses are checked \(tir\.instrument_…\)"
    ):
        model.save(tmp_path / "pools.c")


def test_lines_of_other_texts_are_refused() -> None:
    with pytest.raises(
        OptionError,
        match=r"tir\.debug_info='tir' is for targets of LLVM; a debugger shows the C text itself where it is compiled "
        r"with -g"
    ):
        gather(**{"tir.debug_info": "tir"})
    with tvm.transform.PassContext(config={"tir.debug_info": "model"}), pytest.raises(
        OptionError, match=r"tir\.debug_info='model' is for targets of LLVM"
    ):
        relay.build(two_takes(), "c")
    assert "gather" in gather(**{"tir.debug_info": "off"}).get_source()


def test_c_text_is_compiled_as_asked(tmp_path: Path) -> None:
    module, out = gather(), np.zeros(3, np.float32)
    path = module.export_library(
        tmp_path / "gather.so", cc=shlex.join(find_compilers(host_arch())[0].command), options=["-O0", "-g3"]
    )
    again = load_module(path)
    assert isinstance(again, FunctionModule)
    again(numbers(), np.array([0, 5, 15], np.int32), out)
    np.testing.assert_array_equal(out, numbers()[[0, 5, 15]])
    assert b".debug_line" in path.read_bytes()
    with pytest.raises(TargetError, match="the C compiler 'no-such-cc' is not installed; name an installed one"):
        module.export_library(tmp_path / "other.so", cc="no-such-cc")
    with pytest.raises(CompileError, match="C text of 'gather' with the options --no-such-option: "):
        module.export_library(tmp_path / "other.so", options=["--no-such-option"])
    with pytest.raises(
        OptionError,
        match=r"cc=, options= and sanitize= compile the C text of a module built for 'c' into a \.so or \.tar; this "
        r"module is for 'llvm'"
    ):
        gather("llvm").export_library(tmp_path / "other.so", cc="gcc")


def staged(size: Any, target: str = "c", **config: Any) -> FunctionModule:
    """`x + 2`, in two stages, the second of which is parallel."""
    x = te.placeholder((size,), name="x")
    first = te.compute((size,), lambda i: x[i] + 1.0, name="first")
    y = te.compute((4, size), lambda k, i: first[i] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].parallel(s[y].op.axis[0])
    s[first].compute_at(s[y], s[y].op.axis[0])
    with tvm.transform.PassContext(config=config):
        return tvm.build(s, [x, y], target, name="staged")


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
    with pytest.raises(RunError, match="too little memory for the scratch buffers of 'staged': staged needs the most"):
        without(x, y)
    assert not y.any()


@pytest.mark.slow
def test_a_sanitizer_reports_a_line_of_c(tmp_path: Path) -> None:
    compiler = find_compilers(host_arch())[0]
    try:
        sanitizer_of(compiler)
    except TargetError as error:
        pytest.skip(str(error))
    with pytest.raises(
        OptionError,
        match=r"sanitize='memory' is not known; sanitize='address', 'undefined' or 'address,undefined' makes a \.so"
    ):
        gather().export_library(tmp_path / "gather.so", sanitize="memory")
    path = gather().export_library(tmp_path / "gather.so", sanitize="address")
    with pytest.raises(ArtifactError, match=r"made for AddressSanitizer, .*: tilewright debug asan SCRIPT"):
        load_module(path)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, numpy as np, tilewright as tvm\n"
        "data, out = tvm.nd.array(np.arange(16, dtype='float32')), tvm.nd.array(np.zeros(3, 'float32'))\n"
        f"tvm.runtime.load_module({str(path)!r})(data, tvm.nd.array(np.array([0, 5, int(sys.argv[1])], 'int32')), "
        "out)\n"
        "print(out.numpy()[2])\n"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-m", "tilewright", "debug", "asan", str(script), at], capture_output=True, text=True,
            timeout=120, check=False
        ) for at in ("15", "16")
    ]
    assert (ran[0].returncode, ran[0].stdout) == (0, "15.0\n"), ran[0].stderr
    assert ran[1].returncode == 1 and not ran[1].stdout
    assert "AddressSanitizer: heap-buffer-overflow" in ran[1].stderr and re.search(
        r"in gather \S*gather\.c:\d+", ran[1].stderr
    ), ran[1].stderr
    said = re.search(
        r"^gather\.c:\d+:\n    out\[i\] = (.*)\nin the loops\n    for \(int64_t i = 0; i < 3; \+\+i\)\nof\n    void "
        r"gather\(", ran[1].stderr, re.MULTILINE
    )
    assert said is not None and "at[i]" in said[1], ran[1].stderr


def test_undefined_behaviour_is_reported_too(tmp_path: Path) -> None:
    x, at = te.placeholder((3,), "int32", name="x"), te.placeholder((2,), "int64", name="at")
    y = te.compute((2,), lambda i: x[at[i]], name="y")
    try:
        path = tvm.build(
            te.create_schedule(y.op), [x, at, y], "c", name="chosen"
        ).export_library(tmp_path / "chosen.so", sanitize="undefined")
    except TargetError as error:
        pytest.skip(str(error))
    script = "import sys, numpy as np, tilewright as tvm\ny = np.zeros(2, 'int32')\n"
    script += f"tvm.runtime.load_module({str(path)!r})(np.array([7, 8, 9], 'int32'), np.array([2, int(sys.argv[1])]), y)\nprint(y)\n"  # noqa: E501
    ran = [
        subprocess.run([sys.executable, "-c", script, at], capture_output=True, text=True, timeout=120, check=False)
        for at in ("1", str(1 << 61))
    ]
    assert (ran[0].returncode, ran[0].stdout) == (0, "[9 8]\n"), ran[0].stderr
    assert ran[1].returncode != 0 and re.search(r"chosen\.c:\d+:\d+: runtime error: ", ran[1].stderr), ran[1].stderr


@pytest.mark.parametrize("names", ["address,undefined", "undefined,address"])
def test_two_sanitizers(names: str, tmp_path: Path) -> None:
    try:
        path = gather().export_library(tmp_path / "gather.so", sanitize=names)
    except TargetError as error:
        pytest.skip(str(error))
    with pytest.raises(ArtifactError, match="made for AddressSanitizer"):
        load_module(path)
    for wrong in ("address,address", "undefined,"):
        with pytest.raises(OptionError, match=f"sanitize='{wrong}' is not known"):
            gather().export_library(tmp_path / "gather.so", sanitize=wrong)


def test_a_line_of_c_is_explained(tmp_path: Path) -> None:
    folder = tmp_path / "sources" / "0123"
    folder.mkdir(parents=True)
    file = folder / "net.c"
    file.write_text(
        "/* kernel_0_relu\n * nn.relu of node 'act' */\nvoid kernel_0_relu(float *y);\nvoid kernel_0_relu(float *y) "
        "{\n  for (int i = 0; i < 4; ++i) {\n    int k = 2;\n"
        "    for (int j = 0; j < 3; ++j) {\n      y[i * 3 + j] = 0.0f;\n    }\n  }\n}\n"
    )
    report = (
        f"    #0 0x7f1a in kernel_0_relu {file}:8\n    #1 0x99 in main /usr/lib/other.c:3\n{file}:8:12: runtime error: "
        "load of null pointer\n"
    )
    assert list(places_in(report)) == [(file, 8), (file, 8)]
    assert explained(file, 8).splitlines() == [
        "net.c:8:", "    y[i * 3 + j] = 0.0f;", "in the loops", "    for (int i = 0; i < 4; ++i)",
        "    for (int j = 0; j < 3; ++j)", "of", "    void kernel_0_relu(float *y)",
        "    kernel_0_relu", "    nn.relu of node 'act'",
    ]
    assert explained(file, 99) == f"{file}:99: the source file no longer exists; export the library again"
    assert "no longer exists" in explained(folder / "none.c", 1)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("size", [200_000, te.var("n")], ids=str)
def test_checks_lines_and_memory_of_the_c_library_go_together(target: str, size: Any) -> None:
    lines = {"tir.debug_info": "tir"} if target == "llvm" else {}
    module, x, y = staged(
        size, target, **CONFIG, **lines
    ), np.zeros(200_000, np.float32), np.zeros((4, 200_000), np.float32)
    manifest = module.artifact.manifest
    assert manifest.sites and manifest.scratch.heap and manifest.debug == lines.get("tir.debug_info", "")
    module(x, y)
    assert (y == 2).all()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_checked_programs_of_open_sizes_are_one(target: str) -> None:
    model = tvm.compile(
        pool("AveragePool", ["n", 4, 8, 16], kernel_shape=[3, 3]), {"x": ("1..64", 4, 8, 16)}, target=target,
        config=CONFIG
    )
    for batch in (3, 5):
        assert (model(np.ones((batch, 4, 8, 16), np.float32)) == 1).all()
    manifest = model._only.manifest if model._only is not None else None
    assert manifest is not None and manifest.symbols and manifest.sites and manifest.scratch.stack
