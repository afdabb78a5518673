"""The grammar of symbolic sizes in exported programs, which are parsed and rewritten before torch reads them.

torch passes the text of a size to sympy, which evaluates it as Python. So text from a file is never passed on: it is
parsed, each node is looked up in the tables below, and the result is printed from the parse.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from typing import Final

MAX_CHARACTERS: Final = 20_000
_MAX_DEPTH: Final = 60
_MAX_INTEGER: Final = 1 << 63
_MAX_EXPONENT: Final = 16
_MAX_TERMS: Final = 256
_MAX_DIVIDED_TERMS: Final = 64
_MAX_DIVIDED_DEGREE: Final = 12
_DIVISIONS: Final = frozenset({
    "FloorDiv", "CeilDiv", "CleanDiv", "Mod", "PythonMod", "IntTrueDiv", "FloatTrueDiv", "Rational", "RoundDecimal",
    "ModularIndexing", "Div", "Max", "Min", "Eq", "Ne", "Lt", "Le", "Gt", "Ge",
})
_SYMBOL: Final = re.compile(r"[A-Za-z_]([A-Za-z0-9_]{0,62}[A-Za-z_])?[0-9]{0,6}", re.ASCII)
_BARE_SYMBOL: Final = re.compile(r"[a-z]{1,4}[0-9]{1,6}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,40})?(e[+-]?[0-9]{1,3})?", re.ASCII)
_ASSUMPTIONS: Final = frozenset({"positive", "negative", "integer", "nonnegative", "nonpositive", "nonzero", "zero",
                                 "real", "finite", "commutative"})
_CONSTANTS: Final = frozenset({"oo", "true", "false"})
_MANY: Final = 64
_FUNCTIONS: Final = {
    **dict.fromkeys(("Add", "Mul", "Max", "Min", "And", "Or"), (1, _MANY)),
    **dict.fromkeys(("FloorDiv", "CeilDiv", "CleanDiv", "Mod", "PythonMod", "IntTrueDiv", "FloatTrueDiv", "Rational",
                     "RoundDecimal"), (2, 2)),
    **dict.fromkeys(("ModularIndexing", "Where"), (3, 3)),
    **dict.fromkeys(("Abs", "Not", "floor", "ceiling", "CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat",
                     "RoundToInt", "ToFloat", "Identity"), (1, 1)),
    **dict.fromkeys(("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "LessThan", "GreaterThan",
                     "StrictLessThan", "StrictGreaterThan"), (2, 2)),
}
"""Functions with their smallest and largest number of arguments."""
_POWERS: Final = frozenset({"Pow", "PowByNatural", "FloatPow"})
_OPERATORS: Final[dict[type, str]] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//",
                                      ast.Mod: "%"}
_COMPARISONS: Final[dict[type, str]] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def is_symbol(name: str) -> bool:
    """Whether a text is a valid name of a symbolic size."""
    return _SYMBOL.fullmatch(name) is not None


def canonical_size(text: str) -> str:
    """Parse and reprint a size. Raises `ValueError` for anything but arithmetic on numbers and symbols."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError("the text is too long")
    try:
        tree = ast.parse(text.strip(" "), mode="eval").body
        printed = _printed(tree, _MAX_DEPTH)
        _measured(tree)
        return printed
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("the text is not a valid expression") from error


def _printed(node: ast.expr, depth: int) -> str:
    if depth == 0:
        raise ValueError("the expression is nested too deep")
    if isinstance(node, ast.Constant):
        return _number(node.value)
    if isinstance(node, ast.Name) and (node.id in _CONSTANTS or _BARE_SYMBOL.fullmatch(node.id)):
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return f"({'-' if isinstance(node.op, ast.USub) else '+'}{_printed(node.operand, depth - 1)})"
    if isinstance(node, ast.BinOp):
        return _binary(node, depth)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return (f"({_printed(node.left, depth - 1)} {_COMPARISONS[type(node.ops[0])]} "
                f"{_printed(node.comparators[0], depth - 1)})")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node, depth)
    raise ValueError(f"{type(node).__name__} is not allowed")


def _measured(node: ast.expr) -> tuple[int, int]:
    """Upper bounds of the number of terms and the degree of the expanded polynomial.

    sympy searches quotients for common factors, at a cost exponential in both. Raises `ValueError` above the limits.
    """
    inner = [_measured(n) for n in _operands(node)]
    terms, degree = _combined(node, inner)
    if terms > _MAX_TERMS:
        raise ValueError(f"expanded, it has more than {_MAX_TERMS} terms")
    return terms, degree


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]


