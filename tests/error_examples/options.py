"""What provokes each code of `catalogue/options.md`, in an empty folder."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.base.global_functions import FUNCTIONS, get_global_func, register_func
from tilewright.compat.onnx_session import SessionOptions
from tilewright.driver import config, main, options
from tilewright.driver.application import Invocation
from tilewright.runtime import threads
from tilewright.search.autotvm.task.relay_integration import extract_from_multiple_program


def tw0201() -> None:
    main.app(args=["compile", "--nonsense"], standalone_mode=False, obj=Invocation())


def tw0202() -> None:
    options.input_shapes("x=1,3,224,224")


def tw0203() -> None:
    options.numerics("caffe")


def tw0204() -> None:
    Path("model.onnx").write_bytes(mlp().SerializeToString())
    main.app(args=["offload", "model.onnx", "--target", "llvm"], standalone_mode=False, obj=Invocation())


def tw0205() -> None:
    Path("options.json").write_text("[1]", encoding="utf-8")
    config.option_values("options.json", set())


def tw0206() -> None:
    Path("model.onnx").write_bytes(mlp().SerializeToString())
    main.app(args=["compile", "model.onnx", "-o", "model.exe"], standalone_mode=False, obj=Invocation())


def tw0207() -> None:
    with tvm.transform.PassContext(config={"relay.check_rewrite": True}):
        raise AssertionError


def tw0208() -> None:
    with mock.patch.dict(os.environ, {threads.VARIABLE: "many"}):
        threads.default_threads()


def tw0209() -> None:
    tvm.compile(mlp(), opt_level=9)


def tw0210() -> None:
    relay.create_executor("grpah")


def tw0211() -> None:
    extract_from_multiple_program([tvm.IRModule()], [], "llvm")


def tw0212() -> None:
    with mock.patch.dict(FUNCTIONS):
        register_func("errors.example", len)
        register_func("errors.example", len)


def tw0213() -> None:
    get_global_func("zzz")


def tw0214() -> None:
    SessionOptions().register_custom_ops_library("ops.so")


def tw0215() -> None:
    relay.build("model.onnx", "llvm")  # type: ignore[arg-type]

