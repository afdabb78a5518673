"""What provokes each code of `catalogue/artifacts.md`, in an empty folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import tilewright as tvm
from tilewright.compiler.micro import GeneratedProject, get_microtvm_template_projects
from tilewright.driver.tvmc.package import TVMCPackage
from tilewright.runtime import manifest
from tilewright.runtime.artifact import _loaded, check_host, load
from tilewright.runtime.graph_json import check_graph

from .running import model
from .targets import adding


def tw0801() -> None:
    model().save("no/such/folder/model.so")


def tw0802() -> None:
    model().save("model.onnx")


def tw0803() -> None:
    Path("model.so").write_bytes(b"no library")
    tvm.load("model.so")


def tw0804() -> None:
    model().save("model.so")
    data = Path("model.so").read_bytes()
    Path("model.so").write_bytes(
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    )
    tvm.load("model.so")


def tw0805() -> None:
    with mock.patch("tilewright.runtime.host.host_arch", return_value="x86_64"):
        check_host(replace(model().artifact.manifest, triple="riscv64-linux-gnu"), "model.so")


def tw0806() -> None:
    manifest.Manifest.from_json(json.dumps({"format": 0}), "model.so")


def tw0807() -> None:
    model().save("model.so")
    load("model.so").save("model.tar")


def tw0808() -> None:
    tvm.runtime.ModuleNode().save_to_binary()


def tw0809() -> None:
    tvm.build(*adding(), target="llvm").export_library("f.so")
    tvm.load("f.so")


def tw0810() -> None:
    TVMCPackage("module.tar")


def tw0811() -> None:
    _loaded(0, Path("model.so"), replace(model().artifact.manifest, sanitizer="address"))


def tw0812() -> None:
    check_graph("{}", model().artifact.manifest)


def tw0813() -> None:
    GeneratedProject.from_directory("project")


def tw0814() -> None:
    template = json.loads((Path(get_microtvm_template_projects("host")) / "template.json").read_text())
    Path("build").mkdir()
    for image in ("main.elf", "self_test.elf"):
        (Path("build") / image).touch()
    Path("template.json").write_text(json.dumps({**template, "run": ["false"]}))
    Path("project.json").write_text(
        json.dumps({"template": "host", "model": "net", "options": {}, "inputs": [], "outputs": []})
    )
    GeneratedProject.from_directory(".").test()
