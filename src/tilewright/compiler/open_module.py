"""A Relay module with unknown dimensions (`relay.Any()`) as one native program for all sizes.

    def @main(%x: Tensor[(?, 16), float32])  ->  def @main(%x: Tensor[(x_0, 16), float32])      x_0: a symbol

Unknown dimensions may be equal, or 1 where another is not, as broadcasting allows. A program with symbols assumes one
of these cases, and its guards decide about each call. The other calls run in stages (`compiler/staged.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InputError
from tilewright.base.types import INT64, TensorType
from tilewright.compiler.cache import Cache
from tilewright.compiler.entry_values import layout_of
from tilewright.compiler.flow import needs_control
from tilewright.compiler.open_program import build_open
from tilewright.compiler.report import BuildReport
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.staged import Stages
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order, substitute
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.scalar.expr import Var as Symbol


def open_artifact(main: Function, target: Target, name: str, report: BuildReport) -> Artifact | None:
    """Return one program for all sizes of a `main` with open dimensions; None if there is no such program."""
    if target.accelerators or needs_control(main) or not _is_open(main):
        return None
    try:
        made = build_open(
            lambda replaced: with_symbols(main, replaced), {}, target, name, report, Cache.default())
    except (CompileError, InputError):
        return None
    return replace(made, manifest=replace(made.manifest, entry=layout_of(main)))


def _is_open(main: Function) -> bool:
    """Whether a function has unknown dimensions, and operators and tuples alone."""
    kinds = [p.known_type() for p in main.params]
    plain = all(
        isinstance(e.op, Op) if isinstance(e, Call) else isinstance(e, (Constant, Tuple, TupleGetItem, Var))
        for e in post_order(main.body, inside=False))
    return plain and all(isinstance(t, TensorType) for t in kinds) and any(
        isinstance(d, PrimExpr) for t in kinds if isinstance(t, TensorType) for d in t.shape)


def with_symbols(main: Function, replaced: Mapping[Symbol, PrimExpr]) -> Function:
    """Return `main` with a symbol for each unknown dimension of its parameters, where `replaced` has no size for it."""
    sizes = {v.name: e for v, e in replaced.items()}
    new: dict[Expr, Expr] = {}
    for p in main.params:
        dims = [
            sizes.get(n := f"{p.name_hint}_{k}", Symbol(n, INT64)) if isinstance(d, UnknownDim) else d
            for k, d in enumerate(p.tensor_type.shape)]
        new[p] = Var(p.name_hint, TensorType(dims, p.tensor_type.dtype), p.span)
    params: list[Any] = [new[p] for p in main.params]
    return Function(params, substitute(main.body, new), None, main.type_params, main.attrs, main.span)


class OpenStages:
    """A program for all sizes that its guards admit, and a tree of stages for all other calls."""

    def __init__(self, program: Specialization, stages: Stages) -> None:
        self.program, self.stages = program, stages

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run; `out` is an array, or one for each output, to write into."""
        inputs = self.stages.arrays(args, kwargs)
        return self._chosen(inputs)(*inputs, out=out)

    def benchmark(self, *args: Any, **options: Any) -> BenchmarkResult:
        """Time calls with these inputs."""
        names = [name for name, *_ in self.stages.signature]
        inputs = self.stages.arrays(args, {n: options.pop(n) for n in names if n in options})
        found: BenchmarkResult = self._chosen(inputs).benchmark(*inputs, **options)
        return found

    def _chosen(self, inputs: Any) -> Any:
        return self.program.executable if self.program.guards.hold(inputs) else self.stages
