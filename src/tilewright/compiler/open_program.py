"""One program for open sizes: symbolic dimensions of the inputs become numbers that every kernel takes.

    fn (%x: Tensor[(n, 384), float32]) { … }  ->  kernels over [n, 384] that take n, a workspace of pieces as large as n says

The function is compiled for a sample of the sizes (`arith/open_sizes.py`), which stands for all of them. A decision that
was made by the sample would show: everything is made for two samples, and refused unless it comes out the same. Machine code is only
made for one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright import expr
from tilewright.arith.open_sizes import Limit, samples
from tilewright.compiler.cache import Cache
from tilewright.compiler.collection import no_garbage_collection
from tilewright.compiler.program import Unfinished, build_program
from tilewright.compiler.report import Report
from tilewright.errors import CompileError, InputError
from tilewright.expr import PrimExpr, Var
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.open_sizes import symbols_of, with_samples
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.stages import needs_stages
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import Symbol
from tilewright.target.target import Target

Array = np.ndarray[Any, Any]
Range = tuple[int, "int | None"]

_SAMPLES: Final = ((61, 127, 131, 137, 139, 149, 151, 157), (67, 163, 167, 173, 179, 181, 191, 193))
"""Primes, so that they are in general position: nothing divides them, and no constant of a model is likely to equal both of one place."""


class OpenSizeError(CompileError):
    """A program has no form for open sizes; it can be compiled for each combination of them."""


def build_open(make: Callable[[], Function], ranges: Mapping[str, Range], target: Target, name: str, report: Report, cache: Cache) -> Artifact:
    """Compile the function that `make` imports, whose parameters have symbolic dimensions; `ranges` are by the names of these.

    Raises `OpenSizeError` with the reason where it has no form for open sizes, `InputError` for a range that the model does not have.
    """
    with no_garbage_collection():
        try:
            with samples({}, _SAMPLES[0]) as imported:
                main = make()
            renamed = _named(symbols_of(main))
            made, limits = _made(main, renamed, 0, target, name, report, cache)
            check, _ = _made(main, renamed, 1, target, name, Report(), None)
            _compare(made, check)
            symbols = [_symbol(old, new, ranges.get(old.name, (1, None)), [imported.limits.get(old), limits.get(new)]) for old, new in renamed.items()]
            return replace(made, manifest=replace(made.manifest, symbols=tuple(symbols))).finish()
        finally:
            expr.release()


def _named(symbols: Sequence[Var]) -> dict[Var, Var]:
    """The sizes under names that texts of sizes can have."""
    if len(symbols) > len(_SAMPLES[0]):
        raise OpenSizeError(f"there are {len(symbols)} open sizes ({', '.join(v.name for v in symbols)}), and a program takes {len(_SAMPLES[0])}")
    renamed: dict[Var, Var] = {}
    for v in symbols:
        wanted = "".join(c if c.isalnum() and c.isascii() else "_" for c in v.name)
        wanted = wanted if wanted.isidentifier() and wanted not in ("min", "max") else f"n_{wanted}"
        taken = {s.name for s in renamed.values()}
        renamed[v] = Var(next(t for t in (wanted, *(f"{wanted}_{k}" for k in range(len(symbols)))) if t not in taken))
    return renamed


def _symbol(old: Var, new: Var, wanted: Range, limits: Sequence[Limit | None]) -> Symbol:
    """A size with its range: that which was asked for, as far as the model allows it."""
    least, most = wanted
    for low, high in (limit for limit in limits if limit is not None):
        least = max(least, low)
        most = high if most is None else most if high is None else min(most, high)
    if most is not None and most < least:
        raise InputError(f"dimension '{old.name}' is asked for from {wanted[0]} to {wanted[1]}, and the model takes {least} to {most}; give another range")
    return Symbol(new.name, least, most)


def _made(
    main: Function, renamed: Mapping[Var, Var], which: int, target: Target, name: str, report: Report, cache: Cache | None,
) -> tuple[Unfinished, Mapping[PrimExpr, Limit]]:
    """The program for a sample, and what it says of its sizes; without a `cache` without machine code, to be compared."""
    symbols = tuple(renamed.values())
    with samples(dict(zip(symbols, _SAMPLES[which], strict=False))) as found:
        try:
            sampled = with_samples(main, renamed)
            if needs_stages(sampled):
                raise OpenSizeError("some sizes are in the values of its inputs")
            with report.phase("graph"):
                optimized = optimize(IRModule({"main": sampled}), target)["main"]
            made = build_program(optimized, target, name, report, cache, main.attrs.get("output_tensor_names", ()), symbols)
        except OpenSizeError:
            raise
        except CompileError as error:
            raise OpenSizeError(error.message, error.origin) from error
    return made, found.limits


def _compare(a: Unfinished, b: Unfinished) -> None:
    """Raise `OpenSizeError` where two programs differ, which were made for samples of the same sizes."""
    for symbol, text in a.report.llvm.items():
        if b.report.llvm.get(symbol) != text:
            raise OpenSizeError(f"the kernel of {symbol.partition('_')[2].partition('_')[2]} depends on the sizes in ways that are decided while compiling")
    if len(a.report.llvm) != len(b.report.llvm) or a.manifest != b.manifest:
        raise OpenSizeError("the order of the kernels, or the plan of memory, depends on the sizes in ways that are decided while compiling")
    if _digests(a.sources()) != _digests(b.sources()):
        raise OpenSizeError("a constant depends on the sizes")


def _digests(sources: Sequence[Sequence[Array]]) -> list[bytes]:
    return [hashlib.blake2b(np.ascontiguousarray(v).view(np.uint8).data if v.nbytes else b"").digest() for values in sources for v in values]
