"""Spans of nodes, for printing, debugging and profiling: lines of the text, positions in the order, numbered parts.

    AnnotateSpans                    the span of every node is its line in the program's text
    CapturePostDfsIndexInSpans       the span of every node is its index in post-order: `index:7`
    tag_span_suffixes                calls made from one node of the model are `conv_PART_0`, `conv_PART_1`, …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright.base.errors import CompileError, Origin
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.relay.printer import astext
from tilewright.relay.visitor import operands, post_order, rewrite, with_operands


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
    """Set the span of every node to its index in post-order, as name and line. The parameters come first, and an
    operator counts where it is first used, before its arguments.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        spans = {e: Origin(f"index:{k}", line=k) for e, k in indices(function).items()}
        params = [replace(p, span=spans[p]) for p in function.params]
        for old, new in zip(function.params, params, strict=True):
            new.set_type(old.known_type())
        found = respanned(function, spans, dict(zip(function.params, params, strict=True)))
        return Function(
            params, found.body, found.declared_ret_type, found.type_params, found.attrs, found.span)


def indices(function: Function) -> dict[Expr, int]:
    """Return the post-order index of every node; operators have indices, too."""
    index: dict[Any, int] = {p: k for k, p in enumerate(function.params)}
    opened: set[Expr] = set(function.params)
    stack: list[tuple[Any, bool]] = [(function, False)]
    while stack:
        e, is_done = stack.pop()
        if is_done or isinstance(e, type):  # an operator is its class
            index.setdefault(e, len(index))
            continue
        if e in opened:
            continue
        opened.add(e)
        below: list[Any] = [*e.params, e.body] if isinstance(e, Function) else [*operands(e)]
        if isinstance(e, Call):
            below = [e.op if isinstance(e.op, Expr) else type(e.op), *e.args]
        stack.append((e, True))
        stack.extend((o, False) for o in reversed(below))
    return {e: k for e, k in index.items() if isinstance(e, Expr)}


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


def respanned(
    function: Function, spans: Mapping[Expr, Origin], names: Mapping[Expr, Expr] | None = None
) -> Function:
    """Return the same function with other spans on these nodes, and other nodes for `names`; other parameters and names
    keep theirs. Without `names`, the bodies of called functions are not searched."""
    new: dict[Expr, Expr] = dict(names or {})
    for e in post_order(function, inside=names is not None):
        if e in new:
            continue
        old = operands(e)
        now = [new.get(o, o) for o in old]
        same = all(a is b for a, b in zip(old, now, strict=True))
        span = spans.get(e)
        if isinstance(e, (Var, GlobalVar, Constructor)) or (span is None and same):
            continue
        new[e] = _with_span(e if same else with_operands(e, now), e.span if span is None else span)
    return new.get(function, function)  # type: ignore[return-value]


def without_spans(mod: IRModule) -> IRModule:
    """Return the same module without spans, except those of variables."""
    def plain(e: Expr) -> Expr | None:
        return None if isinstance(e, (Var, GlobalVar, Constructor)) or e.span is None else _with_span(e, None)

    return mod.map_functions(lambda f: rewrite(f, plain, inside=True), Function)


def _with_span(e: Expr, span: Origin | None) -> Expr:
    if isinstance(e, Call):
        return Call(e.op, e.args, span=span)
    if isinstance(e, Function):
        return Function(e.params, e.body, e.declared_ret_type, e.type_params, e.attrs, span)
    return replace(e, span=span)  # type: ignore[type-var]
