"""One program for dynamic sizes: symbolic dimensions of the inputs become numbers that every kernel takes.

    fn (%x: Tensor[(n, 384), float32]) { … }  ->  kernels over [n, 384] that take n, and a workspace sized by n

The function is compiled for a sample of the sizes (`scalar/arith/open_sizes.py`), which represents all of them. To
detect decisions that depend on the sample, the program is made for two samples and refused where the two differ.
Machine code is made for one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import isqrt
from typing import Any, Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base import interning
from tilewright.base.errors import CompileError, InputError, ShapeError, UnequalSizesError, UnfitSamplesError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.types import INT64, OpenSize, tensors_of
from tilewright.compiler.cache import Cache
from tilewright.compiler.kernel import Version
from tilewright.compiler.pipeline import front_half
from tilewright.compiler.program import Unfinished, build_flow, build_program
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.batch_independence import may_read_size
from tilewright.relay.expr import Call, Function
from tilewright.relay.frontend.core.known import ShapeValues
from tilewright.relay.op.deferred import Waiting
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.fuse_ops import FuseOps
from tilewright.relay.transform.open_sizes import symbols_of, with_samples, with_sizes
from tilewright.relay.transform.pipeline import graph_passes
from tilewright.relay.transform.split_batch import PARTS
from tilewright.relay.transform.stages import is_static, needs_stages, resolve
from tilewright.relay.visitor import post_order
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import Symbol
from tilewright.runtime.program import OutsideStep
from tilewright.runtime.size_rules import Requirement
from tilewright.scalar.arith.branches import Branches
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.arith.open_sizes import Limit, Samples, clamps, open_size, samples
from tilewright.scalar.arith.size_equations import equation
from tilewright.scalar.expr import FloorDiv, IntImm, Mul, PrimExpr, Var, as_expr, number_of
from tilewright.scalar.walk import free_vars, substitute, text_of, walk
from tilewright.topi.shapes import require_at_least

Array = np.ndarray[Any, Any]
_FEWEST: Final = 4
_SMALL: Final = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
_MOST_EQUATIONS: Final = 32
"""Number of equations between the dimensions of a model."""
Range = tuple[int, "int | None"]
Resolved = Callable[[Function], Function]
_MOST_TRIALS: Final = 2000
"""Number of samples of single sizes that are tried."""
Bound = tuple[PrimExpr, int]
"""A sum of sizes and its least value."""
Equation = tuple[PrimExpr, PrimExpr]
"""Two sizes that must be equal."""
_Pairs = tuple[tuple[int, ...], tuple[int, ...]]
"""The first and the second samples of sizes."""

_SAMPLES: Final[_Pairs] = (
    (61, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197),
    (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293))
"""Samples of the first sizes; further ones follow in the same way. They are primes, so that no constant of a model is
likely to divide or equal both samples of a size."""
_MOST_SIZES: Final = 256
"""Number of symbolic dimensions of a program."""
_LARGEST: Final = 1 << 31
"""Sizes above which a limit of a size is taken for a contradiction."""
_LARGE_SAMPLES: Final[_Pairs] = (
    (1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097, 1103, 1109, 1117),
    (4093, 4099, 4111, 4127, 4129, 4133, 4139, 4153, 4157, 4159, 4177, 4201, 4211, 4217, 4219, 4229))
"""Samples for programs in which a threshold of a schedule lies between the usual ones: all sizes count as large. Sizes
with small limits get the largest two of their samples."""


class OpenSizeError(CompileError):
    """A program cannot be compiled for dynamic sizes; it can be compiled for each combination of sizes.

    `sizes` are two sizes that must be equal, if that is the reason, and `bound` is a sum that is too small for the
    samples. `samples_differ` if the programs of two samples differ, so that others may agree. `waits` if sizes depend
    on values of a call, so that stages may be compiled for all sizes.
    """

    code = "TW0304"
    sizes: Equation | None = None
    bound: Bound | None = None
    samples_differ = False
    waits = False


def build_open(
    make: Callable[[Mapping[Var, PrimExpr]], Function], ranges: Mapping[str, Range], target: Target, name: str,
    report: BuildReport, cache: Cache, resolved: Resolved | None = None, *, counts: bool = False,
) -> Artifact:
    """Compile the function that `make` imports for its symbolic dimensions, whose `ranges` are given by name.

    `make` replaces dimensions by expressions of others: dimensions that the model requires to be equal are one
    dimension, and each call checks that. `resolved` converts what waits for sizes once they are samples, and may return
    a part of the function with some of its parameters. With `counts`, the minimum of a size and a number is a size;
    otherwise the number limits the size. Raises `OpenSizeError` if the model cannot be compiled for dynamic sizes,
    `InputError` for a range that the model excludes.
    """
    with samples({}, clamps=counts) as context:
        try:
            return _solved(make, ranges, target, name, report, cache, resolved or _resolved)
        except OpenSizeError:
            if not context.branches.has_limits:
                raise
            context.branches = Branches(are_apart=False)
            return _solved(make, ranges, target, name, report, cache, resolved or _resolved)


def _solved(
    make: Callable[[Mapping[Var, PrimExpr]], Function], ranges: Mapping[str, Range], target: Target, name: str,
    report: BuildReport, cache: Cache, resolved: Resolved,
) -> Artifact:
    """Compile the function that `make` imports, with dimensions that must be equal as one dimension."""
    replaced: dict[Var, PrimExpr] = {}
    equal: list[Equation] = []
    wanted = dict(ranges)
    with no_garbage_collection():
        for _ in range(_MOST_EQUATIONS):
            try:
                return _built(make, replaced, equal, wanted, target, name, report, cache, resolved)
            except OpenSizeError as error:
                if error.sizes is None or error.sizes in equal:
                    raise
                found = equations(error, replaced)
                if found is None:
                    equal.append(error.sizes)
                    continue
                equal = [(substitute(a, {**found}), substitute(b, {**found})) for a, b in equal]
                for old, size in found.items():
                    if old not in replaced:
                        _narrow(wanted, old, size)
                replaced = found
            finally:
                interning.release()
    raise OpenSizeError(f"its dimensions have to satisfy more than {_MOST_EQUATIONS} equations")


def equations(error: CompileError, replaced: Mapping[Var, PrimExpr]) -> dict[Var, PrimExpr] | None:
    """Return `replaced` and further dimensions as expressions of others, if `error` requires sizes to be equal; None
    for another error, and for an equation without a solution for one dimension."""
    sizes = required_sizes(error)
    found = sizes and equation(*sizes)
    if not found or len(replaced) == _MOST_EQUATIONS:
        return None
    return {v: substitute(e, {**found}) for v, e in replaced.items()} | found


def required_sizes(error: CompileError) -> Equation | None:
    """Return the two sizes that must be equal, if that is the reason of an error."""
    return (error if isinstance(error, OpenSizeError) else _refusal(error)).sizes


def _narrow(wanted: dict[str, Range], old: Var, size: PrimExpr) -> None:
    """Add the range of the variable in a multiple to `wanted`; check a number against the range of its variable."""
    least, most = asked = wanted.get(old.name, (1, None))
    if isinstance(size, Mul) and isinstance(size.a, Var):
        wanted[size.a.name] = _scaled(asked, size)
    elif isinstance(size, IntImm) and not (least <= size.value and (most is None or size.value <= most)):
        raise _excluded(old.name, asked, size.value, size.value)


def _scaled(wanted: Range, size: Mul) -> Range:
    """Return the range of the variable in `variable * step` for the range of the product."""
    step, (least, most) = number_of(size.b), wanted
    assert isinstance(step, int)
    return -(-least // step), None if most is None else most // step


def _built(
    make: Callable[[Mapping[Var, PrimExpr]], Function], replaced: Mapping[Var, PrimExpr], equal: Sequence[Equation],
    ranges: Mapping[str, Range], target: Target, name: str, report: BuildReport, cache: Cache, resolved: Resolved,
) -> Artifact:
    spare = [*_SAMPLES[0], *range(_SAMPLES[1][-1], _SAMPLES[1][-1] + 2 * _MOST_SIZES, 2)]
    limited = {name: most for name, (_, most) in ranges.items() if most is not None}
    with samples({}, spare, {name: least for name, (least, _) in ranges.items()}, most=limited) as known:
        known.equations(equal)
        main = _imported(lambda: with_sizes(make(replaced), replaced))
    renamed = _named(symbols_of(main))
    early = [_symbol(old, new, ranges, [known.limits.get(old)]) for old, new in renamed.items()]
    limits = [(s.least, known.limits.get(old, (0, None))[1]) for s, old in zip(early, renamed, strict=True)]
    imported = _Imported(
        main, renamed, equal, {s.name: s.least for s in early},
        {s.name: s.most for s in early if s.most is not None}, resolved)
    required = [(imported.named(e), n) for e, n in known.requirements()]
    try:
        made, found = _for_samples(imported, required, limits, target, name, report, cache)
    except OpenSizeError as error:
        if error.sizes is not None:
            given = {new: old for old, new in renamed.items()}
            error.sizes = substitute(error.sizes[0], {**given}), substitute(error.sizes[1], {**given})
        raise
    report.take(made.report)
    symbols = [
        _symbol(old, new, ranges, [known.limits.get(old), found.limits.get(new)]) for old, new in renamed.items()]
    requirements = [
        *(Requirement(text_of(imported.named(a)), "==", text_of(imported.named(b))) for a, b in equal),
        *(Requirement(text_of(e), ">=", n) for e, n in (*required, *found.requirements()))]
    return replace(
        made, manifest=replace(made.manifest, symbols=tuple(symbols), requirements=tuple(dict.fromkeys(requirements)))
    ).finish()


@dataclass(frozen=True)
class _Imported:
    """A function with symbolic dimensions, their names in the program, and their `least` and `most` values by these
    names."""

    main: Function
    renamed: Mapping[Var, Var]
    equal: Sequence[Equation]
    least: Mapping[str, int]
    most: Mapping[str, int]
    resolved: Resolved

    def named(self, e: PrimExpr) -> PrimExpr:
        """Return a size with the names of the program."""
        return substitute(e, {**self.renamed})


def _for_samples(
    imported: _Imported, required: list[Bound], limits: Sequence[Limit], target: Target, name: str,
    report: BuildReport, cache: Cache,
) -> tuple[Unfinished, Samples]:
    """Return the program, and the limits of its sizes, for samples that satisfy what the model requires of sums of
    sizes; adds these bounds to `required`."""
    pairs, larger = _SAMPLES, _larger_samples(imported)
    refused: OpenSizeError | None = None
    for _ in range(_MOST_EQUATIONS):
        numbers = _fitting(_numbers(limits, pairs), limits, tuple(imported.renamed.values()), required)
        try:
            return _checked(imported, numbers, target, name, report, cache)
        except OpenSizeError as error:
            if error.bound is not None and error.bound not in required:
                required.append(error.bound)
                continue
            following = next(larger, None) if error.samples_differ else None
            if following is None:
                raise (refused or error) from error
            pairs, refused = following, error
    raise OpenSizeError(f"its dimensions have to satisfy more than {_MOST_EQUATIONS} conditions")


def _larger_samples(imported: _Imported) -> Iterator[_Pairs]:
    """Yield samples for programs in which a threshold of a schedule lies between the usual ones: large ones, and then
    multiples of these by the numbers that divide the sizes, so that the quotients are large."""
    yield _LARGE_SAMPLES
    divisors = _divisors(imported)
    if max(divisors, default=1) == 1:
        return
    first, second = _LARGE_SAMPLES
    scaled: list[tuple[int, int]] = []
    for a, b, by in zip(first, second, (*divisors, *(1,) * len(first)), strict=False):
        taken = [n for pair in scaled for n in pair]
        scaled.append((_prime(a * by, taken), _prime(b * by, taken)))
    yield tuple(a for a, _ in scaled), tuple(b for _, b in scaled)


def _divisors(imported: _Imported) -> list[int]:
    """Return the greatest divisor of each symbol in the dimensions of the function's values."""
    numbers = [n for n, _ in zip(_LARGE_SAMPLES[0], imported.renamed, strict=False)]
    symbols = tuple(imported.renamed.values())
    found = dict.fromkeys(symbols, 1)
    try:
        with _sampling(imported, numbers):
            sampled = imported.resolved(with_samples(imported.main, imported.renamed))
            sizes = _dimensions(sampled)
    except CompileError:
        return []
    for quotient in (e for d in sizes for e in walk(as_expr(d)) if isinstance(e, FloorDiv)):
        if isinstance(quotient.b, IntImm):
            found.update({v: max(found.get(v, 1), quotient.b.value) for v in free_vars(quotient.a)})
    return [found[v] for v in symbols]


