"""Puts the parts of a plan into functions of the module: `collage_<target>_<operators>`, or `collage_<target>` for
parts that became one function because one of them reads the other.

    nn.relu(%x)   ->   @collage_npu_nn_relu(%x)
                       def @collage_npu_nn_relu(%FunctionVar_0, Primitive=1, Compiler="npu", global_symbol=…)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.module import IRModule
from tilewright.relay.collage.candidates import Candidate
from tilewright.relay.collage.sub_graph import composed, sub_graph, with_call
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import consumers, operands, post_order


@dataclass(frozen=True, slots=True)
class _Region:
    """Parts of one target that become one function; `label` names the operators of a single part."""

    target: str
    label: str
    groups: tuple[tuple[str, frozenset[Expr]], ...]
    """The matches of patterns among the parts, by the names of the patterns."""
    nodes: frozenset[Expr]

    def joined(self, other: _Region) -> _Region:
        return _Region(self.target, "", self.groups + other.groups, self.nodes | other.nodes)

    def moved(self, new: dict[Expr, Expr]) -> _Region:
        """Return the region in a graph in which `new` has the nodes that changed."""
        groups = tuple((name, frozenset(new.get(e, e) for e in own)) for name, own in self.groups)
        return _Region(self.target, self.label, groups, frozenset(new.get(e, e) for e in self.nodes))


def outlined(function: Function, parts: Sequence[Candidate], mod: IRModule) -> Function:
    """Return the function with calls of global functions in place of `parts`, and add those functions to `mod`.

    A part that reads another part of its target shares its function, unless a value computed outside leads from one to
    the other.
    """
    body = function.body
    regions = _joined(body, [_region(function, part) for part in parts])
    for k, region in enumerate(regions):
        part = sub_graph(body, region.nodes)
        name = _free_name("_".join(filter(None, ("collage", region.target, region.label))), mod)
        made = composed(part, region.groups, {"Primitive": 1, "Compiler": region.target, "global_symbol": name})
        mod[name] = made
        body, new = with_call(part, mod.get_global_var(name))
        regions[k + 1 :] = [later.moved(new) for later in regions[k + 1 :]]
    return Function(
        function.params, body, function.declared_ret_type, function.type_params, function.attrs, function.span)


def _region(function: Function, part: Candidate) -> _Region:
    own = (e for e in post_order(function) if e in part.calls)
    names = [e.op.name for e in own if isinstance(e, Call) and isinstance(e.op, Op)]
    groups = tuple((member.name, member.nodes) for member in part.members if member.group is not None)
    return _Region(part.target, "_".join(names).replace(".", "_"), groups, part.nodes)


def _joined(body: Expr, regions: Sequence[_Region]) -> list[_Region]:
    """Return the regions after joining those of one target that read each other."""
    order = post_order(body, inside=False)
    users = consumers(order)
    joined = dict(enumerate(regions))
    home = {e: k for k, region in joined.items() for e in region.nodes}

    def meet_outside(pair: tuple[int, int]) -> bool:
        """Return whether a value computed outside of a pair of regions leads from one to the other."""
        waiting = [u for k in pair for e in joined[k].nodes for u in users[e] if home.get(u) not in pair]
        seen = set(waiting)
        while waiting:
            e = waiting.pop()
            for u in (u for own in (joined[home[e]].nodes if e in home else (e,)) for u in users[own]):
                if home.get(u) in pair:
                    return True
                if u not in seen:
                    seen.add(u)
                    waiting.append(u)
        return False

    for e in order:
        for o in operands(e):
            a, b = home.get(o), home.get(e)
            if a is None or b is None or a == b or joined[a].target != joined[b].target or meet_outside((a, b)):
                continue
            joined[a] = joined[a].joined(joined.pop(b))
            home.update(dict.fromkeys(joined[a].nodes, a))
    return list(joined.values())


def _free_name(name: str, mod: IRModule) -> str:
    taken = set(mod)
    return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(taken) + 2))) if n not in taken)
