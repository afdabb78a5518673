"""Check that a program is flat: what code generation takes."""

from __future__ import annotations

from tilewright.errors import InternalError
from tilewright.expr import Binary, Buffer, Load, PrimExpr, Var
from tilewright.expr_walk import text_of, walk
from tilewright.tir.stmt import NUMBERS, Allocate, Block, For, IfThenElse, Let, PrimFunc, Stmt, Store, bodies, expressions


def verify_flat(func: PrimFunc) -> None:
    """Raise `InternalError`, naming the place, unless `func` is flat and consistent."""
    buffers = set(func.params)
    for b in func.params:
        _check_buffer(func, b)
    sizes = {v for b in func.params for d in b.shape if isinstance(d, PrimExpr) for v in walk(d) if isinstance(v, Var)}
    _Verifier(func).stmt(func.body, frozenset(buffers), frozenset({*sizes, *func.attrs.get(NUMBERS, ())}))


def _check_buffer(func: PrimFunc, buffer: Buffer) -> None:
    if len(buffer.shape) != 1:
        raise InternalError(f"{func.name}: buffer '{buffer.name}' has {len(buffer.shape)} dimensions where flat ones are expected")


class _Verifier:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.checked: dict[tuple[frozenset[Buffer], frozenset[Var]], set[PrimExpr]] = {}

    def fail(self, why: str, s: Stmt) -> InternalError:
        lines = repr(s).splitlines()
        shown = "\n".join(["    " + line for line in lines[:6]] + (["    …"] if len(lines) > 6 else []))
        return InternalError(f"{self.func.name}: {why}, in\n{shown}")

    def stmt(self, s: Stmt, buffers: frozenset[Buffer], variables: frozenset[Var]) -> None:
        for e in expressions(s):
            self.expr(e, s, buffers, variables)
        match s:
            case For():
                if s.kind not in ("serial", "parallel"):
                    raise self.fail(f"loop '{s.var.name}' is still {s.kind}", s)
                variables |= {s.var}
            case Store():
                self.store(s, buffers)
            case Let():
                variables |= {s.var}
            case Allocate():
                _check_buffer(self.func, s.buffer)
                buffers |= {s.buffer}
            case IfThenElse() if s.condition.dtype != "bool":
                raise self.fail(f"a condition is {s.condition.dtype}, not bool", s)
            case Block():
                raise self.fail(f"block '{s.name}' was not lowered", s)
            case _:
                pass
        for x in bodies(s):
            self.stmt(x, buffers, variables)

    def store(self, s: Store, buffers: frozenset[Buffer]) -> None:
        if s.buffer not in buffers:
            raise self.fail(f"buffer '{s.buffer.name}' is written where it does not exist", s)
        if len(s.indices) != 1:
            raise self.fail(f"{len(s.indices)} indices for the flat buffer '{s.buffer.name}'", s)
        lanes = s.indices[0].dtype.lanes
        if s.value.dtype is not s.buffer.dtype.with_lanes(lanes):
            raise self.fail(f"a value of {s.value.dtype} is stored as {s.buffer.dtype.with_lanes(lanes)}", s)
        if s.mask is not None and (s.mask.dtype.element != "bool" or s.mask.dtype.lanes != lanes):
            raise self.fail(f"the mask of {lanes} lanes is {s.mask.dtype}", s)

    def expr(self, e: PrimExpr, s: Stmt, buffers: frozenset[Buffer], variables: frozenset[Var]) -> None:
        checked = self.checked.setdefault((buffers, variables), set())
        stack = [e]
        while stack:
            x = stack.pop()
            if x in checked:
                continue
            checked.add(x)
            stack += x.operands()
            if isinstance(x, Var) and x not in variables:
                raise self.fail(f"variable '{x.name}' is used where it has no value", s)
            if isinstance(x, Load) and (x.buffer not in buffers or len(x.indices) != 1):
                why = "does not exist" if x.buffer not in buffers else "is not flat"
                raise self.fail(f"buffer '{x.buffer.name}' is read where it {why}", s)
            if isinstance(x, Binary) and x.a.dtype is not x.b.dtype:
                raise self.fail(f"'{text_of(x)}' mixes {x.a.dtype} and {x.b.dtype}", s)
