"""How long matching, rewriting and partitioning of large graphs take.

    python benchmarks/patterns.py

50 patterns on a graph of 5,000 calls: of chains of operators, with options, alternatives, attributes and dominators,
some of which match. Then a chain of 10,000 calls, each of which is rewritten. Seconds, the median of five runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tilewright import relay
from tilewright.ir import IRModule
from tilewright.relay.dataflow_pattern import (
    DFPattern,
    DFPatternCallback,
    dominates,
    is_constant,
    is_op,
    rewrite,
    wildcard,
)
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.group import groups
from tilewright.relay.transform import MergeComposite

_CALLS, _CHAIN, _RUNS = 5_000, 10_000, 5
_UNARY = ("nn.relu", "tanh", "sigmoid", "exp", "sqrt", "abs", "negative", "floor")


class Replace(DFPatternCallback):
    """One call of an operator by one of another."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.pattern = is_op(old)(wildcard())
        self.new = relay.op.get(new)()

    def callback(self, pre: Any, post: Any, node_map: Any) -> relay.Expr:
        return self.new(*post.args)


def graph() -> relay.Function:
    """Blocks of ten calls: two dense layers with biases, a residual sum, unary operators."""
    x = relay.var("x", shape=(8, 8))
    w, b = relay.const([[0.5] * 8] * 8), relay.const([0.25] * 8)
    e: Any = x
    for i in range(_CALLS // 10):
        h = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(e, w), b))
        h = relay.op.get(_UNARY[i % len(_UNARY)])()(relay.nn.bias_add(relay.nn.dense(h, w), b))
        e = relay.tanh(relay.multiply(relay.add(h, e), relay.sigmoid(h)))
    return relay.Function([x], e)


def patterns() -> list[DFPattern]:
    """Fifty patterns of five kinds."""
    dense = is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), is_constant()), is_constant())
    found: list[DFPattern] = []
    for name in (*_UNARY, "nn.softmax", "cast"):
        last = is_op(name)
        found.append(last(is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), is_constant()), is_constant())))
        found.append(last(dense.optional(is_op("nn.relu"))))
        found.append(is_op("add")(last(wildcard()) | is_op("nn.leaky_relu")(wildcard()), wildcard()))
        found.append(last(is_op("multiply")(wildcard(), is_op("sigmoid")(wildcard()))).has_dtype("float16"))
        found.append(
            dominates(
                last(wildcard()), wildcard().has_attr({"TOpPattern": 0})(wildcard()),
                is_op("multiply")(wildcard(), wildcard())
            )
        )
    return found


def seconds(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def matched(function: relay.Function, all_patterns: list[DFPattern]) -> int:
    """How many pieces the patterns find, each on its own, in one graph."""
    one = Graph(function)
    return sum(len(groups(p, one)) for p in all_patterns)


def main() -> None:
    function, fifty = graph(), patterns()
    table = [(f"npu.p{i}", p) for i, p in enumerate(fifty)]
    module = IRModule.from_expr(function)
    chain: Any = function.params[0]
    for _ in range(_CHAIN):
        chain = relay.nn.relu(chain)
    callbacks = [Replace(a, b) for a, b in pairwise(_UNARY)]
    print(
        f"{matched(function, fifty)} pieces of {len(fifty)} patterns in {_CALLS} calls: "
        f"{seconds(lambda: matched(function, fifty)):.3f} s"
    )
    print(f"the same as functions, one pattern after the other: {seconds(lambda: MergeComposite(table)(module)):.3f} s")
    print(f"{len(callbacks)} callbacks until nothing changes: {seconds(lambda: rewrite(callbacks, function)):.3f} s")
    print(
        f"a chain of {_CHAIN} calls, all rewritten: {seconds(lambda: rewrite(Replace('nn.relu', 'tanh'), chain)):.3f} s"
    )


if __name__ == "__main__":
    main()