def _fitting(
    numbers: Sequence[tuple[int, int]], limits: Sequence[Limit], symbols: Sequence[Var], required: Sequence[Bound]
) -> Sequence[tuple[int, int]]:
    """Return samples within the limits for which the sums have their least values; `numbers` if none are found.

    The symbols of these sums exchange their samples, or take larger ones; those in most sums are chosen first, and
    those that sums grow with try the largest first.
    """
    involved = [v for e, _ in required for v in dict.fromkeys(free_vars(e))]
    places = sorted((k for k, v in enumerate(symbols) if v in involved), key=lambda k: -involved.count(symbols[k]))
    candidates = (*(numbers[k] for k in places), *zip(*_LARGE_SAMPLES, strict=True))
    trials = iter(range(_MOST_TRIALS))
    grows = {k: sum(_growth(e, symbols[k]) for e, _ in required) > 0 for k in places}

    def completed(found: Mapping[Var, tuple[int, int]]) -> Mapping[Var, tuple[int, int]] | None:
        if len(found) == len(places):
            return found
        place = places[len(found)]
        least, most = limits[place]
        for pair in reversed(candidates) if grows[place] else candidates:
            if pair in found.values() or pair[0] < least or (most is not None and pair[1] > most):
                continue
            if next(trials, None) is None:
                return None
            more = {**found, symbols[place]: pair}
            if _satisfy(more, required) and (whole := completed(more)) is not None:
                return whole
        return None

    fitting = completed({}) or {}
    return [fitting.get(v, pair) for v, pair in zip(symbols, numbers, strict=True)]


