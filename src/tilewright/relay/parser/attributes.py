"""Attributes of operators, functions and modules, and scalar constants: numbers, strings, lists, dictionaries, None.

    strides=[2, 2], out_dtype="int32", epsilon=1e-05f, kernel_layout=None
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.settings import nearest
from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.op.registry import Op
from tilewright.relay.parser.errors import Source
from tilewright.relay.parser.lexer import Token, plain_word, string_value
from tilewright.relay.parser.types import TypeReader, shown

_NUMBER: Final = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(.*)")
_SUFFIX: Final = {"f": "float32", "h": "float16", "bf16": "bfloat16"}
_WORDS: Final[dict[str, Any]] = {
    "True": True, "False": False, "None": None, "inff": math.inf, "inf": math.inf, "nanf": math.nan, "nan": math.nan,
}


class AttributeReader(TypeReader):
    """Reads attributes. `meta` has the metadata entries by class."""

    def __init__(self, source: Source, meta: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(source)
        self.meta = meta
        self._constants: dict[int, Constant] = {}

    def at_attribute(self) -> bool:
        """Return whether `name=` follows."""
        return self.ahead == "=" and self.kind in ("word", "string")

    def attribute_name(self) -> str:
        token = self.take()
        _ = self.expect("=", "'='")
        return string_value(token) if token.kind == "string" else plain_word(token.text)

    def attribute(self) -> Any:
        """Read the value of an attribute. Raises `ParseError`."""
        token = self.take()
        match token.kind:
            case "number":
                return _python_number(token.text)
            case "-":
                return self._negative()
            case "string":
                return string_value(token)
            case "[":
                return self._list("]")
            case "(":
                return self._list(")")
            case "{":
                return self._dictionary()
            case "word" if token.text == "meta":
                return self.meta_entry(token)
            case "word" if token.text in _WORDS:
                return _WORDS[token.text]
            case "word" if _is_dtype(token.text):
                return str(DataType(token.text))
        raise self.fail(f"the value of an attribute is expected here, not {shown(token)}; write a number, a "
                        "\"string\", a [list], True, False or None", token)

    def _negative(self) -> Any:
        if self.kind not in ("number", "word") or (self.kind == "word" and self.token.text not in _WORDS):
            raise self.fail(f"a number is expected after '-', not {shown(self.token)}")
        return -self.attribute()

    def _list(self, close: str) -> tuple[Any, ...]:
        values = []
        while not self.accept(close):
            values.append(self.attribute())
            if self.kind != close:
                _ = self.expect(",", f"',' or '{close}'")
        return tuple(values)

    def _dictionary(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self.accept("}"):
            key = string_value(self.expect("string", "a key, in quotes,"))
            _ = self.expect(":", "':'")
            entries[key] = self.attribute()
            if self.kind != "}":
                _ = self.expect(",", "',' or '}'")
        return entries

    # Metadata.
    def meta_entry(self, start: Token) -> Any:
        """Read `[relay.Constant][3]` after `meta`; each reference returns the same object."""
        _ = self.expect("[", "'['")
        kind = self.expect("word", "the class of an entry of the meta data").text
        _ = self.expect("]", "']'")
        _ = self.expect("[", "'[' and the number of the entry")
        token = self.expect("number", "the number of the entry")
        _ = self.expect("]", "']'")
        entries = self.meta.get(kind, ())
        if not token.text.isdigit() or int(token.text) >= len(entries):
            there = f"it has {len(entries)} of that class" if entries else "it has none of that class"
            raise self.fail(f"meta[{kind}][{token.text}] is not in the meta data: {there}; add the text's "
                            "#[metadata], or pass init_meta_table", start)
        index = int(token.text)
        return self._constant(index, entries[index], start) if kind == "relay.Constant" else entries[index]

    def _constant(self, index: int, entry: Any, start: Token) -> Constant:
        known = self._constants.get(index)
        if known is None:
            if isinstance(entry, Expr) and not isinstance(entry, Constant):
                raise self.fail(f"meta[relay.Constant][{index}] must be an array, not {type(entry).__name__}",
                                start)
            known = self._constants[index] = entry if isinstance(entry, Constant) else Constant(entry)
        return known

    # Scalar constants.
    def literal(self, token: Token, negative: bool = False) -> Constant:
        """Return a scalar constant: `2f` is float32, `1.5f64` float64, `7` int32, `7i64` int64. A whole number without
        a suffix that does not fit int32 is int64. Raises `ParseError` for values out of range."""
        digits, suffix = _parts(token.text)
        whole = digits.isdigit()
        dtype = DataType(_dtype_of(suffix) or ("float32" if not whole else
                         "int32" if int(digits) < (1 << 31) + negative else "int64"))
        if dtype.is_float:
            return self._float_literal(token, dtype, -float(digits) if negative else float(digits))
        if not whole:
            raise self.fail(f"'{token.text}' has an integer suffix, but a fraction", token)
        value = -int(digits) if negative else int(digits)
        low, high = _range(dtype)
        if not low <= value <= high:
            raise self.fail(f"{value} does not fit {dtype}; the limit is {low if negative else high}", token)
        return Constant(np.asarray(value).astype(dtype.numpy()) if dtype != "uint64" else np.asarray(value, "uint64"))

    def _float_literal(self, token: Token, dtype: DataType, number: float) -> Constant:
        largest = ml_dtypes.finfo(dtype.numpy()).max  # type: ignore[no-untyped-call]
        if abs(number) > max(float(largest), float(str(largest))):  # the text of the largest number may be rounded up
            raise self.fail(f"{number:g} does not fit {dtype}; the limit is {'-' * (number < 0)}{largest}", token)
        return Constant(np.asarray(number, dtype.numpy()))

    def operator(self, kind: type[Op], attrs: Mapping[str, tuple[Any, Token]], start: Token) -> Op:
        """Return an operator with its attributes. Raises `ParseError` for unknown or missing attributes."""
        fields = {f.name: f for f in dataclasses.fields(kind)}
        for name, (_, token) in attrs.items():
            if name not in fields:
                known = (f"{kind.name} has no attribute '{name}', only {', '.join(fields)}" if fields
                         else f"{kind.name} has no attributes")
                raise self.fail(f"{known}{nearest(name, fields)}", token)
        missing = [n for n, f in fields.items() if n not in attrs and f.default is dataclasses.MISSING
                   and f.default_factory is dataclasses.MISSING]
        if missing:
            raise self.fail(f"{kind.name} needs the attribute{'s' * (len(missing) > 1)} "
                            f"{', '.join(missing)}: write {missing[0]}=…", start)
        try:
            return kind(**{name: value for name, (value, _) in attrs.items()})
        except CompileError as error:
            raise self.fail(error.message, start) from None
        except (TypeError, ValueError) as error:
            raise self.fail(f"{kind.name} cannot have these attributes: {error}", start) from None


def _is_dtype(text: str) -> bool:
    try:
        return bool(DataType(text))
    except CompileError:
        return False


def _parts(text: str) -> tuple[str, str]:
    m = _NUMBER.fullmatch(text)
    return (m[1], m[2]) if m is not None else (text, "")


def _dtype_of(suffix: str) -> str:
    if suffix in _SUFFIX or not suffix:
        return _SUFFIX.get(suffix, "")
    return {"f": "float", "i": "int", "u": "uint"}[suffix[0]] + (suffix[1:] or "32")


def _range(dtype: DataType) -> tuple[int, int]:
    if dtype.bits == 1:
        return 0, 1
    info = ml_dtypes.iinfo(dtype.numpy())  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _python_number(text: str) -> int | float:
    digits, suffix = _parts(text)
    return int(digits) if digits.isdigit() and suffix[:1] not in ("f", "h", "b") else float(digits)
