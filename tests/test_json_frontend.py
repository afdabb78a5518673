"""The example `examples/json_frontend`: a frontend that a package brings, found by its entry point."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.base import plugins
from tilewright.base.errors import ModelError, OpNotImplemented, TargetError
from tilewright.compiler.formats import format_named, format_of
from tilewright.driver.main import main
from tilewright.driver.tvmc.model import load_model
from tilewright.ir.module import IRModule
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.deferred import RESOLVERS
from tilewright.relay.parser import parse

EXAMPLE = Path(__file__).parent.parent / "examples" / "json_frontend"
RANDOM = np.random.default_rng(0)
WEIGHTS = {"w1": RANDOM.standard_normal((8, 4)).astype(np.float32), "b1": RANDOM.standard_normal(8).astype(np.float32),
           "w2": RANDOM.standard_normal((3, 8)).astype(np.float32)}


def entry_point(site: Path, value: str = "json_frontend:FORMAT") -> None:
    """The metadata that an installation of the example leaves."""
    metadata = site / "json_frontend-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: json-frontend\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{plugins.FRONTENDS}]\njson = {value}\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example as an installed package."""
    entry_point(tmp_path / "site")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugins.installed_frontends.cache_clear()
    yield
    plugins.installed_frontends.cache_clear()


def network(**changes: Any) -> dict[str, Any]:
    """softmax(relu(x @ w1.T + b1) @ w2.T) of vectors x (n, 4)."""
    nodes = [
        {"op": "dense", "name": "first", "inputs": ["x", "w1", "b1"], "outputs": ["h"]},
        {"op": "relu", "inputs": ["h"], "outputs": ["r"]},
        {"op": "dense", "name": "second", "inputs": ["r", "w2"], "outputs": ["l"]},
        {"op": "softmax", "inputs": ["l"], "outputs": ["y"], "attributes": {"axis": 1}},
    ]
    constants = {n: {"dtype": "float32", "data": w.tolist()} for n, w in WEIGHTS.items()}
    return {
        "inputs": {"x": {"shape": [2, 4], "dtype": "float32"}}, "constants": constants, "nodes": nodes,
        "outputs": ["y"], **changes
    }


