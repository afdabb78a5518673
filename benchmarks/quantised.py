"""Quantised networks beside other runtimes: TFLite files beside LiteRT (XNNPACK) and OpenVINO, ONNX files beside ONNX
Runtime and OpenVINO.

Turn by turn in one process, by the rules of `compare.py`. Each file is read by the runtimes that read its format. The
TFLite files are those of the folder that `TILEWRIGHT_TFLITE_MODELS` names; the ONNX files are those of `models.py` that
are quantized. Anomaly detection of MLPerf Tiny, an autoencoder of ten layers, is made here from its published
configuration with random weights, MiniLM quantized dynamically, and the ONNX networks written as TFLite files with the
same integers, so that LiteRT stands beside them. With `--float`, ours also races itself: each quantized network against
the same in float32.

    python benchmarks/quantised.py                                   # everything that is there
    python benchmarks/quantised.py vww_96_int8 resnet50_int8 --threads 1
    python benchmarks/quantised.py resnet50_int8 --float --markdown out.md
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

import compare
import peers
import quantised_files
import workloads

READERS = {".tflite": ("tilewright", "litert", "openvino"), ".onnx": ("tilewright", "onnxruntime", "openvino")}
TFLITE = (
    "mobilenet_v1_0.25_224_quant", "mobilenet_v2_1.0_224_quant", "pretrainedResnet_quant", "vww_96_int8",
    "kws_ref_model", "person_detect",
    "micro_speech_quantized",
)
REFUSED = ("person_detect",)
"""Files that the others open after a correction alone."""
ONNX = ("resnet50_int8", "mobilenet_v2_int8")
MADE = {
    "ad01_int8": quantised_files.anomaly_detection, "minilm_l6_dynamic": quantised_files.dynamic,
    **{f"{name}_tflite": quantised_files.as_tflite(name) for name in ONNX},
}
TOLERANCE = 0.2
"""Relative distance from the reference: others round elsewhere, and a class may be a step further."""


def find(name: str) -> workloads.Workload:
    """The workload of this name; raises `LookupError` with what to do where there is none."""
    if name in ONNX:
        return workloads.find(name)
    path = MADE[name]() if name in MADE else Path(name)
    if not path.is_file():
        folder = os.environ.get("TILEWRIGHT_TFLITE_MODELS")
        if folder is None:
            raise LookupError(f"{name}: TILEWRIGHT_TFLITE_MODELS names the folder of TFLite models, and it is not set")
        path = Path(folder) / f"{name}.tflite"
    if not path.is_file():
        raise LookupError(f"{name}: there is no file {path}")
    if path.suffix == ".onnx":
        return workloads.find(str(path))
    return workloads.tflite(quantised_files.corrected(path) if name in REFUSED else path)


def against_float(name: str, threads: int, rounds: int) -> tuple[compare.Row, compare.Row]:
    """Ours on a quantized network of `models.py` and on the same in float32, turn by turn."""
    rows, running = [], []
    for one in (name, name.removesuffix("_int8")):
        work = workloads.find(one)
        row = compare.Row(one, compare.OURS, threads)
        rows.append(row)
        running.append((row, peers.tilewright(work.path, work.inputs, threads), work.inputs))
    compare.race(running, rounds)
    return rows[0], rows[1]


def show(rows: list[compare.Row], console: Console) -> None:
    """Print the table: a line for each model, number of threads and runtime."""
    table = Table(
        "model", "threads", "runtime", "median ms", "ours / it", "difference", "load s",
        title=f"{os.cpu_count()} cores, ± half the interquartile range"
    )
    ours = {(r.model, r.threads): r.median for r in rows if r.runtime == compare.OURS}
    for r in rows:
        if r.failure:
            table.add_row(r.model, str(r.threads), r.runtime, "failed", "", "", "")
            continue
        ratio = ours.get((r.model, r.threads), float("nan")) / r.median
        table.add_row(
            r.model, str(r.threads), r.runtime, f"{r.median * 1e3:#.3g} ± {r.spread:.0%}", f"{ratio:.2f}",
            f"{r.difference:.0e}", f"{r.load:.2f}"
        )
    console.print(table)
    for r in filter(lambda r: r.failure, rows):
        console.print(f"{r.model}, {r.threads} thread(s), {r.runtime}: {r.failure}", highlight=False)
    for threads, ratio in compare.geometric_means(rows).items():
        console.print(
            f"{threads} thread(s): geometric mean of ours / the best of the others = {ratio:.2f} (below 1 is faster)"
        )


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "models", nargs="*", help=f"names, or .tflite or .onnx files; default: {', '.join((*TFLITE, *ONNX, *MADE))}"
    )
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--float", action="store_true", help="also ours in float32, for the networks of models.py")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def main() -> int:
    """Measure and show; 1 when a runtime of ours failed or gave a wrong answer."""
    options, console = arguments(), Console()
    counts = list(map(int, options.threads.split(",")))
    rows: list[compare.Row] = []
    for name in options.models or (*TFLITE, *ONNX, *MADE):
        try:
            work = find(name)
        except LookupError as missing:
            console.print(f"left out: {missing.args[0]}", highlight=False)
            continue
        for threads in counts:
            rows += compare.measure(
                work, peers.installed(list(READERS[work.path.suffix])), threads, options.rounds, TOLERANCE
            )
            if options.float and name in ONNX:
                quantized, real = against_float(name, threads, options.rounds)
                console.print(
                    f"{name}, {threads} thread(s): {quantized.median * 1e3:.2f} ms, float32 {real.median * 1e3:.2f}: "
                    f"{real.median / quantized.median:.2f} times"
                )
    show(rows, console)
    if options.markdown:
        options.markdown.write_text(compare.markdown(rows))
    return 1 if any(row.failure and row.runtime == compare.OURS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
