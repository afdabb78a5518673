"""What provokes each code of `catalogue/shapes.md`, in an empty folder."""

from __future__ import annotations

from typing import Any
from unittest import mock

import tilewright as tvm
from small_models import mlp
from tilewright import relay, te
from tilewright.backends.targets.target import Target
from tilewright.base.types import DataType
from tilewright.compiler.cache import Cache
from tilewright.compiler.open_program import build_open
from tilewright.compiler.report import BuildReport
from tilewright.relay.op.registry import OPS
from tilewright.scalar import expr


def tw0301() -> None:
    relay.nn.dense(relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 5)))


def tw0302() -> None:
    DataType("float24")


def tw0303() -> None:
    relay.TensorType((te.var("n"), 3)).size  # noqa: B018


def tw0304() -> None:
    x = relay.var("x", shape=(expr.Var("n"), 4))
    places = relay.Function([x], relay.argwhere(x))
    build_open(lambda replaced: places, {}, Target("llvm"), "m", BuildReport(), Cache(None))


def tw0305() -> None:
    tvm.compile(mlp("n"), shapes={"x": ("64..1", 16)})


def tw0306() -> None:
    relay.op.get("nn.conv2")


def tw0307() -> None:
    relay.nn.softmax(relay.var("x", shape=(2, 3)), axes=1)


def tw0308() -> None:
    relay.matrix_set_diag(relay.var("x", shape=(2, 2)), relay.var("d", shape=(2,)), align="MIDDLE")


def tw0309() -> None:
    relay.op.get("image.resize")


def tw0310() -> None:
    relay.var("x").checked_type  # noqa: B018


def tw0311() -> None:
    relay.var("x", shape=(2, 3))[0]


def tw0312() -> None:
    with mock.patch.dict(OPS):
        relay.op.register("errors.example")
        registered: Any = relay.op.get("errors.example")
        registered.add_type_rel("Example")


def tw0313() -> None:
    x = relay.var("x", shape=(2, 3))
    relay.transform.gradient(relay.Function([x], relay.prod(x)))
