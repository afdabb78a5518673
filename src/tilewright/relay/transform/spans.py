"""Spans of nodes, for printing, debugging and profiling: lines of the text, positions in the order, numbered parts.

    AnnotateSpans                    the span of every node is its line in the program's text
    CapturePostDfsIndexInSpans       the span of every node is its index in post-order: `index:7`
    tag_span_suffixes                calls made from one node of the model are `conv_PART_0`, `conv_PART_1`, …
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright.base.errors import CompileError, Origin
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.relay.printer import astext
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True)
class AnnotateSpans(Pass):
    """Print the program and parse it again, so that the span of every node is its position in that text."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        from tilewright.relay.parser import parse

        return parse(astext(mod, show_meta_data=True), "GeneratedSource")


@dataclass(frozen=True)
class SpanCheck(Pass):
    """Check that every call has a span. Raises `CompileError` for the first one without."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        for name, f in mod.items():
            missing = next((e for e in post_order(f) if isinstance(e, Call) and e.span is None), None) if isinstance(
                f, Function) else None
            if missing is not None:
                raise CompileError(f"in @{name}, this call has no span; run AnnotateSpans first: {missing!r}",
                                   code="TW0402")
        return mod


@dataclass(frozen=True)
class CapturePostDfsIndexInSpans(FunctionPass):
    """Set the span of every node to its index in post-order."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        index = {e: k for k, e in enumerate(post_order(function, inside=False))}
        return respanned(function, {e: Origin(f"index:{k}") for e, k in index.items()})


def tag_span_suffixes(mod: IRModule) -> IRModule:
    """Give calls that share a span distinct spans: the same name with `_PART_0`, `_PART_1`, … in program order."""
    def tagged(function: Function) -> Function:
        by_name: dict[str, list[Expr]] = {}
        for e in post_order(function.body, inside=False):
            if isinstance(e, Call) and e.span is not None:
                by_name.setdefault(e.span.name, []).append(e)
        found = {e: replace(e.span, name=f"{name}_PART_{k}") for name, calls in by_name.items() if len(calls) > 1
                 for k, e in enumerate(calls) if e.span}
        return respanned(function, found) if found else function

    return mod.map_functions(tagged, Function)


def respanned(function: Function, spans: dict[Expr, Origin]) -> Function:
    """Return the same function with other spans on these nodes; parameters and names keep theirs."""
    new: dict[Expr, Expr] = {}
    for e in post_order(function, inside=False):
        old = operands(e)
        now = [new.get(o, o) for o in old]
        same = all(a is b for a, b in zip(old, now, strict=True))
        span = spans.get(e)
        if isinstance(e, (Var, GlobalVar)) or (span is None and same):
            continue
        new[e] = _with_span(e if same else with_operands(e, now), e.span if span is None else span)
    return new.get(function, function)  # type: ignore[return-value]


def _with_span(e: Expr, span: Origin | None) -> Expr:
    if isinstance(e, Call):
        return Call(e.op, e.args, span=span)
    if isinstance(e, Function):
        return Function(e.params, e.body, e.declared_ret_type, e.type_params, e.attrs, span)
    return replace(e, span=span)  # type: ignore[type-var]
