"""Single kernels beside other runtimes: one operator with its bias and activation, the same weights and the same
threads.

Each line of `LINES` is an ONNX model of one operator. Ours is the kernel that the compiler makes of it, called by its
address. Of the others, the time is the one that their own profiler gives for the operator. So layout changes at the
edges of such a small model count for nobody. Answers are compared before anything is timed, rounds are interleaved, and
the peak that efficiencies refer to is measured in the same rounds.

    python benchmarks/kernels.py                          # every line
    python benchmarks/kernels.py depthwise --threads 2 --peers ort
    python benchmarks/kernels.py --json out.json --markdown out.md
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from compare import difference
from peak import Peak
from peers import installed
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_text
from tilewright.backends.targets.target import Target
from tilewright.base.nd import aligned_empty
from tilewright.compiler.kernel import lower
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import Fusion
from tilewright.relay.transform.fuse_ops import kind_of
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.visitor import post_order

Array = NDArray[Any]
TOLERANCE = 1e-4
SHORTEST = 2e-3  # seconds: quicker kernels are called several times in one round
LAYOUT_CHANGES = (
    "Reorder", "ReorderInput", "ReorderOutput", "Transpose", "Reshape", "Parameter", "Input", "Output", "Result",
    "Const", "Constant"
)


@dataclass(frozen=True)
class Line:
    """One kernel: a model of one input, and how many operations it makes."""

    group: str
    shape: str
    flops: float
    make: Callable[[], onnx.ModelProto]

    @property
    def name(self) -> str:
        return f"{self.group} {self.shape}"


def _model(nodes: list[Any], shape: list[int], weights: dict[str, Array]) -> onnx.ModelProto:
    """A model from `x` to `y`, both float32."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
    graph = helper.make_graph(
        nodes, "one", [x], [y], [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def product(m: int, n: int, k: int) -> Line:
    """`x[m, k]` times constant weights, with a bias."""

    def make() -> onnx.ModelProto:
        random = np.random.default_rng(0)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
        return _model(nodes, [m, k], {"w": random.standard_normal((k, n)), "b": random.standard_normal(n)})

    return Line("product" if m > 1 else "gemv", f"{m}x{n}x{k}", 2.0 * m * n * k, make)


def conv(ksize: int, stride: int, size: int, channels: int, out: int = 0, groups: int = 1) -> Line:
    """A convolution of a square image, padded so that the size stays but for the stride, with bias and relu."""
    out = out or channels

    def make() -> onnx.ModelProto:
        random = np.random.default_rng(0)
        w, pad = random.standard_normal((out, channels // groups, ksize, ksize)), (ksize - 1) // 2
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], kernel_shape=[ksize] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups
        )
        return _model(
            [node, helper.make_node("Relu", ["c"], ["y"])], [1, channels, size, size],
            {"w": w, "b": random.standard_normal(out)}
        )

    edge = -(-size // stride)
    channel_text = f"{channels}" if out == channels else f"{channels}->{out}"
    kind = "depthwise" if groups > 1 else "conv"
    return Line(
        kind, f"{ksize}x{ksize} s{stride} {size}x{size}x{channel_text}",
        2.0 * edge * edge * out * channels // groups * ksize * ksize, make
    )


def depthwise(ksize: int, stride: int, size: int, channels: int) -> Line:
    return conv(ksize, stride, size, channels, groups=channels)


def pool(kind: str, ksize: int, stride: int, size: int, channels: int) -> Line:
    """`MaxPool` or `AveragePool` of a square image, padded like `conv`; an operation is one comparison or addition."""

    def make() -> onnx.ModelProto:
        pad = (ksize - 1) // 2
        node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[ksize] * 2, strides=[stride] * 2, pads=[pad] * 4)
        return _model([node], [1, channels, size, size], {})

    edge = -(-size // stride)
    return Line(
        "pool", f"{kind} {ksize}x{ksize} s{stride} {size}x{size}x{channels}",
        float(edge * edge * channels * ksize * ksize), make
    )


LINES = (
    product(1024, 1024, 1024), product(128, 768, 768), product(128, 3072, 768), product(3136, 64, 64),
    product(49, 512, 2048), product(1, 4096, 4096),
    conv(3, 1, 56, 64), conv(3, 1, 28, 128), conv(3, 1, 14, 256), conv(3, 1, 7, 512), conv(3, 2, 56, 128),
    conv(7, 2, 224, 3, 64), conv(1, 1, 112, 16, 96), conv(1, 1, 56, 144, 24), conv(1, 1, 14, 96, 576),
    conv(1, 1, 7, 960, 160), depthwise(3, 1, 112, 32), depthwise(3, 1, 56, 144), depthwise(3, 1, 14, 384),
    depthwise(3, 1, 7, 960),
    depthwise(3, 2, 112, 96), depthwise(3, 1, 56, 72), depthwise(5, 1, 28, 120), depthwise(5, 1, 14, 672),
    depthwise(5, 2, 14, 672), pool("MaxPool", 3, 2, 112, 64), pool("AveragePool", 3, 1, 28, 192),
)  # fmt: skip


@dataclass
class Row:
    """What was measured for one runtime on one kernel; seconds of one call, one for each round."""

    kernel: str
    runtime: str
    flops: float
    difference: float = 0.0
    seconds: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("nan")


class Ours:
    """The kernel of a model, called by its address."""

    def __init__(self, model: onnx.ModelProto, path: Path, x: Array, threads: int) -> None:
        target = Target("llvm")
        with PassContext(config={"relay.SplitBatch.images": -1}):  # the kernel for all rows
            main = optimize(from_onnx(model)[0], target)["main"]
        calls = (
            (c.op, c.args) for c in post_order(main.body, inside=False) if isinstance(c, Call)
            and isinstance(c.op, Function)
        )
        function, operands = next((f, a) for f, a in calls if _computes(f))
        constants = [a.value if isinstance(a, Constant) else None for a in operands]
        kernel = lower(function, [c is not None for c in constants], target.machine, "kernel")
        self.code = LoadedCode(
            [compile_text(emit(kernel.func, target), target), compile_text(pool_text(target), target)],
            ["kernel", "tw_pool_create"]
        )
        random = np.random.default_rng(1)
        given = zip(constants, function.params, strict=True)
        values = [
            _aligned(np.asarray(random.standard_normal(p.tensor_type.shape, np.float32)) if c is None else c) for c,
            p in given
        ]
        expected = evaluate(function, *values)
        self.expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        args = [
            _aligned(np.asarray(a.pack(*(values[i] for i in a.sources)))) if a.pack else values[a.sources[0]]
            for a in kernel.arguments
        ]
        self.answers = [aligned_empty(e.shape, e.dtype) for e in self.expected]
        self.memory = [*args, *self.answers]
        context = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self.code.address("tw_pool_create"))(threads)
        self.call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(self.memory)))(self.code.address("kernel"))
        self.pointers = [context, *(a.ctypes.data for a in self.memory)]
        self.call(*self.pointers)
        self.difference = difference(self.answers, self.expected)

    def seconds(self, calls: int) -> float:
        """The mean time of some calls."""
        call, pointers = self.call, self.pointers
        begin = time.perf_counter()
        for _ in range(calls):
            call(*pointers)
        return (time.perf_counter() - begin) / calls


