"""Networks with open dimensions: one program for all sizes beside programs that were compiled for each size alone.

    python benchmarks/open_networks.py                              # every network that can be had here
    python benchmarks/open_networks.py resnet18 lstm_lm --sizes 20
    python benchmarks/open_networks.py --no-race --sizes 5          # agreement with ONNX Runtime alone
    python benchmarks/open_networks.py --race 4 --resume rows.jsonl # in pieces: networks in the file are not run again
    python benchmarks/open_networks.py bert_base --service 1000     # random sizes in random order, times and memory

Each network is compiled once with open dimensions. At each of a number of random sizes its answers are compared with
those of ONNX Runtime. At all or `--race` of them they are also compared with those of the program made for that size,
and calls of both programs take turns. A line shows the ratios of times (geometric mean and worst), of compile times and
of the sizes of the artifacts. A network without a program for all sizes is reported with the reason. Sizes at which
noise of 1e-5 on the inputs changes the answer of ONNX Runtime, such as the order of equal scores, count as unstable.

Networks of `models.py` are exported with open batch, height and width, or length; files are those of
`onnx_workloads.py`; readers, recurrences, decoders and detectors are those of `open_exports.py`; networks of
`relay.testing` have an open batch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import models
import onnx_models
import onnx_workloads
import open_exports
import tilewright
from open_sizes import race
from tilewright import relay
from tilewright.base.errors import CompileError, OpenSizeWarning
from tilewright.base.types import TensorType
from tilewright.relay.build_module import bind_params_by_name
from tilewright.relay.expr import Expr, Function
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.scalar.expr import Var

Feed = dict[str, Any]
Shapes = dict[str, tuple[int | str, ...]]
Drawn = Mapping[str, int]
"""A size for each open dimension."""
TOLERANCE = 1e-3
NOISE = 1e-5
NOISY = 10
"""Copies of the inputs with noise, which show whether an answer is unstable."""
BATCH = range(1, 9)
IMAGE = range(64, 321, 32)
LENGTH = range(1, 129)


@dataclass(frozen=True)
class Network:
    """A network: its model, the shapes of its inputs, the sizes that are drawn, and its inputs for a draw."""

    name: str
    model: Callable[[], Any]
    """A path or a module; raises `LookupError` or `ImportError` where it cannot be had."""
    shapes: Callable[[Any], Shapes]
    sizes: Mapping[str, Sequence[int]]
    feed: Callable[[Drawn], Feed]
    tolerance: float = TOLERANCE


@dataclass
class Row:
    """What was found for one network."""

    name: str
    refused: str = ""
    failed: str = ""
    wrong: str = ""
    ratios: dict[str, float] = field(default_factory=dict)
    """Time of the program for all sizes over that of the program for one, by sizes."""
    compiling: tuple[float, float] = (0.0, 0.0)
    """Seconds for all sizes, and the median of those for one."""
    bytes: tuple[int, int] = (0, 0)
    """Size of the artifact for all sizes, and the median of those for one; 0 where there is no file."""
    agreed: int = 0
    """Number of sizes at which the answers were compared and agree."""
    unstable: list[str] = field(default_factory=list)
    """Sizes at which the answers differ, and noise changes that of ONNX Runtime by more than the tolerance, too."""

    @property
    def agrees(self) -> bool:
        """Whether there is one program, with the right answers at all sizes."""
        return not (self.refused or self.failed or self.wrong)

    @property
    def larger(self) -> float:
        """The size of the artifact over the median of those of the programs for the raced sizes; 0 where there are
        none."""
        return self.bytes[0] / self.bytes[1] if self.bytes[1] else 0.0

    def __str__(self) -> str:
        return f"{self.name:32} {'; '.join(self._parts())}"

    def _parts(self) -> list[str]:
        if self.refused or self.failed:
            return [f"refused: {self.refused}" if self.refused else f"failed: {self.failed}"]
        unstable = f", unstable at {len(self.unstable)}" if self.unstable else ""
        parts = [f"agrees at {self.agreed} sizes{unstable}, compiling {self.compiling[0]:.1f} s"]
        if self.ratios:
            worst = max(self.ratios, key=self.ratios.__getitem__)
            parts += [
                f"time {_geometric_mean(self.ratios.values()):.2f}, worst {self.ratios[worst]:.2f} at {worst}",
                f"compiling {self.compiling[0] / self.compiling[1]:.2f}",
                f"artifact {self.larger:.2f}"]
        return [*parts, f"wrong: {self.wrong}"] if self.wrong else parts


def _geometric_mean(ratios: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log([*ratios]))))


# Where networks come from.


def _array(shape: Sequence[int]) -> Any:
    return np.random.default_rng([models.SEED, *shape]).standard_normal(shape, np.float32)


def _exported(source: models.Source, axes: Mapping[int, str]) -> Path:
    """The file of a network of `models.py` with these axes open."""
    path = models.folder() / f"{source.name}_open.onnx"
    if not path.exists():
        models.export(replace(source, open_axes=dict(axes)), path, dynamic=True)
    return path


FIXED_IMAGE = frozenset([
    "vgg16", "alexnet", "inception_v3", "deit_small_patch16_224", "vit_tiny_patch16_224", "mixer_s16_224", "swin_t",
    "r3d_18",
])
"""Networks whose exported files take one height and width."""


def _vision(source: models.Source) -> Network:
    fixed = source.name in FIXED_IMAGE
    axes = {0: "batch"} if fixed else {0: "batch", 2: "height", 3: "width"}
    shapes: dict[str, Any] = {"batch": BATCH} if fixed else {"batch": range(1, 5), "height": IMAGE, "width": IMAGE}
    own = tuple(source.inputs()["input"].shape[1:]) if fixed else ()
    dims = ("batch", *own) if fixed else ("batch", 3, "height=32..:32", "width=32..:32")

    def feed(drawn: Drawn) -> Feed:
        return {"input": _array((drawn["batch"], *(own if fixed else (3, drawn["height"], drawn["width"]))))}

    return Network(source.name, partial(_exported, source, axes), lambda _: {"input": dims}, shapes, feed)


def _language(source: models.Source) -> Network:
    def feed(drawn: Drawn) -> Feed:
        shape = drawn["batch"], drawn["length"]
        names = list(source.inputs())
        made = {
            "input_ids": np.random.default_rng(shape).integers(0, 30000, shape),
            "attention_mask": np.ones(shape, np.int64), "token_type_ids": np.zeros(shape, np.int64)}
        return {n: made[n] for n in names}

    return Network(
        source.name, partial(_exported, source, {0: "batch", 1: "length"}),
        lambda _: dict.fromkeys(source.inputs(), ("batch", "length")), {"batch": range(1, 5), "length": LENGTH}, feed)


def _of_source(source: models.Source) -> Network:
    is_text = source.build.__qualname__.startswith("_transformer")
    return _language(source) if is_text else _vision(source)


STEPS: Mapping[str, Sequence[int]] = dict.fromkeys(
    ("PP-OCRv6_det_small", "ppocrv5_det", "ch_PP-OCRv4_det"), (1, 32, 32))
"""Multiples of which the sizes of a file's inputs have to be."""