def _growth(e: PrimExpr, symbol: Var) -> int:
    """Return by how much a sum of sizes grows with a symbol, for large sizes."""
    sizes = dict.fromkeys(free_vars(e), _LARGE_SAMPLES[0][0])
    return evaluate(e, {**sizes, symbol: sizes[symbol] + 1}) - evaluate(e, {**sizes}) if symbol in sizes else 0


def _satisfy(samples_of: Mapping[Var, tuple[int, int]], required: Sequence[Bound]) -> bool:
    """Whether the sums of symbols that all have samples have their least values."""
    return all(
        evaluate(e, {v: pair[k] for v, pair in samples_of.items()}) >= least
        for e, least in required if samples_of.keys() >= set(free_vars(e)) for k in (0, 1))


def _imported(make: Callable[[], Function]) -> Function:
    try:
        return make()
    except CompileError as error:
        if error.code not in (ShapeError.code, OpenSizeError.code):
            raise
        raise _refusal(error) from error


def _refusal(error: CompileError) -> OpenSizeError:
    """Return the error for a program that cannot be compiled for dynamic sizes because of `error`."""
    refused = OpenSizeError(error.message, error.origin)
    cause: BaseException | None = error
    while cause is not None and refused.sizes is None:  # an error is raised again with the node of the model
        refused.sizes = cause.sizes if isinstance(cause, UnequalSizesError) else None
        refused.bound = cause.bound if isinstance(cause, UnfitSamplesError) else refused.bound
        cause = cause.__cause__
    return refused


