"""Random accelerators and networks: a chain of random operators, a pattern that was made of it, and one random change
of the chain.

The pattern asks for some of the attributes and types that the chain has, takes other operators in some places, and
leaves some out; without the change it takes the whole chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offload_mutations import Case, Net, call
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.offload import Kind

Random = np.random.Generator
UNARY: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("nn.relu", {}, {}), ("tanh", {}, {}), ("sigmoid", {}, {}), ("erf", {}, {}), ("exp", {}, {}),
    ("nn.leaky_relu", {"alpha": 0.5}, {"alpha": 0.25}),
    ("clip", {"a_min": 0.0, "a_max": 6.0}, {"a_max": 5.0}),
    ("nn.max_pool2d", {"pool_size": (3, 3), "padding": (1, 1)}, {"ceil_mode": True}),
    ("nn.avg_pool2d", {"pool_size": (3, 3), "padding": (1, 1)}, {"count_include_pad": True}), ("sqrt", {}, {}),
    ("nn.lrn", {"size": 3}, {"bias": 1.5}),
)
"""Operators of one value, their attributes, and other values of those that a pattern asks for."""
STRANGERS = ("negative", "abs", "ceil", "sin", "rsqrt")
"""Operators that no pattern has."""


@dataclass
class Link:
    """An operator of the chain."""

    name: str
    attrs: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    constants: tuple[tuple[int, ...], ...] = ()
    optional: bool = False
    asked: bool = False
    another: str = ""
    origin: str = ""


def links(rng: Random) -> list[Link]:
    """Two to five different operators."""
    known = [Link(n, a, o) for n, a, o in UNARY]
    known += [
        Link(
            "nn.conv2d", {"padding": (1, 1), "kernel_size": (3, 3), "channels": 8}, {"dilation": (2, 2)},
            ((8, 8, 3, 3),)
        ),
        Link("nn.bias_add", {}, {}, ((8,),)), Link("subtract", {}, {}, ((1, 8, 1, 1),)),
        Link("maximum", {}, {}, ((1,),)), Link("power", {}, {}, ((1,),)),
    ]
    chosen = [known[i] for i in rng.permutation(len(known))[: rng.integers(2, 6)]]
    for i, link in enumerate(chosen):
        link.origin = f"op{i}"
        link.asked = bool(link.others) and bool(rng.integers(2))
        link.optional = 0 < i < len(chosen) - 1 and not link.others and not link.constants and bool(
            rng.integers(3) == 0
        )
        link.another = "cosh" if not link.others and not link.constants and rng.integers(3) == 0 else ""
    return chosen


def pattern_of(chain: list[Link], rng: Random) -> DFPattern:
    """A pattern that the chain looks like."""
    p: DFPattern = wildcard() if rng.integers(2) else wildcard().has_dtype("float32")
    for link in chain:
        def around(inner: DFPattern, link: Link = link, asked_of: dict[str, Any] = defaults(link)) -> DFPattern:
            op: DFPattern = is_op(link.name)
            op = op | is_op(link.another) if link.another else op
            made: DFPattern = op(inner, *(is_constant() for _ in link.constants))
            full = {k: v for k, v in asked_of.items() if k in link.others} if link.asked else {}
            return made.has_attr(full) if full else made

        p = p | around(p) if link.optional else around(p)
    return p


def defaults(link: Link) -> dict[str, Any]:
    from tilewright.relay.op.registry import get

    return get(link.name)(**link.attrs).attributes()


def built(
    net: Net, x: Any, chain: list[Link], at: int = -1, change: Callable[[Any], Any] | None = None,
    dtype: str = "float32"
) -> Any:
    """The chain on `x`; the value of the link number `at` goes through `change`."""
    for i, link in enumerate(chain):
        x = call(
            link.name, x, *(net.constant(*shape, dtype=dtype) for shape in link.constants), origin=link.origin,
            **link.attrs
        )
        x = change(x) if i == at and change is not None else x
    return x


def mutations(chain: list[Link], rng: Random) -> list[str]:
    """What may be changed of a chain."""
    found = ["extra", "escape"]
    found += ["attribute"] * any(c.asked for c in chain) + ["constant", "folded"] * any(c.constants for c in chain)
    found += ["missing"] * any(needed(c, chain) for c in chain) + ["operator"] * any(
        replaceable(c, chain) for c in chain
    )
    return found


def light(c: Link) -> bool:
    """Whether it is an operator of one value, element by element, that the pattern cannot do without."""
    return not c.constants and not c.optional and c.name not in ("nn.max_pool2d", "nn.avg_pool2d", "nn.lrn")


def replaceable(c: Link, chain: list[Link]) -> bool:
    """Whether another operator in its place has no other explanation: at the begin and for a clip at the end, that it
    is missing before the other."""
    return light(c) and c is not chain[0] and not (c is chain[-1] and c.name == "clip")


def needed(c: Link, chain: list[Link]) -> bool:
    """Whether that it is missing has no other explanation: before one that may be left out, that this stands in its
    place."""
    after = chain[chain.index(c) + 1 :]
    return light(c) and not (after and after[0].optional)


def pick(rng: Random, chain: list[Link], may: Callable[[Link], Any]) -> int:
    return int(rng.choice([i for i, c in enumerate(chain) if may(c)]))


def mutated(net: Net, x: Any, chain: list[Link], kind: str, rng: Random) -> tuple[Any, str, Kind, tuple[str, ...]]:
    """The chain on `x` with one thing changed; the operator that stays behind, the kind of the reason, and its
    words."""
    last = len(chain) - 1
    match kind:
        case "attribute":
            at = pick(rng, chain, lambda c: c.asked)
            key = str(rng.choice(list(chain[at].others)))
            chain[at].attrs = {**chain[at].attrs, key: chain[at].others[key]}
            return built(net, x, chain), chain[at].origin, Kind.ATTRIBUTE, (key, chain[at].name)
        case "constant" | "folded":
            at = pick(rng, chain, lambda c: c.constants)
            name, shape = f"{chain[at].origin}_w", chain[at].constants[0]
            weight = net.weight(name, *shape) if kind == "constant" else call("abs", net.constant(*shape))
            for i, link in enumerate(chain):
                x = call(
                    link.name, x, *([weight] if i == at else [net.constant(*s) for s in link.constants]),
                    origin=link.origin, **link.attrs
                )
            return x, chain[at].origin, Kind.CONSTANT, (f"%{name}",) if kind == "constant" else ("abs", "FoldConstant")
        case "missing":
            at = pick(rng, chain, lambda c: needed(c, chain))
            rest = [c for i, c in enumerate(chain) if i != at]
            return built(net, x, rest), rest[min(at, len(rest) - 1)].origin, Kind.MISSING, (chain[at].name,)
        case "operator":
            at, stranger = pick(rng, chain, lambda c: replaceable(c, chain)), str(rng.choice(STRANGERS))
            wanted, chain[at] = chain[at].name, Link(stranger, origin=chain[at].origin)
            return built(net, x, chain), chain[at - 1].origin, Kind.OPERATOR, (wanted, stranger)
        case "escape":
            at = int(rng.integers(0, last))
            return built(net, x, chain, at, net.seen), chain[at].origin, Kind.ESCAPE, (chain[at].name, "outside")
        case "dtype":
            return built(
                net, call("cast", call("abs", x), dtype="float16"), chain, dtype="float16"
            ), chain[0].origin, Kind.DTYPE, ("float16", "float32")
        case _:
            at, stranger = int(rng.integers(0, last)), str(rng.choice(STRANGERS))
            return built(net, x, chain, at, lambda v: call(stranger, v)), chain[at].origin, Kind.EXTRA, (stranger,)


def random_case(seed: int) -> Case:
    """A network and an accelerator, by number: a chain, or two that an operator joins."""
    rng = np.random.default_rng(seed)
    chain, net = links(rng), Net(seed)
    x = call("atan", net.input("x", (1, 8, 12, 12)))
    pattern, join = pattern_of(chain, rng), str(rng.choice(("", "add", "minimum", "multiply")))
    kinds = mutations(chain, rng)
    typed = "float32" in repr(pattern) and not join
    kind = str(rng.choice([*kinds, "dtype"] if typed else kinds))
    beside = links(rng)
    for link in beside:
        link.origin = f"beside_{link.origin}"
    first = bool(rng.integers(2))
    if join:
        other = pattern_of(beside, rng)
        pattern = is_op(join)(pattern, other) if first else is_op(join)(other, pattern)
    y, node, expected, words = mutated(net, x, chain, kind, rng)
    if join and tuple(y.checked_type.shape) != (1, 8, 12, 12):
        return random_case(seed + 100_000)
    if join:
        z, turned = built(net, x, beside), join != "minimum" and bool(rng.integers(2))
        y = call(join, y, z) if first != turned else call(join, z, y)
    return Case(
        f"random-{kind}-{seed}", net.module(call("nn.softmax", y)), [("npu.chain", pattern)], node, expected, words,
        net.params
    )


def random_cases(count: int) -> Iterator[Case]:
    yield from (random_case(i) for i in range(count))