def _of_file(real: onnx_workloads.Real) -> Network:
    """A file whose sizes are drawn between those of its workload."""
    columns = list(zip(*real.sizes, strict=True))
    steps = STEPS.get(real.name, (1,) * len(columns))
    sizes: dict[str, Sequence[int]] = {
        f"{k}": sorted({*column}) if len({*column}) <= 2 else range(min(column), max(column) + 1, step)
        for k, (column, step) in enumerate(zip(columns, steps, strict=True))}
    return Network(
        real.name, lambda: real.path, partial(_own_shapes, real, steps), sizes,
        lambda drawn: real.feed(*drawn.values()), onnx_models.EXACT_ENOUGH.get(real.name, TOLERANCE))


def _own_shapes(real: onnx_workloads.Real, steps: Sequence[int], path: Path) -> Shapes:
    """The shapes of a file's inputs with its own names of dimensions, `steps` for heights and widths. Sizes that
    are the same in the whole workload are numbers, except those of batches."""
    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {t.name for t in graph.initializer}
    found: Shapes = {}
    fed = [{n: np.shape(v) for n, v in real.feed(*s).items()} for s in real.sizes]
    for i in (i for i in graph.input if i.name not in stored):
        dims = [d.dim_value if d.dim_value > 0 else d.dim_param for d in i.type.tensor_type.shape.dim]
        named = [d if isinstance(d, int) or re.search(r"[A-Za-z]", d) else f"{i.name}_{k}" for k, d in enumerate(dims)]
        found[i.name] = tuple(
            f"{d}={steps[-1]}..:{steps[-1]}" if isinstance(d, str) and steps[-1] > 1 and k >= 2 else d
            for k, d in enumerate(named))
        if i.name in fed[0]:
            found[i.name] = tuple(
                d if k == 0 or len({shapes[i.name][k] for shapes in fed}) > 1 else fed[0][i.name][k]
                for k, d in enumerate(found[i.name]))
    return found


