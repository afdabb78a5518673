"""Deferred conversion: a node that needs values not known yet becomes a call, and is converted once they are known.

    reshape(x, shape)  ->  frontend.deferred(%x, %shape, source="json", …)  ->  reshape(%x, newshape=[2, 3])

The node is stored as text in an attribute of the call, so the call can be printed, stored and moved like any other. A
format whose nodes are not JSON has its own resolver (`relay/op/deferred.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import Origin
from tilewright.relay.expr import Call, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.reading import SourceGraph, SourceNode
from tilewright.relay.frontend.shaping import fields
from tilewright.relay.op.deferred import Ask, Deferred, register_resolver

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.importer import Importer


def waiting(op: Deferred, args: Sequence[Expr], origin: Origin, outputs: int) -> list[Expr]:
    """The outputs of a deferred node, as fields of its call."""
    call = Call(op, args, span=origin)
    return [call] if outputs == 1 else list(fields(call, outputs))


def settled(op: Deferred, results: Sequence[Expr], outputs: int, span: Origin | None) -> Expr | None:
    """The outputs of a converted node; None if it was deferred again."""
    for r in results:
        call = r.tuple_value if isinstance(r, TupleGetItem) else r
        if isinstance(call, Call) and isinstance(call.op, Deferred) and call.op.model == op.model:
            return None
    return results[0] if outputs == 1 else Tuple(tuple(results), span)


def defer(name: str, source: SourceNode, origin: Origin, args: Sequence[Expr | None],
          for_sizes: bool = False) -> list[Expr]:
    """Defer a node of the format `name` with JSON attributes; `for_sizes`: only symbolic sizes are missing."""
    said = {
        "kind": source.kind, "domain": source.domain, "version": source.version, "attributes": dict(source.attributes),
        "inputs": [None if a is None else k for k, a in enumerate(args)], "outputs": [*range(len(source.outputs))],
    }
    op = Deferred(name, source.kind, json.dumps(said), for_sizes=for_sizes)
    return waiting(op, [a for a in args if a is not None], origin, len(source.outputs))


class NodeResolver:
    """Converts the deferred nodes of a format with plain attributes."""

    def __init__(self, importer: Callable[[KnownValues], Importer]) -> None:
        self._importer = importer

    def convert(self, op: Deferred, call: Call, ask: Ask) -> Expr | None:
        """The converted node, or None if `ask` lacks a value that it needs. Raises `CompileError`."""
        from tilewright.relay.frontend.core.importer import Scope

        said: dict[str, Any] = json.loads(op.model)
        origin = call.span or Origin("", op.op_type)
        attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in said["attributes"].items()}
        source = SourceNode(said["kind"], said["inputs"], said["outputs"], attributes, origin.name, said["domain"],
                            said["version"])
        args = iter(call.args)
        operands = [None if name is None else next(args) for name in source.inputs]
        results = self._importer(KnownValues(ask)).results(source, origin, operands, Scope(SourceGraph("", {}, (), ())))
        return settled(op, results, len(source.outputs), call.span)

    def is_branch(self, op: Deferred) -> bool:
        """False: nodes of such a format have no inner graphs."""
        return False

    def content(self, op: Deferred) -> Hashable:
        """The operator itself: nodes of equal text are converted alike."""
        return op


def resolve_nodes(name: str, importer: Callable[[KnownValues], Importer]) -> None:
    """Register `importer` to convert the deferred nodes of the format `name`."""
    register_resolver(name, NodeResolver(importer))
