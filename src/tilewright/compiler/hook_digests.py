"""Digests of functions that programs register for operators of this package, as part of the key of a compiled program.

A digest covers the code of a function and the values that the code refers to: constants, defaults, closures, and global
names, followed into other functions. Modules and classes of this package, of numpy and of Python itself count by name.
A function that refers to anything else has no digest.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import marshal
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from tilewright.backends.generic_func import GenericFunc
from tilewright.ir.op_attributes import OP_ATTRIBUTES

_KNOWN: Final = frozenset({"tilewright", "numpy", *sys.stdlib_module_names})


def hooks_digest() -> str | None:
    """Return a digest of the functions that take part in compiling operators of this package: empty without any, None
    if one of them has no digest."""
    hooks = {k: OP_ATTRIBUTES[k].value for k in sorted(OP_ATTRIBUTES) if k[1].startswith("FTVM")}
    if not hooks:
        return ""
    from tilewright.relay.op.registered import Registered
    from tilewright.relay.op.registry import OPS

    ours = {k: f for k, f in hooks.items() if k[0] in OPS and not issubclass(OPS[k[0]], Registered)}
    return digest(ours) if ours else ""


def digest(value: Any) -> str | None:
    """Return the digest of a function or of a value that functions refer to; None if it has none."""
    found = hashlib.sha256()
    try:
        for part in _parts(value, {}):
            found.update(b"%d:%b" % (len(part), part))
    except ValueError:
        return None
    return found.hexdigest()


def _parts(value: Any, seen: dict[int, int]) -> Iterator[bytes]:
    """Yield the parts of a value; `seen` numbers the functions, which may refer to one another in circles.

    Raises `ValueError` for a value without a digest.
    """
    match value:
        case FunctionType() if not _is_known(value.__module__, value.__qualname__):
            is_new = id(value) not in seen
            yield b"function %d" % seen.setdefault(id(value), len(seen))
            if is_new:
                yield from _parts(_referred(value), seen)
        case tuple() | list():
            yield b"%b %d" % (type(value).__name__.encode(), len(value))
            for item in value:
                yield from _parts(item, seen)
        case dict():
            yield from _parts([*value.items()], seen)
        case functools.partial():
            yield from _parts([value.func, value.args, value.keywords], seen)
        case GenericFunc():
            yield from _parts([value.name, value.fdefault, value.functions], seen)
        case ModuleType() if _is_known(value.__name__):
            yield value.__name__.encode()
        case FunctionType() | BuiltinFunctionType() | type() if _is_known(value.__module__, value.__qualname__):
            yield f"{value.__module__}.{value.__qualname__}".encode()
        case None | bool() | int() | float() | complex() | str() | bytes() | frozenset() | CodeType():
            yield marshal.dumps(value, 2)  # the last version without references, which vary between runs
        case _:
            raise ValueError(f"a {type(value).__name__} has no digest")


def _referred(function: FunctionType) -> list[Any]:
    """Return the code of a function and the values that it refers to. Raises `ValueError` for an import of an unknown
    module."""
    names, work = set[str](), [function.__code__]
    while work:
        code = work.pop()
        names.update(code.co_names)
        work += [c for c in code.co_consts if isinstance(c, CodeType)]
        for i in dis.get_instructions(code):
            if i.opname == "IMPORT_NAME" and not _is_known(i.argval):
                raise ValueError(i.argval)
    used = [(n, function.__globals__[n]) for n in sorted(names) if n in function.__globals__]
    cells = [c.cell_contents for c in function.__closure__ or ()]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, used]


def _is_known(module: str | None, name: str = "") -> bool:
    """Whether a module, or a named object of it, belongs to this package, to numpy or to Python."""
    return (module or "").partition(".")[0] in _KNOWN and "<locals>" not in name