def _operation(node: ast.expr) -> str:
    """The name of a node's operation: a function's name, or a class of `ast` such as `Add`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return type(node.op).__name__ if isinstance(node, ast.BinOp) else ""


def _combined(node: ast.expr, inner: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The number of terms and the degree of a node, given those of its operands."""
    name = _operation(node)
    product = math.prod(t for t, _ in inner), sum(d for _, d in inner)
    if name in ("Add", "Sub"):
        return sum(t for t, _ in inner), max(d for _, d in inner)
    if name in ("Mul", "Mult"):
        return product
    if name in _POWERS:
        (terms, degree), exponent = inner[0], _largest_constant(_operands(node)[1])
        return int(terms**exponent), degree * exponent
    if isinstance(node, ast.UnaryOp):
        return inner[0]
    if name in _DIVISIONS and any(t > 1 for t, _ in inner[1:]) and (product[0] > _MAX_DIVIDED_TERMS
        or product[1] > _MAX_DIVIDED_DEGREE):
        raise ValueError(f"the dividend has more than {_MAX_DIVIDED_TERMS} products of terms, or a degree above "
                         f"{_MAX_DIVIDED_DEGREE}")
    return 1, 0 if isinstance(node, ast.Constant) else 1


def _largest_constant(node: ast.expr) -> int:
    return max(math.ceil(abs(n.value)) for n in ast.walk(node) if isinstance(n, ast.Constant)
               and isinstance(n.value, int | float))


def _number(value: object) -> str:
    if value is True or value is False:
        return str(value)
    if isinstance(value, int) and abs(value) <= _MAX_INTEGER:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise ValueError("a constant is not a 64-bit number")


def _binary(node: ast.BinOp, depth: int) -> str:
    if isinstance(node.op, ast.Pow):
        return _power("Pow", node.left, node.right, depth)
    if type(node.op) not in _OPERATORS:
        raise ValueError(f"{type(node.op).__name__} is not allowed")
    return f"({_printed(node.left, depth - 1)} {_OPERATORS[type(node.op)]} {_printed(node.right, depth - 1)})"


def _call(name: str, node: ast.Call, depth: int) -> str:
    if name == "Symbol":
        return _symbol(node)
    if name == "Float":
        return _float(node)
    if node.keywords:
        raise ValueError(f"{name} takes no named arguments")
    if name == "Integer" and len(node.args) == 1:
        inner = node.args[0].operand if isinstance(node.args[0], ast.UnaryOp) else node.args[0]
        if isinstance(inner, ast.Constant) and isinstance(inner.value, int):
            return f"Integer({_printed(node.args[0], depth - 1)})"
    if name in _POWERS and len(node.args) == 2:
        return _power(name, node.args[0], node.args[1], depth)
    fewest, most = _FUNCTIONS.get(name, (1, 0))
    if not fewest <= len(node.args) <= most:
        raise ValueError(f"{name} with {len(node.args)} arguments is not a function of sizes")
    return f"{name}({', '.join(_printed(a, depth - 1) for a in node.args)})"


def _power(name: str, base: ast.expr, exponent: ast.expr, depth: int) -> str:
    """Print a small constant power; larger ones are refused, because sympy evaluates powers of numbers immediately."""
    sign, value = ((-1, exponent.operand) if isinstance(exponent, ast.UnaryOp) and isinstance(exponent.op, ast.USub)
                   else (1, exponent))
    if (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "Integer"
            and len(value.args) == 1 and not value.keywords):
        return _power(name, base, value.args[0], depth - 1)
    if (not isinstance(value, ast.Constant) or not isinstance(value.value, (int, float))
            or not abs(value.value) <= _MAX_EXPONENT):
        raise ValueError(f"an exponent is not a number up to {_MAX_EXPONENT}")
    names = {x.id for x in ast.walk(base) if isinstance(x, ast.Name)}
    if (names & _POWERS or any(isinstance(x, ast.Pow) for x in ast.walk(base))
            or not any(n == "Symbol" or _BARE_SYMBOL.fullmatch(n) for n in names)):
        raise ValueError("a power must have a base with a symbol, and a base that is not itself a power")
    return f"{name}({_printed(base, depth - 1)}, {sign * value.value!r})"


def _symbol(node: ast.Call) -> str:
    name = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    if not isinstance(name, str) or not is_symbol(name):
        raise ValueError("the name of a symbol is not an identifier")
    known = {k.arg: k.value.value for k in node.keywords if k.arg in _ASSUMPTIONS and isinstance(k.value, ast.Constant)
             and isinstance(k.value.value, bool)}
    if len(known) != len(node.keywords):
        raise ValueError("an assumption about a symbol is unknown")
    return f"Symbol({', '.join([repr(name), *(f'{k}={v}' for k, v in known.items())])})"


def _float(node: ast.Call) -> str:
    """Print a float that sympy wrote as a string with a precision."""
    value = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    if isinstance(value, str) and _DECIMAL.fullmatch(value) and all(k.arg == "precision" for k in node.keywords):
        return _number(float(value))
    raise ValueError("Float takes one decimal number")