def _named(symbols: Sequence[Var]) -> dict[Var, Var]:
    """Rename the sizes so that their names are valid in texts of sizes."""
    if len(symbols) > _MOST_SIZES:
        raise OpenSizeError(
            f"it has {len(symbols)} symbolic dimensions ({', '.join(v.name for v in symbols[:8])}, …), and the limit "
            f"is {_MOST_SIZES}")
    renamed: dict[Var, Var] = {}
    for v in symbols:
        wanted = "".join(c if c.isalnum() and c.isascii() else "_" for c in v.name)
        wanted = wanted if wanted.isidentifier() and wanted not in ("min", "max") else f"n_{wanted}"
        taken = {s.name for s in renamed.values()}
        renamed[v] = Var(next(t for t in (wanted, *(f"{wanted}_{k}" for k in range(len(symbols)))) if t not in taken))
    return renamed


def _symbol(old: Var, new: Var, ranges: Mapping[str, Range], limits: Sequence[Limit | None]) -> Symbol:
    """Return a size with its range: the requested one, intersected with the limits of the model."""
    least, most = wanted = ranges.get(old.name, (1, None))
    for low, high in (limit for limit in limits if limit is not None):
        least = max(least, low)
        most = high if most is None else most if high is None else min(most, high)
    if most is not None and most < least:
        raise _excluded(old.name, wanted, least, most)
    return Symbol(new.name, least, most)


