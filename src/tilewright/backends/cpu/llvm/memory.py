"""Loads, stores and addresses.

An index is decomposed into `sum(coefficient * atom) + constant`. Each term becomes one address computation at the
level where its atom is known, outermost first, so that inner loops add only the varying terms. The constant comes last,
as an immediate that instruction selection folds into the access.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.backends.cpu.llvm.function import FunctionText, Mask, Value
from tilewright.backends.cpu.llvm.masks import Lanes, fixed_lanes, most_pieces, pieces
from tilewright.backends.cpu.llvm.text import (
    local_name,
    memory_type,
    register_type,
    shuffle_mask,
    suffix,
    truth_constant,
    vector,
)
from tilewright.base.errors import InternalError
from tilewright.base.types import BOOL, INT64, DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, Ramp, number_of
from tilewright.tir.stmt import Store

_MOST_PIECES: Final = 4


def linear(e: PrimExpr) -> tuple[dict[PrimExpr, int], int]:
    """Return `e` as coefficients of atoms and a constant."""
    terms: dict[PrimExpr, int] = {}
    rest = 0
    stack = [(e, 1)]
    while stack:
        x, scale = stack.pop()
        if isinstance(x, E.Add):
            stack += ((x.b, scale), (x.a, scale))
        elif isinstance(x, E.Sub):
            stack += ((x.b, -scale), (x.a, scale))
        elif isinstance(x, IntImm):
            rest += scale * x.value
        elif isinstance(x, E.Mul) and isinstance(x.b, IntImm):
            stack.append((x.a, scale * x.b.value))
        else:
            terms[x] = terms.get(x, 0) + scale
    return terms, rest


def as_ramp(index: PrimExpr) -> tuple[PrimExpr, int] | None:
    """Return an index vector as the index of the first lane and the constant step; None if it is irregular."""
    match index:
        case Ramp():
            return (index.base, index.stride.value) if isinstance(index.stride, IntImm) else None
        case E.Broadcast():
            return index.value, 0
        case E.Add() | E.Sub():
            a, b = as_ramp(index.a), as_ramp(index.b)
            if a is None or b is None:
                return None
            return (E.add(a[0], b[0]), a[1] + b[1]) if isinstance(index, E.Add) else (E.sub(a[0], b[0]), a[1] - b[1])
        case E.Mul():
            a, factor = as_ramp(index.a), number_of(index.b)
            return (E.mul(a[0], int(factor)), a[1] * int(factor)) if a is not None and factor is not None else None
        case _:
            return None


def pointer(f: FunctionText, buffer: Buffer, index: PrimExpr) -> tuple[str, int, int]:
    """Return the address of the varying part of `index`, the level where it is known, and the constant left to add."""
    key = (buffer, index)
    terms, rest = linear(index if index.dtype is INT64 else E.cast(INT64, index))
    base = f.pointers.get(buffer)
    if base is None:
        raise InternalError(f"buffer '{buffer.name}' is used outside of the allocation that defines it")
    known = f.known(key, index)
    if known is not None:
        return *known, rest
    placed = []
    for atom, factor in terms.items():
        if factor:
            name, need = f.value(atom)
            placed.append((f.place(need), name, factor, atom))
    placed.sort(key=lambda term: term[0])
    text, level = base
    element = memory_type(buffer.dtype)
    prefix: tuple[Any, ...] = (buffer,)
    atoms: tuple[PrimExpr, ...] = ()
    for need, name, factor, atom in placed:
        prefix, atoms = (*prefix, atom, factor), (*atoms, atom)
        known = f.known(prefix, *atoms)
        if known is None:
            level = f.place(max(need, level))
            step = element if factor == 1 else f"[{factor} x {element}]"
            if factor < 0:
                name, step = f.put(f"mul i64 {name}, {factor}", level), element
            text = f.put(f"getelementptr {step}, ptr {text}, i64 {name}", level, local_name(buffer.name))
            f.remember(prefix, (text, level), *atoms)
        else:
            text, level = known
    if placed:
        f.remember(key, (text, level), index)
    return text, level, rest


def offset(f: FunctionText, text: str, elements: int, element: str, level: int) -> str:
    return text if elements == 0 else f.put(f"getelementptr {element}, ptr {text}, i64 {elements}", level)


def load(f: FunctionText, e: Load, otherwise: PrimExpr | None = None) -> Value:
    """Return the value of a load; under a mask, inactive lanes are not read and have the value `otherwise`."""
    index, buffer, mask = e.indices[0], e.buffer, f.mask
    if e.dtype.lanes == 1:
        text, level, rest = pointer(f, buffer, index)
        return _plain(f, e, (text, level, rest))
    if mask is not None and mask.fixed is not None:
        if not any(mask.fixed):
            return _passed_through(f, e.dtype, otherwise)
        if all(mask.fixed):
            mask = None
    shape = as_ramp(index)
    if shape is not None and shape[1] == 0:
        return _broadcast_load(f, e, shape[0], mask, otherwise)
    if shape is not None and abs(shape[1]) == 1 and (shape[1] == 1 or mask is None):
        base, lanes = shape[0], e.dtype.lanes
        if mask is not None and f.facts.loads(base):
            at = _guarded_pointer(f, buffer, base)
        else:
            at = pointer(f, buffer, base)
        if shape[1] == 1:
            return _plain(f, e, at) if mask is None else _masked(f, e, at, mask, otherwise)
        value, level = _plain(f, e, (at[0], at[1], at[2] - lanes + 1))
        kind = register_type(e.dtype)
        order = shuffle_mask(list(range(lanes - 1, -1, -1)))
        return f.put(f"shufflevector {kind} {value}, {kind} poison, {order}", level), level
    if shape is not None and mask is None and 1 < shape[1] <= _MOST_PIECES and e.dtype.lanes >= shape[1]:
        return _strided(f, e, shape[0], shape[1])
    return _gather(f, e, index, mask, otherwise)


def _guarded_pointer(f: FunctionText, buffer: Buffer, base: PrimExpr) -> tuple[str, int, int]:
    """Return the address of an index that loads, which is evaluated only if some lane of the mask is active."""
    index = E.Var("index", base.dtype)
    f.variables[index] = f.value_in_any_lane(base)
    return pointer(f, buffer, index)


def _plain(f: FunctionText, e: Load, at: tuple[str, int, int]) -> Value:
    text, need, rest = at
    level = f.place_load(need, e.buffer)
    dtype = e.dtype
    address = offset(f, text, rest, memory_type(e.buffer.dtype), level)
    raw = f.put(
        f"load {memory_type(dtype)}, ptr {address}, align {e.buffer.dtype.itemsize}", level, local_name(e.buffer.name)
    )
    ahead = f.facts.ahead.get(e.buffer.name)
    if ahead is not None and dtype.lanes > 1 and level == f.here:
        _prefetch(f, offset(f, text, rest + ahead // e.buffer.dtype.itemsize, memory_type(e.buffer.dtype), level))
    return from_memory(f, raw, dtype, level), level


def _masked(f: FunctionText, e: Load, at: tuple[str, int, int], mask: Mask, otherwise: PrimExpr | None) -> Value:
    text, need, rest = at
    other, other_at = _passed_through(f, e.dtype, otherwise)
    level = f.place_load(max(need, mask.level, other_at), e.buffer)
    stored, n, whole = to_memory(f, other, e.dtype, level), e.dtype.lanes, f.target.lanes(e.buffer.dtype)
    if mask.fixed is None:
        raw = _load_masked(
            f, e.dtype, offset(f, text, rest, memory_type(e.buffer.dtype), level), mask.text, stored, level
        )
    else:
        raw = stored
        for first in range(0, n, whole):
            raw = _load_part(f, e, (text, level, rest), raw, first, mask.fixed[first : first + whole])
    return from_memory(f, raw, e.dtype, level), level


def _load_masked(f: FunctionText, dtype: DataType, address: str, mask: str, other: str, level: int) -> str:
    kind, truth = memory_type(dtype), register_type(BOOL.with_lanes(dtype.lanes))
    name = f.declare(f"llvm.masked.load.{_memory_suffix(dtype)}.p0", kind, f"ptr, {truth}, {kind}")
    return f.put(
        f"call {kind} {name}(ptr align {dtype.element.itemsize} {address}, {truth} {mask}, {kind} {other})", level
    )


def _load_part(f: FunctionText, e: Load, at: tuple[str, int, int], whole: str, first: int, lanes: Lanes) -> str:
    """Return the vector `whole` with the active lanes from `first` on replaced; a part is one register or less."""
    (text, level, rest), n, element = at, e.dtype.lanes, memory_type(e.buffer.dtype)
    if not any(lanes):
        return whole
    kind, align = memory_type(e.dtype), e.buffer.dtype.itemsize
    if sum(lanes) == 1:
        lane = first + lanes.index(True)
        one = f.put(f"load {element}, ptr {offset(f, text, rest + lane, element, level)}, align {align}", level)
        return f.put(f"insertelement {kind} {whole}, {element} {one}, i32 {lane}", level)
    m = 1 << (len(lanes) - 1).bit_length()
    part, address = e.dtype.with_lanes(m), offset(f, text, rest + first, element, level)
    if all(lanes):
        m = len(lanes)
        loaded = f.put(f"load {vector(element, m)}, ptr {address}, align {align}", level)
    else:
        on = truth_constant([k < len(lanes) and lanes[k] for k in range(m)])
        loaded = _load_masked(f, part, address, on, whole if m == n else "zeroinitializer", level)
        if m == n:
            return loaded
    order = [min(max(k - first, 0), m - 1) for k in range(n)]
    spread = f.put(
        f"shufflevector {vector(element, m)} {loaded}, {vector(element, m)} poison, {shuffle_mask(order)}", level
    )
    order = [n + k if 0 <= k - first < len(lanes) and lanes[k - first] else k for k in range(n)]
    return f.put(f"shufflevector {kind} {whole}, {kind} {spread}, {shuffle_mask(order)}", level)


def _strided(f: FunctionText, e: Load, base: PrimExpr, stride: int) -> Value:
    """Return every `stride`-th element, from contiguous loads between the first and the last of them."""
    n = e.dtype.lanes
    text, need, rest = pointer(f, e.buffer, base)
    level = f.place_load(need, e.buffer)
    span = stride * (n - 1) + 1
    starts = [*range(0, span - n, n), span - n]
    kind, element = memory_type(e.dtype), memory_type(e.buffer.dtype)
    whole = ""
    for number, start in enumerate(starts):
        address = offset(f, text, rest + start, element, level)
        piece = f.put(f"load {kind}, ptr {address}, align {e.buffer.dtype.itemsize}", level, local_name(e.buffer.name))
        inside = [(lane, lane * stride - start) for lane in range(n)]
        order = [
            n + at if 0 <= at < n and whole else at if 0 <= at < n else lane if whole else 0 for lane, at in inside
        ]
        last = starts[number - 1] + n if number else 0  # earlier lanes are already loaded
        order = [lane if whole and lane * stride < last else o for lane, o in enumerate(order)]
        first, second = (whole, piece) if whole else (piece, "poison")
        whole = f.put(f"shufflevector {kind} {first}, {kind} {second}, {shuffle_mask(order)}", level)
    return from_memory(f, whole, e.dtype, level), level


def _broadcast_load(f: FunctionText, e: Load, index: PrimExpr, mask: Mask | None, otherwise: PrimExpr | None) -> Value:
    scalar = E.Broadcast(Load(e.buffer, (index,)), e.dtype.lanes)
    value, at = f.value(scalar)
    if mask is None:
        return value, at
    if otherwise is None:
        return value, at
    other, other_at = f.value(otherwise)
    level = f.place(max(at, other_at, mask.level))
    kind = register_type(e.dtype)
    return f.put(
        f"select {register_type(BOOL.with_lanes(e.dtype.lanes))} {mask.text}, {kind} {value}, {kind} {other}", level
    ), level


def _gather(f: FunctionText, e: Load, index: PrimExpr, mask: Mask | None, otherwise: PrimExpr | None) -> Value:
    addresses, need = _addresses(f, e.buffer, index)
    other, other_at = _passed_through(f, e.dtype, otherwise)
    lanes, lanes_at = (mask.text, mask.level) if mask else ("splat (i1 true)", 0)
    level = f.place_load(max(need, other_at, lanes_at), e.buffer)
    n = e.dtype.lanes
    wide = e.dtype.with_lanes(n if mask is None else 1 << (n - 1).bit_length())
    m = wide.lanes
    given = memory_type(e.dtype)
    addresses = _widened(f, f"<{n} x ptr>", addresses, n, m, level)
    lanes = _widened(f, f"<{n} x i1>", lanes, n, m, level)
    stored = _widened(f, given, to_memory(f, other, e.dtype, level), n, m, level)
    kind = memory_type(wide)
    name = f.declare(f"llvm.masked.gather.{_memory_suffix(wide)}.v{m}p0", kind, f"<{m} x ptr>, <{m} x i1>, {kind}")
    raw = f.put(
        f"call {kind} {name}(<{m} x ptr> align {e.buffer.dtype.itemsize} {addresses}, <{m} x i1> {lanes}, {kind} "
        f"{stored})",
        level
    )
    if m != n:
        raw = f.put(f"shufflevector {kind} {raw}, {kind} poison, {shuffle_mask(list(range(n)))}", level)
    return from_memory(f, raw, e.dtype, level), level


def _widened(f: FunctionText, kind: str, value: str, n: int, m: int, level: int) -> str:
    """Return `n` lanes, padded with zeros to `m`.

    LLVM 22 misreads the mask of a gather or scatter of 18 lanes on processors without masks (AArch64).
    """
    if n == m or value == "zeroinitializer":
        return value
    return f.put(
        f"shufflevector {kind} {value}, {kind} zeroinitializer, {shuffle_mask([min(k, n) for k in range(m)])}", level
    )


def _addresses(f: FunctionText, buffer: Buffer, index: PrimExpr) -> Value:
    """Return one address per lane."""
    wide = index if index.dtype.element is INT64 else E.cast(INT64.with_lanes(index.dtype.lanes), index)
    lanes, need = f.value(wide)
    base, at = f.pointers[buffer]
    level = f.place(max(need, at))
    return f.put(
        f"getelementptr {memory_type(buffer.dtype)}, ptr {base}, {register_type(wide.dtype)} {lanes}", level
    ), level


def _passed_through(f: FunctionText, dtype: DataType, otherwise: PrimExpr | None) -> Value:
    return ("zeroinitializer", 0) if otherwise is None else f.value(otherwise)


def from_memory(f: FunctionText, raw: str, dtype: DataType, level: int) -> str:
    """Convert a loaded value to the form in registers."""
    if dtype.bits >= 8:
        return raw
    if dtype.code == "bool":
        return f.put(f"icmp ne {memory_type(dtype)} {raw}, {'0' if dtype.lanes == 1 else 'zeroinitializer'}", level)
    return f.put(f"trunc {memory_type(dtype)} {raw} to {register_type(dtype)}", level)


def to_memory(f: FunctionText, value: str, dtype: DataType, level: int) -> str:
    """Convert a value in a register to the form in memory."""
    if dtype.bits >= 8 or value == "zeroinitializer":
        return value
    return f.put(f"zext {register_type(dtype)} {value} to {memory_type(dtype)}", level)


def store(f: FunctionText, s: Store) -> None:
    """Write a store, to memory or to a slot of a register tile."""
    index, buffer, dtype = s.indices[0], s.buffer, s.value.dtype
    if buffer in f.facts.tiles:
        _store_slot(f, s)
        return
    lanes = None if s.mask is None else fixed_lanes(f, s.mask)
    if lanes is not None and not any(lanes):
        return
    value, _ = f.value(s.value)
    mask = None if lanes is not None and all(lanes) else s.mask
    shape = as_ramp(index) if index.dtype.lanes > 1 else (index, 1)
    if shape is None or shape[1] != 1:
        _scatter(f, s, value, lanes if mask is not None else None, masked=mask is not None)
        f.forget(buffer)
        return
    text, _, rest = pointer(f, buffer, shape[0])
    element, stored = memory_type(buffer.dtype), to_memory(f, value, dtype, f.here)
    if mask is None:
        f.do(
            f"store {memory_type(dtype)} {stored}, ptr {offset(f, text, rest, element, f.here)}, align "
            f"{buffer.dtype.itemsize}"
        )
    elif lanes is not None:
        _store_pieces(f, s, stored, (text, rest), lanes)
    else:
        _store_masked(f, dtype, stored, offset(f, text, rest, element, f.here), f.value(mask)[0])
    f.forget(buffer)
    if mask is None and buffer not in f.facts.reads(index):
        again = Load(buffer, s.indices)
        f.remember(again, (value, f.here), again)


def _store_masked(f: FunctionText, dtype: DataType, stored: str, address: str, mask: str) -> None:
    kind, truth = memory_type(dtype), register_type(BOOL.with_lanes(dtype.lanes))
    name = f.declare(f"llvm.masked.store.{_memory_suffix(dtype)}.p0", "void", f"{kind}, ptr, {truth}")
    f.do(f"call void {name}({kind} {stored}, ptr align {dtype.element.itemsize} {address}, {truth} {mask})")


def _store_pieces(f: FunctionText, s: Store, stored: str, at: tuple[str, int], lanes: Lanes) -> None:
    """Store the active lanes, register by register: in a few plain stores, or under a mask of at least three lanes."""
    dtype, (text, rest) = s.value.dtype, at
    n, m = dtype.lanes, 1 << (dtype.lanes - 1).bit_length()
    kind, element, whole = memory_type(dtype.with_lanes(m)), memory_type(dtype.element), f.target.lanes(dtype.element)
    # LLVM 22 extracts the wrong lanes from 13 widened ones
    stored = _widened(f, memory_type(dtype), stored, n, m, f.here)
    for first in range(0, dtype.lanes, whole):
        part = lanes[first : first + whole]
        found = pieces(part)
        if len(found) > most_pieces(f.target, dtype.element):
            some = _part(f, kind, stored, first, len(part))
            address = offset(f, text, rest + first, element, f.here)
            _store_masked(f, dtype.with_lanes(len(part)), some, address, truth_constant(part))
            continue
        for start, length in found:
            some = _part(f, kind, stored, first + start, length)
            address = offset(f, text, rest + first + start, element, f.here)
            f.do(f"store {vector(element, length)} {some}, ptr {address}, align {dtype.element.itemsize}")


def _part(f: FunctionText, kind: str, value: str, first: int, length: int) -> str:
    """Return `length` lanes of a vector; one lane is a scalar."""
    if length == 1:
        return f.put(f"extractelement {kind} {value}, i32 {first}", f.here)
    return f.put(
        f"shufflevector {kind} {value}, {kind} poison, {shuffle_mask(list(range(first, first + length)))}", f.here
    )


def _scatter(f: FunctionText, s: Store, value: str, lanes: Lanes | None, *, masked: bool) -> None:
    """Store each lane at its own address; one active lane is a store of one element."""
    dtype, buffer = s.value.dtype, s.buffer
    n, kind, align = dtype.lanes, memory_type(dtype), buffer.dtype.itemsize
    addresses, _ = _addresses(f, buffer, s.indices[0])
    stored = to_memory(f, value, dtype, f.here)
    if lanes is not None and sum(lanes) == 1:
        one = _part(f, kind, stored, lanes.index(True), 1)
        f.do(
            f"store {memory_type(dtype.element)} {one}, ptr "
            f"{_part(f, f'<{n} x ptr>', addresses, lanes.index(True), 1)}, align {align}"
        )
        return
    m = n
    if masked and s.mask is not None:
        m = 1 << (n - 1).bit_length()
        mask = truth_constant(lanes) if lanes is not None else f.value(s.mask)[0]
        stored, addresses = _widened(f, kind, stored, n, m, f.here), _widened(
            f, f"<{n} x ptr>", addresses, n, m, f.here
        )
        mask = _widened(f, f"<{n} x i1>", mask, n, m, f.here)
    else:
        mask = "splat (i1 true)"
    wide = dtype.with_lanes(m)
    kind = memory_type(wide)
    name = f.declare(f"llvm.masked.scatter.{_memory_suffix(wide)}.v{m}p0", "void", f"{kind}, <{m} x ptr>, <{m} x i1>")
    f.do(f"call void {name}({kind} {stored}, <{m} x ptr> align {align} {addresses}, <{m} x i1> {mask})")


def _store_slot(f: FunctionText, s: Store) -> None:
    key = (s.buffer, f.facts.slot(s))
    value, at = f.value(s.value)
    if s.mask is not None:
        mask, mask_at = f.value(s.mask)
        old, old_at = f.slots.get(key, ("poison", 0))
        at = f.place(max(at, mask_at, old_at))
        kind = register_type(s.value.dtype)
        value = f.put(f"select {register_type(s.mask.dtype)} {mask}, {kind} {value}, {kind} {old}", at)
    f.set_slot(key, (value, at))


def prefetch(f: FunctionText, e: Load, level: int) -> None:
    """Request the cache line of an element into the cache of that level."""
    _prefetch(f, address(f, e), level)


def address(f: FunctionText, e: Load) -> str:
    """Return the address of an element, or of the first of a vector of elements."""
    index = e.indices[0]
    shape = as_ramp(index) if index.dtype.lanes > 1 else (index, 0)
    if shape is None:
        raise InternalError(f"one address of '{e.buffer.name}' is needed, not a vector of them")
    text, _, rest = pointer(f, e.buffer, shape[0])
    return offset(f, text, rest, memory_type(e.buffer.dtype), f.here)


def _prefetch(f: FunctionText, address: str, level: int = 1) -> None:
    name = f.declare("llvm.prefetch.p0", "void", "ptr, i32 immarg, i32 immarg, i32 immarg")
    f.do(f"call void {name}(ptr {address}, i32 0, i32 {4 - level}, i32 1)")


def _memory_suffix(dtype: DataType) -> str:
    return f"v{dtype.lanes}i8" if dtype.bits < 8 else suffix(dtype)