def _opened(function: Function, batch: Any) -> Function:
    """A network with another size of the first dimension of `data`."""
    new: dict[Expr, Expr] = {}
    for p in function.params:
        t = p.tensor_type
        new[p] = relay.Var(p.name_hint, TensorType([batch, *t.shape[1:]], t.dtype)) if p.name_hint == "data" else p
    for e in post_order(function.body):
        if e not in new:
            new[e] = with_operands(e, [new[o] for o in operands(e)]) if operands(e) else e
    return Function([new[p] for p in function.params], new[function.body])  # type: ignore[misc]


def _of_testing(name: str, **arguments: Any) -> Network:
    """A network of `relay.testing` with an open batch."""
    import importlib

    def load() -> tuple[Function, tuple[int, ...]]:
        made: Any = importlib.import_module(f"tilewright.relay.testing.{name}")
        mod, params = made.get_workload(batch_size=1, **arguments)
        function = bind_params_by_name(mod["main"], params)
        (data,) = [p for p in function.params if p.name_hint == "data"]
        return function, tuple(int(d) for d in data.tensor_type.shape[1:])

    def model() -> Any:
        function, _ = load()
        return tilewright.IRModule.from_expr(_opened(function, Var("batch")))

    def feed(drawn: Drawn) -> Feed:
        return {"data": _array((drawn["batch"], *load()[1]))}

    label = f"testing.{name}" + "".join(f"_{v}" for v in arguments.values() if isinstance(v, (int, str)))
    return Network(label, model, lambda _: {"data": ("batch", *load()[1])}, {"batch": BATCH}, feed)


def _of_export(source: open_exports.Exported) -> Network:
    return Network(
        source.name, partial(open_exports.path_of, source), lambda _: source.shapes(), source.sizes, source.feed)


def networks() -> list[Network]:
    """Every network by name."""
    testing = [
        _of_testing("mlp"), _of_testing("dqn"), _of_testing("dcgan"), _of_testing("resnet", num_layers=18),
        _of_testing("resnet", num_layers=50), _of_testing("mobilenet"), _of_testing("squeezenet", version="1.0"),
        _of_testing("squeezenet", version="1.1"), _of_testing("densenet"), _of_testing("inception_v3"),
        _of_testing("vgg", num_layers=11), _of_testing("lstm", iterations=10, num_hidden=64),
    ]
    files = [_of_file(r) for r in onnx_workloads.REAL if not r.unseen]
    return [*testing, *map(_of_source, models.SOURCES), *map(_of_export, open_exports.EXPORTS), *files]


# Measurements.


def _compiled(model: Any, shapes: Mapping[str, Any], threads: int) -> tuple[Any, float]:
    """A program, and the seconds that compiling took."""
    begin = time.perf_counter()
    program = tilewright.compile(model, shapes=shapes, threads=threads)
    return program, time.perf_counter() - begin