def answer(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    logits = np.maximum(x @ WEIGHTS["w1"].T + WEIGHTS["b1"], 0) @ WEIGHTS["w2"].T
    e = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def saved(folder: Path, said: Any) -> Path:
    path = folder / "net.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said), encoding="utf-8")
    return path


def test_a_network_is_compiled_and_agrees_with_numpy(installed: None, tmp_path: Path) -> None:
    path = saved(tmp_path, network())
    x = RANDOM.standard_normal((2, 4)).astype(np.float32)
    assert format_of(path).name == "JSON" and format_named("json") is format_of(path)
    np.testing.assert_allclose(tilewright.compile(path)(x), answer(x), rtol=1e-5)
    np.testing.assert_allclose(tilewright.compile(path.read_bytes())(x), answer(x), rtol=1e-5)
    longer = RANDOM.standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_allclose(tilewright.compile(path, shapes={"x": (5, 4)})(longer), answer(longer), rtol=1e-5)


def test_sizes_may_differ_between_calls(installed: None, tmp_path: Path) -> None:
    model = tilewright.compile(saved(tmp_path, network(inputs={"x": {"shape": ["n", 4], "dtype": "float32"}})))
    for n in (1, 3):
        x = RANDOM.standard_normal((n, 4)).astype(np.float32)
        np.testing.assert_allclose(model(x), answer(x), rtol=1e-5)


def test_the_command_lines_know_the_file(installed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, network())
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "x: float32[2, 4]" in said and "dense" in said and "native" in said
    assert "softmax" in load_model(path).mod.astext() and load_model(path, "json").params == {}


def test_a_node_waits_for_a_value_that_the_network_computes(installed: None, tmp_path: Path) -> None:
    nodes = [{"op": "add", "inputs": ["a", "b"], "outputs": ["s"]}, {
        "op": "reshape", "name": "r", "inputs": ["x", "s"], "outputs": ["y"]
    },
             {"op": "relu", "inputs": ["y"], "outputs": ["z"]}]
    kinds = {"x": {"shape": [6], "dtype": "float32"}, **{n: {"shape": [2], "dtype": "int64"} for n in "ab"}}
    path = saved(tmp_path, network(inputs=kinds, constants={}, nodes=nodes, outputs=["z"]))
    module = format_of(path).read(path, None)[0]
    text = module.astext()
    assert 'frontend.deferred(' in text and 'source="json"' in text
    assert tilewright.check(path).ok and [o.name for o in tilewright.check(path).staged] == ["relu", "reshape"]
    x, a, b = np.arange(-3, 3, dtype=np.float32), np.array([1, 1]), np.array([2, 1])
    wanted = np.maximum(x, 0).reshape(3, 2)
    np.testing.assert_array_equal(tilewright.compile(path)(x, a, b), wanted)
    RESOLVERS.pop("json")  # as in a process that has not imported the frontend
    importlib.reload(importlib.import_module("json_frontend"))
    again = parse(text)
    assert isinstance(again, IRModule)
    np.testing.assert_array_equal(evaluate(again["main"], x, a, b), wanted)


@pytest.mark.parametrize(("said", "kind", "words"), [
    ("{", ModelError, "is not a JSON network"),
    (network(nodes=[{"op": "whirl", "name": "n", "inputs": ["x"], "outputs": ["y"]}]), OpNotImplemented,
     r"whirl, in 1 node: n\nWrite one and register it before importing: @json_frontend\.register_converter\('whirl'\)"),
    (network(
        nodes=[{"op": "relu", "name": "n", "inputs": ["x"], "outputs": ["y"], "attributes": {"slope": 1}}]
    ), ModelError,
     r"relu 'n' .*attribute 'slope' is not one of relu; its attributes are: none"),
    (
        network(nodes=[{"op": "dense", "name": "n", "inputs": ["x"], "outputs": ["y"]}]), ModelError,
        r"dense 'n' .*input 'weight' is missing"
    ),
    (
        network(nodes=[{"op": "relu", "name": "n", "inputs": ["q"], "outputs": ["y"]}]), ModelError,
        "'q', used by relu 'n'"
    ),
    (network(
        nodes=[{"op": "split", "name": "n", "inputs": ["x"], "outputs": ["y"], "attributes": {"parts": 2}}]
    ), ModelError,
     "split 'n' .*1 outputs and splits its input into 2 parts"),
    (network(
        constants={"w1": {"dtype": "float32", "data": "no"}},
        nodes=[{"op": "dense", "inputs": ["x", "w1"], "outputs": ["y"]}]
    ), ModelError,
     "constant 'w1' is not an array"),
])
def test_errors_name_the_node(installed: None, tmp_path: Path, said: Any, kind: type[Exception], words: str) -> None:
    path = saved(tmp_path, said)
    with pytest.raises(kind, match=words):
        format_of(path).read(path, None)


def test_shapes_are_checked(installed: None, tmp_path: Path) -> None:
    path = saved(tmp_path, network())
    with pytest.raises(ModelError, match=r"the model has no input 'q'; its inputs are: x"):
        format_of(path).read(path, {"q": (1,)})
    with pytest.raises(ModelError, match=r"has 1 dimensions, and input 'x' of the model has 2"):
        format_of(path).read(path, {"x": (1,)})


def test_a_frontend_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(tmp_path / "site", "no_such_package:FORMAT")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugins.installed_frontends.cache_clear()
    try:
        with pytest.raises(TargetError, match=r"the frontend 'json' cannot be imported from no_such_package:FORMAT"):
            format_of(saved(tmp_path, network()))
        with pytest.raises(ModelError, match=r"nodes of the format 'none', which no installed package reads"):
            plugins.load_frontend("none")
    finally:
        plugins.installed_frontends.cache_clear()


def test_the_support_table_is_the_table_of_converters(installed: None) -> None:
    table = importlib.import_module("json_frontend").CONVERTERS.support_table()
    assert (
        "| `conv2d` | 1 | x, weight | strides=(1, 1), padding=(0, 0) |" in table
        and "| `dense` | 1 | x, weight, bias? | – |" in table
    )