class OnnxRuntime:
    """One session that writes a profile; the time of the nodes that are no layout changes."""

    def __init__(self, model: onnx.ModelProto, path: Path, x: Array, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        options.enable_profiling, options.profile_file_prefix = True, str(path.with_suffix(""))
        self.session, self.x = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), x
        self.rounds: list[int] = []
        self.difference = difference(self.session.run(None, {"x": x}), _expected(model, x))

    def seconds(self, calls: int) -> float:
        """Runs `calls` times; what they took is known in the end."""
        self.rounds.append(calls)
        for _ in range(calls):
            self.session.run(None, {"x": self.x})
        return float("nan")

    def finish(self) -> list[float]:
        """The mean time of a call, for each round."""
        events = json.loads(Path(self.session.end_profiling()).read_text())
        kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
        nodes = max(1, len({e["name"] for e in kernels}))
        times = [0.0 if e["args"]["op_name"] in LAYOUT_CHANGES else e["dur"] * 1e-6 for e in kernels]
        # without the first, which was for checking
        runs = [sum(times[k : k + nodes]) for k in range(nodes, len(times), nodes)]
        found = []
        for calls in self.rounds:
            found.append(statistics.fmean(runs[:calls]))
            del runs[:calls]
        return found


class OpenVino:
    """A compiled model with performance counters; the time of the nodes that are no layout changes."""

    def __init__(self, model: onnx.ModelProto, path: Path, x: Array, threads: int) -> None:
        import openvino

        hints = {
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32",
            "PERF_COUNT": True
        }
        compiled = openvino.Core().compile_model(path, "CPU", hints)
        self.request, self.x = compiled.create_infer_request(), x
        found = self.request.infer({"x": x})
        self.difference = difference([np.asarray(found[p]) for p in compiled.outputs], _expected(model, x))

    def seconds(self, calls: int) -> float:
        """The mean time of some calls; the counters give microseconds of the last call."""
        total = 0.0
        for _ in range(calls):
            self.request.infer({"x": self.x}, share_inputs=True, share_outputs=True)
            total += sum(
                i.real_time.total_seconds() for i in self.request.profiling_info if i.node_type not in LAYOUT_CHANGES
            )
        return total / calls


