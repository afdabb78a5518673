"""PyTorch's own operator database (`op_db`), through two doors of the frontend, against eager PyTorch.

    python tests/torch_opinfo.py --door export --dtype float32 [--only linalg] [--samples 6] [--seed 0] [--json
    rows.jsonl]
    python tests/torch_opinfo.py --door compile                        torch.compile(backend="tilewright")
    python tests/torch_opinfo.py --door export --run interpreter       the Relay interpreter: faster, without native
        code

Every sample of an operator is a module whose inputs are the sample's tensors and whose constants are its other
arguments. A row tells the state of one operator: "agrees", "refused" (a `CompileError`), "wrong", "crash" (any other
exception, a dead or hanging process) or "skipped" (no sample could be tried), with the reason. With `--json` each row
is written when it is known, and operators whose rows are in the file already are not run again. Operators run in a
worker process.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

MOST_CANDIDATES = 200
"""Samples of an operator that are generated, of which some are drawn."""
SECONDS = 120
"""The longest time that one operator may take."""
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""Operators that leave memory as it is: shapes and types are compared."""
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "uniform",
    "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
}
"""Operators that draw numbers, with a seed of the database's own: shapes and types are compared."""
TIED = {
    "sort", "argsort", "topk", "mode", "median", "nanmedian", "kthvalue", "msort", "max_reduction_with_dim",
    "min_reduction_with_dim"
}
"""Operators whose indices are not unique where values are equal: the values at the indices are compared."""
TOLERANCES = {
    torch.float64: (1e-7, 1e-8), torch.float32: (1e-4, 1e-5), torch.float16: (4e-3, 2e-3), torch.bfloat16: (3e-2, 2e-2),
    torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-7, 1e-8),
}
"""Relative and absolute tolerances; the absolute one grows with the largest value that is expected."""


@dataclass
class Row:
    """What became of one operator by one door: the number of samples by state, and the first reason of the worst
    state."""

    op: str
    state: str
    samples: dict[str, int]
    reason: str = ""
    seconds: float = 0.0
    fallback: list[str] = field(default_factory=list)
    """Operators that PyTorch computed for us under torch.compile."""


class Skip(Exception):
    """A sample that cannot be tried, and why."""


# Samples as programs


class Sample(torch.nn.Module):
    """One call of an operator; its tensors are the inputs."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        leaves, self.spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.call = op.op
        self.tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.processed: Callable[[Any], Any] = sample.output_process_fn_grad
        if any(x.layout is not torch.strided for x in self.tensors):
            raise Skip("sparse")

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, x in zip(self.places, tensors, strict=True):
            leaves[place] = x
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.call(first, *args, **kwargs)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Fresh copies of the tensors, which keep their strides."""
        return tuple(x.clone() for x in self.tensors)


def operators(dtype: torch.dtype) -> dict[str, Any]:
    """The entries of the database that support `dtype` on the CPU, by name with variant.

    Operators that draw numbers take them from the caller's generator here. The database seeds its own around each call,
    which `torch.compile` cannot trace, and which hides that two calls differ.
    """
    from torch.testing._internal import common_methods_invocations

    common_methods_invocations.wrapper_set_seed = lambda call, *args, **kwargs: call(*args, **kwargs)
    found = {}
    for op in common_methods_invocations.op_db:
        if dtype in op.supported_dtypes("cpu"):
            found[f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name] = op
    return found


def samples(op: Any, dtype: torch.dtype, most: int, seed: int) -> list[Any]:
    """At most `most` samples of an operator, drawn by `seed`."""
    torch.manual_seed(0)
    np.random.seed(0)  # the generator that the database draws with
    random.seed(0)
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), MOST_CANDIDATES))
    if len(found) > most:
        found = [found[k] for k in sorted(random.Random(f"{seed} {op.name}").sample(range(len(found)), most))]
    return found


# Doors


