"""The programs of many networks for several processors, written before a change and compared after it.

    python benchmarks/replay.py write before                       # all networks, all processors
    python benchmarks/replay.py write after --networks resnet18 --processors znver4 c
    python benchmarks/replay.py compare before after --show 3      # exit code 1 where a program differs

A refactoring leaves every program as it is: the LLVM text of each kernel, the C text, the description of the steps, and
the bytes of the artifact. Where a text differs on purpose, `compare` names the networks to be timed. Networks are those
of `relay.testing` with random weights of a fixed seed, in float32, in bfloat16 and in int8, and the TFLite files of
`--files`.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

PROCESSORS = {
    "x86-64-v2": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2",
    "haswell": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "skylake-avx512": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
    "znver4": "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4",
    "neoverse-v1": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
    "c": "c",
}
"""By name, the targets: five processors, and C."""
SMALL = {"image_shape": (3, 64, 64)}
FLOAT: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {"batch_size": 1}),
    "dqn": ("dqn", {"batch_size": 1}),
    "dcgan": ("dcgan", {"batch_size": 1}),
    "lstm": ("lstm", {"iterations": 4, "num_hidden": 64}),
    "resnet18": ("resnet", {"num_layers": 18}),
    "resnet34": ("resnet", {"num_layers": 34}),
    "resnet50": ("resnet", {"num_layers": 50}),
    "resnet18_nhwc": ("resnet", {"num_layers": 18, "image_shape": (224, 224, 3), "layout": "NHWC"}),
    "resnet50_batch4": ("resnet", {"num_layers": 50, "batch_size": 4, **SMALL}),
    "resnet20": ("resnet", {"num_layers": 20, "image_shape": (3, 32, 32), "num_classes": 10}),
    "mobilenet": ("mobilenet", {}),
    "mobilenet_nhwc": ("mobilenet", {"image_shape": (224, 224, 3), "layout": "NHWC"}),
    "mobilenet_batch4": ("mobilenet", {"batch_size": 4}),
    "squeezenet1.0": ("squeezenet", {}),
    "squeezenet1.1": ("squeezenet", {"version": "1.1"}),
    "vgg11": ("vgg", {"batch_size": 1, "image_shape": (3, 64, 64), "num_classes": 10}),
    "densenet121": ("densenet", {"batch_size": 1}),
    "inception_v3": ("inception_v3", {}),
}
"""By name, the module of `relay.testing` and its arguments."""
NARROW = (
    "mlp", "lstm", "resnet18", "resnet50", "resnet18_nhwc", "mobilenet", "squeezenet1.1", "densenet121", "inception_v3",
    "vgg11"
)
"""Those that are written in bfloat16 and in int8, too."""
NETWORKS = (*FLOAT, *(f"{n}_bf16" for n in NARROW), *(f"{n}_int8" for n in NARROW))
Row = dict[str, Any]


def module_of(name: str) -> Any:
    """The module of a network of `NETWORKS`, its weights bound."""
    import importlib

    from tilewright.relay import quantize
    from tilewright.relay.transform.bind_params import bind_params

    network, arguments = FLOAT[name.removesuffix("_bf16").removesuffix("_int8")]
    mod, params = importlib.import_module(f"tilewright.relay.testing.{network}").get_workload(**arguments)
    if not name.endswith("_int8"):
        return bind_params(mod, params)
    with quantize.qconfig(calibrate_mode="global_scale", global_scale=8.0):
        return quantize.quantize(mod, params)


def program(source: Any, target: str, mixed_precision: str) -> tuple[dict[str, str], str]:
    """The texts of a program by what they are, and the hash of its artifact. `source` is a module, or the path of a
    file."""
    import tilewright
    from tilewright.compiler.cache import Cache

    model = tilewright.compile(source, target=target, mixed_precision=mixed_precision, cache=Cache(None), threads=1)
    artifact = model.artifact
    texts = {**model.report.llvm, "steps": artifact.manifest.to_json().replace(", ", ",\n")}
    if model.report.text:
        texts["c"] = model.report.text
    return texts, hashlib.sha256(b"".join((*artifact.objects, artifact.constants.tobytes()))).hexdigest()


def write_one(name: str, target: str, folder: Path) -> Row:
    """Compile a network for a target; its texts go to `folder` by their hashes."""
    begin = time.perf_counter()
    try:
        kind = "bfloat16" if name.endswith("_bf16") else ""
        texts, artifact = program(name if os.sep in name else module_of(name), PROCESSORS[target], kind)
    except Exception as error:  # what cannot be compiled is a row, too: it may not be another error afterwards
        return {"error": f"{type(error).__name__}: {error}", "texts": {}, "artifact": "", "seconds": 0.0}
    hashes = {}
    for what, text in texts.items():
        hashes[what] = hashlib.sha256(text.encode()).hexdigest()[:24]
        path = folder / "texts" / hashes[what]
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(zlib.compress(text.encode()))
            part.replace(path)
    return {"error": "", "texts": hashes, "artifact": artifact, "seconds": time.perf_counter() - begin}


def write(folder: Path, networks: Sequence[str], processors: Sequence[str], jobs: int) -> None:
    """Write the programs of all networks for all processors; those that `folder` has are kept."""
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    index = folder / "index.json"
    rows: dict[str, Row] = json.loads(index.read_text()) if index.exists() else {}
    left = [(n, p) for n in networks for p in processors if f"{n} {p}" not in rows]
    with get_context("spawn").Pool(jobs, maxtasksperchild=16) as pool:
        waiting = {f"{n} {p}": pool.apply_async(write_one, (n, p, folder)) for n, p in left}
        for key, made in waiting.items():
            rows[key] = made.get()
            print(
                f"{key:40s} {rows[key]['seconds']:7.1f} s  {len(rows[key]['texts']):4d} texts  "
                f"{rows[key]['error'][:120]}", flush=True
            )
            index.write_text(json.dumps(rows, indent=1))


def differences(before: Path, after: Path) -> Iterator[tuple[str, list[tuple[str, str, str]], str]]:
    """Each program that is another: its key, what differs with both hashes, and the error where one has come."""
    old, new = (json.loads((f / "index.json").read_text()) for f in (before, after))
    for key in sorted({*old} & {*new}):
        a, b = old[key], new[key]
        texts = sorted({*a["texts"]} | {*b["texts"]})
        found = [(t, x, y) for t in texts if (x := a["texts"].get(t, "")) != (y := b["texts"].get(t, ""))]
        if found or a["artifact"] != b["artifact"] or a["error"] != b["error"]:
            yield key, found, b["error"] if a["error"] != b["error"] else ""


def text_of(folder: Path, digest: str) -> list[str]:
    """The lines of a text, none where there is none."""
    return zlib.decompress((folder / "texts" / digest).read_bytes()).decode().splitlines() if digest else []


def compare(before: Path, after: Path, show: int) -> int:
    """Print what differs, the first `show` texts with their lines; 1 where anything does."""
    shown = count = 0
    for key, texts, error in differences(before, after):
        count += 1
        print(
            f"{key}: {error or ', '.join(t for t, _, _ in texts[:8]) or 'the bytes of the artifact alone'}{f' and {len(texts) - 8} more' if len(texts) > 8 else ''}"  # noqa: E501
        )
        for what, old, new in texts[: show - shown]:
            shown += 1
            lines = difflib.unified_diff(
                text_of(before, old), text_of(after, new), f"before/{what}", f"after/{what}", lineterm="", n=2
            )
            print(*list(lines)[:60], sep="\n")
    old, new = (json.loads((f / "index.json").read_text()) for f in (before, after))
    both = {*old} & {*new}
    seconds = [sum(rows[k]["seconds"] for k in both) for rows in (old, new)]
    print(f"{len(both)} programs, {count} differ; compiled in {seconds[0]:.0f} s before and {seconds[1]:.0f} s after")
    return int(bool(count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, comparing = commands.add_parser("write"), commands.add_parser("compare")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    writing.add_argument("--processors", nargs="+", choices=[*PROCESSORS], default=[*PROCESSORS])
    writing.add_argument("--files", nargs="*", type=Path, default=[], help="models in files, compiled as well")
    writing.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--show", type=int, default=1, help="of how many texts the lines are shown")
    chosen = parser.parse_args()
    if chosen.command == "compare":
        return compare(chosen.before, chosen.after, chosen.show)
    write(chosen.folder, [*chosen.networks, *(str(f.resolve()) for f in chosen.files)], chosen.processors, chosen.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