LOADERS: dict[str, Callable[[onnx.ModelProto, Path, Array, int], Any]] = {
    "tilewright": Ours, "onnxruntime": OnnxRuntime, "openvino": OpenVino
}


def _computes(function: Function) -> bool:
    return any(
        isinstance(c, Call) and kind_of(c) in (Fusion.OUT_FUSABLE, Fusion.REDUCE) for c in post_order(function.body)
    )


def _aligned(a: Array) -> Array:
    b = aligned_empty(a.shape, a.dtype)
    b[...] = a
    return b


def _expected(model: onnx.ModelProto, x: Array) -> list[Array]:
    """By the operators' numpy meaning."""
    found = evaluate(from_onnx(model)[0]["main"], x)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def measure(line: Line, runtimes: list[str], threads: int, rounds: int, peak: Peak) -> list[Row]:
    """Check and time one kernel on every runtime."""
    model = line.make()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    rows, running = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        path.write_bytes(model.SerializeToString())
        for runtime in runtimes:
            row = Row(line.name, runtime, line.flops)
            rows.append(row)
            run = LOADERS[runtime](model, path, x, threads)
            row.difference = run.difference
            if not row.difference <= TOLERANCE:
                row.failure = f"wrong answer: relative difference {row.difference:.1e}"
                continue
            begin = time.perf_counter()
            run.seconds(2)
            calls = max(1, int(2 * SHORTEST / (time.perf_counter() - begin)))
            running.append((row, run, calls))
        for turn in range(rounds):
            peak.measure()
            first = turn % max(1, len(running))
            for row, run, calls in running[first:] + running[:first]:
                run.seconds(1)
                row.seconds.append(run.seconds(calls))
        for row, run, _ in running:
            if isinstance(run, OnnxRuntime):
                row.seconds = run.finish()[2::2]
    return rows


HEAD = ("kernel", "runtime", "us", "± us", "GFLOP/s", "of peak", "difference")


def cells(rows: list[Row], peak: float) -> list[list[str]]:
    """The table's body; `peak` is in operations a second."""
    body = []
    for r in rows:
        if r.failure:
            body.append([r.kernel, r.runtime, r.failure, "", "", "", ""])
            continue
        spread = statistics.stdev(r.seconds) if len(r.seconds) > 1 else float("nan")
        rate = r.flops / r.median
        figures = (
            f"{r.median * 1e6:.1f}", f"{spread * 1e6:.1f}", f"{rate / 1e9:.0f}", f"{rate / peak:.0%}",
            f"{r.difference:.0e}"
        )
        body.append([r.kernel, r.runtime, *figures])
    return body


def markdown(rows: list[Row], peak: float) -> str:
    """The table for a document."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    return "\n".join(lines + ["| " + " | ".join(line) + " |" for line in cells(rows, peak)]) + "\n"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "lines", nargs="*", help="parts of names: conv, depthwise, product, gemv, pool, 56x56, …; default: every line"
    )
    parser.add_argument("--peers", default="ort,ov", help="runtimes beside ours, comma separated: ort, ov")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write every round to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def main() -> int:
    """Measure and show; 1 when an answer of ours is wrong."""
    options = arguments()
    chosen = [line for line in LINES if not options.lines or any(part in line.name for part in options.lines)]
    if not chosen:
        print(
            f"no line has {' or '.join(options.lines)} in its name; the lines are "
            f"{', '.join(line.name for line in LINES)}"
        )
        return 2
    runtimes = ["tilewright", *installed([p for p in options.peers.split(",") if p])]
    peak, rows = Peak(options.threads), list[Row]()
    for line in chosen:
        found = measure(line, runtimes, options.threads, options.rounds, peak)
        rows += found
        for text in cells(found, peak.best):
            print("  ".join(f"{t:<{w}}" for t, w in zip(text, (38, 12, 8, 6, 6, 5, 7), strict=True)), flush=True)
    print(
        f"peak of {options.threads} thread(s), multiply-adds of float32 vectors in registers: {peak.best / 1e9:.0f} "
        "GFLOP/s"
    )
    if options.json:
        options.json.write_text(
            json.dumps(
                {"peak": peak.best, "rows": [dataclasses.asdict(r) | {"median": r.median} for r in rows]}, indent=1
            )
        )
    if options.markdown:
        options.markdown.write_text(markdown(rows, peak.best))
    return 1 if any(r.failure and r.runtime == "tilewright" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
