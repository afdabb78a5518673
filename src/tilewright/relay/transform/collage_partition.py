"""Partition a graph among several targets at the lowest cost.

    add(nn.relu(nn.conv2d(%x, w)), %y); npu: nn.conv2d + nn.relu costs 2; dsp: each operator costs 3; host: 5
    -> add on dsp, fn (…, Composite="npu.conv_relu") in @tvmgen_default_npu_main_0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis.regions import DEFAULT, open_nodes
from tilewright.relay.collage.candidates import Candidate, candidates_of
from tilewright.relay.collage.cost import CostEstimator, HostCosts, MeasureCostEstimator
from tilewright.relay.collage.largest import largest
from tilewright.relay.collage.outlining import outlined
from tilewright.relay.collage.search import Plan, cheapest_plan
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.transform.annotate_target import mark_targets
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.visitor import operands, post_order, with_operands


@runtime_checkable
class Configuration(Protocol):
    """Targets of a program as objects: `tvm.target.make_compilation_config(…)`."""

    @property
    def primitive_targets(self) -> Sequence[Any]:
        """The targets of kernels: a processor, and kinds of targets that compute parts of a network."""


@dataclass(frozen=True)
class CollagePartition(Pass):
    """Assign every part of a graph to a target so that the total cost is lowest, and outline the parts of each target.

    It replaces `MergeComposite`, `AnnotateTarget`, `MergeCompilerRegions` and `PartitionGraph`. Candidates come from
    the pattern tables of the targets and their attributes `target.<name>` of operators; the host accepts everything, in
    kernels of up to `host_depth` calls. The plan is the cheapest one (`relay.collage.cheapest_plan`). Costs are
    measured unless `cost_estimator` is given. Raises `CompileError` for a call that no target supports.

    `targets` are names, or a configuration, as in TVM: then the options `relay.collage.tvm_max_depth` and
    `relay.collage.byoc_max_depth` limit the calls of a host's kernel, and the parts of a target that are estimated as
    one. Only the largest parts are estimated, the processor has its own name in place of `default`, and functions are
    called `collage_<target>_<operators>`.
    """

    targets: str | Sequence[str] | Configuration
    cost_estimator: CostEstimator = field(default_factory=MeasureCostEstimator)
    host_depth: int = 8
    mod_name: str = "default"
    bind_constants: bool = True

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if isinstance(self.targets, Configuration):
            return self._configured(mod, self.targets, context)
        targets = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)

        def marked(function: Function) -> Expr:
            if "Compiler" in function.attrs:
                return function
            plan = cheapest_plan(function, candidates_of(function, targets, self.host_depth), self.cost_estimator)
            return _marked(function, plan) if any(part.target != DEFAULT for part in plan.parts) else function

        typed = InferType()(mod)
        new = typed.map_functions(marked, Function)
        return (mod if new is typed
                else PartitionGraph(self.mod_name, self.bind_constants)(MergeCompilerRegions()(InferType()(new))))

    def _configured(self, mod: IRModule, config: Configuration, context: PassContext) -> IRModule:
        """Return the module with the parts of the targets of a configuration as functions."""
        by_code = {bool(t.get_kind_attr("is_external_codegen")): str(t.kind) for t in config.primitive_targets}
        others = [str(t.kind) for t in config.primitive_targets if t.get_kind_attr("is_external_codegen")]
        costs = HostCosts(self.cost_estimator, by_code.get(False, DEFAULT))
        depths = (context.get("relay.collage.tvm_max_depth"), context.get("relay.collage.byoc_max_depth"))
        typed = InferType()(mod)
        new = typed.copy()
        for name, function in typed.items():
            if not isinstance(function, Function) or "Compiler" in function.attrs:
                continue
            found = largest(_in_body(function, candidates_of(function, others, *depths)))
            parts = [part for part in cheapest_plan(function, found, costs).parts if part.target != DEFAULT]
            if parts:
                new[name] = outlined(function, parts, new)
        return InferType()(new) if len(new) > len(typed) else mod


def _in_body(function: Function, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of the host, and those outside of functions that the body calls in place."""
    body = {*post_order(function.body, inside=False)}
    return [c for c in candidates if c.target == DEFAULT or c.calls <= body]


def _marked(function: Function, plan: Plan) -> Expr:
    """Return the function with the parts of the plan as composite functions, if they match patterns, and marks around
    the parts of targets.
    """
    parts = {part.root: part for part in plan.parts if part.target != DEFAULT}
    new: dict[Expr, Expr] = {}
    given: dict[Expr, str] = {}
    for e in open_nodes(function):
        old = operands(e)
        post = with_operands(e, [new.get(o, o) for o in old]) if any(o in new for o in old) else e
        part = parts.get(e)
        if part is not None:
            if part.group is not None:
                composite = part.group.as_function(len(given), {"Composite": part.name})
                post = Call(composite, [new.get(o, o) for o in part.group.inputs], span=e.span)
            given[post] = part.target
        if post is not e:
            new[e] = post
    whole = new.get(function, function)
    return mark_targets(whole, given)  # type: ignore[arg-type]
