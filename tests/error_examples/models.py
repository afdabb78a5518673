"""What provokes each code of `catalogue/models.md`, in an empty folder."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import onnx
from onnx import TensorProto, helper

import tilewright
from small_models import mlp
from tilewright import relay
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.frontend.tflite.node import Value
from tilewright.scalar import expr


def one_node(
    kind: str, shape: tuple[int, ...] | None = (2, 3), kind_of_input: int = TensorProto.FLOAT, inputs: int = 1,
    domain: str = "", **attributes: Any
) -> onnx.ModelProto:
    """A model of one node, called n, which nobody checked."""
    names = [f"x{k}" for k in range(inputs)]
    node = helper.make_node(kind, names, ["y"], name="n", domain=domain, **attributes)
    values = [helper.make_tensor_value_info(name, kind_of_input, shape) for name in names]
    made = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", kind_of_input, None)])
    return helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])],
        ir_version=8
    )


def tw0101() -> None:
    tilewright.compile("resnet.onnx")


def tw0102() -> None:
    Path("model.onnx").write_text("<!DOCTYPE html><html>not found</html>", encoding="utf-8")
    tilewright.compile("model.onnx")


def tw0103() -> None:
    data = mlp().SerializeToString()
    from_onnx(data[: len(data) // 2])


def tw0104() -> None:
    Path("model.pt").write_bytes(b"\x80\x02}q\x00.")
    tilewright.compile("model.pt")


def tw0105() -> None:
    model = mlp()
    onnx.save_model(model, "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    Path("weights.bin").unlink()
    from_onnx("model.onnx")


def tw0106() -> None:
    from_onnx(one_node("Whirl", domain="org.example"))


def tw0107() -> None:
    from_onnx(one_node("BitShift", kind_of_input=TensorProto.UINT8, inputs=2, direction="UP"))


def tw0108() -> None:
    rows = relay.var("rows", shape=(expr.Var("n"), 4))
    tensor: Any = SimpleNamespace(name="rows", shape=(-1, 4), dtype="float32")
    Value(rows, tensor).shape  # noqa: B018


def tw0109() -> None:
    from_onnx(one_node("Relu", slope=0.1))


def tw0110() -> None:
    model = one_node("Relu")
    del model.opset_import[:]
    from_onnx(model)


def tw0111() -> None:
    from_onnx(mlp(), shape={"image": (1, 16)})


def tw0112() -> None:
    from_onnx(mlp(), shape={"x": (1, 3, 16)})


def tw0113() -> None:
    from_onnx(one_node("Relu", shape=None))


def tw0114() -> None:
    from_onnx(one_node("Relu", kind_of_input=TensorProto.COMPLEX64))


def tw0115() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    model = one_node("f0", domain="org.example")
    for depth in range(300):
        inner = helper.make_node(
            f"f{depth + 1}", ["x"], ["y"], name="inner", domain="org.example"
        ) if depth < 299 else helper.make_node("Relu", ["x"], ["y"])
        model.functions.append(helper.make_function("org.example", f"f{depth}", ["x"], ["y"], [inner], opsets))
    from_onnx(model)


def tw0116() -> None:
    relay.load_param_dict(b"no parameters")


def tw0117() -> None:
    with zipfile.ZipFile("model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"")
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        tilewright.compile("model.pt")


def tw0118() -> None:
    from tilewright.relay.frontend.pytorch.exported import GraphWalk

    importer: Any = None
    GraphWalk(importer, SimpleNamespace(graph=SimpleNamespace(nodes=())))._run([])