def _stored_bytes(program: Any) -> int:
    """The size of a program's file; 0 where it has none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return int(program.save(Path(folder) / "program.so").stat().st_size)
        except CompileError:
            return 0


def _drawn(network: Network, count: int, seed: int) -> list[Drawn]:
    """Random sizes, no two alike where there are enough."""
    rng, found = random.Random(f"{seed} {network.name}"), dict[tuple[int, ...], Drawn]()
    for _ in range(count * 4):
        drawn = {name: rng.choice(choices) for name, choices in network.sizes.items()}
        found.setdefault(tuple(drawn.values()), drawn)
    return list(found.values())[:count]


def _reference(path: Any, threads: int) -> Callable[[Feed], Any] | None:
    """ONNX Runtime on a file; None for other models."""
    if not isinstance(path, Path):
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _listed(result: Any) -> list[Any]:
    """Return the outputs as ONNX Runtime gives them; a sequence of maps is a list."""
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    return [list(y) if isinstance(y, np.ndarray) and y.size and isinstance(y.flat[0], dict) else y for y in outputs]


def opened(network: Network, threads: int) -> tuple[Any, Any, float]:
    """The model, its program for all sizes, and the seconds that compiling took; raises `OpenSizeWarning`."""
    model = network.model()
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        return model, *_compiled(model, network.shapes(model), threads)


def measure(network: Network, options: argparse.Namespace) -> Row:
    """Compile a network for all sizes and for each of some sizes; compare and time."""
    row = Row(network.name)
    with warnings.catch_warnings():  # programs in stages warn at a call
        warnings.simplefilter("error", OpenSizeWarning)
        try:
            _measure(row, network, options)
        except OpenSizeWarning as refusal:
            row.refused = str(refusal).partition("sizes: ")[2]
    return row


def _measure(row: Row, network: Network, options: argparse.Namespace) -> None:
    model, program, seconds = opened(network, options.threads)
    row.compiling = seconds, 0.0
    reference, compiling, stored = _reference(model, options.threads), list[float](), list[int]()
    raced = 0 if options.no_race else options.sizes if options.race is None else options.race
    draws = _drawn(network, options.sizes, options.seed)
    for number, drawn in enumerate(draws):
        feed = network.feed(drawn)
        text = "x".join(map(str, drawn.values()))
        unstable = partial(_is_unstable, reference, feed, network.tolerance)
        if reference is not None:
            _compare(row, network, text, program(**feed), reference(feed), "ONNX Runtime", unstable)
        if reference is not None and number >= raced:
            continue
        alone, taken = _compiled(model, {n: np.shape(v) for n, v in feed.items()}, options.threads)
        _compare(row, network, text, program(**feed), alone(**feed), "the program for these sizes", unstable)
        compiling.append(taken)
        if number < raced:
            if nbytes := _stored_bytes(alone):
                stored.append(nbytes)
            row.ratios[text] = _ratio(partial(program, **feed), partial(alone, **feed), options.seconds)
            if options.each:
                print(f"  {network.name} {text}: {row.ratios[text]:.3f}", flush=True)
    row.agreed = len(draws) - len(row.unstable) if not row.wrong else 0
    if row.ratios:
        row.compiling = seconds, float(np.median(compiling))
        row.bytes = _stored_bytes(program), int(np.median(stored or [0]))


def _compare(
    row: Row, network: Network, text: str, found: Any, wanted: Any, name: str, unstable: Callable[[], bool]
) -> None:
    difference = onnx_models.difference(_listed(found), _listed(wanted))
    if difference <= network.tolerance or text in row.unstable:
        return
    if unstable():
        row.unstable.append(text)
    else:
        row.wrong = f"at {text} the answer differs from that of {name} by {difference:.0e}"


def _is_unstable(reference: Callable[[Feed], Any] | None, feed: Feed, tolerance: float) -> bool:
    """Whether noise on the inputs changes the answer of ONNX Runtime by more than the tolerance."""
    if reference is None:
        return False
    answer, generator = _listed(reference(feed)), np.random.default_rng(models.SEED)
    for _ in range(NOISY):
        noisy = {
            n: (v + NOISE * generator.standard_normal(np.shape(v))).astype(v.dtype) if v.dtype.kind == "f" else v
            for n, v in feed.items()}
        if not onnx_models.difference(_listed(reference(noisy)), answer) <= tolerance:
            return True
    return False


def _ratio(program: Callable[[], Any], alone: Callable[[], Any], seconds: float) -> float:
    both = race([program, alone], seconds)
    return both[0] / both[1]


# A service.


def _resident() -> int:
    """The resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Service:
    """Calls at random sizes: the expected seconds of each size, the calls as pairs of wall time and processor time, and
    the indices of their sizes."""

    warm: Sequence[float]
    """Medians of calls at one size in a row."""
    cold: Sequence[float]
    """Medians of calls of which each follows one at another size."""
    order: Sequence[int]
    times: Sequence[tuple[float, float]]

    def __str__(self) -> str:
        walls, processor = zip(*self.times, strict=True)
        return "; ".join([
            self._percentiles("warm", walls, self.warm), self._percentiles("cold", walls, self.cold),
            self._percentiles("processor time, cold", processor, self.cold)])

    def _percentiles(self, name: str, times: Sequence[float], expected: Sequence[float]) -> str:
        ratios = [t / expected[k] for t, k in zip(times, self.order, strict=True)]
        ends = np.percentile(ratios, [50, 99, 99.9])
        return f"{name} median {ends[0]:.2f}, 99 % {ends[1]:.2f}, 99.9 % {ends[2]:.2f}, largest {max(ratios):.2f}"