def _excluded(name: str, wanted: Range, least: int, most: int) -> InputError:
    """Return the error for a range that the model excludes."""
    takes = f"only {least}" if least == most else f"{least} to {most}"
    return InputError(
        f"dimension '{name}' is given as {wanted[0]} to {wanted[1]}, but the model takes {takes}; give another range",
        code="TW0709")


def _numbers(limits: Sequence[Limit], pairs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return two samples for each size, within its known limits, from `pairs` where the limits allow it."""
    free = list(_SMALL)
    found: list[tuple[int, int]] = []
    for first, second, limit in ((*pair, limit) for pair, limit in zip(_pairs(pairs), limits, strict=False)):
        least, most = limit
        taken = {n for pair in found for n in pair}
        if least > _LARGEST:
            raise OpenSizeError(f"one of its sizes must be at least {least}, which is larger than any tensor")
        if least > first:
            first = _prime(least, taken)
            second = _prime(max(second, 2 * first), taken)
        if most is not None and most < second:
            fitting = [p for p in (*free, *_SAMPLES[0]) if least <= p <= most]
            if len(fitting) < _FEWEST:
                if not clamps():
                    raise OpenSizeError(
                        f"one of its sizes is from {least} to {most}, which is too few to represent all")
                found.append((first, second))  # of a count, which no model contains as a number
                continue
            found.append((fitting[len(fitting) // 2 if pairs is _SAMPLES else -2], fitting[-1]))
            free = [p for p in free if p not in found[-1]]
            continue
        found.append((first, second))
    return found


def _pairs(first: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of samples: the `first` ones, then further primes above them."""
    yield from zip(*first, strict=True)
    last = max(map(max, first))
    while True:
        before = _prime(last + 1, ())
        last = _prime(before + 1, ())
        yield before, last


def _prime(least: int, taken: Container[int]) -> int:
    """Return the smallest prime from `least` that is not taken."""
    return next(n for n in count(least) if n not in taken and all(n % d for d in range(2, isqrt(n) + 1)))


def _checked(
    imported: _Imported, numbers: Sequence[tuple[int, int]], target: Target, name: str, report: BuildReport,
    cache: Cache,
) -> tuple[Unfinished, Samples]:
    """Return the program, and the limits of its sizes. It computes one image after another where that is best for large
    batches, or the only way."""
    main = imported.main

    def program(batch: Var | None) -> tuple[Unfinished, Samples]:
        own = report.apart()
        try:
            made, found = _made(imported, batch, [n for n, _ in numbers], target, name, own, cache)
        except OpenSizeError as error:
            if error.sizes is not None and not _requires(imported, batch, [n for _, n in numbers], target, error.sizes):
                error.sizes = None
            raise
        if batch is not None and any(isinstance(step, OutsideStep) for step in made.manifest.steps):
            raise OpenSizeError("operators that run in Python take a whole batch, not one image after another")
        if set(imported.renamed) - {batch}:  # sizes that the program for one image does not determine
            check, _ = _made(imported, batch, [n for _, n in numbers], target, name, BuildReport(), None)
            _compare(made, check)
        return made, found

    batch = _batch_of(main, imported.equal)
    if batch is not None and _is_apart(imported, batch, numbers, target, 0):
        return program(batch)
    try:
        return program(None)
    except OpenSizeError as error:
        if batch is None or error.sizes is not None or not _is_apart(imported, batch, numbers, target, 1):
            raise
        return program(batch)


def _requires(
    imported: _Imported, batch: Var | None, numbers: Sequence[int], target: Target, sizes: Equation
) -> bool:
    """Whether the model requires two sizes to be equal for other samples as well, so that they do not depend on the
    samples."""
    try:
        _made(imported, batch, numbers, target, "", BuildReport(), None)
    except OpenSizeError as error:
        return error.sizes is not None and all(a is b for a, b in zip(error.sizes, sizes, strict=True))
    return False


def _batch_of(main: Function, equal: Sequence[Equation]) -> Var | None:
    """Return the symbolic first dimension that all inputs share; None if they share none, or other dimensions depend
    on it."""
    first = {p.tensor_type.shape[0] if p.tensor_type.ndim else None for p in main.params}
    batch = first.pop() if len(first) == 1 else None
    others = {v for p in main.params for d in p.tensor_type.shape[1:] if isinstance(d, PrimExpr) for v in free_vars(d)}
    others.update(v for pair in equal for e in pair for v in free_vars(e))
    return batch if isinstance(batch, Var) and batch not in others else None


def _is_apart(imported: _Imported, batch: Var, numbers: Sequence[tuple[int, int]], target: Target, images: int) -> bool:
    """Whether a large batch is computed one image after another: by the rule of `SplitBatch`, or with `images` of 1
    where possible. The program for one image must not depend on the size of the batch.

    False as well where the model refuses the sample sizes; compiling it for them reports the reason.
    """
    one = _for_one_image(imported.main, batch, [n for n, _ in numbers], target, images)
    if one is None:
        return False
    if not _reads_size(imported, batch, [n for n, _ in numbers]):
        return True
    others = [(b if v is batch else a) for v, (a, b) in zip(symbols_of(imported.main), numbers, strict=True)]
    other = _for_one_image(imported.main, batch, others, target, images)
    return other is not None and structural_equal(one, other)


def _reads_size(imported: _Imported, size: Var, numbers: Sequence[int]) -> bool:
    """Whether values may depend on a size; True as well where the model refuses the samples."""
    try:
        with _sampling(imported, numbers):
            sampled = imported.resolved(with_samples(imported.main, imported.renamed))
            return may_read_size(sampled, imported.renamed[size])
    except CompileError:
        return True


def _for_one_image(
    main: Function, batch: Var, numbers: Sequence[int], target: Target, images: int
) -> Function | None:
    """Return the optimized function for one image, if a batch of the sample size is computed so; None otherwise."""
    known = {v: IntImm(INT64, n) for v, n in zip(symbols_of(main), numbers, strict=True)}
    context = PassContext.current()
    switches = {**context.config, "relay.SplitBatch.images": images} if images else dict(context.config)
    disabled = (*context.disabled_pass, FuseOps().info.name)  # a later pass
    try:
        with PassContext(context.opt_level, disabled_pass=disabled, config=switches):
            optimized = graph_passes(target)(IRModule({"main": with_samples(main, known)}))["main"]
    except CompileError:
        return None
    if optimized.attrs.get(PARTS, 1) != known[batch].value:
        return None
    attrs = {k: v for k, v in optimized.attrs.items() if k != PARTS}
    return Function(
        optimized.params, optimized.body, optimized.ret_type, optimized.type_params, attrs, optimized.span)


def _made(
    imported: _Imported, batch: Var | None, numbers: Sequence[int], target: Target, name: str, report: BuildReport,
    cache: Cache | None,
) -> tuple[Unfinished, Samples]:
    """Return the program for a sample, and the limits of its sizes; without a `cache`, as loops only, for comparison.

    With `batch`, it is the program of one image, which is called for each.
    """
    main, renamed = imported.main, imported.renamed
    symbols = tuple(renamed.values())
    with _sampling(imported, numbers) as found:
        try:
            sampled = with_samples(
                main, {old: IntImm(INT64, 1) if old is batch else new for old, new in renamed.items()})
            sampled = imported.resolved(sampled)
            _check_sizes(sampled)
            _limit_dimensions(sampled)
            with report.phase("graph"):
                front = front_half(IRModule({"main": sampled}), target)
            names = main.attrs.get("output_tensor_names", ())
            if front.control is not None:
                return build_flow(
                    front.control, front.main, front.functions, target, name, report, cache, names,
                    symbols=symbols), found
            (optimized,) = front.functions
            if batch is not None:
                parts = open_size(renamed[batch])
                optimized = Function(
                    optimized.params, optimized.body, optimized.ret_type, optimized.type_params,
                    {**optimized.attrs, PARTS: parts}, optimized.span)
            made = build_program(optimized, target, name, report, cache, names, symbols)
        except OpenSizeError:
            raise
        except CompileError as error:
            raise _refusal(error) from error
        except TypeError as error:  # raised by Python for a symbolic size in the place of a number
            raise OpenSizeError(f"compilation needs a number instead of a symbolic size ({error})") from error
    return made, found


@contextmanager
def _sampling(imported: _Imported, numbers: Sequence[int]) -> Iterator[Samples]:
    """Within this context, the symbols of a program have these samples."""
    known = dict(zip(imported.renamed.values(), numbers, strict=True))
    with samples(known, least=imported.least, nonempty=True, most=imported.most) as found:
        found.equations((imported.named(a), imported.named(b)) for a, b in imported.equal)
        yield found


def _resolved(sampled: Function) -> Function:
    """Convert the nodes that wait for sizes alone."""
    return resolve(sampled, sampled.params, ShapeValues())


def _check_sizes(function: Function) -> None:
    """Raise `OpenSizeError` for a value whose size depends on values of the inputs."""
    if needs_stages(function):
        found = next(
            (e for e in post_order(function.body) if isinstance(e, Call) and isinstance(e.op, Op)
             and (isinstance(e.op, Waiting) or not is_static(e.known_type()))), None)
        what = "a branch" if found is None else f"the result of {getattr(found.op, 'op_type', found.op.name)}"
        refused = OpenSizeError(
            f"the size of {what} depends on values that the program computes", getattr(found, "span", None))
        refused.waits = True
        raise refused


def _limit_dimensions(function: Function) -> None:
    """Limit the sizes to those for which no dimension of a value is negative, such as `n - 2` for n = 1."""
    for d in _dimensions(function):
        require_at_least(d, 0)


def _dimensions(function: Function) -> set[OpenSize]:
    """Return the symbolic dimensions of all values of a function."""
    return {
        d for e in post_order(function.body) if isinstance(e, Call) for t in tensors_of(e.checked_type)
        for d in t.shape if isinstance(d, OpenSize)}


def _differ(message: str) -> OpenSizeError:
    """Return the error for two samples whose programs differ."""
    error = OpenSizeError(message)
    error.samples_differ = True
    return error


def _compare(a: Unfinished, b: Unfinished) -> None:
    """Raise `OpenSizeError` if the programs of two samples differ."""
    ours_made, theirs_made = a.report.kernels, b.report.kernels
    for symbol, kernel in ours_made.items():
        if symbol not in theirs_made or not _same_versions(kernel.versions, theirs_made[symbol].versions):
            raise _differ(
                f"the kernel of {symbol.partition('_')[2].partition('_')[2]} depends on the sizes in ways that are "
                "decided while compiling")
    # only compiled code has these two
    plan = replace(a.manifest, scratch=b.manifest.scratch, sites=b.manifest.sites)
    if len(ours_made) != len(theirs_made) or plan != b.manifest:
        raise _differ(
            "the order of the kernels, or the plan of memory, depends on the sizes in ways that are decided while "
            "compiling")
    if not _same_control(a.report, b.report):
        raise _differ("the control flow depends on the sizes in ways that are decided while compiling")
    ours, theirs = ([v for values in made.sources() for v in values] for made in (a, b))
    if len(ours) != len(theirs) or not all(map(_same, ours, theirs)):
        raise _differ("a constant depends on the sizes")


def _same_control(a: BuildReport, b: BuildReport) -> bool:
    """Whether two programs have the same functions, and the same steps in their blocks, apart from what only compiled
    code has."""
    if a.control is None or b.control is None:
        return a.control is b.control
    (ours, blocks), (theirs, others) = a.control, b.control
    return ours == replace(theirs, fallible=ours.fallible) and len(blocks) == len(others) and all(
        replace(x, scratch=y.scratch, sites=y.sites) == y for x, y in zip(blocks, others, strict=True))


def _same_versions(ours: Sequence[Version], theirs: Sequence[Version]) -> bool:
    """Whether two kernels consist of the same programs under the same conditions."""
    return len(ours) == len(theirs) and all(
        (a is b if a is None or b is None else structural_equal(a, b, exact=True))
        and structural_equal(x, y, exact=True) for (a, x), (b, y) in zip(ours, theirs, strict=True))


def _same(a: Array, b: Array) -> bool:
    """Whether two constants are the same memory, or have the same contents."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a is b or a.__array_interface__ == b.__array_interface__ or a.tobytes() == b.tobytes()
