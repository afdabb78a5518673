"""Parsers of structured option values: shapes, configuration, lists of names.

Every function raises `OptionError` with the given value and the expected form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tilewright.base import settings
from tilewright.base.errors import OptionError

if TYPE_CHECKING:
    from tilewright.backends.cpu.link import Linker

STAGES: Final = ("relay", "tir", "ll", "asm")
FORMATS: Final = (".so", ".tar")
OUTPUTS: Final = (*FORMATS, ".a", ".o", ".dll", ".wasm")
"""File formats of a compiled model; Python loads the first two."""
C_STAGE: Final = "c"
"""The stage of programs with the target C that replaces the last two."""
C_SOURCE: Final = ".c"
"""The suffix of a single C file."""

_SHAPE: Final = re.compile(r"\s*,?\s*(\S+?)\s*:\s*\[([^\]]*)\]")
_SIZE: Final = re.compile(
    r"\d+|[A-Za-z_]\w*(?:\.\w+)*(?::\d+)?|(?:[A-Za-z_]\w*(?:\.\w+)*=)?\d+\.\.\d*(?::\d+)?", re.ASCII)
_BYTES: Final = re.compile(r"(\d+)\s*([kKmMgG]?)(?:i?[bB])?", re.ASCII)
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_WORDS: Final = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


def input_shapes(text: str, below_one_is_open: bool = False) -> dict[str, tuple[Any, ...]]:
    """Convert `"x:[1,3,224,224] y:[1..64,n]"` to a dictionary; names may contain colons and slashes.

    Dynamic dimensions are kept as text. With `below_one_is_open`, as in TVM, a size of 0 or less is dynamic, too, and
    is named after the input and its position.
    """
    shapes: dict[str, tuple[Any, ...]] = {}
    position = 0
    while text[position:].strip(" ,\t\n"):
        match = _SHAPE.match(text, position)
        if match is None:
            raise OptionError(
                f"--input-shapes: cannot read '{text[position:].strip()}'; write for example \"x:[1,3,224,224] "
                "y:[1,10]\"",
                code="TW0202")
        name, sizes = match[1], [size.strip() for size in match[2].split(",")] if match[2].strip() else []
        if below_one_is_open:
            sizes = [
                f"{re.sub(r'[^A-Za-z0-9_]', '_', f'd_{name}_{k}')}" if re.fullmatch(r"-\d+|0+", size) else size
                for k, size in enumerate(sizes)]
        wrong = next((size for size in sizes if not _SIZE.fullmatch(size)), None)
        if wrong is not None:
            raise OptionError(
                f"--input-shapes: '{wrong}' in the shape of '{name}' is not a size; sizes are whole numbers from 0, or "
                "dynamic: n, 1..64, n=1..64, n=32..1280:32",
                code="TW0202")
        if name in shapes:
            raise OptionError(f"--input-shapes: '{name}' is given twice", code="TW0202")
        shapes[name] = tuple(int(size) if size.isdecimal() else size for size in sizes)
        position = match.end()
    return shapes


def pass_config(pairs: Iterable[str]) -> dict[str, Any]:
    """Convert `["relay.FuseOps.max_depth=8"]` to a dictionary, each value of the option's declared type."""
    config = {}
    for pair in pairs:
        name, equals, word = pair.partition("=")
        if not equals:
            raise OptionError(f"--pass-config: '{pair}' has no value; write {pair}=VALUE", code="TW0202")
        config[name] = _value(name, word, settings.setting(name).type)
    return config


def _value(name: str, word: str, kind: type) -> Any:
    try:
        read: Callable[[str], Any] = (lambda w: _WORDS[w.lower()]) if kind is bool else kind
        return read(word)
    except (ValueError, KeyError):
        raise OptionError(f"--pass-config: {name} takes {kind.__name__}, not '{word}'", code="TW0202") from None


def flag(option: str, word: Any) -> bool:
    """Parse a flag: 1 or 0, true or false, on or off."""
    found = _WORDS.get(str(word).lower())
    if found is None:
        raise OptionError(f"{option}: '{word}' is neither 1 nor 0", code="TW0202")
    return found


def mixed_precision(kind: str, sums: str) -> list[str]:
    """Return the settings of `--mixed-precision` and `--mixed-precision-acc-type`; none without the former."""
    if not kind:
        return []
    if kind not in ("bfloat16", "float16"):
        raise OptionError(f"--mixed-precision: '{kind}' is neither bfloat16 nor float16", code="TW0202")
    if sums not in ("float32", kind):
        raise OptionError(
            f"--mixed-precision-acc-type: products of {kind} are summed in float32 or in {kind}, not in '{sums}'",
            code="TW0202")
    return [f"relay.ToMixedPrecision.type={kind}", f"relay.ToMixedPrecision.acc_type={sums}"]


def byte_count(option: str, text: str) -> int:
    """Return `"256K"`, `"1M"` or `"300000"` in bytes; K is 1024."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise OptionError(f"{option}: '{text}' is not a number of bytes; write 300000, 256K or 1M", code="TW0202")
    return int(match[1]) << _UNITS[match[2].lower()]


def max_arena(text: str) -> list[str]:
    """Return the setting of `--max-arena`; none without the option."""
    return [f"relay.backend.max_arena={byte_count('--max-arena', text)}"] if text else []


def numerics(runtime: str) -> list[str]:
    """Return the setting of `--numerics`; none without the option."""
    known = settings.setting("relay.qnn.numerics").choices[1:]
    if runtime and runtime not in known:
        raise OptionError(f"--numerics: there is no '{runtime}'; choose from {', '.join(known)}", code="TW0203")
    return [f"relay.qnn.numerics={runtime}"] if runtime else []


def linker(compiler: str, words: str) -> Linker | None:
    """Return the linker of `--cross-compiler` and its options; None, which lets the compiler choose, without them."""
    if words and not compiler:
        raise OptionError(
            "--cross-compiler-options needs --cross-compiler; name the compiler, for example --cross-compiler "
            "aarch64-linux-gnu-gcc",
            code="TW0204")
    from tilewright.backends.cpu.link import user_linker

    return user_linker(compiler, words) if compiler else None


def names(option: str, text: str, known: tuple[str, ...] = ()) -> list[str]:
    """Return names separated by commas, each one of `known` unless that is empty."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    wrong = next((name for name in chosen if known and name not in known), None)
    if wrong is not None:
        raise OptionError(f"{option}: there is no '{wrong}'; choose from {', '.join(known)}", code="TW0203")
    return chosen
