"""What the native function of a loop program takes: its arrays, then the numbers: scalar parameters and open sizes."""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import CompileError, TargetError
from tilewright.runtime.manifest import Parameter, Scalar
from tilewright.runtime.sizes import Size
from tilewright.scalar.expr import Buffer, IntImm, PrimExpr, Var
from tilewright.scalar.walk import free_vars, substitute, text_of
from tilewright.tir.stmt import NUMBERS, SCALARS, THREAD, For, PrimFunc, stored_buffers, walk_stmt


def with_numbers(func: PrimFunc) -> tuple[PrimFunc, tuple[Parameter | Scalar, ...]]:
    """The function with the numbers that its code takes noted, and its parameters: those of a call, then sizes that are found.

    Raises `CompileError` for a size that no call would tell.
    """
    given: tuple[tuple[int, Var], ...] = func.attrs.get(SCALARS, ())
    scalars = [v for _, v in given]
    open_sizes = list(dict.fromkeys(v for b in func.params for d in (*b.shape, *b.strides) if isinstance(d, PrimExpr) for v in free_vars(d)))
    found = [v for v in open_sizes if v not in scalars]
    alone = {d for b in func.params for d in (*b.shape, *b.strides)}
    for v in found:
        if v not in alone:
            raise CompileError(f"size '{v.name}' of '{func.name}' is no dimension by itself, so no call would tell it; make it an argument: args=[{v.name}, …]", code="TW0610")
    named = _named([*scalars, *found])
    written = stored_buffers(func.body)
    params: list[Parameter | Scalar] = [_parameter(b, b in written, named) for b in func.params]
    for place, v in given:
        params.insert(place, Scalar(named[v].name, v.dtype, given=True))
    params += [Scalar(named[v].name, v.dtype, given=False) for v in found]
    numbers = (*scalars, *found)
    return (replace(func, attrs={**func.attrs, NUMBERS: numbers}) if numbers else func), tuple(params)


def refuse_gpu_threads(func: PrimFunc) -> None:
    """Raise `TargetError` for loops that are threads of a GPU: code is made for CPUs."""
    for s in walk_stmt(func.body):
        tag = s.annotations.get(THREAD, "") if isinstance(s, For) else ""
        if isinstance(s, For) and tag and not tag.startswith(("vthread", "cthread")):
            raise TargetError(
                f"loop '{s.var.name}' of '{func.name}' is bound to '{tag}', threads of a GPU, and the target is a CPU; "
                "use parallel for its cores and vectorize for its lanes, or bind to te.thread_axis(n, 'vthread')", code="TW0512"
            )


def _named(variables: list[Var]) -> dict[Var, Var]:
    """For each variable one of a name that no other has."""
    taken: set[str] = set()
    named: dict[Var, Var] = {}
    for v in variables:
        wanted = v.name if v.name.isidentifier() else "n"
        name, k = wanted, 1
        while name in taken:
            name, k = f"{wanted}_{k}", k + 1
        taken.add(name)
        named[v] = Var(name, v.dtype)
    return named


def _parameter(buffer: Buffer, written: bool, named: dict[Var, Var]) -> Parameter:
    by_name: dict[PrimExpr, PrimExpr] = dict(named.items())

    def size(d: int | PrimExpr) -> Size:
        if isinstance(d, (int, IntImm)):
            return int(d)
        return text_of(substitute(d, by_name))

    return Parameter(buffer.name, tuple(map(size, buffer.shape)), buffer.dtype, written, tuple(map(size, buffer.strides)))
