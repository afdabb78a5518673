"""Random numbers by Threefry, with the generator's state as a tensor: equal states give equal numbers on every machine.

A state is ten words of 64 bits: the key (4), the path of splits (2), the counter (2), and the position of the next
split (2). Numbers are the hash of key, path and counter. Sources: Salmon et al., "Parallel random numbers: as easy as
1, 2, 3" (SC 2011); Claessen and Palka, "Splittable pseudorandom number generators using cryptographic hashing" (Haskell
2013), encoding e4; rotations and permutation from Ferguson et al., "The Skein hash function family" (2010). Like TVM,
and unlike Random123, the key is not added again after the last round, so programs draw the same numbers as in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.work import Step

ROTATIONS: Final = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
PARITY: Final = 0x1BD11BDAA9FC1A22
ROUNDS: Final = 20
FULL: Final = (1 << 64) - 1
STATE: Final = 10


def _word(value: int) -> PrimExpr:
    return E.const(value, "uint64")


def _hash(b: Loops, key: Sequence[PrimExpr], counter: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Return the four words of Threefry for four words `counter` under a key of four."""
    parity = _word(PARITY)
    for k in key:
        parity = I.bitwise_xor(parity, k)
    whole = [*key, b.let("parity", parity)]
    x = list(counter)
    for step in range(ROUNDS // 4):
        x = [w + whole[(step + j) % 5] for j, w in enumerate(x)]
        x[3] = x[3] + _word(step)
        for turn in range(4):
            mixed = []
            for (low, high), by in zip((x[:2], x[2:]), ROTATIONS[(step * 4 + turn) % 8], strict=True):
                total = b.let("total", low + high)
                turned = I.bitwise_or(I.shift_left(high, _word(by)), I.shift_right(high, _word(64 - by)))
                mixed += [total, b.let("mixed", I.bitwise_xor(total, turned))]
            x = [mixed[0], mixed[3], mixed[2], mixed[1]]
    return x


def _next_place(state: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Return the position of the next step in the path, one bit to the right."""
    high, low = state[8], state[9]
    crossing = E.compare(E.EQ, high, _word(1))
    right = E.if_then_else(E.compare(E.EQ, high, _word(0)), I.shift_right(low, _word(1)), _word(0))
    return [I.shift_right(high, _word(1)), E.if_then_else(crossing, _word(1 << 63), right)]


def _stored(b: Loops, target: BufferVar, words: Sequence[PrimExpr]) -> None:
    for k, w in enumerate(words):
        target[k] = w


def _path_is_full(state: Sequence[PrimExpr]) -> PrimExpr:
    return E.all_of(*(E.compare(E.EQ, w, _word(0)) for w in state[8:]))


def threefry_generate(gen: te.Tensor, out_shape: Sequence[int]) -> tuple[te.Tensor, ...]:
    """Return the next state, and a tensor of random words, drawn in blocks of 4; the rest of the last block is
    skipped."""
    blocks, rest = divmod(prod(out_shape), 4)
    count = 4 * (blocks + (rest > 0))

    def body(b: Loops, old: BufferVar, new: BufferVar, out: BufferVar) -> None:
        state = [b.let(f"word{k}", old[k]) for k in range(STATE)]
        at = b.allocate("uint64", STATE, "at")
        zero = _word(0)
        with b.if_scope(state[7] < _word(FULL - count)):
            _stored(b, at, state)
        with b.else_scope():
            with b.if_scope(_path_is_full(state)):
                _stored(
                    b, at,
                    [
                        *_hash(b, state[:4], [_word(FULL), _word(FULL), _word(FULL), _word(FULL)]), zero, zero, zero,
                        zero, _word(1 << 63), zero
                    ]
                )
            with b.else_scope():
                path = [I.bitwise_or(state[4], state[8]), I.bitwise_or(state[5], state[9])]
                _stored(b, at, [*state[:4], *path, zero, zero, *_next_place(state)])
        if blocks:
            with b.shared(blocks, 4 * blocks, Step.RANDOM, "block") as block:
                words = _hash(b, [at[k] for k in range(4)], [at[k + 4] + E.cast("uint64", block) for k in range(4)])
                for k, w in enumerate(words):
                    out[block * 4 + k] = w
        if rest:
            words = _hash(b, [at[k] for k in range(4)], [at[k + 4] + _word(blocks) for k in range(4)])
            for k, w in enumerate(words[:rest]):
                out[4 * blocks + k] = w
        _stored(b, new, [*(at[k] for k in range(6)), zero, at[7] + _word(count), at[8], at[9]])

    return loops("threefry_generate", [gen], [((STATE,), "uint64"), (out_shape, "uint64")], body)


def threefry_split(gen: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return two states with independent numbers; the old state must not be used again."""

    def body(b: Loops, old: BufferVar, left: BufferVar, right: BufferVar) -> None:
        state = [b.let(f"word{k}", old[k]) for k in range(STATE)]
        zero = _word(0)
        with b.if_scope(_path_is_full(state)):
            key = [b.let("key", w) for w in _hash(b, state[:4], state[4:8])]
            _stored(b, left, [*key, zero, zero, zero, zero, _word(1 << 62), zero])
            _stored(b, right, [*key, _word(1 << 63), zero, zero, zero, _word(1 << 62), zero])
        with b.else_scope():
            place = _next_place(state)
            _stored(b, left, [*state[:8], *place])
            _stored(
                b, right,
                [*state[:4], I.bitwise_or(state[4], state[8]), I.bitwise_or(state[5], state[9]), *state[6:8], *place]
            )

    return loops("threefry_split", [gen], [((STATE,), "uint64"), ((STATE,), "uint64")], body)


def unit(bits: PrimExpr, dtype: str) -> PrimExpr:
    """Return a number in [0, 1) made from 64 random bits."""
    digits = 52 if dtype == "float64" else 23
    return E.cast(dtype, I.shift_right(bits, _word(64 - digits))) * E.const(2.0**-digits, dtype)


def uniform(
    gen: te.Tensor, low: te.Tensor, high: te.Tensor, out_shape: Sequence[int], out_dtype: str
) -> tuple[te.Tensor, ...]:
    """Return the next state, and numbers distributed uniformly over [low, high); both bounds are scalars."""
    count = prod(out_shape)

    def body(b: Loops, bits: BufferVar, least: BufferVar, most: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, count, "k") as k:
            out[k] = unit(bits[k], out_dtype) * (most[0] - least[0]) + least[0]

    state, words = threefry_generate(gen, (-(-count // 4) * 4,))
    return state, loops("uniform", [words, _flat(low), _flat(high)], [(out_shape, out_dtype)], body)[0]


def _flat(x: te.Tensor) -> te.Tensor:
    return te.compute((1,), lambda i: x(*(0,) * x.ndim), name="scalar", inline=False)


def normal(
    gen: te.Tensor, mean: te.Tensor, scale: te.Tensor, out_shape: Sequence[int], out_dtype: str
) -> tuple[te.Tensor, ...]:
    """Return the next state, and normally distributed numbers (Box-Muller method)."""
    count = prod(out_shape)

    def body(b: Loops, bits: BufferVar, middle: BufferVar, width: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, -(-count // 2), "pair") as pair:
            near = E.const(1, out_dtype) - unit(bits[pair * 2], out_dtype)
            radius = b.let("radius", I.sqrt(I.log(near) * -2.0) * width[0])
            angle = b.let("angle", unit(bits[pair * 2 + 1], out_dtype) * 6.283185307179586)
            out[pair * 2] = radius * I.cos(angle) + middle[0]
            with b.if_scope(pair * 2 + 1 < count):
                out[pair * 2 + 1] = radius * I.sin(angle) + middle[0]

    state, words = threefry_generate(gen, (-(-count // 4) * 4,))
    return state, loops("normal", [words, _flat(mean), _flat(scale)], [(out_shape, out_dtype)], body)[0]


def multinomial(gen: te.Tensor, probs: te.Tensor, num_samples: int) -> tuple[Any, ...]:
    """Return the next state, and `num_samples` classes for each row of `probs`, drawn with the probabilities of the
    row."""
    rows, classes = prod(probs.extents[:-1]), probs.extents[-1]
    shape = (*probs.extents[:-1], num_samples)

    def body(b: Loops, bits: BufferVar, share: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, rows, "row") as row:
            total = b.variable("total", probs.dtype, 0.0)
            with b.for_range(0, classes, "c") as c:
                total[0] = total[0] + share[row * classes + c]
            with b.for_range(0, num_samples, "sample") as sample:
                wanted = b.let("wanted", unit(bits[row * num_samples + sample], str(probs.dtype)) * total[0])
                reached, found = b.variable("reached", probs.dtype, 0.0), b.variable("found", "int32", 0)
                with b.for_range(0, classes - 1, "c") as c:
                    reached[0] = reached[0] + share[row * classes + c]
                    found[0] = found[0] + E.cast("int32", reached[0] <= wanted)
                out[row * num_samples + sample] = found[0]

    state, words = threefry_generate(gen, (-(-rows * num_samples // 4) * 4,))
    return state, loops("multinomial", [words, probs], [(shape, "int32")], body)[0]


