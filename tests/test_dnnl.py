"""oneDNN as a back end: each row of its pattern table gives the numbers of our own kernels, in sub-graphs, in files and
on threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import random_graphs
import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators import dnnl
from tilewright.backends.accelerators.dnnl.library import Library, find, library
from tilewright.backends.accelerators.dnnl.program import Program
from tilewright.backends.accelerators.dnnl.runtime import DNNLModule
from tilewright.base.errors import ArtifactError, CompileError, TargetError
from tilewright.relay.op.contrib import Refusal
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def _why_not() -> str:
    try:
        library()
    except TargetError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
needs_library = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def const(*shape: int) -> relay.Constant:
    return relay.const(RNG.standard_normal(shape, np.float32))


def var(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape)


def conv(x: relay.Expr, out: int = 8, kernel: tuple[int, ...] = (3, 3), **attrs: Any) -> relay.Expr:
    channels = x.tensor_type.shape[attrs.get("data_layout", "NCHW").index("C")]
    w = const(out, channels // attrs.get("groups", 1), *kernel)
    if attrs.get("kernel_layout", "") == "HWIO":
        w = relay.const(np.ascontiguousarray(w.value.transpose(2, 3, 1, 0)))
    return relay.nn.conv2d(x, w, kernel_size=kernel, **{"padding": (1, 1), **attrs})


def gelu(x: relay.Expr) -> relay.Expr:
    return relay.multiply(
        relay.multiply(x, relay.const(0.5)),
        relay.add(relay.erf(relay.multiply(x, relay.const(2**-0.5))), relay.const(1.0))
    )


def hard_swish(x: relay.Expr) -> relay.Expr:
    return relay.multiply(x, relay.clip(relay.add(relay.multiply(x, relay.const(1 / 6)), relay.const(0.5)), 0.0, 1.0))


def swish(x: relay.Expr) -> relay.Expr:
    return relay.multiply(x, relay.sigmoid(x))


def gated(x: relay.Expr) -> relay.Expr:
    return relay.multiply(x, relay.sigmoid(conv(relay.nn.global_avg_pool2d(x), 8, (1, 1), padding=(0, 0))))


def both(x: relay.Expr) -> relay.Expr:
    return relay.Tuple([relay.nn.relu(x), relay.nn.global_max_pool2d(x)])


def residual(x: relay.Expr) -> relay.Expr:
    """Two convolutions whose results are added: one of them is in the way of no other use."""
    first = relay.nn.relu(relay.nn.bias_add(conv(x), const(8)))
    return relay.nn.relu(relay.add(relay.nn.bias_add(conv(first), const(8)), first))


def kept_residual(x: relay.Expr) -> relay.Expr:
    """The residual is used again, so that nothing may be summed into it."""
    first = relay.nn.relu(conv(x))
    return relay.add(conv(relay.add(conv(first), first)), first)


def own_residual(x: relay.Expr) -> relay.Expr:
    """The residual is what the convolution reads, too."""
    first = relay.nn.relu(conv(x))
    return relay.add(conv(first), first)


def right_residual(x: relay.Expr) -> relay.Expr:
    """The left term of the sum is used elsewhere: the right one takes it as its residual."""
    first = relay.nn.bias_add(conv(x), const(8))
    return relay.add(first, relay.nn.bias_add(conv(first), const(8)))


IMAGE = (2, 8, 9, 7)
CASES: dict[str, tuple[tuple[int, ...], Callable[[relay.Expr], relay.Expr], set[str]]] = {
    "convolution": (IMAGE, conv, {"conv"}),
    "bias": (IMAGE, lambda x: relay.nn.bias_add(conv(x), const(8)), {"conv"}),
    "bias as a sum": (IMAGE, lambda x: relay.add(conv(x), const(8, 1, 1)), {"conv"}),
    "bias and relu": (IMAGE, lambda x: relay.nn.relu(relay.nn.bias_add(conv(x), const(8)))  , {"conv"}),
    "a single number for all channels": (IMAGE, lambda x: relay.add(conv(x), relay.const(0.5)), {"conv"}),
    "clip": (IMAGE, lambda x: relay.clip(conv(x), 0.0, 6.0), {"conv"}),
    "leaky relu": (IMAGE, lambda x: relay.nn.leaky_relu(conv(x), 0.1), {"conv"}),
    "strides, dilation, uneven padding": (
        IMAGE, lambda x: conv(x, strides=(2, 1), dilation=(1, 2), padding=(0, 1, 2, 3)), {"conv"}
    ),
    "groups": (IMAGE, lambda x: conv(x, 12, groups=4), {"conv"}),
    "depthwise": ((1, 16, 8, 8), lambda x: relay.nn.bias_add(conv(x, 16, groups=16), const(16)), {"conv"}),
    "channels last": (
        (2, 9, 7, 8),
        lambda x: relay.nn.relu(relay.nn.bias_add(conv(x, data_layout="NHWC", kernel_layout="HWIO"), const(8), axis=3)),
        {"conv"}
    ),
    "1d": ((2, 8, 9), lambda x: relay.nn.conv1d(x, const(4, 8, 3), kernel_size=(3,), padding=(1,)), {"conv"}),
    "3d": (
        (1, 4, 5, 6, 7), lambda x: relay.nn.conv3d(x, const(4, 4, 3, 3, 3), kernel_size=(3, 3, 3), padding=(1, 1, 1)),
        {"conv"}
    ),
    "transposed": (
        IMAGE,
        lambda x: relay.nn.bias_add(
            relay.nn.conv2d_transpose(x, const(8, 5, 3, 3), kernel_size=(3, 3), strides=(2, 2)), const(5)
        ), {"conv_transpose"}
    ),
    "transposed, groups": (
        IMAGE, lambda x: relay.nn.conv2d_transpose(x, const(8, 2, 3, 3), kernel_size=(3, 3), groups=4),
        {"conv_transpose"}
    ),
    "residual": (IMAGE, residual, {"conv"}),
    "a residual that is used again": (IMAGE, kept_residual, {"conv"}),
    "a residual that is read by its convolution": (IMAGE, own_residual, {"conv"}),
    "a residual that is an input": ((1, 8, 6, 6), lambda x: relay.add(conv(x), x), {"conv"}),
    "a sum that is broadcast": (
        IMAGE, lambda x: relay.add(conv(x), relay.nn.relu(conv(x, 8, (9, 7), padding=(0, 0)))), {"conv"}
    ),
    "a residual from the left": (IMAGE, right_residual, {"conv"}),
    "a bias of its own": (
        IMAGE, lambda x: conv(relay.nn.bias_add(relay.tanh(x), const(8))), {"conv", "eltwise", "bias"}
    ),
    "gelu": (IMAGE, lambda x: gelu(relay.nn.bias_add(conv(x), const(8))), {"conv_gelu"}),
    "swish": (IMAGE, lambda x: swish(relay.nn.bias_add(conv(x), const(8))), {"conv_swish"}),
    "hard swish": (IMAGE, lambda x: hard_swish(conv(x)), {"conv_hard_swish"}),
    "pools": (
        IMAGE,
        lambda x: relay.nn.avg_pool2d(
            relay.nn.max_pool2d(conv(x), (3, 3), (2, 2), padding=(1, 1)), (2, 2), padding=(1, 1), count_include_pad=True
        ), {"conv", "pool"}
    ),
    "pools that round up": (
        IMAGE,
        lambda x: relay.nn.avg_pool2d(
            relay.nn.max_pool2d(conv(x), (3, 3), (2, 2), ceil_mode=True), (2, 2), (2, 2), ceil_mode=True
        ), {"conv", "pool"}
    ),
    "head": (
        IMAGE,
        lambda x: relay.nn.softmax(
            relay.nn.bias_add(
                relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(conv(x))), const(6, 8)), const(6)
            )
        ), {"conv", "pool", "view", "dense", "softmax"}
    ),
    "squeeze and excite": (IMAGE, lambda x: gated(conv(x)), {"conv", "pool", "binary"}),
    "concatenation": (IMAGE, lambda x: relay.concatenate([conv(x), conv(x, 4), x], axis=1), {"conv", "concatenate"}),
    "rows of three dimensions": (
        (2, 5, 8), lambda x: gelu(relay.nn.bias_add(relay.nn.dense(x, const(6, 8)), const(6), axis=-1)), {"dense_gelu"}
    ),
    "a residual of three dimensions": (
        (2, 5, 8), lambda x: relay.nn.layer_norm(relay.add(relay.nn.dense(x, const(8, 8)), x), const(8), const(8)),
        {"dense", "layer_norm"}
    ),
    "products": (
        (3, 4, 5), lambda x: relay.nn.batch_matmul(relay.nn.batch_matmul(x, x), relay.transpose(x, (0, 2, 1))),
        {"batch_matmul", "view"}
    ),
    "products the other way": (
        (3, 4, 5), lambda x: relay.nn.batch_matmul(x, x, transpose_a=True, transpose_b=False), {"batch_matmul"}
    ),
    "functions of one element": (
        IMAGE, lambda x: conv(relay.tanh(relay.exp(relay.sqrt(relay.abs(gelu(x)))))), {"conv", "eltwise", "gelu"}
    ),
    "arithmetic": (
        IMAGE,
        lambda x: conv(relay.divide(relay.subtract(relay.maximum(x, const(8, 1, 1)), const(7)), relay.const(2.0))),
        {"conv", "binary"}
    ),
    "a transposed image": (IMAGE, lambda x: conv(relay.transpose(conv(x), (0, 1, 3, 2))), {"conv", "view"}),
    "two results": (IMAGE, lambda x: both(conv(x)), {"conv", "eltwise", "pool"}),
}


def rows(mod: tvm.IRModule) -> set[str]:
    """The rows of the pattern table in the functions for oneDNN."""
    found = set()
    for _, f in mod.items():
        if f.attrs.get("Compiler") == "dnnl":
            calls = [e.op for e in relay.visitor.post_order(f.body, inside=False) if isinstance(e, relay.Call)]
            found |= {str(c.attrs["Composite"]).removeprefix("dnnl.") for c in calls}
    return found


def module(case: str) -> tvm.IRModule:
    shape, build, _ = CASES[case]
    x = var(*shape)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))


def values(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(values(found), values(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5 * float(np.abs(b).max()))


@pytest.mark.parametrize("case", CASES)
def test_rows_take_what_they_say(case: str) -> None:
    mod = dnnl.partition_for_dnnl(module(case))
    assert rows(mod) == CASES[case][2]
    assert sum("Compiler" in f.attrs for _, f in mod.items()) == 1


@needs_library
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_our_own_kernels(case: str) -> None:
    mod = module(case)
    x = RNG.standard_normal(CASES[case][0], np.float32)
    lib = relay.build(dnnl.partition_for_dnnl(mod), "llvm")
    wanted = relay.build(mod, "llvm").executable(x)
    for threads in (1, 2):
        lib.executable.threads = threads
        close(lib.executable(x), wanted)
        close(lib.executable(x), wanted)


def test_of_a_sum_of_two_convolutions_one_takes_the_other() -> None:
    mod = dnnl.partition_for_dnnl(module("residual"))
    (function,) = (f for _, f in mod.items() if "Compiler" in f.attrs)
    calls = [e for e in relay.visitor.post_order(function.body, inside=False) if isinstance(e, relay.Call)]
    assert [str(c.op.attrs["PartitionedFromPattern"]) for c in calls] == [
        "nn.conv2d_nn.bias_add_nn.relu_", "nn.conv2d_nn.bias_add_add_nn.relu_"
    ]


def test_what_is_not_worth_it_stays() -> None:
    mod = relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function([x := var(2, 3)], relay.exp(relay.nn.relu(x))))
    )
    assert [n for n, _ in dnnl.partition_for_dnnl(mod).items()] == ["main"]
    kept = dnnl.partition_for_dnnl(mod, prune=False)
    assert rows(kept) == {"eltwise"}
    np.testing.assert_allclose(
        relay.build(dnnl.partition_for_dnnl(mod), "llvm").executable(np.ones((2, 3), np.float32)), math.e, rtol=1e-6
    )


def refused(build: Callable[[relay.Expr], relay.Expr], *shape: int, dtype: str = "float32") -> list[Refusal]:
    """What the checks of the rows that look like a graph say against it."""
    x = relay.var("x", shape=shape, dtype=dtype)
    root = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))["main"].body
    said = [check(root) for _, pattern, check in dnnl.pattern_table() if pattern.match(root)]
    return [r for r in said if isinstance(r, Refusal)]


@pytest.mark.parametrize(("rule", "build", "shape", "dtype"), [
    ("a tensor is float16; it must be float32", relay.nn.relu, (2, 3), "float16"),
    ("all sizes must be known at compile time", relay.nn.relu, (relay.Any(), 3), "float32"),
    ("a tensor must have at least one element, and at most 6 dimensions", relay.nn.relu, (0, 3), "float32"),
    ("the data layout must have only", lambda x: relay.nn.max_pool2d(x, layout="NCHW8c"), (1, 2, 4, 4, 8), "float32"),
    (
        "average pooling with count_include_pad does not support ceil_mode",
        lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1), ceil_mode=True, count_include_pad=True),
        (1, 2, 6, 6), "float32"
    ),
    (
        "one operand must have the shape of the result",
        lambda x: relay.subtract(relay.const(np.ones(3, np.float32)), x),
        (2, 3), "float32"
    ),
    (
        "only the last axis can be normalized", lambda x: relay.nn.layer_norm(x, const(2), const(2), axis=1),
        (3, 2, 4), "float32"
    ),
    (
        "a layer norm must have scale and shift", lambda x: relay.nn.layer_norm(x, const(4), const(4), scale=False),
        (3, 2, 4), "float32"
    ),
    (
        "the constants of hard_swish",
        lambda x: relay.multiply(
            x, relay.clip(relay.add(relay.multiply(x, relay.const(0.2)), relay.const(0.5)), 0.0, 1.0)
        ), (2, 3), "float32"
    ),
])
def test_checks_say_why_not(
    rule: str, build: Callable[[relay.Expr], relay.Expr], shape: tuple[Any, ...], dtype: str
) -> None:
    said = refused(build, *shape, dtype=dtype)
    assert any(r.rule.startswith(rule) and r.edit for r in said), said


def test_a_function_that_nobody_partitioned_is_refused() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule({"f": relay.Function([x], relay.nn.relu(x), attrs={"Compiler": "dnnl", "global_symbol": "f"})})
    y = relay.var("y", shape=(2, 3))
    mod["main"] = relay.Function([y], relay.Call(mod.get_global_var("f"), [y]))
    with pytest.raises(
        CompileError, match="an operator that is not in its pattern table; partition the module with partition_for_dnnl"
    ):
        relay.build(mod, "llvm")


@needs_library
@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_the_module_travels_with_the_program(suffix: str, tmp_path: Path) -> None:
    lib = relay.build(dnnl.partition_for_dnnl(module("head")), "llvm")
    x = RNG.standard_normal(IMAGE, np.float32)
    wanted = lib.executable(x)
    lib.export_library(tmp_path / f"m{suffix}")
    again = tvm.runtime.load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    assert [m.type_key for m in again.imported_modules] == ["dnnl"]
    np.testing.assert_array_equal(again.executable(x), wanted)


ALONE = """
import sys
ROOMS = [["relay"], ["compiler"], ["te"], ["tir"], ["topi"], ["target"], ["ir"], ["arith"]]
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("llvmlite", "onnx") or name.split(".")[1:2] in ROOMS:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import numpy as np
import tilewright.contrib.dnnl
from tilewright.runtime import load_module
x = np.load(sys.argv[2])
np.save(sys.argv[3], load_module(sys.argv[1]).executable(x))
"""


@needs_library
def test_it_runs_where_there_is_no_compiler(tmp_path: Path) -> None:
    lib = relay.build(dnnl.partition_for_dnnl(module("residual")), "llvm")
    x = RNG.standard_normal(IMAGE, np.float32)
    lib.export_library(tmp_path / "m.so")
    np.save(tmp_path / "x.npy", x)
    subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, (tmp_path / "m.so", tmp_path / "x.npy", tmp_path / "y.npy"))],
        check=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), lib.executable(x))


@needs_library
def test_calls_from_several_threads_do_not_meet() -> None:
    executable = relay.build(dnnl.partition_for_dnnl(module("residual")), "llvm").executable
    executable.threads = 1
    inputs = [RNG.standard_normal(IMAGE, np.float32) for _ in range(4)]
    wanted = [executable(x).copy() for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not np.array_equal(executable(inputs[k]), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@needs_library
def test_it_works_on_the_memory_of_its_caller() -> None:
    """Inputs and outputs that are rows are no copies: the first and the last primitive have the arrays themselves."""
    lib = relay.build(dnnl.partition_for_dnnl(module("head")), "llvm")
    (module_,) = lib.imported_modules
    assert isinstance(module_, DNNLModule)
    lib.executable(RNG.standard_normal(IMAGE, np.float32))
    ((plan, _),) = module_._plans.values()
    assert any(r.buffer.kind == "output" for r in plan.steps[-1].reads)
    assert any(r.buffer.kind == "input" for r in plan.steps[0].reads)
    reorders = len(plan.steps) - len(
        [o for o in module_.program.operations if o.kind != "reshape"]
    )
    assert reorders <= 2


def test_programs_are_checked_when_they_are_read() -> None:
    from tilewright.backends.accelerators.dnnl.codegen import generate

    mod = dnnl.partition_for_dnnl(module("head"))
    (function,) = (f for _, f in mod.items() if "Compiler" in f.attrs)
    blob = generate(function).save_to_binary()
    again = Program.from_bytes(blob)
    assert again.to_bytes() == blob
    with pytest.raises(ArtifactError, match="these bytes are not a program for oneDNN"):
        Program.from_bytes(blob[1:])
    with pytest.raises(ArtifactError, match="is truncated"):
        Program.from_bytes(blob[:-4])
    for old, new in (
        (b'"convolution"', b'"convolutiom"'), (b'"results":[', b'"results":[9'), (b"[[[2,8,9,7]", b"[[[2,8,-,7]")
    ):
        with pytest.raises(ArtifactError, match="a program for oneDNN is damaged"):
            Program.from_bytes(blob.replace(old, new))


def test_a_library_that_is_missing_or_another_one_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_DNNL", str(tmp_path / "none.so"))
    with pytest.raises(
        TargetError,
        match=r"TILEWRIGHT_DNNL is '.*none.so', which does not exist; install it \(pip install onednn-cpu-gomp"
    ):
        find()
    (tmp_path / "libdnnl.so.3").write_text("no library")
    with pytest.raises(
        TargetError, match=r"oneDNN cannot be loaded \(.*libdnnl.so.3.*\); install it \(pip install onednn-cpu-gomp"
    ):
        Library(str(tmp_path / "libdnnl.so.3"))
    other = next(
        (m.split()[-1] for m in Path("/proc/self/maps").read_text().splitlines() if "libm.so" in m), None
    ) if sys.platform == "linux" else None
    if other:
        with pytest.raises(TargetError, match="is not oneDNN: it has no dnnl_version"):
            Library(other)


def test_a_program_says_what_to_install_when_it_is_called(tmp_path: Path) -> None:
    relay.build(dnnl.partition_for_dnnl(module("bias")), "llvm").export_library(tmp_path / "m.so")
    code = (
        "import numpy as np, tilewright.backends.accelerators.dnnl\nfrom tilewright.runtime import load_module\n"
        f"try:\n    load_module({str(tmp_path / 'm.so')!r}).executable(np.zeros({IMAGE}, np.float32))\nexcept "
        "tilewright.base.errors.TargetError as e:\n    print(e)"
    )
    environment = {**os.environ, "TILEWRIGHT_DNNL": str(tmp_path / "libdnnl.so.3")}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert "does not exist; install it (pip install onednn-cpu-gomp, or a package with libdnnl.so.3)" in said


@needs_library
def test_it_stands_in_targets_and_under_the_names_of_the_field() -> None:
    from tilewright.relay.op.contrib import partition_for
    from tilewright.relay.op.contrib.dnnl import partition_for_dnnl

    mod, x = module("residual"), RNG.standard_normal(IMAGE, np.float32)
    wanted = relay.build(mod, "llvm").executable(x)
    for lib in (
        relay.build(mod, "dnnl, llvm"), relay.build(partition_for_dnnl(mod), "llvm"),
        relay.build(partition_for("dnnl", mod), "llvm")
    ):
        assert [m.type_key for m in lib.imported_modules] == ["dnnl"]
        close(lib.executable(x), wanted)


@pytest.mark.slow
@needs_library
def test_a_script_needs_one_import_of_the_field(tmp_path: Path) -> None:
    relay.build(dnnl.partition_for_dnnl(module("bias")), "llvm").export_library(tmp_path / "m.so")
    code = (
        "import sys, numpy as np, tilewright as tvm\nfrom tilewright import relay\nfrom "
        "tilewright.relay.op.contrib.dnnl import partition_for_dnnl\n"
        "x = relay.var('x', shape=(2, 3))\nw = relay.const(np.ones((4, 3), np.float32))\n"
        "mod = partition_for_dnnl(tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w))))\n"
        "print(relay.build(mod, 'llvm').executable(np.ones((2, 3), np.float32)).sum())\n"
        f"print(tvm.load({str(tmp_path / 'm.so')!r})(np.zeros({IMAGE}, np.float32)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["24.0", "(2, 8, 9, 7)"]


@needs_library
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_mean_the_same(seed: int) -> None:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(random_graphs.Graph(seed).function(12)))
    given = random_graphs.inputs(seed)
    with np.errstate(all="ignore"):
        wanted = relay.create_executor("debug", mod).evaluate()(*given)
        found = relay.build(dnnl.partition_for_dnnl(mod, prune=False), "llvm").executable(*given)
    for a, b in zip(values(found), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        finite = np.asarray(b)[np.isfinite(b)]
        np.testing.assert_allclose(
            a, np.asarray(b), rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(finite).max(initial=0)))
        )
