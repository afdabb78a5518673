"""Time of prompts and steps of a decoder with a growing cache: one program for all lengths, beside other runtimes.

    python benchmarks/decoder.py                                       # 12 layers, 256 steps after a prompt of 128
    python benchmarks/decoder.py --layers 2 --steps 32 --threads 1,2 --peers ort,ov
    python benchmarks/decoder.py --ways compile                        # without InferenceSession and the C program

The model is made by `decoder_model.py`. Each runtime generates the same number of tokens after the same prompt, always
the most likely one; its caches are the outputs of the previous call. The runtimes take turns, `--rounds` times. The
table shows the median time of a step, the slowest step by this median, the median time of each prompt, and whether all
tokens are those of ONNX Runtime, and how many object files LLVM has made in this process after all programs were
loaded. `memory` is the resident memory that loading and generating add to a fresh process
that has only imported its libraries, by the bytes of the weights plus the last cache.

Tilewright runs in three ways: `tilewright.compile`, `InferenceSession`, and a C program (`decoder_main.c`, which needs
a C compiler) that calls the saved program. Lines below the table compare each of them with its limits. Times are ratios
to the fastest of the other runtimes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from decoder_model import TINY, Decoder, inputs_of, write
from peers import SHORT

Array = np.ndarray[Any, Any]
Run = Callable[[dict[str, Array]], Sequence[Array]]
Generate = Callable[[Sequence[int], int], tuple[float, list[float], list[int]]]
"""Takes a prompt and a number of steps; returns the seconds of the prompt and of each step, and the tokens."""
WAYS = {"compile": "tilewright", "session": "session", "c": "C program"}
MOST_TIME, MOST_CALL, MOST_MEMORY = 0.9, 2.0, 1.3
"""Limits of the times by those of other runtimes, of a step by the median step, and of memory by weights and caches."""


@dataclass
class Row:
    """Seconds of one runtime: of prompts by length, and of the steps of each generation; and its tokens."""

    runtime: str
    threads: int
    prompts: dict[int, list[float]] = field(default_factory=dict)
    steps: list[list[float]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    compiling: float = 0.0
    compiled: int = 0
    memory: float = float("nan")

    @property
    def step(self) -> float:
        """The median time of a step."""
        return statistics.median(t for times in self.steps for t in times)

    @property
    def slowest(self) -> float:
        """The slowest step by the median step; each step counts with the fastest of its rounds."""
        return max(float(min(times)) for times in zip(*self.steps, strict=True)) / self.step


def open_shapes(sizes: Decoder) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the inputs with symbolic lengths."""
    total = "past_sequence_length + sequence_length"
    cache = (1, sizes.kv_heads, "past_sequence_length=0..", sizes.head_dim)
    return {
        "input_ids": (1, "sequence_length"), "attention_mask": (1, total), "position_ids": (1, "sequence_length"),
        **{f"past_key_values.{c}": cache for c in sizes.caches},
    }


def ours(path: Path, sizes: Decoder, threads: int) -> Run:
    import tilewright

    model = tilewright.load(path, threads=threads) if path.suffix != ".onnx" else tilewright.compile(
        path, shapes=open_shapes(sizes), threads=threads)
    return lambda feed: model(*feed.values())


def session(path: Path, sizes: Decoder, threads: int) -> Run:
    """`tilewright.onnx_session.InferenceSession`."""
    from tilewright.compat import onnx_session

    options = onnx_session.SessionOptions()
    options.intra_op_num_threads = threads
    made = onnx_session.InferenceSession(path, options, shapes=open_shapes(sizes))
    return lambda feed: made.run(None, feed)


