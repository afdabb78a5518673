"""The table of TVM v0.13's tutorials in docs/tvm.md: those that run, and why the others do not.

    python benchmarks/tvm_suite.py FOLDER/tvm_v0.13 gallery --results results.jsonl
    python benchmarks/tvm_tutorials.py FOLDER/tvm_v0.13 results.jsonl --page docs/tvm.md

Exits with 1 if a tutorial neither runs nor has a reason, or runs in spite of one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- the tutorials: python benchmarks/tvm_tutorials.py FOLDER results.jsonl --page docs/tvm.md -->"
END: Final = "<!-- the end of the tutorials -->"
PACKAGES: Final = {
    "from_onnx": "matplotlib", "from_tflite": "matplotlib", "from_pytorch": "torchvision",
    "deploy_prequantized": "torchvision", "micro_pytorch": "torchvision", "deploy_prequantized_tflite": "tensorflow",
}
"""Tutorials that run where a further package is installed."""
REASONS: Final[Mapping[str, str]] = {
    "code for GPUs is not generated":
        "deploy_model_on_adreno deploy_model_on_adreno_tvmc deploy_model_on_android deploy_model_on_nano intrin_math "
        "intro_topi opt_conv_cuda opt_conv_tensorcore reduction relay_quick_start scan tensor_ir_blitz_course "
        "tune_conv2d_cuda tune_conv2d_layer_cuda tune_network_cuda tune_network_mali tune_relay_cuda "
        "tune_relay_mobile_gpu using_external_lib using_pipeline_executor",
    "models of the framework are not read":
        "deploy_model_on_rasp deploy_quantized deploy_sparse from_coreml from_darknet from_keras from_mxnet "
        "from_oneflow from_paddle from_tensorflow",
    "custom data types are not here, and models of MXNet are not read": "bring_your_own_datatypes",
    "the package of the framework DGL is for older versions of PyTorch": "build_gcn",
    "the board's development kit is needed": "micro_mlperftiny",
    "pictures are downloaded and a model is trained": "micro_train",
    "the tutorial uses a name, `testing`, that it does not import": "using_as_torch using_optimized_torch",
    "torchvision's operators in C++ are needed": "deploy_object_detection_pytorch",
    "longer than ten minutes on two busy cores: not run to the end": "micro_pytorch",
    "not here yet": "tune_sparse_x86",
}
"""Reason -> the tutorials that do not run."""
FOLDERS: Final = ("tutorial", "how_to")


def reason_of(name: str) -> str | None:
    """Return the reason why a tutorial does not run, or None."""
    return next((why for why, names in REASONS.items() if name in names.split()), None)


def tutorials(folder: Path) -> list[str]:
    """Return the names of all tutorials, sorted."""
    return sorted(p.stem for part in FOLDERS for p in (folder / "gallery" / part).rglob("*.py"))


def passed(results: Path) -> set[str]:
    """Return the names of the tutorials that ran to their end."""
    lines = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {Path(r["file"]).stem for r in lines if r["file"].startswith("gallery/") and r["counts"].get("passed")}


def table(names: Sequence[str], ran: set[str]) -> str:
    """Return the table in Markdown: a row for those that run, one for each further package, one for each reason."""
    rows: dict[str, list[str]] = {"run": []}
    for name in names:
        if name in ran:
            rows.setdefault(f"run, with {PACKAGES[name]}" if name in PACKAGES else "run", []).append(name)
    for name in names:
        if name not in ran:
            rows.setdefault(reason_of(name) or "fail", []).append(name)
    lines = [
        f"| {title} | {len(found)} | {', '.join(f'`{n}`' for n in found)} |" for title, found in rows.items() if found]
    return "\n".join(["| tutorials | number | names |", "| --- | --- | --- |", *lines])


def wrong(names: Sequence[str], ran: set[str]) -> list[str]:
    """Return what does not agree with the results."""
    unknown = [n for names_of in REASONS.values() for n in names_of.split() if n not in names]
    return [
        *(f"{n}: there is no such tutorial" for n in unknown),
        *(f"{n}: it runs, but has the reason '{reason_of(n)}'" for n in names if n in ran and reason_of(n)),
        *(f"{n}: it does not run" for n in names if n not in ran and not reason_of(n)),
    ]


def write_page(page: Path, text: str) -> None:
    """Replace the table of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    if not begin or END not in rest:
        raise ValueError(f"{page} does not have the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    options = parser.parse_args(arguments)
    names, ran = tutorials(options.folder), passed(options.results)
    text = table(names, ran)
    print(text)
    if options.page is not None:
        write_page(options.page, text)
    found = wrong(names, ran)
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
