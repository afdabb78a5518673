"""What provokes each code of `catalogue/targets.md`, in an empty folder."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import tilewright as tvm
from small_models import mlp
from tilewright import te
from tilewright.backends.cpu.c.compile import Compiler, named_compiler
from tilewright.backends.cpu.link import link_shared, user_linker
from tilewright.backends.cpu.llvm.compile import _machine
from tilewright.compat.target import Target


def adding() -> tuple[te.Schedule, list[te.Tensor]]:
    """Eight sums."""
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    return te.create_schedule(b.op), [a, b]


def tw0501() -> None:
    Target("llvm mcpu=znver4")


def tw0502() -> None:
    _ = Target("cuda").backend


def tw0503() -> None:
    Target("llvm -mtriple=x86_64-linux-gnu -mcpu=zen99")


def tw0504() -> None:
    Target("llvm, c")


def tw0505() -> None:
    tvm.build(*adding(), target="llvm -mcpu=x86-64-v3", target_host="llvm -mcpu=x86-64-v2")


def tw0506() -> None:
    tvm.nd.array([1.0], tvm.cuda(0))


def tw0507() -> None:
    named_compiler("nocc")


def tw0508() -> None:
    Path("code.o").write_bytes(b"no object")
    link_shared([Path("code.o")], Path("code.so"), ["f"], "x86_64", user_linker("false"))


def tw0509() -> None:
    _machine("pdp11-none", "", "", "", 2)


def tw0510() -> None:
    s, args = adding()
    tvm.build(s, args, "c", name="not a name")


def tw0511() -> None:
    tvm.compile(mlp("n", (2, 2)), {"x": ("1..4", 2)}, target="c").save("model.c")


def tw0512() -> None:
    s, args = adding()
    s[args[1]].bind(s[args[1]].op.axis[0], te.thread_axis("threadIdx.x"))
    tvm.build(s, args, "llvm")


def tw0513() -> None:
    says_no = Compiler("cc", ("sh", "-c", "echo 'unrecognized option -fno-such-option' >&2; exit 1"))
    library = tvm.build(*adding(), target="c")
    with mock.patch("tilewright.backends.cpu.c.compile.find_compilers", return_value=[says_no]):
        library.export_library("f.so", options=["-fno-such-option"])


def tw0514() -> None:
    Target.current(allow_none=False)