def onnxruntime(path: Path, sizes: Decoder, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: made.run(None, feed)


def openvino(path: Path, sizes: Decoder, threads: int) -> Run:
    import openvino

    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", hints)
    request = compiled.create_infer_request()

    def run(feed: dict[str, Array]) -> list[Array]:
        answers = request.infer(feed, share_inputs=True)
        return [np.asarray(answers[port]) for port in compiled.outputs]

    return run


class CProgram:
    """A process that generates tokens by a saved program, without Python."""

    def __init__(self, program: Path, sizes: Decoder, threads: int, folder: Path) -> None:
        self.sizes = sizes
        cc = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
        if cc is None:
            raise SystemExit("the C program needs a C compiler; use --ways compile,session")
        main = folder / f"{program.stem}_main"
        defined = {"KV_HEADS": sizes.kv_heads, "HEAD_DIM": sizes.head_dim, "VOCABULARY": sizes.vocabulary}
        subprocess.run(
            [cc, "-std=gnu11", "-O2", "-Wall", f"-I{folder}", *(f"-D{n}={v}" for n, v in defined.items()),
             Path(__file__).with_name("decoder_main.c"), program, f"-Wl,-rpath,{folder}", "-o", main], check=True)
        self._process = subprocess.Popen(
            [main], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TILEWRIGHT_NUM_THREADS": str(threads)})

    def __call__(self, prompt: Sequence[int], steps: int) -> tuple[float, list[float], list[int]]:
        """Generate tokens; return the seconds of the prompt and of each step, and the tokens."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(" ".join(map(str, (len(prompt), steps, *prompt))) + "\n")
        process.stdin.flush()
        answer = [*map(int, process.stdout.readline().split())]
        times = [1e-9 * t for t in answer[: steps + 1]]
        return times[0], times[1:], answer[steps + 1 :]

    def resident(self) -> int:
        """Return the resident memory of the process in bytes."""
        return resident(self._process.pid)

    def close(self) -> None:
        self._process.communicate()


def saved(path: Path, sizes: Decoder, threads: int, folder: Path) -> Path:
    """Compile and save the program, with its C header; return its file."""
    import tilewright

    model = tilewright.compile(path, shapes=open_shapes(sizes), threads=threads)
    (folder / "decoder.h").write_text(model.artifact.header())
    return model.save(folder / f"decoder_{threads}.so")


LOADERS: dict[str, Callable[[Path, Decoder, int], Run]] = {
    "tilewright": ours, "session": session, "onnxruntime": onnxruntime, "openvino": openvino,
}


def load(name: str, path: Path, sizes: Decoder, threads: int, folder: Path) -> Generate:
    """Return the generation of tokens by a runtime."""
    if name == WAYS["c"]:
        return CProgram(saved(path, sizes, threads, folder), sizes, threads, folder)
    run = LOADERS[name](path, sizes, threads)
    return lambda prompt, steps: generate(run, sizes, prompt, steps)


def generate(run: Run, sizes: Decoder, prompt: Sequence[int], steps: int) -> tuple[float, list[float], list[int]]:
    """Return the seconds of the prompt and of each step, and the tokens."""
    times, tokens, feed = list[float](), list[int](), inputs_of(sizes, prompt, sizes.no_past())
    for _ in range(steps + 1):
        start = time.perf_counter()
        logits, *caches = run(feed)
        times.append(time.perf_counter() - start)
        tokens.append(int(logits[0, -1].argmax()))
        past = {f"past_key_values.{c}": a for c, a in zip(sizes.caches, caches, strict=True)}
        feed = inputs_of(sizes, tokens[-1:], past)
    return times[0], times[1:], tokens


def prompt_of(sizes: Decoder, length: int) -> list[int]:
    """Return random tokens."""
    return [int(t) for t in np.random.default_rng(length).integers(0, sizes.vocabulary, length)]


def resident(process: int | str = "self") -> int:
    """Return the resident memory of a process, by default this one, in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(name: str, path: Path, sizes: Decoder, threads: int, length: int, steps: int) -> None:
    """Print the resident memory of this process beyond that of the libraries, after loading and generating."""
    __import__({"tilewright": "tilewright.runtime.open_program", "session": "tilewright.compat.onnx_session"}.get(
        name, name))
    before = resident()
    run = LOADERS[name](path, sizes, threads)
    generate(run, sizes, prompt_of(sizes, length), steps)
    print(resident() - before)


def memory(name: str, path: Path, sizes: Decoder, threads: int, options: argparse.Namespace, folder: Path) -> float:
    """Return the resident memory of a fresh process by the bytes of weights and caches."""
    length, steps = options.prompt, options.steps
    if name == WAYS["c"]:
        program = CProgram(folder / f"decoder_{threads}.so", sizes, threads, folder)
        program(prompt_of(sizes, length), steps)
        used = program.resident()
        program.close()
    else:
        file = saved(path, sizes, threads, folder) if name == WAYS["compile"] else path
        given = [name, str(file), str(threads), str(length), str(steps), json.dumps(dataclasses.asdict(sizes))]
        done = subprocess.run(
            [sys.executable, __file__, "--child", *given], stdout=subprocess.PIPE, text=True, check=True)
        used = int(done.stdout)
    return used / (sizes.weight_bytes() + sizes.cache_bytes(length + steps))


def measure(path: Path, sizes: Decoder, options: argparse.Namespace, threads: int, folder: Path) -> list[Row]:
    """Return a row for each runtime: ONNX Runtime first, then the ways of Tilewright."""
    names = ["onnxruntime", *(WAYS[way] for way in options.ways),
             *(n for n in (SHORT.get(n, n) for n in options.peers) if n != "onnxruntime")]
    rows, runs = [Row(n, threads) for n in names], list[Generate]()
    for row in rows:
        start = time.perf_counter()
        runs.append(load(row.runtime, path, sizes, threads, folder))
        row.compiling = time.perf_counter() - start
    with compilations() as made:
        for _ in range(options.rounds):
            for row, run in zip(rows, runs, strict=True):
                time.sleep(options.pause)
                _, steps, row.tokens = run(prompt_of(sizes, options.prompt), options.steps)
                row.steps.append(steps)
        for length in options.prompts:
            for _ in range(options.rounds):
                for row, run in zip(rows, runs, strict=True):
                    time.sleep(options.pause)
                    run(prompt_of(sizes, length), 0)
                    taken = min(run(prompt_of(sizes, length), 0)[0] for _ in range(2))
                    row.prompts.setdefault(length, []).append(taken)
    for row in rows:
        row.compiled = len(made)
    for run in runs:
        if isinstance(run, CProgram):
            run.close()
    if not options.no_memory:
        del runs, run
        for row in rows:
            row.memory = memory(row.runtime, path, sizes, threads, options, folder)
    return rows


def shown(rows: Sequence[Row], lengths: Sequence[int]) -> str:
    """Return a table: times in milliseconds, and the other figures."""
    lines = [f"{'':14}{'step':>9}{'slowest':>9}" + "".join(f"{f'prompt {n}':>12}" for n in lengths)
             + f"{'memory':>9}{'compiling':>11}  tokens"]
    for row in rows:
        prompts = [statistics.median(row.prompts[n]) for n in lengths]
        lines.append(
            f"{row.runtime:14}{row.step * 1e3:9.3f}{row.slowest:9.2f}" + "".join(f"{t * 1e3:12.3f}" for t in prompts)
            + f"{row.memory:9.2f}{row.compiling:10.1f}s  {'equal' if row.tokens == rows[0].tokens else 'DIFFER'}")
    return "\n".join(lines)


@contextmanager
def compilations() -> Iterator[list[int]]:
    """Yield a list that gets the size of each object file that LLVM makes in this process."""
    from llvmlite.binding import TargetMachine

    made, emit = list[int](), TargetMachine.emit_object

    def counted(machine: TargetMachine, module: Any) -> bytes:
        code: bytes = emit(machine, module)
        made.append(len(code))
        return code

    TargetMachine.emit_object = counted
    try:
        yield made
    finally:
        TargetMachine.emit_object = emit


def limits(rows: Sequence[Row], lengths: Sequence[int]) -> list[str]:
    """Return a line for each way of Tilewright: its figures, their limits, and the figures beyond them."""
    ours_ = [row for row in rows if row.runtime in WAYS.values()]
    others = [row for row in rows if row not in ours_]
    lines = []
    for row in ours_:
        figures = {"step": (row.step / min(r.step for r in others), MOST_TIME)}
        for n in lengths:
            best = min(statistics.median(r.prompts[n]) for r in others)
            figures[f"prompt {n}"] = statistics.median(row.prompts[n]) / best, MOST_TIME
        figures |= {"slowest": (row.slowest, MOST_CALL), "memory": (row.memory, MOST_MEMORY)}
        tokens = "equal" if row.tokens == rows[0].tokens else "DIFFER"
        said = ", ".join(
            f"{name} {value:.2f}{' OVER' if value > limit else ''} of {limit}" for name, (value, limit)
            in figures.items() if not math.isnan(value))
        lines.append(f"{row.runtime}: {said}, tokens {tokens}, {row.compiled} compiled after loading")
    return lines


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whole = Decoder()
    parser.add_argument("--layers", type=int, default=whole.layers)
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the program")
    parser.add_argument("--prompt", type=int, default=128, help="tokens before the steps")
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--prompts", default="1,7,32,128,512", help="lengths of the prompts that are timed")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default="ort,ov", help="runtimes; ONNX Runtime is always there")
    parser.add_argument("--ways", default=",".join(WAYS), help="ways to run Tilewright: compile, session, c")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds before each turn")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory, which needs a linker")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Print a table for each number of threads; 1 if tokens differ."""
    options = arguments().parse_args()
    if options.child:
        name, path, threads, length, steps, sizes = options.child
        child(name, Path(path), Decoder(**json.loads(sizes)), int(threads), int(length), int(steps))
        return 0
    options.peers, options.prompts = options.peers.split(","), [*map(int, options.prompts.split(","))]
    options.ways = options.ways.split(",")
    sizes = TINY if options.tiny else dataclasses.replace(Decoder(), layers=options.layers)
    is_equal = True
    with tempfile.TemporaryDirectory() as folder:
        path = write(sizes, Path(folder) / "decoder.onnx")
        for threads in map(int, options.threads.split(",")):
            rows = measure(path, sizes, options, threads, Path(folder))
            print(f"{threads} thread{'s' * (threads > 1)}, times in ms")
            print(shown(rows, options.prompts))
            print(*limits(rows, options.prompts), sep="\n", flush=True)
            is_equal = is_equal and all(r.tokens == rows[0].tokens for r in rows)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
