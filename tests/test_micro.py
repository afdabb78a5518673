"""Projects of models in C: created of a Model Library, built and run on this machine and on an Arm Cortex-M in qemu,
with the bits that this machine computes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from shipped_models import MODELS_FOLDER
from suites import unpack
from test_c_model import network, of_integers
from tilewright.base.errors import ArtifactError, InputError, OptionError, RunError, TargetError
from tilewright.compiler import micro
from tilewright.driver import tvmc

HOST, BOARD = (micro.get_microtvm_template_projects(name) for name in ("host", "qemu-arm"))
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler called cc")
needs_board = pytest.mark.skipif(
    not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))),
    reason="needs arm-none-eabi-gcc, its C library, and qemu-system-arm")
IMAGE = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 5)).astype(np.uint8)


@pytest.fixture(scope="module")
def model() -> tilewright.Model:
    return tilewright.compile(of_integers())


@pytest.fixture(scope="module")
def library(model: tilewright.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save_c_library(tmp_path_factory.mktemp("library") / "net.tar", name="net")


def test_a_library_of_c_text(library: Path) -> None:
    with tarfile.open(library) as archive:
        names = archive.getnames()
        described = json.load(archive.extractfile("./metadata.json"))["modules"]["net"]  # type: ignore[arg-type]
    assert {
        "./codegen/host/src/net.c", "./codegen/host/include/net.h", "./codegen/host/test/net_test.c",
        "./codegen/host/test/main.c"
    } <= set(names)
    assert {"./codegen/host/src/net_lib0.c", "./codegen/host/include/tvmgen_net.h"} <= set(names)
    (main,) = described["memory"]["functions"]["main"]
    assert described["target"] == ["c"]
    assert main["inputs"]["x"] == {"dtype": "uint8", "shape": [2, 6, 7, 5], "size": 420}
    found = micro.read_model_library(library)
    assert f"#define NET_WORKSPACE_BYTES {main['workspace_size_bytes']}\n" in found.files["header"]
    assert f"#define NET_CONSTANT_BYTES {main['constants_size_bytes']}\n" in found.files["header"]
    assert (found.name, [str(t) for t in found.inputs]) == ("net", ["uint8 x[2, 6, 7, 5]"])


INTERFACE = """
#include <stdio.h>
#include "tvmgen_net.h"
static uint8_t x[TVMGEN_NET_X_SIZE], out[TVMGEN_NET_OUT_SIZE];
int main(void) {
  struct tvmgen_net_inputs inputs = {x};
  struct tvmgen_net_outputs outputs = {out};
  if (fread(x, sizeof x, 1, stdin) != 1 || tvmgen_net_run(&inputs, &outputs)) return 1;
  return fwrite(out, sizeof out, 1, stdout) != 1;
}
"""


@needs_compiler
def test_the_interface_of_structures(model: tilewright.Model, library: Path, tmp_path: Path) -> None:
    unpack(library, tmp_path)
    host = tmp_path / "codegen" / "host"
    (out,) = model.outputs
    (tmp_path / "main.c").write_text(INTERFACE.replace("_OUT_", f"_{out.name.upper()}_"))
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{host / 'include'}", tmp_path / "main.c",
         *sorted((host / "src").glob("*.c")), "-lm", "-o", tmp_path / "main"], check=True)
    done = subprocess.run([tmp_path / "main"], input=IMAGE.tobytes(), capture_output=True, check=True, timeout=60)
    assert done.stdout == np.asarray(model(IMAGE)).tobytes()


@needs_compiler
def test_a_project_of_this_machine(model: tilewright.Model, library: Path, tmp_path: Path) -> None:
    project = micro.generate_project_from_mlf(HOST, tmp_path / "made", library, {"optimization": "1"})
    with pytest.raises(ArtifactError, match="is not built; first run: tvmc micro build"):
        project.run([IMAGE])
    assert [p.name for p in project.build()] == ["main.elf", "self_test.elf"]
    assert project.test() == "OK\n"
    assert "there is no flash to write" in project.flash()
    again = micro.GeneratedProject.from_directory(tmp_path / "made")
    assert again.options == {"optimization": "1"}
    (found,) = again.run({"x": IMAGE})
    np.testing.assert_array_equal(found, model(IMAGE))
    assert again.info()["inputs"] == ["uint8 x[2, 6, 7, 5]"]


@needs_board
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386", "mps2-an500"])
def test_a_cortex_m_computes_the_same_integers(
    board: str, model: tilewright.Model, library: Path, tmp_path: Path
) -> None:
    project = micro.generate_project_from_mlf(BOARD, tmp_path / "made", library, {"board": board})
    project.build()
    assert project.test() == "OK\n"
    np.testing.assert_array_equal(project.run([IMAGE])[0], model(IMAGE))


@pytest.mark.slow
@needs_board
def test_floats_on_a_cortex_m(tmp_path: Path) -> None:
    made = tilewright.compile(network())
    project = micro.generate_project(BOARD, made, tmp_path / "made", {"board": "mps2-an500"})
    project.build()
    assert project.test() == "OK\n"
    image = np.random.default_rng(1).standard_normal((1, 8, 9, 9)).astype(np.float32)
    for found, wanted in zip(project.run([image]), made(image), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@needs_board
def test_a_board_says_what_is_wrong(library: Path, tmp_path: Path) -> None:
    project = micro.generate_project_from_mlf(BOARD, tmp_path / "made", library)
    with pytest.raises(TargetError, match="no room for the stack"):
        project.build({"stack": "5000000"})
    main = tmp_path / "made" / "main.c"
    text = main.read_text()
    broken = text.replace("net_run(", "*(volatile int *)0x90000000 = 1;\n  net_run(")
    assert broken != text
    main.write_text(broken)
    project = micro.GeneratedProject.from_directory(tmp_path / "made")
    project.build()
    with pytest.raises(RunError, match="ended with status 1: fault: the processor stopped the program"):
        project.run([IMAGE])
    main.write_text(text.replace("net_run(", "for (volatile int k = 0;; ++k) {}\n  net_run("))
    project.build()
    with pytest.raises(RunError, match="was ended after 1 seconds; --project-option timeout=SECONDS"):
        project.run([IMAGE], {"timeout": "1"})


@needs_compiler
def test_what_a_project_refuses(library: Path, tmp_path: Path) -> None:
    project = micro.generate_project_from_mlf(HOST, tmp_path / "made", library)
    project.build()
    for inputs, message in (([], "takes 1 inputs .x., but 0 were given"), ({}, "'x' is not given"), (
        {"y": IMAGE}, "has no input 'y'; it has x"
    ), ([IMAGE[:1]], r"is uint8\[2, 6, 7, 5\], but uint8\[1, 6, 7, 5\] was given"),
                            ([IMAGE.astype(np.int8)], "but int8")):
        with pytest.raises(InputError, match=message):
            project.run(inputs)
    with pytest.raises(OptionError, match="it is fixed when a project is built"):
        project.run([IMAGE], {"optimization": "3"})
    with pytest.raises(OptionError, match="'soon' is not a positive number of seconds"):
        project.run([IMAGE], {"timeout": "soon"})
    with pytest.raises(
        TargetError,
        match=r"needs the program 'no-such-cc', which is not installed; on Debian: apt-get install gcc, .* "
        r"--project-option compiler=PROGRAM"
    ):
        project.build({"compiler": "no-such-cc"})
    with pytest.raises(OptionError, match="was given a FactoryModule, which holds machine code"):
        built: Any = tilewright.relay.build(tilewright.IRModule.from_expr(of_integers()), "llvm")
        micro.generate_project(HOST, built, tmp_path / "other")
    with pytest.raises(ArtifactError, match="already exists; choose another folder, or overwrite this project with -f"):
        micro.generate_project_from_mlf(HOST, tmp_path / "made", library)
    assert not micro.generate_project_from_mlf(HOST, tmp_path / "made", library, force=True).is_built
    (tmp_path / "made" / "project.json").write_text("{}")
    with pytest.raises(ArtifactError, match="create the project again"):
        micro.GeneratedProject.from_directory(tmp_path / "made")


@needs_compiler
def test_a_template_of_ones_own(model: tilewright.Model, library: Path, tmp_path: Path) -> None:
    own = tmp_path / "my-board"
    shutil.copytree(HOST, own)
    description = json.loads((own / "template.json").read_text())
    description["sources"] = ["twice.h"]
    description["flash"] = [["{compiler}", "--version"]]
    (own / "twice.h").write_text("/* of the board */\n")
    (own / "template.json").write_text(json.dumps(description))
    project = micro.TemplateProject.from_directory(own).generate_project_from_mlf(library, tmp_path / "made")
    assert (tmp_path / "made" / "twice.h").read_text() == "/* of the board */\n"
    project.build()
    assert project.flash() == "main.elf is on the board"
    np.testing.assert_array_equal(project.run([IMAGE])[0], model(IMAGE))
    assert micro.TemplateProject.from_directory(own).info()["platform_name"] == "my-board"


@pytest.mark.parametrize(("change", "message"), [
    ({"about": 3}, "'about' must be a str"),
    ({"options": {"speed": {"help": "x"}}}, "an option is invalid"),
    ({"options": {"speed": {"help": "x", "when": "later", "default": "1"}}}, "`when` is one of create, build, run"),
    ({"sources": ["../x"]}, "is not the name of a file in the template's folder"),
    ({"build": [["{speed}"]]}, "'{speed}' in '{speed}' is not the name of a value"),
])
def test_templates_that_are_not_written_right(
    change: dict[str, object], message: str, library: Path, tmp_path: Path
) -> None:
    description = json.loads((Path(HOST) / "template.json").read_text()) | change
    (tmp_path / "template.json").write_text(json.dumps(description))
    with pytest.raises(ArtifactError, match=message):
        micro.generate_project_from_mlf(tmp_path, tmp_path / "made", library).build()


def test_libraries_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match="not a Model Library"):
        micro.read_model_library(tmp_path / "x.tar")


@needs_board
@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_ref_model", pytest.param("vww_96_int8", marks=pytest.mark.slow)])
def test_trained_models_on_a_board(name: str, tmp_path: Path) -> None:
    """By the command line, from the model to its outputs."""
    file, package, project = MODELS_FOLDER / f"{name}.tflite", tmp_path / "model.tar", tmp_path / "project"
    if not file.is_file():
        pytest.skip(f"there is no model {file}; TILEWRIGHT_TFLITE_MODELS names the folder of the trained models")
    tvmc.compile(tvmc.load(file), "c", package_path=package, output_format="mlf", mod_name="net")
    made = micro.generate_project_from_mlf(BOARD, project, package)
    made.build()
    assert made.test() == "OK\n"
    found = tvmc.run(made, device="micro")
    wanted = tvmc.run(tvmc.compile(tvmc.load(file), "llvm", package_path=tmp_path / "host.tar"))
    for key, value in wanted.outputs.items():
        np.testing.assert_array_equal(found.get_output(key), value)