def _served(call: Callable[[Feed], Any], feeds: Sequence[Feed], options: argparse.Namespace) -> tuple[Service, str]:
    """Call a function in random order; also return the resident memory at the start and after each quarter."""
    rng = random.Random(options.seed)

    def seconds(k: int) -> tuple[float, float]:
        begin, processor = time.perf_counter(), time.thread_time()
        call(feeds[k])
        return time.perf_counter() - begin, time.thread_time() - processor

    def after_another(k: int) -> float:
        call(feeds[rng.randrange(len(feeds))])
        return seconds(k)[0]

    warm = [race([partial(call, f)], options.seconds / 20)[0] for f in feeds]
    cold = [statistics.median(after_another(k) for _ in range(9)) for k in range(len(feeds))]
    order = [rng.randrange(len(feeds)) for _ in range(options.service)]
    times, resident = [], [_resident()]
    for number, k in enumerate(order):
        times.append(seconds(k))
        if number % (len(order) // 4) == len(order) // 4 - 1:
            resident.append(_resident())
    return Service(warm, cold, order, times), ", ".join(f"{r / 1e6:.0f}" for r in resident)


def serve(network: Network, options: argparse.Namespace) -> str:
    """Call a program at random sizes in random order, and compare each time with the expected one of its size. ONNX
    Runtime then gets the same calls, which shows what the caches and the machine contribute."""
    model, program, _ = opened(network, options.threads)
    draws = _drawn(network, options.service // 4, options.seed)
    feeds = [network.feed(d) for d in draws]
    found, memory = _served(lambda feed: program(**feed), feeds, options)
    lines = [
        f"{network.name:32} {options.service} calls of {len(feeds)} sizes by the expected time: {found}; "
        f"resident MB {memory}"]
    if (reference := _reference(model, options.threads)) is not None:
        lines.append(f"{'':32} ONNX Runtime: {_served(reference, feeds, options)[0]}")
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help="all that can be had here by default")
    parser.add_argument("--sizes", type=int, default=20, help="number of random sizes of each network")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each race")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print a line for each size")
    parser.add_argument("--no-race", action="store_true", help="compare answers alone")
    parser.add_argument(
        "--race", type=int, metavar="SIZES", help="number of sizes that are compiled alone and timed; default: all")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="read the rows of finished networks from this file, and append a row when a network is finished")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--service", type=int, default=0, metavar="CALLS", help="call at random sizes in random order")
    return parser


def _finished(path: Path | None) -> dict[str, Row]:
    """Return the rows in the file by network; a later row replaces an earlier one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    return {row.name: row for row in (Row(**json.loads(line)) for line in lines)}


def _measured(network: Network, options: argparse.Namespace) -> Row:
    """Return the row of a network, and append it to the file of `--resume`."""
    try:
        row = measure(network, options)
    except CompileError as error:
        row = Row(network.name, failed=_first_line(error))
    if options.resume is not None:
        with options.resume.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
    return row


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _summary(rows: Sequence[Row]) -> str:
    """Return a line for all networks: how many have one program, and ratios of times and of sizes of artifacts."""
    text = f"{len(rows)} networks, {sum(r.agrees for r in rows)} of them with one program that agrees"
    if not (raced := [r for r in rows if r.ratios]):
        return text
    slowest = max(raced, key=lambda r: max(r.ratios.values()))
    largest = max(raced, key=lambda r: r.larger)
    return (
        f"{text}; time {_geometric_mean(x for r in raced for x in r.ratios.values()):.3f}, worst "
        f"{max(slowest.ratios.values()):.2f} ({slowest.name}); artifact at most {largest.larger:.2f} ({largest.name})")


def main() -> int:
    """Print a line for each network; 1 where an answer is wrong."""
    options = arguments().parse_args()
    known = {n.name: n for n in networks()}
    if options.list:
        print("\n".join(known))
        return 0
    if unknown := [n for n in options.names if n not in known]:
        print(f"no network called {unknown[0]}; the networks are {', '.join(known)}", file=sys.stderr)
        return 2
    finished, rows = _finished(options.resume), list[Row]()
    for name in options.names or known:
        try:
            if options.service:
                print(serve(known[name], options), flush=True)
                continue
            row = finished.get(name) or _measured(known[name], options)
        except (LookupError, ImportError, OpenSizeWarning) as missing:
            print(f"{name:32} left out: {_first_line(missing)}", flush=True)
            continue
        rows.append(row)
        print(row, flush=True)
    if rows:
        print(_summary(rows))
    return int(any(r.failed or r.wrong for r in rows))


if __name__ == "__main__":
    sys.exit(main())
