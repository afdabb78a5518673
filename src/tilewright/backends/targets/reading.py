"""The text, dictionary or JSON of a target as its kind and options, in normal form. `target.py` makes targets of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.backends.base import LIST, NUMBER
from tilewright.backends.cpu import processors
from tilewright.backends.cpu.backend import nearest
from tilewright.backends.registry import backend_names, find_backend, has_backend
from tilewright.backends.targets.described import DESCRIBED, FLAG, TARGETS, is_described
from tilewright.backends.targets.tags import tag_names, tagged
from tilewright.base import settings
from tilewright.base.errors import TargetError
from tilewright.base.json_reading import read_json
from tilewright.ir.op_attributes import known_targets

_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_ARM_KEYS: Final = ("arm_cpu", "cpu")
"""The keys of a microcontroller."""


@dataclass(frozen=True, slots=True)
class Read:
    """The kind of a target, its options in normal form, the given keys, and the host as it is given, or None."""

    kind: str
    attrs: dict[str, Any]
    keys: tuple[str, ...] = ()
    host: Any = None


def read_target(given: Any) -> Read:
    """Return the parts of a target without accelerators, as text or a dictionary. Raises `TargetError`."""
    if isinstance(given, str):
        given = untagged(given)
    if isinstance(given, str):
        kind, options = split(given)
    elif isinstance(given, Mapping):
        options = {str(k): v for k, v in _with_tag(given).items() if (k, v) != ("tag", "")}
        kind = str(options.pop("kind", ""))
    else:
        raise TargetError(f"a target is text, a dictionary or a Target, not {type(given).__name__}", code="TW0501")
    host = options.pop("host", None) or None
    if is_described(kind):
        return _described(kind, options, host)
    if not has_backend(kind):
        if kind in known_targets():
            raise TargetError(
                f"'{kind}' computes only parts of a network; add a processor for the rest: '{kind}, "
                "llvm'", code="TW0504")
        if "/" in kind:
            raise _unknown_tag(kind)
        raise TargetError(f"'{kind}' is not a kind of target: {nearest(kind, backend_names(), 'kind')}", code="TW0502")
    known_options = find_backend(kind).options
    attrs = {name: _option(name, value, known_options) for name, value in options.items()}
    if "keys" not in attrs and processors.is_microcontroller(str(attrs.get("mcpu", ""))):
        attrs = {"keys": _ARM_KEYS, **attrs}
    return Read(kind, attrs, tuple(attrs.get("keys", ())), host)


def _described(kind: str, options: Mapping[str, Any], host: Any) -> Read:
    declared = DESCRIBED[kind]
    attrs = {name: _option(name, value, declared.attributes) for name, value in options.items()}
    keys = attrs.pop("keys", ())
    return Read(kind, {**declared.defaults, **attrs}, tuple(keys), host)


def untagged(text: str) -> str | Mapping[str, Any]:
    """Return the target of a tag as a dictionary that names the tag, and any other text unchanged."""
    found = tagged(text.strip()) if "/" in text else None
    return text if found is None else {**found, "tag": text.strip()}


def _with_tag(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a dictionary with the options of its tag, which its own options replace. An empty tag has no effect."""
    if given.get("tag") == "":
        return {k: v for k, v in given.items() if k != "tag"}
    if "kind" in given or "tag" not in given:
        return given
    found = tagged(str(given["tag"]))
    if found is None:
        raise _unknown_tag(str(given["tag"]))
    return {**found, **given}


def _unknown_tag(name: str) -> TargetError:
    near = settings.nearest(name, tag_names()) or "; tvm.target.list_tags() lists the tags"
    return TargetError(f"there is no target of the tag '{name}'{near}", code="TW0502")


def read_json_target(target: Any) -> Any:
    """Return the dictionary of JSON text, and any other target unchanged. Raises `TargetError` for invalid JSON."""
    if not isinstance(target, str) or not target.lstrip().startswith("{"):
        return target
    try:
        return read_json(target)
    except ValueError as error:
        raise TargetError(f"the target is not valid JSON: {error}", code="TW0501") from error


def split(text: str) -> tuple[str, dict[str, Any]]:
    """Split `llvm -mcpu=znver4 …` into its kind and raw options; `-mcpu znver4` is accepted, too."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"the target '{text}' cannot be read: {error}", code="TW0501") from error
    if not words:
        raise TargetError("the target is empty; write for example 'llvm' or 'llvm -mcpu=x86-64-v3'", code="TW0501")
    options: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            raise TargetError(
                f"'{word}' in the target '{text}' is not an option; options start with a dash, as in -mcpu=znver4",
                code="TW0501")
        name, equals, value = word.lstrip("-").partition("=")
        options[name] = value if equals else next(rest, "")
    return words[0], options


def _option(name: str, value: Any, known: Mapping[str, str]) -> Any:
    """Return the value of an option in its normal form: text, a number, a truth value or a tuple of texts."""
    kind = known.get(name)
    if kind is None:
        raise TargetError(f"'-{name}' is not an option of a target: {nearest(name, known, 'option')}", code="TW0502")
    if value in ("", None):
        raise TargetError(f"the target's option '-{name}' has no value", code="TW0501")
    if kind == FLAG:
        if (found := _FLAGS.get(str(value).lower())) is None:
            raise TargetError(f"the target's option '-{name}' is '{value}'; it must be true or false", code="TW0501")
        return found
    if kind == NUMBER:
        if not str(value).isdigit():
            raise TargetError(f"the target's option '-{name}' is '{value}'; it must be a number", code="TW0501")
        return int(value)
    if kind in (LIST, TARGETS):
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(","))
        if isinstance(value, Mapping):
            raise TargetError(f"the target's option '-{name}' is a dictionary; it must be a list", code="TW0501")
        return tuple(value) if kind == TARGETS else tuple(map(str, value))
    return str(value)


def check_parts(text: str, accelerators: list[str], processor: str) -> None:
    """Check that the parts of a target are different accelerators and one processor after them.

    Raises `TargetError` otherwise.
    """
    names = [*accelerators, processor]
    kinds = [n for n in names if has_backend(n) or is_described(n)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if len(kinds) > 2:
        raise TargetError(
            f"the target '{text}' names {len(kinds)} processors ({', '.join(kinds)}), but a program has one; give "
            "accelerators, then one processor",
            code="TW0504")
    if twice is not None:
        raise TargetError(
            f"the target '{text}' names {twice} twice; give it once, with all of its options", code="TW0504")
    if len(kinds) > 1:
        raise TargetError(
            f"the target '{text}' names two processors, {' and '.join(kinds)}, but a program has one; remove "
            f"{kinds[0]}",
            code="TW0504")
    if kinds and processor not in kinds:
        raise TargetError(
            f"the target '{text}' has {kinds[0]} before {processor}; the processor comes last: "
            f"'{', '.join([*accelerators[:-1], processor, kinds[0]])}'", code="TW0504")
