"""Models as WebAssembly: run by Node.js and by Chromium with the loader that is written beside them, with the bits of
the host's code."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import TensorProto

import tilewright
from shipped_models import CAT, CATS, MOBILENET, cat_pixels, small_network
from small_models import cnn
from test_deployment import mathematics
from tilewright.backends.cpu import link_wasm
from tilewright.backends.cpu.link_wasm import find_wasm_linkers
from tilewright.base.errors import ArtifactError, CompileError
from tilewright.runtime import host, load, webassembly

NODE, CHROMIUM = shutil.which("node"), shutil.which("chromium")
RUN = Path(__file__).with_name("webassembly_run.mjs")
WASM = "llvm -mtriple=wasm32-unknown-unknown"
SIMD = f"{WASM} -mattr=+simd128"
HOST = "llvm -mcpu=x86-64" if host.host_arch() == "x86_64" else "llvm"
"""Without fused multiply and add, as WebAssembly is."""
needs_linker = pytest.mark.skipif(
    not find_wasm_linkers(), reason="there is no wasm-ld (the Python package ziglang has one)"
)
needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
Array = np.ndarray[Any, Any]
pytestmark = needs_linker


def in_node(path: Path, inputs: Sequence[Array]) -> dict[str, Any]:
    """What the module says of itself, and the bytes of its outputs in order."""
    files = []
    for k, x in enumerate(inputs):
        files.append(path.with_name(f"input{k}"))
        files[-1].write_bytes(np.ascontiguousarray(x).tobytes())
    done = subprocess.run(
        [str(NODE), str(RUN), str(path), *map(str, files)], capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    said["made"] = [base64.b64decode(data) for data in said["made"].values()]
    return said


def flat(answer: Any) -> list[Array]:
    return [*answer] if isinstance(answer, tuple) else [answer]


@needs_node
@pytest.mark.parametrize("target", [WASM, SIMD])
@pytest.mark.parametrize("make", [partial(cnn, 2), small_network], ids=["floats", "integers"])
def test_node_computes_what_the_host_computes(make: Callable[[], Any], target: str, tmp_path: Path) -> None:
    expected = tilewright.compile(make(), target=HOST, threads=1)
    random = np.random.default_rng(0)
    inputs = [random.integers(0, 99, t.shape).astype(t.dtype.numpy()) for t in expected.inputs]
    said = in_node(tilewright.compile(make(), target=target).save(tmp_path / "model.wasm"), inputs)
    right = flat(expected(*inputs))
    assert said["made"] == [a.tobytes() for a in right]
    assert said["inputs"] == [{"name": t.name, "shape": list(t.shape), "dtype": str(t.dtype)} for t in expected.inputs]


@needs_node
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_mathematics(dtype: str, tmp_path: Path) -> None:
    model = mathematics(
        TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE, without=("Erf",) if dtype == "float64" else ()
    )
    random = np.random.default_rng(0)
    inputs = [random.uniform(low, high, 37).astype(dtype) for low, high in ((0.01, 0.99), (0.5, 3))]
    said = in_node(tilewright.compile(model, target=SIMD).save(tmp_path / "model.wasm"), inputs)
    right = tilewright.compile(model)(*inputs)
    for data, y, info in zip(said["made"], right, said["outputs"], strict=True):
        np.testing.assert_allclose(
            np.frombuffer(data, dtype), y, rtol=3e-6 if dtype == "float32" else 1e-13, err_msg=info["name"]
        )


@needs_node
def test_memory_between_the_stages_of_kernels(tmp_path: Path) -> None:
    """A network whose kernels ask for more than the stack has, and a workspace of several megabytes."""
    x = tilewright.relay.var("x", shape=(1, 64, 96, 96))
    weight = tilewright.relay.const(np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32))
    y = tilewright.relay.nn.conv2d(tilewright.relay.nn.conv2d(x, weight, padding=(1, 1)), weight, padding=(1, 1))
    function = tilewright.relay.Function((x,), tilewright.relay.nn.softmax(y, axis=1))
    model = tilewright.compile(function, target=SIMD)
    value = np.random.default_rng(1).standard_normal((1, 64, 96, 96)).astype(np.float32)
    said = in_node(model.save(tmp_path / "model.wasm"), [value])
    made = np.frombuffer(said["made"][0], np.float32).reshape([int(d) for d in y.tensor_type.shape])
    np.testing.assert_allclose(made, tilewright.compile(function)(value), rtol=1e-2, atol=1e-5)


MISTAKES = """
import { load } from "./tilewright.mjs";
const model = await load("./model.wasm");
const x = new Float32Array(2 * 3 * 16 * 16);
for (const given of [{}, { y: x }, { x: new Float64Array(3) }, { x: [1, 2] }, { x: new Float32Array(7) }]) {
  try { model.run(given); console.log("ran"); } catch (error) { console.log(`${error.name}: ${error.message}`); }
}
console.log(Object.keys(model.run(x)).join());
for (const source of ["nothing.wasm", new Uint8Array(5), new Uint8Array(4096)]) {
  try { await load(source); console.log("loaded"); } catch (error) { console.log(error.message); }
}
"""


@needs_node
def test_mistakes_are_told(tmp_path: Path) -> None:
    tilewright.compile(cnn(2), target=WASM).save(tmp_path / "model.wasm")
    (tmp_path / "mistakes.mjs").write_text(MISTAKES)
    done = subprocess.run(
        [str(NODE), "mistakes.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    x = "'x' float32[2, 3, 16, 16]"
    assert said[:5] == [
        f"TypeError: input {x} is missing", f"TypeError: 'model' has no input 'y'; its inputs are {x}",
        f"TypeError: input {x} is a Float32Array, and was given a Float64Array",
        f"TypeError: input {x} is a Float32Array, and was given a Array",
        f"RangeError: input {x} has 1536 elements, and was given 7",
    ]
    assert "ENOENT" in said[6]
    assert all("the mark at its end is missing" in line for line in said[7:9]) and len(said) == 9


def test_python_reads_the_manifest_and_does_not_run_it(tmp_path: Path) -> None:
    path = tilewright.compile(cnn(2), target=WASM).save(tmp_path / "model.wasm")
    assert [t.name for t in webassembly.read_manifest(path.read_bytes(), "model.wasm").inputs] == ["x"]
    assert path.with_name("tilewright.mjs").read_bytes() == webassembly.LOADER.read_bytes()
    with pytest.raises(
        ArtifactError,
        match=r"is a WebAssembly module, which Python cannot run; load it in Node.js or a browser with tilewright.mjs"
    ):
        load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="does not end in the mark of a compiled model"):
        load(path)


def test_what_webassembly_is_not_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ArtifactError, match=r"code for wasm32-unknown-unknown is not saved as .so; save it as .tar, .a, .o, .wasm"
    ):
        tilewright.compile(cnn(2), target=WASM).save(tmp_path / "m.so")
    with pytest.raises(ArtifactError, match=r"is not saved as .wasm; save it as .so, .tar, .a, .o"):
        tilewright.compile(cnn(2)).save(tmp_path / "m.wasm")
    with pytest.raises(ArtifactError, match=r"have addresses of 32 bits; compile for -mtriple=wasm32-unknown-unknown"):
        tilewright.compile(cnn(2), target="llvm -mtriple=wasm64-unknown-unknown").save(tmp_path / "m.wasm")
    x = tilewright.relay.var("x", shape=(3,))
    flow = tilewright.relay.If(
        tilewright.relay.less(tilewright.relay.sum(x), tilewright.relay.const(np.float32(1))), x,
        tilewright.relay.exp(x)
    )
    with pytest.raises(
        CompileError,
        match=r"has control flow .* only supported on 64-bit Linux, but the target is wasm32-unknown-unknown"
    ):
        tilewright.compile(tilewright.relay.Function((x,), flow), target=WASM)
    monkeypatch.setattr(link_wasm, "find_wasm_linkers", list)
    with pytest.raises(
        ArtifactError, match=r"no linker for WebAssembly was found .*`pip install ziglang`, or save as .tar"
    ):
        tilewright.compile(cnn(2), target=WASM).save(tmp_path / "m.wasm")
    assert not list(tmp_path.iterdir())


# A trained network.
needs_cat = pytest.mark.skipif(
    not MOBILENET.exists() or not CAT.exists() or importlib.util.find_spec("PIL") is None,
    reason=f"{MOBILENET} and {CAT}, or Pillow, are not there"
)


@pytest.fixture(
    scope="module", params=[pytest.param(WASM, id="scalar", marks=pytest.mark.slow), pytest.param(SIMD, id="simd128")]
)
def mobilenet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mobilenet")
    return tilewright.compile(MOBILENET, target=request.param).save(folder / "mobilenet.wasm")


@pytest.mark.models
@needs_cat
@needs_node
def test_a_cat_in_node(mobilenet: Path) -> None:
    (data,) = in_node(mobilenet, [cat_pixels()])["made"]
    assert data == tilewright.compile(MOBILENET)(cat_pixels()).tobytes()
    assert int(np.frombuffer(data, np.uint8).argmax()) in CATS


PAGE = """<!doctype html><title>cat</title><script type="module">
import { load } from "./tilewright.mjs";
try {
  const model = await load("mobilenet.wasm");
  const pixels = new Uint8Array(await (await fetch("cat.rgb")).arrayBuffer());
  const [scores] = Object.values(model.run(pixels));
  await fetch("result", { method: "POST", body: scores });
} catch (error) {
  await fetch("result", { method: "POST", body: `${error}` });
}
</script>"""


VISITOR = """<script type="module">
const input = document.querySelector("input"), list = document.querySelector("ol");
new MutationObserver(() => fetch("result", { method: "POST", body: list.textContent })).observe(list, { childList: true });
const files = new DataTransfer();
files.items.add(new File([await (await fetch("cat.jpg")).blob()], "cat.jpg", { type: "image/jpeg" }));
input.files = files.files;
window.addEventListener("unhandledrejection", (event) => fetch("result", { method: "POST", body: `${event.reason}` }));
const loaded = () => performance.getEntriesByName(new URL("mobilenet.wasm", location).href).length > 0;
const again = () => { if (loaded() && !list.children.length) input.dispatchEvent(new Event("change")); };
setInterval(again, 300);
</script>"""  # noqa: E501
"""Somebody who gives the page of the example a picture when its model is there."""


class _Results(SimpleHTTPRequestHandler):
    """Serves a folder, and keeps what is posted to it."""

    posted: ClassVar[list[bytes]]
    arrived: ClassVar[threading.Event]

    def do_POST(self) -> None:
        self.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.arrived.set()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return "text/javascript" if str(path).endswith(".mjs") else super().guess_type(path)

    def log_message(self, *said: Any) -> None:
        """Say nothing."""


def in_chromium(folder: Path) -> bytes:
    """What `page.html` of the folder posts as its result."""
    class Results(_Results):
        posted: ClassVar[list[bytes]] = []
        arrived = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Results, directory=str(folder))) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        command = [
            "timeout", "--kill-after=5", "150", str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run",
                   f"--user-data-dir={folder / 'profile'}", f"http://127.0.0.1:{server.server_port}/page.html"]
        with (folder / "chromium.log").open("wb") as log:
            browser = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            assert Results.arrived.wait(120), (folder / "chromium.log").read_text(errors="replace")[-3000:]
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait(30)
            server.shutdown()
            serving.join(30)
    return Results.posted[0]


@pytest.mark.models
@needs_cat
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_cat_in_a_browser(mobilenet: Path) -> None:
    (mobilenet.parent / "page.html").write_text(PAGE)
    (mobilenet.parent / "cat.rgb").write_bytes(cat_pixels().tobytes())
    found = in_chromium(mobilenet.parent)
    expected = tilewright.compile(MOBILENET)(cat_pixels())
    assert found == expected.tobytes(), found[:300]


@pytest.mark.models
@needs_cat
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_of_the_example(mobilenet: Path) -> None:
    """The browser reads and shrinks the picture its own way; it is a cat all the same."""
    example = Path(__file__).parent.parent / "examples" / "classify" / "index.html"
    (mobilenet.parent / "page.html").write_text(example.read_text().replace("</html>", f"{VISITOR}</html>"))
    shutil.copy(CAT, mobilenet.parent / "cat.jpg")
    said = in_chromium(mobilenet.parent).decode()
    assert said.startswith("class ") and int(said.split()[1].rstrip(":")) in CATS, said