def by_export(module: Sample, native: bool) -> tuple[list[Any], list[str]]:
    """What the exported program gives once it is compiled."""
    import tilewright
    from tilewright.relay.frontend import from_pytorch
    from tilewright.relay.interpreter import evaluate

    try:
        program = torch.export.export(module, module.inputs(), strict=False)
    except Exception as error:
        raise Skip(f"torch.export: {type(error).__name__}") from error
    lowered, _ = from_pytorch(program, freeze_params=True)
    names = {s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"}
    assert len(names) == len(module.tensors)
    arrays = [array_of(x) for x in module.inputs()]
    found = tilewright.compile(lowered)(*arrays) if native else evaluate(lowered["main"], *arrays)
    return (list(found) if isinstance(found, (list, tuple)) else [found]), []


def by_compile(module: Sample, native: bool) -> tuple[list[Any], list[str]]:
    """What `torch.compile` gives, and the operators that were left to torch."""
    from tilewright.compiler import torch_backend

    called: list[int] = []
    left = Left()

    def backend(graph: Any, inputs: Any) -> Any:
        called.append(1)
        return torch_backend.compile_graph(graph, inputs)

    torch._dynamo.reset()
    logger = logging.getLogger("tilewright.compiler.torch_backend")
    logger.addHandler(left)
    try:
        found = torch.compile(module, backend=backend, dynamic=False)(*module.inputs())
    except Exception as error:
        if type(error).__module__.startswith("torch._dynamo") and not called:
            raise Skip(f"torch.compile: {type(error).__name__}") from error
        raise
    finally:
        logger.removeHandler(left)
    if not called:
        raise Skip("torch.compile captures no graph")
    return tensors_in(found), left.names


class Left(logging.Handler):
    """The operators that the backend says it leaves to torch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names += getattr(record, "operators", [])


DOORS: dict[str, Callable[[Sample, bool], tuple[list[Any], list[str]]]] = {"export": by_export, "compile": by_compile}


def array_of(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """The elements of a tensor; those of bfloat16 by their bits."""
    from tilewright.base.types import DataType

    x = x.resolve_conj().resolve_neg().contiguous()
    if x.dtype is torch.bfloat16:
        return np.asarray(x.view(torch.int16).numpy()).view(DataType("bfloat16").numpy())
    return np.asarray(x.numpy())


def tensors_in(found: Any) -> list[Any]:
    """The leaves of a result that are values."""
    return [x for x in pytree.tree_leaves(found) if x is not None]


def as_tensor(x: Any) -> torch.Tensor:
    """A result as a tensor; bfloat16 of numpy by its bits."""
    if isinstance(x, torch.Tensor):
        return x.detach()
    array = np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x)
    return torch.from_numpy(
        array.view(np.int16)
    ).view(torch.bfloat16) if array.dtype.name == "bfloat16" else torch.from_numpy(array.copy())


# Comparison


def compare(op: Any, module: Sample, got: Sequence[Any], wanted: Any, again: Any) -> None:
    """Raise `AssertionError` for the first difference between our results and torch's; `again` is torch's for another
    seed."""
    theirs, second = tensors_in(wanted), tensors_in(again)
    assert len(got) == len(theirs), f"{len(got)} results, and torch gives {len(theirs)}"
    ours = [as_tensor(x) for x in got]
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        expected = torch.as_tensor(other)
        assert mine.shape == expected.shape, f"result {k} has the shape {tuple(mine.shape)}, and torch's {tuple(expected.shape)}"  # noqa: E501
        if isinstance(other, torch.Tensor):
            assert mine.dtype == other.dtype, f"result {k} is {mine.dtype}, and torch's {other.dtype}"
    drawn = any(not same(a, b) for a, b in zip(theirs, second, strict=True))
    if drawn or op.name in UNWRITTEN | RANDOM or "dropout" in op.name:
        return
    if op.name.startswith("linalg") or op.name in ("svd", "pca_lowrank", "svd_lowrank"):
        with contextlib.suppress(Exception):  # a function of gradients alone
            built = pytree.tree_unflatten(ours, pytree.tree_structure(wanted))
            ours, theirs = tensors_in(module.processed(built)), tensors_in(module.processed(wanted))
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        compare_values(op, module, k, mine, torch.as_tensor(other).detach())


def compare_values(op: Any, module: Sample, k: int, mine: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise `AssertionError` where result `k` is not torch's."""
    rtol, atol = tolerance(op, expected.dtype)
    if expected.is_floating_point() or expected.is_complex():
        finite = expected[torch.isfinite(expected)]
        atol *= max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    if op.name in TIED and expected.dtype is torch.int64 and expected.dim():
        dim = next((x for x in module.leaves if isinstance(x, int) and not isinstance(x, bool)), -1)
        if not torch.equal(mine, expected) and same_at(
            module.tensors[0], mine, expected, [dim, *range(module.tensors[0].dim())]
        ):
            return
    torch.testing.assert_close(
        mine.resolve_conj(), expected.to(mine.dtype).resolve_conj(), rtol=rtol, atol=atol, equal_nan=True,
        msg=lambda m: f"result {k}: {m}"
    )


def same_at(x: torch.Tensor, mine: torch.Tensor, theirs: torch.Tensor, dims: Sequence[int]) -> bool:
    """Whether `x` has equal values at both indices along one of `dims`."""
    for dim in dims:
        with contextlib.suppress(RuntimeError, IndexError):
            a, b = (torch.gather(x, dim, i if i.dim() == x.dim() else i.unsqueeze(dim)) for i in (mine, theirs))
            if same(a, b):
                return True
    return False


def tolerance(op: Any, dtype: torch.dtype) -> tuple[float, float]:
    """Ours, or the wider one of the database's own overrides for the operator, up to one hundredth."""
    from torch.testing._internal.common_device_type import toleranceOverride

    rtol, atol = TOLERANCES.get(dtype, (0.0, 0.0))
    for info in op.decorators or ():
        for override in getattr(info, "decorators", ()):
            if isinstance(override, toleranceOverride) and dtype in override.d:
                given = override.d[dtype]
                rtol, atol = max(rtol, min(given.rtol, 1e-2)), max(atol, min(given.atol, 1e-2))
    return rtol, atol


# Running


def outcome(op: Any, sample: Any, door: str, native: bool) -> tuple[str, str, list[str]]:
    """The state of one sample, the reason, and the operators that were left to torch."""
    from tilewright.base.errors import CompileError, InternalError

    try:
        module = Sample(op, sample)
        wanted = eager(module, 0)
        got, left = DOORS[door](module, native)
        compare(op, module, got, wanted, eager(module, 1))
    except Skip as reason:
        return "skipped", str(reason), []
    except AssertionError as error:
        return "wrong", shown(error, sample), []
    except InternalError as error:
        return "crash", shown(error, sample), []
    except CompileError as error:
        return "refused", str(error), []
    except Exception as error:  # whatever it is, it is the operator's row
        cause = error.__cause__
        if isinstance(cause, CompileError) and not isinstance(cause, InternalError):
            return "refused", str(cause), []
        return "crash", f"{type(error).__name__}: {shown(error, sample)}", []
    return "agrees", "", left


def same(a: Any, b: Any) -> bool:
    """Whether two tensors are equal; what is no number is equal to itself."""
    plain = [torch.as_tensor(x) for x in (a, b)]
    wide = [x.to(torch.complex64) if x.dtype is torch.complex32 else x for x in plain]
    return bool(torch.equal(*map(torch.nan_to_num, wide)))


def eager(module: Sample, seed: int) -> Any:
    """What torch computes."""
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            return module(*module.inputs())
    except Exception as error:
        raise Skip(f"eager: {type(error).__name__}") from error


def shown(error: BaseException, sample: Any) -> str:
    """An error and the sample it is of, on one line."""
    return f"{' '.join(str(error).split())[:400]} | {' '.join(str(sample.summary()).split())[:300]}"


def run(op: Any, name: str, door: str, dtype: torch.dtype, most: int, seed: int, native: bool = True) -> Row:
    """The row of one operator."""
    begin = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, str] = {}
    left: set[str] = set()
    with warnings.catch_warnings(), np.errstate(all="ignore"), torch.no_grad():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype, most, seed):
            state, reason, names = outcome(op, sample, door, native)
            counts[state] += 1
            reasons.setdefault(state, reason)
            left |= set(names)
    state = next((s for s in ("crash", "wrong", "refused", "agrees") if counts[s]), "skipped")
    return Row(name, state, dict(counts), reasons.get(state, ""), round(time.perf_counter() - begin, 2), sorted(left))


