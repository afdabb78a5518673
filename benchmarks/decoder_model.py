"""An autoregressive decoder with a growing cache as an ONNX model with random weights, in the form of common exporters.

    input_ids [batch, sequence], attention_mask [batch, past + sequence], position_ids [batch, sequence],
    past_key_values.N.key and .value [batch, kv_heads, past, head_dim]
      -> logits [batch, sequence, vocabulary], present.N.key and .value [batch, kv_heads, past + sequence, head_dim]

RMS norms, rotary embeddings, grouped queries and a gated feed-forward network. As exporters write them, shapes are
computed in the graph: Shape, Gather, Range, Slice, Expand and Where give positions, the causal mask and the repeated
heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LOWEST = np.float32(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder; `inner` is the width of the feed-forward network."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    kv_heads: int = 4
    inner: int = 2048
    vocabulary: int = 32000
    seed: int = 0

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def caches(self) -> list[str]:
        """Names of the caches, without their prefixes, in the order of the inputs."""
        return [f"{layer}.{what}" for layer in range(self.layers) for what in ("key", "value")]

    def weight_bytes(self) -> int:
        """Return the bytes of all float weights."""
        keys = self.kv_heads * self.head_dim
        layer = 2 * self.hidden * (self.hidden + keys) + 3 * self.hidden * self.inner + 2 * self.hidden
        return 4 * (self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden)

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of all caches of `tokens` tokens."""
        return 4 * 2 * self.layers * self.kv_heads * self.head_dim * tokens

    def no_past(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return empty caches."""
        empty = np.zeros((1, self.kv_heads, 0, self.head_dim), np.float32)
        return {f"past_key_values.{c}": empty for c in self.caches}


TINY = Decoder(layers=2, hidden=32, heads=4, kv_heads=2, inner=48, vocabulary=50)


class _Graph:
    """Nodes and weights of a graph under construction; methods return names of values."""

    def __init__(self, sizes: Decoder) -> None:
        self.sizes, self.nodes, self.weights = sizes, list[onnx.NodeProto](), dict[str, np.ndarray[Any, Any]]()
        self._random = np.random.default_rng(sizes.seed)
        self._count = 0
        self.scope = ""

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self._count += 1
        name = f"{self.scope}/{kind}_{self._count}"
        output = output or f"{name}_output_0"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Add an integer or float constant."""
        array = np.asarray(value)
        name = f"constant_{array.dtype}_{'_'.join(map(str, array.shape))}_{array.tobytes().hex()[:64]}"
        self.weights[name] = array
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Add a matrix of random weights, (inputs, outputs), or a vector of gains near 1."""
        values = self._random.standard_normal(shape, np.float32)
        self.weights[name] = values / np.float32(np.sqrt(shape[0])) if len(shape) > 1 else 1 + values / 8
        return name

    def dimension(self, value: str, axis: int) -> str:
        """Return the size of an axis as a scalar."""
        return self.node("Gather", self.node("Shape", value), self.constant(np.int64(axis)), axis=0)

    def unsqueezed(self, value: str, *axes: int) -> str:
        return self.node("Unsqueeze", value, self.constant(np.array(axes)))

    def vector(self, *sizes: str | int) -> str:
        """Return scalars and numbers as a vector."""
        parts = [self.constant(np.array([s])) if isinstance(s, int) else self.unsqueezed(s, 0) for s in sizes]
        return self.node("Concat", *parts, axis=0)

    def sliced(self, value: str, begin: str, end: str, axis: int) -> str:
        return self.node("Slice", value, begin, end, self.constant(np.array([axis])))

    def norm(self, value: str, name: str) -> str:
        """Return the RMS norm over the last axis."""
        square = self.node("Pow", value, self.constant(np.float32(2)))
        mean = self.node("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.constant(np.float32(1e-6))))
        scaled = self.node("Mul", value, self.node("Div", self.constant(np.float32(1)), root))
        return self.node("Mul", self.weight(name, self.sizes.hidden), scaled)

    def heads(self, value: str, batch: str, sequence: str, count: int) -> str:
        """Return [batch, sequence, count * head_dim] as [batch, count, sequence, head_dim]."""
        shape = self.vector(batch, sequence, count, self.sizes.head_dim)
        return self.node("Transpose", self.node("Reshape", value, shape), perm=[0, 2, 1, 3])

    def rotated(self, value: str, cos: str, sin: str) -> str:
        """Return x * cos + rotate_half(x) * sin."""
        half = self.node("Div", self.dimension(value, 3), self.constant(np.int64(2)))
        middle = self.unsqueezed(half, 0)
        first = self.sliced(value, self.constant(np.array([0])), middle, 3)
        second = self.sliced(value, middle, self.constant(np.array([2**63 - 1])), 3)
        turned = self.node("Concat", self.node("Neg", second), first, axis=-1)
        return self.node("Add", self.node("Mul", value, cos), self.node("Mul", turned, sin))

    def repeated(self, value: str) -> str:
        """Return [batch, kv_heads, tokens, head_dim] with every head repeated for its group of queries."""
        sizes = self.sizes
        batch, tokens = self.dimension(value, 0), self.dimension(value, 2)
        groups = sizes.heads // sizes.kv_heads
        shape = self.vector(batch, sizes.kv_heads, groups, tokens, sizes.head_dim)
        ones = self.node("ConstantOfShape", self.node("Shape", shape),
                         value=helper.make_tensor("one", INT64, [1], [1]))
        minus = self.node("Mul", ones, self.constant(np.int64(-1)))
        wanted = self.node("Where", self.node("Equal", shape, minus), ones, shape)
        wide = self.node("Expand", self.unsqueezed(value, 2), wanted)
        return self.node("Reshape", wide, self.vector(batch, sizes.heads, tokens, sizes.head_dim))


def build(sizes: Decoder) -> onnx.ModelProto:
    """Return the model."""
    g = _Graph(sizes)
    g.scope = "/model"
    sequence, batch = g.dimension("input_ids", 1), g.dimension("input_ids", 0)
    past = g.dimension("past_key_values.0.key", 2)
    x = g.node("Gather", g.weight("model.embed_tokens.weight", sizes.vocabulary, sizes.hidden), "input_ids")
    x = g.node("Mul", x, g.constant(np.float32(np.sqrt(sizes.hidden))))
    mask = _mask(g, batch, sequence, past)
    cos, sin = _rotary(g, batch)
    for layer in range(sizes.layers):
        x = _layer(g, layer, x, mask, cos, sin)
    g.scope = ""
    g.node("MatMul", g.norm(x, "model.norm.weight"), g.weight("lm_head.weight", sizes.hidden, sizes.vocabulary),
           output="logits")
    weights = [numpy_helper.from_array(a, n) for n, a in g.weights.items()]
    inputs, outputs = _signature(sizes)
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _signature(sizes: Decoder) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    total = "past_sequence_length + sequence_length"
    value = helper.make_tensor_value_info
    heads, width = sizes.kv_heads, sizes.head_dim
    ids = ["batch_size", "sequence_length"]
    inputs = [value("input_ids", INT64, ids), value("attention_mask", INT64, ["batch_size", total]),
              value("position_ids", INT64, ids)]
    inputs += [value(f"past_key_values.{c}", FLOAT, ["batch_size", heads, "past_sequence_length", width])
               for c in sizes.caches]
    outputs = [value("logits", FLOAT, [*ids, sizes.vocabulary])]
    outputs += [value(f"present.{c}", FLOAT, ["batch_size", heads, total, width]) for c in sizes.caches]
    return inputs, outputs


def _mask(g: _Graph, batch: str, sequence: str, past: str) -> str:
    """Return the mask [batch, 1, sequence, past + sequence] that is added to the scores: 0, or the lowest number."""
    total = g.node("Add", past, sequence)
    zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
    positions = g.node("Range", past, total, one)
    keys = g.node("Range", zero, total, one)
    later = g.node("Greater", keys, g.unsqueezed(positions, 1))
    lowest = helper.make_tensor("lowest", FLOAT, [1], [float(LOWEST)])
    blank = g.node("ConstantOfShape", g.vector(sequence, total), value=lowest)
    causal = g.node("Mul", blank, g.node("Cast", later, to=FLOAT))
    wide = g.node("Expand", g.unsqueezed(causal, 0, 1), g.vector(batch, 1, 1, 1))
    end = g.unsqueezed(g.dimension("attention_mask", 1), 0)
    head = g.sliced(wide, g.constant(np.array([0])), end, 3)
    given = g.node("Cast", g.unsqueezed("attention_mask", 1, 2), to=FLOAT)
    absent = g.node("Equal", g.node("Add", head, given), g.constant(np.float32(0)))
    masked = g.node("Where", absent, g.constant(LOWEST), head)
    rest = g.sliced(wide, end, g.constant(np.array([2**63 - 1])), 3)
    return g.node("Concat", masked, rest, axis=3)


def _rotary(g: _Graph, batch: str) -> tuple[str, str]:
    """Return the cosines and sines [batch, 1, sequence, head_dim] of the positions."""
    half = g.sizes.head_dim // 2
    frequencies = (1e4 ** (-np.arange(half) / half)).astype(np.float32).reshape(1, half, 1)
    wide = g.node("Expand", g.constant(frequencies), g.vector(batch, half, 1))
    places = g.node("Cast", g.unsqueezed("position_ids", 1), to=FLOAT)
    angles = g.node("Transpose", g.node("MatMul", wide, places), perm=[0, 2, 1])
    angles = g.node("Concat", angles, angles, axis=-1)
    return g.unsqueezed(g.node("Cos", angles), 1), g.unsqueezed(g.node("Sin", angles), 1)


def _layer(g: _Graph, layer: int, x: str, mask: str, cos: str, sin: str) -> str:
    prefix = f"model.layers.{layer}"
    g.scope = f"/model/layers.{layer}"
    after = g.node("Add", x, _attention(g, layer, g.norm(x, f"{prefix}.input_layernorm.weight"), mask, cos, sin))
    hidden, inner = g.sizes.hidden, g.sizes.inner
    y = g.norm(after, f"{prefix}.post_attention_layernorm.weight")
    gate = g.node("MatMul", y, g.weight(f"{prefix}.mlp.gate_proj.weight", hidden, inner))
    gate = g.node("Mul", gate, g.node("Sigmoid", gate))
    up = g.node("MatMul", y, g.weight(f"{prefix}.mlp.up_proj.weight", hidden, inner))
    down = g.node("MatMul", g.node("Mul", gate, up), g.weight(f"{prefix}.mlp.down_proj.weight", inner, hidden))
    return g.node("Add", after, down)


def _attention(g: _Graph, layer: int, x: str, mask: str, cos: str, sin: str) -> str:
    sizes, prefix = g.sizes, f"model.layers.{layer}.self_attn"
    batch, sequence = g.dimension(x, 0), g.dimension(x, 1)
    counts = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads}
    q, k, v = (
        g.heads(g.node("MatMul", x, g.weight(f"{prefix}.{n}_proj.weight", sizes.hidden, count * sizes.head_dim)),
                batch, sequence, count)
        for n, count in counts.items())
    q, k = g.rotated(q, cos, sin), g.rotated(k, cos, sin)
    k = g.node("Concat", f"past_key_values.{layer}.key", k, axis=2, output=f"present.{layer}.key")
    v = g.node("Concat", f"past_key_values.{layer}.value", v, axis=2, output=f"present.{layer}.value")
    scores = g.node("MatMul", q, g.node("Transpose", g.repeated(k), perm=[0, 1, 3, 2]))
    scores = g.node("Mul", scores, g.constant(np.float32(sizes.head_dim**-0.5)))
    causal = g.sliced(mask, g.constant(np.array([0])), g.unsqueezed(g.dimension(k, 2), 0), 3)
    powers = g.node("Softmax", g.node("Add", scores, causal), axis=-1)
    context = g.node("Transpose", g.node("MatMul", powers, g.repeated(v)), perm=[0, 2, 1, 3])
    flat = g.node("Reshape", context, g.vector(batch, sequence, sizes.hidden))
    return g.node("MatMul", flat, g.weight(f"{prefix}.o_proj.weight", sizes.hidden, sizes.hidden))


def inputs_of(
    sizes: Decoder, tokens: Sequence[int], past: dict[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a call for new tokens after a past, in the order of the model."""
    before = past["past_key_values.0.key"].shape[2]
    return {
        "input_ids": np.array([tokens], np.int64),
        "attention_mask": np.ones((1, before + len(tokens)), np.int64),
        "position_ids": np.arange(before, before + len(tokens), dtype=np.int64)[None],
        **past,
    }


def write(sizes: Decoder, path: Path) -> Path:
    """Write the model to `path`, and return it."""
    onnx.save(build(sizes), path)
    return path