def work(names: Sequence[str], options: argparse.Namespace, pipe: Connection) -> None:
    """Run operators one after the other, and send their rows."""
    dtype = getattr(torch, options.dtype)
    torch.set_num_threads(1)
    known = operators(dtype)
    for name in names:
        pipe.send(None)
        pipe.send(run(known[name], name, options.door, dtype, options.samples, options.seed, options.run == "native"))
    pipe.close()


def rows(names: Sequence[str], options: argparse.Namespace) -> Iterator[Row]:
    """The rows of operators, from a worker that is started anew where it died."""
    left = list(names)
    context = multiprocessing.get_context("spawn")
    while left:
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=work, args=(left, options, theirs), daemon=True)
        worker.start()
        theirs.close()
        while left:
            why = ""
            try:
                started = ours.poll(600) and ours.recv() is None
                row = ours.recv() if started and ours.poll(options.timeout) else None
                why = "" if row else f"no result within {options.timeout} s"
            except EOFError:
                row, why = None, "the process died"
            if row is None:
                worker.kill()
                worker.join()
                row = Row(left[0], "crash", {"crash": 1}, why)
                left.pop(0)
                yield row
                break
            left.pop(0)
            yield row
        worker.join(10)


def main(arguments: Sequence[str]) -> int:
    """Run the operators; print the rows that do not agree, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--door", choices=tuple(DOORS), default="export")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--only", default="", help="operators whose names contain one of these texts, separated by commas"
    )
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="a file of rows, one a line, which is continued")
    parser.add_argument("--run", choices=("native", "interpreter"), default="native")
    parser.add_argument("--timeout", type=float, default=SECONDS)
    options = parser.parse_args(arguments)
    names = [n for n in operators(getattr(torch, options.dtype)) if any(t in n for t in options.only.split(","))]
    done: dict[str, Row] = {}
    if options.json and options.json.exists():
        done = {r["op"]: Row(**r) for r in map(json.loads, options.json.read_text().splitlines())}
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(options.json.open("a")) if options.json else None
        for row in rows([n for n in names if n not in done], options):
            done[row.op] = row
            if out:
                print(json.dumps(asdict(row)), file=out, flush=True)
            if row.state != "agrees":
                print(f"{row.op}: {row.state}: {row.reason}", flush=True)
    found = [done[n] for n in names if n in done]
    counts = collections.Counter(r.state for r in found)
    fallen = sum(bool(r.fallback) for r in found)
    print(
        f"{options.door} {options.dtype}: {len(found)} operators: "
        f"{', '.join(f'{n} {s}' for s, n in counts.most_common())}; {fallen} with a fall-back to torch"
    )
    return int(bool(counts["wrong"] or counts["crash"]))


if __name__ == "__main__":
    if "TILEWRIGHT_CACHE_DIR" not in os.environ:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TILEWRIGHT_CACHE_DIR"] = cache
            sys.exit(main(sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))
